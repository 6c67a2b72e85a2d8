"""Nothing that an edition withholds is in what students get, in whatever form.

Three proofs. What was built is searched for every piece of withheld text of the real lessons. In a
copy of the lessons each withheld block is marked with a word of its own: no mark comes out, and the
pages do not change by a byte. And the search is tried on leaks that are planted for it.
"""

from __future__ import annotations

import html
import importlib.util
import json
import pickle
import re
import shutil
import sqlite3
import sys
import zipfile
import zlib
from pathlib import Path

import pytest

import write_assignment
import write_notebooks
from bibliography import Bibliography
from derive_pages import derive
from lesson_source import Cell, Directive, Lesson, Math, Prose, Rubric, read, walk
from numbering import read_book
from settings import Settings

_spec = importlib.util.spec_from_file_location(
    "leak_search", Path(__file__).with_name("leak_search.py")
)
leak_search = importlib.util.module_from_spec(_spec)
sys.modules["leak_search"] = leak_search
_spec.loader.exec_module(leak_search)

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "_build"
UNPUBLISHED = Settings(repository="", tag="v0.1.0", pages="")
PUBLISHED = Settings(repository="https://github.com/someone/somewhere", tag="v0.1.0", pages="")


def lessons_of(root: Path) -> list[Lesson]:
    return [read(path) for path in sorted((root / "lessons_src").glob("*.md"))]


@pytest.fixture(scope="module")
def lessons() -> list[Lesson]:
    return lessons_of(ROOT)


@pytest.fixture(scope="module")
def of_page(lessons):
    """What must be neither on the pages nor in anything that is made with them."""
    return leak_search.withheld(lessons, ROOT, page=True)


@pytest.fixture(scope="module")
def of_notebook(lessons):
    """What must not be in notebooks, assignments and the wheel: solutions of practice too."""
    return leak_search.withheld(lessons, ROOT, page=False)


def none_found(paths, wanted) -> None:
    paths = list(paths)
    assert paths, "nothing to search"
    found = leak_search.leaks(paths, wanted)
    assert not found, "\n".join(found)


# What was built from the real lessons


def test_there_is_something_to_look_for(lessons, of_page, of_notebook):
    """Each withheld solution gives a canary, and each lesson text of every kind."""
    canaries = {secret.text for secret in of_page if secret.kind == "canary"}
    exercises = [exercise for lesson in lessons for exercise in lesson.exercises()]
    for exercise in exercises:
        solution = exercise.solution
        if exercise.mode == "graded" or solution.hidden_checks or solution.rubric:
            assert solution.canary in canaries, exercise.label
    for lesson in lessons:
        own = lesson.exercises()
        labels = {exercise.label for exercise in own}
        # A lesson may have no program that grades, and a quick start no exercise at all.
        checks = {"hidden check"} if write_assignment.checked(lesson) else set()
        code = {"code"} if any(exercise.solution.code for exercise in own) else set()
        for wanted, kinds in (
            (of_page, {"canary"} | checks),
            (of_notebook, {"canary", "words"} | checks | code),
        ):
            found = {secret.kind for secret in wanted if secret.where in labels}
            assert (kinds if own else set()) <= found, lesson.name
    assert sum(bool(write_assignment.checked(lesson)) for lesson in lessons) > 20
    assert len(canaries) == len({exercise.solution.canary for exercise in exercises} - {None})


@pytest.mark.site
def test_pages_and_all_that_is_made_with_them(of_page):
    """Pages, search index, inventory, trees, doctrees, stored outputs; instructors' folders not."""
    assert (BUILD / "html" / "index.html").exists()
    for name in ("html", "derived", ".doctrees", ".jupyter_cache"):
        assert any((BUILD / name).iterdir()), name
    apart = [BUILD / "instructor", BUILD / "assignments"]
    none_found(leak_search.files([BUILD], apart), of_page)


@pytest.mark.site
def test_notebooks_for_download(of_notebook):
    none_found((BUILD / "html" / "notebooks").glob("*.ipynb"), of_notebook)
    none_found((BUILD / "derived" / "notebooks").glob("*.ipynb"), of_notebook)


