r"""Several processes that hold parts of the samples and sum over all of them.

Started by ``torchrun``, each process runs the same script::

    with convex.processes() as group:
        problem = group.part(convex.MLP(X, Y, beta=0.1))    # X memory-mapped
        solution = convex.factored(problem, shard=512, group=group)

All that a solver decides on comes from sums over all samples, so every process takes the same steps
and ends with the same solution.  Losses, gradients and the products behind a certificate are such sums.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from .problem import Problem, _is_number

__all__ = ["Group", "processes"]


class Group:
    """One process alone, or this process among several.

    Attributes
    ----------
    rank, size : int
        Number of this process, from 0, and how many there are.
    device : torch.device
        Where this process works: shards are brought there, one at a time.
    """

    def __init__(
        self, rank: int = 0, size: int = 1, device: torch.device | str = "cpu", seconds: float = 0
    ) -> None:
        self.rank, self.size, self.device = rank, size, torch.device(device)
        self._seconds = seconds

    def all_sum(self, value: Tensor) -> Tensor:
        """Sum of this tensor over all processes, in place; the same in each of them.

        Raises
        ------
        RuntimeError
            If another process ended, or did not come within the time-out.
        """
        if self.size > 1:
            import torch.distributed as dist

            self._call(lambda: dist.all_reduce(value))
        return value

    def total(self, number: float | int) -> float:
        """Sum of a number over all processes."""
        return float(self.all_sum(torch.tensor([number], dtype=torch.float64, device=self.device)))

    def from_first(self, function: Callable[[], Any]) -> Any:
        """What the function returns, or the ValueError that it raises, in the first process alone."""
        answer: list[Any] = [None, None]
        if self.rank == 0:
            try:
                answer[0] = function()
            except ValueError as error:
                answer[1] = str(error)
        if self.size > 1:
            import torch.distributed as dist

            self._call(lambda: dist.broadcast_object_list(answer, src=0))
        if answer[1] is not None:
            raise ValueError(answer[1])
        return answer[0]

    def share(self, count: int) -> slice:
        """This process's of ``count`` samples: consecutive ones, nearly as many for each."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def part(self, problem: Problem) -> Problem:
        """The problem on this process's share of its samples, which may be none."""
        return problem.part(self.share(len(problem.X)))

    def _call(self, communicate: Callable[[], object]) -> None:
        try:
            communicate()
        except RuntimeError as error:
            raise RuntimeError(
                f"process {self.rank} of {self.size} lost another one: it ended, or did not answer "
                f"within {self._seconds:g} seconds.  Start all of them again; with a checkpoint they "
                "go on where they were."
            ) from error


@contextmanager
def processes(*, timeout: float = 600.0) -> Iterator[Group]:
    """The processes that ``torchrun`` started; without it this process alone.

    They speak through NCCL where each has a GPU, else through gloo.

    Parameters
    ----------
    timeout : float
        Seconds that a process waits for the others before it ends with a RuntimeError.  A shard
        of the slowest process has to fit, and what one process does alone, such as its checks of
        the data.

    Raises
    ------
    ValueError
        If ``timeout`` is no number > 0, or the variables that ``torchrun`` sets do not fit together.
    RuntimeError
        If the others do not come together in time.
    """
    if not (_is_number(timeout) and 0 < timeout < float("inf")):
        raise ValueError(f"timeout must be a number of seconds > 0, got {timeout!r}")
    size = _variable("WORLD_SIZE", 1)
    # Several processes that all took themselves for the first would wait for each other.
    rank = 0 if size == 1 else _variable("RANK", None)
    if not 0 <= rank < size:
        raise ValueError(f"RANK must be less than WORLD_SIZE, got {rank} and {size}")
    gpu = _variable("LOCAL_WORLD_SIZE", 1) <= torch.cuda.device_count()
    device = torch.device("cuda", _variable("LOCAL_RANK", 0)) if gpu else "cpu"
    if gpu:
        torch.cuda.set_device(device)
    if size == 1:
        yield Group(device=device)
        return
    import torch.distributed as dist

    group = Group(rank, size, device, timeout)
    group._call(
        lambda: dist.init_process_group(
            "nccl" if gpu else "gloo", timeout=timedelta(seconds=timeout)
        )
    )
    try:
        yield group
    finally:
        dist.destroy_process_group()


def _variable(name: str, default: int | None) -> int:
    """A number that ``torchrun`` puts into the environment."""
    text = os.environ.get(name, "" if default is None else str(default))
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{name} must be a whole number, as torchrun sets it, got {text!r}")
    return int(text)
