"""Where loaded data is kept, and how several processes share it without harm."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import platformdirs
from filelock import FileLock, Timeout

# Long enough for another process to finish a large download, short enough to say what it waits for.
_LOCK_SECONDS = 3600.0


def cache_dir() -> Path:
    """The cache folder: ``FOURVIEWS_CACHE`` if set, else the system's place for caches.

    Raises
    ------
    OSError
        If the folder cannot be made; the message names the variable that moves it.
    """
    named = os.environ.get("FOURVIEWS_CACHE", "").strip()
    folder = (
        Path(named).expanduser()
        if named
        else Path(platformdirs.user_cache_dir("fourviews", appauthor=False))
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"cannot make the cache folder {folder} ({error.strerror}); set FOURVIEWS_CACHE"
            " to a folder you may write to"
        ) from error
    return folder


@contextmanager
def locked(target: Path, *, seconds: float = _LOCK_SECONDS) -> Iterator[None]:
    """Hold the lock that belongs to ``target`` (a file beside it), waiting for other processes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(target.parent / f".{target.name}.lock")
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        raise TimeoutError(
            f"another process has held the lock on {target} for {seconds:.0f} s;"
            f" if none is running, delete {lock.lock_file}"
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def atomic_write(target: Path, mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """Open a temporary file that becomes ``target`` at the end, or disappears if anything goes
    wrong.

    Readers see the old content or the new, never a part of it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, mode, **options) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
