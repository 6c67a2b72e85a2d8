"""Sphinx extension: what the book asks of its pages beyond what Jupyter Book does.

- A picture without a text for those who cannot see it is a warning, so that the build fails.
- Where the book is published, a selector leads to its other versions (`versions.js`).
- The download button leads to the plain notebook, not to the executed page.
- What scrolls can be reached by keyboard, and formulas have a name (`access.js`).
- No script asks another site for anything, and none that is loaded fails.
- Kind, duration and points of an exercise stand beside its title.
- A solution of the instructor edition shows its canary, by which a leak is traced.
- Terms of the glossary are linked where a lesson first uses them.
- Tests can be read on pages of the book, docstrings on those of the library.
- Every page ends with a link for those who have found a mistake on it.
- The numbers that Sphinx gave to labels are written out, so that a test can compare them with
  those of the notebooks.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import glossary_links
import paper
import quiz
import reference
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinxcontrib.bibtex.plugin import register_plugin
from sphinxcontrib.bibtex.style.referencing import BracketStyle
from sphinxcontrib.bibtex.style.referencing.author_year import AuthorYearReferenceStyle

logger = logging.getLogger(__name__)

TEMPLATES = Path(__file__).parent / "templates"
MISTAKE_PAGE, MISTAKE_SECTION = "how_to_use", "found-a-mistake"
# Ids that extensions put on every theorem, proof and exercise: in a page they must be unique.
_REPEATED_IDS = {"proof-content", "exercise-content", "solution-content", "proof"}


def _round() -> BracketStyle:
    return BracketStyle(left="(", right=")")


@dataclass
class RoundAuthorYear(AuthorYearReferenceStyle):
    """Author and year in round brackets, as in the notebooks: square ones hold intervals."""

    bracket_textual: BracketStyle = field(default_factory=_round)
    bracket_parenthetical: BracketStyle = field(default_factory=_round)


def check_pictures(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Warn of pictures whose alternative text is missing or is but a file name."""
    if app.builder.format != "html":
        return
    for node in doctree.findall(nodes.image):
        _check_alt(node.get("alt"), node)
    for node in doctree.findall(nodes.raw):
        if node.get("format") == "html":
            for tag in re.findall(r"<img\b[^>]*>", node.astext()):
                alt = re.search(r"\balt\s*=\s*(\"([^\"]*)\"|'([^']*)')", tag)
                _check_alt(alt and (alt.group(2) or alt.group(3)), node)


def _check_alt(alt: str | None, node: nodes.Node) -> None:
    if not alt or len(alt.split()) < 3 or re.search(r"\.(png|svg|jpe?g|gif|webp)$", alt.strip()):
        logger.warning("picture without alternative text (alt is %r)", alt, location=node)


