"""The map on the front page: its theorems, its words, its place."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import concept_map
import numbering
from lesson_source import SourceError

ROOT = Path(__file__).resolve().parents[2]
BOOK = numbering.read_book(ROOT)
TILES = [(view, tile) for view in concept_map.VIEWS for tile in view.tiles if tile]


def test_every_tile_names_its_theorem_by_number_and_leads_to_it():
    text = concept_map.concept_map(BOOK)
    links = re.findall(r'<a href="([^"]+)">([^<]+)</a>', text)
    wanted = [BOOK.entries[tile.label] for _, tile in TILES]
    assert links == [(f"{e.page}.html#{e.anchor}", e.name) for e in wanted]
    assert all(entry.number for entry in wanted)


def test_each_view_has_a_place_for_each_kind_and_speaks_of_its_own_lessons():
    parts = {"Convex program": "convex", "Energy": "unrolled", "Spline": "spline"}
    assert len(concept_map.VIEWS) == 4
    for view in concept_map.VIEWS:
        assert len(view.tiles) == len(concept_map.KINDS)
        assert any(view.tiles)
    for view, tile in TILES:
        allowed = (parts.get(view.name, "convolution"), "closing", "foundations")
        assert BOOK.entries[tile.label].page.startswith(allowed), tile.label
        kind = BOOK.entries[tile.label].kind
        assert kind in ("theorem", "proposition", "corollary"), tile.label


def test_it_says_in_words_what_it_shows():
    text = concept_map.concept_map(BOOK)
    (label,) = re.findall(r'<figure class="concept-map" aria-label="([^"]+)"', text)
    assert len(label.split()) > 20
    assert all(kind in text for kind in concept_map.KINDS)
    assert text.count("<em>") == len(TILES)  # on a telephone no row says which kind is meant


@pytest.mark.parametrize("draw", concept_map.FILES.values())
def test_a_theorem_that_is_gone_stops_the_build(draw):
    book = replace(BOOK, entries={k: v for k, v in BOOK.entries.items() if k != "cvx-08"})
    with pytest.raises(SourceError, match="no statement 'cvx-08'"):
        draw(book)


def test_on_paper_it_is_a_table_of_the_same_theorems():
    text = concept_map.on_paper(BOOK)
    rows = [line.split(" & ") for line in text.splitlines() if line.endswith(r"\\ \hline")]
    assert [len(row) for row in rows] == [5] * (len(concept_map.KINDS) + 1)
    links = re.findall(r"\\hyperref\[\\detokenize\{([^}]+)\}\]\{([^}]+)\}", text)
    by_row = [view.tiles[at] for at in range(len(concept_map.KINDS)) for view in concept_map.VIEWS]
    wanted = [BOOK.entries[tile.label] for tile in by_row if tile]
    assert links == [(f"{e.page}:{e.anchor}", e.name) for e in wanted]


def test_the_front_page_shows_it():
    front = (ROOT / "book" / "index.md").read_text(encoding="utf-8")
    assert all(f":file: {name}" in front for name in concept_map.FILES)
