"""What a comparison of heads is made of, as a dataclass and as one YAML file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ALTERNATIVES", "HEADS", "HeadsConfig"]

#: The heads that mix tokens.
ALTERNATIVES = ("attention", "mixer", "fno", "block_fno")
HEADS = ("linear", "mlp", *ALTERNATIVES)
_CHOICES = {
    "heads": HEADS,
    "activations": ("linear", "gated_relu"),
    "inputs": ("raw", "scaled", "constant"),
    "reduction": ("pca", "average"),
    "task": ("pooled", "mosaic"),
    "loss": ("squared", "cross_entropy"),
    "method": ("auto", "factored", "fista", "splitting"),
    "dtype": ("float32", "float64"),
}


@dataclass(frozen=True, kw_only=True)
class HeadsConfig:
    """Sizes and choices of one comparison; the defaults are those of the source's setting.

    Attributes
    ----------
    classes, train, holdout, test
        How many classes, and images of each: to fit the heads, to choose beta, to judge once.
    heads, activations
        Which ones. ``"linear"`` is the linear classifier with the nuclear norm, which is the MLP
        with linear activation; ``"mlp"`` is gated only, so that none is run twice.
    inputs
        Forms of the input: ``"raw"`` as reduced, ``"scaled"`` with each coordinate divided by its
        deviation over the training tokens, ``"constant"`` scaled and with the last feature
        replaced by 1. The number of features is the same in all three.
    seeds
        Which ones, or how many from 0 on; each draws training samples, hold-out and gates, for all
        heads the same.
    task
        ``"pooled"``: one class an image, outputs averaged over tokens. ``"mosaic"``: four images in
        the quarters of one grid, and each token names its own image's class.
    grid
        Rows and columns of tokens, averaged from the backbone's.
    features, reduction
        d, and how to get there: principal components of the training tokens, or averages over
        neighbouring features.
    loss, shares
        Loss, and the grid of beta as shares of the smallest beta whose solution is zero; the same
        number of tries for each head.
    gates, attention_gates, blocks
        Gates of a gated head (m), of gated attention, and B of the block-diagonal one.
    method, tol, time_limit, shard, dtype
        Of :func:`fourviews.convex.solve`. ``shard``, which goes with ``"factored"``, is how many
        samples the solver has in memory at a time; without it they are there as a whole. Under
        ``"auto"`` the block-diagonal head takes FISTA: its Gram matrix has B times the side of the
        others'.
    backbone
        Of :func:`fourviews.data.token_store`.
    device
        Where backbone and solver run.

    Raises
    ------
    ValueError
        Names the field, what came and what is needed.
    """

    classes: int = 100
    train: int = 450
    holdout: int = 50
    test: int = 100
    heads: tuple[str, ...] = HEADS
    activations: tuple[str, ...] = ("linear", "gated_relu")
    inputs: tuple[str, ...] = ("raw", "scaled", "constant")
    seeds: tuple[int, ...] | int = 5
    task: str = "pooled"
    grid: tuple[int, int] = (14, 14)
    features: int = 100
    reduction: str = "pca"
    loss: str = "cross_entropy"
    shares: tuple[float, ...] = (0.3, 0.1, 0.03, 0.01, 0.003)
    gates: int = 100
    attention_gates: int = 5
    blocks: int = 5
    method: str = "auto"
    tol: float = 1e-2
    time_limit: float | None = None
    shard: int | None = None
    dtype: str = "float64"
    backbone: str = "efficientnet-lite0"
    device: str = "cpu"

    def __post_init__(self) -> None:
        if isinstance(self.seeds, int):
            _count("seeds", self.seeds)
            object.__setattr__(self, "seeds", tuple(range(self.seeds)))
        for name in ("heads", "activations", "inputs", "grid", "shares", "seeds"):
            value = getattr(self, name)
            if isinstance(value, str) or not isinstance(value, list | tuple):
                raise ValueError(f"{name} is {value!r}; it needs to be a list")
            object.__setattr__(self, name, tuple(value))
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            several = isinstance(value, tuple)
            for entry in value if several else (value,):
                if entry not in allowed:
                    raise ValueError(
                        f"{name} is {value!r}; it may be {'some of ' if several else ''}"
                        f"{', '.join(allowed)}"
                    )
            if several and (not value or len(set(value)) < len(value)):
                raise ValueError(f"{name} is {value!r}; it needs different entries, at least one")
        for name in (
            *("classes", "train", "holdout", "test", "features"),
            *("gates", "attention_gates", "blocks"),
        ):
            _count(name, getattr(self, name))
        plain = all(isinstance(k, int) and not isinstance(k, bool) and k >= 0 for k in self.seeds)
        if not plain or not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds is {self.seeds!r}; it needs different whole numbers from 0 on")
        if self.classes < 2:
            raise ValueError(f"classes is {self.classes}; it needs at least 2")
        if len(self.grid) != 2:
            raise ValueError(f"grid is {self.grid!r}; it needs rows and columns")
        for side in self.grid:
            _count("grid", side)
        if self.task == "mosaic" and any(side % 2 for side in self.grid):
            raise ValueError(
                f"grid is {self.grid}; a mosaic needs even numbers of rows and columns"
            )
        if self.shard is not None:
            _count("shard", self.shard)
            if self.method != "factored":
                raise ValueError(f'shard goes with method "factored", got {self.method!r}')
        for name, value, most in (
            *(("shares", share, 1.0) for share in self.shares),
            ("tol", self.tol, float("inf")),
            *([] if self.time_limit is None else [("time_limit", self.time_limit, float("inf"))]),
        ):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 < value < most:
                raise ValueError(
                    f"{name} holds {value!r}; it needs numbers above 0 and below {most}"
                )
        if not self.shares or len(set(self.shares)) < len(self.shares):
            raise ValueError(f"shares is {self.shares!r}; it needs different numbers, at least one")
        if "block_fno" in self.heads and (
            self.features % self.blocks or self.classes % self.blocks
        ):
            raise ValueError(
                f"blocks is {self.blocks}; it needs to divide the {self.features} features and the"
                f" {self.classes} classes"
            )
        if "constant" in self.inputs and self.features < 2:
            raise ValueError(f"features is {self.features}; a constant and another one make 2")
        if not self.pairs:
            raise ValueError(
                f"heads {self.heads} with activations {self.activations} leave nothing to run:"
                " the linear head is linear, the MLP gated"
            )

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Head and activation of each run, in the order of the table."""
        only = {"linear": "linear", "mlp": "gated_relu"}
        return tuple(
            (head, activation)
            for head in self.heads
            for activation in self.activations
            if only.get(head, activation) == activation
        )

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> HeadsConfig:
        """From a mapping; an unknown field is an error that names the known ones."""
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = [str(name) for name in fields if name not in known]
        if unknown:
            raise ValueError(
                f"the configuration has no field {', '.join(unknown)}; there are {', '.join(known)}"
            )
        return cls(**fields)

    @classmethod
    def from_yaml(cls, source: str | Path) -> HeadsConfig:
        """From a YAML file, or from YAML text if `source` is a string with a line break or colon.

        Raises
        ------
        ImportError
            Without PyYAML, naming the extra.
        FileNotFoundError, ValueError
            If there is no such file, or it holds anything but fields of a configuration.
        """
        yaml = _yaml()
        inline = isinstance(source, str) and ("\n" in source or ": " in source)
        text = source if inline else Path(source).read_text(encoding="utf-8")
        try:
            fields = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(f"the configuration is no YAML: {error}") from error
        if not isinstance(fields, dict):
            raise ValueError(
                f"the configuration holds {type(fields).__name__}; it needs fields, `name: value`"
            )
        return cls.of(fields)

    def to_yaml(self) -> str:
        """YAML text from which `from_yaml` makes the same configuration."""
        fields = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in dataclasses.asdict(self).items()
        }
        return _yaml().safe_dump(fields, sort_keys=False, default_flow_style=None)


def _count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r}; it needs to be a whole number from 1 on")


def _yaml():
    try:
        import yaml
    except ImportError as error:
        raise ImportError(
            "a configuration in YAML needs PyYAML: pip install 'fourviews[lessons]'"
        ) from error
    return yaml
