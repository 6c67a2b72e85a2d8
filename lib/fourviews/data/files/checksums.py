"""Is this file the one that was meant?"""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path

_DIGITS = {"md5": 32, "sha1": 40, "sha256": 64}


class ChecksumError(ValueError):
    """A file's content is not what was published under its name."""


def parse_checksum(checksum: str) -> tuple[str, str]:
    """Split ``"sha256:<hex>"`` (or md5, sha1) into algorithm and lower-case digest.

    Raises
    ------
    ValueError
        If the algorithm is unknown or the digest has the wrong length.
    """
    algorithm, _, digest = checksum.partition(":")
    digest = digest.lower()
    if algorithm not in _DIGITS or not re.fullmatch(rf"[0-9a-f]{{{_DIGITS[algorithm]}}}", digest):
        raise ValueError(
            f"checksum is {checksum!r}; it needs to read md5:…, sha1:… or sha256:… in"
            " hexadecimal digits"
        )
    return algorithm, digest


def digest(path: Path, algorithm: str = "sha256") -> str:
    """Hexadecimal digest of a file's content, read in pieces."""
    # md5 and sha1 are what some publishers give; they guard against damage here, not against
    # forgery.
    with open(path, "rb") as file:
        return hashlib.file_digest(
            file, lambda: hashlib.new(algorithm, usedforsecurity=False)
        ).hexdigest()


def verify(path: Path, checksum: str) -> None:
    """Raise :class:`ChecksumError` unless the file's content has this checksum."""
    algorithm, expected = parse_checksum(checksum)
    got = digest(path, algorithm)
    if not hmac.compare_digest(got, expected):
        raise ChecksumError(f"{path.name} has {algorithm} {got}, the published one is {expected}")
