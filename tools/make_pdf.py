"""Set the whole book on paper: `make pdf`. Writes _build/four-views-of-attention.pdf.

The pages are brought up to date first, so that paper and pages come from the same outputs. Then
Sphinx writes LaTeX and latexmk runs XeLaTeX until all references are settled.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import build_book
from build_book import BuildError
from settings import ROOT

NAME = "four-views-of-attention"
PROGRAMS = ("latexmk", "xelatex", "kpsewhich")
# One file of each package of styles and fonts that the book's class asks for.
FILES = ("fncychap.sty", "ucharclasses.sty", "unicode-math.sty", "lmroman10-regular.otf")
DEBIAN = (
    "apt-get install --no-install-recommends latexmk texlive-xetex texlive-latex-extra "
    "texlive-fonts-recommended fonts-freefont-otf"
)


def missing() -> str:
    """In one line what keeps this machine from setting the book; empty if nothing does."""
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if not lacking:
        found = subprocess.run(
            ["kpsewhich", *FILES], capture_output=True, text=True, check=False
        ).stdout
        there = {Path(line).name for line in found.splitlines()}
        lacking = [name for name in FILES if name not in there]
    if not lacking:
        return ""
    return f"LaTeX is missing {', '.join(lacking)} (Debian, 370 MB: {DEBIAN})."


def make_pdf(root: Path = ROOT, build_dir: Path | None = None) -> Path:
    """Build the pages if they are not current, then the PDF beside them; returns its path."""
    lack = missing()
    if lack:
        raise BuildError(lack)
    build_dir = (build_dir or root / "_build").resolve()
    build_book.build(root=root, build_dir=build_dir)
    tree, latex = build_dir / "derived" / "student", build_dir / "paper" / "latex"
    print("== write LaTeX", flush=True)
    if build_book.run_sphinx(tree, latex, root, quiet=True, strict=False, builder="latex"):
        raise BuildError("Sphinx wrote no LaTeX, see above")
    print("== set pages", flush=True)
    log = set_pages(latex)
    for line in complaints(log):
        print(f"   {line}")
    target = build_dir / f"{NAME}.pdf"
    shutil.copy(latex / f"{NAME}.pdf", target)
    return target


def set_pages(latex: Path) -> str:
    """Run XeLaTeX as often as it needs; returns its last log."""
    command = ["latexmk", "-pdfxe", "-dvi-", "-ps-", "-interaction=nonstopmode", f"{NAME}.tex"]
    done = subprocess.run(command, cwd=latex, capture_output=True, check=False)
    path = latex / f"{NAME}.log"
    log = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    if done.returncode:
        why = re.findall(r"^! .*(?:\n.*){0,3}", log, re.M) or [f"see {path}"]
        raise BuildError("XeLaTeX stopped:\n" + "\n".join(why[:5]))
    return log


def complaints(log: str) -> list[str]:
    """What is wrong on paper though LaTeX goes on: signs without a glyph, references to nothing."""
    signs = sorted(set(re.findall(r"Missing character: There is no (\S+)", log)))
    found = [f"the fonts lack {' '.join(signs)}"] if signs else []
    lost = set(re.findall(r"Reference `([^']+)' on page \d+ undefined", log))
    return found + [f"nothing is labelled {label}" for label in sorted(lost)]


def main() -> int:
    try:
        path = make_pdf()
    except BuildError as error:
        print(f"There is no PDF. {error}", file=sys.stderr)
        return 1
    pages = re.findall(
        r"Output written on .*\((\d+) pages",
        (path.parent / "paper" / "latex" / f"{NAME}.log").read_text(errors="replace"),
    )
    size = path.stat().st_size / 1e6
    print(f"Open {path.relative_to(ROOT)}: {pages[-1] if pages else '?'} pages, {size:.1f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
