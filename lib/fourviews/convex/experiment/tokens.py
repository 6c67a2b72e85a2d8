"""Tokens of images as the heads of one comparison see them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor

from fourviews import data
from fourviews.data.features.moments import mean_and_covariance

from ..problem import _tensor
from ..shards import room
from .config import HeadsConfig

__all__ = ["InputForm", "TokenSet", "mosaics", "samples", "token_set"]

# Images whose full tokens are in memory at a time; four make a mosaic.
_PIECE = 256


@dataclass(frozen=True)
class TokenSet:
    """Tokens and labels of training and test images.

    Tensors may map files that are larger than the memory: they are read some images at a time.

    Attributes
    ----------
    train, test
        ``(n, s, f)`` and ``(k, s, f)`` in the backbone's features, of any floating type.
    train_label, test_label
        ``(n,)`` and ``(k,)``.
    grid
        Rows and columns, s = rows · columns.
    classes
        How many.
    data, backbone
        Where images and tokens come from.

    Raises
    ------
    ValueError
        If shapes or labels do not fit, or a number is NaN or infinite.
    """

    train: Float[Tensor, "n s f"]
    train_label: Int64[Tensor, "n"]
    test: Float[Tensor, "k s f"]
    test_label: Int64[Tensor, "k"]
    grid: tuple[int, int]
    classes: int
    data: str
    backbone: str

    def __post_init__(self) -> None:
        s = self.grid[0] * self.grid[1]
        for name in ("train", "test"):
            tokens, label = getattr(self, name), getattr(self, f"{name}_label")
            if tokens.ndim != 3 or tokens.shape[1] != s or not tokens.is_floating_point():
                raise ValueError(
                    f"{name} has shape {tuple(tokens.shape)} and dtype {tokens.dtype}; it needs"
                    f" floats of shape (n, {s}, features) on the grid {self.grid}"
                )
            if not all(bool(torch.isfinite(piece).all()) for piece in tokens.split(_PIECE)):
                raise ValueError(f"{name} must be finite, got NaN or inf")
            if label.shape != tokens.shape[:1] or label.dtype != torch.int64:
                raise ValueError(
                    f"{name}_label has shape {tuple(label.shape)} and dtype {label.dtype}; it needs"
                    f" {len(tokens)} integers"
                )
            if not len(label) or int(label.min()) < 0 or int(label.max()) >= self.classes:
                raise ValueError(f"{name}_label needs classes 0 … {self.classes - 1}, at least one")
        if self.train.shape[2] != self.test.shape[2]:
            raise ValueError(
                f"train has {self.train.shape[2]} features, test {self.test.shape[2]}; both need"
                " the same backbone"
            )

    def draw(self, config: HeadsConfig, seed: int) -> tuple[Int64[Tensor, "a"], Int64[Tensor, "b"]]:
        """Rows of training samples and of the hold-out: the first of each class in the seed's order.

        Parameters
        ----------
        config : HeadsConfig
            How many images of each class.
        seed : int
            Of the order of the images.
        """
        order = torch.randperm(len(self.train), generator=Generator().manual_seed(seed))
        fit, held = [], []
        for c in range(self.classes):
            mine = order[self.train_label[order] == c]
            if len(mine) < config.train + config.holdout:
                raise ValueError(
                    f"class {c} has {len(mine)} images; train {config.train} and holdout"
                    f" {config.holdout} need {config.train + config.holdout}"
                )
            fit.append(mine[: config.train])
            held.append(mine[config.train : config.train + config.holdout])
        return torch.cat(fit), torch.cat(held)


def token_set(config: HeadsConfig) -> TokenSet:
    """CIFAR-100, or what stands in for it, through the backbone of the configuration.

    The backbone's tokens go to a :func:`fourviews.data.token_store` and are read from there, so that
    memory beyond the images' pixels and labels does not grow with their number. Means over a coarser
    grid are kept in memory if they are few, else in a temporary file.

    Raises
    ------
    ImportError, OSError, ValueError, fourviews.data.DataNotFoundError
        As :func:`fourviews.data.cifar100` and :func:`fourviews.data.token_store`; a ValueError also
        if there are too few images, before any tokens are computed.
    """
    found = {}
    train = {"n_classes": config.classes, "n_per_class": config.train + config.holdout}
    sets = {
        "train": data.cifar100("train", **train),
        "test": data.cifar100("test", **train | {"n_per_class": config.test}),
    }
    _check_enough(sets["train"], config)
    for split, images in sets.items():
        store = data.token_store(images, backbone=config.backbone, device=config.device)
        found[split] = _on_grid(store, config.grid), images.labels
    return TokenSet(
        *found["train"],
        *found["test"],
        grid=config.grid,
        classes=len(images.classes),
        data=images.source.name,
        backbone=config.backbone,
    )


def _check_enough(images: data.ImageSet, config: HeadsConfig) -> None:
    needed = config.train + config.holdout
    found = torch.bincount(images.labels, minlength=len(images.classes))
    if len(found) < config.classes or int(found.min()) < needed:
        raise ValueError(
            f"{images.source.name} has {len(found)} classes and {int(found.min())} images of the"
            f" rarest; classes {config.classes}, train {config.train} and holdout {config.holdout}"
            f" need {config.classes} with {needed} each"
        )


def _on_grid(store: data.TokenStore, grid: tuple[int, int]) -> Float[Tensor, "n s f"]:
    """The tokens of a store where they are, or their means over the cells of a coarser grid."""
    if any(mine > theirs for mine, theirs in zip(grid, store.grid, strict=True)):
        raise ValueError(f"grid is {grid}; the backbone's is {store.grid}, and no side may be more")
    if grid == store.grid:
        return _tensor("tokens", store.tokens)
    out = room((len(store), grid[0] * grid[1], store.tokens.shape[2]), "cpu", torch.float32)
    for some, into in zip(store.batches(_PIECE), out.split(_PIECE), strict=True):
        into.copy_(_averaged(some, store.grid, grid))
    return out


def _averaged(
    tokens: Float[Tensor, "n s f"], grid: tuple[int, int], smaller: tuple[int, int]
) -> Float[Tensor, "n t f"]:
    """Means over the cells of a coarser grid; cells overlap where sizes do not divide."""
    if grid == smaller:
        return tokens
    planes = tokens.mT.unflatten(2, grid)
    return torch.nn.functional.adaptive_avg_pool2d(planes, smaller).flatten(2).mT.contiguous()


def mosaics(
    tokens: Float[Tensor, "n s f"],
    label: Int64[Tensor, "n"],
    grid: tuple[int, int],
    seed: int,
) -> tuple[Float[Tensor, "m s f"], Int64[Tensor, "m s"]]:
    """Four images in the quarters of one grid, each at half its resolution; a label for each token.

    Images are drawn without repetition; up to three are left over.

    Raises
    ------
    ValueError
        If a side of the grid is odd, or there are fewer than four images.
    """
    if any(side % 2 for side in grid):
        raise ValueError(f"grid is {grid}; a mosaic needs even numbers of rows and columns")
    order = _fours(len(tokens), seed)
    return _joined(tokens[order], label[order], grid)


def _fours(count: int, seed: int) -> Int64[Tensor, "m"]:
    """Images in the order in which they fill the mosaics' quarters."""
    if count < 4:
        raise ValueError(f"tokens holds {count} images; a mosaic needs four")
    return torch.randperm(count, generator=Generator().manual_seed(seed))[: count // 4 * 4]


def _joined(
    tokens: Float[Tensor, "m s f"], label: Int64[Tensor, "m"], grid: tuple[int, int]
) -> tuple[Float[Tensor, "k s f"], Int64[Tensor, "k s"]]:
    rows, columns = grid[0] // 2, grid[1] // 2
    small = _averaged(tokens, grid, (rows, columns))
    # (mosaic, upper or lower, left or right, row, column, feature)
    parts = small.view(-1, 2, 2, rows, columns, tokens.shape[2]).transpose(2, 3)
    labels = label.view(-1, 2, 2, 1, 1).expand(-1, 2, 2, rows, columns).transpose(2, 3)
    return parts.reshape(-1, grid[0] * grid[1], tokens.shape[2]), labels.reshape(len(parts), -1)


@dataclass(frozen=True)
class InputForm:
    """From the backbone's features to the d features that every head sees.

    Attributes
    ----------
    centre, directions, scale
        Tokens become ``(x − centre) @ directions / scale``.
    constant
        Whether the last feature is replaced by 1.
    order
        Of the features: dealt out in turn, so that each of B blocks has leading and trailing
        components.
    """

    centre: Float[Tensor, "f"]
    directions: Float[Tensor, "f r"]
    scale: Float[Tensor, "r"]
    constant: bool
    order: Int64[Tensor, "d"]

    @classmethod
    def fit(
        cls,
        tokens: Float[Tensor, "n s f"],
        config: HeadsConfig,
        form: str,
        *,
        rows: Int64[Tensor, "a"] | None = None,
    ) -> InputForm:
        """Fit to training tokens alone, in float64.

        Parameters
        ----------
        tokens
            Of the training split; they are read once, some images at a time.
        config, form
            How many features, how they are reduced, and which form of the input.
        rows
            Which images count; all if not given.

        Raises
        ------
        ValueError
            If there are fewer features than asked for, or tokens that are not finite.
        """
        d = config.features
        if tokens.shape[2] < d:
            raise ValueError(f"features is {d}; the tokens have {tokens.shape[2]}")
        kept = d - 1 if form == "constant" else d
        # Sorted: so a file is read from its beginning to its end.
        rows = torch.arange(len(tokens)) if rows is None else rows.sort().values
        _, centre, covariance = mean_and_covariance(_read(tokens, rows))
        if config.reduction == "pca":
            _, vectors = torch.linalg.eigh(covariance)
            directions = vectors.flip(1)[:, :kept]
            # A sign of its own for each component: else it is the decomposition's.
            largest = directions.abs().argmax(0)
            directions = directions * directions[largest, torch.arange(kept)].sign()
        else:
            eye = torch.eye(tokens.shape[2], dtype=torch.float64)
            directions = torch.nn.functional.adaptive_avg_pool1d(eye[None], kept)[0]
        spread = (directions * (covariance @ directions)).sum(0).clamp_min(0).sqrt()
        if form == "raw":
            # One factor for all: it changes nothing but the size of numbers.
            scale = spread.square().mean().sqrt().expand(kept)
        else:
            scale = spread
        floor = 1e-12 * float(spread.max())
        order = torch.cat([torch.arange(b, d, config.blocks) for b in range(config.blocks)])
        return cls(
            centre, directions, scale.clamp_min(max(floor, 1e-300)), form == "constant", order
        )

    def __call__(
        self, tokens: Float[Tensor, "n s f"], dtype: torch.dtype
    ) -> Float[Tensor, "n s d"]:
        """Tokens in this form."""
        out = torch.empty(*tokens.shape[:2], len(self.order), dtype=dtype)
        for piece, into in zip(tokens.split(_PIECE), out.split(_PIECE), strict=True):
            some = (piece.double() - self.centre) @ self.directions / self.scale
            if self.constant:
                some = torch.cat([some, some.new_ones(*some.shape[:2], 1)], dim=2)
            into.copy_(some[..., self.order])
        return out


def samples(
    config: HeadsConfig,
    form: InputForm,
    tokens: Float[Tensor, "n s f"],
    label: Int64[Tensor, "n"],
    rows: Int64[Tensor, "a"],
    seed: int,
) -> tuple[Float[Tensor, "m s d"], Int64[Tensor, "m *s"]]:
    """Samples of the configuration's task in a form of the input, and their labels.

    Some images are in memory at a time; where the samples are many they go to temporary files.

    Parameters
    ----------
    config, form
        Task, grid and type; the form of the input.
    tokens, label
        Of all images.
    rows
        The images that make the samples.
    seed
        Of the mosaics.

    Raises
    ------
    OSError
        If the disk with the temporary files is too small.
    """
    mosaic = config.task == "mosaic"
    if mosaic:
        rows = rows[_fours(len(rows), seed)]
    count, s = len(rows) // 4 if mosaic else len(rows), tokens.shape[1]
    X = room((count, s, len(form.order)), "cpu", getattr(torch, config.dtype))
    Y = room((count, s) if mosaic else (count,), "cpu", torch.int64)
    first = 0
    for some, which in zip(_read(tokens, rows), rows.split(_PIECE), strict=True):
        named = label[which]
        if mosaic:
            some, named = _joined(some, named, config.grid)
        part = slice(first, first + len(some))
        X[part], Y[part] = form(some, X.dtype), named
        first = part.stop
    return X, Y


def _read(
    tokens: Float[Tensor, "n s f"], rows: Int64[Tensor, "a"]
) -> Iterator[Float[Tensor, "m s f"]]:
    """Copies of some images at a time, in float32 (float64 stays)."""
    for which in rows.split(_PIECE):
        some = tokens[which]
        yield some if some.dtype == torch.float64 else some.float()
