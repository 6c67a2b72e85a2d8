r"""Layers with the attention that was published and run, beside the energy that they are said to lower."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..energies.attention_energy import AttentionEnergy
from ..energies.feed_forward import FeedForwardEnergy
from ..inputs import check_integer, check_number, check_same_features, check_tokens
from ..steps.proximal import NonNegative
from ..steps.sums import SumEnergy

__all__ = ["PublishedTransformer"]

_SCORES = Literal["transposed", "energy"]


class PublishedTransformer(nn.Module):
    r"""L tied layers with the attention of the code of Yang et al. (2022), which are no descent method.

    .. math:: Y \leftarrow \operatorname{ReLU}\bigl[\operatorname{softmax}(Y W^\top W Y^\top)\,Y F\bigr]

    with one head, W from Xavier's normal law, step sizes 1, and F the matrix
    :math:`W_f W_f^\top` with its eigenvalues clipped at ``clip``.  (Their code has :math:`-F` and an
    offset in place of F, and both in its energy.)  The energy is that of the paper,

    .. math:: E(Y) = -\sum_{ij} e^{-\frac12\|(y_i-y_j)W\|^2} + \tfrac12\|YW\|^2
              + \tfrac12\operatorname{tr}(Y(I - F)Y^\top) + \varphi(Y) ,

    with :math:`\tfrac12\|(Y-X)W\|^2` for :math:`\tfrac12\|YW\|^2` if ``anchored``.  Its attention
    step has the scores :math:`YWW^\top Y^\top`, the factors :math:`\beta_j = e^{-\|y_jW\|^2/2}`,
    and the quadratic term's part in numerator and denominator.  The three differences can be taken
    back one by one; with all three, the layer is that of :class:`UnrolledTransformer` with
    ``step="alternating"``, full steps and the same weights.

    The class is for looking, not for training: at clipped eigenvalues the gradient is zero.

    Parameters
    ----------
    d, layers
        Features, and L ≥ 0.
    relu
        Whether layers end in ReLU.
    scores
        ``"transposed"`` for :math:`W^\top W`, ``"energy"`` for :math:`WW^\top`.
    reweighted
        Whether the softmax has its factors β.
    damped
        Whether the quadratic term takes part in the step; needs ``reweighted``, without which the
        sum of the weights has no scale.
    anchored
        Whether the quadratic term is about the input.
    clip
        Largest eigenvalue of F.
    seed
        Of the weights.
    dtype
        Of the weights.

    Raises
    ------
    ValueError
        On bad sizes, another word for ``scores``, ``damped`` without ``reweighted``, and ``clip``
        outside of (0, 1].
    """

    def __init__(
        self,
        d: int,
        layers: int = 12,
        *,
        relu: bool = False,
        scores: _SCORES = "transposed",
        reweighted: bool = False,
        damped: bool = False,
        anchored: bool = False,
        clip: float = 0.95,
        seed: int = 0,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        d, layers = check_integer(d, "d", 1), check_integer(layers, "layers", 0)
        if scores not in get_args(_SCORES):
            raise ValueError(f"scores is {scores!r}; it needs to be one of {get_args(_SCORES)}")
        if damped and not reweighted:
            raise ValueError("damped needs reweighted=True; without β the weights have no scale")
        check_number(clip, "clip", 0.0, 1.0, open=True)
        self.layers, self.relu, self.scores = layers, relu, scores
        self.reweighted, self.damped, self.anchored = reweighted, damped, anchored
        self.clip = float(clip)
        generator = torch.Generator().manual_seed(seed)

        def xavier() -> nn.Parameter:
            return nn.Parameter(torch.randn(d, d, generator=generator, dtype=dtype) / d**0.5)

        self.attention_weight, self.linear_weight = xavier(), xavier()

    def linear_map(self) -> Float[Tensor, "d d"]:
        """F, symmetric, with eigenvalues between 0 and ``clip``."""
        values, vectors = torch.linalg.eigh(self.linear_weight @ self.linear_weight.mT)
        F = (vectors * values.clamp(0, self.clip)) @ vectors.mT
        return 0.5 * (F + F.mT)

    def energy(self, X: Float[Tensor, "*batch n d"]) -> SumEnergy:
        """The energy of all layers for the input X; terms: attention, feed-forward."""
        attention = AttentionEnergy(
            confinement=0.0 if self.anchored else 1.0,
            weight=self.attention_weight,
            anchor=X if self.anchored else None,
            anchoring=1.0 if self.anchored else 0.0,
        )
        linear = FeedForwardEnergy(-self.linear_map())
        return SumEnergy((attention, linear), NonNegative() if self.relu else None)

    def attention(
        self, Y: Float[Tensor, "*batch n d"], X: Float[Tensor, "*batch n d"]
    ) -> Float[Tensor, "*batch n d"]:
        """The layer's attention, without its linear map.

        Parameters
        ----------
        Y
            The tokens of the layer.
        X
            The network's input, of the same shape.
        """
        W = self.attention_weight if self.scores == "energy" else self.attention_weight.mT
        U = Y @ W
        scores, half = U @ U.mT, 0.5 * U.square().sum(-1)
        if self.reweighted:
            scores = scores - half[..., None, :]
        mean = torch.softmax(scores, -1) @ Y
        if not self.damped:
            return mean
        # Σ_j w_ij = e^(−|u_i|²/2) Σ_j e^(score_ij), of which the mean takes its share beside ½.
        total = (torch.logsumexp(scores, -1) - half).exp()[..., None]
        pulled = 0.5 * X if self.anchored else 0.0
        return (total * mean + pulled) / (total + 0.5)

    def layer(
        self, Y: Float[Tensor, "*batch n d"], X: Float[Tensor, "*batch n d"]
    ) -> Float[Tensor, "*batch n d"]:
        """One layer at Y for the input X.

        Parameters
        ----------
        Y
            The tokens of the layer.
        X
            The network's input, of the same shape.
        """
        new = self.attention(Y, X) @ self.linear_map()
        return torch.relu(new) if self.relu else new

    def forward(self, X: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        """Tokens after all layers.

        Raises
        ------
        ValueError
            If X is no tensor of tokens, or of another width or dtype than the weights.
        """
        check_tokens(X, "X")
        check_same_features(self.attention_weight, X, len(self.attention_weight), "weight")
        Y = X
        for _ in range(self.layers):
            Y = self.layer(Y, X)
        return Y
