"""Sparse affine maps in torch, on data with one row a feature: (features, positions)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..functions.expression import float_maker
from .schedule import Affine

FEW = 3  # rows with so few entries are gathered, not multiplied
DENSE_ENTRIES = 1 << 16


class AffineMap(nn.Module):
    """x ↦ Wx + b for rows of few entries or many; keeps W and b as buffers."""

    def __init__(self, affine: Affine, columns: int, dtype: torch.dtype, device=None):
        super().__init__()
        rows = affine.rows
        self.rows = len(rows)
        self.columns = columns
        most = max((len(row) for row in rows), default=0)
        like = {"dtype": dtype, "device": device}
        to_float = float_maker(dtype)
        constants = [to_float(value) for value in affine.constants]
        self.has_bias = any(constants)
        self.register_buffer("bias", torch.tensor(constants, **like)[:, None])
        if most <= FEW:
            self.kind = "gather"
            self.unit = []
            for place in range(most):
                entries = [list(row.items())[place] if len(row) > place else (0, 0) for row in rows]
                index = torch.tensor([column for column, _ in entries], device=device)
                weight = [to_float(value) for _, value in entries]
                self.unit.append(all(value == 1 for value in weight))
                self.register_buffer(f"index{place}", index)
                self.register_buffer(f"weight{place}", torch.tensor(weight, **like)[:, None])
            return
        triples = [
            (i, j, to_float(value))
            for i, row in enumerate(rows)
            for j, value in sorted(row.items())
        ]
        index = torch.tensor(
            [[i for i, _, _ in triples], [j for _, j, _ in triples]], device=device
        )
        values = torch.tensor([value for *_, value in triples], **like)
        weight = torch.sparse_coo_tensor(
            index, values, (len(rows), columns), check_invariants=False
        ).coalesce()
        few = len(triples) < 0.15 * len(rows) * columns
        self.kind = "sparse" if few and len(rows) * columns > DENSE_ENTRIES else "dense"
        self.register_buffer("weight", weight if self.kind == "sparse" else weight.to_dense())

    def forward(self, x: Tensor) -> Tensor:
        # In-place steps are safe for gradients: weights have none, and x itself is not changed.
        if self.kind == "gather":
            out = None
            for place, unit in enumerate(self.unit):
                part = x.index_select(0, getattr(self, f"index{place}"))
                if not unit:
                    part.mul_(getattr(self, f"weight{place}"))
                out = part if out is None else out.add_(part)
            if out is None:
                return self.bias.expand(-1, x.shape[1])
        elif self.kind == "sparse":
            out = torch.sparse.mm(self.weight, x)
        else:
            out = self.weight @ x
        return out.add_(self.bias) if self.has_bias else out

    @property
    def is_identity(self) -> bool:
        """Whether it returns its argument."""
        return (
            self.kind == "gather"
            and self.rows == self.columns
            and self.unit == [True]
            and not self.has_bias
            and self.index0.tolist() == list(range(self.rows))
        )
