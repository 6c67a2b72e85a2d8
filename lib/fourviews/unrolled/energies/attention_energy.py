r"""The pair energy whose majorisation step is attention.

With scores in the space of :math:`U = YW` (one token a row),

.. math::
   E(Y) = \sum_{ij} a_{ij}\, \rho\bigl(\tfrac12\|u_i - u_j\|^2\bigr)
          + \tfrac\lambda2\|U\|_F^2 + \tfrac\mu2\|U - XW\|_F^2 .

**The step.**  Let :math:`w_{ij} = a_{ij}\rho'(\tfrac12\|u_i-u_j\|^2)` at the current tokens, D the
diagonal matrix of row sums of :math:`w`, :math:`L = D - w`, :math:`\kappa = \lambda + \mu`.  Then

.. math:: y_i \leftarrow \frac{\sum_j w_{ij} y_j + \tfrac\mu2 x_i}{\sum_j w_{ij} + \tfrac\kappa2}

never raises E, for every concave non-decreasing ρ, symmetric :math:`a \ge 0` and matrix W, square
and invertible or not.

*Proof.*  (1) ρ lies below its tangents, so E lies below the quadratic Q that has
:math:`w_{ij}\tfrac12\|u_i-u_j\|^2` in place of ρ, and Q touches E at the current tokens.  (2) Q has
gradient :math:`g = 2LU + \lambda U + \mu(U - XW)` and Hessian :math:`H = 2L + \kappa I` for each
column of U.  With :math:`M = 2D + \kappa I`,

.. math:: 2M - H = 2(D + w) + \kappa I \succeq 0 ,

since :math:`v^\top(D + w)v = \tfrac12\sum_{ij} w_{ij}(v_i + v_j)^2`.  (3) The step is
:math:`U - M^{-1}g`; its move Δ changes Q by :math:`-\langle\Delta, M\Delta\rangle +
\tfrac12\langle\Delta, H\Delta\rangle = -\tfrac12\langle\Delta, (2M - H)\Delta\rangle \le 0`.
So E falls by at least

.. math:: \tfrac12\sum_{ij} w_{ij}\|\delta_i + \delta_j\|^2 + \tfrac\kappa2\sum_i\|\delta_i\|^2 .

(4) The step takes U to :math:`PU + K XW` with matrices P and K that depend on U only.  So
:math:`Y \mapsto PY + KX` acts like that on U = YW, whatever W is. ∎

If every token has :math:`w_{ii} > 0` (as with ρ = exp and no pair left out), or κ > 0, the fall is
zero only at a fixed point, and fixed points are exactly the points where the gradient in U is zero.
For κ > 0 the step without :math:`\tfrac\kappa2` in the denominator, which Theorem 3.1 prints, does
raise E for some Y; three tokens at 30, 31, 31 are enough.

**Relaxed steps.**  The move times θ changes Q by
:math:`-\langle\Delta_\theta, ((\tfrac2\theta - 1)D + w + \kappa(\tfrac1\theta - \tfrac12)I)\Delta_\theta\rangle`.

- θ in [0, 1] is always safe: the matrix is at least :math:`D + w`.
- If w is positive semidefinite, θ in [0, 2] is safe.  It is for ρ = exp, log1 and log2 (ρ'
  completely monotone) if no pair is left out but those of padding.
- In general, by diagonal dominance, every
  :math:`\theta \le \min_i \frac{2D_i + \kappa}{2(D_i - w_{ii}) + \kappa/2}` is safe, a number ≥ 1.

Without semidefinite weights θ > 1 can raise E: two tokens on a graph without loops trade places
at θ = 1 (λ = 0) and move apart for every θ > 1.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..inputs import (
    broadcasts,
    check_matrix,
    check_number,
    check_relaxation,
    check_same_features,
    check_tokens,
)
from .distances import half_squared_distances
from .energy import Energy, Majoriser
from .pairs import pair_weights
from .rho import Rho, as_rho

__all__ = ["AttentionEnergy", "attention_energy", "attention_step"]


class AttentionEnergy(Energy):
    r"""Pair energy with confinement and anchor; its step is attention.

    .. math::
       E(Y) = \sum_{ij} a_{ij}\, \rho\bigl(\tfrac12\|(y_i - y_j)W\|^2\bigr)
              + \tfrac\lambda2\|YW\|_F^2 + \tfrac\mu2\|(Y - X)W\|_F^2

    With :math:`w_{ij} = a_{ij}\rho'(\tfrac12\|(y_i - y_j)W\|^2)` at the current tokens, a step is

    .. math::
       y_i \leftarrow \frac{\sum_j w_{ij} y_j + \tfrac\mu2 x_i}{\sum_j w_{ij} + \tfrac{\lambda + \mu}2}

    and never raises E; a step relaxed by θ goes θ times as far, and does not raise E for θ in [0, 1],
    for θ in [0, 2] if w is positive semidefinite, and up to :meth:`safe_relaxation`.  The text at
    the head of ``unrolled/attention_energy.py`` has the proofs.

    Parameters
    ----------
    rho
        ``"exp"``, ``"log1"``, ``"log2"`` or a :class:`~fourviews.unrolled.Rho`.
    confinement
        λ ≥ 0.
    weight
        W, ``(d, r)``; the identity if left out.
    graph
        Symmetric weights a ≥ 0 of the pairs, bool or float, broadcasting to ``(..., n, n)``; all
        ones if left out.  The diagonal is part of it: a loop damps its token's step.
    tokens
        ``True`` where there is a token, ``(..., n)``.  Padding takes no part and stays as it is.
    anchor, anchoring
        X ``(..., n, d)`` and μ ≥ 0.

    Raises
    ------
    ValueError
        On a negative or infinite λ or μ, an anchor without μ or μ without an anchor, a weight
        that is no finite matrix, and, once Y is known, on shapes and dtypes that do not fit, on a
        graph that is not symmetric and on a negative relaxation factor.
    """

    def __init__(
        self,
        rho: str | Rho = "exp",
        *,
        confinement: float = 0.0,
        weight: Float[Tensor, "d r"] | None = None,
        graph: Tensor | None = None,
        tokens: Tensor | None = None,
        anchor: Float[Tensor, "*batch n d"] | None = None,
        anchoring: float = 0.0,
    ) -> None:
        self.rho = as_rho(rho)
        for name, number in (("confinement", confinement), ("anchoring", anchoring)):
            check_number(number, name, 0.0)
        if (anchor is None) != (anchoring == 0):
            raise ValueError("anchor and anchoring > 0 need each other; one of them is missing")
        if weight is not None:
            check_matrix(weight, "weight", "(d, r)")
        if anchor is not None:
            check_tokens(anchor, "anchor")
        self.confinement, self.anchoring = float(confinement), float(anchoring)
        self.weight, self.graph, self.tokens, self.anchor = weight, graph, tokens, anchor
        self._norm: tuple[int, Tensor] | None = None
        self._one_graph = False  # whether all that is computed here belongs to one backward pass

    # --- what the current tokens say -------------------------------------------------------------

    def _prepare(self, Y: Tensor) -> tuple[Tensor, Tensor | None]:
        """Y with its padding silenced, and the pair weights."""
        check_tokens(Y)
        if self.weight is not None:
            check_same_features(self.weight, Y, self.weight.shape[0], "weight")
        if self.anchor is not None and (
            self.anchor.shape[-2:] != Y.shape[-2:]
            or self.anchor.dtype != Y.dtype
            or not broadcasts(self.anchor, Y.shape)
        ):
            raise ValueError(
                f"anchor is {tuple(self.anchor.shape)} {self.anchor.dtype}; Y is"
                f" {tuple(Y.shape)} {Y.dtype}; they need the same tokens, features and dtype"
            )
        pairs = pair_weights(Y, self.graph, self.tokens)
        return self._silence(Y), pairs

    def _silence(self, Y: Tensor) -> Tensor:
        # Padding is put where the others are, so that it does not spoil the distances' precision.
        if self.tokens is None:
            return Y
        present = self.tokens[..., None]
        Y = torch.where(present, Y, 0)
        mean = Y.sum(-2, keepdim=True) / present.sum(-2, keepdim=True).clamp_min(1)
        return torch.where(present, Y, mean)

    def _scores(self, Y: Tensor) -> Tensor:
        return Y if self.weight is None else _centre(Y) @ self.weight

    def _value_and_weights(self, Y: Tensor, pairs: Tensor | None) -> tuple[Tensor, Tensor]:
        z = half_squared_distances(self._scores(Y))
        if self.rho.name == "exp":  # value and slope are one exponential
            w = self.rho.slope(z)
            w = w if pairs is None else pairs * w
            return -w.sum((-2, -1)), w
        value, w = self.rho.value(z), self.rho.slope(z)
        if pairs is not None:
            value, w = pairs * value, pairs * w
        return value.sum((-2, -1)), w

    def _pull(self, Y: Tensor) -> Tensor | None:
        """λY + μ(Y − X) in token space, or None."""
        pull = None if self.confinement == 0 else self.confinement * Y
        if self.anchor is not None:
            drift = self.anchoring * self._drift(Y)
            pull = drift if pull is None else pull + drift
        if pull is not None and self.tokens is not None:
            pull = torch.where(self.tokens[..., None], pull, 0)
        return pull

    def _drift(self, Y: Tensor) -> Tensor:
        drift = Y - self.anchor
        return drift if self.tokens is None else torch.where(self.tokens[..., None], drift, 0)

    def _quadratic_terms(self, Y: Tensor) -> Tensor | float:
        total: Tensor | float = 0.0
        for strength, point in (
            (self.confinement, lambda: Y),
            (self.anchoring, lambda: self._drift(Y)),
        ):
            if strength:
                x = point() if self.weight is None else point() @ self.weight
                if self.tokens is not None:
                    x = torch.where(self.tokens[..., None], x, 0)
                total = total + 0.5 * strength * x.square().sum((-2, -1))
        return total

    def weights(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n n"]:
        r"""Attention weights before normalisation, :math:`w_{ij} = a_{ij}\rho'(\cdot)`."""
        Y, pairs = self._prepare(Y)
        return self._value_and_weights(Y, pairs)[1]

    # --- value, gradient, majorisers -------------------------------------------------------------

    def value(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch"]:
        """E(Y)."""
        Y, pairs = self._prepare(Y)
        return self._value_and_weights(Y, pairs)[0] + self._quadratic_terms(Y)

    def gradient(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        r""":math:`(2LU + \lambda U + \mu(U - XW))W^\top`."""
        Y, pairs = self._prepare(Y)
        w = self._value_and_weights(Y, pairs)[1]
        return self._to_tokens(self._force(Y, w))

    def _to_tokens(self, force: Tensor) -> Tensor:
        return force if self.weight is None else (force @ self.weight) @ self.weight.mT

    def _force(self, Y: Tensor, w: Tensor) -> Tensor:
        """2LY + λY + μ(Y − X)."""
        move, _ = _laplacian_move(Y, w)
        pull = self._pull(Y)
        return -2 * move if pull is None else pull - 2 * move

    def curvature(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n 1"]:
        r"""Row-wise bound of the Hessian :math:`(2L + \kappa I) \otimes WW^\top` of Q.

        :math:`L \preceq 2(D - \operatorname{diag} w)` always, and :math:`L \preceq D` if w is
        positive semidefinite; of the two, the one with the smaller maximum is taken.
        """
        Y, pairs = self._prepare(Y)
        w = self._value_and_weights(Y, pairs)[1]
        return self._curvature(w)

    def _curvature(self, w: Tensor) -> Tensor:
        rows = 4 * _without_loops(w).sum(-1, keepdim=True)
        if self.semidefinite and w.shape[-1]:
            other = 2 * w.sum(-1, keepdim=True)
            better = other.amax(-2, keepdim=True) < rows.amax(-2, keepdim=True)
            rows = torch.where(better, other, rows)
        rows = rows + self.confinement + self.anchoring
        if self.weight is not None:
            rows = rows * self._weight_norm().square()
        return rows

    def _weight_norm(self) -> Tensor:
        """Spectral norm of the weight, kept while the weight does not change.

        With gradients on it is computed anew, since a kept one would tie graphs together; but not
        inside of one forward pass, where they are tied anyway.
        """
        weight = self.weight
        recorded = torch.is_grad_enabled() and weight.requires_grad and not self._one_graph
        if recorded or weight.is_inference():
            return torch.linalg.matrix_norm(weight, 2)
        if self._norm is None or self._norm[0] != weight._version:
            self._norm = weight._version, torch.linalg.matrix_norm(weight, 2)
        return self._norm[1]

    def majoriser(self, Y: Float[Tensor, "*batch n d"]) -> Majoriser:
        """The quadratic with row curvatures above E, from one matrix of weights."""
        clean, pairs = self._prepare(Y)
        value, w = self._value_and_weights(clean, pairs)
        return Majoriser(
            Y,
            value + self._quadratic_terms(clean),
            self._to_tokens(self._force(clean, w)),
            self._curvature(w),
        )

    @property
    def semidefinite(self) -> bool:
        """Whether the weights are known to form a positive semidefinite matrix."""
        return self.rho.positive_definite and self.graph is None

    def quadratic(self, Y: Float[Tensor, "*batch n d"], Z: Float[Tensor, "*batch n d"]) -> Tensor:
        r"""Q(Z), the quadratic of the proof for the tokens Y; Q(Z) ≥ E(Z), Q(Y) = E(Y).

        Parameters
        ----------
        Y
            The tokens at which it touches the energy.
        Z
            Where it is evaluated, of the same shape.
        """
        Z, _ = self._prepare(Z)
        Y, pairs = self._prepare(Y)
        value, w = self._value_and_weights(Y, pairs)
        grown = half_squared_distances(self._scores(Z)) - half_squared_distances(self._scores(Y))
        return value + (w * grown).sum((-2, -1)) + self._quadratic_terms(Z)

    # --- steps -----------------------------------------------------------------------------------

    def step(
        self, Y: Float[Tensor, "*batch n d"], relaxation: float | Tensor = 1.0
    ) -> Float[Tensor, "*batch n d"]:
        r"""The attention step, or :math:`Y + \theta(\text{step} - Y)`; θ ≤ 1 never raises E.

        θ < 1 is a residual connection.  :meth:`safe_relaxation` says how far beyond 1 is safe.  A
        tensor that broadcasts to Y gives each text, say, its own factor (one for all its tokens).

        Parameters
        ----------
        Y
            Tokens.
        relaxation
            Relative length θ ≥ 0 of the step.
        """
        return self.value_and_step(Y, relaxation)[1]

    def value_and_step(
        self, Y: Float[Tensor, "*batch n d"], relaxation: float | Tensor = 1.0
    ) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch n d"]]:
        """E(Y) and the step from Y with two matrix products, one less than by two calls.

        Parameters
        ----------
        Y
            The tokens.
        relaxation
            Relative length θ ≥ 0 of the step, a number or one a sample.
        """
        clean, pairs = self._prepare(Y)
        check_relaxation(relaxation, Y)
        value, w = self._value_and_weights(clean, pairs)
        # The move, not the mean: what attends to nothing but itself stays exactly where it is.
        move, degree = _laplacian_move(clean, w)
        pull = self._pull(clean)
        if pull is not None:
            move = move - 0.5 * pull
        loops = w.diagonal(dim1=-2, dim2=-1)[..., None]
        stiffness = degree + loops + 0.5 * (self.confinement + self.anchoring)
        # A token without any weight has nothing to move it, and 0/0 is no answer.
        move = torch.where(stiffness > 0, move / torch.where(stiffness > 0, stiffness, 1), 0)
        if self.tokens is not None:
            move = torch.where(self.tokens[..., None], move, 0)
        return value + self._quadratic_terms(clean), Y + relaxation * move

    def safe_relaxation(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch"]:
        r"""Largest factor θ known to be safe at Y: at least 1, and 2 for semidefinite weights."""
        clean, pairs = self._prepare(Y)
        w = self._value_and_weights(clean, pairs)[1]
        kappa = self.confinement + self.anchoring
        above, below = 2 * w.sum(-1) + kappa, 2 * _without_loops(w).sum(-1) + 0.5 * kappa
        rows = torch.where(below > 0, above / torch.where(below > 0, below, 1), math.inf)
        if self.tokens is not None:
            rows = torch.where(self.tokens, rows, math.inf)
        if rows.shape[-1] == 0:
            return rows.new_full(rows.shape[:-1], math.inf)
        least = rows.amin(-1)
        return least.clamp_min(2.0) if self.semidefinite else least


def _without_loops(w: Tensor) -> Tensor:
    # Row sums of the other weights, not sums less the loop: those may be smaller than its rounding.
    others = w.clone()
    others.diagonal(dim1=-2, dim2=-1).zero_()
    return others


def _laplacian_move(Y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """wY − DY = −LY, computed about the mean token, and the row sums; both without loops."""
    others = _without_loops(w)
    degree = others.sum(-1, keepdim=True)
    centred = _centre(Y)
    return others @ centred - degree * centred, degree


def _centre(Y: Tensor) -> Tensor:
    return Y - Y.mean(-2, keepdim=True) if Y.shape[-2] else Y


def attention_energy(
    Y: Float[Tensor, "*batch n d"],
    rho: str | Rho = "exp",
    confinement: float = 0.0,
    weight: Float[Tensor, "d r"] | None = None,
    *,
    graph: Tensor | None = None,
    tokens: Tensor | None = None,
    anchor: Float[Tensor, "*batch n d"] | None = None,
    anchoring: float = 0.0,
) -> Float[Tensor, "*batch"]:
    r"""Energy :math:`E_1(YW) + \tfrac\lambda2\|YW\|_F^2` (Yang et al. 2022, Eq. 9).

    See :class:`AttentionEnergy` for the formula and the errors.

    Parameters
    ----------
    Y
        Tokens.
    rho
        The penalty: a :class:`Rho` or its name.
    confinement
        λ ≥ 0.
    weight
        W; the identity without it.
    graph, tokens, anchor, anchoring
        As for :class:`AttentionEnergy`.
    """
    return AttentionEnergy(
        rho,
        confinement=confinement,
        weight=weight,
        graph=graph,
        tokens=tokens,
        anchor=anchor,
        anchoring=anchoring,
    ).value(Y)


def attention_step(
    Y: Float[Tensor, "*batch n d"],
    rho: str | Rho = "exp",
    confinement: float = 0.0,
    weight: Float[Tensor, "d r"] | None = None,
    *,
    relaxation: float | Tensor = 1.0,
    graph: Tensor | None = None,
    tokens: Tensor | None = None,
    anchor: Float[Tensor, "*batch n d"] | None = None,
    anchoring: float = 0.0,
) -> Float[Tensor, "*batch n d"]:
    r"""Attention step :math:`y_i \leftarrow \sum_j w_{ij}y_j / (\sum_j w_{ij} + \tfrac\lambda2)`.

    With ``relaxation`` θ from 0 to 1 it never raises :func:`attention_energy` with the same
    arguments: the repaired form of Theorem 3.1 of Yang et al. (2022), whose step lacks
    :math:`\tfrac\lambda2`.  A larger θ may raise it; :meth:`AttentionEnergy.safe_relaxation` says
    how large θ can be.  For ρ = exp and λ = 0 it is
    softmax attention with scores :math:`YWW^\top Y^\top`, reweighted by
    :math:`\beta_j = e^{-\|u_j\|^2/2}`, u = YW.  See :class:`AttentionEnergy` for the other
    parameters and the errors.  For steps of a whole network, with feed-forward layers, see
    :class:`UnrolledTransformer` and :func:`descent_certificate`.

    Parameters
    ----------
    Y
        Tokens.
    rho
        The penalty: a :class:`Rho` or its name.
    confinement
        λ ≥ 0.
    weight
        W; the identity without it.
    relaxation
        Relative length θ ≥ 0 of the step, a number or one a sample.
    graph, tokens, anchor, anchoring
        As for :class:`AttentionEnergy`.
    """
    return AttentionEnergy(
        rho,
        confinement=confinement,
        weight=weight,
        graph=graph,
        tokens=tokens,
        anchor=anchor,
        anchoring=anchoring,
    ).step(Y, relaxation)
