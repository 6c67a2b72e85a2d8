r"""Smoothed attention and networks: softplus in place of ReLU, and softmax, which is none."""

from __future__ import annotations

import copy
import math
import numbers
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...attention import DecoderBlock, EncoderBlock, FeedForward, MultiHeadAttention
from ..compiler.encoder import CompiledEncoder, _CausalBlock

__all__ = ["smooth", "smoothing_errors"]

Smoothing = Literal["softplus", "softmax"]


class _Softplus(nn.Module):
    def __init__(self, sharpness: float):
        super().__init__()
        self.sharpness = sharpness

    def forward(self, x: Tensor) -> Tensor:
        # torch's own softplus is linear beyond a threshold; this one is smooth everywhere.
        return torch.logaddexp(self.sharpness * x, torch.zeros_like(x)) / self.sharpness


class _SmoothAttention(nn.Module):
    """Attention with the layer's weights; scores pass through softplus or softmax."""

    def __init__(self, layer: MultiHeadAttention, activation: str, sharpness: float):
        super().__init__()
        self.layer, self.activation = layer, activation
        self.relu = _Softplus(sharpness)
        self.sharpness = sharpness

    def forward(self, x, context=None, *, mask=None, causal=False):
        layer = self.layer
        z = x if context is None else context
        query = layer._project(x, layer.weight_q, layer.bias_q, layer.offset_q)
        key = layer._project(z, layer.weight_k, layer.bias_k, layer.offset_k)
        value = layer._project(z, layer.weight_v, layer.bias_v, layer.offset_v)
        scores = layer.scale * query @ key.mT
        hidden = None
        if causal:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        if mask is not None:
            hidden = ~mask.unsqueeze(-3) if hidden is None else hidden | ~mask.unsqueeze(-3)
        if self.activation == "softplus":
            weights = self.relu(scores)
            weights = weights if hidden is None else weights.masked_fill(hidden, 0.0)
        else:
            scores = self.sharpness * scores
            scores = scores if hidden is None else scores.masked_fill(hidden, float("-inf"))
            weights = torch.softmax(scores, -1)
        heads = (weights @ value).transpose(-3, -2).flatten(-2)
        out = heads if layer.weight_o is None else heads @ layer.weight_o.flatten(0, 1)
        return out if layer.bias_o is None else out + layer.bias_o


class _SmoothNetwork(nn.Module):
    def __init__(self, network: FeedForward, sharpness: float):
        super().__init__()
        self.network, self.activation = network, _Softplus(sharpness)

    def forward(self, x: Tensor) -> Tensor:
        return self.network.output(self.activation(self.network.hidden(x)))


def smooth(
    module: nn.Module,
    activation: Smoothing = "softplus",
    sharpness: float = 1.0,
    *,
    networks: bool | None = None,
) -> nn.Module:
    r"""A copy of ``module`` in which ReLU is smoothed.

    - ``"softplus"``: :math:`\operatorname{relu}(z)` becomes :math:`\log(1 + e^{\beta z}) / \beta`,
      which differs from it by at most :math:`\log(2) / \beta`, in attention and, unless
      ``networks=False``, in networks. Then the module is of class :math:`C^\infty`.
    - ``"softmax"``: the scores' ReLU becomes :math:`\operatorname{softmax}(\beta \cdot)` along the
      keys, as in the usual Transformer; networks keep their ReLU unless ``networks=True``. This
      tends to the ReLU attention at *no* sharpness: its weights sum to 1. For one token they are
      the constant 1.

    Where networks keep ReLU, the module keeps kinks, whatever the attention does.

    Parameters
    ----------
    module
        Compiled encoder, or modules of :mod:`fourviews.attention` with ReLU attention, ``Linear``,
        ``ReLU`` and ``Sequential`` or ``ModuleList`` of them. Compiled encoders are written out
        with dense weights.
    activation
        Which.
    sharpness
        β > 0.
    networks
        Whether ReLUs of networks become softplus; by default with softplus only.

    Returns
    -------
    torch.nn.Module
        Same inputs and outputs; the domain of a compiled encoder is not checked any more.

    Raises
    ------
    ValueError
        If the activation is unknown, the sharpness not positive, or the attention not ReLU.
    """
    if activation not in ("softplus", "softmax"):
        raise ValueError(f'activation is {activation!r}; it needs to be "softplus" or "softmax"')
    if not isinstance(sharpness, numbers.Real) or not 0 < sharpness < math.inf:
        raise ValueError(f"sharpness is {sharpness!r}; it needs to be positive and finite")
    networks = activation == "softplus" if networks is None else networks
    if isinstance(module, CompiledEncoder):
        module = module.dense()
    return _replaced(copy.deepcopy(module), activation, float(sharpness), networks)


