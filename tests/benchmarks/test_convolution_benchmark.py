"""The convolution's table says what was measured."""

from __future__ import annotations

import re


def test_quick_table():
    import attention_from_conv
    from results import tables_of

    lines = list(attention_from_conv.tables(quick=True))
    assert {name: len(rows) for name, rows in tables_of(lines).items()} == {"paths": 6, "pixels": 3}
    text = "\n".join(lines)
    ratios = [float(r) for r in re.findall(r"dense module .* ms, ratio +([\d.]+) +matrix", text)]
    assert len(ratios) == 2  # two sizes; how large they are is for a quiet machine
    assert all(float(apart) < 1e-5 for apart in re.findall(r"matrix given.*apart (\S+)", text))
    a_pixel = set(re.findall(r"(\d+) bytes a pixel", text))
    assert a_pixel == {str(9 * 16 * 4)}  # 9 heads, 16 channels, float32, at each size
    for apart, bound in re.findall(r"s, apart (\S+), bound (\S+)", text):
        assert float(apart) <= float(bound)
