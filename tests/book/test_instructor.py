"""The instructor edition: all there is to see, students' outputs as students see them, nothing mixed.

It is built from the sandbox's lessons, first without anything stored.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import nbformat
import pytest

import numbering


def _neighbour(name: str):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


leak_search = _neighbour("leak_search")
sandbox_book = _neighbour("sandbox_book")

FIRST, SECOND = "first_01_everything", "second_01_short_lab"
SOURCE = f"lessons_src/{FIRST}.md"
PASSES = "fresh_numbers: the solution passes with seed 1."


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    root = sandbox_book.make(tmp_path_factory.mktemp("instructor"))
    done = sandbox_book.build(root, "--edition", "instructor")
    assert done.returncode == 0, done.stdout + done.stderr
    return root, done.stdout


@pytest.fixture
def edit(built):
    """Change files of the sandbox for one test; they are put back afterwards."""
    root, _ = built
    before: dict[Path, bytes] = {}

    def change(path: Path, old: str, new: str) -> None:
        before.setdefault(path, path.read_bytes())
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, (path, old)
        path.write_text(text.replace(old, new), encoding="utf-8")

    yield change
    for path, content in before.items():
        path.write_bytes(content)


def stages(output: str) -> list[dict[str, str]]:
    """What each lesson did in the two stages that run something: `ran` or `stored`."""
    parts = re.split(r"^== run (?:lessons|solutions)$", output, flags=re.M)[1:]
    return [dict(re.findall(r"^ +(\w+) +(ran|stored) ", part, re.M)) for part in parts]


def page(root: Path, name: str = FIRST) -> str:
    path = root / "_build" / "instructor" / "html" / f"{name}.html"
    return path.read_text(encoding="utf-8")


def test_lessons_run_first_where_nothing_is_stored(built):
    _, output = built
    assert "Open _build/instructor/html/index.html" in output
    assert stages(output) == [{FIRST: "ran", SECOND: "ran"}] * 2


def test_nothing_runs_again_without_need(built):
    root, _ = built
    done = sandbox_book.build(root, "--edition", "instructor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert stages(done.stdout) == [{FIRST: "stored", SECOND: "stored"}] * 2


def test_the_page_has_all_that_is_withheld_and_that_checks_pass(built):
    root, _ = built
    text = leak_search.letters("".join(leak_search.forms(page(root))))
    for words in (
        "practice-solution-canary",
        "practice-code-canary",
        "graded-solution-canary",
        "graded-code-canary",
        "hidden-check-canary",
        "rubric-canary",
        "graded-rubric-canary",
        PASSES,
    ):
        assert leak_search.letters(words) in text, words


def test_guides_are_pages_of_their_own(built):
    root, _ = built
    for name in ("guide", f"guide_{FIRST}", f"guide_{SECOND}"):
        assert f'href="{name}.html"' in page(root, "index")
    assert "Points" in page(root, f"guide_{FIRST}")


def test_numbers_are_those_of_the_other_edition(built):
    root, _ = built
    path = root / "_build" / "instructor" / "numbers.json"
    sphinx = json.loads(path.read_text(encoding="utf-8"))
    own = {
        label: entry.number
        for label, entry in numbering.read_book(root).entries.items()
        if entry.number
    }
    assert {label: sphinx[label]["number"] for label in own} == own


def test_notebooks_hold_solutions_and_all_outputs(built):
    root, _ = built
    folder = root / "_build" / "instructor"
    notebook = nbformat.read(folder / "notebooks" / f"{FIRST}.ipynb", as_version=4)
    nbformat.validate(notebook)
    outputs = {
        cell.source: "".join(out.get("text", "") for out in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    }
    printed = {text for text in outputs.values() if text}
    assert {"42\n", "graded-code-canary\n", f"{PASSES}\n"} <= printed
    # As students see it: the check after the stub, which has not been filled in.
    assert any("ex-warm-up: not yet" in text for text in printed)
    figures = [
        out
        for cell in notebook.cells
        for out in cell.get("outputs", [])
        if "image/png" in out.get("data", {})
    ]
    assert len(figures) == 1
    copy = folder / "html" / "notebooks" / f"{FIRST}.ipynb"
    assert copy.read_bytes() == (folder / "notebooks" / f"{FIRST}.ipynb").read_bytes()


def test_nothing_of_it_lies_where_students_output_lies(built):
    root, _ = built
    book = numbering.read_book(root)
    wanted = leak_search.withheld(book.lessons.values(), root, page=True)
    assert {secret.kind for secret in wanted} == {
        "canary",
        "code",
        "hidden check",
        "rubric",
        "words",
    }
    build = root / "_build"
    files = list(leak_search.files([build], [build / "instructor"]))
    assert any(path.name == "base.ipynb" for path in files)
    assert leak_search.leaks(files, wanted) == []
    assert not (build / "html").exists()
    assert leak_search.leaks(leak_search.files([build / "instructor" / "html"]), wanted)


def test_outputs_of_students_cells_are_taken_as_stored(built, edit):
    """A stored output is changed by hand: it shows on the page, so nothing was run for it."""
    root, _ = built
    stored = root / "_build" / ".jupyter_cache" / "executed"
    (path,) = [path for path in stored.rglob("base.ipynb") if '"42\\n"' in path.read_text("utf-8")]
    edit(path, '"42\\n"', '"forty-two as stored\\n"')
    edit(root / SOURCE, "x = random.Random(seed).random()", "x = random.Random(seed + 1).random()")
    done = sandbox_book.build(root, "--edition", "instructor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert stages(done.stdout) == [
        {FIRST: "stored", SECOND: "stored"},
        {FIRST: "ran", SECOND: "stored"},
    ]
    assert "forty-two as stored" in page(root)
    assert PASSES in page(root)


def test_a_hidden_check_that_the_solution_does_not_pass_stops_the_build(built, edit):
    root, _ = built
    edit(root / SOURCE, "assert double(x) == x + x,", "assert double(x) == x + x + 1,")
    done = sandbox_book.build(root, "--edition", "instructor")
    assert done.returncode != 0
    lines = (root / SOURCE).read_text(encoding="utf-8").split("\n")
    line = lines.index("import random") + 1
    assert f"{SOURCE}:{line}: a solution or hidden check failed: AssertionError" in done.stderr
    assert "double(x) is not x + x" in done.stderr


def test_exercises_start_from_the_imports_alone():
    """A name that one exercise defines is gone in the next, and an import is what it was."""
    import execute_solutions

    scope: dict = {"__builtins__": __builtins__}
    exec("import math, random", scope)
    exec(execute_solutions.KEEP, scope)
    exec("helper = 1\nmath = 2\ndel random", scope)
    exec(execute_solutions.CLEAR, scope)
    assert "helper" not in scope
    assert scope["math"].pi > 3
    assert scope["random"].random
