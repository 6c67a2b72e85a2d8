"""Tokens of images as the heads of one comparison see them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor

from .config import HeadsConfig

__all__ = ["InputForm", "TokenSet", "mosaics", "token_set"]

# Images whose full tokens are in memory at a time.
_PIECE = 256


@dataclass(frozen=True)
class TokenSet:
    """Tokens and labels of training and test images.

    Attributes
    ----------
    train, test
        ``(n, s, f)`` and ``(k, s, f)`` in the backbone's features.
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

    Raises
    ------
    ImportError, ValueError, fourviews.data.DataNotFoundError
        As :func:`fourviews.data.cifar100` and :func:`fourviews.data.image_tokens`.
    """
    from fourviews import data

    found = {}
    for split, count in (("train", config.train + config.holdout), ("test", config.test)):
        images = data.cifar100(split, n_classes=config.classes, n_per_class=count)
        pieces = []
        for start in range(0, len(images), _PIECE):
            piece = data.image_tokens(
                images[start : start + _PIECE],
                backbone=config.backbone,
                dtype=torch.float16,
                max_images=None,
                device=config.device,
            )
            pieces.append(_averaged(piece.tokens.float(), piece.grid, config.grid))
        found[split] = torch.cat(pieces), images.labels
    return TokenSet(
        *found["train"],
        *found["test"],
        grid=config.grid,
        classes=len(images.classes),
        data=images.source.name,
        backbone=config.backbone,
    )


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
    if len(tokens) < 4:
        raise ValueError(f"tokens holds {len(tokens)} images; a mosaic needs four")
    rows, columns = grid[0] // 2, grid[1] // 2
    order = torch.randperm(len(tokens), generator=Generator().manual_seed(seed))
    order = order[: len(order) // 4 * 4]
    small = _averaged(tokens[order], grid, (rows, columns))
    # (mosaic, upper or lower, left or right, row, column, feature)
    parts = small.view(-1, 2, 2, rows, columns, tokens.shape[2]).transpose(2, 3)
    labels = label[order].view(-1, 2, 2, 1, 1).expand(-1, 2, 2, rows, columns).transpose(2, 3)
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
    def fit(cls, tokens: Float[Tensor, "n s f"], config: HeadsConfig, form: str) -> InputForm:
        """Fit to training tokens alone, in float64.

        Raises
        ------
        ValueError
            If there are fewer features than asked for.
        """
        d = config.features
        if tokens.shape[2] < d:
            raise ValueError(f"features is {d}; the tokens have {tokens.shape[2]}")
        kept = d - 1 if form == "constant" else d
        # The covariance's size does not grow with the number of tokens, and pieces build it.
        pieces = tokens.split(_PIECE)
        count = tokens.shape[0] * tokens.shape[1]
        centre = sum(piece.sum((0, 1), dtype=torch.float64) for piece in pieces) / count
        covariance = torch.zeros(len(centre), len(centre), dtype=torch.float64)
        for piece in pieces:
            rows = piece.flatten(0, 1).double() - centre
            covariance.addmm_(rows.T, rows, alpha=1 / count)
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
