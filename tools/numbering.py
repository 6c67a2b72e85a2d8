"""Number theorems, equations, figures, tables and exercises as the built page numbers them.

Sphinx counts each kind within a chapter, in the order of the text. The same count is made here
from the sources alone, so that notebooks can be written without building the book; a test of the
built book compares the two. Theorems, lemmas and the like share one counter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from lesson_source import (
    THEOREMS,
    Cell,
    Directive,
    Exercise,
    Heading,
    Lesson,
    Math,
    Solution,
    SourceError,
    new_canary,
    read,
    walk,
)
from settings import ROOT

# Pages that are written when the book is built, from the register and from the library.
WRITTEN = {
    "ledger": "Ledger of claims",
    "corrections": "What was corrected",
    "reference": "The library",
    "reference_attention": "Attention layers",
    "reference_convex": "Convex programs",
    "reference_projection": "Projections",
    "reference_unrolled": "Unrolled energies",
    "reference_spline": "Splines",
    "reference_convolution": "Convolutions",
    "reference_data": "Data sets",
    "reference_display": "Figures",
    "reference_course": "Exercises and labs",
}
WORDS = {"figure": "Fig.", "table": "Table", "exercise": "Exercise", "equation": ""}


@dataclass(frozen=True)
class Entry:
    """What a label stands for."""

    label: str
    page: str
    kind: str  # figure, table, exercise, equation, section, or a kind of theorem
    number: str  # "2.3"; empty for sections
    title: str
    anchor: str

    @property
    def name(self) -> str:
        """`Theorem 2.3`, `Fig. 2.1`, `(2.4)`, or the title of a section."""
        if self.kind == "section":
            return self.title
        if self.kind == "equation":
            return f"({self.number})"
        return f"{WORDS.get(self.kind, self.kind.capitalize())} {self.number}"


@dataclass
class Book:
    """The pages in order, the lessons among them, and all labels."""

    pages: list[str]
    chapters: dict[str, int]
    lessons: dict[str, Lesson]
    titles: dict[str, str] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)


def anchor(label: str) -> str:
    """The id that a label becomes in HTML: letters, digits and single hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")


def table_of_contents(path: Path) -> tuple[list[str], dict[str, int]]:
    """Pages in reading order, and the chapter number of those that have one."""
    toc = yaml.safe_load(path.read_text(encoding="utf-8"))
    pages, chapters = [toc["root"]], {}
    for part in toc.get("parts", []):
        for chapter in part["chapters"]:
            pages.append(chapter["file"])
            if part.get("numbered"):
                chapters[chapter["file"]] = len(chapters) + 1
            pages += [section["file"] for section in chapter.get("sections", [])]
    return pages, chapters


def read_book(root: Path = ROOT) -> Book:
    """Parse every lesson and number what it holds; fails on the first thing not understood."""
    pages, chapters = table_of_contents(root / "book" / "_toc.yml")
    lessons = {}
    for path in sorted((root / "lessons_src").glob("*.md")):
        shown_as = f"lessons_src/{path.name}"
        if path.stem not in chapters:
            raise SourceError(shown_as, 1, "not in a numbered part of book/_toc.yml")
        lessons[path.stem] = read(path, shown_as)
    _check_canaries(lessons)
    # Numbers come in the order of the book, whatever the file names are.
    book = Book(pages, chapters, {page: lessons[page] for page in pages if page in lessons})
    for page in pages:
        if page in book.lessons:
            _number_lesson(book, book.lessons[page], chapters[page])
        else:
            _read_plain_page(book, root, page)
    return book


def _check_canaries(lessons: dict[str, Lesson]) -> None:
    """A canary tells which solution leaked, so no two solutions of the course share one."""
    seen: dict[str, tuple[str, int]] = {}
    for lesson in lessons.values():
        for exercise in lesson.exercises():
            solution = exercise.solution
            if solution is None or solution.canary is None:
                continue
            shown_as = f"lessons_src/{lesson.path.name}"
            if solution.canary in seen:
                other, line = seen[solution.canary]
                raise SourceError(
                    shown_as,
                    solution.line,
                    f"canary {solution.canary} stands already at {other}:{line}; "
                    f"free is {new_canary()}",
                )
            seen[solution.canary] = (shown_as, solution.line)


def _add(book: Book, entry: Entry, shown_as: str, line: int) -> None:
    other = book.entries.get(entry.label)
    if other:
        raise SourceError(shown_as, line, f"label {entry.label!r} stands already on {other.page}")
    book.entries[entry.label] = entry


def _number_lesson(book: Book, lesson: Lesson, chapter: int) -> None:
    shown_as = f"lessons_src/{lesson.path.name}"
    counts: dict[str, int] = {}

    def add(block, label: str, kind: str, counter: str, title: str, anchor_id: str) -> None:
        counts[counter] = counts.get(counter, 0) + 1
        number = f"{chapter}.{counts[counter]}"
        entry = Entry(label, lesson.name, kind, number, title, anchor_id)
        _add(book, entry, shown_as, block.line)

    book.titles[lesson.name] = lesson.title
    for block in walk(lesson.blocks):
        if isinstance(block, Heading) and block.target:
            entry = Entry(
                block.target, lesson.name, "section", "", block.text, anchor(block.target)
            )
            _add(book, entry, shown_as, block.line)
        elif isinstance(block, Math) and block.label:
            add(block, block.label, "equation", "equation", "", anchor(f"equation-{block.label}"))
        elif isinstance(block, Cell) and block.name:
            add(block, block.name, "figure", "figure", block.caption or "", anchor(block.name))
        elif isinstance(block, Exercise):
            add(block, block.label, "exercise", "exercise", block.title, block.label)
        elif isinstance(block, Directive):
            label = block.options.get("label") or block.options.get("name")
            if not label:
                continue
            if block.name == "math":
                add(block, label, "equation", "equation", "", anchor(f"equation-{label}"))
            elif block.name == "figure":
                add(block, label, "figure", "figure", "", anchor(label))
            elif block.name in ("table", "list-table"):
                add(block, label, "table", "table", block.argument, anchor(label))
            elif block.name.removeprefix("prf:") in THEOREMS:
                add(block, label, block.name.removeprefix("prf:"), "theorem", block.argument, label)
        elif isinstance(block, Solution):
            pass  # holds no numbered objects, the reader saw to that


def _read_plain_page(book: Book, root: Path, page: str) -> None:
    path = root / "book" / f"{page}.md"
    if not path.exists():
        if page in WRITTEN:
            book.titles[page] = WRITTEN[page]
            return
        raise SourceError("book/_toc.yml", 1, f"no page {page!r} in lessons_src/ or book/")
    target: str | None = None
    for number, text in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        heading = re.match(r"#{1,6} +(.+?)\s*$", text)
        if heading:
            book.titles.setdefault(page, heading.group(1))
            if target:
                entry = Entry(target, page, "section", "", heading.group(1), anchor(target))
                _add(book, entry, f"book/{page}.md", number)
        found = re.match(r"\(([^)\s]+)\)=\s*$", text)
        if found:
            target = found.group(1)
        elif text.strip():
            target = None
    if page not in book.titles:
        raise SourceError(f"book/{page}.md", 1, "a page begins with its title, `# Title`")
