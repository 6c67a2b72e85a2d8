"""Where loaded data is kept, and how several processes share it without harm."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import platformdirs
from filelock import FileLock, Timeout

from fourviews.display import progress_enabled

# Long enough for another process to finish a large download, short enough to say what it waits for.
_LOCK_SECONDS = 3600.0
# After this long a reader should know what is waited for.
_SECONDS_UNTOLD = 10.0

#: Numbers of the errors of a full disk, and of a full share of one.
FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


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
    """Hold the lock that belongs to ``target`` (a file beside it), waiting for other processes.

    Raises
    ------
    TimeoutError
        If another process holds it for so long.
    OSError
        If nothing can be written there; the message names the variable that moves the cache.
    """
    lock = FileLock(target.parent / f".{target.name}.lock")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=min(seconds, _SECONDS_UNTOLD))
        except Timeout:
            if seconds > _SECONDS_UNTOLD and progress_enabled():
                print(f"waiting for another process that works on {target}", file=sys.stderr)
            lock.acquire(timeout=max(seconds - _SECONDS_UNTOLD, 0))
    except Timeout:
        raise TimeoutError(
            f"another process has held the lock on {target} for {seconds:.0f} s;"
            f" if none is running, delete {lock.lock_file}"
        ) from None
    except OSError as error:
        raise _unwritable(target.parent, error) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def atomic_write(target: Path, mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """Open a temporary file that becomes ``target`` at the end, or disappears if anything goes
    wrong.

    Readers see the old content or the new, never a part of it.

    Raises
    ------
    OSError
        If the folder cannot be written to, or the disk is full; the message names the file.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        with os.fdopen(handle, mode, **options) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in FULL:
            raise _unwritable(target, error) from error
        raise


def _unwritable(place: Path, error: OSError) -> OSError:
    """The same error, with where it happened and what helps."""
    what = "no room for" if error.errno in FULL else "cannot write to"
    return OSError(
        error.errno,
        f"{what} {place} ({error.strerror}). If it is in the cache, FOURVIEWS_CACHE may name a"
        " folder with more room that you may write to",
    )
