r"""The limited multi-label projection (LML; Amos, Koltun & Kolter 2019).

For logits x with n entries and an integer k,

.. math::
    y(x) = \arg\min_y \{-x^\top y - H_b(y) : 0 < y < 1,\ \mathbf 1^\top y = k\},\qquad
    H_b(y) = -\sum_i y_i\log y_i + (1-y_i)\log(1-y_i) .

The optimality condition is :math:`y = \sigma(x + \nu)` with one number ν a row, the root of
:math:`\sum_i \sigma(x_i + \nu) = k`.

How the root is found
---------------------
Let T be the k largest entries, and measure ν from the middle of the gap between the k-th and the
next: :math:`\nu = t - (x_{(k)} + x_{(k+1)})/2`. With z = x + ν the equation says that what the
others have is what T lacks, :math:`\sum_{j\notin T}\sigma(z_j) = \sum_{i\in T}\sigma(-z_i)`. In
logarithms,

.. math:: \varphi(t) = \log\sum_{j\notin T}\sigma(z_j) - \log\sum_{i\in T}\sigma(-z_i) = 0 .

Nothing cancels in these sums, however saturated y is. Three facts carry the method:

1. :math:`1 \le \varphi' \le 2`. The derivative is a mean of :math:`1 - y_j` over the others plus a
   mean of :math:`y_i` over T, and every y of T is at least every other y. So each evaluation
   encloses the root: it lies between :math:`t - \varphi(t)` and :math:`t - \varphi(t)/2`.
2. At the middle of this bracket the error has at least halved. It replaces the Newton step after
   an evaluation in which :math:`|\varphi|` has not.
3. :math:`|\varphi''| \le 1/2`, so the Newton step squares the error: :math:`e \mapsto e^2/4`. The
   iteration ends once :math:`|\varphi|\le\sqrt{\mathrm{eps}}` held before such a step.

The root lies in :math:`[-\log(n-k), \log k]` whatever x is. If all entries are equal, φ is affine.

The derivative
--------------
With :math:`w = y(1-y)` and :math:`p = w/\sum w`, :math:`dz = dx - \mathbf 1\,p^\top dx` and
:math:`dy = w\,dz`. In the printed form: :math:`h = 1/w`, :math:`d_\nu = p^\top g` and gradient
:math:`h^{-1}(g - d_\nu)`. When every y rounds to 0 or 1 the printed quotients read 0/0; here w is
:math:`\sigma(z)\sigma(-z)`, and p a softmax of log w, which is never undefined.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from .inputs import (
    accumulation_dtype,
    apply_mask,
    check_count,
    check_count_values,
    check_counts,
    check_logits,
    cut,
    explain_infeasible,
    infeasible_rows,
)

__all__ = ["LML", "LMLInfo", "lml", "lml_logits"]

# Each evaluation halves the distance to the root, which log n bounds: 64 reach every precision.
_EVALUATIONS = 64
# Entries that are worked on at a time on a CPU: the passes of the iteration then stay in its cache.
_BLOCK = 1 << 18


class LMLInfo(NamedTuple):
    r"""What the iteration found.

    Parameters
    ----------
    shift
        ν of each row, in the accumulation dtype; ``x`` without the axis ``dim``. Not finite where
        the row is a limit, see :func:`lml`.
    residual
        :math:`\sum y - k` of the returned y, summed in float64.
    evaluations
        Evaluations of φ that the slowest row took.
    """

    shift: Float[Tensor, "..."]
    residual: Float[Tensor, "..."]
    evaluations: int


def _root(
    F: Tensor, G: Tensor, limit: Tensor, others: Tensor, tolerance: float
) -> tuple[Float[Tensor, "rows 1"], int]:
    r"""Root t of φ, with F = exp(-z) of the others and G = exp(z) of T, both at t = 0.

    An entry that takes no part is ``inf``. Then :math:`\sigma(z_j) = 1/(1 + F_j e^{-t})` and
    :math:`\sigma(-z_i) = 1/(1 + G_i e^{t})`: no exponentials in the iteration. ``others`` is
    room for the former.
    """
    t = F.new_zeros(len(F), 1)
    previous = torch.full_like(t, torch.inf)
    chosen = torch.empty_like(G)
    for evaluation in range(1, _EVALUATIONS + 1):  # noqa: B007
        torch.mul(F, torch.exp(-t), out=others).add_(1).reciprocal_()
        torch.mul(G, torch.exp(t), out=chosen).add_(1).reciprocal_()
        A, B = others.sum(-1, keepdim=True), chosen.sum(-1, keepdim=True)
        A2 = torch.linalg.vecdot(others, others)[:, None]
        B2 = torch.linalg.vecdot(chosen, chosen)[:, None]
        phi = (A.log() - B.log()).masked_fill(limit, 0)
        slope = (2 - A2 / A - B2 / B).clamp(1, 2)
        step = torch.where(phi.abs() <= previous / 2, phi / slope, 0.75 * phi)
        t = t - step.masked_fill(limit, 0)
        previous = phi.abs()
        if bool((previous <= tolerance).all()):
            break
    return t, evaluation


def _solve_rows(x: Tensor, k: int, ks: Tensor | None, strict: bool, z: Tensor, room: Tensor) -> int:
    """Write x + ν into z; both (rows, n), in the accumulation dtype, as room (2, rows, n)."""
    finfo = torch.finfo(x.dtype)
    n = x.shape[-1]
    upper, lower, values, indices, chosen = cut(x, k, ks)
    bad = infeasible_rows(x, upper, lower)
    if strict and bool(bad.any()):
        raise _InfeasibleError
    # A limit: nothing is in T, nothing outside, or only infinities are. Then z is infinite, and
    # half the gap, which is added last, makes it so.
    limit = (upper == torch.inf) | (lower == -torch.inf) | bad[:, None]
    half_gap = upper / 2 - lower / 2
    # Beyond this gap σ(z) is exp(z) to rounding on both sides, and shrinking the gap scales both
    # sums of φ alike. So the root stays, and no sum underflows.
    shrunk = half_gap.clamp(max=math.log(n) - math.log(finfo.eps))
    upper, lower = upper.clamp(max=finfo.max), lower.clamp(min=-finfo.max)
    below = torch.sub(lower, x, out=z)
    above = values - upper
    F = torch.add(below, shrunk, out=room[0]).exp_()
    G = (above + shrunk).exp_()
    if ks is None:
        F.scatter_(-1, indices, torch.inf)
    else:
        F.scatter_(-1, indices, torch.where(chosen, torch.inf, F.gather(-1, indices)))
        G.masked_fill_(~chosen, torch.inf)
    t, evaluations = _root(F, G, limit, room[1], finfo.eps**0.5)
    torch.sub(t - half_gap, below, out=z)
    top = above + (t + half_gap)
    if ks is not None:
        top = torch.where(chosen, top, z.gather(-1, indices))
    z.scatter_(-1, indices, top)
    if not strict:
        z.masked_fill_(bad[:, None], torch.nan)
    return evaluations


class _InfeasibleError(Exception):
    """A row has no answer; the caller knows which row it is."""


@torch.library.custom_op(
    "fourviews::lml",
    mutates_args=(),
    schema="(Tensor x, int k, Tensor? ks, bool strict) -> (Tensor, Tensor, Tensor)",
)
def _solve(x, k, ks, strict):
    """y, z and the number of evaluations, along the last axis.

    An operator of its own, so that a compiler takes the iteration, whose length depends on the
    data, as one piece.
    """
    n = x.shape[-1]
    check_count_values(ks, n)
    dtype = accumulation_dtype(x.dtype)
    flat = x.reshape(-1, n)
    counts = None if ks is None else ks.reshape(-1)
    z = torch.empty(flat.shape, dtype=dtype, device=x.device)
    y = torch.empty(flat.shape, dtype=x.dtype, device=x.device)
    block = max(1, min(len(flat), _BLOCK // n if x.device.type == "cpu" else len(flat)))
    room = z.new_empty(2, block, n)
    evaluations = 0
    for i in range(0, len(flat), block):
        part = flat[i : i + block].to(dtype)
        c = None if counts is None else counts[i : i + block]
        try:
            slowest = _solve_rows(part, k, c, strict, z[i : i + block], room[:, : len(part)])
        except _InfeasibleError:
            raise ValueError(explain_infeasible(x, k, ks)) from None
        evaluations = max(evaluations, slowest)
        if dtype == x.dtype:
            torch.sigmoid(z[i : i + block], out=y[i : i + block])
        else:
            y[i : i + block] = torch.sigmoid(z[i : i + block])
    return y.reshape(x.shape), z.reshape(x.shape), torch.tensor(evaluations)


@_solve.register_fake
def _(x, k, ks, strict):
    z = torch.empty(x.shape, dtype=accumulation_dtype(x.dtype), device=x.device)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return y, z, torch.empty((), dtype=torch.int64, device="cpu")


def _finite(z: Tensor) -> Tensor:
    """z with numbers so large that σ is 0 or 1 in place of infinities and NaN."""
    large = torch.finfo(z.dtype).max / 4
    return z.nan_to_num(nan=large, posinf=large, neginf=-large)


def _weights(z: Tensor) -> tuple[Tensor, Tensor]:
    """w = σ(z)σ(-z) and w / Σ w; differentiable, and never 0/0."""
    z = _finite(z)
    log_weights = nn.functional.logsigmoid(z) + nn.functional.logsigmoid(-z)
    return torch.sigmoid(z) * torch.sigmoid(-z), torch.softmax(log_weights, -1)


def _backward(z: Tensor, grad_y: Tensor | None, grad_z: Tensor | None) -> Tensor:
    """Gradient for x from gradients for y and z, in the dtype of z."""
    if grad_z is None and not torch.is_grad_enabled():
        # Once differentiated, the plain quotient will do: where Σ w underflows, w is zero.
        w = torch.neg(z).sigmoid_().mul_(torch.sigmoid(z)).nan_to_num_(nan=0.0)
        product = w * grad_y.to(z.dtype)
        total = w.sum(-1, keepdim=True).clamp_min_(torch.finfo(z.dtype).tiny)
        return product.addcmul_(w, product.sum(-1, keepdim=True) / total, value=-1)
    w, p = _weights(z)
    grad = torch.zeros_like(z)
    if grad_y is not None:
        grad_y = grad_y.to(z.dtype)
        grad = grad + w * (grad_y - (p * grad_y).sum(-1, keepdim=True))
    if grad_z is not None:
        grad = grad + grad_z - p * grad_z.sum(-1, keepdim=True)
    return grad


class _Projection(torch.autograd.Function):
    """(y, z) along the last axis. z is an output, so that derivatives of the backward pass, which
    is a function of z, come back to it: any order is then differentiable."""

    @staticmethod
    def forward(x, k, ks, strict):
        return _solve(x, k, ks, strict)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, z, evaluations = output
        ctx.dtype, ctx.strict = inputs[0].dtype, inputs[3]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(evaluations)
        ctx.save_for_backward(z)
        ctx.save_for_forward(z)

    @staticmethod
    def backward(ctx, grad_y, grad_z, _):
        if grad_y is None and grad_z is None:
            return None, None, None, None
        (z,) = ctx.saved_tensors
        if not ctx.strict:
            # What the caller computed from a row of NaN, and its gradient, may be NaN.
            bad = z.isnan()
            grad_y = None if grad_y is None else grad_y.masked_fill(bad, 0.0)
            grad_z = None if grad_z is None else grad_z.masked_fill(bad, 0.0)
        return _backward(z, grad_y, grad_z).to(ctx.dtype), None, None, None

    @staticmethod
    def jvp(ctx, tangent, *_):
        (z,) = ctx.saved_tensors
        w, p = _weights(z)
        tangent = tangent.to(z.dtype)
        tangent_z = tangent - (p * tangent).sum(-1, keepdim=True)
        # Contiguous as the outputs are: forward mode insists on the same layout.
        return (w * tangent_z).to(ctx.dtype).contiguous(), tangent_z.contiguous(), None

    @staticmethod
    def vmap(info, in_dims, x, k, ks, strict):
        x = x.expand(info.batch_size, *x.shape) if in_dims[0] is None else x.movedim(in_dims[0], 0)
        if ks is not None:
            ks = ks.expand(x.shape[:-1]) if in_dims[2] is None else ks.movedim(in_dims[2], 0)
        return _Projection.apply(x, k, ks, strict), (0, 0, None)


class _Compiled(torch.autograd.Function):
    """The same, with nothing that torch.compile refuses to trace."""

    forward = _Projection.forward

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, z, evaluations = output
        ctx.dtype, ctx.strict = inputs[0].dtype, inputs[3]
        ctx.mark_non_differentiable(evaluations)
        ctx.save_for_backward(z)

    backward = _Projection.backward


def _apply(x: Any, k: Any, dim: int, mask: Any, infeasible: str) -> tuple[Tensor, Tensor, Tensor]:
    """Checks, then (y, z, evaluations) with ``dim`` as last axis."""
    if infeasible not in ("raise", "nan"):
        raise ValueError(f"infeasible is {infeasible!r}; it needs to be 'raise' or 'nan'")
    dim = check_logits(x, dim)
    moved = apply_mask(x, mask).movedim(dim, -1)
    count, counts = check_counts(k, moved.shape[:-1], moved.shape[-1], x.device)
    function = _Compiled if torch.compiler.is_compiling() else _Projection
    return function.apply(moved, count, counts, infeasible == "raise")


def lml(
    x: Float[Tensor, "..."],
    k: int | Int[Tensor, "..."],
    dim: int = -1,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    infeasible: Literal["raise", "nan"] = "raise",
    return_info: bool = False,
) -> Float[Tensor, "..."] | tuple[Float[Tensor, "..."], LMLInfo]:
    r"""Project logits on the vectors in :math:`(0,1)^n` that sum to k.

    .. math:: y(x) = \arg\min\{-x^\top y - H_b(y) : 0 < y < 1,\ \mathbf 1^\top y = k\}
              = \sigma(x + \nu)

    with the binary entropy H_b (Amos, Koltun & Kolter 2019). The text at the head of ``projection/lml.py`` says how ν is
    found. :math:`|\sum y - k|` stays within a small multiple of eps·n, eps that of the dtype; half
    precisions are computed in float32. Derivatives of every order, forward and backward, ``vmap``
    and ``torch.compile`` work.

    Limits. Infinite logits, k = 0 and k = n have no minimiser in the open cube; the limit is
    returned, and its gradient, zero where y is 0 or 1:

    - k = 0 gives 0, k = n gives 1, and so does k = the number of entries above ``-inf``, there;
    - an entry at ``-inf``, or masked, gets 0; an entry at ``inf`` gets 1.

    Parameters
    ----------
    x
        Logits; n entries along ``dim``, any other axes.
    k
        From 0 to n: an integer, or an integer tensor that broadcasts to ``x`` without ``dim``.
    dim
        The axis to project.
    mask
        ``True`` where an entry may be chosen; broadcasts to ``x``. What is masked does not exist:
        it gets 0, even if it is NaN.
    infeasible
        What to do with rows that have no answer: NaN, more than k entries at ``inf``, fewer than
        k entries neither masked nor at ``-inf``. ``"raise"`` an error, or fill them with ``"nan"``
        and gradient zero, and go on with the others.
    return_info
        Return ``(y, info)`` with an :class:`LMLInfo`.

    Returns
    -------
    Float[Tensor, "..."]
        y in shape and dtype of ``x``.

    Raises
    ------
    ValueError
        If x is no floating-point tensor or its axis is empty, if k is no integer or outside of
        [0, n], if shapes do not fit, and for infeasible rows unless ``infeasible="nan"``.
    """
    y, z, evaluations = _apply(x, k, dim, mask, infeasible)
    out = y.movedim(-1, dim)
    if not return_info:
        return out
    with torch.no_grad():
        moved = apply_mask(x, mask).movedim(dim, -1).to(z.dtype)
        nearest = z.abs().argmin(-1, keepdim=True)
        shift = (z.gather(-1, nearest) - moved.gather(-1, nearest))[..., 0]
        residual = y.double().sum(-1) - k
    return out, LMLInfo(shift, residual, int(evaluations))


def lml_logits(
    x: Float[Tensor, "..."],
    k: int | Int[Tensor, "..."],
    dim: int = -1,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    infeasible: Literal["raise", "nan"] = "raise",
) -> Float[Tensor, "..."]:
    r"""Logits of the projection, :math:`z = x + \nu` with :math:`\operatorname{lml}(x) = \sigma(z)`.

    For losses: :math:`\log y = \log\sigma(z)` keeps its digits and its gradient where y rounds to
    0 or 1. Limits and errors are those of :func:`lml`.

    Parameters
    ----------
    x, k, dim, mask, infeasible
        As for :func:`lml`.

    Returns
    -------
    Float[Tensor, "..."]
        z in the shape of ``x``; float32 for half precisions. ``-inf`` and ``inf`` where y is the
        limit 0 or 1.
    """
    return _apply(x, k, dim, mask, infeasible)[1].movedim(-1, dim)


class LML(nn.Module):
    """:func:`lml` as a layer.

    Parameters
    ----------
    k
        Number of labels.
    dim
        The axis to project.

    Raises
    ------
    ValueError
        If k is no integer or negative; at the call, as :func:`lml`.
    """

    def __init__(self, k: int, dim: int = -1) -> None:
        super().__init__()
        if isinstance(k, Tensor):
            raise ValueError(
                "k is a tensor; a layer needs an integer, projection.lml takes one k a row"
            )
        self.k = check_count(k, 2**62)
        self.dim = dim

    def forward(
        self, x: Float[Tensor, "..."], mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "..."]:
        """``lml(x, k, dim, mask=mask)``.

        Parameters
        ----------
        x
            Logits.
        mask
            ``True`` where an entry may be chosen.
        """
        return lml(x, self.k, self.dim, mask=mask)

    def extra_repr(self) -> str:
        return f"k={self.k}, dim={self.dim}"
