"""Scenes: objects with boxes, and relations between them, of which a part was written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from ..sources import Source


@dataclass(frozen=True, repr=False)
class SceneSet:
    """Scenes of up to m objects of K kinds, with P predicates for each ordered pair.

    Attributes
    ----------
    kinds
        ``(n, m)``, indices into ``kind_names``, −1 where a scene has no further object.
    boxes
        ``(n, m, 4)``: left, top, width and height, as shares of the picture's; 0 where there is no
        object.
    written
        ``(n, m, m, P)``: the relations that somebody wrote down, subject first.
    truth
        All relations, in the same shape; None where nobody knows.
    kind_names, predicate_names
        What the indices mean.
    source
        Where the scenes come from.

    Raises
    ------
    ValueError
        If shapes, types or indices do not fit, an object has a relation to itself, or one is written
        that does not hold.
    """

    kinds: Int64[Tensor, "n m"]
    boxes: Float[Tensor, "n m 4"]
    written: Bool[Tensor, "n m m p"]
    truth: Bool[Tensor, "n m m p"] | None
    kind_names: tuple[str, ...]
    predicate_names: tuple[str, ...]
    source: Source | str

    def __post_init__(self) -> None:
        n, m = self.kinds.shape if self.kinds.ndim == 2 else (-1, -1)
        shape = (n, m, m, len(self.predicate_names))
        if self.kinds.dtype != torch.int64 or self.kinds.ndim != 2:
            raise ValueError(
                f"kinds has shape {tuple(self.kinds.shape)} and dtype {self.kinds.dtype};"
                " it needs int64 of shape (n, m)"
            )
        if self.boxes.shape != (n, m, 4) or not bool(self.boxes.isfinite().all()):
            raise ValueError(
                f"boxes has shape {tuple(self.boxes.shape)}; it needs finite numbers of shape"
                f" {(n, m, 4)}"
            )
        for name, labels in (("written", self.written), ("truth", self.truth)):
            if labels is None and name == "truth":
                continue
            if labels.dtype != torch.bool or labels.shape != shape:
                raise ValueError(
                    f"{name} has shape {tuple(labels.shape)} and dtype {labels.dtype}; it needs"
                    f" truth values of shape {shape}"
                )
            if bool((labels & ~self.pair_mask[..., None]).any()):
                raise ValueError(f"{name} has relations of pairs that do not exist")
        if self.kinds.numel() and not (
            -1 <= int(self.kinds.min()) and int(self.kinds.max()) < len(self.kind_names)
        ):
            raise ValueError(
                f"kinds run from {int(self.kinds.min())} to {int(self.kinds.max())}; they need to"
                f" be -1 or indices of {len(self.kind_names)} kinds"
            )
        if self.truth is not None and bool((self.written & ~self.truth).any()):
            raise ValueError("written has relations that are not in truth")

    @property
    def pair_mask(self) -> Bool[Tensor, "n m m"]:
        """Ordered pairs of two different objects that exist."""
        here = self.kinds >= 0
        apart = ~torch.eye(self.kinds.shape[1], dtype=torch.bool)
        return here[:, :, None] & here[:, None, :] & apart

    def __len__(self) -> int:
        return len(self.kinds)

    def __getitem__(self, rows: slice | Sequence[int] | Tensor) -> SceneSet:
        """Some of the scenes, by a slice, a list of indices or a boolean mask."""
        if isinstance(rows, int):
            raise ValueError(f"rows is {rows}; it needs to be a slice, a list or a mask")
        return SceneSet(
            self.kinds[rows],
            self.boxes[rows],
            self.written[rows],
            None if self.truth is None else self.truth[rows],
            self.kind_names,
            self.predicate_names,
            self.source,
        )

    def __repr__(self) -> str:
        known = "all relations known" if self.truth is not None else "written relations only"
        return (
            f"<{len(self)} scenes of up to {self.kinds.shape[1]} objects, {len(self.kind_names)}"
            f" kinds, {len(self.predicate_names)} predicates, {known}; {self.source}>"
        )
