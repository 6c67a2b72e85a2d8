"""Word vectors: a matrix with one row a word, and the way from a text to a tensor of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .sources import Source
from .tokens import tokenize


class Embedding(NamedTuple):
    """A sentence as attention sees it.

    ``vectors`` has one row a token, zero where the token is unknown; ``unknown`` is True there.
    """

    vectors: Float[Tensor, "s d"]
    tokens: list[str]
    unknown: Bool[Tensor, "s"]


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

    Attributes
    ----------
    tokens, vectors, source
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
        self, tokens: Sequence[str], vectors: Float[np.ndarray, "n d"], source: Source | None = None
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
            raise KeyError(f"{token!r} is not among the {len(self)} words (they are in lower case)")
        return torch.from_numpy(np.array(self.vectors[self.index[token]]))

    def embed(self, text: str | Sequence[str]) -> Embedding:
        """Turn a text, or tokens, into a tensor ``(s, d)``, and say which tokens were unknown.

        A string is cut by :func:`~fourviews.data.tokenize`; a list is taken as it is. Unknown
        tokens keep their place and get the zero vector, so a text without any known word gives
        zeros and ``unknown.all()``; an empty text gives shape ``(0, d)``.
        """
        tokens = tokenize(text) if isinstance(text, str) else list(text)
        rows = np.array([self.index.get(token, -1) for token in tokens], dtype=np.int64)
        known = rows >= 0
        vectors = np.zeros((len(tokens), self.dim), dtype=self.vectors.dtype)
        vectors[known] = self.vectors[rows[known]]
        return Embedding(torch.from_numpy(vectors), tokens, torch.from_numpy(~known))

    def __repr__(self) -> str:
        return f"<{len(self)} word vectors with {self.dim} features; {self.source}>"
