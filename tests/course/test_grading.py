"""The grading core: shares of points, what fails, and what is left as it was."""

from __future__ import annotations

import sys
from fractions import Fraction

import pytest
import torch

import grading
from fourviews.course import checking
from lesson_source import read

from .test_planted_answers import LESSON

SEED = 3


@pytest.fixture
def lesson(tmp_path):
    path = tmp_path / "probe_01_double.md"
    path.write_text(LESSON, encoding="utf-8")
    checking.registered()
    kept = dict(checking._checks)

    @checking.exercise("ex-test-double")
    def doubled(generator, double):
        x = float(torch.rand((), generator=generator)) + 1
        y = checking.number(checking.run(double, x), "double(x)")
        checking.close(y - x, x, "double(x) is not x + x")

    yield read(path)
    checking._checks.clear()
    checking._checks.update(kept)


@pytest.fixture
def exercise(lesson):
    return lesson.exercises()[0]


def grade(lesson, source: str) -> list[grading.Outcome]:
    return grading.grade(lesson, lesson.exercises()[0], source, SEED)


def test_points_are_shared_equally(lesson, exercise):
    assert [(check.name, check.points) for check in grading.checks(exercise)] == [
        ("public", Fraction(1)),
        ("hidden 1", Fraction(1)),
        ("hidden 2", Fraction(1)),
    ]
    exercise.points = 4
    assert {check.points for check in grading.checks(exercise)} == {Fraction(4, 3)}
    assert grading.score(grade(lesson, grading.reference(exercise))) == 4
    assert grading.checks(lesson.exercises()[1]) == []


@pytest.mark.parametrize(
    ("source", "passed"),
    [
        ("def double(x):\n    return 2 * x", ["public", "hidden 1", "hidden 2"]),
        ("", []),
        ("def double(x):\n    return 2 * abs(x)", ["public", "hidden 2"]),
        ("def double(x):\n    return 2.0 * x", ["public", "hidden 1"]),
        ("def double(x):\n    return x", ["hidden 2"]),
        ("double = 3", []),
        ("def double(x):\n    raise SystemExit", []),
    ],
)
def test_each_check_counts_for_itself(lesson, source, passed):
    found = grade(lesson, source)
    assert [outcome.check.name for outcome in found if outcome.passed] == passed
    assert grading.score(found) == len(passed)
    for outcome in found:
        assert outcome.message and "\n" not in outcome.message


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("double = other", "NameError: name 'other' is not defined (in the line `double = other`)"),
        ("double = ", "SyntaxError: invalid syntax"),
        ("import sys\nsys.exit(1)", "SystemExit: 1"),
        ("del double", "double is not defined"),
        ("assert 1 == 2, 'my own test'", "my own test"),
    ],
)
def test_an_answer_that_does_not_run_fails_everything(lesson, source, words):
    found = grade(lesson, source)
    assert len(found) == 3 and grading.score(found) == 0
    for outcome in found:
        assert outcome.message.startswith("The answer does not run: ")
        assert words in outcome.message


def test_messages_of_failed_checks(lesson):
    public, negative, whole = grade(lesson, "def double(x):\n    return abs(x) + 0.0")
    assert public.message.startswith("double(x) is not x + x.")
    assert negative.message == "double(x) is wrong for negative x"
    assert whole.message == "double(3) is no whole number"
    raised = grade(lesson, "def double(x):\n    return len(x)")[1]
    assert raised.message.startswith("TypeError: object of type 'float' has no len()")


def test_answers_do_not_see_each_other(lesson):
    grade(lesson, "left_over = 1\ndef double(x):\n    return 2 * x")
    found = grade(lesson, "left_over\ndef double(x):\n    return 2 * x")
    assert "name 'left_over' is not defined" in found[0].message
    assert "double" not in grading.prelude(lesson)
    assert "course" in grading.prelude(lesson)


def test_nothing_is_left_behind(lesson, capsys):
    plot = pytest.importorskip("matplotlib.pyplot")
    torch.manual_seed(8)
    wanted = torch.rand(2)
    torch.manual_seed(8)
    grade(
        lesson,
        "import torch\nimport matplotlib.pyplot as plt\nplt.figure()\nplt.show()\nprint(1)\n"
        "torch.manual_seed(1)\ntorch.set_default_dtype(torch.float64)\n"
        "def double(x):\n    print(x)\n    return 2 * x",
    )
    assert torch.equal(torch.rand(2), wanted)
    assert plot.get_fignums() == []
    assert tuple(capsys.readouterr()) == ("", "")
    assert "hidden_check" not in sys.modules


def test_faults_of_the_course_are_not_blamed_on_answers(lesson, exercise):
    with pytest.raises(ValueError, match="ex-test-proof has no check"):
        grading.grade(lesson, lesson.exercises()[1], "", SEED)
    exercise.stubs[0].source = "double = nothing"
    with pytest.raises(ValueError, match="the stub fails: NameError"):
        grade(lesson, "def double(x):\n    return 2 * x")
    del checking._checks["ex-test-double"]
    exercise.stubs[0].source = "double = None"
    with pytest.raises(ValueError, match="no exercise 'ex-test-double'"):
        grade(lesson, "def double(x):\n    return 2 * x")
