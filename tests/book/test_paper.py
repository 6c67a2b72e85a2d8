"""The book on paper: numbers, boxes, quizzes and frames in the LaTeX text, and what TeX says."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import build_book
import make_pdf

_spec = importlib.util.spec_from_file_location(
    "sandbox_book", Path(__file__).with_name("sandbox_book.py")
)
sandbox_book = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sandbox_book)

ROOT = Path(__file__).resolve().parents[2]
FIGURE = """
```{code-cell} ipython3
from fourviews import display
import matplotlib.pyplot as plt


def draw(height):
    plt.plot([0, 1], [0, height])


display.slider(draw, [1, 2, 3], label="Height", alt=lambda h: f"A line that rises to {h}")
```
"""


@pytest.fixture(scope="module")
def tex(tmp_path_factory) -> str:
    """LaTeX of the sandbox's book, with a moving figure in its first lesson."""
    root = sandbox_book.make(tmp_path_factory.mktemp("paper"))
    package = root / "lib" / "fourviews" / "display"
    package.mkdir()
    for path in (ROOT / "lib" / "fourviews" / "display").iterdir():
        if path.is_file():
            (package / path.name).write_bytes(path.read_bytes())
    lesson = root / "lessons_src" / "first_01_everything.md"
    text = lesson.read_text(encoding="utf-8")
    assert text.count("\n## Figures and tables\n") == 1
    lesson.write_text(
        text.replace("\n## Figures and tables\n", f"{FIGURE}\n## Figures and tables\n"),
        encoding="utf-8",
    )
    done = sandbox_book.build(root)
    assert done.returncode == 0, done.stdout + done.stderr
    tree, latex = root / "_build" / "derived" / "student", root / "_build" / "paper" / "latex"
    assert not build_book.run_sphinx(tree, latex, root, quiet=True, strict=False, builder="latex")
    return (latex / f"{make_pdf.NAME}.tex").read_text(encoding="utf-8")


def test_only_the_chapters_of_numbered_parts_have_numbers(tex):
    """So LaTeX counts the first lesson as chapter 1, as the pages do."""
    steps = re.findall(r"\\setcounter\{secnumdepth\}\{(-?\d)\}|\\chapter\{([^}]*)\}", tex)
    depth, numbered = None, {}
    for value, title in steps:
        if value:
            depth = int(value)
        elif title:
            numbered[title] = depth
    assert len(numbered) == 4
    assert list(numbered.values()) == [-1, -1, 1, 1]
    assert r"\part{Part}" not in tex


def test_statements_bear_the_numbers_of_the_pages(tex):
    assert re.search(r"begin\{sphinxadmonition\}\{note\}\{Definition 1\.1", tex)
    assert re.search(r"begin\{sphinxadmonition\}\{note\}\{Theorem 1\.2", tex)
    assert r"\label{equation:first_01_everything:eq-energy}" in tex.replace(r"\detokenize", "")


def test_a_proof_is_text_that_ends_with_a_square(tex):
    assert tex.count(r"\hfill$\square$") == tex.count("Proof. ") > 0
    assert r"\begin{sphinxadmonition}{note}{}" not in tex


def test_a_quiz_lists_its_choices_and_its_answers(tex):
    assert r"\textbf{Quick question.}" in tex
    asked, answers = tex.split(r"\textbf{Quick question.}")[1].split(r"\textit{Answers.}")
    for letter in "abc":
        assert rf"\noindent({letter}) " in asked
        assert rf"\noindent({letter}) " in answers


def test_a_moving_figure_becomes_frames_side_by_side(tex):
    shown = tex.split("display}\\PYG{o}{.}\\PYG{n}{slider}")[1].split(
        r"\section{Figures and tables}"
    )[0]
    assert shown.count(r"\sphinxincludegraphics{") == 1  # the strip of frames, one picture
    assert "Slider «Height»" not in shown


def test_nothing_withheld_is_on_paper(tex):
    for secret in ("graded-solution-canary", "hidden-check-canary", "rubric-canary"):
        assert secret not in tex


def test_what_is_missing_is_said_in_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "make_pdf.py")],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "latexmk, xelatex" in done.stderr
    assert "apt-get install" in done.stderr


def test_complaints_name_signs_and_labels():
    log = (
        "Missing character: There is no ᵀ (U+1D40) in font [FreeMono.otf]!\n"
        "LaTeX Warning: Reference `fig-x' on page 3 undefined on input line 7.\n"
    )
    assert make_pdf.complaints(log) == ["the fonts lack ᵀ", "nothing is labelled fig-x"]
    assert make_pdf.complaints("Output written") == []


@pytest.mark.skipif(bool(make_pdf.missing()), reason="LaTeX is not installed")
def test_tex_stops_with_the_reason(tmp_path):
    path = tmp_path / f"{make_pdf.NAME}.tex"
    path.write_text(r"\documentclass{article}\begin{document}\nosuchthing\end{document}")
    with pytest.raises(build_book.BuildError, match="Undefined control sequence"):
        make_pdf.set_pages(tmp_path)
    path.write_text(r"\documentclass{article}\begin{document}words\end{document}")
    assert "Output written" in make_pdf.set_pages(tmp_path)
