"""The instructor edition's own pages: a general guide, and one for each lesson.

`instructor/index.md` becomes the page `guide`, `instructor/syllabus.md` the page `guide_syllabus`,
`instructor/LESSON.md` the page `guide_LESSON`. Each lesson's guide ends with two tables made from the sources: common mistakes, which are the
planted wrong answers that the graders are tested with, and the points of its exercises.
"""

from __future__ import annotations

from pathlib import Path

import yaml

import planted_answers
from lesson_source import Exercise, Lesson, SourceError
from numbering import Book


def pages(book: Book, root: Path) -> dict[str, str]:
    """Page name to MyST text, in the order of the course, the general guide first."""
    folder = root / "instructor"
    found = {path.stem for path in folder.glob("*.md")}
    for name in sorted(found - {"index", "syllabus"} - set(book.lessons)):
        raise SourceError(f"instructor/{name}.md", 1, f"there is no lesson {name!r}")
    texts: dict[str, str] = {}
    if "index" in found:
        texts["guide"] = _read(folder / "index.md", "instructor/index.md")
    if "syllabus" in found:
        texts["guide_syllabus"] = _read(folder / "syllabus.md", "instructor/syllabus.md")
    for name, lesson in book.lessons.items():
        if name.startswith("quickstart_"):
            continue  # a cell to copy: nothing to teach from
        if name in found:
            text = _read(folder / f"{name}.md", f"instructor/{name}.md")
        else:
            text = f"# Guide: {lesson.title}\n"
        tables = f"{mistakes(lesson, root)}\n{points(lesson)}"
        texts[f"guide_{name}"] = f"{text.rstrip()}\n\n{tables}"
    return texts


def _read(path: Path, shown_as: str) -> str:
    text = path.read_text(encoding="utf-8")
    if not text.startswith("# "):
        raise SourceError(shown_as, 1, "a guide begins with its title, `# Title`")
    return text


def table_of_contents(root: Path, guides: list[str]) -> str:
    """`_toc.yml` with the guides in a part of their own before all others."""
    toc = yaml.safe_load((root / "book" / "_toc.yml").read_text(encoding="utf-8"))
    part = {"caption": "For instructors", "chapters": [{"file": name} for name in guides]}
    # A part without a caption would look like the end of the guides.
    toc["parts"] = [part, *({"caption": "The book", **other} for other in toc.get("parts", []))]
    return yaml.safe_dump(toc, sort_keys=False, allow_unicode=True)


def points(lesson: Lesson) -> str:
    """A table of kinds, times and points, made from the exercises' own options."""
    exercises = lesson.exercises()
    rows = [
        [
            f"{_link(exercise)}, {exercise.title}",
            exercise.kind,
            exercise.mode,
            str(exercise.minutes),
            str(exercise.points),
            str(exercise.automatic_points),
            str(exercise.points - exercise.automatic_points),
        ]
        for exercise in exercises
    ]
    automatic = sum(exercise.automatic_points for exercise in exercises)
    total = sum(exercise.points for exercise in exercises)
    minutes = sum(exercise.minutes for exercise in exercises)
    rows.append(
        ["together", "", "", str(minutes), str(total), str(automatic), str(total - automatic)]
    )
    head = ["exercise", "kind", "mode", "minutes", "points", "automatic", "by rubric"]
    return f"## Points\n\n{_table(head, rows)}"


def mistakes(lesson: Lesson, root: Path) -> str:
    """A table of the planted wrong answers: what goes wrong, and what notices it."""
    planted = planted_answers.of_lesson(lesson, root)
    rows = []
    for exercise in lesson.exercises():
        for answer in planted.get(exercise.label, []):
            checks = planted_answers.check_names(exercise)
            noticed = [name for name in checks if name not in answer.passes]
            if answer.says and "public" in noticed:
                noticed[0] = f"public («{answer.says}»)"
            rows.append([_link(exercise), answer.title, ", ".join(noticed)])
    if not rows:
        return ""
    words = "The graders are tested with these wrong answers. Expect to meet them."
    head = ["exercise", "mistake", "noticed by"]
    return f"## Common mistakes\n\n{words}\n\n{_table(head, rows)}"


def _link(exercise: Exercise) -> str:
    return f"{{ref}}`{exercise.label}`"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["```{list-table}", ":header-rows: 1", ""]
    for row in [head, *rows]:
        for index, cell in enumerate(row):
            lines.append(("* - " if index == 0 else "  - ") + cell)
    return "\n".join([*lines, "```", ""])
