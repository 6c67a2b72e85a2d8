r"""Sums of energies, with ReLU for the constraint that tokens be non-negative."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from ..energies.energy import Energy, Majoriser
from .proximal import NonNegative

__all__ = ["SumEnergy"]


class SumEnergy(Energy):
    r""":math:`E = \sum_k E_k + \varphi`, φ = 0 or the indicator of the non-negative orthant.

    The majorisers of the terms add up to one of the smooth part, with curvatures c.  The step

    .. math:: Y \leftarrow \operatorname{prox}_\varphi(Y - \theta\,c^{-1}\nabla E(Y)), \qquad
              0 \le \theta \le 2 ,

    one row with one step size, never raises E, from any Y.  *Proof.*  The step s minimises
    :math:`\langle g, s\rangle + \tfrac1{2\theta}\|s\|_c^2 + \varphi(Y + s)`, a function with
    strong convexity 1/θ in the norm of c and value φ(Y) at s = 0.  Hence
    :math:`\langle g, s\rangle + \varphi(Y+s) - \varphi(Y) \le -\tfrac1\theta\|s\|_c^2`, and the
    majoriser gives :math:`E(Y+s) - E(Y) \le -(\tfrac1\theta - \tfrac12)\|s\|_c^2 \le 0`.  If φ(Y)
    is infinite there is nothing to prove. ∎

    With the attention energy and the feed-forward energy this is a Transformer layer in which
    attention and linear map act side by side, with a residual connection, and nothing is asked
    about W_a or W_f.

    Parameters
    ----------
    terms
        Energies with a ``curvature``.
    constraint
        ``NonNegative()`` or None.

    Raises
    ------
    ValueError
        If there is no term, or one that is no :class:`Energy`.
    """

    def __init__(self, terms: Sequence[Energy], constraint: NonNegative | None = None) -> None:
        terms = tuple(terms) if isinstance(terms, Sequence) else terms
        if not isinstance(terms, tuple) or any(not isinstance(t, Energy) for t in terms):
            raise ValueError("terms needs to be a sequence of energies")
        if not terms:
            raise ValueError("terms is empty; a sum needs at least one energy")
        self.terms, self.constraint = tuple(terms), constraint

    def smooth_value(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch"]:
        """The sum without φ."""
        total = self.terms[0].value(Y)
        for term in self.terms[1:]:
            total = total + term.value(Y)
        return total

    def value(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch"]:
        """The sum with φ; infinite outside of the orthant if that is the constraint."""
        total = self.smooth_value(Y)
        return total if self.constraint is None else total + self.constraint.value(Y)

    def gradient(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        """Gradient of the smooth part."""
        total = self.terms[0].gradient(Y)
        for term in self.terms[1:]:
            total = total + term.gradient(Y)
        return total

    def curvature(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n 1"]:
        """Sum of the terms' curvatures, which majorise the smooth part."""
        total = self.terms[0].curvature(Y)
        for term in self.terms[1:]:
            total = total + term.curvature(Y)
        return total

    def majoriser(self, Y: Float[Tensor, "*batch n d"]) -> Majoriser:
        """Quadratic above the smooth part."""
        parts = [term.majoriser(Y) for term in self.terms]
        total = parts[0]
        for part in parts[1:]:
            total = Majoriser(
                Y,
                total.value + part.value,
                total.gradient + part.gradient,
                total.curvature + part.curvature,
            )
        return total

    def step(
        self, Y: Float[Tensor, "*batch n d"], relaxation: float = 1.0
    ) -> Float[Tensor, "*batch n d"]:
        """Proximal step on the majoriser.

        Parameters
        ----------
        Y
            Tokens.
        relaxation
            Relative length θ of the step, from 0 to 2.

        Raises
        ------
        ValueError
            If ``relaxation`` is outside of [0, 2], where descent is not guaranteed.
        """
        if not 0 <= relaxation <= 2:
            raise ValueError(f"relaxation is {relaxation}; it needs to lie in [0, 2]")
        new = self.majoriser(Y).minimiser(relaxation)
        return new if self.constraint is None else self.constraint.prox(new)
