r"""Whether a layer's descent was bound to happen: per layer and per text, with the constants."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..steps.alternating import orthant_gain
from ..steps.descent import Descent
from .transformer import UnrolledTransformer

__all__ = ["LayerCertificate", "descent_certificate"]


@dataclass(frozen=True)
class LayerCertificate(Descent):
    r"""One layer; every tensor has the leading shape ``(...)`` of the input.

    The theory is applied to the majoriser at the layer's input Y: the quadratic that lies above E
    and touches it there, in the metric of its row curvatures c.  With S the layer's step before
    φ's proximal map and g the gradient, :math:`\Delta = g - \tau c S` is the noise with which S is
    a gradient step of length 1/τ, τ ≥ 1; the τ that makes it smallest is taken.

    Attributes
    ----------
    before, after
        The layer's energy at its input and its output.
    rounding
        What the two computed energies may be off by: 16 ε times the sizes of their terms.
    curvature
        Largest c, the Lipschitz constant of the majoriser's gradient.
    scale
        τ; the step is that much shorter than the curvature would allow.
    noise_ratio
        :math:`\|\Delta\|/\|g\|` in the norm of :math:`1/(\tau c)`.
    limit
        What ``noise_ratio`` may be: 1, and less where ReLU takes a part of the step back.
    bound
        The majoriser's change from input to output, an upper bound of the energy's change.
    by_construction, by_theorem, by_bound
        Guaranteed for every input and weight; because ``noise_ratio`` is within ``limit``
        (theorems 4.1 and 5.1, repaired); because ``bound`` is not positive.  The last uses the
        layer's output, the others do not.
    """

    before: Tensor
    after: Tensor
    rounding: Tensor
    curvature: Tensor
    scale: Tensor
    noise_ratio: Tensor
    limit: Tensor
    bound: Tensor
    by_construction: Tensor
    by_theorem: Tensor
    by_bound: Tensor

    @property
    def guaranteed(self) -> Tensor:
        """Whether descent was bound to happen."""
        return self.by_construction | self.by_theorem | self.by_bound


def descent_certificate(
    model: UnrolledTransformer,
    X: Float[Tensor, "*batch n d"],
    tokens: Bool[Tensor, "*batch n"] | None = None,
) -> list[LayerCertificate]:
    r"""Run the model on X and say for each layer whether its descent was guaranteed.

    Three ways, each enough by itself:

    1. *Construction.*  The joint step never raises its energy.
    2. *Theorem.*  Without ReLU, :math:`\|\Delta\| \le \|g\|`; with ReLU and Y ≥ 0,
       :math:`\|\Delta\|^2 \le G` with G from :func:`orthant_gain`, all in the norm of
       :math:`1/(\tau c)`.
    3. *Bound.*  The exact quadratic majoriser does not rise from Y to the output.

    From an input outside of the orthant, where φ is infinite, descent is trivial and counts as by
    construction.  Comparisons leave room for rounding: what is equal to rounding is not certified,
    unless the layer does not move at all.  Where an energy is not finite, by NaN or overflow,
    nothing is certified.

    Parameters
    ----------
    model
        The network.
    X
        Its input.
    tokens
        ``True`` at real tokens, ``False`` at padding.

    Returns
    -------
    list of LayerCertificate
        One a layer.  ``fell`` says what happened, ``guaranteed`` whether it was bound to happen.

    Raises
    ------
    ValueError
        If shapes or dtypes do not fit, or ``model`` is no UnrolledTransformer.
    """
    if not isinstance(model, UnrolledTransformer):
        raise ValueError(f"model is a {type(model).__name__}; it needs an UnrolledTransformer")
    model._check_input(X)
    certificates, Y = [], X
    with torch.no_grad():
        for layer in range(model.layers):
            if layer == 0 or not model.tied:
                energy = model.energy(layer, X, tokens)
            moved = model.move(energy, Y)
            new = model._finish(moved, Y, tokens)
            certificates.append(_certificate(model, energy, Y, moved, new, tokens))
            Y = new
    return certificates


def _certificate(model, energy, Y, moved, new, tokens) -> LayerCertificate:
    eps = torch.finfo(Y.dtype).eps

    def present(Z: Tensor) -> Tensor:
        return Z if tokens is None else torch.where(tokens[..., None], Z, 0)

    def total(Z: Tensor) -> Tensor:
        return Z.sum((-2, -1))

    old, out = present(Y), present(new)
    g, c = energy.gradient(Y), energy.curvature(Y)
    S = old - present(moved)
    positive = c > 0
    inverse = torch.where(positive, 1 / torch.where(positive, c, 1), 0)
    gS, SS, gg = total(g * S), total(c * S * S), total(inverse * g * g)

    def ratio(a: Tensor, b: Tensor, otherwise: float) -> Tensor:
        return torch.where(b > 0, a / torch.where(b > 0, b, 1), otherwise)

    scale = ratio(gS, SS, 1.0).clamp_min(1.0)
    tau = scale[..., None, None]
    noise = g - tau * c * S
    size, noise_size = gg / scale, total(inverse * noise * noise) / scale
    inside = torch.ones_like(gS, dtype=torch.bool)
    gain = size
    if model.relu:
        inside = (old >= 0).all(-1).all(-1)
        # orthant_gain is for the plain norm; √(τc) carries it to the metric.
        root = (tau * c).sqrt()
        step = torch.where(positive, g / torch.where(positive, root, 1), 0)
        gain = orthant_gain(step, root * old)
    room = 64 * eps * max(Y.shape[-1], 1) ** 0.5
    still = (out == old).all(-1).all(-1)
    by_theorem = (noise_size <= gain - room * (size + noise_size)) | still
    bound, bound_size = _quadratic_change(energy, Y, old, out, g)
    n = max(Y.shape[-2], 1)
    by_bound = (bound <= -room * n * bound_size) | still
    constructed = torch.full_like(inside, model.step_kind == "joint")
    sizes = _sizes(energy, Y) + _sizes(energy, new)
    sound = sizes.isfinite() & gg.isfinite()
    return LayerCertificate(
        before=energy.value(Y),
        after=energy.value(new),
        rounding=16 * eps * sizes,
        curvature=c.amax((-2, -1)) if c.numel() else gS,
        scale=scale,
        noise_ratio=ratio(noise_size, size, 0.0).clamp_min(0).sqrt(),
        limit=ratio(gain, size, 1.0).clamp_min(0).sqrt(),
        bound=bound,
        by_construction=(constructed | ~inside) & sound,
        by_theorem=by_theorem & inside & sound,
        by_bound=by_bound & inside & sound,
    )


def _sizes(energy, Y) -> Tensor:
    """Sum of the terms' absolute values: pair energy and quadratic terms may nearly cancel."""
    attention, linear = energy.terms
    clean, pairs = attention._prepare(Y)
    pair, _ = attention._value_and_weights(clean, pairs)
    return pair.abs() + attention._quadratic_terms(clean) + linear.value(Y).abs()


def _quadratic_change(energy, Y, old, out, g) -> tuple[Tensor, Tensor]:
    """Change of the exact majoriser from Y to the output, and the size of its terms."""
    attention, linear = energy.terms
    move = out - old
    w = attention.weights(Y)
    U = move @ attention.weight
    centred = U - U.mean(-2, keepdim=True) if U.shape[-2] else U
    degree = w.sum(-1, keepdim=True)
    spread = (centred * (degree * centred - w @ centred)).sum((-2, -1))
    kappa = attention.confinement + attention.anchoring
    bend = spread + 0.5 * kappa * U.square().sum((-2, -1))
    bend = bend + 0.5 * (move * (move @ linear.hessian)).sum((-2, -1))
    slope = g * move
    return slope.sum((-2, -1)) + bend, slope.abs().sum((-2, -1)) + bend.abs()
