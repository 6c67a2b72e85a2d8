"""Networks for small images: attention alone, and a residual network beside it."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from .learned import ImageAttention, LearnedRelativeAttention, QuadraticAttention

__all__ = ["AttentionNetwork", "Cost", "Encoding", "ResNet", "cost"]

Encoding = Literal["quadratic", "quadratic_full", "learned", "learned_content"]


class _Block(nn.Module):
    """Attention and a position-wise network, each added to its input and normalised afterwards."""

    def __init__(self, attention: ImageAttention, hidden: int, intermediate: int, dropout: float):
        super().__init__()
        self.attention = attention
        self.feed_forward = nn.Sequential(
            nn.Linear(hidden, intermediate), nn.GELU(), nn.Linear(intermediate, hidden)
        )
        self.norms = nn.ModuleList([nn.LayerNorm(hidden), nn.LayerNorm(hidden)])
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norms[0](x + self.dropout(self.attention(x)))
        return self.norms[1](x + self.dropout(self.feed_forward(x)))


class AttentionNetwork(nn.Module):
    r"""Image classifier without a convolution: attention over pixels, after Cordonnier et al. 2020.

    Squares of ``patch`` × ``patch`` pixels become tokens, a linear map makes ``hidden`` features of
    each, ``layers`` blocks follow, then the mean over all tokens and a linear map to the classes.

    The sizes given by default are the source's: 16 × 16 tokens, 6 layers, 9 heads, 400 features.

    Parameters
    ----------
    encoding
        ``"quadratic"``: :class:`QuadraticAttention`, isotropic; ``"quadratic_full"``: with full
        covariance; ``"learned"``, ``"learned_content"``: :class:`LearnedRelativeAttention`.
    classes, channels
        Of the images.
    grid
        Height and width of the images, multiples of ``patch``.
    patch, layers, heads, hidden, intermediate, dropout
        Sizes.
    head_dim
        D_h; ``hidden`` if left out.
    d_key
        Of learned encodings.

    Raises
    ------
    ValueError
        If the encoding is unknown, a size is not positive, or ``patch`` does not divide the grid.
    """

    def __init__(
        self,
        encoding: Encoding = "quadratic",
        *,
        classes: int = 10,
        channels: int = 3,
        grid: Sequence[int] = (32, 32),
        patch: int = 2,
        layers: int = 6,
        heads: int = 9,
        hidden: int = 400,
        intermediate: int = 512,
        head_dim: int | None = None,
        d_key: int = 64,
        dropout: float = 0.1,
    ):
        super().__init__()
        if encoding not in get_args(Encoding):
            raise ValueError(
                f"encoding is {encoding!r}; it needs to be one of {get_args(Encoding)}"
            )
        grid = tuple(grid) if isinstance(grid, Iterable) else ()
        whole = all(isinstance(n, numbers.Integral) and n >= 1 for n in (patch, *grid))
        if len(grid) != 2 or not whole or any(side % patch for side in grid):
            raise ValueError(
                f"patch is {patch}, grid is {grid}; they need to be whole numbers, and patch needs to"
                " divide a height and a width"
            )
        sizes = {"layers": layers, "heads": heads, "hidden": hidden, "classes": classes}
        sizes |= {"channels": channels, "intermediate": intermediate}
        for name, size in sizes.items():
            if not isinstance(size, numbers.Integral) or size < 1:
                raise ValueError(f"{name} is {size}; it needs to be a whole number, 1 or more")
        tokens = tuple(side // patch for side in grid)

        def attention() -> ImageAttention:
            if encoding.startswith("quadratic"):
                covariance = "full" if encoding == "quadratic_full" else "isotropic"
                return QuadraticAttention(hidden, heads, head_dim=head_dim, covariance=covariance)
            return LearnedRelativeAttention(
                hidden,
                heads,
                tokens,
                head_dim=head_dim,
                content=encoding == "learned_content",
                d_key=d_key,
            )

        self.grid, self.patch, self.channels = grid, patch, channels
        self.embed = nn.Linear(channels * patch**2, hidden)
        self.blocks = nn.ModuleList(
            _Block(attention(), hidden, intermediate, dropout) for _ in range(layers)
        )
        self.classify = nn.Linear(hidden, classes)

    @property
    def attentions(self) -> list[ImageAttention]:
        """The attention of each layer."""
        return [block.attention for block in self.blocks]

    def tokens(self, images: Float[Tensor, "n c H W"]) -> Float[Tensor, "n h w d"]:
        """Embedded squares of pixels.

        Raises
        ------
        ValueError
            If the images have another size.
        """
        if images.shape[1:] != (self.channels, *self.grid):
            raise ValueError(
                f"images has shape {tuple(images.shape)}; it needs to be"
                f" (n, {self.channels}, {self.grid[0]}, {self.grid[1]})"
            )
        if not images.is_floating_point():
            raise ValueError(f"images is {images.dtype}; it needs to be floats")
        if not len(images):  # torch cannot unshuffle no image
            h, w = (side // self.patch for side in self.grid)
            return self.embed(images.new_zeros(0, h, w, self.embed.in_features))
        squares = nn.functional.pixel_unshuffle(images, self.patch)
        return self.embed(squares.movedim(1, -1))

    def forward(self, images: Float[Tensor, "n c H W"]) -> Float[Tensor, "n classes"]:
        """Scores of the classes."""
        x = self.tokens(images)
        for block in self.blocks:
            x = block(x)
        return self.classify(x.mean((1, 2)))

    @torch.no_grad()
    def attention_maps(
        self, images: Float[Tensor, "n c H W"]
    ) -> list[Float[Tensor, "maps heads h w h w"]]:
        """Attention of each layer; without content the same for all images, and n is 1."""
        x, maps = self.tokens(images), []
        for block in self.blocks:
            layer = block.attention
            content = getattr(layer, "content", False)
            found = layer.attention_maps(x.shape[1:3], x if content else None)
            maps.append(found if content else found[None])
            x = block(x)
        return maps


class _Residual(nn.Module):
    """Two 3×3 convolutions and a bypass (He et al. 2016)."""

    def __init__(self, d: int, o: int, stride: int):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(d, o, 3, stride, 1, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(),
            nn.Conv2d(o, o, 3, 1, 1, bias=False),
            nn.BatchNorm2d(o),
        )
        self.bypass = (
            nn.Identity()
            if stride == 1 and d == o
            else nn.Sequential(nn.Conv2d(d, o, 1, stride, bias=False), nn.BatchNorm2d(o))
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.main(x) + self.bypass(x))


class ResNet(nn.Module):
    """Residual network for small images: a 3×3 stem, then stages that halve the sides.

    ``ResNet()`` has the stages of ResNet-18.

    Parameters
    ----------
    classes, channels
        Of the images.
    width
        Channels of the first stage; each further one doubles them.
    blocks
        Residual blocks of each stage.

    Raises
    ------
    ValueError
        If a size is not positive.
    """

    def __init__(
        self,
        *,
        classes: int = 10,
        channels: int = 3,
        width: int = 64,
        blocks: Sequence[int] = (2, 2, 2, 2),
    ):
        super().__init__()
        if min(width, classes, channels) < 1 or not blocks or min(blocks) < 1:
            raise ValueError(
                f"width is {width}, blocks is {tuple(blocks)}, classes is {classes}, channels is"
                f" {channels}; all need to be positive"
            )
        parts: list[nn.Module] = [
            nn.Conv2d(channels, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        ]
        d = width
        for stage, count in enumerate(blocks):
            for number in range(count):
                stride = 2 if stage and number == 0 else 1
                parts.append(_Residual(d, width * 2**stage, stride))
                d = width * 2**stage
        self.features = nn.Sequential(*parts)
        self.classify = nn.Linear(d, classes)

    def forward(self, images: Float[Tensor, "n c H W"]) -> Float[Tensor, "n classes"]:
        """Scores of the classes."""
        return self.classify(self.features(images).mean((2, 3)))


class Cost(NamedTuple):
    """What a network takes, see :func:`cost`.

    Attributes
    ----------
    parameters
        Numbers that are trained.
    flops
        Floating-point operations of a forward pass.
    """

    parameters: int
    flops: int


def cost(network: nn.Module, images: Tensor) -> Cost:
    """Parameters that are trained, and floating-point operations of a forward pass.

    Counted by ``torch.utils.flop_counter``: convolutions and matrix products, a multiplication and
    an addition each as one operation; softmax, normalisation and the like are left out.

    Parameters
    ----------
    network
        Any; it is left in the mode in which it was.
    images
        A batch for it; its size multiplies the operations.

    Returns
    -------
    Cost
    """
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            network(images)
    finally:
        for module, training in modes:
            module.training = training
    parameters = sum(p.numel() for p in network.parameters() if p.requires_grad)
    return Cost(parameters, counter.get_total_flops())
