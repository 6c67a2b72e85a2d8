"""The benchmarks' own parts: fixed problems, and tables that say what was measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def benchmarks_on_the_path():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield
    sys.path.remove(str(ROOT / "benchmarks"))


def test_half_of_the_relu_problems_have_several_outputs():
    from problems import RELU, RELU_LARGER

    several = [case for case in RELU if case.c > 1]
    assert 2 * len(several) >= len(RELU)
    assert {case.loss for case in RELU} == {"squared", "cross_entropy"}
    assert any(case.s for case in RELU)
    assert len(set(RELU + RELU_LARGER)) == len(RELU + RELU_LARGER)


def test_problems_depend_on_their_seed_alone():
    from problems import RELU, build

    torch.manual_seed(1)
    one = build(RELU[0], "relu")
    torch.manual_seed(2)
    other = build(RELU[0], "relu")
    assert torch.equal(one.X, other.X) and torch.equal(one.loss.target, other.loss.target)
    assert one.beta == other.beta


def test_a_line_of_the_relu_table_is_what_the_solver_says():
    import relu
    from problems import RELU

    text, gap = relu.line(RELU[5])
    assert gap <= relu.ACCURATE
    assert f"{gap:.1e}" in text and "fully corrective" in text


def test_the_machine_is_described():
    from machine import describe

    date, versions = describe()
    assert "cores" in date and f"torch {torch.__version__.split('+')[0]}" in versions


def test_quick_growth_has_a_row_a_size_and_a_plot(tmp_path):
    import growth

    rows = growth.tables(True, tmp_path)
    assert sum(row.strip().startswith(("100 ", "200 ", "400 ")) for row in rows) == 3
    assert (tmp_path / "time_against_rows.png").stat().st_size > 5000
