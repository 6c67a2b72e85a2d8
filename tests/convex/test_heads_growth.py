"""Work and memory of the maps grow as their formulas say; counted, not timed."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from fourviews import convex

from .heads import build


class Largest(TorchDispatchMode):
    """Entries of the largest tensor that any operation returned."""

    def __init__(self):
        super().__init__()
        self.entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for out in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(out, torch.Tensor):
                # A view or an expansion takes no memory of its own.
                self.entries = max(self.entries, out.untyped_storage().nbytes() // out.itemsize)
        return result


def cost(problem):
    Z = torch.ones(problem.coefficient_shape, dtype=torch.float64)
    R = torch.ones(problem.loss.target.shape, dtype=torch.float64)
    problem._derived.clear()
    with FlopCounterMode(display=False) as flops, Largest() as largest:
        problem.forward(Z)
        problem.adjoint(R)
    return flops.get_total_flops(), largest.entries


@pytest.mark.parametrize("activation", ["linear", "gated_relu"])
@pytest.mark.parametrize("pool", [None, "mean"])
def test_attention_never_forms_samples_times_coefficients(activation, pool):
    n, s, d, c = 40, 4, 8, 6
    problem = build("attention", activation, pool=pool, n=n, s=s, d=d, c=c, n_gates=3, beta=1.0)
    _, largest = cost(problem)
    gates = 1 if activation == "linear" else 3
    assert largest <= max(
        gates * d**3 * c, 2 * gates * n * s * d * d, n * s * d * c, n * gates * d**3
    )
    assert largest < gates * n * d**3 * c / 4


@pytest.mark.parametrize(
    "name, pool, formula",
    [
        # The products of the Gram matrices and of the map itself; factor 2: multiply and add.
        ("attention", None, lambda n, s, d, c: 2 * n * (s * d**2 + 2 * d**3 * c + 2 * s * d * c)),
        ("attention", "mean", lambda n, s, d, c: 2 * n * (s * d**2 + 2 * d**3 * c + d * d * c)),
        ("mixer", None, lambda n, s, d, c: 4 * n * s**2 * d * c),
        ("mixer", "mean", lambda n, s, d, c: 4 * n * s * d * c),
    ],
)
def test_operations_are_those_of_the_formula(name, pool, formula):
    base = dict(n=6, s=4, d=4, c=4)
    for key in ("n", "s", "d", "c"):
        for factor in (1, 2, 4):
            sizes = base | {key: factor * base[key]}
            flops, _ = cost(build(name, pool=pool, beta=1.0, **sizes))
            assert 0.7 * formula(**sizes) <= flops <= 1.05 * formula(**sizes)


@pytest.mark.parametrize("name", ["fno", "block_fno"])
@pytest.mark.parametrize("activation", ["linear", "gated_relu"])
def test_the_circulant_matrix_is_never_formed(name, activation):
    n, d, c = 4, 4, 2
    entries = []
    for s in (64, 256):
        problem = build(name, activation, n=n, s=s, d=d, c=c, n_gates=2, beta=1.0, grid=(8, s // 8))
        entries.append(cost(problem)[1])
        assert entries[-1] <= 4 * n * s * d * c < n * s * s * d
    assert entries[1] <= 4.1 * entries[0]  # linear in s, where circ(X) grows with s²


def test_factored_attention_never_allocates_its_coefficients(monkeypatch):
    """No tensor of d³c entries, matrix-free certificate included; time linear in samples."""
    module = importlib.import_module("fourviews.convex.solvers.factored")
    monkeypatch.setattr(module, "_LARGEST_BLOCKS", 0)
    n, s, d, c = 12, 16, 12, 12
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, s, d, generator=generator, dtype=torch.float64) / s**0.5
    Y = torch.randn(n, c, generator=generator, dtype=torch.float64)
    unit = convex.SelfAttention(X, Y, beta=1.0, pool="mean")
    problem = unit.with_beta(0.5 * convex.largest_beta(unit))
    problem._derived.clear()
    monkeypatch.setattr(module, "_STARTS", 2)
    with Largest() as largest:
        solution = convex.factored(problem, tol=1e-2, progress=False)
    assert solution.converged
    assert largest.entries < d**3 * c
    monkeypatch.undo()
    exact = convex.solve(problem, tol=1e-6, progress=False)
    assert solution.lower_bound <= exact.objective * (1 + 1e-9)
    assert solution.objective == pytest.approx(exact.objective, rel=2e-2)