def _replaced(module: nn.Module, activation: str, sharpness: float, networks: bool) -> nn.Module:
    again = lambda part: _replaced(part, activation, sharpness, networks)  # noqa: E731
    if isinstance(module, MultiHeadAttention):
        if module.activation != "relu":
            raise ValueError(
                f"the attention is {module.activation}; only ReLU attention is smoothed"
            )
        return _SmoothAttention(module, activation, sharpness)
    if isinstance(module, FeedForward):
        return _SmoothNetwork(module, sharpness) if networks else module
    if isinstance(module, nn.ReLU):
        return _Softplus(sharpness) if networks else module
    if isinstance(module, (EncoderBlock, DecoderBlock)):
        return _SmoothBlock(module, again)
    if isinstance(module, (nn.Sequential, nn.ModuleList)):
        return (
            type(module)(*map(again, module))
            if isinstance(module, nn.Sequential)
            else type(module)(map(again, module))
        )
    if isinstance(module, (nn.Linear, nn.Identity)):
        return module
    raise ValueError(f"module is a {type(module).__name__}, which cannot be smoothed")


class _SmoothBlock(nn.Module):
    """A block's steps in their order, with the layers replaced."""

    def __init__(self, block, replaced):
        super().__init__()
        self.decoder = isinstance(block, DecoderBlock)
        self.causal = self.decoder or isinstance(block, _CausalBlock)
        self.attention = replaced(block.attention)
        self.around_attention = block.around_attention
        cross = getattr(block, "cross_attention", None)
        self.cross_attention = None if cross is None else replaced(cross)
        if cross is not None:
            self.around_cross_attention = block.around_cross_attention
        self.feed_forward = replaced(block.feed_forward)
        self.around_feed_forward = block.around_feed_forward

    def forward(self, x, memory=None, *, mask=None, causal=False):
        step = self.around_attention
        x = step.after(x, self.attention(step.before(x), mask=mask, causal=causal or self.causal))
        if self.cross_attention is not None:
            step = self.around_cross_attention
            x = step.after(x, self.cross_attention(step.before(x), memory))
        step = self.around_feed_forward
        return step.after(x, self.feed_forward(step.before(x)))


def smoothing_errors(
    module: nn.Module,
    x: Float[Tensor, "*batch s d"],
    sharpness: Sequence[float],
    activation: Smoothing = "softplus",
    *,
    networks: bool | None = None,
) -> list[float]:
    """Largest difference between ``module`` and its smoothed copies on ``x``, one a sharpness.

    Parameters
    ----------
    module, activation, networks
        As for :func:`smooth`.
    x
        Inputs, one or more.
    sharpness
        Several values of β.

    Returns
    -------
    list of float

    Raises
    ------
    ValueError
        As for :func:`smooth`, or if ``x`` is empty.
    """
    if not x.numel():
        raise ValueError(f"x has shape {tuple(x.shape)}; it needs one input or more")
    with torch.no_grad():
        reference = module(x)
        return [
            float((smooth(module, activation, beta, networks=networks)(x) - reference).abs().max())
            for beta in sharpness
        ]
