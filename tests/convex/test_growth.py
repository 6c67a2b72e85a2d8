"""Cost by counting: operations of an iteration and the largest tensor, as sizes double."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from fourviews import convex

BASE = {"n": 40, "d": 6, "gates": 10, "c": 2}


def problem(n, d, gates, c, activation="gated_relu", loss="squared"):
    g = torch.Generator().manual_seed(0)
    X = torch.randn(n, d, generator=g, dtype=torch.float64)
    Y = torch.randn(n, c, generator=g, dtype=torch.float64)
    if loss == "cross_entropy":
        Y = Y.argmax(-1)
    options = {"n_gates": gates} if activation == "gated_relu" else {}
    if loss == "cross_entropy":
        options["classes"] = c
    made = convex.MLP(X, Y, beta=1.0, activation=activation, loss=loss, **options)
    assert activation == "linear" or len(made.masks) == gates
    return made.with_beta(0.1 * convex.largest_beta(made))


class LargestTensor(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.entries = max(self.entries, tensor.numel())
        return out


def operations_of_an_iteration(method, made, steps=(9, 8)):
    """Multiplications and additions in matrix products, certificates left out by the difference
    of two runs that check equally often."""
    counts = []
    for most in steps:
        with FlopCounterMode(display=False) as counter:
            convex.solve(made, method=method, tol=0, max_iterations=most, progress=False)
        counts.append(counter.get_total_flops())
    return counts[0] - counts[1]


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
@pytest.mark.parametrize("size", ["n", "d", "gates", "c"])
def test_a_fista_iteration_costs_n_d_P_c(size, loss):
    before = operations_of_an_iteration("fista", problem(**BASE, loss=loss))
    after = operations_of_an_iteration(
        "fista", problem(**{**BASE, size: 2 * BASE[size]}, loss=loss)
    )
    assert 0 < before and 1.9 <= after / before <= 2.1, (before, after)


def test_a_splitting_iteration_costs_n_d_P_c_and_the_square_of_the_rows():
    """One forward, one adjoint map and two products with an N×N matrix, for c columns."""

    def formula(n, d, gates, c):
        return 2 * (2 * n * d * gates * c) + 2 * (2 * n * n * c)

    for size in (None, *BASE):
        sizes = dict(BASE) if size is None else {**BASE, size: 2 * BASE[size]}
        found = operations_of_an_iteration("splitting", problem(**sizes))
        assert 0.5 * formula(**sizes) <= found <= 2.5 * formula(**sizes), (size, found)


@pytest.mark.parametrize("method", ["fista", "splitting", "frank_wolfe", "factored", "newton"])
def test_no_tensor_is_as_large_as_the_design_matrix(method):
    """[D_1 X … D_P X] holds n·d·P numbers; the tensors made hold at most those of the formulas:
    n·d (the data), n·P·c (one product), P·d·c (coefficients), N² and P² (Gram matrix, Hessian)."""
    for sizes in (
        {"n": 60, "d": 40, "gates": 30, "c": 1},
        {"n": 120, "d": 40, "gates": 30, "c": 1},
        {"n": 60, "d": 80, "gates": 30, "c": 1},
        {"n": 60, "d": 40, "gates": 60, "c": 1},
    ):
        made = problem(**sizes)
        n, d, gates, c = (sizes[name] for name in ("n", "d", "gates", "c"))
        with LargestTensor() as seen:
            convex.solve(made, method=method, tol=1e-3, max_iterations=60, progress=False)
        most = max(n * d, n * gates * c, gates * d * c, n * n, gates * gates)
        assert seen.entries <= most < n * d * gates, (method, sizes, seen.entries, most)
