"""Quick starts: the cell that readers copy runs by itself, in seconds, on other data too."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.interpolate import BSpline, PPoly

import lesson_source
from fourviews import convex

ROOT = Path(__file__).resolve().parents[2]
QUICK_STARTS = sorted((ROOT / "lessons_src").glob("quickstart_*.md"))
YOURS, SAME = "# Yours: ", "# From here on it is the same "


def parts(name: str) -> tuple[str, str, str]:
    """Imports, the reader's own lines, and the rest of the first cell."""
    (path,) = (path for path in QUICK_STARTS if name in path.stem)
    source = lesson_source.read(path).cells()[0].source
    imports, own = source.split(YOURS)
    own, rest = own.split(SAME)
    return imports, f"{YOURS}{own}", f"{SAME}{rest}"


def run(name: str, **given) -> dict:
    """All names after the cell, with what is `given` in place of the reader's lines."""
    imports, own, rest = parts(name)
    names = dict(given)
    middle = "" if given else own
    torch.manual_seed(1)  # what ran before does not matter
    started = time.process_time()
    exec(compile("\n".join([imports, middle, rest]), name, "exec"), names)
    assert time.process_time() - started < 20
    return names


def test_there_are_four_and_each_has_one_cell_to_copy():
    assert len(QUICK_STARTS) == 4
    for path in QUICK_STARTS:
        cells = lesson_source.read(path).cells()
        assert "hide-input" not in cells[0].tags
        assert all("hide-input" in cell.tags for cell in cells[1:])
        assert cells[0].source.count(YOURS) == cells[0].source.count(SAME) == 1


@pytest.mark.parametrize("own", [False, True])
def test_the_head_is_certified(own):
    generator = torch.Generator().manual_seed(2)
    data = dict(
        features=torch.randn(40, 5, 4, generator=generator, dtype=torch.float64),
        labels=torch.arange(40) % 2,
    )
    names = run("certified_head", **(data if own else {}))
    solution, problem = names["solution"], names["problem"]
    assert solution.converged and solution.relative_gap <= 1e-4
    assert solution.lower_bound <= solution.objective
    head = names["head"]
    assert problem.network_objective(head) == pytest.approx(solution.objective, rel=1e-6)
    # An untrained head is above the bound, too.
    other = convex.SelfAttentionNetwork(
        torch.randn_like(head.first),
        torch.randn_like(head.second),
        activation="linear",
        pool="mean",
    )
    assert problem.network_objective(other) > solution.lower_bound
    if not own:
        assert names["right"].double().mean() > 0.8


@pytest.mark.parametrize("own", [False, True])
def test_the_encoder_is_the_spline(own):
    knots = np.array([0, 0, 0, 0, 1, 2.5, 3, 3, 3, 3])
    curve = BSpline(knots, np.array([1.0, -2, 0.5, 3, -1, 0]), 3)
    names = run("spline_encoder", **({"curve": PPoly.from_spline(curve)} if own else {}))
    assert names["difference"] < 1e-12
    inside = torch.rand(50, dtype=torch.float64) * (names["high"] - names["low"]) + names["low"]
    out = names["encoder"](inside[:, None, None]).flatten().numpy()
    assert np.allclose(out, names["curve"](inside.numpy()), atol=1e-11)


@pytest.mark.parametrize("own", [False, True])
def test_attention_is_the_convolution(own):
    conv = torch.nn.Conv2d(2, 6, (3, 2), groups=2, padding=1, padding_mode="reflect").double()
    names = run("conv_attention", **({"conv": conv} if own else {}))
    assert names["off"] < (1e-12 if own else 1e-5)
    errors, bounds = names["errors"], names["bounds"]
    assert all(error <= bound * (1 + 1e-4) for error, bound in zip(errors, bounds, strict=True))
    assert bounds == sorted(bounds, reverse=True)


@pytest.mark.parametrize("own", [False, True])
def test_the_head_for_the_k_best_learns(own):
    generator = torch.Generator().manual_seed(3)
    features = torch.randn(200, 7, generator=generator)
    scores = features @ torch.randn(7, 5, generator=generator)
    data = dict(features=features, known=scores > scores.topk(3, dim=1).values[:, 2:])
    names = run("topk_head", **(data if own else {}))
    k, weights = names["k"], names["weights"]
    assert names["losses"][-1] < 0.5 * names["losses"][0]
    assert names["recall"] > 0.9
    assert bool(((weights >= 0) & (weights <= 1)).all())
    assert torch.allclose(weights.sum(1), torch.full((len(weights),), float(k)), atol=1e-4)
    assert bool((names["known"].sum(1) >= 1).all())
