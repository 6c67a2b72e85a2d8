r"""Objective, gradient and certificate of a problem, a shard of its samples at a time.

Every quantity that a solver needs is a sum over samples, so it is formed from the terms of the
shards, here and, in a :class:`~fourviews.convex.Group`, in all other processes.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from .certificates import relative_gap
from .distributed import Group
from .losses import CrossEntropy, Squared
from .matrix_free import LARGEST_BLOCKS, gradient_bound
from .norms import polar_upper_bound
from .options import keywords, refuse_unknown
from .problem import Problem, _is_integer
from .solution import Neurons

__all__ = ["Certificate", "Shards", "identity", "room"]

# Arrays with more entries, 256 MB in float64, are kept in a temporary file.
_LARGEST_KEPT = 2**25
_PIECE = 2**20  # entries of a residual that are summed at a time


class Certificate(NamedTuple):
    """Value of the objective at a point, a lower bound on the optimum, and their relative gap."""

    objective: float
    lower_bound: float
    relative_gap: float


class Shards:
    r"""A linear or gated-ReLU problem whose samples are visited ``size`` at a time.

    Points are coefficients, (p, q) with a leading gate axis unless linear, or
    ``Neurons``, the units of a network, which are never multiplied out.
    Products are formed in the precision of the point, sums over samples in float64.

    Memory beyond data and targets grows with ``size``, not with n: a certificate's residuals, one
    float64 number for each target, go to a temporary file where they take more than 256 MB.

    Parameters
    ----------
    problem : Problem
        On the samples of this process.  Data may be memory-mapped.
    size : int, optional
        Samples at a time; all if not given.
    group : Group, optional
        Processes that hold the other samples.  Their problems must agree in all but the samples.

    Attributes
    ----------
    n_samples : int
        Of all processes.
    at_zero : float
        Objective of the zero network.

    Raises
    ------
    ValueError
        For ReLU, if size is no integer >= 1, or if the processes' problems do not agree.
    """

    def __init__(
        self, problem: Problem, size: int | None = None, *, group: Group | None = None
    ) -> None:
        if problem.cones:
            raise ValueError('shards are for "linear" and "gated_relu", got activation="relu"')
        if size is not None and not (_is_integer(size) and size >= 1):
            raise ValueError(f"shard must be an integer >= 1, got {size!r}")
        self.problem = problem
        self.group = Group(device=problem.X.device) if group is None else group
        self.device = self.group.device
        self.size = max(1, len(problem.X)) if size is None else int(size)
        self.agree(
            "their problems in all but the samples (gates that n_gates draws depend on the samples: "
            "give gates, and classes, to each)",
            "; ".join(f"{name} {value}" for name, value in identity(problem).items()),
        )
        self.n_samples = round(self.group.total(len(problem.X)))
        if self.n_samples == 0:
            raise ValueError("no process has any samples")
        self._whole: Problem | None = None
        self.at_zero = self._total(lambda loss, R: loss.value(torch.zeros_like(loss.target)), None)

    def agree(self, what: str, value: str) -> None:
        """Raise a ValueError in every process if they have not all the same value.

        Parameters
        ----------
        what : str
            What the processes must agree on, for the message.
        value : str
            The value in this process.
        """
        if self.group.size == 1:
            return
        digest = _digest(value.encode()) >> 8  # room for the sum
        total = self.group.all_sum(digest.clone().to(self.device)).cpu()
        differ = bool((total != self.group.size * digest).any())
        if self.group.total(differ):
            raise ValueError(
                f"the processes must agree on {what}; process {self.group.rank} has {value}"
            )

    def __iter__(self) -> Iterator[tuple[slice, Problem]]:
        """This process's samples in parts, and where they are."""
        n = len(self.problem.X)
        if self.size >= n:
            if n:
                self._whole = self._whole or self.problem.on(self.device)
                yield slice(0, n), self._whole
            return
        for start in range(0, n, self.size):
            part = slice(start, min(start + self.size, n))
            yield part, self.problem.part(part).on(self.device)

    def sum(
        self, term: Callable[[slice, Problem], Tensor], shape: tuple[int, ...]
    ) -> Float[Tensor, "*shape"]:
        """Sum of a term of each part of the samples, in float64, over all processes.

        Parameters
        ----------
        term : callable
            From the slice of a part and its problem to a tensor.
        shape : tuple of int
            Shape of the term.
        """
        total = torch.zeros(shape, dtype=torch.float64, device=self.device)
        for part, data in self:
            total += term(part, data)
        return self.group.all_sum(total)

    # Values and gradients ----------------------------------------------------------------------

    def objective(self, point: Tensor | Neurons) -> float:
        r""":math:`L(A(Z)) + \beta\|Z\|`; of units the loss and :math:`\tfrac\beta2` times their squares."""
        loss = self.sum(
            lambda part, data: data.loss.to(torch.float64).value(_outputs(data, point).double()), ()
        )
        return float(loss) + self.penalty(point)

    def penalty(self, point: Tensor | Neurons) -> float:
        """The regularisation's part of the objective."""
        if isinstance(point, Neurons):
            size = point.first.double().square().sum() + point.second.double().square().sum()
            return 0.5 * self.problem.beta * float(size)
        return self.problem.beta * float(self.problem.norm(point.double()))

    def loss_and_gradient(self, point: Tensor | Neurons) -> tuple[float, Tensor | Neurons]:
        """The loss, without regularisation, and its gradient in the shape of the point, in float64."""
        units = isinstance(point, Neurons)
        shapes = [layer.shape for layer in point[:2]] if units else [point.shape]
        sizes = [0, 1, *(shape.numel() for shape in shapes)]
        ends = np.cumsum(sizes)
        # One tensor: one sum over the processes.
        total = torch.zeros(int(ends[-1]), dtype=torch.float64, device=self.device)
        parts = [total[a:b] for a, b in zip(ends[:-1], ends[1:], strict=True)]
        for _, data in self:
            loss = data.loss.to(torch.float64)
            if units:
                output, backward = data.units_passes(*point)
                gradients = backward(loss.gradient(output.double()).to(output.dtype))
            else:
                data = data.to(point.dtype)
                output = _outputs(data, point)
                R = loss.gradient(output.double()).to(output.dtype)
                gradients = (data.outputs_adjoint(R, data.masks),)
            parts[0] += loss.value(output.double())
            for piece, gradient in zip(parts[1:], gradients, strict=True):
                piece += gradient.ravel()
        self.group.all_sum(total)
        found = [piece.view(shape) for piece, shape in zip(parts[1:], shapes, strict=True)]
        return float(parts[0]), Neurons(*found, point.block) if units else found[0]

    def normal(self, Z: Float[Tensor, "*G p q"]) -> Float[Tensor, "*G p q"]:
        r""":math:`A^*A(Z)`, in float64."""

        def term(part: slice, data: Problem) -> Tensor:
            data = data.to(Z.dtype)
            return data.outputs_adjoint(_outputs(data, Z), data.masks).view(Z.shape)

        return self.sum(term, Z.shape)

    def energy(self, point: Tensor | Neurons) -> float:
        r""":math:`\|A(Z)\|^2`."""
        return float(self.sum(lambda part, data: _outputs(data, point).double().square().sum(), ()))

    # The certificate -----------------------------------------------------------------------------

    def loss_and_residual(self, point: Tensor | Neurons) -> tuple[float, Float[Tensor, "n *s c"]]:
        """The loss, and its gradient by the predictions of this process's samples, in float64."""
        residual = room(self.problem.loss.target.shape, self.device)
        value = torch.zeros((), dtype=torch.float64, device=self.device)
        point = _double(point)
        for part, data in self:
            loss = data.loss.to(torch.float64)
            output = _outputs(data, point)
            value += loss.value(output)
            residual[part] = loss.gradient(output)
        return float(self.group.all_sum(value)), residual

    def gradient_blocks(self, residual: Float[Tensor, "n *s c"]) -> Float[Tensor, "G p q"]:
        r""":math:`A_j^*(R)` of all blocks, in float64."""

        def term(part: slice, data: Problem) -> Tensor:
            exact = data.to(torch.float64)
            return exact.outputs_adjoint(residual[part].to(self.device), exact.masks)

        return self.sum(term, (self.problem.n_blocks, *self.problem.block_shape))

    @property
    def matrix_free(self) -> bool:
        """Whether the gradient's blocks are too large to be formed."""
        p, q = self.problem.block_shape
        return self.problem.n_blocks * p * q > LARGEST_BLOCKS

    def polar(
        self,
        residual: Float[Tensor, "n *s c"],
        *,
        slack: float = 1e-3,
        failure_probability: float = 1e-9,
        seed: int = 0,
    ) -> float:
        r"""Upper bound on :math:`\max_j\|A_j^*(R)\|_2`.

        Exact up to rounding where the blocks have at most 2·10⁷ entries.  Else ``slack`` above
        what products find, at most, and valid but for ``failure_probability``: see
        a Lanczos bound.

        Parameters
        ----------
        residual : Tensor (n, ..., c)
            R, of the shape of the targets.
        slack, failure_probability, seed
            Of the bound by Lanczos's method: its relative slack, the probability that it fails, and
            the seed of its start.
        """
        if not self.matrix_free:
            return polar_upper_bound(self.gradient_blocks(residual))
        return gradient_bound(
            self, residual, slack=slack, failure_probability=failure_probability, seed=seed
        ).bound

    def lower_bound(self, residual: Float[Tensor, "n *s c"], polar: float) -> float:
        """Lower bound on the optimum from the dual point along the residual, given its polar.

        Parameters
        ----------
        residual : Tensor (n, ..., c)
            R, of the shape of the targets.
        polar : float
            An upper bound on its polar, from :meth:`polar`.
        """
        most = self.problem.beta / polar if polar > 0 else float("inf")
        return self.problem.loss.dual_bound(
            residual, most, lambda term: self._total(term, residual)
        )

    def certificate(self, point: Tensor | Neurons, **options: float) -> Certificate:
        """Objective and lower bound over all samples of all processes; options as for :meth:`polar`.

        With beta = 0 the bound is that of the zero dual point.

        Parameters
        ----------
        point : Tensor or neurons
            Coefficients, or the neurons that stand for them.
        **options
            As for :meth:`polar`.

        Raises
        ------
        TypeError
            For an option that :meth:`polar` does not take.
        """
        refuse_unknown("certificate", options, keywords(Shards.polar))
        loss, residual = self.loss_and_residual(point)
        polar = self.polar(residual, **options) if self.problem.beta > 0 else 1.0
        bound = self.lower_bound(residual, polar)
        objective = loss + self.penalty(point)
        bound = min(bound, objective)  # rounding may lift a tight one above
        return Certificate(objective, bound, relative_gap(objective, bound, self.at_zero))

    def residual_at_zero(self) -> Float[Tensor, "n *s c"]:
        """The loss's gradient where all predictions are zero."""
        target = self.problem.loss.target
        residual = room(target.shape, self.device)
        for rows in _rows(target):
            loss = type(self.problem.loss)(target[rows].to(self.device, torch.float64))
            residual[rows] = loss.gradient(torch.zeros_like(loss.target))
        return residual

    def _total(
        self, term: Callable[[Squared | CrossEntropy, Tensor], Tensor], residual: Tensor | None
    ) -> float:
        target, value = self.problem.loss.target, 0.0
        for rows in _rows(target):
            loss = type(self.problem.loss)(target[rows].to(self.device, torch.float64))
            R = loss.target if residual is None else residual[rows].to(self.device)
            value += float(term(loss, R))
        return self.group.total(value)


