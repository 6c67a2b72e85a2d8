"""Grade answers to exercises in this process: points, checks and what they say.

The tests of the graders use it, with the reference, the untouched stub and the planted wrong
answers, and so does whoever wants to try an answer without a notebook:

    python tools/grading.py convex_02_mlp ex-mlp-adjoint answer.py

An answer runs after the lesson's imports and the exercise's stubs, as it does in the assignment's
notebook. It is trusted code: for submissions of students use the assignment bundle.
"""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import matplotlib

import settings
from fourviews import course
from fourviews.course.checking import error_in_words, own_state
from lesson_source import Exercise, HiddenCheck, Lesson, read
from planted_answers import check_names

_preludes: dict[tuple[Path, tuple[str, ...]], dict[str, Any]] = {}


@dataclass(frozen=True)
class Check:
    """One check of an exercise: `public`, `hidden 1`, …; `hidden` is None for the public one."""

    name: str
    points: Fraction
    hidden: HiddenCheck | None = None


@dataclass(frozen=True)
class Outcome:
    """What a check said of an answer."""

    check: Check
    passed: bool
    message: str


def checks(exercise: Exercise) -> list[Check]:
    """The checks of an exercise in order, each with the same share of the automatic points."""
    names = check_names(exercise)
    if not names:
        return []
    assert exercise.solution is not None
    share = Fraction(exercise.automatic_points, len(names))
    hidden = [None, *exercise.solution.hidden_checks]
    return [Check(name, share, check) for name, check in zip(names, hidden, strict=True)]


def reference(exercise: Exercise) -> str:
    """The code of the exercise's own solution."""
    assert exercise.solution is not None
    return "\n\n".join(cell.source for cell in exercise.solution.code)


def grade(lesson: Lesson, exercise: Exercise, source: str, seed: int) -> list[Outcome]:
    """What each check says of the answer `source`; an empty one leaves the stub as it is.

    An answer that cannot be run fails every check. The seed, from 0 to 2**32 - 1, is the public
    check's and each hidden check's; random states, number type and figures are put back.

    Raises
    ------
    ValueError
        If the exercise has no check, its public check is missing or takes another number of
        answers, or the lesson's imports or the stub fail: faults of the course, not of an answer.
    """
    if exercise.check is None:
        raise ValueError(f"exercise: {exercise.label} has no check")
    own = checks(exercise)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_figures_in_memory())
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        namespace = dict(prelude(lesson))
        with own_state(seed):
            for cell in exercise.stubs:
                try:
                    _execute(cell.source, f"<stub of {exercise.label}>", namespace)
                except Exception as error:
                    raise ValueError(
                        f"{lesson.path.name}:{cell.line}: the stub fails: {error_in_words(error)}"
                    ) from error
        with own_state(seed):
            file = _file(exercise)
            words = _failure(lambda: _execute(source, file, namespace), file)
        if words is None:
            gone = [name for name in exercise.answers if name not in namespace]
            if gone:
                words = f"{', '.join(gone)} is not defined"
        if words is not None:
            return [Outcome(check, False, f"The answer does not run: {words}") for check in own]
        answers = {name: namespace[name] for name in exercise.answers}
        return [_outcome(check, exercise, answers, seed) for check in own]


def score(outcomes: list[Outcome]) -> Fraction:
    """The points of the checks that passed."""
    return sum((outcome.check.points for outcome in outcomes if outcome.passed), Fraction(0))


def prelude(lesson: Lesson) -> dict[str, Any]:
    """The names that a lesson's imports give, made once; copy it before adding to it."""
    key = (lesson.path, tuple(lesson.prelude()))
    if key not in _preludes:
        namespace: dict[str, Any] = {"__name__": "__main__"}
        try:
            exec(compile("\n".join(key[1]), f"<imports of {lesson.name}>", "exec"), namespace)
        except Exception as error:
            raise ValueError(f"{lesson.path.name}: the imports fail: {error}") from error
        _preludes[key] = namespace
    return _preludes[key]


def _outcome(check: Check, exercise: Exercise, answers: dict[str, Any], seed: int) -> Outcome:
    if check.hidden is None:
        result = course.examine(exercise.label, *answers.values(), seed=seed)
        return Outcome(check, result.passed, result.message)
    hidden = check.hidden
    namespace: dict[str, Any] = {"__name__": "hidden_check"}
    _execute(hidden.cell.source, f"<{check.name} of {exercise.label}>", namespace)
    given = [answers[name] for name in hidden.parameters]
    with own_state(seed):
        words = _failure(lambda: namespace[hidden.name](*given, seed), _file(exercise))
    return Outcome(check, words is None, words or f"{check.name} passed.")


def _file(exercise: Exercise) -> str:
    """The name under which an answer is compiled."""
    return f"<answer to {exercise.label}>"


def _failure(act: Callable[[], Any], file: str) -> str | None:
    """What went wrong in `act`, in words and with the line of the answer; None if nothing did."""
    try:
        act()
    except KeyboardInterrupt:
        raise
    except AssertionError as error:
        return str(error).strip().split("\n")[0] or "an assertion without words fails"
    except BaseException as error:  # `exit()` in an answer too
        return error_in_words(error, file)
    return None


def _execute(source: str, filename: str, namespace: dict[str, Any]) -> None:
    # As a notebook does for its cells, so that messages can show the line that failed.
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    exec(compile(ast.parse(source, filename), filename, "exec"), namespace)


@contextlib.contextmanager
def _figures_in_memory():
    """Nothing is shown, and whatever was drawn is closed."""
    matplotlib.use("agg")
    try:
        yield
    finally:
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")


def main(arguments: list[str]) -> int:
    if len(arguments) != 3:
        print("python tools/grading.py LESSON LABEL ANSWER.py", file=sys.stderr)
        return 2
    name, label, path = arguments
    lesson = read(settings.ROOT / "lessons_src" / f"{name}.md")
    exercises = {exercise.label: exercise for exercise in lesson.exercises()}
    if label not in exercises:
        print(f"{name} has {', '.join(exercises)}, not {label!r}", file=sys.stderr)
        return 2
    outcomes = grade(lesson, exercises[label], Path(path).read_text(encoding="utf-8"), seed=1)
    for outcome in outcomes:
        mark = outcome.check.points if outcome.passed else 0
        print(f"{outcome.check.name}: {mark} of {outcome.check.points}. {outcome.message}")
    print(f"{score(outcomes)} of {exercises[label].automatic_points} automatic points")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
