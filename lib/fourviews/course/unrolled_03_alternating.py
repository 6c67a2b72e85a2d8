"""Checks of the lesson «Two steps, one energy»."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from .checking import close, exercise, number, require, run, tensor
from .draws import gaussian


def _bowl(generator: Generator, d: int, least: float = 0.3) -> Tensor:
    A = gaussian(generator, d, d)
    return A @ A.T / d + least * torch.eye(d, dtype=torch.float64)


@exercise("ex-aim-noise")
def error_of_a_cycle(generator: Generator, cycle: Callable) -> None:
    """End point and error against their definitions, with unequal steps and two bowls."""
    y, p, q = gaussian(generator, 3), gaussian(generator, 3), gaussian(generator, 3)
    F, G = _bowl(generator, 3), _bowl(generator, 3)

    def grad_f(z: Tensor) -> Tensor:
        return (z - p) @ F

    def grad_g(z: Tensor) -> Tensor:
        return (z - q) @ G

    a1, a2 = 0.1, 0.25
    pair = run(cycle, grad_f, grad_g, y, a1, a2)
    require(
        isinstance(pair, tuple | list) and len(pair) == 2,
        "cycle must return two tensors, the new point and the error",
    )
    new, noise = tensor(pair[0], (3,), "the new point"), tensor(pair[1], (3,), "the error")
    u = y - a1 * grad_f(y)
    close(new, u - a2 * grad_g(u), "the new point is not u − α₂ ∇g(u) with u = y − α₁ ∇f(y)")
    h = grad_f(y) + grad_g(y)
    close(
        y - a2 * (h - noise),
        new,
        "the step y − α₂(∇h(y) − Δ) does not lead to the new point",
    )


@exercise("ex-aim-ball")
def ball(generator: Generator, exceptional_ball: Callable) -> None:
    """The ball, its shrinking, and points outside of it at which the sum must not rise."""
    d = 3
    F, G = _bowl(generator, d), _bowl(generator, d)
    p, q = gaussian(generator, d), gaussian(generator, d)
    tops = [float(torch.linalg.eigvalsh(M)[-1]) for M in (F, G, F + G)]
    c = float(torch.linalg.eigvalsh(F + G)[0])
    longest = min(1 / tops[2], c / (tops[0] * tops[1]))
    goal = torch.linalg.solve(F + G, F @ p + G @ q)
    radii = []
    for share in (0.8, 0.4, 0.1):
        alpha = share * longest
        pair = run(exceptional_ball, F, p, G, q, alpha)
        require(
            pair is not None,
            "α is within 1/L_h and below c_h/(L_f L_g), with the eigenvalues of F + G for L_h "
            "and c_h: the corollary proves something",
        )
        require(
            isinstance(pair, tuple | list) and len(pair) == 2,
            "exceptional_ball must return the pair (centre, radius) or None",
        )
        centre, radius = tensor(pair[0], (d,), "the centre"), number(pair[1], "the radius")
        require(radius > 0, "the minimisers differ, so the radius is positive")
        require(
            float((centre - goal).norm()) < radius,
            "the minimiser of f + g does not lie in the ball",
        )
        k = c / (alpha * tops[0] * tops[1])
        way = gaussian(generator, 200, d)
        edge = centre + radius * way / way.norm(dim=1, keepdim=True)
        ratio = (edge - p).norm(dim=1) / (edge - goal).norm(dim=1)
        require(
            float(ratio.max() - ratio.min()) < 1e-6 * float(ratio.max()),
            "on the sphere the ratio of the distances to the two minimisers is not constant: the "
            "centre or the radius is not that of a sphere of Apollonius",
        )
        close(
            ratio.mean(),
            torch.tensor(k, dtype=torch.float64),
            "the ratio of distances on the sphere is not c_h/(α L_f L_g)",
            rtol=1e-6,
        )
        radii.append(radius)
    require(radii == sorted(radii, reverse=True), "shorter steps need a smaller ball")
    require(
        run(exceptional_ball, F, p, G, q, 1.01 / tops[2]) is None,
        "for α > 1/L_h the corollary proves nothing: return None",
    )


@exercise("ex-aim-certify")
def certificate(generator: Generator, certified: Callable) -> None:
    """In the interior, at walls, and never where the energy rises."""
    seen = {True: 0, False: 0}
    for _ in range(120):
        p, q, y = gaussian(generator, 3), gaussian(generator, 3), gaussian(generator, 3).relu()

        def grad_f(z: Tensor, p: Tensor = p) -> Tensor:
            return z - p

        def grad_g(z: Tensor, q: Tensor = q) -> Tensor:
            return z - q

        a = 0.5  # = 1/L_h
        answer = run(certified, grad_f, grad_g, y, a, a)
        require(
            isinstance(answer, bool | Tensor) and bool(answer) in (True, False),
            "certified must return True or False",
        )
        got = bool(answer)
        u = y - a * (y - p)
        new = (u - a * (u - q)).relu()

        def h(z: Tensor, p: Tensor = p, q: Tensor = q) -> float:
            return 0.5 * float((z - p).square().sum() + (z - q).square().sum())

        require(
            not (got and h(new) > h(y) + 1e-9),
            "a step is certified, and f + g rises",
        )
        gradient = 2 * y - p - q
        noise = a * (y - p)
        # An exact proximal step on the model gains this much.
        best = (y - a * gradient).relu() - y
        gain = -float((2 * a * gradient * best + best * best).sum())
        margin = gain - a * a * float(noise @ noise)
        if abs(margin) > 1e-6:
            require(
                got or margin < 0,
                "a step that part 1 of the theorem certifies is not certified",
            )
            require(
                margin > 0 or not got,
                "a step is certified that part 1 of the theorem does not certify",
            )
        seen[got] += 1
    require(min(seen.values()) > 0, "certified gives the same answer for all points")
