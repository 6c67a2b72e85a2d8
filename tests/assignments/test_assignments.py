"""Assignments: what is in them, and that each grader gives the points that it should.

Test files run as otter runs them, in this process, for every exercise: the reference earns all, the
stub nothing, a planted wrong answer what the checks that it passes are worth. For one lesson a part
the whole way is gone: a folder of notebooks, `grade.py`, otter, a table.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import re
import subprocess
import sys
import zipfile
from fractions import Fraction
from pathlib import Path

import nbformat
import pytest

import grading
import planted_answers
import write_assignment
from bibliography import Bibliography
from lesson_source import Exercise, Lesson
from numbering import read_book
from settings import Settings

ROOT = Path(__file__).resolve().parents[2]
SEED = 20270301
BOOK = read_book(ROOT)
# The quick starts have nothing that a program grades.
LESSONS = [lesson for lesson in BOOK.lessons.values() if write_assignment.checked(lesson)]
PUBLISHED = Settings("https://github.com/someone/somewhere", "v9.8.7", "")
UNPUBLISHED = Settings("", "v0.1.0", "")
EXERCISES = [
    pytest.param(lesson, exercise, id=exercise.label)
    for lesson in LESSONS
    for exercise in write_assignment.checked(lesson)
]
WHOLE_WAY = {lesson.name.split("_")[0]: lesson.name for lesson in LESSONS}  # the last of each part


@pytest.fixture(scope="module")
def bundles(tmp_path_factory) -> Path:
    """An assignment of every lesson; one of them from a project without an address."""
    folder = tmp_path_factory.mktemp("assignments")
    for lesson, settings in zip(LESSONS, [UNPUBLISHED, *[PUBLISHED] * len(LESSONS)], strict=False):
        write_assignment.write(
            lesson.name, target=folder / lesson.name, seed=SEED, settings=settings
        )
    return folder


def notebook_of(bundles: Path, lesson: Lesson) -> nbformat.NotebookNode:
    return nbformat.read(bundles / lesson.name / f"{lesson.name}.ipynb", as_version=4)


# What is in the folder


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_the_folder_has_what_its_readme_lists(bundles, lesson):
    folder = bundles / lesson.name
    names = {path.name for path in folder.iterdir() if path.suffix != ".whl"}
    notebook = f"{lesson.name}.ipynb"
    assert names == {notebook, "autograder.zip", "grade.py", "rubric.md", "README.md"}
    readme = (folder / "README.md").read_text(encoding="utf-8")
    for name in names - {"README.md"}:
        assert f"| `{name}` |" in readme
    assert "$" not in readme.replace("${", "")
    assert f"Seed of the hidden checks: {SEED}." in readme


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_the_students_notebook_has_exercises_and_imports_only(bundles, lesson):
    notebook = notebook_of(bundles, lesson)
    nbformat.validate(notebook)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    wanted = [cell.source for e in lesson.exercises() for cell in [*e.stubs, e.check] if cell]
    assert code[1] == "\n".join(lesson.prelude())
    assert "fourviews" in code[0]
    own = [
        cell.source
        for exercise in lesson.exercises()
        for cell in exercise.blocks
        if hasattr(cell, "source")
    ]
    assert code[2:] == own
    assert set(wanted) <= set(own)
    text = "\n".join(cell.source for cell in notebook.cells)
    for exercise in lesson.exercises():
        assert f"**{BOOK.entries[exercise.label].name} (" in text
    answers = sum(cell.source.startswith("**Your answer.**") for cell in notebook.cells)
    assert answers == sum(bool(e.solution.rubric) for e in lesson.exercises())
    assert str(SEED) not in json.dumps(notebook)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_each_check_cell_is_marked_for_otter(bundles, lesson):
    marks = {}
    for cell in notebook_of(bundles, lesson).cells:
        for label in cell.metadata.get("otter", {}).get("tests", []):
            marks[label] = cell.source
    assert marks == {e.label: e.check.source for e in write_assignment.checked(lesson)}


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_the_autograder_is_what_otter_and_gradescope_ask_for(bundles, lesson):
    with zipfile.ZipFile(bundles / lesson.name / "autograder.zip") as archive:
        names = set(archive.namelist())
        environment = archive.read("environment.yml").decode()
        config = json.loads(archive.read("otter_config.json"))
    assert {"run_autograder", "run_otter.py", "setup.sh", "environment.yml"} <= names
    tests = {name for name in names if name.startswith("tests/")}
    assert tests == {f"tests/{e.label}.py" for e in write_assignment.checked(lesson)}
    assert config["show_hidden"] is False
    assert config["show_stdout"] is False
    wheels = list((bundles / lesson.name).glob("*.whl"))
    if wheels:
        assert f"files/{wheels[0].name}" in names
        where = f"file:///autograder/source/files/{wheels[0].name}"
    else:
        where = "git+https://github.com/someone/somewhere@v9.8.7"
    assert f"fourviews[lessons,data] @ {where}" in environment


def test_the_library_travels_with_it_until_there_is_an_address(bundles):
    assert [len(list((bundles / lesson.name).glob("*.whl"))) for lesson in LESSONS] == [
        1,
        *[0] * (len(LESSONS) - 1),
    ]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_the_rubric_has_every_point_that_a_person_gives(bundles, lesson):
    text = (bundles / lesson.name / "rubric.md").read_text(encoding="utf-8")
    for exercise in lesson.exercises():
        section = text.partition(f"## {BOOK.entries[exercise.label].name}:")[2].split("\n## ")[0]
        given = [line for line in section.split("\n") if line.startswith("- **")]
        assert len(given) == len(exercise.solution.rubric)
        points = sum(int(line.split("**")[1]) for line in given)
        assert points == exercise.points - exercise.automatic_points
    total = sum(exercise.points for exercise in lesson.exercises())
    assert f"| together | | | | {total} |" in text
    assert not re.search(r"\{[a-z:]+\}`", text), "a role that only Sphinx understands"


def test_the_seed_changes_the_hidden_tests_only(tmp_path, bundles):
    lesson = LESSONS[-1]
    other = write_assignment.write(
        lesson.name, target=tmp_path / lesson.name, seed=SEED + 1, settings=PUBLISHED
    )
    for name in (f"{lesson.name}.ipynb", "rubric.md", "grade.py"):
        assert (other / name).read_bytes() == (bundles / lesson.name / name).read_bytes()
    for exercise in write_assignment.checked(lesson):
        one, two = (write_assignment.checks_file(exercise, seed) for seed in (SEED, SEED + 1))
        differ = [
            pair
            for pair in zip(one.split("\n"), two.split("\n"), strict=True)
            if pair[0] != pair[1]
        ]
        assert differ == [(f"SEED = {SEED}", f"SEED = {SEED + 1}")]


# Points, with otter's own reading of the test files


def otter_points(exercise: Exercise, environment: dict) -> tuple[float, dict[str, str]]:
    """Score of one exercise, and what each check said."""
    from otter.test_files import ExceptionTestFile

    file = ExceptionTestFile.from_string(write_assignment.checks_file(exercise, SEED), "x.py")
    file.run(environment)
    assert file.possible == pytest.approx(exercise.automatic_points)
    return file.score, {r.test_case.name: r.message for r in file.test_case_results}


def answered(lesson: Lesson, exercise: Exercise, source: str) -> dict:
    """The names of a notebook after the imports, the stub, and an answer."""
    environment = dict(grading.prelude(lesson))
    for part in [*(cell.source for cell in exercise.stubs), source]:
        exec(compile(part, "<answer>", "exec"), environment)
    return environment


@pytest.mark.parametrize(("lesson", "exercise"), EXERCISES)
def test_the_reference_earns_all_and_the_stub_nothing(lesson, exercise, capsys):
    score, said = otter_points(exercise, answered(lesson, exercise, grading.reference(exercise)))
    assert score == pytest.approx(exercise.automatic_points), said
    score, said = otter_points(exercise, answered(lesson, exercise, ""))
    assert score == 0, said
    assert all("AssertionError: " in message for message in said.values())


@pytest.mark.parametrize(("lesson", "exercise"), EXERCISES)
def test_planted_answers_earn_what_they_pass(lesson, exercise, capsys):
    """One for each set of checks that planted answers pass; the graders' own tests try them all."""
    planted = planted_answers.of_lesson(lesson, ROOT)[exercise.label]
    worth = {check.name: check.points for check in grading.checks(exercise)}
    for answer in {answer.passes: answer for answer in planted}.values():
        score, said = otter_points(exercise, answered(lesson, exercise, answer.source))
        wanted = sum((worth[name] for name in answer.passes), Fraction(0))
        assert score == pytest.approx(float(wanted)), (answer.title, said)
        if answer.says:
            assert answer.says in said["public"]


