"""Times: what a lesson says at its head, and the tables of reading paths and syllabi."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lesson_source

ROOT = Path(__file__).resolve().parents[2]
LESSONS = {
    path.stem: lesson_source.read(path) for path in sorted((ROOT / "lessons_src").glob("*.md"))
}
ROW = re.compile(r"^\|(?: \d+ \|)? \{doc\}`(\w+)` \| (\d+) \| (\d+|–) \|", re.M)
TOGETHER = re.compile(
    r"^\| \*\*together\*\* \|(?: \|)? \*\*(\d+):(\d\d)\*\* \| \*\*(\d+):(\d\d)\*\*", re.M
)


def head(name: str) -> str:
    text = "\n".join(LESSONS[name].lines).split("\n## ")[0].split("```")[0]
    return " ".join(text.split())


def reading(name: str) -> int:
    return int(re.search(r"\*\*Reading:\*\* about (\d+) minutes", head(name))[1])


def exercises(name: str) -> int:
    return sum(exercise.minutes for exercise in LESSONS[name].exercises())


@pytest.mark.parametrize("name", LESSONS)
def test_the_head_of_a_lesson_states_the_minutes_of_its_exercises(name):
    assert reading(name) > 0
    said = re.search(r"minutes[,;].*?(\d+)( to do)?( more)?\. \*\*Running", head(name))
    assert (int(said[1]) if said else 0) == exercises(name)


def tables(page: str) -> list[tuple[str, str]]:
    """Title and text of each section with a table of lessons."""
    sections = re.split(r"^## ", (ROOT / page).read_text(encoding="utf-8"), flags=re.M)[1:]
    return [(part.split("\n")[0], part) for part in sections if ROW.search(part)]


@pytest.mark.parametrize(
    ("page", "number"), [("book/reading_paths.md", 3), ("instructor/syllabus.md", 2)]
)
def test_tables_add_up(page, number):
    found = tables(page)
    assert len(found) == number
    for title, text in found:
        rows = ROW.findall(text)
        assert len(rows) == text.count("\n| ") - text.count("| lesson") - 1, title
        names = [name for name, _, _ in rows]
        assert len(set(names)) == len(names), title
        for name, read, exercise in rows:
            assert int(read) == reading(name), (title, name)
            assert (0 if exercise == "–" else int(exercise)) == exercises(name), (title, name)
        hours = [int(number) for number in TOGETHER.search(text).groups()]
        assert hours[0] * 60 + hours[1] == sum(map(reading, names)), title
        assert hours[2] * 60 + hours[3] == sum(map(exercises, names)), title


@pytest.mark.parametrize("page", ["book/reading_paths.md", "instructor/syllabus.md"])
def test_what_a_lesson_rests_on_comes_before_it(page):
    """Lessons that «Prerequisites» names and that are on the path stand earlier on it."""
    for title, text in tables(page):
        names = [name for name, _, _ in ROW.findall(text)]
        for position, name in enumerate(names):
            if name.startswith("quickstart_"):
                continue
            needs = re.search(r"\*\*Prerequisites:\*\*(.*?)\*\*Reading", head(name))[1]
            for other in re.findall(r"\{doc\}`(\w+)`", needs):
                assert other not in names[position:], (title, name, other)
