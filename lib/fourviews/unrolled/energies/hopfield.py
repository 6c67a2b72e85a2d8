r"""The modern Hopfield energy, whose concave–convex step is cross-attention."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..inputs import check_matrix, check_number, check_relaxation, check_same_features
from .energy import TokenEnergy

__all__ = ["HopfieldEnergy"]


class HopfieldEnergy(TokenEnergy):
    r""":math:`E(y) = -\beta^{-1}\log\sum_{i=1}^m e^{\beta s_i^\top y} + \tfrac12\|y\|^2` a token.

    The m stored patterns are the rows of S ``(m, d)``.  The step

    .. math:: Y \leftarrow \operatorname{softmax}(\beta Y S^\top)\, S ,

    for one column y: :math:`S^\top\operatorname{softmax}(\beta S y)`, is attention with queries Y,
    keys and values S (Ramsauer et al. 2021).  *It never raises E*: the log-sum-exp is convex, so
    its negative lies below its tangent; the tangent plus :math:`\tfrac12\|y\|^2` is minimised by
    the step, and being 1-strongly convex it falls by at least
    :math:`\tfrac12\|y^{t+1} - y^t\|^2`.  The same quadratic shows that
    :math:`y + \theta(\text{step} - y)` is safe for θ in [0, 2]. ∎

    Parameters
    ----------
    patterns
        S, ``(m, d)`` with m ≥ 1.
    beta
        β > 0.
    tokens
        ``True`` where there is a query.

    Raises
    ------
    ValueError
        On an S that is empty, misshapen or not finite, β that is not positive and finite, a
        negative θ, and queries of another width or dtype than S.
    """

    def __init__(
        self,
        patterns: Float[Tensor, "m d"],
        beta: float = 1.0,
        *,
        tokens: Bool[Tensor, "*batch n"] | None = None,
    ) -> None:
        super().__init__(tokens)
        check_matrix(patterns, "patterns", "(m, d), m >= 1")
        if patterns.shape[0] == 0:
            raise ValueError(f"patterns has shape {tuple(patterns.shape)}; it needs (m, d), m >= 1")
        self.patterns, self.beta = patterns, check_number(beta, "beta", 0.0, open=True)

    def _check(self, Y: Tensor) -> None:
        super()._check(Y)
        check_same_features(self.patterns, Y, self.patterns.shape[1], "patterns")

    def _scores(self, Y: Tensor) -> tuple[Tensor, Tensor]:
        """Largest score of each query, and β times what the others are below it."""
        scores = Y @ self.patterns.mT
        top = scores.amax(-1, keepdim=True)
        # Not β times the scores: for large β that would be infinite, and its differences NaN.
        return top, self.beta * (scores - top)

    def _retrieved(self, Y: Tensor) -> Tensor:
        return torch.softmax(self._scores(Y)[1], -1) @ self.patterns

    def per_token(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n"]:
        """E of each token."""
        top, below = self._scores(Y)
        lse = top[..., 0] + torch.logsumexp(below, -1) / self.beta
        return 0.5 * Y.square().sum(-1) - lse

    def token_gradient(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        """y less its step."""
        return Y - self._retrieved(Y)

    def curvature(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n 1"]:
        """1: the concave part adds none."""
        return torch.ones_like(Y[..., :1])

    def step(
        self, Y: Float[Tensor, "*batch n d"], relaxation: float = 1.0
    ) -> Float[Tensor, "*batch n d"]:
        r"""Cross-attention on the patterns, relaxed by θ ≥ 0; θ ≤ 2 never raises the energy.

        Parameters
        ----------
        Y
            Tokens, each a state.
        relaxation
            Relative length θ ≥ 0 of the step.
        """
        self._check(Y)
        check_relaxation(relaxation, Y)
        clean = self._clean(Y)
        move = self._retrieved(clean) - clean
        return self._keep_padding(clean + relaxation * move, Y)
