"""One head on one draw of the data, and the table of all heads, inputs and seeds."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from fourviews.display import progress as progress_bar

from ..heads import FNO, MLP, BlockFNO, Mixer, SelfAttention
from ..path import largest_beta
from ..problem import Problem
from ..solution import Solution
from ..solvers import solve
from .config import HEADS, HeadsConfig
from .tokens import InputForm, TokenSet, mosaics, token_set

__all__ = ["HeadFit", "fit_head", "heads_experiment", "parameter_count"]

# Mosaics of the test images are the same for all seeds.
_TEST_MOSAICS = 2**31 - 1


@dataclass(frozen=True)
class HeadFit:
    """A head that was fitted, and its line of the table.

    Attributes
    ----------
    row
        See :func:`heads_experiment`.
    solution
        At the chosen beta.
    form
        How tokens become its input.
    path
        All tries, beta falling.
    holdout_scores
        Top-1 of each try on the hold-out.
    """

    row: dict[str, Any]
    solution: Solution
    form: InputForm
    path: list[Solution]
    holdout_scores: list[float]


def parameter_count(head: str, *, s: int, d: int, c: int, units: int, blocks: int = 1) -> int:
    r"""Weights of both layers with that many units, as the heads' networks hold them.

    ``units`` times :math:`d + c` for the MLP, :math:`d^2 + dc` for attention, :math:`s^2 + dc` for
    the mixer, :math:`sd + c` for the Fourier head and :math:`(sd + c)/B` for the block-diagonal
    one, whose units are counted over all blocks; :math:`dc` for the linear head, however many.

    Parameters
    ----------
    head : str
        Name of the head.
    s, d, c, units, blocks : int
        Numbers of tokens, features, classes, units and blocks.

    Raises
    ------
    ValueError
        For an unknown head.
    """
    if head not in HEADS:
        raise ValueError(f"head is {head!r}; it may be {', '.join(HEADS)}")
    if head == "linear":
        return d * c
    return (
        units
        * {
            "mlp": d + c,
            "attention": d * d + d * c,
            "mixer": s * s + d * c,
            "fno": s * d + c,
            "block_fno": (s * d + c) // blocks,
        }[head]
    )


def heads_experiment(
    config: HeadsConfig | Mapping[str, Any] | str | Path,
    tokens: TokenSet | None = None,
    *,
    progress: bool | None = None,
) -> list[dict[str, Any]]:
    """Fit every head in every form of the input and for every seed; one row each.

    For each row the path of beta is fitted to the training samples, the hold-out chooses among its
    solutions (top-1, then the larger beta), and the test samples are read once, with that one.

    Parameters
    ----------
    config
        A configuration, its fields, a YAML file or YAML text.
    tokens
        What :func:`token_set` gives for the configuration, or others.
    progress
        Show a bar.

    Returns
    -------
    list of dict
        ``task, data, backbone, head, activation, input, seed``; sizes ``train, holdout, test`` (in
        samples of the task), ``tokens, features, classes``; ``loss, gates`` (different patterns;
        0 for linear), ``beta, share``; ``edge``, whether the smallest share was chosen;
        ``holdout_top1, top1, top5``; ``units, parameters`` of the network found, ``gap``,
        ``converged`` and ``seconds`` for the whole path.

    Raises
    ------
    ValueError
        As the configuration, the tokens and the problems.
    """
    if isinstance(config, Mapping):
        config = HeadsConfig.of(config)
    elif not isinstance(config, HeadsConfig):
        config = HeadsConfig.from_yaml(config)
    tokens = token_set(config) if tokens is None else tokens
    runs = [
        (seed, form, head, activation)
        for seed in config.seeds
        for form in config.inputs
        for head, activation in config.pairs
    ]
    bar = progress_bar(runs, label="heads", total=len(runs), enabled=progress)
    return [
        fit_head(config, tokens, head, activation, form=form, seed=seed).row
        for seed, form, head, activation in bar
    ]


def fit_head(
    config: HeadsConfig,
    tokens: TokenSet,
    head: str,
    activation: str,
    *,
    form: str,
    seed: int,
) -> HeadFit:
    """One line of :func:`heads_experiment`, with the solutions behind it.

    Parameters
    ----------
    config : HeadsConfig
        Sizes and settings.
    tokens : TokenSet
        The data.
    head, activation, form : str
        Which head, activation and form of the input.
    seed : int
        Of the draw.

    Raises
    ------
    ValueError
        For a head or form that the configuration does not have, or tokens that do not fit it.
    """
    if (head, activation) not in config.pairs or form not in config.inputs:
        raise ValueError(
            f"head {head!r} with activation {activation!r} and form {form!r} is not in the"
            f" configuration: it has {config.pairs} and {config.inputs}"
        )
    if tokens.grid != config.grid or tokens.classes != config.classes:
        raise ValueError(
            f"tokens have the grid {tokens.grid} and {tokens.classes} classes; the configuration"
            f" has {config.grid} and {config.classes}"
        )
    started = time.perf_counter()
    fit, held = tokens.draw(config, seed)
    reduced = InputForm.fit(tokens.train[fit], config, form)
    dtype = getattr(torch, config.dtype)

    def samples(some: Tensor, label: Tensor, draw: int) -> tuple[Tensor, Tensor]:
        if config.task == "mosaic":
            some, label = mosaics(some, label, config.grid, draw)
        return reduced(some, dtype).to(config.device), label

    X, Y = samples(tokens.train[fit], tokens.train_label[fit], seed)
    new, wanted = samples(tokens.train[held], tokens.train_label[held], seed)
    problem = _problem(config, head, activation, X, Y, tokens.classes, seed)
    path = _path(config, head, problem)
    scores = [_accuracy(solution.predict(new), wanted)[0] for solution in path]
    best = max(range(len(path)), key=lambda k: (scores[k], -k))
    solution = path[best]
    test, truth = samples(tokens.test, tokens.test_label, _TEST_MOSAICS)
    top1, top5 = _accuracy(solution.predict(test), truth)
    row = {
        "task": config.task,
        "data": tokens.data,
        "backbone": tokens.backbone,
        "head": head,
        "activation": activation,
        "input": form,
        "seed": seed,
        "train": len(X),
        "holdout": len(new),
        "test": len(test),
        "tokens": X.shape[1],
        "features": X.shape[2],
        "classes": tokens.classes,
        "loss": config.loss,
        "gates": 0 if problem.gates is None else len(problem.masks),
        "beta": solution.problem.beta,
        "share": sorted(config.shares, reverse=True)[best],
        "edge": best == len(path) - 1,
        "holdout_top1": scores[best],
        "top1": top1,
        "top5": top5,
        "units": solution.rank,
        "parameters": solution.rank * sum(problem.block_shape),
        "gap": solution.relative_gap,
        "converged": solution.converged,
        "seconds": time.perf_counter() - started,
    }
    return HeadFit(row, solution, reduced, path, scores)


def _problem(
    config: HeadsConfig,
    head: str,
    activation: str,
    X: Tensor,
    Y: Tensor,
    classes: int,
    seed: int,
) -> Problem:
    kind = {
        "linear": MLP,
        "mlp": MLP,
        "attention": SelfAttention,
        "mixer": Mixer,
        "fno": FNO,
        "block_fno": BlockFNO,
    }[head]
    options: dict[str, Any] = {}
    if head in ("fno", "block_fno"):
        options["grid"] = config.grid
    if head == "block_fno":
        options["blocks"] = config.blocks
    if activation == "gated_relu":
        options["n_gates"] = config.attention_gates if head == "attention" else config.gates
    return kind(
        X,
        Y,
        beta=1.0,
        activation=activation,
        loss=config.loss,
        pool="mean" if config.task == "pooled" else None,
        classes=classes,
        seed=seed,
        **options,
    )


def _path(config: HeadsConfig, head: str, problem: Problem) -> list[Solution]:
    """Solutions for the grid of beta, each started from the one before where the solver can."""
    method = config.method
    if method == "auto" and head == "block_fno":
        method = "fista"
    options: dict[str, Any] = {"method": method, "time_limit": config.time_limit}
    if config.shard is not None:
        options["shard"] = config.shard
    top = largest_beta(problem, shard=config.shard)
    if not top > 0:
        raise ValueError("the outputs do not depend on the inputs: every beta leaves them at zero")
    path: list[Solution] = []
    for share in sorted(config.shares, reverse=True):
        start = {} if method == "factored" or not path else {"start": path[-1].coefficients}
        path.append(
            solve(
                problem.with_beta(share * top), tol=config.tol, progress=False, **start, **options
            )
        )
    return path


def _accuracy(scores: Float[Tensor, "*rows c"], label: Tensor) -> tuple[float, float]:
    """Shares of labels that are first and among the five first."""
    best = scores.topk(min(5, scores.shape[-1]), dim=-1).indices
    hit = best == label.to(best.device).unsqueeze(-1)
    return float(hit[..., 0].double().mean()), float(hit.any(-1).double().mean())
