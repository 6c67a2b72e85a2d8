r"""Factored (Burer–Monteiro) solver: descend on the two layers, certify with the convex program."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from ..certificates import lower_bound, relative_gap
from ..matrix_free import LARGEST_BLOCKS, STARTS, gradient_bound, shards
from ..problem import Problem, _is_integer
from ..solution import Neurons, Solution
from .lbfgs import lbfgs
from .log import Log

__all__ = ["factored"]

_LARGEST_BLOCKS, _STARTS = LARGEST_BLOCKS, STARTS
# Up to this side the second layer's linear system is solved in every step.
_LARGEST_SYSTEM = 8000
_MOST_STEPS_OF_ROUND = 60
# Units that a matrix-free certificate starts with, at most.
_MOST_PAIRS = 100
# Share of a pair's length that must lie outside of the units' spaces for it to count as new.
_NEW = 0.3
# Blocks with more entries are worth passes in single precision.
_LARGEST_PRECISE = 1_000_000
_TIGHTEST = 1e-10  # share of the objective that a matrix-free bound may always give away
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

    With squared loss, all samples at a time and a head that has
    :meth:`~fourviews.convex.Problem.units_hidden`, the second layer is eliminated: for given u it
    is ridge regression.  That takes several times fewer steps, for a linear system in each, of the
    smaller side of the hidden values, up to 8000.  Passes over large factors are in float32 as long
    as that closes the gap; certificates are always in float64.

    Neither Z nor a p×q gradient is formed if the blocks have more than 2·10⁷ entries: their
    spectral norms are then bounded by Lanczos's method from
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
    units = model.none()
    # The first matrix-free round brings nearly all units: it may go further.
    accuracy = min(1e-5, 1e-2 * tol) if model.matrix_free else 1e-5
    # Passes in single precision, as long as they get on; certificates never.
    single, gap = model.p * model.q > _LARGEST_PRECISE, float("inf")
    iteration = 0
    try:
        for iteration in range(max_iterations + 1):
            prediction = model.predict(units)
            objective = model.objective(units, prediction)
            residual = model.loss.gradient(prediction)
            # A bound looser than the gap by little costs little; one much tighter costs much.
            allowed, tightest = 0.3 * min(log.gap, 0.1), max(0.5 * tol, _TIGHTEST)
            while True:
                allowed = max(allowed, tightest)
                slack = _slack(allowed, float(model.loss.value(prediction)) / objective)
                polar, found, pairs = model.pairs(residual, units, rank, slack)
                certain, left = (
                    relative_gap(
                        objective, lower_bound(log.exact, prediction, polar=value), log.at_zero
                    )
                    for value in (polar, found)
                )
                # Enough; or most of what is open would be so for any bound.
                if certain <= max(tol, 2 * left) or allowed <= tightest:
                    break
                # Few steps find too little: what is left may be more.
                allowed = max(0.3 * left, 0.1 * allowed)
            if log.record(iteration, units, objective, prediction, polar=polar):
                break
            single = single and log.gap < 0.5 * gap
            gap = log.gap
            # Units that are still missing change the rest anyway; without any, what is open is
            # the accuracy of the descent.
            accuracy = 1e-5 * min(1.0, gap) ** 2 if len(pairs.first) else 1e-3 * accuracy
            if accuracy < 1e-22 or iteration == max_iterations:
                break
            units = model.balance(model.descend(_join(units, pairs), accuracy, single))
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


def _slack(allowed: float, loss: float) -> float:
    r"""Excess t of the polar that lowers the bound by the share ``allowed`` of the objective.

    Scaled by 1 - t, the dual point of a squared loss loses :math:`t\beta\|Z\|_* + t^2L`; of the
    objective L has the share ``loss``, the norm the rest.
    """
    decay = max(1 - loss, 0.0)
    return 2 * allowed / (decay + (decay**2 + 4 * loss * allowed) ** 0.5)


def _ridge(
    hidden: Float[Tensor, "N w"], target: Float[Tensor, "*N c"], beta: float
) -> tuple[Float[Tensor, "w c"], Float[Tensor, "*N c"]]:
    """Least squares with weight decay, from the smaller Gram matrix; and its residual."""
    flat = target.reshape(len(hidden), -1)
    tall = len(hidden) > hidden.shape[1]
    gram = hidden.T @ hidden if tall else hidden @ hidden.T
    gram.diagonal().add_(beta)
    root = torch.linalg.cholesky(gram)
    if tall:
        second = torch.cholesky_solve(hidden.T @ flat, root)
        residual = hidden @ second - flat
    else:
        dual = torch.cholesky_solve(flat, root)
        second, residual = hidden.T @ dual, -beta * dual
    return second, residual.reshape(target.shape)


class _Factors:
    """The network of given units, over the shards of the data, in float64."""

    def __init__(self, problem: Problem, shard: int, failure_probability: float):
        self.problem, self.shard = problem, shard
        self.failure_probability, self.bounds = failure_probability, 0
        self.loss = problem.loss.to(torch.float64)
        self.p, self.q = problem.block_shape
        self.blocks = problem.n_blocks

    def none(self) -> Neurons:
        like = {"dtype": torch.float64, "device": self.problem.X.device}
        block = torch.zeros(0, dtype=torch.long, device=self.problem.X.device)
        return Neurons(torch.zeros(0, self.p, **like), torch.zeros(0, self.q, **like), block)

    @property
    def matrix_free(self) -> bool:
        """Whether the gradient's blocks are too large to be formed."""
        return self.blocks * self.p * self.q > _LARGEST_BLOCKS

    def parts(self) -> Iterator[tuple[slice, Problem]]:
        return shards(self.problem, self.shard)

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

    def descend(self, units: Neurons, accuracy: float, single: bool = False) -> Neurons:
        """Local minimum of the factored objective from these units, by L-BFGS.

        Ends when a step lowers the objective by less than ``accuracy``, relatively.
        """
        if self._eliminates(len(units.first)):
            for dtype in (torch.float32, torch.float64)[not single :]:
                try:
                    return self._descend_first(units, accuracy, dtype)
                except torch.linalg.LinAlgError:
                    pass  # beta is below the rounding of the linear system
        m, p, beta = len(units.first), self.p, self.problem.beta

        def split(flat: Tensor) -> tuple[Tensor, Tensor]:
            return flat[: m * p].view(m, p), flat[m * p :].view(m, -1)

        def value_and_gradient(flat: Tensor) -> tuple[float, Tensor]:
            U, V = split(flat)
            total = float(0.5 * beta * flat.square().sum())
            gradient = beta * flat
            dU, dV = split(gradient)
            for _, data in self.parts():
                loss = data.loss.to(torch.float64)
                F, backward = data.units_passes(U, V, units.block)
                total += float(loss.value(F))
                gradients = backward(loss.gradient(F))
                dU += gradients[0]
                dV += gradients[1]
            return total, gradient

        start = torch.cat([units.first.ravel(), units.second.ravel()])
        return Neurons(*split(lbfgs(value_and_gradient, start, accuracy=accuracy)), units.block)

    def _eliminates(self, m: int) -> bool:
        """Whether the best second layer for m first weights is worth its linear system."""
        if self.loss.name != "squared" or self.shard < len(self.problem.X):
            return False
        one = torch.zeros(1, self.p, dtype=self.problem.X.dtype, device=self.problem.X.device)
        block = torch.zeros(1, dtype=torch.long, device=one.device)
        hidden = self.problem.part(slice(0, 1)).units_hidden(one, block)
        if hidden is None:
            return False
        rows, width = len(hidden) * len(self.problem.X), hidden.shape[1] * m
        return min(rows, width) <= _LARGEST_SYSTEM

    def _descend_first(self, units: Neurons, accuracy: float, dtype: torch.dtype) -> Neurons:
        r"""The same on the first layer alone, the second at its best for it (squared loss).

        With hidden values H(U) the best second layer is ridge regression, and what is left is

        .. math:: \varphi(U) = \tfrac\beta2\operatorname{tr} Y^\top(HH^\top + \beta I)^{-1}Y
                  + \tfrac\beta2\|U\|^2 ,

        convex in :math:`U^\top U`, through which alone it depends on U (variable projection, Golub
        and Pereyra 1973).  It takes several times fewer steps than both layers at a time.
        """
        problem = self.problem
        m, p, beta = len(units.first), self.p, problem.beta
        target = self.loss.target.to(dtype)

        def value_and_gradient(flat: Tensor) -> tuple[float, Tensor]:
            U = flat.view(m, p)
            V, residual = _ridge(problem.units_hidden(U, units.block), target, beta)
            V = V.reshape(m, self.q)
            value = beta * float(flat.square().sum()) - float((target * residual).sum())
            gradient = problem.units_first_gradient(residual, V, units.block)
            return 0.5 * value, gradient.add_(U, alpha=beta).ravel()

        start = units.first.to(dtype).ravel()
        first = lbfgs(
            value_and_gradient, start, accuracy=accuracy, max_iterations=_MOST_STEPS_OF_ROUND
        )
        first = first.view(m, p).double()
        second, _ = _ridge(problem.units_hidden(first, units.block), self.loss.target, beta)
        return Neurons(first, second.reshape(m, self.q), units.block)

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

    def pairs(
        self, residual: Tensor, units: Neurons, least: int, slack: float
    ) -> tuple[float, float, Neurons]:
        r"""Bound on the polar, what was found of it, and units :math:`-uv^\top` for singular values above β, each as long
        as the loss's curvature allows.  Matrix-free, the bound is ``slack`` above."""
        # More pairs as there are more units: few rounds, and little to drop.
        count = max(least, (len(units.first) + 1) // 2)
        if self.matrix_free:
            # Where a round is dear it brings more units, the first as many as there may be.
            count = max(count, _STARTS if len(units.first) else _MOST_PAIRS)
            polar, found, values, left, right, block = self._matrix_free(
                residual, 2 * count + len(units.first), slack
            )
        else:
            polar, found, values, left, right, block = self._exact(residual)
        order = values.argsort(descending=True)
        order = order[values[order] > self.problem.beta]
        values, left, right, block = (part[order] for part in (values, left, right, block))
        new = self._outside(units, left, right, block).nonzero().ravel()[:count]
        values, left, right, block = (part[new] for part in (values, left, right, block))
        length = values.new_zeros(len(values))
        for k in range(len(values)):
            one = slice(k, k + 1)
            images = [
                data.units_forward(left[one], right[one], block[one]) for _, data in self.parts()
            ]
            energy = float(sum(image.square().sum() for image in images))
            step = (values[k] - self.problem.beta) / max(self.loss.smoothness * energy, 1e-300)
            # The pairs move at the same time, so none takes its whole step.
            length[k] = (step / len(values)).sqrt()
        return polar, found, Neurons(-left * length[:, None], right * length[:, None], block)

    def _outside(self, units: Neurons, left: Tensor, right: Tensor, block: Tensor) -> Tensor:
        """Which pairs lie outside of the units' own spaces: the others ask for accuracy, not rank."""
        outside = torch.ones(len(left), dtype=torch.bool, device=left.device)
        for j in units.block.unique().tolist():
            mine, pairs = units.block == j, block == j
            # After balancing the units of a block are orthogonal.
            U, V = (part[mine] / part[mine].norm(dim=1, keepdim=True) for part in units[:2])
            inside = [
                (part[pairs] @ basis.T).square().sum(dim=1)
                for part, basis in ((left, U), (right, V))
            ]
            outside[pairs] = torch.minimum(*inside) < 1 - _NEW**2
        return outside

    def _exact(self, residual: Tensor):
        gradient = 0
        for part, data in self.parts():
            data = data.to(torch.float64)
            gradient = gradient + data.outputs_adjoint(residual[part], data.masks)
        u, s, vt = torch.linalg.svd(gradient, full_matrices=False)
        found = float(s.max())
        polar = found * (1 + 8 * max(self.p, self.q) * torch.finfo(s.dtype).eps)
        block = torch.arange(len(s), device=s.device)[:, None].expand_as(s).ravel()
        return polar, found, s.ravel(), u.mT.reshape(-1, self.p), vt.reshape(-1, self.q), block

    def _matrix_free(self, residual: Tensor, count: int, slack: float):
        # Residuals depend on the starts of earlier bounds: each draws its own, and all together
        # fail with the stated probability, the sum of 1/k(k + 1) being 1.
        self.bounds += 1
        found = gradient_bound(
            self.problem,
            residual,
            slack=slack,
            failure_probability=self.failure_probability / (self.bounds * (self.bounds + 1)),
            seed=self.bounds,
            pairs=count,
            shard=self.shard,
            starts=_STARTS,
        )
        return found.bound, found.found, found.values, found.lefts, found.rights, found.block