def tidy_boxes(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Show facts of exercises and solutions; drop repeated ids and what live code would need."""
    for node in list(doctree.findall(nodes.raw)):
        if "x-thebe-config" in node.astext() or node.astext().startswith("<script>kernelName"):
            node.parent.remove(node)
    for node in doctree.findall(nodes.Element):
        if node.get("ids"):
            node["ids"] = [name for name in node["ids"] if name not in _REPEATED_IDS]
    for node in doctree.findall(nodes.Element):
        facts = dict(
            name.split("-", 1)
            for name in node.get("classes", [])
            if name.startswith(("kind-", "minutes-", "points-", "mode-", "canary-"))
        )
        title = node.next_node(nodes.title) if facts else None
        if title is not None and {"kind", "minutes", "points"} <= facts.keys():
            points = f"{facts['points']} point" + ("" if facts["points"] == "1" else "s")
            graded = ", graded" if facts.get("mode") == "graded" else ""
            text = f" ({facts['kind']}, {facts['minutes']} min, {points}{graded})"
            title += nodes.inline("", text, classes=["exercise-effort"])
        elif title is not None and "canary" in facts:
            title += nodes.inline("", f" Canary {facts['canary']}", classes=["canary"])


def use_templates(app: Sphinx, config) -> None:
    config.templates_path = [str(TEMPLATES), *config.templates_path]
    if config.fourviews_pages:
        app.add_js_file("versions.js", loading_method="defer")


def finish_context(app: Sphinx, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Last changes to what a page is made from: scripts, labels, download button."""
    context["fourviews_pages"] = app.config.fourviews_pages
    context["script_files"] = [
        script
        for script in context.get("script_files", [])
        # Live code through a remote service is not offered, and its script fails where it is not.
        if "thebe" not in str(getattr(script, "filename", script) or "").lower()
        and "thebe" not in str(getattr(script, "attributes", {}).get("body", "")).lower()
    ]
    context["css_files"] = [
        sheet
        for sheet in context.get("css_files", [])
        if "thebe" not in str(getattr(sheet, "filename", sheet))
    ]
    if context.get("body"):
        # A name for screen readers that differs from the words on the button misleads them.
        context["body"] = context["body"].replace(' aria-label="Toggle hidden content"', "")
        # A list of works holds items; the role that docutils gives them is no longer in use.
        context["body"] = context["body"].replace('role="doc-biblioentry"', 'role="listitem"')
        # An unnumbered statement and its title carry the same id.
        context["body"] = re.sub(
            r'(<p class="admonition-title") id="unnumbered-[^"]*"', r"\1", context["body"]
        )
    notebook = Path(app.config.fourviews_notebooks) / f"{pagename}.ipynb"
    if app.config.fourviews_notebooks and notebook.exists():
        button = {
            "type": "link",
            "url": f"{context['pathto']('notebooks', 1)}/{pagename}.ipynb",
            "text": "",
            "icon": "fas fa-download",
            "tooltip": "Download this lesson as a notebook",
            "label": "download-notebook-button",
        }
        context["header_buttons"].insert(0, button)


def add_mistake_link(app: Sphinx, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Where a mistake on this page is reported; nowhere if the book does not say how."""
    address = ""
    if app.config.fourviews_repository:
        title = f"Mistake on page {pagename} ({app.config.fourviews_tag}): "
        address = f"{app.config.fourviews_repository}/issues/new?title={quote(title, safe='')}"
    elif MISTAKE_PAGE in app.env.found_docs:
        # To itself, a page's path is a bare "#".
        address = f"{context['pathto'](MISTAKE_PAGE).rstrip('#')}#{MISTAKE_SECTION}"
    context["fourviews_mistake"] = address


def finish_build(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.format != "html":
        return
    out = Path(app.outdir)
    shutil.rmtree(out / "_sources", ignore_errors=True)
    if app.config.fourviews_notebooks:
        shutil.rmtree(out / "notebooks", ignore_errors=True)
        (out / "notebooks").mkdir()
        for path in sorted(Path(app.config.fourviews_notebooks).glob("*.ipynb")):
            shutil.copy(path, out / "notebooks" / path.name)
    numbers = json.dumps(_numbers(app), indent=1, sort_keys=True, ensure_ascii=False)
    (out.parent / "numbers.json").write_text(numbers + "\n", encoding="utf-8")


def _numbers(app: Sphinx) -> dict[str, dict[str, str]]:
    """Label to page, id and number, for everything that Sphinx numbered."""
    found: dict[str, dict[str, str]] = {}

    def number(page: str, node_id: str) -> str | None:
        for ids in app.env.toc_fignumbers.get(page, {}).values():
            if node_id in ids:
                return ".".join(map(str, ids[node_id]))
        return None

    def add(label: str, page: str, node_id: str) -> None:
        value = number(page, node_id)
        if value:
            found[label] = {"page": page, "id": node_id, "number": value}

    for label, (page, node_id, *_) in app.env.get_domain("std").anonlabels.items():
        add(label, page, node_id)
    for label, (page, _) in app.env.get_domain("math").equations.items():
        add(label, page, nodes.make_id(f"equation-{label}"))
    for label, proof in getattr(app.env, "proof_list", {}).items():
        add(label, proof["docname"], proof["ids"][0])
    return found


def setup(app: Sphinx) -> dict[str, bool]:
    register_plugin("sphinxcontrib.bibtex.style.referencing", "author_year_round", RoundAuthorYear)
    app.add_config_value("fourviews_notebooks", "", "html")
    app.add_config_value("fourviews_looks", "", "html")  # its change alone writes all pages anew
    app.add_config_value("fourviews_repository", "", "html")
    app.add_config_value("fourviews_tag", "", "html")
    # A title in the list of pages may hold a formula: each page needs what sets it.
    app.set_html_assets_policy("always")
    app.add_config_value("fourviews_pages", "", "html")
    app.add_js_file("access.js", loading_method="defer")
    paper.setup(app)
    quiz.setup(app)
    glossary_links.setup(app)
    reference.setup(app)
    app.connect("config-inited", use_templates)
    app.connect("doctree-resolved", check_pictures)
    app.connect("doctree-resolved", tidy_boxes, priority=900)
    # Before the theme, which leaves out templates that come out empty.
    app.connect("html-page-context", add_mistake_link, priority=100)
    app.connect("html-page-context", finish_context, priority=900)
    app.connect("build-finished", finish_build)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
