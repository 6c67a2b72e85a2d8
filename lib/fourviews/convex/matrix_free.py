r"""Spectral norms of a gradient's blocks from products with units: no block is formed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .problem import Problem
from .spectral import lanczos_bound

__all__ = ["LARGEST_BLOCKS", "STARTS", "GradientBound", "gradient_bound"]

# Up to this many entries the gradient's blocks are formed and decomposed exactly.
LARGEST_BLOCKS = 20_000_000
# Independent starts: they make few steps suffice, and pass the data once.
STARTS = 8
_MOST_STEPS = 2000


@runtime_checkable
class Sums(Protocol):
    """A problem with sums over its samples, as :class:`~fourviews.convex.Shards` are."""

    problem: Problem
    device: torch.device

    def sum(self, term: Callable[[slice, Problem], Tensor], shape: tuple[int, ...]) -> Tensor: ...


class GradientBound(NamedTuple):
    """Largest singular value found in all blocks, a bound on it, and pairs: rows are vectors."""

    found: float
    bound: float
    values: Float[Tensor, "k"]
    lefts: Float[Tensor, "k p"]
    rights: Float[Tensor, "k q"]
    block: Int[Tensor, "k"]


def gradient_bound(
    shards: Sums,
    residual: Float[Tensor, "n *s c"],
    *,
    slack: float,
    failure_probability: float,
    seed: int = 0,
    pairs: int = 1,
    starts: int = STARTS,
) -> GradientBound:
    r"""Bound :math:`\max_j\|A_j^*(R)\|_2` by block Lanczos on each block's products.

    A product with :math:`A_j^*(R)` is the first layer's gradient of a unit, one with its transpose
    the second layer's, so that the cost is that of a pass over the data.  The number of steps
    is the one for which `lanczos_bound` exceeds what it finds by the share ``slack`` at most.

    Parameters
    ----------
    shards
        Of the samples; the problem's beta does not matter.
    residual
        R, of this process's samples, in the precision of the bound.
    slack
        Share by which the bound may exceed what is found.
    failure_probability
        That the bound does not hold for one block or another, over the draw of starts.
    seed, starts, pairs
        Of the draw; independent starts; singular pairs to return from each block.
    """
    blocks = shards.problem.n_blocks
    failure = failure_probability / blocks
    p, q = shards.problem.block_shape
    device = shards.device
    # See `lanczos_bound`.
    exponent = np.log(1.648 * np.sqrt(q)) - np.log(failure) / starts
    steps = int(np.ceil(0.5 + 0.5 * exponent / np.sqrt(2 * slack)))
    results = []
    for j in range(blocks):

        def apply(V: Tensor, j: int = j) -> Tensor:
            block = torch.full((len(V),), j, device=device)
            return shards.sum(
                lambda part, data: data.units_first_gradient(residual[part].to(device), V, block),
                (len(V), p),
            )

        def apply_transposed(U: Tensor, j: int = j) -> Tensor:
            block = torch.full((len(U),), j, device=device)
            return shards.sum(
                lambda part, data: data.units_second_gradient(residual[part].to(device), U, block),
                (len(U), q),
            )

        results.append(
            lanczos_bound(
                apply,
                apply_transposed,
                q,
                steps=min(steps, _MOST_STEPS),
                block=starts,
                pairs=pairs,
                failure_probability=failure,
                seed=seed * blocks + j,
                like=torch.empty(0, dtype=residual.dtype, device=device),
            )
        )
    counts = torch.tensor([len(r.values) for r in results], device=device)
    return GradientBound(
        max(r.found for r in results),
        max(r.bound for r in results),
        torch.cat([r.values for r in results]),
        torch.cat([r.lefts for r in results]),
        torch.cat([r.rights for r in results]),
        torch.arange(len(results), device=device).repeat_interleave(counts),
    )
