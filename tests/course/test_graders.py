"""The graders, graded: what passes, what does not, and what is said.

For every exercise with a check: the reference passes, the untouched stub fails in words, planted
wrong answers pass exactly the checks that they say, and outputs learnt by heart do not pass.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import re
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import grading
import planted_answers
from fourviews import course
from fourviews.course import checking
from lesson_source import Exercise, Lesson, read
from planted_answers import PlantedAnswer

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "lib" / "fourviews"
LESSONS = [read(path) for path in sorted((ROOT / "lessons_src").glob("*.md"))]
CASES = [
    pytest.param(lesson, exercise, id=exercise.label)
    for lesson in LESSONS
    for exercise in lesson.exercises()
    if exercise.check
]
PLANTED = [
    pytest.param(lesson, exercise, answer, id=f"{exercise.label}-{position}")
    for lesson in LESSONS
    for exercise in lesson.exercises()
    for position, answer in enumerate(
        planted_answers.of_lesson(lesson, ROOT).get(exercise.label, []), start=1
    )
]
SEEDS = (0, 1, 2, 1234, 2**32 - 1)
FEW_SEEDS = (0, 5, 2**31)
# What a traceback and a check that does not know what to say look like.
UNHELPFUL = re.compile(r'Traceback|File "|\n|cannot make sense|without words')

each_exercise = pytest.mark.parametrize(("lesson", "exercise"), CASES)


@cache
def outcomes(lesson_name: str, label: str, source: str, seed: int) -> list[grading.Outcome]:
    lesson = next(lesson for lesson in LESSONS if lesson.name == lesson_name)
    exercise = next(exercise for exercise in lesson.exercises() if exercise.label == label)
    return grading.grade(lesson, exercise, source, seed)


# Answers


@each_exercise
@pytest.mark.parametrize("seed", SEEDS)
def test_the_reference_passes(lesson: Lesson, exercise: Exercise, seed: int):
    found = outcomes(lesson.name, exercise.label, grading.reference(exercise), seed)
    assert [f"{o.check.name}: {o.message}" for o in found if not o.passed] == []
    assert found[0].message == "public checks passed."
    assert grading.score(found) == exercise.automatic_points > 0


@each_exercise
@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_the_untouched_stub_fails_in_words(lesson: Lesson, exercise: Exercise, seed: int):
    found = outcomes(lesson.name, exercise.label, "", seed)
    assert [o.check.name for o in found if o.passed] == []
    assert grading.score(found) == 0
    for outcome in found:
        assert len(outcome.message.split()) >= 3, outcome.message
        assert not UNHELPFUL.search(outcome.message), outcome.message


@pytest.mark.parametrize(("lesson", "exercise", "answer"), PLANTED)
@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_a_planted_answer_passes_what_it_says(
    lesson: Lesson, exercise: Exercise, answer: PlantedAnswer, seed: int
):
    found = outcomes(lesson.name, exercise.label, answer.source, seed)
    said = "\n".join(f"{o.check.name}: {o.message}" for o in found)
    place = f"{answer.path}:{answer.line} «{answer.title}»\n{said}"
    assert {o.check.name for o in found if o.passed} == answer.passes, place
    assert grading.score(found) == len(answer.passes) * found[0].check.points
    assert grading.score(found) < exercise.automatic_points
    assert "does not run" not in found[0].message, place
    if answer.says:
        assert answer.says in found[0].message, place
    for outcome in found:
        assert not UNHELPFUL.search(outcome.message), place


class ByHeart:
    """A function that repeats, call by call, what another one once returned."""

    def __init__(self, function: Callable[..., Any]):
        self.function, self.outputs, self.at = function, [], None

    def __call__(self, *args: Any) -> Any:
        if self.at is None:
            self.outputs.append(self.function(*args))
            return self.outputs[-1]
        self.at += 1
        return self.outputs[(self.at - 1) % len(self.outputs)]


@each_exercise
def test_outputs_learnt_by_heart_fail(lesson: Lesson, exercise: Exercise):
    """The right outputs for seed 0, in the right order, are wrong for other seeds."""
    namespace = dict(grading.prelude(lesson))
    with contextlib.redirect_stdout(io.StringIO()):
        for source in [*(cell.source for cell in exercise.stubs), grading.reference(exercise)]:
            exec(compile(source, f"<{exercise.label}>", "exec"), namespace)
    answers = [namespace[name] for name in exercise.answers]
    if not any(inspect.isroutine(answer) for answer in answers):
        pytest.skip("no answer is a function")
    answers = [ByHeart(a) if inspect.isroutine(a) else a for a in answers]
    assert course.examine(exercise.label, *answers, seed=0).passed
    for answer in answers:
        if isinstance(answer, ByHeart):
            answer.at = 0
    assert course.examine(exercise.label, *answers, seed=0).passed, "the recording is not faithful"
    for seed in FEW_SEEDS[1:]:
        for answer in answers:
            if isinstance(answer, ByHeart):
                answer.at = 0
        assert not course.examine(exercise.label, *answers, seed=seed).passed


# Files that belong together


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_every_exercise_with_a_check_has_planted_answers(lesson: Lesson):
    planted = planted_answers.of_lesson(lesson, ROOT)
    labels = [exercise.label for exercise in lesson.exercises() if exercise.check]
    assert list(planted) == labels
    assert [label for label in labels if len(planted[label]) < 3] == []


def test_planted_answers_belong_to_lessons():
    folders = {path.name for path in (ROOT / "tests" / "answers").iterdir()}
    assert folders <= {lesson.name for lesson in LESSONS}


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_the_check_file_has_the_checks_of_the_lesson(lesson: Lesson):
    """The same labels, in the same order, and the same names of answers."""
    asked = {e.label: tuple(e.answers) for e in lesson.exercises() if e.check}
    written = {
        identifier: tuple(inspect.signature(function).parameters)[1:]
        for identifier, function in checking.registered().items()
        if function.__module__ == f"fourviews.course.{lesson.name}"
    }
    assert written == asked
    assert list(written) == list(asked)


def test_no_check_is_without_an_exercise():
    known = {exercise.label for lesson in LESSONS for exercise in lesson.exercises()}
    ours = {
        identifier
        for identifier, function in checking.registered().items()
        if Path(inspect.getfile(function)).parent == LIBRARY / "course"
    }
    assert ours <= known
    names = {path.stem for path in (LIBRARY / "course").glob("*.py")}
    assert names - {"__init__", "checking", "draws", "presets"} <= {
        lesson.name for lesson in LESSONS
    }


@each_exercise
def test_stub_and_check_run_after_the_imports_alone(lesson: Lesson, exercise: Exercise, capsys):
    """As a reader who has done nothing yet would run them: it prints what is missing."""
    namespace = dict(grading.prelude(lesson))
    for cell in [*exercise.stubs, exercise.check]:
        exec(compile(cell.source, f"<{exercise.label}>", "exec"), namespace)
    said = capsys.readouterr()
    assert f"{exercise.label}: not yet. " in said.out
    assert said.err == ""


# What students can look up


def visible_literals(source: str) -> list[str]:
    """Places in a check's source where an expected number seems to stand.

    These are lists, tuples and the like of four numbers or more, and comparisons of equality or
    closeness with a number other than 0, 1 and -1. A number compared with a length, a number of
    axes or another size is about the form of an answer and is left alone, and so are bounds.
    """

    def is_number(node: ast.AST) -> bool:
        if isinstance(node, ast.UnaryOp):
            return is_number(node.operand)
        return (
            isinstance(node, ast.Constant)
            and isinstance(node.value, int | float | complex)
            and not isinstance(node.value, bool)
        )

    def count(node: ast.AST) -> int:
        """Numbers in a list of numbers, or of such lists."""
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return sum(map(count, node.elts))
        return int(is_number(node))

    def is_telling(node: ast.AST) -> bool:
        """A number that gives something away, as it stands or as an array of such numbers."""
        if is_number(node):
            return ast.literal_eval(node) not in (0, 1, -1)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return any(map(is_telling, node.elts))
        if isinstance(node, ast.Call) and re.search(r"(tensor|array)$", ast.unparse(node.func)):
            return bool(node.args) and is_telling(node.args[0])
        return False

    def is_size(node: ast.AST) -> bool:
        text = ast.unparse(node)
        return bool(re.search(r"^len\(|\.(ndim|shape|numel\(\)|dim\(\)|size\(.*\))\b", text))

    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            telling = count(node) >= 4
        elif isinstance(node, ast.Dict):
            telling = sum(map(is_number, node.values)) >= 4
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            equal = any(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in node.ops)
            telling = equal and any(map(is_telling, sides)) and not any(map(is_size, sides))
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func).split(".")[-1]
            near = name in ("close", "allclose", "isclose", "equal", "assert_close", "approx")
            telling = near and any(map(is_telling, node.args[:2]))
        else:
            telling = False
        if telling:
            found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_public_checks_show_no_expected_numbers(lesson: Lesson):
    path = LIBRARY / "course" / f"{lesson.name}.py"
    if path.exists():
        assert visible_literals(path.read_text(encoding="utf-8")) == []
    else:
        assert not any(exercise.check for exercise in lesson.exercises())


@pytest.mark.parametrize(
    "source",
    [
        "close(f, 2.5, 'words')",
        "close(f, -3, 'words')",
        "close(f, torch.tensor([1.0, 4.0]), 'words')",
        "require(answer == 42, 'words')",
        "require(42 == answer, 'words')",
        "require(answer in (6, 7), 'words')",
        "require(math.isclose(answer, 0.25), 'words')",
        "require(torch.equal(answer, torch.tensor([2, 3])), 'words')",
        "wanted = [1, 0, 0, 1]",
        "wanted = torch.tensor([[1.0, 2.0], [3.0, -4.0]])",
        "wanted = {2: 4, 3: 6, 4: 14, 5: 30}",
    ],
)
def test_the_check_above_would_see_an_expected_number(source: str):
    assert visible_literals(source)


@pytest.mark.parametrize(
    "source",
    [
        "close(f, wanted, 'words', rtol=1e-6)",
        "close(f, 0, 'words')",
        "require(answer == 1, 'words')",
        "require(gap <= 1e-6, 'words')",
        "require(len(pair) == 2, 'words')",
        "require(pair.ndim == 3 and pair.shape[0] == 2, 'words')",
        "for d in (2, 3, 4): pass",
        "tensor(value, (7, 2), 'f(X)')",
        "n, p, q = draw(generator, 8, 12), draw(generator, 3, 5), draw(generator, 2, 4)",
    ],
)
def test_the_check_above_lets_sizes_and_bounds_stand(source: str):
    assert visible_literals(source) == []


def test_nothing_withheld_stands_in_the_library():
    """Neither hidden checks nor canaries, under whatever name."""
    # Folders with a dot hold what a lab left here, and are not packed.
    texts = {
        path: re.sub(r"\s+", " ", path.read_text(encoding="utf-8"))
        for path in sorted(LIBRARY.rglob("*"))
        if path.is_file()
        and path.suffix != ".pyc"
        and not any(part.startswith(".") for part in path.relative_to(LIBRARY).parts)
    }
    found = []
    for lesson in LESSONS:
        for exercise in lesson.exercises():
            assert exercise.solution is not None
            secrets = [exercise.solution.canary]
            for check in exercise.solution.hidden_checks:
                secrets += [check.description, f"def {check.name}("]
                statements = ast.parse(check.cell.source).body[-1].body[1:]
                secrets += [ast.unparse(node) for node in statements if len(ast.unparse(node)) > 60]
            for path, text in texts.items():
                found += [
                    (path.name, secret)
                    for secret in secrets
                    if secret and re.sub(r"\s+", " ", secret) in text
                ]
    assert found == []


def test_points_of_checks_are_equal_shares():
    for lesson in LESSONS:
        for exercise in lesson.exercises():
            own = grading.checks(exercise)
            assert bool(own) == bool(exercise.check)
            if own:
                assert len({check.points for check in own}) == 1
                assert (
                    sum((check.points for check in own), Fraction(0)) == exercise.automatic_points
                )
