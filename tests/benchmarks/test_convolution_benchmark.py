"""The convolution's table says what was measured."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path


def test_quick_table():
    # By its path: the folder of the view's tests is a module of the same name.
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "convolution.py"
    spec = importlib.util.spec_from_file_location("benchmark_of_convolution", path)
    convolution = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(convolution)

    text = "\n".join(convolution.tables(quick=True))
    ratios = [float(r) for r in re.findall(r"dense module .* ms, ratio +([\d.]+) +matrix", text)]
    assert len(ratios) == 2 and ratios[1] > max(30, ratios[0])
    assert all(float(apart) < 1e-5 for apart in re.findall(r"matrix given.*apart (\S+)", text))
    a_pixel = set(re.findall(r"(\d+) bytes a pixel", text))
    assert a_pixel == {str(9 * 16 * 4)}  # 9 heads, 16 channels, float32, at each size
    for apart, bound in re.findall(r"s, apart (\S+), bound (\S+)", text):
        assert float(apart) <= float(bound)