def test_an_answer_that_ends_python_fails_its_checks_and_no_more():
    lesson = next(lesson for lesson in LESSONS if write_assignment.checked(lesson))
    exercise = write_assignment.checked(lesson)[0]
    environment = {name: lambda *args, **kwargs: sys.exit(3) for name in exercise.answers}
    score, said = otter_points(exercise, environment)
    assert score == 0
    score, said = otter_points(exercise, {})
    assert score == 0
    assert all("not defined: " in message for message in said.values())


# Refusals


@pytest.mark.parametrize("text", ["x", "1.5", "-1", "", str(2**32), "٣", "1e3"])
def test_a_seed_that_is_none_is_refused(text):
    with pytest.raises(write_assignment.AssignmentError, match="SEED is .*: need a whole number"):
        write_assignment.seed_from(text)


def test_an_unknown_lesson_is_refused_in_one_line(capsys):
    assert write_assignment.main(["convex_99_nothing"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("No assignment was written: no lesson 'convex_99_nothing'; there are: ")
    assert said.count("\n") == 1
    assert write_assignment.main([LESSONS[0].name, "--seed", "one"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


# The whole way


def hand_in(bundles: Path, lesson: Lesson, answers: dict[str, str]) -> nbformat.NotebookNode:
    """The student's notebook with answers in a cell after the stub, as a student would add it."""
    notebook = notebook_of(bundles, lesson)
    cells = []
    for cell in notebook.cells:
        for label in cell.metadata.get("otter", {}).get("tests", []):
            if label in answers:
                cells.append(nbformat.v4.new_code_cell(answers[label]))
        cells.append(cell)
    notebook.cells = cells
    return notebook


def grade_folder(bundles: Path, name: str, folder: Path, *options: str):
    """`grade.py` as an instructor runs it; the table as rows, and the finished process."""
    table = folder.parent / "scores.csv"
    command = [sys.executable, str(bundles / name / "grade.py"), str(folder)]
    done = subprocess.run(
        [*command, "--output", str(table), "--jobs", "2", *options],
        cwd=folder.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT / "lib")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    with table.open(encoding="utf-8", newline="") as handle:
        return {row["submission"]: row for row in csv.DictReader(handle)}, done


@pytest.mark.parametrize("name", WHOLE_WAY.values(), ids=WHOLE_WAY)
def test_otter_grades_a_folder(tmp_path, bundles, name):
    """Offline: reference, stub, and wrong answers; marks of cells lost by an editor; names reused."""
    lesson = BOOK.lessons[name]
    exercises = write_assignment.checked(lesson)
    planted = planted_answers.of_lesson(lesson, ROOT)
    # Wrong in the first exercise and right in the others, with as many points as it may have.
    worth = {check.name: check.points for check in grading.checks(exercises[0])}
    wrong = max(planted[exercises[0].label], key=lambda answer: len(answer.passes))
    part = float(sum((worth[check] for check in wrong.passes), Fraction(0)))
    right = {exercise.label: grading.reference(exercise) for exercise in exercises}
    folder = tmp_path / "submissions"
    (folder / "Student B_12_file").mkdir(parents=True)
    nbformat.write(hand_in(bundles, lesson, right), folder / "a.ipynb")
    mixed = hand_in(bundles, lesson, {**right, exercises[0].label: wrong.source})
    for cell in mixed.cells:
        cell.metadata.pop("otter", None)
    mixed.metadata["kernelspec"] = {"name": "my-env", "display_name": "mine"}
    # After the last exercise the names of the first mean something else.
    spoilt = "\n".join(f"{name} = None" for name in exercises[0].answers)
    mixed.cells.append(nbformat.v4.new_code_cell(f"{spoilt}\nraise RuntimeError('end')"))
    nbformat.write(mixed, folder / "Student B_12_file" / "work.ipynb")
    nbformat.write(notebook_of(bundles, lesson), folder / "untouched.ipynb")
    rows, done = grade_folder(bundles, name, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    full = {exercise.label: float(exercise.automatic_points) for exercise in exercises}

    def scores(submission: str) -> dict[str, float]:
        assert rows[submission]["status"] == "graded"
        found = {label: float(rows[submission][label]) for label in full}
        assert float(rows[submission]["total"]) == pytest.approx(sum(found.values()), abs=1e-3)
        assert float(rows[submission]["possible"]) == sum(full.values())
        return found

    assert len(rows) == 3
    assert scores("a.ipynb") == pytest.approx(full, abs=1e-4)
    assert scores("untouched.ipynb") == dict.fromkeys(full, 0.0)
    wanted = {**full, exercises[0].label: part}
    assert scores("Student B_12_file/work.ipynb") == pytest.approx(wanted, abs=1e-4)
    assert len(list((tmp_path / "scores").glob("*.json"))) == 3


def test_what_cannot_be_graded_has_a_row_and_stops_nothing(tmp_path, bundles):
    lesson = LESSONS[0]
    folder = tmp_path / "submissions"
    (folder / "nothing handed in").mkdir(parents=True)
    (folder / "essay.pdf").write_bytes(b"%PDF-1.4")
    (folder / "broken.ipynb").write_text("{", encoding="utf-8")
    (folder / "list.ipynb").write_text("[]", encoding="utf-8")
    endless = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("while True: pass")])
    nbformat.write(endless, folder / "endless.ipynb")
    dead = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("import os\nos._exit(1)")])
    nbformat.write(dead, folder / "dead.ipynb")
    (folder / ".ipynb_checkpoints").mkdir()
    nbformat.write(dead, folder / ".ipynb_checkpoints" / "dead.ipynb")
    rows, done = grade_folder(bundles, lesson.name, folder, "--timeout", "20")
    assert done.returncode == 1
    assert "6 submissions, 6 of them not graded" in done.stdout
    assert {name: row["status"].split(":")[0] for name, row in rows.items()} == dict.fromkeys(
        [
            "broken.ipynb",
            "dead.ipynb",
            "endless.ipynb",
            "essay.pdf",
            "list.ipynb",
            "nothing handed in",
        ],
        "not graded",
    )
    assert "no end after 20 s" in rows["endless.ipynb"]["status"]
    assert "no notebook in it" in rows["essay.pdf"]["status"]
    assert "not a notebook" in rows["broken.ipynb"]["status"]
    assert all(row["total"] == "" for row in rows.values())


def grading_program():
    """`grade.py` as a module."""
    spec = importlib.util.spec_from_file_location(
        "grade_submissions", ROOT / "tools" / "assignment" / "grade.py"
    )
    grade = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(grade)
    return grade


def test_notebooks_from_windows_are_notebooks(tmp_path):
    """Capitals in the ending and a byte order mark are no reason to leave a student ungraded."""
    grade = grading_program()
    text = nbformat.writes(nbformat.v4.new_notebook())
    (tmp_path / "Müller, Jo").mkdir()
    (tmp_path / "Müller, Jo" / "Copy.ipynb").mkdir()
    for name in ("A.IPYNB", "Müller, Jo/B.Ipynb"):
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
    found = grade.submissions(tmp_path)
    assert [name for name, _ in found] == ["A.IPYNB", "Müller, Jo/B.Ipynb"]
    assert all(grade.prepared(path, []) for _, path in found)


def test_marks_are_put_back_where_they_belong(tmp_path):
    """An exercise is graded where its mark is, or else where its check is called last."""
    grade = grading_program()
    cell = nbformat.v4.new_code_cell
    kept = cell('course.check("ex-a", f)', metadata={"otter": {"tests": ["ex-a", "ex-unknown"]}})
    cells = [cell("f = 1"), kept, cell("course.check('ex-b', g)"), cell('course.check("ex-a", f)')]
    cells += [cell('if x:\n    course.check("ex-b", g)'), nbformat.v4.new_markdown_cell("x")]
    cells += [cell('print(course.check("ex-c", 1))')]
    path = tmp_path / "x.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    made = json.loads(grade.prepared(path, ["ex-a", "ex-b", "ex-c"]))
    marks = [cell["metadata"].get("otter", {}).get("tests") for cell in made["cells"]]
    assert marks == [None, ["ex-a"], None, None, ["ex-b"], None, None]


def test_the_notebook_runs_as_handed_out(tmp_path):
    """Imports, stubs and checks run from top to bottom: nothing of the lesson is needed."""
    for lesson in LESSONS:
        works = Bibliography(ROOT / "book" / "references.bib")
        text = write_assignment.student_notebook(lesson, BOOK, works, UNPUBLISHED)
        scope: dict = {"__name__": "__main__"}
        for cell in json.loads(text)["cells"]:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), lesson.name, "exec"), scope)