def identity(problem: Problem) -> dict[str, str]:
    """What a problem is, but for its samples: two with the same are the same program on other data."""
    n = problem.loss.target.ndim - 1
    found = {
        "head": type(problem).__name__,
        "activation": problem.activation,
        "loss": problem.loss.name,
        "pool": str(problem.pool),
        "beta": repr(problem.beta),
        "sample": f"{tuple(problem.X.shape[1:])} {problem.X.dtype}",
        "target": f"{tuple(problem.loss.target.shape[1:])} in {n} axes",
        "blocks": f"{problem.coefficient_shape}",
        "grid": str(getattr(problem, "grid", None)),
    }
    if problem.gates is not None:
        gates = problem.gates.detach().cpu().contiguous().numpy()
        found["gates"] = hashlib.blake2b(gates.tobytes(), digest_size=8).hexdigest()
    return found


def _digest(content: bytes) -> Tensor:
    digest = hashlib.blake2b(content, digest_size=32).digest()
    return torch.from_numpy(np.frombuffer(digest, dtype="<i8").astype(np.int64))


def _outputs(data: Problem, point: Tensor | Neurons) -> Tensor:
    """Predictions of a part, in the precision of the point."""
    if isinstance(point, Neurons):
        return data.units_forward(*point)
    data = data.to(point.dtype)
    return data.outputs(point.reshape(-1, *data.block_shape), data.masks)


