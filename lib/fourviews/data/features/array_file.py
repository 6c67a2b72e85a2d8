"""A large array in a file: written in pieces, continued after an interruption, verified, mapped.

A folder holds ``array.npy``, which :func:`numpy.load` reads too, ``about.json``, which says what the
array is, and ``pieces.txt``, one line a piece: its number and the SHA-256 of its bytes.  While it is
written, the folder's name ends in ``.part``; it gets its name at the end, in one step.  A piece is
entered in ``pieces.txt`` after its bytes are on the disk; a piece without a line, or with other
bytes than its line says, is not there.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Shaped

from fourviews.display import progress as bar_of

from ..files.cache import FULL, atomic_write, locked
from ..files.checksums import ChecksumError

# Long enough for another process to compute a large set; a lock ends with the process that holds it.
_LOCK_SECONDS = 24 * 3600.0
_BLOCK = 1 << 20
_FILES = ("array.npy", "about.json", "pieces.txt")

#: Computes rows ``start … stop − 1``; its second argument is to be called with the number of rows
#: that are ready, as they become so.
Compute = Callable[[slice, Callable[[int], Any]], Shaped[np.ndarray, "m *shape"]]


@dataclass(frozen=True)
class Layout:
    """Shape and type of the array, and rows in a piece."""

    shape: tuple[int, ...]
    dtype: np.dtype
    piece: int

    @property
    def n_pieces(self) -> int:
        return -(-self.shape[0] // self.piece)

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize

    @property
    def header(self) -> bytes:
        """What stands before the numbers in an .npy file."""
        raw = io.BytesIO()
        description = np.lib.format.dtype_to_descr(self.dtype)
        np.lib.format.write_array_header_1_0(
            raw, {"descr": description, "fortran_order": False, "shape": self.shape}
        )
        return raw.getvalue()

    @property
    def n_bytes(self) -> int:
        return len(self.header) + self.shape[0] * self.row_bytes

    def rows(self, piece: int) -> slice:
        return slice(piece * self.piece, min((piece + 1) * self.piece, self.shape[0]))

    def place(self, piece: int) -> tuple[int, int]:
        """First byte of a piece in the file, and how many it has."""
        rows = self.rows(piece)
        first = len(self.header) + rows.start * self.row_bytes
        return first, (rows.stop - rows.start) * self.row_bytes


def write(
    folder: Path,
    about: dict[str, Any],
    layout: Layout,
    compute: Compute,
    *,
    what: str,
    note: Any = None,
    verify: bool = True,
    progress: bool | None = None,
) -> int:
    """Make sure that ``folder`` holds the array, computing the pieces that are missing.

    One process computes; others wait for it.  Damaged pieces of an array that was whole are computed
    again, with a warning.

    Parameters
    ----------
    folder
        Where the array goes; another array never uses the same name.
    about
        Says what the array is; goes through JSON unchanged.
    layout
        Its shape, type and pieces.
    compute
        Gives rows of it, in its type.
    what
        What the rows are, for messages and the bar.
    note
        Goes with ``about`` where the array is made, and does not matter where it is found.
    verify
        Whether an array that is there is read and compared with its digests.
    progress
        Whether a bar is shown; None follows the environment.

    Returns
    -------
    int
        How many rows were computed in this call.

    Raises
    ------
    OSError
        If the disk is too small, or becomes full; what was written stays for another try.
    TimeoutError
        If another process has been at it for a day.
    """
    if folder.exists() and _missing(folder, about, layout, verify) == []:
        return 0
    with locked(folder, seconds=_LOCK_SECONDS):
        part = folder.with_name(f"{folder.name}.part")
        if folder.exists():
            missing = _missing(folder, about, layout, verify)
            if missing == []:
                return 0
            how_many = (
                "all of it" if missing is None else f"{len(missing)} of {layout.n_pieces} pieces"
            )
            warnings.warn(
                f"the kept {what} in {folder} are damaged ({how_many}); they are computed again",
                stacklevel=4,
            )
            shutil.rmtree(part, ignore_errors=True)
            # First of all, so that nobody takes it for whole.
            os.rename(folder, part)
            for file in part.iterdir():  # what was derived from damaged bytes
                if file.name not in _FILES:
                    file.unlink()
        missing = _missing(part, about, layout, True) if part.exists() else None
        if missing is None:
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            missing = list(range(layout.n_pieces))
        _check_room(part, layout, what)
        try:
            _describe(part, about, note)
            computed = _fill(part, layout, missing, compute, what, progress)
        except OSError as error:
            if error.errno in FULL:
                raise _full(part, layout, what) from error
            raise
        os.rename(part, folder)
        _sync_folder(folder.parent)
    return computed


def read_about(folder: Path) -> tuple[dict[str, Any], Any]:
    """What the array in a folder is, and the note that goes with it.

    Raises
    ------
    FileNotFoundError
        If there is no such folder, or the array in it is not whole yet.
    ChecksumError
        If its description is damaged.
    """
    if folder.name.endswith(".part") or not folder.is_dir():
        raise FileNotFoundError(f"{folder} holds no whole array")
    return _read_about(folder)


def about_digest(about: dict[str, Any]) -> str:
    """SHA-256 of a description."""
    text = json.dumps(about, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def content_digest(folder: Path, layout: Layout) -> str:
    """SHA-256 of the digests of all pieces: the name of what the array holds.

    Raises
    ------
    ChecksumError
        If the digests of some pieces are missing, or there are others.
    """
    digests = _digests(folder)
    if sorted(digests) != list(range(layout.n_pieces)):
        raise ChecksumError(
            f"{folder / 'pieces.txt'} is damaged: it names {len(digests)} of {layout.n_pieces} pieces"
        )
    joined = "".join(digests[piece] for piece in range(layout.n_pieces))
    return hashlib.sha256(joined.encode()).hexdigest()


def verify(folder: Path, layout: Layout) -> None:
    """Read the whole array and compare it with its digests.

    Raises
    ------
    ChecksumError
        If the file is shorter or longer than it should be, or pieces have other content.
    """
    file = folder / "array.npy"
    size = file.stat().st_size
    if size != layout.n_bytes:
        raise ChecksumError(f"{file} has {size} bytes; it needs {layout.n_bytes}")
    damaged = _damaged(folder, layout)
    if damaged:
        raise ChecksumError(
            f"{file} is damaged: {len(damaged)} of {layout.n_pieces} pieces have another SHA-256,"
            f" the first of them with the rows from {layout.rows(damaged[0]).start}"
        )


def mapped(folder: Path, layout: Layout) -> Shaped[np.ndarray, "*shape"]:
    """The array, read-only, in pages that belong to the file: it takes no memory of its own.

    Raises
    ------
    ChecksumError
        If the file has another size or type than it should have.
    """
    file = folder / "array.npy"
    with open(file, "rb") as handle:
        header = handle.read(len(layout.header))
    if header != layout.header or file.stat().st_size != layout.n_bytes:
        raise ChecksumError(f"{file} is damaged: it has another type or size than it should have")
    if 0 in layout.shape:  # nothing to map
        array = np.empty(layout.shape, layout.dtype)
        array.flags.writeable = False
        return array
    return np.memmap(file, layout.dtype, "r", len(header), layout.shape)


def _describe(part: Path, about: dict[str, Any], note: Any) -> None:
    digest = about_digest({"about": about, "note": note})
    text = json.dumps({"about": about, "note": note, "sha256": digest}, sort_keys=True)
    _write_text(part / "about.json", text)


def _read_about(folder: Path) -> tuple[dict[str, Any], Any]:
    file = folder / "about.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        about, note, digest = found["about"], found["note"], found["sha256"]
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        raise ChecksumError(f"{file} is missing or damaged ({error})") from error
    if about_digest({"about": about, "note": note}) != digest:
        raise ChecksumError(f"{file} is damaged (its SHA-256 is another)")
    return about, note


def _missing(
    folder: Path, about: dict[str, Any], layout: Layout, verified: bool
) -> list[int] | None:
    """The pieces that are not there; None if nothing of the folder can be used."""
    try:
        if _read_about(folder)[0] != about:
            return None
        with open(folder / "array.npy", "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if file.read(len(layout.header)) != layout.header or size > layout.n_bytes:
                return None
        if verified or size != layout.n_bytes:
            return _damaged(folder, layout)
    # Missing also where another process takes the folder away to repair it.
    except (FileNotFoundError, ChecksumError):
        return None
    digests = _digests(folder)
    return [piece for piece in range(layout.n_pieces) if piece not in digests]


def _damaged(folder: Path, layout: Layout) -> list[int]:
    digests = _digests(folder)
    with open(folder / "array.npy", "rb") as file:
        return [
            piece
            for piece in range(layout.n_pieces)
            if piece not in digests or _digest_of(file, *layout.place(piece)) != digests[piece]
        ]


def _digests(folder: Path) -> dict[int, str]:
    """Of each piece that is there; a line that an interruption cut counts for nothing."""
    file = folder / "pieces.txt"
    found = {}
    for line in (
        file.read_text(encoding="ascii", errors="replace").splitlines() if file.is_file() else ()
    ):
        number, _, digest = line.partition(" ")
        if number.isascii() and number.isdigit() and len(digest) == 64:
            found[int(number)] = digest
    return found


def _digest_of(file: IO[bytes], first: int, count: int) -> str:
    file.seek(first)
    digest = hashlib.sha256()
    while count:
        block = file.read(min(count, _BLOCK))
        if not block:
            return ""
        digest.update(block)
        count -= len(block)
    return digest.hexdigest()


def _fill(
    part: Path,
    layout: Layout,
    missing: list[int],
    compute: Compute,
    what: str,
    progress: bool | None,
) -> int:
    kept = {k: digest for k, digest in _digests(part).items() if k not in set(missing)}
    _write_text(part / "pieces.txt", "".join(f"{k} {digest}\n" for k, digest in kept.items()))
    computed = 0
    new = not (part / "array.npy").exists()
    with (
        open(part / "array.npy", "w+b" if new else "r+b") as file,
        open(part / "pieces.txt", "a", encoding="ascii") as listed,
        bar_of(total=layout.shape[0], label=what, enabled=progress) as bar,
    ):
        file.write(layout.header)
        bar.update(layout.shape[0] - sum(_count(layout, piece) for piece in missing))
        for piece in missing:
            rows = layout.rows(piece)
            values = np.ascontiguousarray(compute(rows, bar.update))
            expected = (rows.stop - rows.start, *layout.shape[1:])
            if values.shape != expected or values.dtype != layout.dtype:
                raise ValueError(
                    f"rows have shape {values.shape} and dtype {values.dtype}; they need"
                    f" {expected} and {layout.dtype}"
                )
            raw = memoryview(values).cast("B") if values.size else b""
            _put(file, layout.place(piece)[0], raw)
            # Only now: the line says that the bytes are there.
            listed.write(f"{piece} {hashlib.sha256(raw).hexdigest()}\n")
            listed.flush()
            os.fsync(listed.fileno())
            computed += rows.stop - rows.start
        file.truncate(layout.n_bytes)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(part)
    return computed


def _put(file: IO[bytes], first: int, raw: memoryview | bytes) -> None:
    """Write and wait until the disk has it."""
    file.seek(first)
    file.write(raw)
    file.flush()
    os.fsync(file.fileno())


def _count(layout: Layout, piece: int) -> int:
    rows = layout.rows(piece)
    return rows.stop - rows.start


def _write_text(file: Path, text: str) -> None:
    with atomic_write(file, "w", encoding="utf-8") as handle:
        handle.write(text)


def _check_room(part: Path, layout: Layout, what: str) -> None:
    if shutil.disk_usage(part).free < _needed(part, layout):
        raise _full(part, layout, what)


def _needed(part: Path, layout: Layout) -> int:
    """Bytes that the disk does not hold yet."""
    file = part / "array.npy"
    if not file.exists():
        return layout.n_bytes
    status = file.stat()
    # Where known, what is occupied: the file may have holes.
    occupied = status.st_blocks * 512 if hasattr(status, "st_blocks") else status.st_size
    return max(layout.n_bytes - occupied, 0)


def _full(part: Path, layout: Layout, what: str) -> OSError:
    free, needed = shutil.disk_usage(part).free, _needed(part, layout)
    return OSError(
        errno.ENOSPC,
        f"no room for {what}: {needed:,} bytes more are needed and {free:,} are free in"
        f" {part.parent}. Make room, or set FOURVIEWS_CACHE to a folder on a larger disk; what was"
        " written stays and is continued",
    )


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
