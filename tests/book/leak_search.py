"""Find text that an edition withholds, whatever form it has taken on its way into the output.

What is compared is letters and digits alone, in lower case: line breaks, mark-up, entities, quotes
and escapes differ between a source, a page, a notebook and a stored output, letters do not.
"""

from __future__ import annotations

import ast
import hashlib
import html
import io
import re
import sqlite3
import string
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lesson_source import Cell, Directive, Lesson, Math, Prose, Rubric, Solution, walk

SHORTEST_LINE = 20  # characters of a line of code
SHORTEST_WORDS = 25  # letters of a sentence
_TAGS = re.compile(r"</?[A-Za-z][^<>]*>|<!--.*?-->", re.S)
_ESCAPES = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_OTHER = bytes(
    sorted(set(range(256)) - set(string.ascii_letters.encode() + string.digits.encode()))
)
_MARKUP = re.compile(r"\$[^$]*\$|\{[\w:]+\}`[^`]*`|`[^`]*`|\]\([^)]*\)|[.!?;:]\s|[.!?;:]$")


@dataclass(frozen=True)
class Secret:
    """One piece of withheld text; `seen` where the reader's page may show it, folded."""

    key: str
    kind: str  # canary, code, hidden check, words, rubric
    where: str
    text: str
    seen: bool


def letters(text: str) -> str:
    """What is compared: the letters and digits of ASCII, in lower case."""
    return text.encode("ascii", "ignore").translate(None, _OTHER).lower().decode()


def forms(text: str) -> set[str]:
    """The letters of a text as it stands, and with tags, entities and escapes undone."""
    found = {text}
    if "<" in text or "&" in text:
        found.add(html.unescape(_TAGS.sub("", text)))
    for one in list(found):
        if "\\" in one:
            once = _ESCAPES.sub(_unescaped, one)
            found |= {once, html.unescape(_TAGS.sub("", once))}
    return {letters(one) for one in found}


def _unescaped(match: re.Match) -> str:
    what = match.group(1)
    if len(what) == 5:
        return chr(int(what[1:], 16))
    return " " if what in "nrt" else what


# What is withheld


def secrets(lesson: Lesson) -> list[Secret]:
    """Everything that some student output must not hold, without what is public as well."""
    found: list[Secret] = []
    for exercise in lesson.exercises():
        solution = exercise.solution
        practice = exercise.mode == "practice"
        if solution.canary:
            found.append(Secret(solution.canary, "canary", exercise.label, solution.canary, False))
        for block in walk(solution.blocks):
            for kind, text, least in _pieces(block):
                key = letters(text)
                if len(text.strip()) >= SHORTEST_LINE and len(key) >= least:
                    seen = practice and kind in ("code", "words")
                    found.append(Secret(key, kind, exercise.label, text.strip(), seen))
    return found


def _pieces(block) -> Iterator[tuple[str, str, int]]:
    """Kind, text and least number of letters of each piece of a solution's block."""
    if isinstance(block, Cell):
        hidden = "hidden-check" in block.tags
        for line in block.source.split("\n"):
            yield "hidden check" if hidden else "code", line, 12
        if hidden:
            function = next(
                node for node in ast.parse(block.source).body if isinstance(node, ast.FunctionDef)
            )
            yield "hidden check", ast.get_docstring(function), 12
    elif isinstance(block, Prose):
        for paragraph in re.split(r"\n\s*\n", "\n".join(text for _, text in block.lines)):
            for part in _MARKUP.split(paragraph.replace("\n", " ")):
                yield "words", part, SHORTEST_WORDS
    elif isinstance(block, Math):
        for line in block.body:
            yield "words", line, SHORTEST_WORDS
    elif isinstance(block, Directive):
        for part in _MARKUP.split(block.argument):
            yield "words", part, SHORTEST_WORDS
        if block.name == "math" or not block.children:
            for _, line in block.body:
                yield "words", line, SHORTEST_WORDS
    elif isinstance(block, Rubric):
        for _, text in block.items:
            for part in _MARKUP.split(text):
                yield "rubric", part, SHORTEST_WORDS


def public_lines(lesson: Lesson, *, page: bool) -> list[str]:
    """What the reader's page may show, or what the notebook may; blank lines for the rest."""
    lines = list(lesson.lines)
    modes = {exercise.label: exercise.mode for exercise in lesson.exercises()}
    for block in lesson.blocks:
        if not isinstance(block, Solution):
            continue
        if not page or modes[block.label] == "graded":
            cut = [(block.line, block.last)]
        else:
            cells = [check.cell for check in block.hidden_checks]
            rubrics = [inner for inner in block.blocks if isinstance(inner, Rubric)]
            cut = [block.start, *((inner.line, inner.last) for inner in [*cells, *rubrics])]
        for first, last in cut:
            lines[first - 1 : last] = [" "] * (last - first + 1)
    return lines


