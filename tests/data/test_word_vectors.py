"""Batches of texts with padding, and what the vectors do not know."""

import numpy as np
import pytest
import torch

from fourviews.attention import attention, padding_mask
from fourviews.data import tokenize
from fourviews.data.text.word_vectors import WordVectors

TEXTS = ["The bank zzq, the", "", "zzq !", ["n't", "bank"]]


@pytest.fixture
def words():
    vectors = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    return WordVectors(["the", "bank", "n't"], vectors)


def test_batch_is_each_text_and_padding(words):
    batch = words.embed_batch(TEXTS)
    assert batch.vectors.shape == (4, 5, 4) and batch.vectors.dtype == torch.float32
    assert batch.lengths.tolist() == [5, 0, 2, 2] and not batch.cut.any()
    for row, text in enumerate(TEXTS):
        one = words.embed(text)
        length = len(one.tokens)
        assert batch.tokens[row] == one.tokens
        assert torch.equal(batch.vectors[row, :length], one.vectors)
        assert torch.equal(batch.unknown[row, :length], one.unknown)
        assert not batch.vectors[row, length:].any() and not batch.unknown[row, length:].any()
        assert batch.mask[row].tolist() == [True] * length + [False] * (5 - length)


def test_mask_is_that_of_the_attention_module(words):
    batch = words.embed_batch(["the bank", "the bank the bank", "the"])
    mask = padding_mask(batch.lengths, 4)
    assert torch.equal(mask, batch.mask[:, None, :])
    x = batch.vectors
    out = attention(x, x, x, mask=batch.mask[:, None, :])
    short = words.embed("the bank").vectors[None]
    torch.testing.assert_close(out[0, :2], attention(short, short, short)[0])


def test_long_texts_are_cut_and_said_to_be(words):
    batch = words.embed_batch(["the bank the", "the bank", "the"], max_tokens=2)
    assert batch.vectors.shape == (3, 2, 4) and batch.cut.tolist() == [True, False, False]
    assert batch.tokens[0] == ["the", "bank"] and batch.lengths.tolist() == [2, 2, 1]


def test_unknown_tokens_can_be_left_out(words):
    batch = words.embed_batch(TEXTS, unknown="drop", max_tokens=3)
    assert batch.tokens == [["the", "bank", "the"], [], [], ["n't", "bank"]]
    assert batch.lengths.tolist() == [3, 0, 0, 2] and not batch.unknown.any()
    assert not batch.cut.any()  # cut counts known tokens only: the first text has three


def test_no_texts_and_empty_texts(words):
    assert words.embed_batch([]).vectors.shape == (0, 0, 4)
    assert words.embed_batch(["", " "]).vectors.shape == (2, 0, 4)
    assert words.embed_batch([]).cut.dtype == torch.bool


def test_bad_arguments(words):
    with pytest.raises(ValueError, match="texts is a string"):
        words.embed_batch("the bank")
    with pytest.raises(ValueError, match="texts is a string"):
        words.out_of_vocabulary("the bank")
    for bad in (0, 2.0, True):
        with pytest.raises(ValueError, match="max_tokens is"):
            words.embed_batch(TEXTS, max_tokens=bad)
    with pytest.raises(ValueError, match="unknown is 'skip'"):
        words.embed_batch(TEXTS, unknown="skip")


def test_report(words):
    report = words.out_of_vocabulary(TEXTS, most_common=2)
    assert (report.texts, report.tokens, report.unknown) == (4, 9, 4)
    assert report.without_known == 2 and report.most_common == [("zzq", 2), ("!", 1)]
    assert str(report).startswith("4 of 9 tokens (44.44%) are unknown; 2 of 4 texts have no known")
    nothing = words.out_of_vocabulary([])
    assert nothing.fraction == 0 and str(nothing).startswith("0 of 0 tokens")


def test_words_with_capitals():
    words = WordVectors(["May", "may", "apple"], np.eye(3, dtype=np.float32), lower=False)
    batch = words.embed_batch(["May may MAY Apple"])
    assert batch.tokens == [["May", "may", "MAY", "Apple"]]
    assert batch.vectors[0].argmax(1).tolist() == [0, 1, 1, 2]
    with pytest.raises(KeyError, match='not among the 3 words"$'):
        words["Apple"]


def test_tokens_keep_their_capitals_if_asked():
    text = "Don't SAY it ISN'T Ann's, I'LL see…"
    assert tokenize(text, lower=False) == (
        ["Do", "n't", "SAY", "it", "IS", "N'T", "Ann", "'s", ",", "I", "'LL", "see", "..."]
    )
    assert [token.lower() for token in tokenize(text, lower=False)] == tokenize(text)
