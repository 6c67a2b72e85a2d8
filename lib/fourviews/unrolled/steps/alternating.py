r"""Alternating inexact minimisation: gradient steps on f and on g in turn, judged by h = f + g.

Algorithms 1 and 2 of Yang et al. (2022), with the conditions under which h really falls.

Let :math:`u = y - \alpha_1\nabla f(y)`, :math:`v = u - \alpha_2\nabla g(u)`, and :math:`y^+ = v`,
or :math:`y^+ = \operatorname{ReLU}(v)` for :math:`h + \varphi` with φ the indicator of the
non-negative orthant.  With

.. math:: \Delta = \nabla h(y) - \tfrac{\alpha_1}{\alpha_2}\nabla f(y) - \nabla g(u)

the step is :math:`v = y - \alpha_2(\nabla h(y) - \Delta)`.

**Theorem 4.1, repaired.**  Let ∇h have Lipschitz constant :math:`L_h`, ∇g have :math:`L_g`, and
:math:`0 < \alpha_2 \le 1/L_h`.  If :math:`\|\Delta\| \le \|\nabla h(y)\|`, then h does not rise.
This holds if

.. math:: \frac{\|\nabla f(y)\|}{\|\nabla h(y)\|} \le \mathcal L :=
          \frac{\alpha_2}{|\alpha_2 - \alpha_1| + \alpha_1\alpha_2 L_g} .

*Proof.*  The descent lemma gives :math:`h(v) - h(y) \le -\alpha_2\langle\nabla h, \nabla h -
\Delta\rangle + \tfrac{\alpha_2}2\|\nabla h - \Delta\|^2 = -\tfrac{\alpha_2}2(\|\nabla h\|^2 -
\|\Delta\|^2)`.  And :math:`\Delta = (1 - \tfrac{\alpha_1}{\alpha_2})\nabla f(y) + \nabla g(y) -
\nabla g(u)`, whose norm is at most :math:`\|\nabla f(y)\|/\mathcal L`. ∎

Neither convexity nor :math:`\alpha_1 \le \alpha_2` is used.  As printed, the condition is
:math:`\|\Delta\|/\|\nabla h\| \le \mathcal L`, where :math:`\mathcal L \ge 1` whenever
:math:`\alpha_1 \le \alpha_2 \le 1/L_g`; that is too weak (one-dimensional quadratics break it).

**Theorem 5.1, repaired and sharpened.**  With ReLU and y ≥ 0, h does not rise if
:math:`\alpha_2^2\|\Delta\|^2 \le G(y)`, where G adds for every coordinate :math:`s_i^2` if
:math:`s_i \le y_i` and :math:`y_i(2s_i - y_i)` otherwise, :math:`s = \alpha_2\nabla h(y)`.  With
:math:`\mathfrak D` and κ as in the source, :math:`G \ge (1-\kappa)\|s\|^2`, so that
:math:`\|\nabla f\|/\|\nabla h\| \le \sqrt{1-\kappa}\,\mathcal L` is enough: the printed factor
:math:`1/\sqrt2` is not needed.

*Proof.*  Let :math:`F(z) = \langle\nabla h, z-y\rangle + \tfrac1{2\alpha_2}\|z-y\|^2 + \varphi(z)`
and p its minimiser; :math:`G = 2\alpha_2(F(y) - F(p))` by inspection of one coordinate.  The step
minimises :math:`F - \langle\Delta, \cdot\rangle`, so with :math:`e = y^+ - p`,
:math:`F(y^+) - F(p) \le \langle\Delta, e\rangle - \tfrac1{2\alpha_2}\|e\|^2 \le
\tfrac{\alpha_2}2\|\Delta\|^2`.  Hence :math:`h(y^+) + \varphi - h(y) \le F(y^+) - F(y) \le
\tfrac{\alpha_2}2\|\Delta\|^2 - \tfrac1{2\alpha_2}G`. ∎
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from ..inputs import check_integer, check_number, check_tensor, check_tokens
from .descent import Descent

__all__ = [
    "AlternatingRun",
    "AlternatingStep",
    "Smooth",
    "alternate",
    "alternating_step",
    "orthant_alignment",
    "orthant_gain",
    "threshold",
]


@dataclass(frozen=True)
class Smooth:
    r"""A differentiable function of ``Y (..., n, d)`` with the constants that the theory uses.

    Attributes
    ----------
    value, gradient
        ``(..., n, d) → (...)`` and ``→ (..., n, d)``.
    lipschitz
        Lipschitz constant of the *gradient*, a number or one a leading index.
    convexity
        Modulus of strong convexity, 0 if there is none.
    minimiser
        Where it is smallest, if known.
    """

    value: Callable[[Tensor], Tensor]
    gradient: Callable[[Tensor], Tensor]
    lipschitz: float | Tensor
    convexity: float | Tensor = 0.0
    minimiser: Tensor | None = None


def _norm(Y: Tensor) -> Tensor:
    return torch.linalg.vector_norm(Y, dim=(-2, -1))


def threshold(
    step_f: float | Tensor, step_g: float | Tensor, lipschitz_g: float | Tensor
) -> Tensor:
    r""":math:`\mathcal L = \alpha_2/(|\alpha_2 - \alpha_1| + \alpha_1\alpha_2L_g)`.

    For :math:`\alpha_1 = \alpha_2 = \alpha` it is :math:`1/(\alpha L_g)` and grows without bound as
    α or :math:`L_g` goes to 0.  For another fixed ratio :math:`r = \alpha_1/\alpha_2` it tends to
    :math:`1/|1 - r|` only, for :math:`\alpha_1 \to 0` alone to 1, and it does not depend on
    :math:`L_f`: the growth like :math:`1/(\alpha_1\alpha_2L_fL_g)` of Remark 4.2 is not there.

    Parameters
    ----------
    step_f, step_g
        Step sizes :math:`\alpha_1` and :math:`\alpha_2`, positive.
    lipschitz_g
        Smoothness constant :math:`L_g` of g, at least 0.

    Raises
    ------
    ValueError
        If a step size is not positive and finite, or the constant negative or not finite.
    """
    a1, a2, lg = (torch.as_tensor(x, dtype=torch.float64) for x in (step_f, step_g, lipschitz_g))
    for name, x, positive in (
        ("step_f", a1, True),
        ("step_g", a2, True),
        ("lipschitz_g", lg, False),
    ):
        if not bool((x.isfinite() & ((x > 0) if positive else (x >= 0))).all()):
            raise ValueError(f"{name} needs to be finite and {'> 0' if positive else '>= 0'}")
    return a2 / ((a2 - a1).abs() + a1 * a2 * lg)


def _check_pair(step: Tensor, Y: Tensor) -> None:
    check_tokens(step, "step")
    check_tokens(Y)
    if step.shape != Y.shape or step.dtype != Y.dtype:
        raise ValueError(
            f"step is {tuple(step.shape)} {step.dtype}, Y is {tuple(Y.shape)} {Y.dtype}; they need"
            " the same shape and dtype"
        )


def orthant_alignment(
    step: Float[Tensor, "*batch n d"], Y: Float[Tensor, "*batch n d"]
) -> Float[Tensor, "*batch"]:
    r""":math:`\mathfrak D(s, y) = \|s\|^{-2}\sum_i\min(y_i^2 - s_i^2, 0)`, between −1 and 0.

    The region :math:`T(\kappa)` is where it is at least −κ; it *grows* with κ, to everything at
    κ = 1.  On a face of the orthant (:math:`y_i = 0`, :math:`s_i \ne 0`), where ReLU puts its
    tokens, it does not tend to 0 with the step size.  For s = 0 it is 0.

    Parameters
    ----------
    step
        The step s, such as :math:`\alpha_2\nabla h(y)`.
    Y
        The tokens y, of the same shape.

    Raises
    ------
    ValueError
        If the two are no tokens of the same shape and dtype.
    """
    _check_pair(step, Y)
    if step[..., :1, :1].numel() == 0:
        return step.new_zeros(step.shape[:-2])
    # In units of the largest entry, so that squares neither overflow nor vanish.
    largest = step.abs().amax((-2, -1), keepdim=True)
    unit = torch.where(largest == 0, 1, largest)
    s, y = step / unit, torch.where(Y.abs() < step.abs(), Y, step) / unit
    size, lost = s.square().sum((-2, -1)), (y.square() - s.square()).sum((-2, -1))
    return lost / torch.where(size == 0, 1, size)


def orthant_gain(
    step: Float[Tensor, "*batch n d"], Y: Float[Tensor, "*batch n d"]
) -> Float[Tensor, "*batch"]:
    r"""G of the module's text for s = ``step`` and y = ``Y`` ≥ 0.

    It is :math:`2\alpha_2` times what an exact proximal gradient step gains on its model, and at
    least :math:`(1 + \mathfrak D)\|s\|^2`.

    Parameters
    ----------
    step
        The step s.
    Y
        The tokens y, of the same shape.

    Raises
    ------
    ValueError
        If the two are no tokens of the same shape and dtype.
    """
    _check_pair(step, Y)
    return torch.where(step <= Y, step.square(), Y * (2 * step - Y)).sum((-2, -1))


@dataclass(frozen=True)
class AlternatingStep(Descent):
    r"""One step and what the theory says about it; every number has the leading shape ``(...)``.

    Attributes
    ----------
    half, new
        u and y⁺.
    before, after
        h (plus φ) at y and at y⁺.
    rounding
        What the two computed values may be off by: 16 ε times the sizes of f and g.
    noise_ratio
        :math:`\|\Delta\|/\|\nabla h\|`, the δ of the source's definition.
    gradient_ratio
        :math:`\|\nabla f\|/\|\nabla h\|`, the δ for which its theorem holds.
    threshold
        𝓛, times :math:`\sqrt{1-\kappa}` with ReLU.
    kappa
        :math:`-\mathfrak D`, 0 without ReLU.
    step_sizes_fit
        Whether :math:`\alpha_2 \le 1/L_h`.
    by_gradient, by_noise
        Whether h cannot rise by the condition on ``gradient_ratio``, and by the weaker one on Δ.
    printed
        Whether the condition holds as printed: δ = ``noise_ratio``, the printed threshold, and
        :math:`\alpha_1 \le \alpha_2 \le 1/L_h`.
    """

    half: Tensor
    new: Tensor
    before: Tensor
    after: Tensor
    rounding: Tensor
    noise_ratio: Tensor
    gradient_ratio: Tensor
    threshold: Tensor
    kappa: Tensor
    step_sizes_fit: Tensor
    by_gradient: Tensor
    by_noise: Tensor
    printed: Tensor

    @property
    def guaranteed(self) -> Tensor:
        """Whether the theory forbids a rise."""
        return self.by_gradient | self.by_noise


def alternating_step(
    f: Smooth,
    g: Smooth,
    Y: Float[Tensor, "*batch n d"],
    step_f: float,
    step_g: float,
    *,
    relu: bool = False,
    lipschitz: float | Tensor | None = None,
) -> AlternatingStep:
    r"""One round of Algorithm 1, or of Algorithm 2 with ``relu``, with its certificate.

    Parameters
    ----------
    f, g
        The two objectives.
    Y
        The current point.
    step_f, step_g
        :math:`\alpha_1, \alpha_2 > 0`.
    relu
        Finish with the proximal map of the non-negative orthant.
    lipschitz
        :math:`L_h`; :math:`L_f + L_g` if left out.

    Raises
    ------
    ValueError
        If a step size is not positive and finite, a Lipschitz constant negative or NaN, Y no
        tensor of tokens, or a value or gradient has another shape than :class:`Smooth` demands.

    Where a gradient or an energy is not finite nothing is certified.
    """
    check_tokens(Y)
    step_f = check_number(step_f, "step_f", 0.0, open=True)
    step_g = check_number(step_g, "step_g", 0.0, open=True)
    grad_f, grad_g = f.gradient(Y), g.gradient(Y)
    for name, gradient in (("f", grad_f), ("g", grad_g)):
        check_tensor(gradient, f"the gradient of {name}")
        if gradient.shape != Y.shape:
            raise ValueError(
                f"the gradient of {name} has shape {tuple(gradient.shape)}; it needs that of Y,"
                f" {tuple(Y.shape)}"
            )
    grad_h = grad_f + grad_g
    half = Y - step_f * grad_f
    grad_g_half = g.gradient(half)
    new = half - step_g * grad_g_half
    if relu:
        new = torch.relu(new)
    noise = (1 - step_f / step_g) * grad_f + (grad_g - grad_g_half)
    norms_f, norms_h, norms_noise = _norm(grad_f), _norm(grad_h), _norm(noise)

    def number(x: float | Tensor) -> Tensor:
        return torch.as_tensor(x, dtype=Y.dtype, device=Y.device)

    lipschitz_h = number(f.lipschitz) + number(g.lipschitz) if lipschitz is None else lipschitz
    lipschitz_h = number(lipschitz_h)
    if not bool((lipschitz_h >= 0).all()):
        raise ValueError("lipschitz is negative or NaN; it needs to be >= 0")
    fits = (step_g * lipschitz_h <= 1).expand(norms_h.shape)
    limit = threshold(step_f, step_g, g.lipschitz).to(Y).expand(norms_h.shape)
    printed_limit = limit
    values = f.value(Y), g.value(Y), f.value(new), g.value(new)
    for name, value in zip("fgfg", values, strict=True):
        check_tensor(value, f"the value of {name}")
        if value.shape != norms_h.shape:
            raise ValueError(
                f"the value of {name} has shape {tuple(value.shape)}; it needs"
                f" {tuple(norms_h.shape)}, one number for each leading index of Y"
            )
    before, kappa = values[0] + values[1], torch.zeros_like(norms_h)
    sound = torch.stack([norms_f, norms_h, norms_noise, *values]).isfinite().all(0)
    inside = torch.ones_like(fits)
    if relu:
        inside = (Y >= 0).all(-1).all(-1)
        kappa = -orthant_alignment(step_g * grad_h, Y)
        limit = limit * (1 - kappa).clamp_min(0).sqrt()
        printed_limit = limit / 2**0.5
        gain = orthant_gain(step_g * grad_h, Y)
        enough = step_g**2 * norms_noise**2 <= gain
        sound = sound & gain.isfinite()
        before = torch.where(inside, before, float("inf"))
    else:
        enough = norms_noise <= norms_h
    after = values[2] + values[3]
    rounding = 16 * torch.finfo(Y.dtype).eps * sum(value.abs() for value in values)
    safe = torch.where(norms_h > 0, norms_h, 1)

    def ratio(x: Tensor) -> Tensor:
        return torch.where(norms_h > 0, x / safe, torch.where(x > 0, float("inf"), 0.0))

    # From outside of the orthant the energy is infinite and any step lowers it.
    by_gradient = sound & ((fits & (norms_f <= limit * norms_h)) | ~inside)
    by_noise = sound & ((fits & enough) | ~inside)
    printed = sound & fits & (norms_noise <= printed_limit * norms_h) & (step_f <= step_g)
    return AlternatingStep(
        half=half,
        new=new,
        before=before,
        after=after,
        rounding=rounding,
        noise_ratio=ratio(norms_noise),
        gradient_ratio=ratio(norms_f),
        threshold=limit,
        kappa=kappa,
        step_sizes_fit=fits,
        by_gradient=by_gradient,
        by_noise=by_noise,
        printed=printed,
    )


@dataclass
class AlternatingRun:
    """The steps of a run, in order.

    Parameters
    ----------
    start
        The tokens before the first step.
    steps
        What each step did, and its certificate.
    """

    start: Tensor
    steps: list[AlternatingStep] = field(default_factory=list)

    @property
    def values(self) -> Tensor:
        """h before the first and after every step, ``(steps + 1, ...)``; empty without steps."""
        if not self.steps:
            return self.start.new_zeros((0, *self.start.shape[:-2]))
        return torch.stack([self.steps[0].before, *(step.after for step in self.steps)])

    @property
    def points(self) -> Tensor:
        """y before the first and after every step, ``(steps + 1, ..., n, d)``."""
        return torch.stack([self.start, *(step.new for step in self.steps)])

    def report(self) -> str:
        """One line a step: where descent is guaranteed, observed or broken."""
        lines = ["step  h before        h after         ratio     threshold  kappa   descent"]
        for i, step in enumerate(self.steps):
            lines.append(
                f"{i:4d}  {float(step.before.sum()):14.7g}  {float(step.after.sum()):14.7g}"
                f"  {float(step.gradient_ratio.max()):8.3g}  {float(step.threshold.min()):9.3g}"
                f"  {float(step.kappa.max()):6.3f}  {'/'.join(sorted(set(step.status())))}"
            )
        return "\n".join(lines)


def alternate(
    f: Smooth,
    g: Smooth,
    Y: Float[Tensor, "*batch n d"],
    step_f: float,
    step_g: float,
    steps: int,
    *,
    relu: bool = False,
    lipschitz: float | Tensor | None = None,
) -> AlternatingRun:
    """Run :func:`alternating_step` and keep every certificate.

    Parameters
    ----------
    f, g
        The two functions.
    Y
        The tokens at the start.
    step_f, step_g
        Step sizes, positive.
    steps
        Number of cycles, 0 or more.
    relu
        Whether ReLU ends each cycle.
    lipschitz
        Smoothness constant of f + g; the sum of the two without it.

    Raises
    ------
    ValueError
        If ``steps`` is negative or no integer, or as :func:`alternating_step`.
    """
    check_tokens(Y)
    steps = check_integer(steps, "steps", 0)
    run = AlternatingRun(Y)
    for _ in range(steps):
        step = alternating_step(f, g, Y, step_f, step_g, relu=relu, lipschitz=lipschitz)
        run.steps.append(step)
        Y = step.new
    return run
