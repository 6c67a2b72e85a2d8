"""Labelled texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from ..sources import Source

CLASSES = ("negative", "positive")


@dataclass(frozen=True, repr=False)
class TextSet:
    """Texts with their labels.

    Attributes
    ----------
    texts
        n strings, as published, white space at their ends removed.
    labels
        ``(n,)``, indices into ``classes``; None where none were published.
    classes
        Names of the classes.
    source
        Where the texts come from.
    ratings
        ``(n,)``, how the writer or the readers rated; None where that is unknown.
    note
        What was left out, in a sentence; empty if nothing was.
    """

    texts: tuple[str, ...]
    labels: Int64[Tensor, "n"] | None
    classes: tuple[str, ...]
    source: Source
    ratings: Float[Tensor, "n"] | None = None
    note: str = ""

    def __post_init__(self) -> None:
        for name, values in (("labels", self.labels), ("ratings", self.ratings)):
            if values is not None and values.shape != (len(self.texts),):
                raise ValueError(
                    f"{name} has shape {tuple(values.shape)}; there are {len(self.texts)} texts"
                )

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, rows: slice | Sequence[int] | Tensor) -> TextSet:
        """Some of the texts, by a slice, a list of indices or a boolean mask."""
        if isinstance(rows, int):
            raise ValueError(f"rows is {rows}; it needs to be a slice, a list or a mask")
        chosen = torch.arange(len(self))[rows].tolist()
        return TextSet(
            tuple(self.texts[row] for row in chosen),
            None if self.labels is None else self.labels[rows],
            self.classes,
            self.source,
            None if self.ratings is None else self.ratings[rows],
            self.note,
        )

    def __repr__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        return f"<{len(self)} texts; {self.source}{note}>"
