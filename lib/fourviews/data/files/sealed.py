"""Small files with the SHA-256 of their content behind it: what is damaged counts as missing."""

from __future__ import annotations

import hashlib
from pathlib import Path

from .cache import atomic_write

_SEAL = hashlib.sha256().digest_size


def write(file: Path, content: bytes | memoryview) -> None:
    """Make a file with this content, or none."""
    with atomic_write(file) as handle:
        handle.write(content)
        handle.write(hashlib.sha256(content).digest())


def read(file: Path) -> bytes | None:
    """The content; None if there is no such file, or other bytes than were written."""
    try:
        raw = file.read_bytes()
    except FileNotFoundError:
        return None
    content, seal = raw[:-_SEAL], raw[-_SEAL:]
    return content if hashlib.sha256(content).digest() == seal else None
