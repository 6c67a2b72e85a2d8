"""Terms of the glossary, and where a lesson first uses them."""

from __future__ import annotations

from pathlib import Path

import pytest

import glossary
from glossary import first_uses, pattern

ROOT = Path(__file__).resolve().parents[2]
TERMS = [
    "attention",
    "linear attention",
    "query",
    "ReLU",
    "value",
    "proximal map",
    "max-plus algebra",
]


@pytest.mark.parametrize(
    ("term", "text"),
    [
        ("query", "each query asks"),
        ("query", "Queries ask"),
        ("ReLU", "of a ReLU."),
        ("proximal map", "two proximal\nmaps"),
        ("softmax", "softmaxes of scores"),
        ("Gram matrix", "its Gram matrix"),
        ("weight decay", "Weight decay pulls"),
    ],
)
def test_a_term_is_found_as_a_word_of_a_sentence(term, text):
    assert pattern(term).search(text)


@pytest.mark.parametrize(
    ("term", "text"),
    [
        ("attention", "self-attention"),
        ("ReLU", "a relu"),
        ("key", "keyboard"),
        ("mask", "unmasked"),
        ("gate", "investigate"),
    ],
)
def test_a_part_of_another_word_is_no_term(term, text):
    assert not pattern(term).search(text)


def test_only_first_uses_count_and_longer_terms_win():
    seen = set()
    text = "Linear attention, attention and ReLU; a value of attention."
    uses = [(text[start:stop], term) for start, stop, term in first_uses(text, TERMS, seen)]
    assert uses == [
        ("Linear attention", "linear attention"),
        ("attention", "attention"),
        ("ReLU", "ReLU"),
    ]
    assert first_uses("ReLU, linear attention", TERMS, seen) == []
    # The words of a longer term are not the first use of a shorter one.
    assert first_uses("linear attention", TERMS, {"linear attention"}) == []


def test_words_with_other_meanings_are_left_to_authors():
    assert first_uses("the optimal value", TERMS, set()) == []


def test_terms_are_read_in_order(tmp_path):
    path = tmp_path / "glossary.md"
    path.write_text(
        "# G\n\n```{glossary}\n:sorted:\n\nadjoint\n  Words.\n  More\n\nbase map\n  Words.\n```\n\nEnd\n"
    )
    assert glossary.read(path) == ["adjoint", "base map"]
    path.write_text("# G\n")
    with pytest.raises(ValueError, match="no glossary"):
        glossary.read(path)


def test_the_list_of_exceptions_holds_terms_of_this_book():
    terms = glossary.read(ROOT / "book" / "glossary.md")
    assert len(set(terms)) == len(terms)
    assert glossary.BY_AUTHOR <= set(terms)
