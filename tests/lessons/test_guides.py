"""The instructor edition's own pages: guides, and tables made from exercises and planted answers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

import derive_pages
import instructor_guides
import numbering
from lesson_source import SourceError

ROOT = Path(__file__).resolve().parents[2]
SANDBOX = ROOT / "tests" / "book" / "sandbox"
FIRST, SECOND = "first_01_everything", "second_01_short_lab"
PLANTED = """\
# %% Squares instead of doubling
# passes: nothing
# says: is not doubled
def double(x):
    return x * x


# %% Knows the public number $1.5$ by heart
# passes: public
def double(x):
    return 3.0
"""


@pytest.fixture
def small(tmp_path):
    """The sandbox's sources with planted answers to one exercise."""
    for name in ("lessons_src", "book", "instructor", "lib"):
        shutil.copytree(SANDBOX / name, tmp_path / name)
    package = tmp_path / "lib" / "fourviews"
    package.mkdir()
    (package / "__init__.py").write_text("")
    shutil.copy(ROOT / "book" / "references.bib", tmp_path / "book")
    for name in ("_config.yml", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    folder = tmp_path / "tests" / "answers" / FIRST
    folder.mkdir(parents=True)
    (folder / "ex-warm-up.py").write_text(PLANTED, encoding="utf-8")
    return tmp_path


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    table = text.split(f"## {heading}\n")[1].split("```{list-table}")[1].split("```\n")[0]
    found: list[list[str]] = []
    for line in table.split("\n"):
        if line.startswith("* - "):
            found.append([line[4:]])
        elif line.startswith("  - "):
            found[-1].append(line[4:])
    return found


def test_a_guide_ends_with_mistakes_and_points(small):
    pages = instructor_guides.pages(numbering.read_book(small), small)
    assert list(pages) == ["guide", f"guide_{FIRST}", f"guide_{SECOND}"]
    text = pages[f"guide_{FIRST}"]
    written = (small / "instructor" / f"{FIRST}.md").read_text(encoding="utf-8")
    assert text.startswith(written.rstrip())
    assert rows(text, "Common mistakes") == [
        ["exercise", "mistake", "noticed by"],
        [
            "{ref}`ex-warm-up`",
            "Squares instead of doubling",
            "public («is not doubled»), hidden 1",
        ],
        ["{ref}`ex-warm-up`", "Knows the public number $1.5$ by heart", "hidden 1"],
    ]
    assert "return 3.0" not in text
    assert rows(text, "Points") == [
        ["exercise", "kind", "mode", "minutes", "points", "automatic", "by rubric"],
        ["{ref}`ex-warm-up`, Warm up", "code", "practice", "5", "2", "1", "1"],
        ["{ref}`ex-prove-it`, Prove it", "proof", "graded", "20", "3", "0", "3"],
        ["together", "", "", "25", "5", "1", "4"],
    ]


def test_a_lesson_without_a_guide_has_its_points_all_the_same(small):
    (small / "instructor" / f"{FIRST}.md").unlink()
    pages = instructor_guides.pages(numbering.read_book(small), small)
    assert pages[f"guide_{FIRST}"].startswith("# Guide: Every *construct* once\n")
    assert len(rows(pages[f"guide_{FIRST}"], "Points")) == 4


def test_faulty_guides_are_refused(small):
    path = small / "instructor" / f"{FIRST}.md"
    path.write_text("Words first.\n", encoding="utf-8")
    with pytest.raises(SourceError, match="begins with its title") as caught:
        instructor_guides.pages(numbering.read_book(small), small)
    assert str(caught.value).startswith(f"instructor/{FIRST}.md:1: ")
    path.rename(small / "instructor" / "third_01_gone.md")
    with pytest.raises(SourceError, match="no lesson 'third_01_gone'"):
        instructor_guides.pages(numbering.read_book(small), small)


def test_a_planted_answer_to_nothing_is_refused(small):
    folder = small / "tests" / "answers" / FIRST
    (folder / "ex-warm-up.py").rename(folder / "ex-cold.py")
    with pytest.raises(SourceError, match="no exercise 'ex-cold'"):
        instructor_guides.pages(numbering.read_book(small), small)


def test_editions_differ_in_pages_and_settings(small):
    trees = {edition: small / "_build" / "derived" / edition for edition in derive_pages.EDITIONS}
    books = {
        edition: derive_pages.derive(tree, root=small, edition=edition)
        for edition, tree in trees.items()
    }
    student, instructor = trees["student"], trees["instructor"]
    guides = ["guide", f"guide_{FIRST}", f"guide_{SECOND}"]
    assert books["instructor"].pages == ["index", *guides, *books["student"].pages[1:]]
    assert books["instructor"].titles["guide"] == "Teaching with this book"
    assert sorted(path.stem for path in instructor.glob("guide*.md")) == sorted(guides)
    assert list(student.glob("guide*")) == []
    toc = yaml.safe_load((instructor / "_toc.yml").read_text(encoding="utf-8"))
    assert toc["parts"][0]["caption"] == "For instructors"
    assert [chapter["file"] for chapter in toc["parts"][0]["chapters"]] == guides
    own = yaml.safe_load((small / "book" / "_toc.yml").read_text(encoding="utf-8"))
    assert [part["chapters"] for part in toc["parts"][1:]] == [
        part["chapters"] for part in own["parts"]
    ]
    assert (student / "_toc.yml").read_bytes() == (small / "book" / "_toc.yml").read_bytes()
    titles = {
        edition: yaml.safe_load((tree / "_config.yml").read_text(encoding="utf-8"))["title"]
        for edition, tree in trees.items()
    }
    assert titles["instructor"] == titles["student"] + " · Instructor edition"
    everything = b"".join(path.read_bytes() for path in student.rglob("*") if path.is_file())
    for secret in (
        b"0a1b2c3d",
        b"4e5f6071",
        b"fresh_numbers",
        b"rubric-canary",
        b"not for students",
    ):
        assert secret not in everything
    with pytest.raises(ValueError, match="need one of student, instructor"):
        derive_pages.derive(small / "_build" / "other", root=small, edition="teacher")
