"""Attention alone against a residual network, on CIFAR-10: one call a run."""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn

from ..data import ImageSet, cifar10
from .networks import AttentionNetwork, Cost, Encoding, ResNet, cost
from .training import Recipe, TrainingRun, train

__all__ = ["Model", "Preset", "Result", "run_cifar10"]

Preset = Literal["page", "reduced", "full"]
Model = Literal["quadratic", "quadratic_full", "learned", "learned_content", "resnet"]


@dataclass(frozen=True)
class _Sizes:
    data: dict[str, Any]
    attention: dict[str, Any]
    resnet: dict[str, Any]
    recipe: Recipe


_SMALL = Recipe(
    epochs=4,
    batch_size=50,
    learning_rate=3e-3,
    optimizer="adamw",
    weight_decay=0.01,
    place_rate=10.0,
    augment=False,
    clip=1.0,
)

_PRESETS: dict[str, _Sizes] = {
    "page": _Sizes(
        {"n_classes": 4, "n_per_class": 50},
        {"patch": 4, "layers": 2, "hidden": 24, "intermediate": 48, "d_key": 8, "dropout": 0.0},
        {"width": 6, "blocks": (1, 1, 1)},
        _SMALL,
    ),
    "reduced": _Sizes(
        {"n_per_class": 200},
        {"patch": 4, "layers": 2, "hidden": 32, "intermediate": 64, "d_key": 16, "dropout": 0.0},
        {"width": 8, "blocks": (1, 1, 1)},
        replace(_SMALL, epochs=8, augment=True),
    ),
    # The source's: 6 layers, 9 heads, hidden 400, batches of 100, 300 epochs, 5 % warm-up.
    "full": _Sizes({}, {}, {}, Recipe()),
}


@dataclass(frozen=True)
class Result:
    """A run of :func:`run_cifar10`.

    Attributes
    ----------
    model, preset, seed
        What was run.
    run
        Network and history.
    start
        The network before the first step.
    cost
        Parameters, and operations for one image.
    source
        Where the images came from.
    test
        The test images.
    """

    model: Model
    preset: Preset
    seed: int
    run: TrainingRun
    start: nn.Module
    cost: Cost
    source: str
    test: ImageSet

    @property
    def accuracy(self) -> float:
        """On the test images."""
        return self.run.accuracy


def run_cifar10(
    model: Model = "quadratic",
    preset: Preset = "page",
    *,
    seed: int = 0,
    folder: Path | str | None = None,
    seconds: float | None = None,
    source: Literal["official", "package"] | None = None,
    device: torch.device | str | None = None,
    progress: bool | None = None,
    **changes: Any,
) -> Result:
    """Train one network on CIFAR-10 (or what stands in for it, see ``.source``).

    ``"page"`` takes seconds, ``"reduced"`` less than a minute a run on two cores with the real images,
    ``"full"`` hours on a GPU: the source's sizes, 300 epochs.  With a folder, a run that stops is
    taken up where it was: call again with the same arguments.

    Parameters
    ----------
    model
        An encoding of :class:`AttentionNetwork`, or ``"resnet"``.
    preset
        Sizes of data, network and training.
    seed
        Of the first weights and of the training.
    folder
        Where checkpoints are kept, one file a run.
    seconds
        Stop after the epoch in which this time is over.
    source
        As in :func:`fourviews.data.cifar10`: ``"official"`` insists on the published archive, and
        downloads it if needed.
    device
        The GPU if there is one, if left out.
    progress
        As in :func:`fourviews.display.progress`.
    **changes
        Fields of :class:`Recipe` to change, the seed apart.

    Returns
    -------
    Result

    Raises
    ------
    TypeError
        If one of the changes is no field of a recipe.
    ValueError
        If model, preset or source is unknown.
    DataNotFoundError
        If the images are not where ``source`` says.
    """
    if model not in get_args(Model):
        raise ValueError(f"model is {model!r}; it needs to be one of {get_args(Model)}")
    if preset not in get_args(Preset):
        raise ValueError(f"preset is {preset!r}; it needs to be one of {get_args(Preset)}")
    known = [field.name for field in fields(Recipe) if field.name != "seed"]
    unknown = [name for name in changes if name not in known]
    if unknown:
        raise TypeError(
            f"run_cifar10 has no option {', '.join(unknown)}; of the recipe there are"
            f" {', '.join(known)}"
        )
    sizes = _PRESETS[preset]
    training = cifar10("train", source=source, **sizes.data)
    test = cifar10("test", source=source, **_test_part(sizes.data))
    network = _network(model, sizes, len(training.classes), seed)
    start = copy.deepcopy(network).eval()
    height, width, channels = training.images.shape[1:]
    price = cost(network, torch.zeros(1, channels, height, width))
    recipe = replace(sizes.recipe, seed=seed, **changes)
    file = None if folder is None else Path(folder) / f"{preset}-{model}-{seed}.pt"
    run = train(
        network,
        training.images,
        training.labels,
        test.images,
        test.labels,
        recipe,
        checkpoint=file,
        seconds=seconds,
        device=device,
        progress=progress,
    )
    return Result(model, preset, seed, run, start, price, str(training.source), test)


def _test_part(data: dict[str, Any]) -> dict[str, Any]:
    """The same classes; fewer images of each where the test part has fewer."""
    part = dict(data)
    if "n_per_class" in part:
        part["n_per_class"] = min(part["n_per_class"], 200)
    return part


def _network(model: Model, sizes: _Sizes, classes: int, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if model == "resnet":
            return ResNet(classes=classes, **sizes.resnet)
        encoding: Encoding = model
        return AttentionNetwork(encoding, classes=classes, **sizes.attention)
