"""Heads that are taught by a convolution find its pixels (cnv-09)."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

from fourviews.convolution import Imitation, imitate, leak_bound

STEPS, SEEDS = 250, (0, 1, 2)


def teacher(seed: int) -> nn.Conv2d:
    conv = nn.Conv2d(3, 8, 3, padding="same", padding_mode="replicate", bias=False)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        conv.weight.copy_(torch.randn(conv.weight.shape, generator=generator))
    return conv


@functools.cache
def taught() -> list[Imitation]:
    return [imitate(teacher(seed), steps=STEPS, alpha=0.2, seed=seed) for seed in SEEDS]


def found(run: Imitation, step: int, centre: tuple[int, int]) -> int:
    """Pixels of the 3×3 square around ``centre`` on which a head is centred."""
    square = {(centre[0] + i, centre[1] + j) for i in (-1, 0, 1) for j in (-1, 0, 1)}
    return len(square & set(run.pixels(step)))


def heads_find_the_kernel(centre: tuple[int, int] = (0, 0)) -> None:
    """Of 9 pixels, 8 at least in each run and 9 in most; started on 4 to 6."""
    before, after = ([found(run, step, centre) for run in taught()] for step in (0, -1))
    assert max(before) <= 6
    assert min(after) >= 8 and sorted(after)[1] == 9
    for run, count in zip(taught(), after, strict=True):
        assert float(run.losses[0]) > 0.9
        # A pixel that no head looks at costs about its share of the target, 1/9.
        assert float(run.losses[-1]) < (0.02 if count == 9 else 2 / 9)
        # Sharp: the pixel meant gets more than half of the weight, at the start about 1/16.
        assert 1 - leak_bound(float(run.alphas[-1].median())) > 0.5 > 7 * (1 - leak_bound(0.2))


@pytest.mark.claim("cnv-09/teacher", verdict="empirical")
def test_cnv_09_heads_find_the_pixels_of_a_convolution() -> None:
    heads_find_the_kernel()


@pytest.mark.mutation("cnv-09/teacher")
def test_cnv_09_pixels_around_another_place_are_noticed() -> None:
    with pytest.raises(AssertionError):
        heads_find_the_kernel((0, 1))


def test_what_is_recorded() -> None:
    conv = teacher(0)
    run = imitate(conv, heads=4, steps=3, seed=1)
    assert run.losses.shape == (3,)
    assert run.centres.shape == (4, 4, 2) and run.alphas.shape == (4, 4)
    assert torch.equal(run.centres[-1], run.layer.centres.detach())
    assert torch.equal(run.centres, imitate(conv, heads=4, steps=3, seed=1).centres)
    assert not torch.equal(run.centres, imitate(conv, heads=4, steps=3, seed=2).centres)
    images = torch.randn(5, 3, 6, 6)
    assert imitate(conv, steps=2, images=images).losses.shape == (2,)
    assert imitate(conv, steps=0).centres.shape == (1, 9, 2)
    with pytest.raises(ValueError, match="keep the size"):
        imitate(nn.Conv2d(1, 1, 3), steps=1)
