"""Which public names a piece of code uses, which lesson introduces them, which claim needs them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

import ledger
import library_symbols
from library_symbols import Reach, introductions, public_symbols, used_symbols
from numbering import read_book
from reference_pages import Reference, summary

ROOT = Path(__file__).resolve().parents[2]

MODULES = {
    "attention.py": '"""Layers."""\n__all__ = ["attend"]\n\n\ndef attend(x) -> None:\n    """Attend."""\n',
    "convex/__init__.py": '"""Programs."""\nfrom .solve import *\n__all__ = ["SIZES", "Head", "Solution", "solve"]\n',
    "convex/solve.py": """\
        #: Sizes of
        #: a block.
        SIZES: dict[str, int] = {}


        class Base:
            pass


        class Head(Base):
            '''A head.

            More.
            '''


        class Solution:
            '''What comes out.'''


        def solve(problem: Head) -> Solution | None:
            '''Solve it
            well.

            More.
            '''
        """,
    "data/__init__.py": '"""Data."""\n__all__ = ["digits"]\n\n\ndef digits():\n    """Digits."""\n',
}


@pytest.fixture
def library(tmp_path):
    for name, text in MODULES.items():
        path = tmp_path / "lib" / "fourviews" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return tmp_path


@pytest.fixture
def symbols(library):
    return public_symbols(library)


def test_public_names_are_found_where_they_are_defined(symbols):
    assert {name: symbol.kind for name, symbol in symbols.items()} == {
        "attention.attend": "function",
        "convex.SIZES": "data",
        "convex.Head": "class",
        "convex.Solution": "class",
        "convex.solve": "function",
        "data.digits": "function",
    }
    solve = symbols["convex.solve"]
    assert (solve.file.name, solve.path) == ("solve.py", "fourviews.convex.solve")
    assert set(solve.leads_to) == {"Solution"}


def test_a_first_sentence_says_what_a_name_is(symbols):
    assert summary(symbols["convex.solve"]) == "Solve it well."
    assert summary(symbols["convex.Head"]) == "A head."
    assert summary(symbols["convex.SIZES"]) == "Sizes of a block."


def test_a_name_that_is_exported_but_not_defined_is_an_error(library):
    path = library / "lib" / "fourviews" / "data" / "__init__.py"
    path.write_text('__all__ = ["letters"]\n')
    with pytest.raises(library_symbols.SymbolError, match="'letters'"):
        public_symbols(library)


def test_a_package_that_does_not_say_what_is_public_is_an_error(library):
    (library / "lib" / "fourviews" / "data" / "__init__.py").write_text("x = 1\n")
    with pytest.raises(library_symbols.SymbolError, match="no __all__"):
        public_symbols(library)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (
            "from fourviews import convex\nconvex.solve(convex.Head())",
            ["convex.Head", "convex.solve"],
        ),
        ("from fourviews import convex as cv\ncv.solve(1)", ["convex.solve"]),
        ("import fourviews.convex as cv\ncv.SIZES", ["convex.SIZES"]),
        ("import fourviews\nfourviews.convex.solve(1)", ["convex.solve"]),
        ("from fourviews.convex import solve as s\ns(1)", ["convex.solve"]),
        ("from fourviews.convex.solve import Head\nHead()", ["convex.Head"]),
        ("from fourviews.convex import solve", []),  # imported, not used
        ("from fourviews import convex\nconvex.private(1)", []),
        ("convex = 1\nconvex.solve(1)", []),  # not the library
        ("import torch\ntorch.solve(1)", []),
    ],
)
def test_uses_are_read_off_the_code(symbols, source, names):
    assert used_symbols([source], symbols) == names


def test_cells_share_their_imports(symbols):
    cells = ["from fourviews import convex", "convex.solve(1)"]
    assert used_symbols(cells, symbols) == ["convex.solve"]


def test_a_lesson_introduces_what_it_uses_first_and_what_comes_out(symbols):
    lessons = {
        "one": ("text with `convex.SIZES`", ["from fourviews import convex\nconvex.solve(1)"]),
        "two": ("", ["from fourviews import convex\nconvex.solve(convex.SIZES)\nconvex.Head"]),
    }
    assert introductions(lessons, symbols) == {
        "convex.solve": "one",
        "convex.Solution": "one",  # returned
        "convex.SIZES": "two",  # code comes before text
        "convex.Head": "two",
    }


def test_a_quoted_name_is_introduced_where_no_code_uses_it(symbols):
    lessons = {"one": ("see `convex.Head` and `fourviews.data.digits()`", [])}
    assert introductions(lessons, symbols) == {"convex.Head": "one", "data.digits": "one"}


def test_a_test_reaches_helpers_fixtures_and_neighbours(symbols, tmp_path):
    folder = tmp_path / "tests" / "convex"
    folder.mkdir(parents=True)
    (folder / "heads.py").write_text(
        "from fourviews import convex\n\ndef head():\n    return convex.Head()\n"
    )
    path = folder / "test_a.py"
    path.write_text(
        textwrap.dedent(
            """\
            import pytest
            from fourviews import convex, data
            from .heads import head as build

            CASES = [convex.SIZES]

            @pytest.fixture
            def digits():
                return data.digits()

            def helper():
                return convex.solve(build())

            def test_direct():
                assert convex.SIZES

            def test_through():
                assert helper()

            def test_fixture(digits):
                assert digits

            class TestAll:
                @pytest.mark.parametrize("case", CASES)
                def test_case(self, case):
                    pass

                def test_none(self):
                    pass
            """
        )
    )
    reach = Reach(symbols)
    assert reach.uses(path, "test_direct") == ["convex.SIZES"]
    assert reach.uses(path, "test_through") == ["convex.Head", "convex.solve"]
    assert reach.uses(path, "test_fixture") == ["data.digits"]
    assert reach.uses(path, "TestAll::test_case") == ["convex.SIZES"]
    assert reach.uses(path, "TestAll::test_none") == []
    assert reach.uses(path, "TestAll") == ["convex.SIZES"]
    assert len(reach.uses(path, "")) == 4


# --- the checkout itself ------------------------------------------------------------------


@pytest.fixture(scope="module")
def book():
    return read_book(ROOT)


@pytest.fixture(scope="module")
def reference(book):
    return Reference(book.lessons, ROOT)


@pytest.fixture(scope="module")
def rows():
    return ledger.read_all(ROOT)


def test_every_public_name_has_a_first_sentence(reference):
    without = [name for name, symbol in reference.symbols.items() if not summary(symbol)]
    assert not without, f"no docstring: {', '.join(without)}"


def test_names_read_are_those_that_python_finds(reference):
    import importlib

    for view in library_symbols.VIEWS:
        module = importlib.import_module(f"fourviews.{view}")
        names = [symbol.name for symbol in reference.symbols.values() if symbol.view == view]
        assert names == list(module.__all__)


def test_every_lesson_lists_what_it_uses(book, reference):
    for lesson in book.lessons:
        box = reference.box(lesson)
        assert box.count("{py:obj}") == len(reference.used[lesson]) > 0, lesson


def test_boxes_give_no_solution_away(book, reference):
    """A name that only solutions use is in no box; there are such names, so this can fail."""
    hidden = 0
    for name, lesson in book.lessons.items():
        everything = used_symbols([c.source for c in lesson.cells()], reference.symbols)
        only = set(everything) - set(reference.used[name])
        hidden += len(only)
        assert not any(f"<fourviews.{symbol}>" in reference.box(name) for symbol in only)
    assert hidden


def test_every_claim_but_two_is_computed_with_the_library(reference, rows):
    """Two are about matrices that need nothing of it; whoever adds a third says why here."""
    claims = reference.claims(rows)
    assert {id_ for id_, names in claims.items() if not names} == {"opt-03", "cnv-04"}


def test_every_view_has_its_page(book, reference, rows):
    pages = reference.pages(reference.claims(rows))
    assert set(pages) <= set(book.pages)
    assert {page for page in book.pages if page.startswith("reference")} == set(pages)
    for name, symbol in reference.symbols.items():
        text = pages[f"reference_{symbol.view}"]
        assert f"\n## {symbol.name}\n" in text, name


def test_what_a_base_class_describes_stands_once(reference, rows):
    """As Python sees it: a head's page leaves out what `Problem` has, and only that."""
    from fourviews import convex

    page = reference.pages(reference.claims(rows))["reference_convex"]
    for name in ("MLP", "SelfAttention", "Mixer", "FNO", "BlockFNO"):
        body = page.partition(f".. autoclass:: {name}\n")[2].partition("```")[0]
        left_out = body.partition(":exclude-members: ")[2].partition("\n")[0].split(", ")
        own = {key for key in vars(getattr(convex, name)) if not key.startswith("_")}
        known = {key for key in dir(convex.Problem) if not key.startswith("_")}
        attributes = set(convex.Problem.__annotations__)
        assert own & known
        assert own & known <= {*left_out} <= own & (known | attributes), name
    assert (
        ":exclude-members:" not in page.partition(".. autoclass:: Problem\n")[2].partition("```")[0]
    )
