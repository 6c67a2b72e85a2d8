"""The benchmark of the LML layer: rivals compute the same, tables say what was measured."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from fourviews import projection

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "lml.py"


@pytest.fixture
def lml(monkeypatch):
    monkeypatch.syspath_prepend(str(PATH.parent))
    spec = importlib.util.spec_from_file_location("benchmark_lml", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rivals_compute_the_same_layer_and_gradient(lml) -> None:
    generator = torch.Generator().manual_seed(0)
    x = (3 * torch.randn(8, 50, generator=generator, dtype=torch.float64)).requires_grad_()
    grad = torch.randn(8, 50, generator=generator, dtype=torch.float64)
    y = projection.lml(x, lml.K)
    (wanted,) = torch.autograd.grad(y, x, grad)
    for rival in (
        lml.Bracketing.apply,
        lml.unrolled_newton,
        lambda x: lml.unrolled_newton(x, differentiate_all=False),
    ):
        z = rival(x)
        assert torch.allclose(z, y, atol=1e-13)
        assert torch.allclose(torch.autograd.grad(z, x, grad)[0], wanted, atol=1e-12)


def test_tables_have_a_row_a_rival_with_its_residual(lml) -> None:
    rows = list(lml.against_root_finding(60, torch.float32, rounds=1))
    assert "n = 60" in rows[0] and "float32" in rows[0]
    names = ("fourviews", "bracketing, 100 steps", "Newton, unrolled", "Newton, last step")
    for name, row in zip(names, rows[1:], strict=False):
        assert row.strip().startswith(name)
        assert float(row.rsplit("residual", 1)[1]) < 1e-4
    assert "softmax" in rows[-1]
    conic = list(lml.against_a_conic_layer(10, 2, rounds=1))
    installed = importlib.util.find_spec("cvxpylayers") is not None
    assert ("left out" in conic[1]) != installed
    training = list(lml.against_softmax_in_training(quick=True, rounds=2))
    assert all("ratio" in row for row in training[1:]) and len(training) == 3
    from results import tables_of

    found = tables_of([*rows, *conic, *training])
    assert {name: len(table) for name, table in found.items()} == {
        "lml": 5 + 2 * installed,
        "training": 2,
    }
