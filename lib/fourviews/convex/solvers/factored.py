r"""Factored (Burer–Monteiro) solver: descend on the two layers, certify with the convex program."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from ..problem import Problem, _is_integer
from ..solution import Neurons, Solution
from ..spectral import lanczos_bound
from .log import Log

__all__ = ["factored"]

# Up to this many entries the gradient's blocks are formed and decomposed exactly.
_LARGEST_BLOCKS = 20_000_000
# Independent starts of the matrix-free bound: they make few steps suffice, and pass the data once.
_STARTS = 8
_MOST_STEPS = 2000
_DROP = 1e-7  # units below this share of the largest product of lengths are dropped


def factored(
    problem: Problem,
    *,
    tol: float = 1e-6,
    max_iterations: int = 100,
    rank: int = 1,
    shard: int | None = None,
    failure_probability: float = 1e-9,
    progress: bool | None = None,
    time_limit: float | None = None,
) -> Solution:
    r"""Solve a linear or gated-ReLU problem on its factors, for sizes where Z is too large.

    .. math:: \min_{u_k, v_k}\; L\Big(\sum_k A_{j(k)}(u_kv_k^\top)\Big)
              + \tfrac\beta2\sum_k\big(\|u_k\|^2 + \|v_k\|^2\big)

    has the value of the convex program once there are enough units, and a stationary point is
    optimal exactly if :math:`\|A_j^*(\nabla L)\|_2 \le \beta` for all blocks (Haeffele and Vidal
    2015; Burer and Monteiro 2003).  A round descends by L-BFGS, balances the factors, and computes
    singular pairs of the gradient's blocks.  Pairs with singular value above β are directions of
    escape: they join as units, so the rank grows only as far as the certificate asks.

    Neither Z nor a p×q gradient is formed if the blocks have more than 2·10⁷ entries: their
    spectral norms are then bounded by :func:`~fourviews.convex.spectral.lanczos_bound` from
    products alone, and the lower bound holds except with ``failure_probability``.

    Parameters
    ----------
    problem : Problem
        Activation "linear" or "gated_relu", beta > 0, any loss.
    tol, progress
        As for :func:`solve`.
    max_iterations : int
        Most rounds.
    rank : int
        Units to start with.
    shard : int, optional
        Samples that go through the network at a time; all if not given.  Memory beyond data,
        predictions and factors grows with this number, not with n.
    failure_probability : float
        Of the bound, where it is matrix-free.

    Raises
    ------
    ValueError
        For ReLU, beta = 0, or numbers out of range.
    """
    if problem.cones or problem.beta == 0:
        raise ValueError(
            'factored solves "linear" and "gated_relu" with beta > 0, got activation='
            f'"{problem.activation}", beta={problem.beta:g}'
        )
    for name, value in (("rank", rank), ("shard", len(problem.X) if shard is None else shard)):
        if not (_is_integer(value) and value >= 1):
            raise ValueError(f"{name} must be an integer >= 1, got {value!r}")
    model = _Factors(problem, shard or len(problem.X), failure_probability)
    log = Log(problem, tol, "factored", max_iterations, progress, time_limit, patience=10)
    units, accuracy = model.none(), 1e-5
    iteration = 0
    try:
        for iteration in range(max_iterations + 1):
            prediction = model.predict(units)
            objective = model.objective(units, prediction)
            residual = model.loss.gradient(prediction)
            # More pairs as there are more units: few rounds, and little to drop.
            count = max(rank, (len(units.first) + 1) // 2)
            # A bound looser than the gap by little costs little; one much tighter costs much.
            polar, pairs = model.pairs(residual, count, max(0.3 * min(log.gap, 0.1), 0.5 * tol))
            if log.record(iteration, units, objective, prediction, polar=polar):
                break
            # Units that are still missing change the rest anyway; without any, what is open is
            # the accuracy of the descent.
            accuracy = 1e-5 * min(1.0, log.gap) ** 2 if len(pairs.first) else 1e-3 * accuracy
            if accuracy < 1e-22 or iteration == max_iterations:
                break
            units = model.balance(model.descend(_join(units, pairs), accuracy))
    finally:
        log.close()
    units = log.best
    stored = Neurons(units.first.to(problem.X), units.second.to(problem.X), units.block)
    objective = model.objective(stored, model.predict(stored))
    return Solution(
        problem,
        None,
        objective,
        min(log.bound, objective),
        tol,
        iteration,
        "factored",
        log.history,
        stored,
    )


def _join(a: Neurons, b: Neurons) -> Neurons:
    return Neurons(*(torch.cat(pair) for pair in zip(a, b, strict=True)))


class _Factors:
    """The network of given units, over the shards of the data, in float64."""

    def __init__(self, problem: Problem, shard: int, failure_probability: float):
        self.problem, self.shard = problem, shard
        self.failure_probability = failure_probability
        self.loss = problem.loss.to(torch.float64)
        self.p, self.q = problem.block_shape
        self.blocks = problem.n_blocks

    def none(self) -> Neurons:
        like = {"dtype": torch.float64, "device": self.problem.X.device}
        block = torch.zeros(0, dtype=torch.long, device=self.problem.X.device)
        return Neurons(torch.zeros(0, self.p, **like), torch.zeros(0, self.q, **like), block)

    def parts(self) -> Iterator[tuple[slice, Problem]]:
        for start in range(0, len(self.problem.X), self.shard):
            part = slice(start, start + self.shard)
            yield part, self.problem.part(part)

    def predict(self, units: Neurons) -> Tensor:
        output = torch.empty_like(self.loss.target)
        for part, data in self.parts():
            output[part] = data.units_forward(
                units.first.double(), units.second.double(), units.block
            )
        return output

    def objective(self, units: Neurons, prediction: Tensor) -> float:
        decay = (units.first.double().square().sum() + units.second.double().square().sum()) / 2
        return float(self.loss.value(prediction) + self.problem.beta * decay)

    def descend(self, units: Neurons, accuracy: float) -> Neurons:
        """Local minimum of the factored objective from these units, by L-BFGS.

        Ends when a step lowers the objective by less than ``accuracy``, relatively.
        """
        m, p, beta = len(units.first), self.p, self.problem.beta

        def split(theta: np.ndarray) -> tuple[Tensor, Tensor]:
            flat = torch.from_numpy(theta).to(units.first.device)
            return flat[: m * p].reshape(m, p), flat[m * p :].reshape(m, -1)

        def value_and_gradient(theta: np.ndarray) -> tuple[float, np.ndarray]:
            U, V = split(theta)
            total = float(0.5 * beta * (U.square().sum() + V.square().sum()))
            dU, dV = beta * U, beta * V
            for _, data in self.parts():
                loss = data.loss.to(torch.float64)
                F, backward = data.units_passes(U, V, units.block)
                total += float(loss.value(F))
                gradients = backward(loss.gradient(F))
                dU, dV = dU + gradients[0], dV + gradients[1]
            return total, torch.cat([dU.ravel(), dV.ravel()]).cpu().numpy()

        start = torch.cat([units.first.ravel(), units.second.ravel()]).cpu().numpy()
        result = minimize(
            value_and_gradient,
            start,
            jac=True,
            method="L-BFGS-B",
            options={
                "maxiter": 1000,
                "maxfun": 2000,
                "ftol": max(1e-16, accuracy),
                "gtol": 0.0,
                "maxcor": 20,
            },
        )
        return Neurons(*split(result.x), units.block)

    def balance(self, units: Neurons) -> Neurons:
        r"""The same products with least weight decay: an SVD of each block's :math:`U_j^\top V_j`."""
        first, second, block = [], [], []
        for j in units.block.unique().tolist():
            mine = units.block == j
            left, upper = torch.linalg.qr(units.first[mine].T)
            right, lower = torch.linalg.qr(units.second[mine].T)
            a, s, bt = torch.linalg.svd(upper @ lower.T, full_matrices=False)
            first.append((left @ a * s.sqrt()).T)
            second.append((right @ bt.T * s.sqrt()).T)
            block.append(torch.full((len(s),), j, dtype=torch.long, device=units.block.device))
        if not first:
            return units
        joined = Neurons(torch.cat(first), torch.cat(second), torch.cat(block))
        size = joined.first.square().sum(dim=1)
        keep = size > _DROP * size.max()
        return Neurons(*(part[keep] for part in joined))

    # The certificate and the directions of escape --------------------------------------------

    def pairs(self, residual: Tensor, count: int, slack: float) -> tuple[float, Neurons]:
        r"""Bound on the polar, and at most ``count`` units :math:`-uv^\top` for singular values above β,
        each as long as the loss's curvature allows.  Matrix-free, the bound is ``slack`` above."""
        if self.blocks * self.p * self.q <= _LARGEST_BLOCKS:
            polar, values, left, right, block = self._exact(residual)
        else:
            # Where a round is dear it brings more units.
            count = max(count, _STARTS)
            polar, values, left, right, block = self._matrix_free(residual, count, slack)
        order = values.argsort(descending=True)[:count]
        order = order[values[order] > self.problem.beta]
        values, left, right, block = (part[order] for part in (values, left, right, block))
        length = values.new_zeros(len(order))
        for k in range(len(order)):
            one = slice(k, k + 1)
            images = [
                data.units_forward(left[one], right[one], block[one]) for _, data in self.parts()
            ]
            energy = float(sum(image.square().sum() for image in images))
            step = (values[k] - self.problem.beta) / max(self.loss.smoothness * energy, 1e-300)
            # The pairs move at the same time, so none takes its whole step.
            length[k] = (step / len(order)).sqrt()
        return polar, Neurons(-left * length[:, None], right * length[:, None], block)

    def _exact(self, residual: Tensor):
        gradient = 0
        for part, data in self.parts():
            data = data.to(torch.float64)
            gradient = gradient + data.outputs_adjoint(residual[part], data.masks)
        u, s, vt = torch.linalg.svd(gradient, full_matrices=False)
        polar = float(s.max()) * (1 + 8 * max(self.p, self.q) * torch.finfo(s.dtype).eps)
        block = torch.arange(len(s), device=s.device)[:, None].expand_as(s).ravel()
        return polar, s.ravel(), u.mT.reshape(-1, self.p), vt.reshape(-1, self.q), block

    def _matrix_free(self, residual: Tensor, count: int, slack: float):
        # Steps for which the bound exceeds what is found by the slack, see `lanczos_bound`.
        failure = self.failure_probability / self.blocks
        exponent = np.log(1.648 * np.sqrt(self.q)) - np.log(failure) / _STARTS
        steps = int(np.ceil(0.5 + 0.5 * exponent / np.sqrt(2 * slack)))
        results = []
        for j in range(self.blocks):

            def apply(V: Tensor, j: int = j) -> Tensor:
                block = torch.full((len(V),), j, device=residual.device)
                return sum(
                    data.units_first_gradient(residual[part], V, block)
                    for part, data in self.parts()
                )

            def apply_transposed(U: Tensor, j: int = j) -> Tensor:
                block = torch.full((len(U),), j, device=residual.device)
                return sum(
                    data.units_second_gradient(residual[part], U, block)
                    for part, data in self.parts()
                )

            results.append(
                lanczos_bound(
                    apply,
                    apply_transposed,
                    self.q,
                    steps=min(steps, _MOST_STEPS),
                    block=_STARTS,
                    pairs=count,
                    failure_probability=failure,
                    like=residual,
                )
            )
        return (
            max(r.bound for r in results),
            torch.cat([r.values for r in results]),
            torch.cat([r.lefts for r in results]),
            torch.cat([r.rights for r in results]),
            torch.cat(
                [
                    torch.full((len(r.values),), j, device=residual.device)
                    for j, r in enumerate(results)
                ]
            ),
        )
