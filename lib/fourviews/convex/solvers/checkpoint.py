"""The state of an interrupted solve: one file, whole or absent, for one problem alone."""

from __future__ import annotations

import hashlib
import io
import os
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fourviews.data.files import sealed
from fourviews.data.files.checksums import ChecksumError

from ..shards import Shards, _digest, identity

__all__ = ["Checkpoint"]

_FORMAT = 1
_ADVICE = "give another path, or delete the file to begin anew"


class Checkpoint:
    """Reads and writes the state; in a group the first process does, for all.

    A file is refused unless it comes from the same program on the same samples, in any order and
    in any parts: the bound in it would else be no bound.
    """

    def __init__(self, path: str | PathLike, shards: Shards, options: dict[str, str]) -> None:
        # Absolute: the program may go to another folder before it is written.
        self.path, self.group = Path(path).absolute(), shards.group
        self.problem = identity(shards.problem) | options
        self.problem["samples"] = f"{shards.n_samples}, digest {_content(shards)}"

    def load(self) -> dict[str, Any] | None:
        """The state, on the CPU; None if there is no file."""
        return self.group.from_first(self._read)

    def _read(self) -> dict[str, Any] | None:
        # What one process alone sees has to be said to all: see `from_first`.
        if self.path.is_dir() or not self.path.parent.is_dir():
            raise ValueError(
                f"checkpoint must be a file in a folder that exists, got {str(self.path)!r}"
            )
        try:  # now, and not when the first round is over
            self._beside.touch()
            self._beside.unlink()
        except OSError as error:
            raise ValueError(
                f"checkpoint {str(self.path)!r} cannot be written ({error.strerror})"
            ) from error
        if not self.path.exists():
            return None
        try:
            content = sealed.read(self.path)
            if content is None:  # unpacking alone would not see every changed byte
                raise ChecksumError("other bytes than were written")
            found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
            format, problem, state = (found[key] for key in ("format", "problem", "state"))
        except Exception as error:
            raise ValueError(
                f"checkpoint {str(self.path)!r} cannot be read ({type(error).__name__}): it is "
                f"damaged or no checkpoint; {_ADVICE}"
            ) from error
        if format != _FORMAT:
            raise ValueError(
                f"checkpoint {str(self.path)!r} has format {format}, not {_FORMAT}; {_ADVICE}"
            )
        differ = [
            f"{name} {problem.get(name)} there, {value} here"
            for name, value in self.problem.items()
            if problem.get(name) != value
        ]
        if differ:
            raise ValueError(
                f"checkpoint {str(self.path)!r} belongs to another problem: {'; '.join(differ)}; "
                f"{_ADVICE}"
            )
        return state

    def write(self, state: dict[str, Any]) -> None:
        """Replace the file by the new state in one step.

        Raises
        ------
        OSError
            If it cannot be written; what was there stays.
        """
        if self.group.rank > 0:
            return
        # To memory first: torch turns a full disk into an error that does not name it.
        content = io.BytesIO()
        torch.save({"format": _FORMAT, "problem": self.problem, "state": state}, content)
        try:
            sealed.write(self.path, content.getbuffer())
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise OSError(
                error.errno,
                f"checkpoint {str(self.path)!r} cannot be written ({reason}); the one before"
                " it, if any, is left as it was",
            ) from error

    @property
    def _beside(self) -> Path:
        return self.path.with_name(f"{self.path.name}.{os.getpid()}.part")


def _content(shards: Shards) -> str:
    """Digest of the samples with their targets, the same in any order and in any parts."""
    total = torch.zeros(4, dtype=torch.int64)
    X, Y = shards.problem.X, shards.problem.loss.target
    for start in range(0, len(X), 256):
        part = slice(start, start + 256)
        for x, y in zip(X[part].cpu(), Y[part].cpu(), strict=True):
            total += _digest(_bytes(x) + _bytes(y))
    total = shards.group.all_sum(total.to(shards.device)).cpu()
    return hashlib.blake2b(_bytes(total), digest_size=16).hexdigest()


def _bytes(value: Tensor) -> bytes:
    return value.contiguous().numpy().tobytes()
