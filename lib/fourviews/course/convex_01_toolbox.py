"""Checks of the exercises of the lesson on the convex toolbox."""

from __future__ import annotations

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from .. import convex
from .checking import close, exercise, number, require, run, tensor
from .draws import between, gaussian


def _share(generator: torch.Generator, low: float, high: float) -> float:
    return low + (high - low) * float(torch.rand(1, generator=generator))


def _prox_faults(point: Tensor, answer: Tensor, threshold: float) -> str:
    r"""What keeps `answer` from being the proximal map of τ‖·‖_* at `point`; empty if nothing.

    W is the minimiser exactly if D = point − W has ‖D‖₂ ≤ τ and ⟨D, W⟩ = τ‖W‖_*.
    """
    D = point - answer
    polar = float(convex.spectral_norm(D))
    scale = 1 + float(convex.spectral_norm(point))
    if polar > threshold + 1e-9 * scale:
        return f"has spectral norm {polar:.4g}, above the threshold {threshold:.4g}"
    norm = float(convex.nuclear_norm(answer))
    inner = float((D * answer).sum())
    if abs(inner - threshold * norm) > 1e-9 * scale * (1 + norm):
        return (
            f"has inner product {inner:.4g} with the result, not the threshold times its "
            f"nuclear norm, {threshold * norm:.4g}"
        )
    return ""


@exercise("ex-toolbox-step")
def proximal_step(generator, prox, step):
    p = between(generator, 3, 6)
    q = p + (1 if between(generator, 0, 1) else -1)
    for shape in ((p, q), (q, p)):
        Z = gaussian(generator, *shape)
        tau = _share(generator, 0.3, 0.7) * float(convex.spectral_norm(Z))
        W = tensor(run(prox, Z, tau), shape, "prox(Z, tau)", dtype=Z.dtype)
        fault = _prox_faults(Z, W, tau)
        require(not fault, f"prox(Z, tau) is not the minimiser: Z − prox(Z, tau) {fault}")

    # An optimum to order: weights W and a gradient −beta·D that the optimality conditions allow.
    n, rank = p + between(generator, 2, 5), 2
    X = gaussian(generator, n, p)
    left, _ = torch.linalg.qr(gaussian(generator, p, min(p, q)))
    right, _ = torch.linalg.qr(gaussian(generator, q, min(p, q)))
    sizes = torch.zeros(min(p, q), dtype=torch.float64)
    sizes[:rank] = 1 + torch.rand(rank, generator=generator, dtype=torch.float64)
    slopes = torch.full_like(sizes, _share(generator, 0.2, 0.8))
    slopes[:rank] = 1
    Z, D = (left * sizes) @ right.T, (left * slopes) @ right.T
    beta = _share(generator, 0.5, 3.0)
    Y = X @ (Z + beta * torch.linalg.solve(X.T @ X, D))
    kept = tensor(run(step, X, Y, Z, beta), (p, q), "step(X, Y, Z, beta)", dtype=Z.dtype)
    moved = float((kept - Z).abs().max())
    require(moved < 1e-8, f"your step moves a point that is already optimal, by up to {moved:.2g}")

    Z, Y = gaussian(generator, p, q), gaussian(generator, n, q)
    t = 1 / float(convex.spectral_norm(X)) ** 2
    new = tensor(run(step, X, Y, Z, beta), (p, q), "step(X, Y, Z, beta)", dtype=Z.dtype)
    G = torch.stack([X.T @ (X @ Z[:, k] - Y[:, k]) for k in range(q)], dim=1)
    fault = _prox_faults(Z - t * G, new, t * beta)
    require(
        not fault,
        "the step from a random Z is not the proximal map, with the right threshold, of a "
        f"gradient step of size 1/‖X‖₂²: what it takes away {fault}",
    )


