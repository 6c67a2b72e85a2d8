"""Checks of the lesson «Layers that minimise something»."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator

from .checking import LargestResult, close, exercise, require, run, tensor
from .draws import between, gaussian


@exercise("ex-energies-recall")
def recalled(generator: Generator, recall: Callable) -> None:
    """Energy from its definition, the step from the energy's derivative."""
    # Three different sizes, so that no wrong order of axes has the right shape.
    m, n, d = between(generator, 6, 8), between(generator, 4, 5), between(generator, 2, 3)
    X, Y = gaussian(generator, m, d), gaussian(generator, n, d)
    beta = 0.5 + 2 * float(torch.rand((), generator=generator))
    for theta in (1.0, 0.4):
        pair = run(recall, X, Y, beta, theta)
        require(
            isinstance(pair, tuple | list) and len(pair) == 2,
            "recall must return two tensors: the energies and the queries after the step",
        )
        energies = tensor(pair[0], (n,), "the energies")
        after = tensor(pair[1], (n, d), "the queries after the step")
        free = Y.clone().requires_grad_()
        wanted = 0.5 * (free * free).sum(1) - torch.exp(beta * (free @ X.T)).sum(1).log() / beta
        close(energies, wanted.detach(), "the energies are not those of the lesson")
        (slope,) = torch.autograd.grad(wanted.sum(), free)
        close(
            after,
            Y - theta * slope,
            f"the step with theta = {theta:g} is not Y + theta (T(Y) - Y), where T is attention "
            "to the patterns",
        )


@exercise("ex-energies-sweep")
def one_sweep(generator: Generator, sweep: Callable) -> None:
    """The step against the derivative of the energy, and no tensor of s × s × d numbers."""
    s, d = between(generator, 6, 8), between(generator, 2, 4)
    Y, X = gaussian(generator, s, d), gaussian(generator, s, d)
    A = gaussian(generator, s, s).abs() * (gaussian(generator, s, s) > 0)
    A = A + A.T
    for mu in (0.8, 0.0):
        got = tensor(run(sweep, Y, X, A, mu), (s, d), "sweep(Y, X, A, mu)")
        free = Y.clone().requires_grad_()
        z = 0.5 * (free[:, None] - free).square().sum(-1)
        energy = (A * torch.log1p(z)).sum() + 0.5 * mu * (free - X).square().sum()
        (slope,) = torch.autograd.grad(energy, free)
        below = 2 * (A / (1 + z.detach())).sum(1, keepdim=True) + mu
        where = torch.where(below > 0, below, 1)
        close(
            got,
            Y - slope / where,
            f"with mu = {mu:g} the step is not sum_j w_ij y_j + mu/2 x_i over sum_j w_ij + mu/2, "
            "w_ij = a_ij / (1 + half the squared distance)",
        )
    s, d = 8, 9
    with LargestResult() as largest:
        run(sweep, gaussian(generator, s, d), gaussian(generator, s, d), A.new_ones(s, s), 0.5)
    require(
        largest.numbers < s * s * d,
        f"for {s} tokens with {d} features there is a tensor of {largest.numbers} numbers; matrices "
        f"of {s} times {s} are enough",
    )


@exercise("ex-energies-implicit")
def derivative_of_a_minimiser(generator: Generator, hypergradient: Callable) -> None:
    """The gradient against automatic differentiation of the closed form, n < d and n > d."""
    d = between(generator, 4, 6)
    for n in (d - 2, d + 3):
        A, b = gaussian(generator, n, d), gaussian(generator, n)
        w, t = gaussian(generator, d), gaussian(generator, d)
        got = tensor(run(hypergradient, A, b, w, t), (d,), "hypergradient(A, b, w, t)")
        free = w.clone().requires_grad_()
        H = A.T @ A + torch.diag(free.exp())
        loss = 0.5 * (torch.linalg.solve(H, A.T @ b) - t).square().sum()
        (wanted,) = torch.autograd.grad(loss, free)
        close(got, wanted, "hypergradient is not the gradient of the loss", rtol=1e-7)
