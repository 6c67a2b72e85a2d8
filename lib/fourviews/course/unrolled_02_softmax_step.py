"""Checks of the lesson «Softmax attention as a descent step»."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from .checking import LargestResult, close, exercise, number, require, run, tensor
from .draws import between, gaussian


def _no_differences(s: int, d: int, largest: LargestResult) -> None:
    require(
        largest.numbers < s * s * d,
        f"for {s} tokens with {d} features there is a tensor of {largest.numbers} numbers; matrices "
        f"of about {s} times {s} are enough",
    )


def _weights(Y: Tensor) -> Tensor:
    return torch.exp(-0.5 * (Y[:, None] - Y).square().sum(-1))


@exercise("ex-step-shift")
def rise_after_a_shift(generator: Generator, nearest_shift: Callable) -> None:
    """The rise from the shifted tokens, and the length of the shift."""
    s, d = between(generator, 5, 7), between(generator, 2, 3)
    Y, lam, rise = gaussian(generator, s, d), 0.8, 1.5

    def grows(tokens: Tensor) -> Tensor:
        w = _weights(tokens)
        after = w @ tokens / w.sum(1, keepdim=True)
        pairs = w.sum() - _weights(after).sum()
        return pairs + 0.5 * lam * (after.square().sum() - tokens.square().sum())

    c = tensor(run(nearest_shift, Y, lam, rise), (d,), "nearest_shift(Y, lam, rise)")
    got = float(grows(Y + c))
    require(
        got >= rise - 1e-6,
        f"from the tokens Y + c the energy changes by {got:.4g}, not by at least {rise:g}",
    )
    require(
        got <= rise + 1e-6,
        f"from the tokens Y + c the energy rises by {got:.4g}: more than the {rise:g} that were "
        "asked for, so a shorter shift would do",
    )
    # The rise is an affine function of the shift; its gradient is the direction of the shortest one.
    start = grows(Y)
    slope = torch.stack([grows(Y + e) - start for e in torch.eye(d, dtype=Y.dtype)])
    shortest = (rise - start) / slope.norm()
    require(
        c.norm() <= shortest * (1 + 1e-6),
        f"the shift has length {float(c.norm()):.4g}; one of length {float(shortest):.4g} gives the "
        "same rise",
    )


@exercise("ex-step-sink")
def attention_with_a_sink(generator: Generator, sink_attention: Callable) -> None:
    """Weights and step from their definition, for two confinements."""
    s, d = between(generator, 5, 7), between(generator, 2, 3)
    Y = gaussian(generator, s, d)
    w = _weights(Y)
    for lam in (0.6, 5.0):
        pair = run(sink_attention, Y, lam)
        require(
            isinstance(pair, tuple | list) and len(pair) == 2,
            "sink_attention must return two tensors: the tokens after the step and the attention",
        )
        after = tensor(pair[0], (s, d), "the tokens after the step")
        p = tensor(pair[1], (s, s + 1), "the attention")
        close(p.sum(1), torch.ones(s, dtype=p.dtype), "the rows of the attention do not sum to 1")
        total = w.sum(1, keepdim=True) + lam / 2
        close(
            p[:, -1:], lam / 2 / total, "the attention to the sink is not λ/2 over sum_j w_ij + λ/2"
        )
        close(p[:, :-1], w / total, "the attention to the tokens is not w_ij over sum_j w_ij + λ/2")
        close(after, w @ Y / total, "the tokens after the step are not those of the repaired step")
    s, d = 8, 9
    with LargestResult() as largest:
        run(sink_attention, gaussian(generator, s, d), 0.6)
    _no_differences(s, d, largest)


@exercise("ex-step-alibi")
def energy_with_positions(generator: Generator, energy: Callable, step: Callable) -> None:
    """The step from its definition, the energy by its derivative: a multiple of D times the move."""
    s, d = between(generator, 5, 7), between(generator, 2, 3)
    place = torch.arange(s)
    for m in (0.4, 1.3):
        Y = gaussian(generator, s, d)
        scores = Y @ Y.T - 0.5 * Y.square().sum(1) - m * (place[:, None] - place).abs()
        wanted = torch.softmax(scores, dim=1) @ Y
        got = tensor(run(step, Y, m), (s, d), "step(Y, m)")
        close(
            got,
            wanted,
            "step is not attention with the scores y_i·y_j - |y_j|²/2 - m |i - j|",
        )
        w = _weights(Y) * torch.exp(-m * (place[:, None] - place).abs())
        force = w.sum(1, keepdim=True) * (wanted - Y)
        # The derivative by central differences, since an answer need not use torch's gradients.
        h, slope = 1e-4, torch.zeros_like(Y)
        for i in range(s):
            for k in range(d):
                further, back = Y.clone(), Y.clone()
                further[i, k] += h
                back[i, k] -= h
                rise = number(run(energy, further, m), "energy(Y, m)")
                rise -= number(run(energy, back, m), "energy(Y, m)")
                slope[i, k] = rise / (2 * h)
        factor = float((slope * force).sum() / force.square().sum())
        require(
            factor < 0,
            "the gradient of the energy points the wrong way: the step would raise it, or it does "
            "not depend on the tokens",
        )
        close(
            slope,
            factor * force,
            "the step is not the attention step of this energy: for each token, the gradient has "
            "to be one and the same multiple of (sum_j w_ij) times the move",
            rtol=1e-5,
            atol=1e-6 * abs(factor),
        )
    s, d = 8, 9
    Y = gaussian(generator, s, d)
    with LargestResult() as largest:
        run(step, Y, 0.4)
        run(energy, Y, 0.4)
    _no_differences(s, d, largest)
