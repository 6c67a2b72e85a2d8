"""Write the assignment of one lesson: a notebook for students, an autograder, a rubric.

    python tools/write_assignment.py convex_02_mlp
    python tools/write_assignment.py convex_02_mlp --seed 20270301

Everything is made from the lesson's text: students get statements, stubs and public checks, and the
autograder, in the format of otter-grader and Gradescope, gets the hidden checks with the seed. The
seed stands in the autograder and in the instructor's README, nowhere else.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from string import Template

import settings as project
from bibliography import Bibliography
from lesson_source import Exercise, HiddenCheck, Lesson, SourceError
from numbering import Book, read_book
from planted_answers import check_names
from settings import ROOT, Settings
from write_notebooks import NotebookWriter, install_cell

TEMPLATES = Path(__file__).resolve().parent / "assignment"
DEFAULT_SEED = 1
LARGEST_SEED = 2**32 - 1  # what NumPy's and PyTorch's generators both take
AUTOGRADER_FILES = "/autograder/source/files"  # where Gradescope unpacks the bundle's files


class AssignmentError(Exception):
    """No assignment was written; the message says why, in one line."""


def shares(exercise: Exercise) -> list[float]:
    """Points of the public check and of each hidden check: the same for all of them."""
    count = len(check_names(exercise))
    return [exercise.automatic_points / count] * count


def checked(lesson: Lesson) -> list[Exercise]:
    """The exercises that have checks."""
    return [exercise for exercise in lesson.exercises() if exercise.check]


# The student's notebook

HOW_TO = """\
Work through the exercises in any order. Run the two cells below first; an exercise uses nothing
else, neither the lesson nor another exercise.

- Write your answer into the cell that begins the exercise, and keep the names that stand there. You
  may add cells in front of the check.
- `course.check(…)` draws fresh data each time, says what is missing, and ends with «public checks
  passed» when it finds nothing. Grading runs further checks that you do not see.
- Leave the cells with `course.check(…)` where they are: an exercise is graded there.
- Where words are asked for, write them in the cell «Your answer».
- Before you hand in: restart the kernel, run all cells from top to bottom, save, and hand in this
  notebook."""


class AssignmentNotebook(NotebookWriter):
    """Statements, stubs and public checks of a lesson, without the lesson around them."""

    def notebook(self) -> dict:
        title = self.title(self.lesson.title, 1)
        self.pending = [f"# Exercises: {title}", HOW_TO]
        self.flush()
        self.code(install_cell(self.settings), [])
        self.code("\n".join(self.lesson.prelude()), [])
        for exercise in self.lesson.exercises():
            first = len(self.cells)
            self.top(exercise)
            if exercise.check:
                for cell in self.cells[first:]:
                    if "check" in cell["metadata"].get("tags", []):
                        # Graded right here, while its names still mean this exercise's answers.
                        cell["metadata"]["otter"] = {"tests": [exercise.label]}
            if exercise.solution and exercise.solution.rubric:
                self.pending = ["**Your answer.** *(Write here.)*"]
                self.flush()
        return self.finished()


def student_notebook(lesson: Lesson, book: Book, works: Bibliography, settings: Settings) -> str:
    """The notebook that is handed out, as text."""
    notebook = AssignmentNotebook(lesson, book, works, settings).notebook()
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


# The autograder


def checks_file(exercise: Exercise, seed: int) -> str:
    """Otter's test file of an exercise: one public test and its hidden ones, with their points."""
    assert exercise.solution is not None
    public, *hidden = shares(exercise)
    parts = [
        Template((TEMPLATES / "checks_file.py.txt").read_text(encoding="utf-8")).substitute(
            label=exercise.label,
            seed=seed,
            answers=repr(tuple(exercise.answers)),
            points=repr(public),
        )
    ]
    for position, (check, points) in enumerate(
        zip(exercise.solution.hidden_checks, hidden, strict=True), start=1
    ):
        parts.append(_hidden_test(check, position, points))
    return "\n\n".join(parts)


