"""Word vectors: a matrix with one row a word, and the way from a text to a tensor of tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from ..sources import Source
from .tokens import tokenize


class Embedding(NamedTuple):
    """A sentence as attention sees it.

    ``vectors`` has one row a token, zero where the token is unknown; ``unknown`` is True there.
    """

    vectors: Float[Tensor, "s d"]
    tokens: list[str]
    unknown: Bool[Tensor, "s"]


class EmbeddedBatch(NamedTuple):
    """Texts of different lengths in one tensor.

    Each text's tokens come first, padding follows. ``mask`` is True at tokens: as a mask of keys it
    reads ``mask[:, None, :]``, which is ``attention.padding_mask(lengths, s)``. ``unknown`` is True
    at tokens that are no known words; there, and at padding, ``vectors`` is zero. ``cut`` is True for
    texts that were longer than ``max_tokens``.
    """

    vectors: Float[Tensor, "n s d"]
    mask: Bool[Tensor, "n s"]
    lengths: Int64[Tensor, "n"]
    unknown: Bool[Tensor, "n s"]
    cut: Bool[Tensor, "n"]
    tokens: list[list[str]]


@dataclass(frozen=True)
class OutOfVocabulary:
    """How much of some texts the word vectors do not know; ``str`` says it in a sentence.

    Attributes
    ----------
    texts, tokens
        How many there are.
    unknown
        How many tokens are unknown.
    without_known
        How many texts have not a single known token.
    most_common
        The most frequent unknown tokens and how often they come.
    """

    texts: int
    tokens: int
    unknown: int
    without_known: int
    most_common: list[tuple[str, int]]

    @property
    def fraction(self) -> float:
        """Share of the tokens that is unknown; 0 if there are none."""
        return self.unknown / self.tokens if self.tokens else 0.0

    def __str__(self) -> str:
        often = ", ".join(f"{token} ({count})" for token, count in self.most_common)
        return (
            f"{self.unknown} of {self.tokens} tokens ({self.fraction:.2%}) are unknown;"
            f" {self.without_known} of {self.texts} texts have no known token"
            + (f"; most often: {often}" if often else "")
        )


class WordVectors:
    """Words and their vectors.

    Parameters
    ----------
    tokens
        n different words.
    vectors
        ``(n, d)`` floating-point numbers; may be a memory map, of which only the rows in use are
        read.
    source
        Where they come from.
    lower
        Whether the words are in lower case, so that texts are put into lower case too. If not, a
        token that is unknown as it is written is looked for in lower case.

    Attributes
    ----------
    tokens, vectors, source, lower
        As given.
    index
        Row of each word.

    Raises
    ------
    ValueError
        If the numbers of words and rows differ, or a word comes twice.

    Examples
    --------
    >>> import numpy as np
    >>> words = WordVectors(["red", "blue"], np.eye(2, dtype=np.float32))
    >>> words["blue"]
    tensor([0., 1.])
    >>> words.embed("Blue moon").unknown
    tensor([False,  True])
    """

    def __init__(
        self,
        tokens: Sequence[str],
        vectors: Float[np.ndarray, "n d"],
        source: Source | None = None,
        *,
        lower: bool = True,
    ):
        if vectors.ndim != 2 or not np.issubdtype(vectors.dtype, np.floating):
            raise ValueError(
                f"vectors has shape {vectors.shape} and dtype {vectors.dtype}; it needs a"
                " matrix of floating-point numbers"
            )
        if len(tokens) != vectors.shape[0]:
            raise ValueError(
                f"vectors has {vectors.shape[0]} rows, tokens has {len(tokens)} words; they"
                " need the same"
            )
        self.tokens = list(tokens)
        self.vectors = vectors
        self.source = source
        self.lower = lower
        self.index = {token: row for row, token in enumerate(self.tokens)}
        if len(self.index) != len(self.tokens):
            raise ValueError(f"tokens holds {len(self.tokens) - len(self.index)} words twice")

    @property
    def dim(self) -> int:
        """Number d of features."""
        return self.vectors.shape[1]

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: str) -> bool:
        return token in self.index

    def __getitem__(self, token: str) -> Float[Tensor, "d"]:
        """Vector of one word, as a tensor of its own; KeyError if the word is unknown."""
        if token not in self.index:
            case = " (they are in lower case)" if self.lower else ""
            raise KeyError(f"{token!r} is not among the {len(self)} words{case}")
        return torch.from_numpy(np.array(self.vectors[self.index[token]]))

    def embed(self, text: str | Sequence[str]) -> Embedding:
        """Turn a text, or tokens, into a tensor ``(s, d)``, and say which tokens were unknown.

        A string is cut by :func:`~fourviews.data.tokenize`; a list is taken as it is. Unknown
        tokens keep their place and get the zero vector, so a text without any known word gives
        zeros and ``unknown.all()``; an empty text gives shape ``(0, d)``.
        """
        tokens = self._tokens(text)
        rows = self._rows(tokens)
        vectors = np.zeros((len(tokens), self.dim), dtype=self.vectors.dtype)
        vectors[rows >= 0] = self.vectors[rows[rows >= 0]]
        return Embedding(torch.from_numpy(vectors), tokens, torch.from_numpy(rows < 0))

    def embed_batch(
        self,
        texts: Iterable[str | Sequence[str]],
        *,
        max_tokens: int | None = None,
        unknown: Literal["zero", "drop"] = "zero",
    ) -> EmbeddedBatch:
        """Turn texts into one tensor ``(n, s, d)`` with padding, s the longest text's length.

        Parameters
        ----------
        texts
            Strings, cut by :func:`~fourviews.data.tokenize`, or lists of tokens.
        max_tokens
            Length at which longer texts are cut; ``cut`` of the result says which.
        unknown
            ``"zero"`` keeps the places of unknown tokens, with zero vectors; ``"drop"`` leaves them
            out, before texts are cut. A text without a known token then has length 0.

        Returns
        -------
        EmbeddedBatch
            ``vectors``, ``mask``, ``lengths``, ``unknown``, ``cut``, ``tokens``.

        Raises
        ------
        ValueError
            If ``texts`` is a single string, ``max_tokens`` no positive integer or ``unknown`` another
            word.
        """
        if isinstance(texts, str):
            raise ValueError("texts is a string; it needs to be a list of texts")
        if max_tokens is not None and (
            not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens < 1
        ):
            raise ValueError(
                f"max_tokens is {max_tokens!r}; it needs to be a positive integer or None"
            )
        if unknown not in ("zero", "drop"):
            raise ValueError(f"unknown is {unknown!r}; it needs to be 'zero' or 'drop'")
        all_tokens, all_rows, cut = [], [], []
        for text in texts:
            tokens = self._tokens(text)
            rows = self._rows(tokens)
            if unknown == "drop":
                tokens = [token for token, row in zip(tokens, rows, strict=True) if row >= 0]
                rows = rows[rows >= 0]
            cut.append(max_tokens is not None and len(tokens) > max_tokens)
            all_tokens.append(tokens[:max_tokens])
            all_rows.append(rows[:max_tokens])
        lengths = np.array([len(rows) for rows in all_rows], dtype=np.int64)
        longest = int(lengths.max(initial=0))
        table = np.full((len(all_rows), longest), -1, dtype=np.int64)
        for place, rows in zip(table, all_rows, strict=True):
            place[: len(rows)] = rows
        mask = np.arange(longest) < lengths[:, None]
        vectors = np.zeros((*table.shape, self.dim), dtype=self.vectors.dtype)
        vectors[table >= 0] = self.vectors[table[table >= 0]]
        return EmbeddedBatch(
            torch.from_numpy(vectors),
            torch.from_numpy(mask),
            torch.from_numpy(lengths),
            torch.from_numpy(mask & (table < 0)),
            torch.tensor(cut, dtype=torch.bool),
            all_tokens,
        )

    def out_of_vocabulary(
        self, texts: Iterable[str | Sequence[str]], *, most_common: int = 10
    ) -> OutOfVocabulary:
        """Count the tokens of texts that have no vector.

        Parameters
        ----------
        texts
            Texts, or their lists of tokens.
        most_common
            How many of the missing tokens are named.

        Raises
        ------
        ValueError
            If ``texts`` is a single string.
        """
        if isinstance(texts, str):
            raise ValueError("texts is a string; it needs to be a list of texts")
        missing: Counter[str] = Counter()
        n_texts = n_tokens = without_known = 0
        for text in texts:
            tokens = self._tokens(text)
            known = self._rows(tokens) >= 0
            missing.update(token for token, there in zip(tokens, known, strict=True) if not there)
            n_texts += 1
            n_tokens += len(tokens)
            without_known += not known.any()
        # Ties in the order of the alphabet, so that reports do not depend on the order of texts.
        often = sorted(missing.items(), key=lambda item: (-item[1], item[0]))
        return OutOfVocabulary(
            n_texts, n_tokens, missing.total(), int(without_known), often[:most_common]
        )

    def _tokens(self, text: str | Sequence[str]) -> list[str]:
        return tokenize(text, lower=self.lower) if isinstance(text, str) else list(text)

    def _rows(self, tokens: list[str]) -> Int64[np.ndarray, "s"]:
        """Row of each token, -1 where it is unknown."""
        if self.lower:
            rows = [self.index.get(token, -1) for token in tokens]
        else:
            rows = [self.index.get(t, self.index.get(t.lower(), -1)) for t in tokens]
        return np.array(rows, dtype=np.int64)

    def __repr__(self) -> str:
        return f"<{len(self)} word vectors with {self.dim} features; {self.source}>"
