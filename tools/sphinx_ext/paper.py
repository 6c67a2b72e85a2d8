"""The book on paper: what LaTeX needs to be told so that numbers and boxes are those of the pages.

- Chapters are numbered where the table of contents says so, so that Equation (3.2) is the same on
  paper and on the page, and a part without a name is none.
- A proof is running text with a square at its end, where Sphinx would draw a box without a title.
- Long names of tests break at underscores and colons instead of running off the page.
"""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

TEX = "four-views-of-attention.tex"

# XeLaTeX with fonts that know the signs in the lessons' code and text; line by line what for.
_PREAMBLE = r"""
% Code: a font with superscript letters and circled signs; what it lacks is set as maths.
\IfFontExistsTF{DejaVu Sans Mono}{\setmonofont{DejaVu Sans Mono}[Scale=0.8]}{}
\usepackage{newunicodechar}
\newunicodechar{𝓖}{\ensuremath{\mathcal{G}}}
\newunicodechar{ℓ}{\ensuremath{\ell}}
\newunicodechar{⪰}{\ensuremath{\succeq}}
% The font for mathematics lacks the sign of the first of these.
\AtBeginDocument{\renewcommand{\setminus}{\smallsetminus}}
% Names of functions may break where they are joined.
\AtBeginDocument{\protected\def\_{\ifmmode\text{\textunderscore}\else\textunderscore\allowbreak\fi}}
\pdfstringdefDisableCommands{\def\_{\textunderscore}}
\setcounter{tocdepth}{1}
"""


def configure(app: Sphinx, config: Config) -> None:
    config.latex_engine = "xelatex"
    config.latex_use_xindy = False  # makeindex comes with every TeX
    config.latex_documents = [("index", TEX, config.project, config.author, "jupyterBook")]
    config.latex_elements = {
        **config.latex_elements,
        "papersize": "a4paper",
        "extraclassoptions": "openany,oneside",
        "preamble": config.latex_elements.get("preamble", "") + _PREAMBLE,
    }


def open_proofs(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Proofs have no title, so that LaTeX would draw an empty one."""
    if app.builder.format != "latex":
        return
    for node in list(doctree.findall(nodes.admonition)):
        if "proof" in node.get("classes", []) and not isinstance(node.next_node(), nodes.title):
            end = nodes.raw("", "\n\\hfill$\\square$\\par\\medskip\n", format="latex")
            node.replace_self(nodes.compound("", *node.children, end))


def number_chapters(text: str, contents: dict) -> str:
    """Take the numbers off the chapters of parts that are not `numbered`, and a made-up part's name."""
    for part in contents.get("parts", []):
        depth = 1 if part.get("numbered") else -1
        first = part["chapters"][0]["file"]
        label = re.escape(rf"\label{{\detokenize{{{first}::doc}}}}")
        start = re.search(rf"\\chapter\{{[^\n]*\}}\n[^\n]*{label}", text)
        if start is None:
            raise ValueError(f"page {first} of book/_toc.yml begins no chapter of the LaTeX text")
        before, after = text[: start.start()], text[start.start() :]
        if "caption" not in part:
            before = re.sub(r"\\part\{Part\}(?!.*\\part\{)", "", before, flags=re.S)
        text = f"{before}\\setcounter{{secnumdepth}}{{{depth}}}\n{after}"
    return text


def number_exercises(text: str, numbers: dict[str, str]) -> str:
    """Write the numbers of exercises into references to them: LaTeX itself does not count them."""

    def settled(found: re.Match) -> str:
        return numbers.get(found.group(1), found.group(0))

    text = re.sub(r"\\ref\{\\detokenize\{\w+:(ex-[\w-]+)\}\}", settled, text)
    return re.sub(r"\[\\detokenize\{\w+:(ex-[\w-]+)\}\]", r"[exercise:\1]", text)


def finish(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.format != "latex":
        return
    contents = yaml.safe_load(Path(app.config.external_toc_path).read_text(encoding="utf-8"))
    path = Path(app.outdir) / TEX
    numbers = {
        label: ".".join(map(str, number))
        for kinds in app.env.toc_fignumbers.values()
        for label, number in kinds.get("exercise", {}).items()
    }
    text = number_chapters(path.read_text(encoding="utf-8"), contents)
    path.write_text(number_exercises(text, numbers), encoding="utf-8")
    # The class of Jupyter Book asks for this font by name; the book itself never uses it.
    stub = "\\ProvidesPackage{bbm}\n\\providecommand{\\mathbbm}[1]{\\mathbb{#1}}\n"
    (Path(app.outdir) / "bbm.sty").write_text(stub, encoding="utf-8")


def setup(app: Sphinx) -> None:
    # After Jupyter Book, which writes settings of its own.
    app.connect("config-inited", configure, priority=900)
    app.connect("doctree-resolved", open_proofs, priority=950)
    app.connect("build-finished", finish)