def public_text(lesson: Lesson, *, page: bool) -> str:
    """The letters of what is public."""
    return letters("\n".join(public_lines(lesson, page=page)))


def other_public_text(root: Path) -> str:
    """The letters of the library and of the scripts that pages load, which anyone may read."""
    paths = sorted((root / "lib" / "fourviews").rglob("*.py"))
    paths += sorted((root / "book" / "_assets").rglob("*.js"))
    return "\n".join(form for path in paths for form in forms(path.read_text(encoding="utf-8")))


def withheld(lessons: Iterable[Lesson], root: Path, *, page: bool) -> list[Secret]:
    """What must not be in the output: of the page (and all that comes with it), or elsewhere.

    Pages may show practice solutions, notebooks and assignments may not. Text that stands in the
    public part of some lesson, in the library or in a script that is not ours gives nothing away and
    is left out.
    """
    lessons = list(lessons)
    public = "\n".join(public_text(lesson, page=page) for lesson in lessons)
    public += "\n" + other_public_text(root)
    found = {
        secret.key: secret
        for lesson in lessons
        for secret in secrets(lesson)
        if not (page and secret.seen) and (secret.kind == "canary" or secret.key not in public)
    }
    return list(found.values())


# Where it could be


def contents(path: Path) -> Iterator[tuple[str, str]]:
    """Name and text of a file; of each member if it is an archive, of each value of a database."""
    yield from _contents(str(path), path.read_bytes())


def _contents(name: str, data: bytes) -> Iterator[tuple[str, str]]:
    if data.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist():
                yield from _contents(f"{name}!{member.filename}", archive.read(member))
                yield f"{name}!{member.filename} (name)", member.filename
        return
    if data.startswith(b"# Sphinx inventory version 2"):
        head = b"".join(data.splitlines(keepends=True)[:4])
        yield name, head.decode() + zlib.decompress(data[len(head) :]).decode("utf-8")
        return
    if data.startswith(b"SQLite format 3\0"):
        yield name, _database(data)
    yield name, data.decode("utf-8", errors="replace")


def _database(data: bytes) -> str:
    """All values: long ones lie in pieces in the file itself."""
    connection = sqlite3.connect(":memory:")
    connection.deserialize(data)
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    tables = [row[0] for row in connection.execute(query)]
    values = []
    for table in tables:
        for row in connection.execute(f'SELECT * FROM "{table}"'):
            values += [str(value) for value in row]
    connection.close()
    return "\n".join(values)


def files(places: Iterable[Path], leave_out: Iterable[Path] = ()) -> Iterator[Path]:
    """All files below `places`, or these themselves."""
    out = set(leave_out)
    for place in places:
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file() and not path.is_symlink() and not out & {path, *path.parents}:
                yield path


class Search:
    """Looks for many secrets at once: by their first eight letters, then by all of them.

    The eight bytes are read as one number. A table of 2¹⁶ bits says for nearly every place of a
    text that no secret begins there, without a look at the secrets.
    """

    def __init__(self, wanted: Iterable[Secret]):
        self.starts: dict[int, list[tuple[bytes, Secret]]] = {}
        self.table = np.zeros(2**16, dtype=bool)
        for secret in wanted:
            key = secret.key.encode()
            if len(key) < 8:
                raise ValueError(f"{secret}: too short to be looked for")
            start = np.frombuffer(key[:8], dtype="<u8")
            self.starts.setdefault(int(start[0]), []).append((key, secret))
            self.table[self.slots(start)] = True

    @staticmethod
    def slots(numbers: np.ndarray) -> np.ndarray:
        return (numbers * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(48)

    def find(self, form: str) -> set[Secret]:
        """The secrets that stand in a text that has been brought to letters."""
        data = form.encode()
        found: set[Secret] = set()
        for shift in range(min(8, max(0, len(data) - 7))):
            count = (len(data) - shift) // 8
            numbers = np.frombuffer(data, dtype="<u8", count=count, offset=shift)
            for place in np.flatnonzero(self.table[self.slots(numbers)]):
                at = shift + 8 * int(place)
                for key, secret in self.starts.get(int(numbers[place]), ()):
                    if data.startswith(key, at):
                        found.add(secret)
        return found


def leaks(paths: Iterable[Path], wanted: Iterable[Secret]) -> list[str]:
    """A line for each secret found, with the file that it is in."""
    search = Search(wanted)
    known: dict[bytes, set[Secret]] = {}  # files of equal content are looked at once
    lines: set[str] = set()
    for path in paths:
        for name, text in [*contents(path), (f"{path} (name)", path.name)]:
            digest = hashlib.sha256(text.encode()).digest()
            if digest not in known:
                known[digest] = set().union(*(search.find(form) for form in forms(text)))
            for secret in known[digest]:
                lines.add(f"{name}: {secret.kind} of {secret.where}: {secret.text}")
    return sorted(lines)
