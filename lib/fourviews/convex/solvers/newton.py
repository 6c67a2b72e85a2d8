r"""Projected Newton method on the blocks' sizes, for squared loss and one output column."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..least_squares import least_squares_coefficients
from ..problem import Problem
from ..solution import Solution
from .log import Log

__all__ = ["newton"]

_SUFFICIENT = 1e-4  # Armijo
_HALVINGS = 12  # of a Newton step, before the scaled gradient is taken
_PATIENCE = 60  # steps without a smaller gap, beyond twice those that made it
_SLOW = 8  # such steps after which single precision is to blame
_STALLED = 3  # steps without progress after which rounding decides
# Up to this many rows M is factored in double precision; beyond, in single precision, as a
# preconditioner, and a problem of half the samples is solved first.
_SMALL = 1500
_MOST_PRODUCTS = 12  # with M, to refine a solution
_FIRST_BLOCKS = 128  # non-zero at the start
_MOST_CANDIDATES = 64  # zero blocks that may enter at a step, unless more are non-zero already


def newton(
    problem: Problem,
    *,
    tol: float = 1e-6,
    max_iterations: int = 20_000,
    start: Tensor | None = None,
    progress: bool | None = None,
    time_limit: float | None = None,
) -> Solution:
    r"""Solve a linear or gated-ReLU problem with one output column and squared loss.

    With one column the norm is a sum of lengths, and
    :math:`\|z\| = \inf_{\eta > 0} \tfrac12(\|z\|^2/\eta + \eta)`.  For fixed sizes η the blocks are
    a ridge regression; what is left is a smooth convex function of one number a block
    (multiple kernel learning; Bach, Lanckriet and Jordan 2004):

    .. math:: \min_{\eta \ge 0}\; \varphi(\eta) = \tfrac12\, y^\top v + \tfrac\beta2\sum_j\eta_j,
              \qquad v = M^{-1}y,\quad M = I + \tfrac1\beta\sum_j\eta_jA_jA_j^* .

    Its derivatives cost one factorisation of the N×N matrix M:

    .. math:: \partial_j\varphi = \tfrac1{2\beta}\big(\beta^2 - \|A_j^*v\|^2\big), \qquad
              \partial_{jk}\varphi = \tfrac1{\beta^2}\,(A_jA_j^*v)^\top M^{-1}(A_kA_k^*v),

    and every η gives coefficients :math:`z_j = \eta_jA_j^*v/\beta` whose residual is :math:`-v`, so that
    a scaled v is an admissible dual point: each step has its certificate.  A step minimises the
    quadratic model over :math:`\eta \ge 0`, on the blocks that are non-zero or whose
    derivative says that they should be, with a line search on φ.  Blocks that the certificate
    proves zero never enter.

    For an MLP :math:`\sum_j\eta_jA_jA_j^* = (XX^\top)\circ(D^\top\operatorname{diag}(\eta)D)` with the masks D
    (gates × rows).  With J blocks in the model a step costs :math:`O(N^2(d + J) + N^3 + J^3)` and
    :math:`O(N d P)` for the certificate; memory is :math:`O(N^2 + J^2 + N(J + P) + Pd)`, as
    :math:`[D_1X\;\dots\;D_PX]` is never formed.  About ten steps reach a gap of 1e-6, some twenty where
    beta is small.
    Works in float64 whatever the input's precision is.

    Parameters
    ----------
    problem : Problem
        Squared loss, one column, activation "linear" or "gated_relu".
    tol, max_iterations, progress, time_limit
        As for :func:`solve`; an iteration is a Newton step.
    start : tensor, optional
        First coefficients, such as the solution for another beta; only their sizes are used.

    Raises
    ------
    ValueError
        For another loss, several columns or blocks, or ReLU, or if ``start`` does not fit.
    """
    if problem.cones or problem.loss.name != "squared" or problem.block_shape[1] != 1:
        raise ValueError(
            "newton solves squared loss with one output column of the coefficients and activation "
            f'"linear" or "gated_relu"; got loss "{problem.loss.name}", '
            f'coefficients {problem.block_shape}, activation "{problem.activation}"'
        )
    if problem.groups > 1:
        raise ValueError(
            f'method "newton" solves heads with one group, got {problem.groups} blocks: '
            "under squared loss they are separate problems"
        )
    exact = problem.to(torch.float64)
    log = Log(problem, tol, "Newton", max_iterations, progress, time_limit, patience=_PATIENCE)
    point = problem.first_point(start, torch.float64)
    steps = 0
    try:
        if exact.beta == 0:
            log.note(0, least_squares_coefficients(exact, exact.loss.target))
        elif not log.note(0, point):
            sizes = torch.linalg.vector_norm(point.reshape(-1, problem.block_shape[0]), dim=1)
            steps = _Sizes(exact).minimise(sizes, log, max_iterations)
    finally:
        log.close()
    return log.solution(steps, "newton")


class _Sizes:
    """φ as a function of the sizes, for one problem in float64."""

    def __init__(self, problem: Problem):
        self.problem, self.beta = problem, problem.beta
        self.target = problem.loss.target
        self.count = problem.n_blocks
        self.norm_bounds = problem.block_norm_bounds()
        self.precise = problem.gram_size <= _SMALL
        self.rough = problem if self.precise else problem.to(torch.float32)
        self.factor: Tensor | None = None
        self.accuracy = 1e-6  # of the linear systems
        self.length = float(self.target.norm())  # what it is relative to
        self.alive = torch.ones(self.count, dtype=torch.bool, device=problem.X.device)

    # The function and its derivatives -------------------------------------------------------

    def factored(self, sizes: Float[Tensor, "G"]) -> Float[Tensor, "N N"] | None:
        """Cholesky factor of M, lower; None if its entries are beyond the range of the precision."""
        on = torch.nonzero(sizes)[:, 0]
        problem = self.problem if self.precise else self.rough
        weights = sizes[on] / self.beta
        largest = float(weights.max()) if len(on) else 1.0
        matrix = problem.gram(on, (weights / largest).to(problem.X))
        matrix = matrix.mul_(largest**0.5).mul_(largest**0.5)  # the factor itself may overflow
        matrix.diagonal().add_(1)
        # Below the rounding of the sum; it keeps the factorisation alive.
        rounding = 4 * torch.finfo(matrix.dtype).eps * float(matrix.diagonal().max())
        for _ in range(8):
            matrix.diagonal().add_(rounding)
            factor, failed = torch.linalg.cholesky_ex(matrix)
            if not failed:
                return factor if bool(torch.isfinite(factor.diagonal()).all()) else None
            rounding *= 100
        return None

    def solve(
        self, sizes: Float[Tensor, "G"], accuracy: float = 1e-13
    ) -> tuple[Float[Tensor, "n *s c"], float]:
        r"""v = M⁻¹y, by conjugate gradients preconditioned with M's factor, and φ, infinite if M is
        out of range.  The square of the residual r is at most ``accuracy``² times twice the best φ so
        far; φ is known to half the square of r, by
        :math:`y^\top M^{-1}y = y^\top v + v^\top r + r^\top M^{-1}r`."""
        self.factor = self.factored(sizes)
        enough = False
        if self.factor is not None:
            v, r, enough = self.conjugate_gradients(sizes, accuracy)
        if not enough and not self.precise:
            self.precise = True  # single precision was not enough
            self.factor = self.factored(sizes)
            if self.factor is not None:
                v, r, _ = self.conjugate_gradients(sizes, accuracy)
        if self.factor is None:
            return torch.zeros_like(self.target), float("inf")
        # What a factor in double precision leaves is rounding; the certificate will tell.
        energy = float((self.target * v).sum() + (v * r).sum())
        return v, 0.5 * energy + 0.5 * self.beta * float(sizes.sum())

    def preconditioned(self, r: Float[Tensor, "n *s c"]) -> Float[Tensor, "n *s c"]:
        right = r.reshape(-1, 1).to(self.factor.dtype)
        return torch.cholesky_solve(right, self.factor).reshape(r.shape).to(r.dtype)

    def conjugate_gradients(
        self, sizes: Float[Tensor, "G"], accuracy: float
    ) -> tuple[Float[Tensor, "n *s c"], Float[Tensor, "n *s c"], bool]:
        """v, its residual, and whether a few products with M reached the accuracy."""
        problem = self.problem
        on = torch.nonzero(sizes)[:, 0]
        masks = None if problem.masks is None else problem.masks[on]
        weights = (sizes[on] / self.beta)[:, None, None]

        def product(v: Tensor) -> Tensor:
            if len(on) == 0:
                return v
            return v + problem.outputs(problem.outputs_adjoint(v, masks) * weights, masks)

        goal = accuracy * self.length
        v = self.preconditioned(self.target)
        r = self.target - product(v)
        z = self.preconditioned(r)
        p, rho = z, float((r * z).sum())
        for _ in range(_MOST_PRODUCTS):
            if float(r.norm()) <= goal:
                return v, r, True
            image = product(p)
            energy = float((p * image).sum())
            if not 0 < energy < float("inf"):
                break  # out of range
            length = rho / energy
            v, r = v + length * p, r - length * image
            z = self.preconditioned(r)
            rho, before = float((r * z).sum()), rho
            p = z + (rho / before) * p
        return v, r, bool(r.norm() <= goal)

    def images(self, v: Float[Tensor, "n *s c"]) -> Float[Tensor, "G p"]:
        """A_j*v for every block."""
        return self.problem.outputs_adjoint(v, self.problem.masks)[..., 0]

    def hessian(
        self, images: Float[Tensor, "J p"], index: Int[Tensor, "J"]
    ) -> Float[Tensor, "J J"]:
        columns = self.problem.block_predictions(images, index).reshape(len(index), -1).T
        # At unit length, as single precision has a narrow range.
        lengths = torch.linalg.vector_norm(columns, dim=0) / self.beta
        unit = columns / (lengths * self.beta).clamp_min(torch.finfo(columns.dtype).tiny)
        half = torch.linalg.solve_triangular(self.factor, unit.to(self.factor.dtype), upper=False)
        return (half.T @ half).to(images.dtype) * lengths[:, None] * lengths

    # The method -----------------------------------------------------------------------------

    def minimise(self, sizes: Float[Tensor, "G"], log: Log, max_iterations: int) -> int:
        """Newton steps from ``sizes`` until the log says that it is enough; returns their number."""
        if float(sizes.sum()) == 0:
            sizes = self.first_sizes(log.time_limit)
        v, value = self.solve(sizes, self.accuracy)
        if value == float("inf"):  # a start out of range
            sizes = self.first_sizes(log.time_limit)
            v, value = self.solve(sizes, self.accuracy)
        least, stalled = float("inf"), 0
        for step in range(1, max_iterations + 1):
            images = self.images(v)
            if self.note(step, sizes, v, images, log) or step == max_iterations:
                return step
            # Near the optimum φ is flat while the gap still falls.
            progress = value < least * (1 - 1e-14) or log.best_gap_at == step
            least, stalled = min(least, value), 0 if progress else stalled + 1
            self.length = min(self.length, (2 * least) ** 0.5)
            slow = step - log.best_gap_at > _SLOW and not self.precise
            found = None if slow or stalled >= _STALLED else self.step(sizes, images, value)
            if found is None and not self.precise:
                self.precise, stalled = True, 0  # what stopped it may be single precision
                v, value = self.solve(sizes, self.accuracy)
                least = float("inf")
                found = self.step(sizes, self.images(v), value)
            if found is None:
                return step  # no descent above rounding is left
            sizes, v, value = found
        return max_iterations

    def step(
        self, sizes: Float[Tensor, "G"], images: Float[Tensor, "G p"], value: float
    ) -> tuple[Tensor, Tensor, float] | None:
        """Sizes, v and φ after one step; None if there is no descent above rounding."""
        index, *ways = self.direction(sizes, images)
        for change, slope in ways:
            if slope < 0:
                found = self.search(sizes, index, change, slope, value)
                if found is not None:
                    return found
        return None

    def first_sizes(self, time_limit: float) -> Float[Tensor, "G"]:
        """Those of a problem of half the samples where this one is large; else equal ones, with
        the units of y over a singular value of A, for the blocks that would lower φ most."""
        if self.problem.gram_size > _SMALL and len(self.problem.X) > 1:
            half = self.problem.part(slice(0, None, 2)).with_beta(self.beta / 2)
            solution = newton(half, tol=1e-2, progress=False, time_limit=time_limit)
            sizes = torch.linalg.vector_norm(solution.coefficients.reshape(self.count, -1), dim=1)
            if float(sizes.sum()) > 0:
                return sizes
        images = torch.linalg.vector_norm(self.images(self.target), dim=1)
        sizes = self.target.new_zeros(self.count)
        length = float(images.norm())
        if length == 0:
            return sizes  # A*y = 0: zero is optimal
        chosen = images.topk(min(self.count, _FIRST_BLOCKS)).indices
        sizes[chosen] = float(self.target.square().sum()) / length / len(chosen) ** 0.5
        return sizes

    def note(self, step: int, sizes: Tensor, v: Tensor, images: Tensor, log: Log) -> bool:
        """Log the coefficients of these sizes; rule out blocks by the gap."""
        problem, lengths = self.problem, torch.linalg.vector_norm(images, dim=1)
        coefficients = images * (sizes / self.beta)[:, None]
        point = coefficients.reshape(problem.coefficient_shape)
        if log.problem.X.dtype == torch.float64:
            # What the log would compute, from what is known: images of v, and blocks in use.
            on = torch.nonzero(sizes)[:, 0]
            own = torch.zeros_like(self.target)
            if len(on):
                own = problem.outputs(coefficients[on, :, None], problem._masks_of(on))
            objective = float(problem.loss.value(own) + self.beta * problem.norm(point))
            rounding = 8 * images.shape[1] * torch.finfo(images.dtype).eps
            polar = float(lengths.max()) * (1 + rounding)
            if log.record(step, point, objective, self.target - v, polar=polar):
                return True
        elif log.note(step, point, self.target - v):
            return True
        # The dual objective is 1-strongly concave: its maximiser lies within this radius of any
        # admissible point whose value is known.
        scale = min(1.0, self.beta / max(float(lengths.max()), 1e-300))
        dual = -float(self.problem.loss.conjugate(-scale * v))
        radius = (2 * max(log.objective - dual, 0.0)) ** 0.5 * (1 + 1e-9)
        self.accuracy = min(max(0.01 * log.gap, 1e-13), 1e-6)
        self.alive &= scale * lengths + radius * self.norm_bounds >= self.beta
        return False

    def direction(
        self, sizes: Float[Tensor, "G"], images: Float[Tensor, "G p"]
    ) -> tuple[Tensor, tuple[Tensor, float], tuple[Tensor, float]]:
        """Blocks in the model, their change to its minimum over non-negative sizes with the slope
        of φ along it; and the same for a step along the gradient, should the first one fail."""
        gradient = (self.beta**2 - images.square().sum(dim=1)) / (2 * self.beta)
        on = sizes > 0
        entering = torch.nonzero(~on & self.alive & (gradient < 0))[:, 0]
        most = max(_MOST_CANDIDATES, int(on.sum()))
        if len(entering) > most:
            entering = entering[gradient[entering].topk(most, largest=False).indices]
        index = torch.cat([torch.nonzero(on)[:, 0], entering])
        size, slope = sizes[index], gradient[index]
        hessian = self.hessian(images[index], index)
        curvature = hessian.diagonal().clamp_min(1e-300)
        # Steadies the first steps where blocks are almost dependent; must not slow the last ones.
        ridge = min(max(self.accuracy, 1e-12), 1e-8)
        start = (size > 0) | (slope < 0)
        new = _least_non_negative(hessian, slope - hessian @ size, start, ridge)
        # φ lies below the separable model with |J| times the curvatures, close to ``sizes``.
        scaled = (size - slope / (len(index) * curvature)).clamp_min(0)
        ways = [(way - size, float((way - size) @ slope)) for way in (new, scaled)]
        return index, *ways

    def search(
        self, sizes: Tensor, index: Tensor, change: Tensor, slope: float, value: float
    ) -> tuple[Tensor, Tensor, float] | None:
        """First of the steps 1, ½, ¼, … with sufficient decrease: sizes, v, φ."""
        length = 1.0
        for _ in range(_HALVINGS):
            moved = sizes.clone()
            moved[index] = (sizes[index] + length * change).clamp_min(0)
            v, reached = self.solve(moved, self.accuracy)
            # φ is known to a few units of its last place; near the minimum the full step is right.
            if reached <= value + _SUFFICIENT * length * slope + 1e-14 * abs(value):
                return moved, v, reached
            length *= 0.5
        return None


def _least_non_negative(
    hessian: Float[Tensor, "J J"], linear: Float[Tensor, "J"], start: Tensor, ridge: float
) -> Float[Tensor, "J"]:
    r"""Minimiser of :math:`\tfrac12\eta^\top H\eta + l^\top\eta` over :math:`\eta \ge 0`, by block
    principal pivoting (Júdice and Pires 1994): all variables with a wrong sign, or a wrong sign of
    their derivative, change sides together, and one by one where that does not help.

    The Hessian is scaled to unit diagonal, with ``ridge`` added, or more where its rounding asks for it.
    """
    scale = hessian.diagonal().clamp_min(0).sqrt()
    scale = torch.where(scale > 0, 1 / scale, 1.0)
    H = hessian * scale[:, None] * scale
    H.diagonal().add_(ridge)
    slope = linear * scale
    count, tiny = len(slope), 1e-12 * float(slope.abs().max())
    free = start
    fewest, patience = count + 1, 3
    best = torch.zeros_like(slope)
    for _ in range(3 * count + 30):
        x = torch.zeros_like(slope)
        index = torch.nonzero(free)[:, 0]
        if len(index):
            factor, failed = torch.linalg.cholesky_ex(H[index][:, index])
            if failed:  # rounding of the Hessian
                ridge = max(100 * ridge, 1e-10)
                H.diagonal().add_(ridge)
                continue
            x[index] = torch.cholesky_solve(-slope[index, None], factor)[:, 0]
        wrong = torch.where(free, x < 0, H @ x + slope < -tiny)
        best, number = x, int(wrong.sum())
        if number == 0:
            break
        if number < fewest:
            fewest, patience = number, 3
        else:
            patience -= 1
        if patience > 0:
            free = free ^ wrong
        else:  # the last wrong one alone: this rule cannot cycle
            last = int(torch.nonzero(wrong)[-1])
            free = free.clone()
            free[last] = ~free[last]
    return best.clamp_min(0) * scale
