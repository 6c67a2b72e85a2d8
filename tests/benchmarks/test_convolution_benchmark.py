"""The convolution's table says what was measured."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def benchmarks_on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield
    sys.modules.pop("convolution", None)


def test_quick_table():
    import convolution

    text = "\n".join(convolution.tables(quick=True))
    ratios = [float(r) for r in re.findall(r"dense module .* ms, ratio +([\d.]+) +matrix", text)]
    assert len(ratios) == 2 and ratios[1] > max(30, ratios[0])
    assert all(float(apart) < 1e-5 for apart in re.findall(r"matrix given.*apart (\S+)", text))
    a_pixel = set(re.findall(r"(\d+) bytes a pixel", text))
    assert a_pixel == {str(9 * 16 * 4)}  # 9 heads, 16 channels, float32, at each size
    for apart, bound in re.findall(r"s, apart (\S+), bound (\S+)", text):
        assert float(apart) <= float(bound)
