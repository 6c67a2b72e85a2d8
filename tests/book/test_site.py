"""What stands in the built pages of `_build/html`, read without a browser."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import glossary
import numbering

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
BOOK = numbering.read_book(ROOT)

pytestmark = pytest.mark.site


class Page(HTMLParser):
    """Pictures, links and ids of one page."""

    def __init__(self, path: Path):
        super().__init__()
        self.path = path
        self.images: list[dict[str, str | None]] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "img":
            self.images.append(values)
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag in ("img", "script", "iframe", "source") and values.get("src"):
            self.loaded.append(values["src"])
        if tag == "link" and values.get("rel") in (
            "stylesheet",
            "preload",
            "icon",
            "shortcut icon",
        ):
            self.loaded.append(values["href"])


@pytest.fixture(scope="module")
def pages() -> dict[str, Page]:
    return {path.stem: Page(path) for path in sorted(HTML.glob("*.html"))}


def test_all_pages_are_there(pages):
    assert set(BOOK.pages) <= set(pages)
    assert {"genindex", "search"} <= set(pages)


def test_every_picture_says_what_it_shows(pages):
    for name, page in pages.items():
        for image in page.images:
            alt = image.get("alt") or ""
            assert len(alt.split()) >= 2, f"{name}: {image}"
            assert not re.search(r"\.(png|svg|jpe?g|gif)$", alt), f"{name}: {image}"


def test_nothing_is_loaded_from_elsewhere_and_all_that_is_loaded_is_there(pages):
    for name, page in pages.items():
        for address in page.loaded:
            assert not re.match(r"(https?:)?//", address), f"{name}: {address}"
            if not address.startswith("data:"):
                assert (HTML / address.split("?")[0]).is_file(), f"{name}: {address}"


def test_links_within_the_book_lead_somewhere(pages):
    for name, page in pages.items():
        for address in page.links:
            if re.match(r"[a-z]+:", address) or address in ("#", ""):
                continue
            target, _, fragment = address.partition("#")
            path = HTML / target.split("?")[0] if target else page.path
            assert path.is_file(), f"{name}: {address}"
            if fragment and path.suffix == ".html" and path.stem in pages:
                assert fragment in pages[path.stem].ids, f"{name}: {address}"


def test_ids_are_unique(pages):
    for name, page in pages.items():
        twice = {i for i in page.ids if page.ids.count(i) > 1}
        # The theme draws its search field twice, for wide and for narrow screens.
        assert twice <= {"search-input"}, f"{name}: {twice}"


def test_numbers_are_those_of_the_notebooks():
    sphinx = json.loads((HTML.parent / "numbers.json").read_text(encoding="utf-8"))
    own = {
        label: {"page": entry.page, "id": entry.anchor, "number": entry.number}
        for label, entry in BOOK.entries.items()
        if entry.number
    }
    assert {label: sphinx[label] for label in sphinx if label in own} == own
    assert own.keys() == {label for label in sphinx if sphinx[label]["page"] in BOOK.lessons}


@pytest.mark.parametrize("name", BOOK.lessons)
def test_download_leads_to_the_plain_notebook(pages, name):
    assert f"notebooks/{name}.ipynb" in pages[name].links
    committed = (ROOT / "book" / f"{name}.ipynb").read_bytes()
    assert (HTML / "notebooks" / f"{name}.ipynb").read_bytes() == committed


@pytest.mark.parametrize("name", BOOK.lessons)
def test_figures_are_numbered_and_captioned(pages, name):
    text = pages[name].path.read_text(encoding="utf-8")
    figures = [
        entry for entry in BOOK.entries.values() if entry.page == name and entry.kind == "figure"
    ]
    assert figures, "a lesson begins with a picture"
    for entry in figures:
        assert re.search(rf'id="{entry.anchor}"', text)
        assert f"Fig. {entry.number} " in text


def test_the_glossary_is_linked_from_lessons(pages):
    linked = [
        name
        for name in BOOK.lessons
        if any(link.startswith("glossary.html#term-") for link in pages[name].links)
    ]
    assert linked, "no lesson uses {term}"
    assert any(i.startswith("term-") for i in pages["glossary"].ids)


def test_the_index_has_entries(pages):
    links = [link for link in pages["genindex"].links if "#index-" in link or "#term-" in link]
    assert len(links) >= 10


def test_no_sources_are_published():
    assert not (HTML / "_sources").exists()
    for path in HTML.rglob("*.ipynb"):
        assert path.parent.name == "notebooks"


class RunningText(HTMLParser):
    """Paragraphs of a lesson without formulas, code, links, tables and titles; and linked terms."""

    APART = {
        "a",
        "code",
        "pre",
        "table",
        "script",
        "style",
        "summary",
        "figcaption",
        "legend",
        "h1",
        "h2",
        "h3",
    }
    MARKS = {
        "math",
        "caption",
        "caption-text",
        "admonition-title",
        "cell_output",
        "asked",
        "canary",
    }
    VOID = {"img", "br", "input", "meta", "link", "hr", "source", "wbr"}

    def __init__(self, path: Path):
        super().__init__()
        self.stack: list[tuple[str, bool]] = []  # tag, and whether what is in it is apart
        self.text: list[str] = []
        self.terms: set[str] = set()
        html = path.read_text(encoding="utf-8")
        self.feed(html[html.index("<article") : html.index("</article>")])

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if tag == "a" and "glossary.html#term-" in (values.get("href") or ""):
            self.terms.add(values["href"].split("#term-")[1].replace("-", " ").lower())
        marks = set((values.get("class") or "").split())
        if tag not in self.VOID:
            apart = tag in self.APART or bool(marks & self.MARKS)
            self.stack.append((tag, apart or (bool(self.stack) and self.stack[-1][1])))
        self.text.append("\0")  # a word that is partly emphasised is no term

    def handle_endtag(self, tag):
        self.text.append("\0")
        while self.stack and self.stack.pop()[0] != tag:
            pass

    def handle_data(self, data):
        if any(tag == "p" for tag, _ in self.stack):
            self.text.append(data if not self.stack[-1][1] else "\0")


@pytest.mark.parametrize("name", BOOK.lessons)
def test_every_term_of_the_glossary_is_linked_at_its_first_use(name):
    page = RunningText(HTML / f"{name}.html")
    terms = glossary.read(ROOT / "book" / "glossary.md")
    used = {
        term
        for piece in "".join(page.text).split("\0")
        for _, _, term in glossary.first_uses(piece, terms, set())
    }
    anchors = {re.sub(r"[^a-z0-9]+", " ", term.lower()).strip(): term for term in used}
    missing = sorted(term for key, term in anchors.items() if key not in page.terms)
    assert not missing, f"{name}: not linked: {', '.join(missing)}"