@pytest.mark.site
def test_the_search_index_knows_no_word_of_withheld_prose(lessons):
    """It holds stems of words, in which no sentence could be found again."""
    from sphinx.search.en import SearchEnglish

    stem = SearchEnglish({}).stem

    def stems(text: str, shortest: int) -> set[str]:
        return {stem(word.lower()) for word in re.findall(rf"[A-Za-z]{{{shortest},}}", text)}

    text = (BUILD / "html" / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    terms = set(index["terms"]) | set(index["titleterms"])
    public = ""
    for folder, pattern in (
        ("book", "*.md"),
        ("book", "*.yml"),
        ("book", "*.bib"),
        ("lib", "*.py"),
    ):
        for path in (ROOT / folder).rglob(pattern):
            public += path.read_text(encoding="utf-8")
    withheld = ""
    for lesson in lessons:
        before = "\n".join(lesson.lines)
        after = leak_search.public_lines(lesson, page=True)
        public += "\n".join(after)
        withheld += "\n".join(set(before.split("\n")) - set(after))
    # «spots», withheld, has the stem of «spot», which anybody may read.
    only_there = stems(withheld, 5) - stems(public, 2)
    assert len(only_there) > 5
    assert not only_there & terms


def test_committed_notebooks(of_notebook):
    none_found((ROOT / "book").glob("*.ipynb"), of_notebook)


def graded_by_program(lessons: list[Lesson]) -> list[Lesson]:
    return [lesson for lesson in lessons if write_assignment.checked(lesson)]


@pytest.fixture(scope="module")
def assignments(tmp_path_factory, lessons):
    """The assignment of every lesson that has one, the first with the library's wheel."""
    folder = tmp_path_factory.mktemp("assignments")
    graded = graded_by_program(lessons)
    for lesson, settings in zip(graded, [UNPUBLISHED] + [PUBLISHED] * len(graded), strict=False):
        write_assignment.write(lesson.name, target=folder / lesson.name, settings=settings)
    return folder


def test_what_students_get_of_an_assignment(lessons, assignments, of_notebook):
    """The notebook and the library's wheel; and the instructor's README names no solution either."""
    assert len(list(assignments.rglob("*.whl"))) == 1
    none_found(assignments.rglob("*.whl"), of_notebook)
    for lesson in graded_by_program(lessons):
        folder = assignments / lesson.name
        names = (f"{lesson.name}.ipynb", "README.md", "grade.py")
        none_found([folder / name for name in names], of_notebook)


def test_the_instructors_part_of_an_assignment_would_be_found(lessons, assignments, of_page):
    """The same search sees hidden checks in the autograder and rubrics where they belong."""
    for lesson in graded_by_program(lessons):
        folder = assignments / lesson.name
        for name, kind in (("autograder.zip", "hidden check"), ("rubric.md", "rubric")):
            labels = {exercise.label for exercise in lesson.exercises()}
            wanted = [s for s in of_page if s.kind == kind and s.where in labels]
            found = leak_search.leaks([folder / name], wanted)
            assert len(found) >= len(wanted), name


def test_public_checks_do_not_show_solutions_or_hidden_checks(lessons):
    """No two lines that follow each other in a withheld part do so in the library's checks."""
    library = "\n".join(
        leak_search.letters(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "lib" / "fourviews" / "course").glob("*.py"))
    )
    found = []
    for lesson in lessons:
        for exercise in lesson.exercises():
            for cell in [b for b in exercise.solution.blocks if isinstance(b, Cell)]:
                lines = [leak_search.letters(line) for line in cell.source.split("\n")]
                lines = [line for line in lines if len(line) >= 8]
                for one, two in zip(lines, lines[1:], strict=False):
                    if len(one + two) >= 40 and one + two in library:
                        found.append(f"{exercise.label}: {one} {two}")
    assert not found


# Marks in a copy