def _double(point: Tensor | Neurons) -> Tensor | Neurons:
    if isinstance(point, Neurons):
        return Neurons(point.first.double(), point.second.double(), point.block)
    return point.double()


def _rows(target: Tensor) -> Iterator[slice]:
    step = max(1, _PIECE // max(1, target[:1].numel()))
    return (slice(start, start + step) for start in range(0, len(target), step))


def room(
    shape: tuple[int, ...], device: torch.device | str, dtype: torch.dtype = torch.float64
) -> Shaped[Tensor, "*shape"]:
    """Numbers to be filled in, on the device or, where they are many, in a temporary file.

    Parameters
    ----------
    shape : tuple of int
        How many.
    device : torch.device or str
        Where they are if they are few; what is in a file is mapped into memory.
    dtype : torch.dtype
        Their type.

    Raises
    ------
    OSError
        If the disk with the temporary files is too small.
    """
    count = int(np.prod(shape, dtype=np.int64))
    if count <= _LARGEST_KEPT:
        return torch.empty(shape, dtype=dtype, device=device)
    kind = torch.empty(0, dtype=dtype).numpy().dtype
    size = count * kind.itemsize
    # Without a name, so that nothing is left whatever happens; the map keeps it.
    with tempfile.TemporaryFile() as file:
        try:
            file.truncate(size)
            # A full disk is an error here, and would be a crash when the numbers are written.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            raise OSError(
                error.errno,
                f"no room for {size:,} bytes in {tempfile.gettempdir()} ({error.strerror}); make "
                "room, or set TMPDIR to a folder on a larger disk",
            ) from error
        return torch.from_numpy(np.memmap(file, dtype=kind, mode="r+", shape=shape))