@exercise("ex-toolbox-certificate")
def own_certificate(generator, lower_bound):
    n, p = between(generator, 8, 12), between(generator, 3, 5)
    q = between(generator, 2, 4)
    X, Y = gaussian(generator, n, p), gaussian(generator, n, q)
    beta = _share(generator, 0.2, 0.6) * float(convex.spectral_norm(X.T @ Y))
    solution = convex.solve(convex.MLP(X, Y, beta=beta), tol=1e-10)
    best = X @ solution.coefficients
    predictions = {
        "F = 0": torch.zeros_like(Y),
        "random F": gaussian(generator, n, q),
        "F = 3Y": 3 * Y,
        "F near the best predictions": best + 0.01 * gaussian(generator, n, q),
        "the best predictions F": best,
    }
    for name, F in predictions.items():
        R = F - Y
        limit = beta / float(convex.spectral_norm(X.T @ R))

        def loss_of(s: float, R: Tensor = R) -> float:
            return float(0.5 * (s * R).square().sum() + s * (R * Y).sum())

        inside = minimize_scalar(
            loss_of, bounds=(-limit, limit), method="bounded", options={"xatol": 1e-9 * limit}
        )
        most = -min(loss_of(-limit), loss_of(limit), float(inside.fun))
        bound = number(run(lower_bound, X, Y, beta, F), f"your bound for {name}")
        slack = 1e-7 * (1 + solution.objective)
        require(
            bound <= solution.objective + slack,
            f"for {name} your bound {bound:.6g} lies above the optimum "
            f"{solution.objective:.6g}: it certifies nothing",
        )
        require(
            bound <= most + slack,
            f"for {name} your bound {bound:.6g} is not the value at an allowed multiple of the "
            "residual: none of them gives so much",
        )
        require(
            bound >= most - slack,
            f"for {name} your bound is {bound:.6g}, but another allowed multiple of the residual "
            f"gives {most:.6g}",
        )
    close(bound, solution.objective, "at the best predictions the bound is not tight", rtol=1e-6)


@exercise("ex-toolbox-neurons")
def few_neurons(generator, smallest_beta):
    n, p = between(generator, 9, 12), between(generator, 3, 5)
    q = between(generator, 3, 5)
    X, _ = torch.linalg.qr(gaussian(generator, n, p))
    Y = gaussian(generator, n, q)

    def neurons(beta: float) -> int:
        solution = convex.solve(convex.MLP(X, Y, beta=beta), tol=1e-12, method="fista")
        return int((torch.linalg.svdvals(solution.coefficients) > 1e-3 * beta).sum())

    for m in range(min(p, q)):
        beta = number(run(smallest_beta, X, Y, m), f"smallest_beta(X, Y, {m})")
        require(beta > 0, f"for m = {m} your beta is {beta:.4g}; it takes some decay here")
        left = neurons(1.01 * beta)
        require(
            left <= m,
            f"for m = {m} your beta {beta:.4g} is too small: the solution at 1.01 times it "
            f"still has {left} neurons",
        )
        require(
            neurons(0.99 * beta) > m,
            f"for m = {m} your beta {beta:.4g} is too large: 0.99 times it is enough already",
        )


@exercise("ex-toolbox-still")
def slow_steps(generator, counterexample):
    for _ in range(12):
        delta = 10 ** _share(generator, -8, -2)
        answer = run(counterexample, delta)
        require(
            isinstance(answer, tuple | list) and len(answer) == 3,
            "counterexample(delta) has to return three numbers: y, z0, t",
        )
        y, z, t = (
            number(value, name) for value, name in zip(answer, ("y", "z0", "t"), strict=True)
        )
        require(0 < t < 2, f"with step t = {t:.4g} the method does not converge from every start")
        # In terms of the distance nothing cancels, however far away the start is.
        distance = abs(z - y)
        for k in range(1, 101):
            fall = distance**2 * t * (1 - t / 2)
            distance *= abs(1 - t)
            require(
                delta / 100 < fall < delta,
                f"for delta = {delta:.2g} step {k} lowers the objective by {fall:.2g}, which is "
                f"too {'much' if fall >= delta else 'little'}",
            )
        height = 0.5 * distance**2
        require(
            height >= 0.5,
            f"for delta = {delta:.2g} only {height:.3g} above the optimum are left after a "
            "hundred steps",
        )
