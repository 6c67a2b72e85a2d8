"""The benchmark of the compiler runs, and its own rival is right where it can be."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import interpolate

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def benchmark():
    """benchmarks/spline.py under another name: «spline» is the library's."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("spline_benchmark", BENCHMARKS / "spline.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_every_table_has_its_rows(benchmark):
    rows = list(benchmark.tables(True))
    assert sum("NdBSpline" in row for row in rows) == 1
    assert all("nan" not in row for row in rows)
    counted = [row.split() for row in rows if row.strip() and row.split()[0] in ("10", "30")]
    assert len(counted) == 2
    assert all(int(neurons) < int(bound) for _, _, neurons, bound, _ in counted)


def test_truncated_powers_are_the_same_spline_on_few_knots(benchmark):
    f = interpolate.CubicSpline([0.0, 0.4, 1.0, 1.5], [1.0, -1.0, 2.0, 0.0])
    x = np.linspace(0, 1.5, 40)
    assert np.allclose(benchmark.truncated_powers(f, x), f(x), atol=1e-10)