def plant(root: Path, *, page: bool) -> list[str]:
    """Put a word of its own into every block that is withheld from the page, or from notebooks.

    No line is added, so that all that is public keeps its place. Returns the words.
    """
    words: list[str] = []
    for lesson in lessons_of(root):
        lines = list(lesson.lines)

        def mark(number: int, template: str, lines=lines) -> None:
            words.append(f"zqmark{len(words):04d}zq")
            lines[number - 1] += template.format(words[-1])

        for exercise in lesson.exercises():
            practice = exercise.mode == "practice"
            for block in walk(exercise.solution.blocks):
                hidden = isinstance(block, Rubric) or (
                    isinstance(block, Cell) and "hidden-check" in block.tags
                )
                if page and practice and not hidden:
                    continue
                if isinstance(block, Cell):
                    mark(block.last - 1, "  # {}")
                elif isinstance(block, Prose):
                    mark(block.lines[-1][0], " {}")
                elif isinstance(block, Math):
                    continue  # its lines are followed by labels and fences in many ways
                elif isinstance(block, Rubric):
                    mark(block.last - 1, " {}")
                elif isinstance(block, Directive) and block.argument:
                    mark(block.line, " {}")
        lesson.path.write_text("\n".join(lines), encoding="utf-8")
    return words


def bytes_below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def marks_in(folder: Path) -> set[str]:
    found: set[str] = set()
    for path in leak_search.files([folder]):
        for _, text in leak_search.contents(path):
            found |= set(re.findall(r"zqmark\d{4}zq", text))
    return found


@pytest.mark.parametrize("page", [True, False], ids=["page", "notebook"])
def test_marks_in_withheld_blocks_do_not_come_out(tmp_path, lessons, page):
    root = tmp_path / "root"
    root.mkdir()
    for name in ("lessons_src", "book", "instructor", "lib", "tests"):
        if (ROOT / name).exists():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, root / name, ignore=ignore)
    for name in ("_config.yml", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, root)

    works = Bibliography(root / "book" / "references.bib")

    def outputs(name: str) -> tuple[Path, str]:
        """What students get, made from the copy as it is now; and the graders' files."""
        out = tmp_path / name
        if page:
            derive(out / "tree", root=root, settings=PUBLISHED, cache=tmp_path / "cache")
        write_notebooks.write(out / "notebooks", root, PUBLISHED)
        book, graders = read_book(root), ""
        for lesson in book.lessons.values():
            notebook = write_assignment.student_notebook(lesson, book, works, PUBLISHED)
            (out / f"assignment-{lesson.name}.ipynb").write_text(notebook, encoding="utf-8")
            for exercise in write_assignment.checked(lesson):
                graders += write_assignment.checks_file(exercise, seed=1)
        return out, graders

    before, _ = outputs("before")
    words = plant(root, page=page)
    assert len(words) > 3 * len(lessons)
    after, graders = outputs("after")
    assert marks_in(after) == set()
    assert bytes_below(after) == bytes_below(before)
    # The marks are there: the other edition shows every one of them, and the graders what is theirs.
    derive(tmp_path / "instructor", root=root, cache=tmp_path / "cache", edition="instructor")
    assert marks_in(tmp_path / "instructor") == set(words)
    hidden = sum(
        len(exercise.solution.hidden_checks)
        for lesson in lessons
        for exercise in lesson.exercises()
    )
    assert len(set(re.findall(r"zqmark\d{4}zq", graders))) == hidden


# The search, tried on leaks


def highlighted(line: str) -> str:
    """A line of code as pages show it: a tag around every word."""
    return re.sub(r"\w+|[^\w\s]", lambda m: f'<span class="n">{html.escape(m[0])}</span>', line)


def leak_page(folder: Path, text: str) -> None:
    (folder / "page.html").write_text(f"<p>Before {html.escape(text)} after</p>", "utf-8")


def leak_highlighted(folder: Path, text: str) -> None:
    (folder / "page.html").write_text(f"<pre>{highlighted(text)}</pre>", "utf-8")


def leak_folded_line(folder: Path, text: str) -> None:
    words = [html.escape(word, quote=True) for word in text.split(" ")]
    (folder / "page.html").write_text("<p>" + "\n   <em>".join(words) + "</em></p>", "utf-8")


def leak_search_index(folder: Path, text: str) -> None:
    index = json.dumps({"titles": {f"{text}": [[0, "x"]]}})
    (folder / "searchindex.js").write_text(f"Search.setIndex({index})", "utf-8")


