"""Read the planted wrong answers, with which graders are tested and guides are made.

`tests/answers/LESSON/LABEL.py` holds the wrong answers to one exercise, each in a section:

    # %% Forgets the transpose in the adjoint
    # passes: hidden 1
    # says: does not belong to A
    def adjoint(X, masks, R): ...

The title says the mistake as an instructor would. `passes:` lists the checks that do not notice it:
`nothing`, or names such as `public, hidden 2`. `says:` is a part of what the public check says, and
stands exactly if the public check fails. Whatever else is found there is a `SourceError`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from lesson_source import Exercise, Lesson, SourceError
from lesson_source import read as read_lesson

_TITLE = re.compile(r"# %% (\S.*)$")
_FIELD = re.compile(r"# (passes|says): (\S.*)$")
_TITLE_LIKE = re.compile(r"\s*#\s*%")
_FIELD_LIKE = re.compile(r"\s*#\s*(pass|passes|says?)\s*[:=]", re.I)
_CHECK = re.compile(r"public|hidden [1-9]\d*")


@dataclass(frozen=True)
class PlantedAnswer:
    """One wrong answer; `line` is its title's in the file `path`, relative to the root."""

    title: str
    passes: frozenset[str]
    says: str
    source: str
    path: str
    line: int


def check_names(exercise: Exercise) -> list[str]:
    """`public`, `hidden 1`, … of an exercise, in the order of its cells; none without a check."""
    if exercise.check is None or exercise.solution is None:
        return []
    hidden = len(exercise.solution.hidden_checks)
    return ["public", *(f"hidden {number}" for number in range(1, hidden + 1))]


def read(lesson_name: str, root: Path) -> dict[str, list[PlantedAnswer]]:
    """Wrong answers by the label of their exercise, in the order of the lesson.

    Raises
    ------
    ValueError
        If there is no such lesson. As a `SourceError` with file and line if a file belongs to no
        exercise with a check, or holds something else than sections as above.
    """
    path = root / "lessons_src" / f"{lesson_name}.md"
    if not path.is_file():
        raise ValueError(f"lesson_name: there is no lesson {lesson_name!r}")
    return of_lesson(read_lesson(path, f"lessons_src/{path.name}"), root)


def of_lesson(lesson: Lesson, root: Path) -> dict[str, list[PlantedAnswer]]:
    """The same for a lesson that is read already."""
    folder = root / "tests" / "answers" / lesson.name
    exercises = {exercise.label: exercise for exercise in lesson.exercises() if exercise.check}
    files = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name == "__pycache__":
            continue
        shown_as = path.relative_to(root).as_posix()
        if path.suffix != ".py" or path.stem not in exercises:
            raise SourceError(
                shown_as, 1, f"{lesson.name} has no exercise {path.stem!r} with a check"
            )
        files[path.stem] = (path, shown_as)
    return {
        label: _sections(*files[label], exercise)
        for label, exercise in exercises.items()
        if label in files
    }


def _sections(path: Path, shown_as: str, exercise: Exercise) -> list[PlantedAnswer]:
    def fail(line: int, message: str):
        raise SourceError(shown_as, line, message)

    lines = path.read_text(encoding="utf-8").split("\n")
    starts = []
    for number, text in enumerate(lines, start=1):
        if _TITLE.match(text):
            starts.append(number)
        elif _TITLE_LIKE.match(text):
            fail(number, f"a section begins with `# %% Title`, got {text.strip()!r}")
        elif text.strip() and not starts:
            fail(number, "before the first section `# %% Title` there is nothing")
    if not starts:
        fail(1, "there is no wrong answer, `# %% Title`")
    answers: list[PlantedAnswer] = []
    for start, end in zip(starts, [*starts[1:], len(lines) + 1], strict=True):
        answer = _section(lines[start - 1 : end - 1], start, shown_as, exercise, fail)
        for other in answers:
            if other.title == answer.title:
                fail(start, f"this title stands already in line {other.line}")
            if other.source == answer.source:
                fail(start, f"this answer is the one of line {other.line}")
        answers.append(answer)
    return answers


def _section(
    lines: list[str], start: int, shown_as: str, exercise: Exercise, fail
) -> PlantedAnswer:
    title = _TITLE.match(lines[0])
    assert title is not None
    fields: dict[str, str] = {}
    at = 1
    while at < len(lines) and (match := _FIELD.match(lines[at])):
        if match.group(1) in fields:
            fail(start + at, f"`{match.group(1)}:` given twice")
        fields[match.group(1)] = match.group(2).strip()
        at += 1
    for offset, text in enumerate(lines[at:], start=at):
        if _FIELD_LIKE.match(text):
            fail(
                start + offset,
                "`# passes: …` and `# says: …` follow the title at once, each with a text",
            )
    if "passes" not in fields:
        fail(start, "`# passes: nothing`, or the checks that pass, stands below the title")
    passes = _passes(fields["passes"], start, exercise, fail)
    if ("says" in fields) == ("public" in passes):
        fail(
            start,
            "`# says:` is a part of the public check's message, and stands below the title "
            "exactly if the public check fails",
        )
    source = "\n".join(lines[at:]).strip("\n").rstrip()
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        fail(start + at + (error.lineno or 1) - 1, f"not Python: {error.msg}")
    if not body:
        fail(start, "a section without an answer")
    return PlantedAnswer(
        title.group(1).strip(), passes, fields.get("says", ""), source, shown_as, start
    )


def _passes(text: str, line: int, exercise: Exercise, fail) -> frozenset[str]:
    if text == "nothing":
        return frozenset()
    known = check_names(exercise)
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if not _CHECK.fullmatch(name):
            fail(line, f"passes: need `nothing`, `public` or `hidden 1`, got {name!r}")
        if name not in known:
            fail(line, f"passes: {exercise.label} has {', '.join(known)}, not {name!r}")
    if len(set(names)) != len(names):
        fail(line, f"passes: a check is named twice in {text!r}")
    if set(names) == set(known):
        fail(line, "passes: an answer that passes every check is not a wrong one")
    return frozenset(names)
