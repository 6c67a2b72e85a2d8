"""One head on one draw of the data, and the table of all heads, inputs and seeds."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fourviews.data.features.backbone import available
from fourviews.display import progress as progress_bar

from ..distributed import Group
from ..heads import FNO, MLP, BlockFNO, Mixer, SelfAttention
from ..path import largest_beta
from ..problem import Problem
from ..shards import room
from ..solution import Neurons, Solution
from ..solvers import solve
from .config import HEADS, HeadsConfig
from .tokens import InputForm, TokenSet, samples, token_set

__all__ = ["HeadFit", "fit_head", "fit_heads", "heads_experiment", "parameter_count"]

# Mosaics of the test images are the same for all seeds.
_TEST_MOSAICS = 2**31 - 1
# Samples that are predicted at a time.
_PIECE = 256


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
    holdout_scores, train_scores
        Top-1 of each try on the hold-out, and on the samples it was fitted to.
    """

    row: dict[str, Any]
    solution: Solution
    form: InputForm
    path: list[Solution]
    holdout_scores: list[float]
    train_scores: list[float]


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

    Samples are made from the tokens once for each seed and form; where they are many they are in
    temporary files, and with ``shard`` the solver reads them a part at a time.  Memory then does not
    grow with the number of images, but for their labels.

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
    OSError
        If the disk with the temporary files is too small.
    ValueError
        As the configuration, the tokens and the problems; or if the machine has no such device.
    """
    if isinstance(config, Mapping):
        config = HeadsConfig.of(config)
    elif not isinstance(config, HeadsConfig):
        config = HeadsConfig.from_yaml(config)
    tokens = token_set(config) if tokens is None else tokens
    runs = [(seed, form) for seed in config.seeds for form in config.inputs]
    rows: list[dict[str, Any]] = []
    with progress_bar(total=len(runs) * len(config.pairs), label="heads", enabled=progress) as bar:
        for seed, form in runs:
            # Nothing of one draw is left when the next is made: each may fill a file.
            for row in (fit.row for _, fit in _fits(config, tokens, config.pairs, form, seed)):
                rows.append(row)
                bar.update()
    return rows


def fit_heads(
    config: HeadsConfig, tokens: TokenSet, *, form: str, seed: int
) -> dict[tuple[str, str], HeadFit]:
    """All heads of a configuration on one draw: the lines of :func:`heads_experiment` with one form
    and one seed, with the solutions behind them.

    Parameters
    ----------
    config : HeadsConfig
        Sizes and settings.
    tokens : TokenSet
        The data.
    form : str
        Which form of the input.
    seed : int
        Of the draw.

    Returns
    -------
    dict
        From head and activation to what was fitted.

    Raises
    ------
    OSError, ValueError
        As :func:`heads_experiment`; also for a form that the configuration does not have.
    """
    return dict(_fits(config, tokens, config.pairs, form, seed))


def fit_head(
    config: HeadsConfig,
    tokens: TokenSet,
    head: str,
    activation: str,
    *,
    form: str,
    seed: int,
) -> HeadFit:
    """One of :func:`fit_heads`.

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
    OSError, ValueError
        As :func:`fit_heads`; also for a head that the configuration does not have.
    """
    ((_, fit),) = _fits(config, tokens, ((head, activation),), form, seed)
    return fit


def _fits(
    config: HeadsConfig,
    tokens: TokenSet,
    pairs: Sequence[tuple[str, str]],
    form: str,
    seed: int,
) -> Iterator[tuple[tuple[str, str], HeadFit]]:
    """These heads on one draw of the data."""
    if not set(pairs) <= set(config.pairs) or form not in config.inputs:
        raise ValueError(
            f"heads {pairs} and form {form!r} are not in the configuration: it has {config.pairs}"
            f" and {config.inputs}"
        )
    if tokens.grid != config.grid or tokens.classes != config.classes:
        raise ValueError(
            f"tokens have the grid {tokens.grid} and {tokens.classes} classes; the configuration"
            f" has {config.grid} and {config.classes}"
        )
    device = available(config.device)
    fit, held = tokens.draw(config, seed)
    reduced = InputForm.fit(tokens.train, config, form, rows=fit)
    train = samples(config, reduced, tokens.train, tokens.train_label, fit, seed)
    holdout = samples(config, reduced, tokens.train, tokens.train_label, held, seed)
    every = torch.arange(len(tokens.test))
    test = samples(config, reduced, tokens.test, tokens.test_label, every, _TEST_MOSAICS)
    X = train[0]
    Y = _targets(train[1], tokens.classes, X.dtype)
    for head, activation in pairs:
        started = time.perf_counter()
        problem = _problem(config, head, activation, X, Y, seed)
        path = _path(config, head, problem, device)
        scores = [_accuracy(solution, *holdout, device)[0] for solution in path]
        best = max(range(len(path)), key=lambda k: (scores[k], -k))
        solution = path[best]
        top1, top5 = _accuracy(solution, *test, device)
        row = {
            "task": config.task,
            "data": tokens.data,
            "backbone": tokens.backbone,
            "head": head,
            "activation": activation,
            "input": form,
            "seed": seed,
            "train": len(X),
            "holdout": len(holdout[0]),
            "test": len(test[0]),
            "tokens": X.shape[1],
            "features": X.shape[2],
            "classes": tokens.classes,
            "loss": config.loss,
            "gates": 0 if problem.gates is None else problem.n_blocks,
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
        own = [_accuracy(solution, *train, device)[0] for solution in path]
        yield (head, activation), HeadFit(row, solution, reduced, path, scores, own)


def _targets(
    label: Int64[Tensor, "n *s"], classes: int, dtype: torch.dtype
) -> Float[Tensor, "n *s c"]:
    """A one at each label; in a temporary file where there are many."""
    target = room((*label.shape, classes), "cpu", dtype)
    for some, into in zip(label.split(_PIECE), target.split(_PIECE), strict=True):
        into.copy_(torch.nn.functional.one_hot(some, classes))
    return target


def _problem(
    config: HeadsConfig, head: str, activation: str, X: Tensor, Y: Tensor, seed: int
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
        seed=seed,
        **options,
    )


def _path(config: HeadsConfig, head: str, problem: Problem, device: torch.device) -> list[Solution]:
    """Solutions for the grid of beta, each started from the one before where the solver can."""
    method = config.method
    if method == "auto" and head == "block_fno":
        method = "fista"
    options: dict[str, Any] = {"method": method, "time_limit": config.time_limit}
    parts: dict[str, Any] = {}
    if config.shard is None:
        problem = problem.on(device)
    else:  # brought to the device a part at a time
        parts = {"shard": config.shard, "group": Group(device=device)}
    top = largest_beta(problem, **parts)
    if not top > 0:
        raise ValueError("the outputs do not depend on the inputs: every beta leaves them at zero")
    path: list[Solution] = []
    for share in sorted(config.shares, reverse=True):
        start = {} if method == "factored" or not path else {"start": path[-1].coefficients}
        path.append(
            solve(
                problem.with_beta(share * top),
                tol=config.tol,
                progress=False,
                **start,
                **options,
                **parts,
            )
        )
    return path


def _accuracy(
    solution: Solution,
    X: Float[Tensor, "n s d"],
    label: Int64[Tensor, "n *s"],
    device: torch.device,
) -> tuple[float, float]:
    """Shares of labels that are first and among the five first."""
    # On no samples: the data that it was fitted to stay where they are.
    beside = solution.problem.part(slice(0, 0)).on(device)
    units = solution.neurons
    if units is not None:
        units = Neurons(*(part.to(device) for part in units))
    there = dataclasses.replace(solution, problem=beside, neurons=units)
    first = among = 0
    for some, wanted in zip(X.split(_PIECE), label.split(_PIECE), strict=True):
        scores = there.predict(some)
        best = scores.topk(min(5, scores.shape[-1]), dim=-1).indices
        hit = best == wanted.to(device).unsqueeze(-1)
        first += int(hit[..., 0].sum())
        among += int(hit.any(-1).sum())
    return first / label.numel(), among / label.numel()
