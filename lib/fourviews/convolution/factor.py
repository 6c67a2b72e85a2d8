"""Matrices of a kernel as products of values and output projection, of a given inner dimension."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["factor_kernel", "heads_needed"]


def _ranks(matrices: Float[Tensor, "k d o"]) -> Int[Tensor, "k"]:
    return torch.linalg.matrix_rank(matrices.double())


def _check(matrices: Tensor, head_dim: int | None) -> None:
    if matrices.ndim != 3 or not matrices.numel() or not matrices.is_floating_point():
        raise ValueError(
            f"matrices is {matrices.dtype} of shape {tuple(matrices.shape)}; it needs to be floats,"
            " (k, d, o), at least one number"
        )
    if not bool(matrices.isfinite().all()):
        raise ValueError("matrices has numbers that are not finite; all of them need to be")
    if head_dim is not None and not (isinstance(head_dim, Integral) and head_dim >= 1):
        raise ValueError(f"head_dim is {head_dim!r}; it needs to be a whole number, 1 or more")


def heads_needed(matrices: Float[Tensor, "k d o"], head_dim: int) -> int:
    r"""Number of heads of dimension D_h that look at one place each and make these matrices.

    .. math:: \sum_\delta \lceil \operatorname{rank} W_\delta / D_h \rceil

    Heads that look at δ add up to a matrix of at most their number times the rank D_h, so none can
    be saved.

    Parameters
    ----------
    matrices
        W_δ of each entry of the kernel.
    head_dim
        D_h.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If ``head_dim`` is not positive, or the matrices are empty or not finite.
    """
    if head_dim is None:
        raise ValueError("head_dim is None; it needs to be a whole number, 1 or more")
    _check(matrices, head_dim)
    return int((-(-_ranks(matrices) // head_dim)).sum())


def factor_kernel(
    matrices: Float[Tensor, "k d o"],
    head_dim: int | None = None,
    outputs: Sequence[int] | None = None,
) -> tuple[Int[Tensor, "heads"], Float[Tensor, "heads d e"], Float[Tensor, "heads e o"]]:
    """Heads of dimension D_h that make these matrices; see :func:`heads_needed`.

    Parameters
    ----------
    matrices
        W_δ of each entry of the kernel.
    head_dim
        D_h; the smaller side of the matrices if left out.
    outputs
        Columns that need to be exact with one head an entry, D_h of them at most.

    Returns
    -------
    tuple
        Which entry each head belongs to, its values and its output projection.

    Raises
    ------
    ValueError
        If ``head_dim`` is not positive, ``outputs`` are too many or not outputs, or the matrices
        are empty or not finite.
    """
    _check(matrices, head_dim)
    k, d, o = matrices.shape
    head_dim = min(d, o) if head_dim is None else head_dim
    if outputs is not None:
        return _for_outputs(matrices, head_dim, list(outputs))
    if head_dim >= min(d, o):
        # One factor is the identity: nothing is rounded.
        narrow = o <= d
        eye = torch.eye(o if narrow else d, dtype=matrices.dtype, device=matrices.device)
        eye = eye.expand(k, *eye.shape).clone()
        weight_v, weight_o = (matrices.clone(), eye) if narrow else (eye, matrices.clone())
        return torch.arange(k), *_padded(weight_v, weight_o, head_dim)
    left, values, right = torch.linalg.svd(matrices.double(), full_matrices=False)
    which, weight_v, weight_o = [], [], []
    for entry, rank in enumerate(_ranks(matrices).tolist()):
        # At least one head in all, so that the layer has a shape even if the kernel is zero.
        stop = rank if rank or which or entry < k - 1 else 1
        for start in range(0, stop, head_dim):
            part = slice(start, min(start + head_dim, stop))
            which.append(entry)
            pair = left[entry, :, part] * values[entry, part], right[entry, part]
            pair = _padded(*pair, head_dim)
            weight_v.append(pair[0])
            weight_o.append(pair[1])
    return (
        torch.tensor(which),
        torch.stack(weight_v).to(matrices.dtype),
        torch.stack(weight_o).to(matrices.dtype),
    )


def _padded(weight_v: Tensor, weight_o: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    more = head_dim - weight_v.shape[-1]
    if not more:
        return weight_v, weight_o
    pad = torch.nn.functional.pad
    return pad(weight_v, (0, more)), pad(weight_o, (0, 0, 0, more))


def _for_outputs(
    matrices: Tensor, head_dim: int, outputs: list[int]
) -> tuple[Tensor, Tensor, Tensor]:
    k, _, o = matrices.shape
    if not outputs or len(outputs) > head_dim or len(set(outputs)) < len(outputs):
        raise ValueError(
            f"outputs is {outputs}; it needs to name 1 to head_dim = {head_dim} different channels"
        )
    if any(not isinstance(c, Integral) or not 0 <= c < o for c in outputs):
        raise ValueError(f"outputs is {outputs}; the convolution has channels 0 to {o - 1}")
    weight_v = matrices[:, :, outputs]
    weight_o = (torch.linalg.pinv(weight_v.double()) @ matrices.double()).to(matrices.dtype)
    # The chosen columns are known exactly, whatever rank they have.
    weight_o[:, :, outputs] = torch.eye(len(outputs)).to(matrices)
    return torch.arange(k), *_padded(weight_v, weight_o, head_dim)
