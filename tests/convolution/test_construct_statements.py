"""What the lesson on the construction adds to the claims: a bound for every α, mirrors, numbers."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fourviews.convolution import Axis, leak_bound

# --- cnv-05: ε(α) ≤ 2m e^{-α}, not only nearly -------------------------------------------


@pytest.mark.claim("cnv-05/limit", verdict="corrected")
@settings(max_examples=200)
@given(st.floats(1e-3, 40.0), st.integers(1, 2))
def test_cnv_05_leak_is_below_its_leading_term(alpha: float, dims: int) -> None:
    assert leak_bound(alpha, dims) <= 2 * dims * math.exp(-alpha) * (1 + 1e-12)


@pytest.mark.mutation("cnv-05/limit")
def test_cnv_05_a_smaller_constant_is_noticed() -> None:
    assert leak_bound(12.0) > 0.99 * 4 * math.exp(-12.0)


# --- cnv-08: the nearest pixel wins --------------------------------------------------------


@pytest.mark.claim("cnv-08/padding", verdict="conditional")
@pytest.mark.parametrize("alpha", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("outside", [1, 2, 3])
def test_cnv_08_lead_of_the_nearest_pixel(alpha, outside) -> None:
    """g places outside the lead is α(2g + 1), and the leak no larger than inside."""
    axis = Axis(2 * outside + 1, 1, 1, outside, outside, "replicate")
    offsets = torch.tensor([float(axis.offsets[0])], dtype=torch.float64)
    scores = -alpha * axis.squared_distances(offsets, 60)[0, 0]
    best, second = scores.sort(descending=True).values[:2]
    assert int(scores.argmax()) == 0
    assert float(best - second) == pytest.approx(alpha * (2 * outside + 1), rel=1e-12)
    others = float(torch.softmax(scores, 0)[1:].sum())
    assert 0 < others <= leak_bound(alpha, 1)


def possible(offset: int, n: int, border: str) -> bool:
    """Whether scores s(δ) exist that single the meant pixel out from every query: no cycles."""
    above: dict[int, set[int]] = {}
    for q in range(n):
        t = q + offset
        if border == "circular":
            t %= n
        elif border == "reflect":
            t = abs(t)
            t = t if t < n else 2 * (n - 1) - t
        else:
            t = min(max(t, 0), n - 1)
        above.setdefault(t - q, set()).update(set(range(-q, n - q)) - {t - q})

    def reaches(start: int, goal: int) -> bool:
        seen, todo = set(), [start]
        while todo:
            for child in above.get(todo.pop(), ()):
                if child == goal:
                    return True
                if child not in seen:
                    seen.add(child)
                    todo.append(child)
        return False

    return not any(reaches(delta, delta) for delta in above)


@pytest.mark.claim("cnv-08/padding", verdict="conditional")
@pytest.mark.parametrize("n", [4, 5, 8])
def test_cnv_08_which_borders_a_relative_score_can_make(n) -> None:
    """On pixels alone: replicate and the circle always; reflection by one place, never by two."""
    for offset in range(-n + 1, n):
        assert possible(offset, n, "replicate")
        assert possible(offset, n, "circular")
    assert all(possible(offset, n, "reflect") for offset in (-1, 0, 1))
    assert not possible(-2, n, "reflect") and not possible(2, n, "reflect")


@pytest.mark.mutation("cnv-08/padding")
def test_cnv_08_three_pixels_can_be_mirrored() -> None:
    """n ≥ 4 is needed: with three pixels the contradiction is gone."""
    assert possible(-2, 3, "reflect")


# --- cnv-03: an encoding of dimension two in the plane -----------------------------------------


def lead(grid: tuple[int, int], factor: int) -> float:
    """Least lead of the meant pixel over all pairs, pixels numbered with this factor a row."""
    at = torch.tensor(list(itertools.product(*map(range, grid))), dtype=torch.float64)
    number = at @ torch.tensor([float(factor), 1.0], dtype=torch.float64)
    nu = number[None] - number[:, None]
    found = math.inf
    for q, k in itertools.product(range(len(at)), repeat=2):
        scores = -(nu[q] ** 2) + 2 * nu[q, k] * nu[q]
        others = torch.cat([scores[:k], scores[k + 1 :]])
        found = min(found, float(scores[k] - others.max()))
    return found


@pytest.mark.claim("cnv-03/encoding", verdict="verified")
@pytest.mark.parametrize("grid", [(2, 2), (3, 5), (5, 3), (1, 6)])
def test_cnv_03_two_numbers_do_on_a_grid(grid) -> None:
    assert lead(grid, grid[1]) == 1.0


@pytest.mark.mutation("cnv-03/encoding")
def test_cnv_03_numbers_that_collide_are_noticed() -> None:
    assert lead((3, 5), 3) == 0.0


# --- cnv-07: one-hot heads need two numbers, heads together do with one -------------------------


def numbered_heads(x: float, kernel: torch.Tensor, n: int, order: torch.Tensor) -> tuple:
    """What heads with scores r log(jx) apply to each key: error at the kernel's, largest of others.

    ``order`` names the keys of the kernel's entries; r is 1 to K there, and 0 at all others.
    """
    K = len(kernel)
    j = torch.arange(1, K + 1, dtype=torch.float64)
    number = torch.zeros(n, dtype=torch.float64)
    number[order] = j
    weights = torch.softmax((x * j).log()[:, None] * number, -1)
    # As in the proof: W^j = Z_j Σ_i m_{ji} x^{-i} W_i.
    total = n - K + (x * j[:, None]).pow(j).sum(-1)
    inverse = torch.linalg.inv(j[None].pow(j[:, None]))
    W = total[:, None] * (inverse @ (x ** -j[:, None] * kernel))
    applied = weights.T @ W
    others = torch.ones(n, dtype=torch.bool)
    others[order] = False
    return float((applied[order] - kernel).abs().max()), float(applied[others].abs().max())


@pytest.mark.claim("cnv-07/encoding", verdict="verified")
@pytest.mark.parametrize(("K", "n"), [(1, 2), (2, 5), (3, 10), (4, 30)])
def test_cnv_07_one_number_does_for_heads_together(K, n) -> None:
    generator = torch.Generator().manual_seed(K)
    kernel = torch.randn(K, 6, generator=generator, dtype=torch.float64)
    order = torch.randperm(n, generator=generator)[:K]
    found = [numbered_heads(x, kernel, n, order) for x in (1e2, 1e3)]
    assert max(exact for exact, _ in found) < 1e-4
    # Of order 1/x.
    assert found[0][1] / found[1][1] == pytest.approx(10, rel=0.1)


def test_cnv_07_with_one_number_a_head_alone_singles_out_two() -> None:
    number = torch.tensor([3.0, -1.0, 0.5, 2.0, 0.0], dtype=torch.float64)
    factors = torch.linspace(-50, 50, 1001, dtype=torch.float64)
    best = torch.softmax(factors[:, None] * number, -1)
    winners = {int(row.argmax()) for row in best if float(row.max()) > 0.6}
    assert winners == {0, 1}
