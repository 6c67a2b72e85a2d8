r"""The law of exactly k labels: sums over all subsets of size k.

The elementary symmetric polynomial :math:`e_k(x) = \sum_{|S|=k}\prod_{i\in S} e^{x_i}` normalises
the law :math:`P(S) \propto \prod_{i\in S} e^{x_i}` on subsets with exactly k elements, which is that
of independent labels given that there are k of them. Its marginals are the gradient of
:math:`\log e_k`. For k = 1 they are the softmax. They differ from the LML layer, which has k
labels in expectation only.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from .inputs import accumulation_dtype, check_count, check_logits

__all__ = ["exactly_k_marginals", "log_elementary"]


def log_elementary(x: Float[Tensor, "*rows n"], k: int) -> Float[Tensor, "*rows k1"]:
    r""":math:`\log e_0, \dots, \log e_k` of :math:`e^{x}`, along the last axis.

    The polynomial :math:`\prod_i (1 + e^{x_i}s)` is multiplied out as a tree, cut off at degree k,
    in logarithms: log n rounds of :math:`O(nk)` work. Differentiable; every coefficient is
    positive, so no logarithm of zero occurs.

    Parameters
    ----------
    x
        Finite logits ``(..., n)``.
    k
        An integer from 0 to n.

    Returns
    -------
    Float[Tensor, "*rows k1"]
        k + 1 columns, column j holding :math:`\log e_j`; float32 for half precisions.

    Raises
    ------
    ValueError
        If x is no tensor of finite floats or its last axis is empty; if k is no integer in [0, n].
    """
    check_logits(x, -1)
    k = check_count(k, x.shape[-1])
    if not bool(x.isfinite().all()):
        raise ValueError("x has infinite entries or NaN; it needs finite logits")
    return _log_elementary(x.to(accumulation_dtype(x.dtype)), k)


def _log_elementary(x: Tensor, k: int) -> Tensor:
    # One polynomial 1 + e^x s an entry: (..., n, 2). An odd one out waits for the end.
    blocks = torch.stack([torch.zeros_like(x), x], -1)[..., : k + 1]
    rest: list[Tensor] = []
    while blocks.shape[-2] > 1:
        if blocks.shape[-2] % 2:
            rest.append(blocks[..., -1, :])
            blocks = blocks[..., :-1, :]
        blocks = _product(blocks[..., ::2, :], blocks[..., 1::2, :], k)
    result = blocks[..., 0, :]
    for other in reversed(rest):
        result = _product(result, other, k)
    return result


def _product(a: Tensor, b: Tensor, k: int) -> Tensor:
    """Logarithms of the coefficients of a product of polynomials, up to degree k."""
    p, q = a.shape[-1], b.shape[-1]
    columns = []
    for degree in range(min(p + q - 2, k) + 1):
        low, high = max(0, degree - q + 1), min(degree, p - 1)
        terms = a[..., low : high + 1] + b[..., degree - high : degree - low + 1].flip(-1)
        columns.append(torch.logsumexp(terms, -1))
    return torch.stack(columns, -1)


def exactly_k_marginals(x: Float[Tensor, "*rows n"], k: int) -> Float[Tensor, "*rows n"]:
    r"""Probability of each label under the law of exactly k labels.

    .. math:: P(i \in S) = \frac{\partial}{\partial x_i}\log e_k(x), \qquad
              P(S) \propto \prod_{i\in S} e^{x_i},\ |S| = k

    The marginals lie in [0, 1] and sum to k. They are the projection
    :math:`\arg\min\{-x^\top y + \Omega(y)\}` whose Ω is the conjugate of :math:`\log e_k`.

    Parameters
    ----------
    x
        Finite logits ``(..., n)``.
    k
        An integer from 0 to n.

    Returns
    -------
    Float[Tensor, "*rows n"]
        In the dtype of ``x``; differentiable.

    Raises
    ------
    ValueError
        As :func:`log_elementary`.
    """
    check_logits(x, -1)
    with torch.enable_grad():
        point = x if x.requires_grad else x.detach().requires_grad_()
        top = log_elementary(point, k)[..., k]
        if k == 0:
            return torch.zeros_like(x)
        (marginals,) = torch.autograd.grad(top.sum(), point, create_graph=x.requires_grad)
    return marginals
