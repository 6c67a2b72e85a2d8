"""The benchmark of the compiler runs, and its own rival is right where it can be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import interpolate

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import spline_compiler

    return spline_compiler


def test_every_table_has_its_rows(benchmark):
    from results import tables_of

    rows = list(benchmark.tables(True))
    found = {name: len(table) for name, table in tables_of(rows).items()}
    assert found == {"splines": 5, "digits": 3, "neurons": 2}
    assert sum("NdBSpline" in row for row in rows) == 1
    assert all("nan" not in row for row in rows)
    counted = [row.split() for row in rows if row.strip() and row.split()[0] in ("10", "30")]
    assert len(counted) == 2
    assert all(int(neurons) < int(bound) for _, _, neurons, bound, _ in counted)


def test_truncated_powers_are_the_same_spline_on_few_knots(benchmark):
    f = interpolate.CubicSpline([0.0, 0.4, 1.0, 1.5], [1.0, -1.0, 2.0, 0.0])
    x = np.linspace(0, 1.5, 40)
    assert np.allclose(benchmark.truncated_powers(f, x), f(x), atol=1e-10)