def _hidden_test(check: HiddenCheck, position: int, points: float) -> str:
    inner = textwrap.indent(check.cell.source, "    ")
    text = (
        f'@test_case(name="hidden {position}", points={points!r}, hidden=True)\n'
        f"def hidden_{position}(env):\n"
        f"{inner}\n\n"
        f"    call({check.name}, env, {tuple(check.parameters)!r})\n"
    )
    # Indented in a function of its own it must still be the same code, strings included.
    body = ast.parse(text).body[0].body[:-1]
    if ast.dump(ast.Module(body, [])) != ast.dump(ast.parse(check.cell.source)):
        raise AssertionError(f"{check.name} means something else when indented")
    return text


def build_wheel(root: Path, target: Path) -> Path:
    """The library as a wheel in `target`, built without the network."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    wheels = sorted(target.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise AssignmentError(f"the wheel was not built: {(done.stderr or done.stdout).strip()}")
    return wheels[0]


def write_autograder(
    lesson: Lesson, target: Path, *, seed: int, settings: Settings, wheel: Path | None
) -> None:
    """`target`, a zip for `otter run` and for Gradescope, made by otter itself."""
    try:
        from otter.generate import main as generate
    except ImportError as error:
        raise AssignmentError(
            "otter-grader is missing: pip install -c constraints.txt -e '.[assignments]'"
        ) from error
    if wheel is None:
        requirement = f"fourviews[lessons,data] @ git+{settings.repository}@{settings.tag}"
    else:
        requirement = f"fourviews[lessons,data] @ file://{AUTOGRADER_FILES}/{wheel.name}"
    with tempfile.TemporaryDirectory(prefix="autograder-") as name:
        folder = Path(name).resolve()
        (folder / "tests").mkdir()
        for exercise in checked(lesson):
            path = folder / "tests" / f"{exercise.label}.py"
            path.write_text(checks_file(exercise, seed), encoding="utf-8")
        (folder / "requirements.txt").write_text(requirement + "\n", encoding="utf-8")
        config = {"lang": "python", "show_hidden": False, "show_stdout": False}
        (folder / "otter_config.json").write_text(json.dumps(config), encoding="utf-8")
        if wheel is not None:
            shutil.copy(wheel, folder)
        with contextlib.chdir(folder):  # otter takes files from the working directory only
            generate(
                tests_dir="tests",
                output_path="autograder.zip",
                config="otter_config.json",
                requirements="requirements.txt",
                no_environment=True,
                files=[wheel.name] if wheel is not None else [],
                python_version=f"{sys.version_info.major}.{sys.version_info.minor}",
            )
        shutil.copy(folder / "autograder.zip", target)


# What a person needs


def _number(points: float) -> str:
    return f"{points:.2f}".rstrip("0").rstrip(".")


def points_table(lesson: Lesson, book: Book) -> str:
    """Who gives which points of each exercise, as a table in Markdown."""
    rows = [
        "| exercise | label | kind | mode | points | public check | hidden checks | by hand |",
        "|:--|:--|:--|:--|--:|--:|--:|--:|",
    ]
    sums = [0.0, 0.0, 0.0, 0.0]
    for exercise in lesson.exercises():
        public, *hidden = shares(exercise) if exercise.check else [0.0]
        by_hand = exercise.points - exercise.automatic_points
        values = [exercise.points, public, sum(hidden), by_hand]
        sums = [total + value for total, value in zip(sums, values, strict=True)]
        each = f" ({len(hidden)} × {_number(hidden[0])})" if len(hidden) > 1 else ""
        rows.append(
            f"| {book.entries[exercise.label].name} | `{exercise.label}` | {exercise.kind} "
            f"| {exercise.mode} | {_number(values[0])} | {_number(values[1])} "
            f"| {_number(values[2])}{each} | {_number(values[3])} |"
        )
    rows.append("| together | | | | " + " | ".join(map(_number, sums)) + " |")
    return "\n".join(rows)


def rubric(lesson: Lesson, book: Book, words: NotebookWriter) -> str:
    """What a person grades, exercise by exercise."""
    parts = [
        f"# Rubric: {words.title(lesson.title, 1)}",
        "For instructors. Programs give the points of the checks; a person gives those below. The "
        "model answers are in the instructor edition (`make instructor`).",
        points_table(lesson, book),
    ]
    for exercise in lesson.exercises():
        assert exercise.solution is not None
        if exercise.solution.rubric:
            by_hand = exercise.points - exercise.automatic_points
            name = book.entries[exercise.label].name
            title = words.title(exercise.title, exercise.line)
            line = exercise.solution.line
            items = [
                f"- **{points}** {words.inline(text, line)}"
                for points, text in exercise.solution.rubric
            ]
            parts += [f"## {name}: {title}", f"`{exercise.label}`, {by_hand} by hand."]
            parts.append("\n".join(items))
    return "\n\n".join(parts) + "\n"


def readme(lesson: Lesson, book: Book, *, seed: int, wheel: Path | None, title: str) -> str:
    """How to hand out and grade, with the commands."""
    practice = [exercise for exercise in lesson.exercises() if exercise.mode == "practice"]
    names = ", ".join(book.entries[exercise.label].number for exercise in practice)
    shown = (
        f"Solutions of the practice exercises ({names}) are folded on the reader's page. "
        if practice
        else ""
    )
    library = (
        "The project has no public address yet, so the library travels with the assignment: "
        f"give students `{wheel.name}` beside the notebook, to install with "
        f"`pip install {wheel.name}`. The autograder holds a copy."
        if wheel
        else "The notebook's first cell and the autograder install the library at its release tag."
    )
    handed_out = f"`{lesson.name}.ipynb`" + (f" and `{wheel.name}`" if wheel else "")
    return Template((TEMPLATES / "README.md.txt").read_text(encoding="utf-8")).substitute(
        title=title,
        lesson=lesson.name,
        seed=seed,
        default=" (the default, so anyone can know it)" if seed == DEFAULT_SEED else "",
        shown=shown,
        library=library,
        handed_out=handed_out,
        table=points_table(lesson, book),
    )


def seed_from(text: str) -> int:
    """A seed as written on the command line."""
    if not text.isascii() or not text.isdecimal() or int(text) > LARGEST_SEED:
        raise AssignmentError(
            f"SEED is {text!r}: need a whole number from 0 to {LARGEST_SEED}, such as 20270301"
        )
    return int(text)


def write(
    name: str,
    *,
    root: Path = ROOT,
    target: Path | None = None,
    seed: int = DEFAULT_SEED,
    settings: Settings | None = None,
) -> Path:
    """Write the assignment of lesson `name` into `target` and return that folder.

    `target` is `root/_build/assignments/<name>` unless given; what it held before is removed.

    Raises
    ------
    AssignmentError
        If there is no such lesson, or nothing in it that a program can grade.
    """
    settings = settings or project.load(root)
    book = read_book(root)
    if name not in book.lessons:
        raise AssignmentError(f"no lesson {name!r}; there are: {', '.join(book.lessons)}")
    lesson = book.lessons[name]
    if not checked(lesson):
        raise AssignmentError(f"{name} has no exercise with a check: nothing to grade by program")
    works = Bibliography(root / "book" / "references.bib")
    words = NotebookWriter(lesson, book, works, settings)
    target = target or root / "_build" / "assignments" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    # Put together aside, so that a failure never leaves half an assignment behind.
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=target.parent) as aside:
        folder = Path(aside) / name
        folder.mkdir()
        notebook = student_notebook(lesson, book, works, settings)
        (folder / f"{name}.ipynb").write_text(notebook, encoding="utf-8")
        wheel = None if settings.repository else build_wheel(root, folder)
        write_autograder(
            lesson, folder / "autograder.zip", seed=seed, settings=settings, wheel=wheel
        )
        (folder / "rubric.md").write_text(rubric(lesson, book, words), encoding="utf-8")
        title = words.title(lesson.title, 1)
        # A plain text file sets no mathematics.
        text = readme(lesson, book, seed=seed, wheel=wheel, title=title.replace("$", ""))
        (folder / "README.md").write_text(text, encoding="utf-8")
        shutil.copy(TEMPLATES / "grade.py", folder / "grade.py")
        if target.exists():
            shutil.rmtree(target)
        os.replace(folder, target)
    return target


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("lesson", help="such as convex_02_mlp")
    parser.add_argument("--seed", default=str(DEFAULT_SEED), help="for the hidden checks")
    options = parser.parse_args(arguments)
    try:
        target = write(options.lesson, seed=seed_from(options.seed))
    except (AssignmentError, SourceError) as error:
        print(f"No assignment was written: {error}", file=sys.stderr)
        return 1
    where = target.relative_to(ROOT) if target.is_relative_to(ROOT) else target
    print(f"Open {where}/README.md")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
