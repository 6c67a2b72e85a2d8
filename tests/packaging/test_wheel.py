"""The wheel holds the library and nothing else, and lessons run against it anywhere."""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path

import pytest

import lesson_source
import settings
import write_notebooks

from .environments import ROOT, empty_environment, fresh_environment, run

LESSONS = [ROOT / "lessons_src" / "convex_02_mlp.md"]


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    python = fresh_environment(tmp_path_factory.mktemp("clean") / "venv")
    done = run(
        *(python, "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", wheel),
        cwd=wheel.parent,
    )
    assert done.returncode == 0, done.stderr
    return python


def test_the_wheel_holds_the_library_only(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    version = settings.load(ROOT, use_environment=False).tag.removeprefix("v")
    assert tops == {"fourviews", f"fourviews-{version}.dist-info"}
    held = {name for name in names if name.startswith("fourviews/")}
    package = ROOT / "lib" / "fourviews"
    files = {
        f"fourviews/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == files
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_nothing_withheld_is_in_the_wheel(wheel):
    """No canary, no hidden check under whatever name, no rubric; and the search would find one."""
    archive = zipfile.ZipFile(wheel)
    files = {
        name: plain(archive.read(name).decode("utf-8", "replace")) for name in archive.namelist()
    }
    lessons = [lesson_source.read(path) for path in sorted((ROOT / "lessons_src").glob("*.md"))]
    withheld = {secret for lesson in lessons for secret in secrets_of(lesson)}
    assert len(withheld) > 20
    assert [(name, s) for name, text in files.items() for s in withheld if s in text] == []
    for lesson in lessons:
        text = plain(lesson.path.read_text(encoding="utf-8"))
        assert all(secret in text for secret in secrets_of(lesson))


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def secrets_of(lesson: lesson_source.Lesson) -> set[str]:
    """Texts that stand in what is withheld of a lesson's exercises."""
    found: set[str] = set()
    for exercise in lesson.exercises():
        assert exercise.solution is not None
        found |= {exercise.solution.canary or ""} - {""}
        found |= {words for _, words in exercise.solution.rubric}
        for check in exercise.solution.hidden_checks:
            found |= {check.description, f"def {check.name}("}
            lines = map(str.strip, check.cell.source.split("\n"))
            found |= {line for line in lines if line.startswith("assert ") and len(line) > 30}
    return {plain(text) for text in found}


def test_imports_come_from_the_wheel(installed, tmp_path):
    code = (
        "import fourviews, fourviews.attention, fourviews.convex, fourviews.data, fourviews.display;"
        "import fourviews.course;"
        "print(fourviews.convex.__file__)"
    )
    done = run(installed, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(installed.parents[1])


def test_metadata_name_every_extra(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (n for n in archive.namelist() if n.endswith("dist-info/METADATA"))
    text = archive.read(name).decode()
    for extra in ("lessons", "data", "convex-reference", "book", "test", "assignments"):
        assert f"Provides-Extra: {extra}\n" in text


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_runs_against_the_wheel(installed, path, tmp_path):
    cells = [cell.source for cell in lesson_source.read(path).cells(solutions=False)]
    program = tmp_path / "lesson.py"
    program.write_text("\n\n".join(cells), encoding="utf-8")
    done = run(installed, program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]


def test_a_failed_install_is_said_in_one_line(tmp_path):
    where = settings.Settings(repository="https://127.0.0.1:9/nowhere", tag="v7.7.7", pages="")
    code = "import importlib.util; importlib.util.find_spec = lambda name: None\n"
    code += write_notebooks.install_cell(where)
    done = run(sys.executable, "-c", code, cwd=tmp_path, PIP_RETRIES="0", PIP_TIMEOUT="5")
    assert done.returncode == 0
    assert done.stdout.startswith(
        "Could not install fourviews[lessons,data] @ git+https://127.0.0.1"
    )
    assert done.stdout.count("\n") == 1
    assert "git clone" in done.stderr  # what pip says, which is shown in this case only


def test_a_torch_that_does_not_fit_is_neither_replaced_nor_passed_over(release, tmp_path):
    """Its version is asked for along with the library, so pip refuses and says why."""
    python, packages = empty_environment(tmp_path / "venv")
    old = packages / "torch-1.0.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n")
    (packages / "torch.py").write_text("")
    cell = tmp_path / "cell.py"
    cell.write_text(write_notebooks.install_cell(release), encoding="utf-8")
    done = run(python, cell, cwd=tmp_path)
    assert done.stdout.startswith("Could not install fourviews") and done.stdout.count("\n") == 1
    assert "torch" in done.stderr and "conflict" in done.stderr.lower()
    assert (old / "METADATA").exists() and not (packages / "fourviews").exists()


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_the_plain_notebook_holds_the_same_code(path):
    notebook = json.loads((ROOT / "book" / f"{path.stem}.ipynb").read_text(encoding="utf-8"))
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert code[1:] == [cell.source for cell in lesson_source.read(path).cells(solutions=False)]