def leak_stored_output(folder: Path, text: str) -> None:
    page = f"<pre>{highlighted(text)}</pre>"
    output = {"output_type": "display_data", "metadata": {}, "data": {"text/html": [page]}}
    cell = {"cell_type": "code", "metadata": {}, "source": [], "outputs": [output]}
    (folder / "base.ipynb").write_text(json.dumps({"cells": [cell]}), "utf-8")


def leak_database(folder: Path, text: str) -> None:
    connection = sqlite3.connect(folder / "global.db")
    connection.execute("CREATE TABLE t (a TEXT)")
    # Long enough to lie in several pages of the file, so that no part of it is whole in there.
    connection.execute("INSERT INTO t VALUES (?)", (f"{'.' * 4060}{text}{'.' * 4060}",))
    connection.commit()
    connection.close()


def leak_metadata(folder: Path, text: str) -> None:
    cell = {"cell_type": "markdown", "metadata": {"note": f"a\n{text}"}, "source": []}
    (folder / "x.ipynb").write_text(json.dumps({"cells": [cell]}, ensure_ascii=True), "utf-8")


def leak_cell_over_lines(folder: Path, text: str) -> None:
    source = [f"{word} \n" for word in text.split(" ")]
    cell = {"cell_type": "code", "metadata": {}, "source": "".join(source), "outputs": []}
    (folder / "x.ipynb").write_text(json.dumps({"cells": [cell]}), "utf-8")


def leak_zip(folder: Path, text: str) -> None:
    with zipfile.ZipFile(folder / "inner.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tests/x.py", f"# {text}\n")
    with zipfile.ZipFile(folder / "outer.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(folder / "inner.zip", "inner.zip")
    (folder / "inner.zip").unlink()


def leak_inventory(folder: Path, text: str) -> None:
    head = b"# Sphinx inventory version 2\n# Project: x\n# Version: \n# The rest is compressed\n"
    body = f"label std:label -1 page.html#label {text}\n".encode()
    (folder / "objects.inv").write_bytes(head + zlib.compress(body))


def leak_pickle(folder: Path, text: str) -> None:
    (folder / "page.doctree").write_bytes(pickle.dumps({"text": [text], "more": b"\xff\xfe"}))


def leak_name(folder: Path, text: str) -> None:
    (folder / f"figure-{leak_search.letters(text)[:200]}.svg").write_text("<svg/>", "utf-8")


LEAKS = [
    value
    for name, value in sorted(globals().items())
    if name.startswith("leak_") and callable(value)
]
KINDS = ("canary", "code", "hidden check", "words", "rubric")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("leak", LEAKS, ids=lambda leak: leak.__name__)
def test_a_planted_leak_is_found(tmp_path, of_notebook, leak, kind):
    (tmp_path / "clean.html").write_text("<p>Nothing of interest.</p>", "utf-8")
    (tmp_path / "picture.png").write_bytes(bytes(range(256)) * 50)
    files = list(leak_search.files([tmp_path]))
    assert leak_search.leaks(files, of_notebook) == []
    wanted = [secret for secret in of_notebook if secret.kind == kind]
    files_left: list[Path] = []
    for secret in {wanted[0], max(wanted, key=lambda secret: len(secret.key)), wanted[-1]}:
        if leak is leak_name and len(secret.key) > 200:
            continue
        for path in files_left:
            path.unlink()
        leak(tmp_path, secret.text)
        files_left = [path for path in tmp_path.iterdir() if path not in files]
        found = leak_search.leaks(leak_search.files([tmp_path]), of_notebook)
        assert any(secret.text in line for line in found), secret


def test_public_text_is_no_leak(lessons):
    """What also stands in the public part of a lesson is left out, and nothing else is."""
    for lesson in lessons:
        everything = {s.key for s in leak_search.secrets(lesson)}
        public = leak_search.public_text(lesson, page=False)
        kept = {s.key for s in leak_search.withheld([lesson], ROOT, page=False)}
        assert kept <= everything
        assert not {key for key in kept if key in public}
