"""Every code cell of every lesson runs, solutions and stubs included, in one process a lesson."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lesson_source

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted((ROOT / "lessons_src").glob("*.md"))


def script(lesson: lesson_source.Lesson) -> list[tuple[int, str]]:
    """First line and source of the cells that are meant to run."""
    return [
        (cell.source_line, cell.source)
        for cell in lesson.cells()
        if "skip-execution" not in cell.tags
    ]


def run_lesson(path: Path, folder: Path, lib: Path) -> subprocess.CompletedProcess:
    """Run all cells in one fresh process; a traceback names the lesson's own lines."""
    cells = script(lesson_source.read(path))
    program = folder / "run_lesson.py"
    program.write_text(
        "import ast, sys, warnings\n"
        "warnings.filterwarnings('ignore', message='FigureCanvasAgg is non-interactive')\n"
        f"path, cells = {str(path)!r}, {cells!r}\n"
        "namespace = {'__name__': '__main__'}\n"
        "for line, source in cells:\n"
        "    tree = ast.increment_lineno(ast.parse(source), line - 1)\n"
        "    exec(compile(tree, path, 'exec'), namespace)\n",
        encoding="utf-8",
    )
    environment = {
        **os.environ,
        "MPLBACKEND": "Agg",
        "FOURVIEWS_BOOK_BUILD": "1",
        "PYTHONPATH": str(lib),
    }
    return subprocess.run(
        [sys.executable, str(program)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_every_cell_runs(path, tmp_path):
    done = run_lesson(path, tmp_path, ROOT / "lib")
    assert done.returncode == 0, done.stderr[-4000:]


def test_a_failing_cell_is_reported_at_its_line(tmp_path):
    text = (
        "---\nkernelspec: {display_name: Python 3, language: python, name: python3}\n---\n\n"
        "# Title\n\n```{code-cell} ipython3\nx = 0\n1 / x\n```\n"
    )
    path = tmp_path / "part_01_topic.md"
    path.write_text(text, encoding="utf-8")
    done = run_lesson(path, tmp_path, ROOT / "lib")
    assert done.returncode != 0
    assert f'"{path}", line 9' in done.stderr
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_code_exercises_have_a_stub(path):
    for exercise in lesson_source.read(path).exercises():
        cells = [block for block in exercise.blocks if isinstance(block, lesson_source.Cell)]
        stubs = [cell for cell in cells if "stub" in cell.tags]
        if exercise.kind == "code":
            assert stubs, f"{path.name}:{exercise.line}: no cell with the tag stub"
