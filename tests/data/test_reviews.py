"""Reviews from whatever is at hand, down to made-up sentences."""

from __future__ import annotations

import pytest
import torch

from fourviews import data


def official(folder, n=4):
    """A review folder in IMDB's own layout."""
    for split in ("train", "test"):
        for name, rating in (("neg", 2), ("pos", 9)):
            place = folder / "aclImdb" / split / name
            place.mkdir(parents=True)
            for k in range(n):
                (place / f"{k}_{rating}.txt").write_text(f"{split} {name} film number {k}")


def test_a_folder_comes_first_and_is_cut_to_what_it_has(alone):
    official(alone / "data")
    found = data.reviews("long", "test", n_per_class=3)
    assert found.source.kind == "folder" and len(found) == 6 and found.note == ""
    assert found.labels.tolist() == [0, 1] * 3
    for text, label in zip(found.texts, found.labels.tolist(), strict=True):
        assert text.startswith(f"test {('neg', 'pos')[label]}")
    everything = data.reviews("long", "test", n_per_class=9)
    assert len(everything) == 8 and "fewer than asked for" in everything.note
    assert everything.texts[:6] == found.texts
    assert data.reviews("long", "test", n_per_class=3, seed=1).texts != found.texts
    short = data.reviews("short", n_per_class=2)  # SST-2 is not there
    assert "Made-up" in str(short.source) and "no real reviews" in short.note


def test_short_reviews_of_the_test_part_are_those_with_labels(alone):
    folder = alone / "data" / "SST-2"
    folder.mkdir()
    for part in ("train", "dev"):
        lines = [f"{part} sentence {k} \t{k % 2}" for k in range(6)]
        (folder / f"{part}.tsv").write_text("sentence\tlabel\n" + "\n".join(lines) + "\n")
    found = data.reviews("short", "test", n_per_class=2)
    assert all(text.startswith("dev") for text in found.texts) and found.source.kind == "folder"
    for text, label in zip(found.texts, found.labels.tolist(), strict=True):
        assert int(text.split()[-1]) % 2 == label


def test_with_nothing_at_hand_sentences_are_made_up(alone):
    long, short = (data.reviews(kind, n_per_class=5) for kind in ("long", "short"))
    assert len(long) == len(short) == 10 and "joined, 8 to a text" in long.note
    words = [sum(len(t.split()) for t in found.texts) for found in (long, short)]
    assert words[0] > 6 * words[1]
    again = data.reviews("short", n_per_class=5)
    assert again.texts == short.texts and torch.equal(again.labels, short.labels)
    assert data.reviews("short", "test", n_per_class=5).texts != short.texts
    for text, label in zip(short.texts, short.labels.tolist(), strict=True):
        praise = {"wonderful", "moving", "clever", "funny", "brilliant", "superb", "warm"}
        blame = {"dull", "dreadful", "tedious", "stupid", "boring", "weak", "flat"}
        seen = set(text.split())
        assert not seen & (blame if label else praise)


@pytest.mark.parametrize(
    "call",
    [
        lambda: data.reviews("middle", n_per_class=1),
        lambda: data.reviews("long", "dev", n_per_class=1),
        lambda: data.reviews("short", n_per_class=0),
        lambda: data.made_up_reviews("all", n_per_class=1),
        lambda: data.made_up_reviews(n_per_class=True),
    ],
)
def test_bad_wishes(alone, call):
    with pytest.raises(ValueError, match="needs"):
        call()
