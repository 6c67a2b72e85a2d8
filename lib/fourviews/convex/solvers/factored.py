r"""Factored (Burer–Monteiro) solver: descend on the two layers, certify with the convex program."""

from __future__ import annotations

from os import PathLike

import torch
from jaxtyping import Float
from torch import Tensor

from ..certificates import relative_gap
from ..distributed import Group
from ..matrix_free import LARGEST_BLOCKS, STARTS, gradient_bound
from ..problem import Problem, _is_integer
from ..shards import Shards
from ..solution import Neurons, Solution
from .checkpoint import Checkpoint
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
# Blocks or float32 data with more entries are worth passes in single precision.
_LARGEST_PRECISE = 1_000_000
_LARGEST_PRECISE_DATA = 20_000_000
_TIGHTEST = 1e-10  # share of the objective that a matrix-free bound may always give away
_DROP = 1e-7  # units below this share of the largest product of lengths are dropped


def factored(
    problem: Problem,
    *,
    tol: float = 1e-6,
    max_iterations: int = 100,
    rank: int = 1,
    shard: int | None = None,
    group: Group | None = None,
    checkpoint: str | PathLike | None = None,
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
    smaller side of the hidden values, up to 8000.  Passes over large factors, and over large float32
    data, are in float32 as long as that closes the gap; sums over samples and certificates are
    always in float64.

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
        targets and factors grows with this number, not with n: see :class:`~fourviews.convex.Shards`.
    group : Group, optional
        Processes that hold the other samples, from :func:`~fourviews.convex.processes`;
        ``problem`` is this one's part.  Each ends with the same solution.  It is that of one process
        with the same ``shard`` but for the rounding of sums, which the descent may amplify, as it
        leaves saddles: objectives agree within the certified gap.  The processes need processors of
        one kind: all compute the same steps, and only sums over the samples are exchanged.
    checkpoint : path, optional
        Written after each round, as a whole or not at all.  If the file is there the solve goes on
        from it: to the same solution bit by bit with the same ``shard``, group and number of
        threads, else but for rounding, as above.  Of a group the first process reads and writes.
        ``tol``, ``max_iterations``, ``shard`` and the group may differ; problem, ``rank`` and
        ``failure_probability`` may not.
    failure_probability : float
        Of the bound, where it is matrix-free.

    Raises
    ------
    ValueError
        For ReLU, beta = 0, or numbers out of range; if the processes' problems do not agree; if the
        checkpoint cannot be read or belongs to another problem.
    RuntimeError
        If another process of the group ends or does not answer.
    """
    if problem.cones or problem.beta == 0:
        raise ValueError(
            'factored solves "linear" and "gated_relu" with beta > 0, got activation='
            f'"{problem.activation}", beta={problem.beta:g}'
        )
    if not (_is_integer(rank) and rank >= 1):
        raise ValueError(f"rank must be an integer >= 1, got {rank!r}")
    shards = Shards(problem, shard, group=group)
    shards.agree(
        "options",
        f"tol={tol!r}, max_iterations={max_iterations}, rank={rank}, time_limit={time_limit}, "
        f"failure_probability={failure_probability!r}, checkpoint={checkpoint is not None}",
    )
    model = _Factors(shards, failure_probability)
    log = Log(
        problem, tol, "factored", max_iterations, progress, time_limit, patience=10, shards=shards
    )
    units = model.none()
    # The first matrix-free round brings nearly all units: it may go further.
    accuracy = min(1e-5, 1e-2 * tol) if model.matrix_free else 1e-5
    # Passes in single precision, as long as they get on; certificates never.
    single, gap = model.worth_single_precision, float("inf")
    first = iteration = 0
    saved = None
    if checkpoint is not None:
        options = {"rank": str(rank), "failure_probability": repr(failure_probability)}
        saved = Checkpoint(checkpoint, shards, options)
        state = saved.load()
        if state is not None:
            log.restore(state["log"])
            units, log.best = (
                Neurons(*(part.to(shards.device) for part in found))
                for found in (state["units"], state["best"])
            )
            first, accuracy = state["iteration"], state["accuracy"]
            single, gap, model.bounds = state["single"], state["gap"], state["bounds"]
    try:
        for iteration in range(min(first, max_iterations), max_iterations + 1):
            loss, residual = shards.loss_and_residual(units)
            objective = loss + shards.penalty(units)
            # A bound looser than the gap by little costs little; one much tighter costs much.
            allowed, tightest = 0.3 * min(log.gap, 0.1), max(0.5 * tol, _TIGHTEST)
            while True:
                allowed = max(allowed, tightest)
                slack = _slack(allowed, loss / objective if objective > 0 else 1.0)
                polar, found, pairs = model.pairs(residual, units, rank, slack)
                bound, least = (shards.lower_bound(residual, value) for value in (polar, found))
                certain, left = (
                    relative_gap(objective, value, log.at_zero) for value in (bound, least)
                )
                # Enough; or most of what is open would be so for any bound.
                if certain <= max(tol, 2 * left) or allowed <= tightest:
                    break
                # Few steps find too little: what is left may be more.
                allowed = max(0.3 * left, 0.1 * allowed)
            if log.record(iteration, units, objective, None, bound=bound):
                break
            single = single and log.gap < 0.5 * gap
            gap = log.gap
            # Units that are still missing change the rest anyway; without any, what is open is
            # the accuracy of the descent.
            accuracy = 1e-5 * min(1.0, gap) ** 2 if len(pairs.first) else 1e-3 * accuracy
            if accuracy < 1e-22 or iteration == max_iterations:
                break
            units = model.balance(model.descend(_join(units, pairs), accuracy, single))
            if saved is not None:
                saved.write(
                    {
                        "log": log.state(),
                        "units": tuple(units),
                        "best": tuple(log.best),
                        "iteration": iteration + 1,
                        "accuracy": accuracy,
                        "single": single,
                        "gap": gap,
                        "bounds": model.bounds,
                    }
                )
    finally:
        log.close()
    units = Neurons(*(layer.to(problem.X.dtype) for layer in log.best[:2]), log.best.block)
    exact = Neurons(units.first.double(), units.second.double(), units.block)
    objective = shards.objective(exact)
    return Solution(
        problem,
        None,
        objective,
        min(log.bound, objective),
        tol,
        iteration,
        "factored",
        log.history,
        Neurons(*(part.to(problem.X.device) for part in units)),
        log.at_zero,
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
    """The network of given units over all samples, in float64."""

    def __init__(self, shards: Shards, failure_probability: float):
        self.shards, self.problem = shards, shards.problem
        self.failure_probability, self.bounds = failure_probability, 0
        self.p, self.q = self.problem.block_shape

    def none(self) -> Neurons:
        like = {"dtype": torch.float64, "device": self.shards.device}
        block = torch.zeros(0, dtype=torch.long, device=self.shards.device)
        return Neurons(torch.zeros(0, self.p, **like), torch.zeros(0, self.q, **like), block)

    @property
    def matrix_free(self) -> bool:
        """Whether the gradient's blocks are too large to be formed."""
        return self.problem.n_blocks * self.p * self.q > _LARGEST_BLOCKS

    @property
    def worth_single_precision(self) -> bool:
        X = self.problem.X
        entries = self.shards.n_samples * X.shape[1:].numel()
        large = X.dtype == torch.float32 and entries > _LARGEST_PRECISE_DATA
        return large or self.p * self.q > _LARGEST_PRECISE

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

        def split(flat: Tensor) -> Neurons:
            return Neurons(flat[: m * p].view(m, p), flat[m * p :].view(m, -1), units.block)

        def value_and_gradient(flat: Tensor) -> tuple[float, Tensor]:
            loss, found = self.shards.loss_and_gradient(split(flat))
            gradient = torch.cat([found.first.ravel(), found.second.ravel()])
            decay = float(flat.double().square().sum())
            return loss + 0.5 * beta * decay, gradient.add_(flat, alpha=beta).to(flat.dtype)

        start = torch.cat([units.first.ravel(), units.second.ravel()])
        start = start.to(torch.float32) if single else start
        found = split(lbfgs(value_and_gradient, start, accuracy=accuracy))
        return Neurons(found.first.double(), found.second.double(), units.block)

    def _eliminates(self, m: int) -> bool:
        """Whether the best second layer for m first weights is worth its linear system."""
        n = len(self.problem.X)
        whole = self.shards.size >= n == self.shards.n_samples
        if self.problem.loss.name != "squared" or not whole or self.shards.group.size > 1:
            return False
        one = torch.zeros(1, self.p, dtype=self.problem.X.dtype, device=self.problem.X.device)
        block = torch.zeros(1, dtype=torch.long, device=one.device)
        hidden = self.problem.part(slice(0, 1)).units_hidden(one, block)
        if hidden is None:
            return False
        rows, width = len(hidden) * n, hidden.shape[1] * m
        return min(rows, width) <= _LARGEST_SYSTEM

    def _descend_first(self, units: Neurons, accuracy: float, dtype: torch.dtype) -> Neurons:
        r"""The same on the first layer alone, the second at its best for it (squared loss).

        With hidden values H(U) the best second layer is ridge regression, and what is left is

        .. math:: \varphi(U) = \tfrac\beta2\operatorname{tr} Y^\top(HH^\top + \beta I)^{-1}Y
                  + \tfrac\beta2\|U\|^2 ,

        convex in :math:`U^\top U`, through which alone it depends on U (variable projection, Golub
        and Pereyra 1973).  It takes several times fewer steps than both layers at a time.
        """
        ((_, problem),) = self.shards
        m, p, beta = len(units.first), self.p, problem.beta
        target = problem.loss.target.to(dtype)

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
        target = problem.loss.target.double()
        second, _ = _ridge(problem.units_hidden(first, units.block), target, beta)
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
            energy = self.shards.energy(Neurons(left[one], right[one], block[one]))
            smoothness = self.problem.loss.smoothness
            step = (values[k] - self.problem.beta) / max(smoothness * energy, 1e-300)
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
        blocks = self.shards.gradient_blocks(residual)
        u, s, vt = torch.linalg.svd(blocks, full_matrices=False)
        found = float(s.max())
        polar = found * (1 + 8 * max(self.p, self.q) * torch.finfo(s.dtype).eps)
        block = torch.arange(len(s), device=s.device)[:, None].expand_as(s).ravel()
        return polar, found, s.ravel(), u.mT.reshape(-1, self.p), vt.reshape(-1, self.q), block

    def _matrix_free(self, residual: Tensor, count: int, slack: float):
        # Residuals depend on the starts of earlier bounds: each draws its own, and all together
        # fail with the stated probability, the sum of 1/k(k + 1) being 1.
        self.bounds += 1
        found = gradient_bound(
            self.shards,
            residual,
            slack=slack,
            failure_probability=self.failure_probability / (self.bounds * (self.bounds + 1)),
            seed=self.bounds,
            pairs=count,
            starts=_STARTS,
        )
        return found.bound, found.found, found.values, found.lefts, found.rights, found.block
