"""Attention with learned places, taught by a convolution: where do the heads go?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .learned import ImageAttention, QuadraticAttention

__all__ = ["Imitation", "imitate", "teach"]


@dataclass(frozen=True)
class Imitation:
    """A layer that was taught by a convolution.

    Attributes
    ----------
    layer
        The trained layer.
    losses
        Squared error by the square of the target, before each step.
    centres, alphas
        Of all heads, before the first step and after each: for an animation.
    """

    layer: QuadraticAttention
    losses: Float[Tensor, "steps"]
    centres: Float[Tensor, "steps_and_one heads 2"]
    alphas: Float[Tensor, "steps_and_one heads"]

    def pixels(self, step: int = -1) -> list[tuple[int, int]]:
        """Offset of the pixel that each head gives most weight to, inside of an image."""
        return [(int(i), int(j)) for i, j in self.centres[step].round().tolist()]


def imitate(
    conv: nn.Conv2d,
    *,
    heads: int | None = None,
    steps: int = 400,
    learning_rate: float = 0.05,
    alpha: float = 0.5,
    centre_std: float = 1.0,
    side: int = 10,
    batch: int = 16,
    images: Float[Tensor, "n d H W"] | None = None,
    seed: int = 0,
) -> Imitation:
    r"""Train :class:`QuadraticAttention` on the outputs of a convolution.

    Nothing tells the heads which pixels the kernel has, how many, or where.  They start at random
    places, with a wide spread; Adam with a cosine schedule minimises the squared error.

    Parameters
    ----------
    conv
        Two-dimensional, with stride 1 and an output of the size of its input.
    heads
        Their number; one an entry of the kernel if left out.
    steps, learning_rate
        Of Adam.
    alpha, centre_std
        Where heads start, see :class:`QuadraticAttention`.
    side, batch
        Size of the random normal images, and how many a step.
    images
        To draw from in place of random ones.
    seed
        Of the start and of the images.

    Returns
    -------
    Imitation

    Raises
    ------
    ValueError
        If ``conv`` is no Conv2d or changes the size of an image, a number is out of its range, or
        the images do not fit.
    """
    _check(conv, steps, side, batch, images)
    heads = conv.weight[0, 0].numel() if heads is None else heads
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        layer = QuadraticAttention(
            conv.in_channels, heads, d_out=conv.out_channels, alpha=alpha, centre_std=centre_std
        ).to(conv.weight)
    centres, alphas = [], []

    def record() -> None:
        centres.append(layer.centres.detach().clone())
        alphas.append(layer.log_alpha.detach().exp())

    record()
    losses = teach(
        layer,
        conv,
        steps=steps,
        learning_rate=learning_rate,
        side=side,
        batch=batch,
        images=images,
        seed=seed,
        after_step=record,
    )
    return Imitation(layer, losses, torch.stack(centres), torch.stack(alphas))


def teach(
    layer: ImageAttention,
    conv: nn.Conv2d,
    *,
    steps: int = 400,
    learning_rate: float = 0.05,
    side: int = 10,
    batch: int = 16,
    images: Float[Tensor, "n d H W"] | None = None,
    seed: int = 0,
    after_step: Callable[[], None] | None = None,
) -> Float[Tensor, "steps"]:
    r"""Train any layer of attention over pixels on the outputs of a convolution, in place.

    Adam with a cosine schedule minimises the squared error

    .. math:: \frac{\sum\|\text{layer}(x) - \text{conv}(x)\|^2}{\sum\|\text{conv}(x)\|^2} .

    Parameters
    ----------
    layer
        Takes and returns images with features last.
    conv, steps, learning_rate, side, batch, images, seed
        As in :func:`imitate`; the seed is of the images alone.
    after_step
        Called after each step, to record something.

    Returns
    -------
    Tensor
        The error before each step.

    Raises
    ------
    ValueError
        If ``conv`` is no Conv2d or changes the size of an image, layer or images do not fit it, or a
        number is out of its range.
    """
    _check(conv, steps, side, batch, images)
    sizes = {"inputs": (layer.d_model, conv.in_channels)}
    sizes["outputs"] = layer.weight_o.shape[-1], conv.out_channels
    for name, (has, needs) in sizes.items():
        if has != needs:
            raise ValueError(f"layer has {has} {name}; the convolution has {needs}")
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(layer.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
    losses = []
    for _ in range(steps):
        if images is None:
            x = torch.randn(batch, conv.in_channels, side, side, generator=generator)
        else:
            x = images[torch.randint(len(images), (batch,), generator=generator)]
        x = x.to(conv.weight)
        with torch.no_grad():
            target = conv(x)
        if target.shape[-2:] != x.shape[-2:]:
            raise ValueError(
                f"conv makes {tuple(target.shape[-2:])} pixels of {tuple(x.shape[-2:])}; it needs"
                " to keep the size"
            )
        target = target.movedim(1, -1)
        error = layer(x.movedim(1, -1)) - target
        loss = error.square().mean() / target.square().mean().clamp(min=1e-30)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
        if after_step is not None:
            after_step()
    return torch.stack(losses) if losses else torch.zeros(0)


def _check(conv: nn.Conv2d, steps: int, side: int, batch: int, images: Tensor | None) -> None:
    if not isinstance(conv, nn.Conv2d):
        raise ValueError(f"conv is a {type(conv).__name__}; it needs to be a Conv2d")
    for name, value, least in (("steps", steps, 0), ("side", side, 1), ("batch", batch, 1)):
        if value < least:
            raise ValueError(f"{name} is {value}; it needs to be {least} or more")
    if images is not None and (
        images.ndim != 4 or not images.numel() or images.shape[1] != conv.in_channels
    ):
        raise ValueError(
            f"images has shape {tuple(images.shape)}; it needs to be (n, {conv.in_channels}, H, W),"
            " one image or more"
        )
