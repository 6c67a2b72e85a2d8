"""Fetch a published file: resumed after a cut connection, accepted only with its checksum."""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from fourviews.display import progress
from fourviews.display.switches import switched_on

from .cache import locked
from .checksums import ChecksumError, parse_checksum, verify

_PIECE = 1 << 18
_TIMEOUT = 30.0


class DownloadError(OSError):
    """None of the addresses gave the file."""


def offline() -> bool:
    """Whether ``FOURVIEWS_OFFLINE`` forbids the network."""
    return switched_on("FOURVIEWS_OFFLINE")


def download(
    urls: Sequence[str],
    target: Path,
    *,
    checksum: str,
    n_bytes: int,
    attempts: int = 5,
    pause: float = 1.0,
    timeout: float = _TIMEOUT,
) -> Path:
    """Download to ``target`` from the first address that delivers the right content.

    What has arrived is kept in ``<target>.part``; a cut connection, or the next call after an
    interrupted one, asks only for the rest (HTTP ``Range``). The file gets its name once its
    checksum is right; content with a wrong checksum is deleted.

    Parameters
    ----------
    urls
        Addresses of the same file, http or https, tried in this order.
    target
        Where the file goes.
    checksum
        ``"sha256:…"`` or ``"md5:…"``.
    n_bytes
        Size of the file; more is not accepted.
    attempts
        Connections an address is given without any new byte arriving before the next address is
        tried.
    pause
        Seconds before the second attempt; doubled each time.
    timeout
        Seconds without an answer after which a connection counts as cut.

    Returns
    -------
    Path
        ``target``.

    Raises
    ------
    DownloadError
        If no address answers, or ``FOURVIEWS_OFFLINE`` is set.
    ChecksumError
        If an address answers, but with other content.
    ValueError
        If an address is not http(s), or the checksum is malformed.
    """
    parse_checksum(checksum)
    for url in urls:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"url is {url!r}; it needs to start with http:// or https://")
    with locked(target):
        if target.exists():
            try:
                verify(target, checksum)
                return target
            except ChecksumError:
                target.unlink()
        if offline():
            raise DownloadError(
                f"{target.name} is not here, and FOURVIEWS_OFFLINE forbids to download it"
            )
        part = target.with_name(target.name + ".part")
        failures: list[Exception] = []
        for url in urls:
            # A part that an earlier call left may stem from other content: then once more from the
            # start.
            for _ in range(2 if part.exists() else 1):
                try:
                    _fetch(url, part, n_bytes, target.name, attempts, pause, timeout)
                    verify(part, checksum)
                except ChecksumError as error:
                    part.unlink(missing_ok=True)
                    failures.append(error)
                    continue
                except (OSError, http.client.HTTPException) as error:
                    failures.append(error)
                    break
                os.replace(part, target)
                return target
    reasons = "; ".join(f"{type(error).__name__}: {error}" for error in failures)
    if failures and isinstance(failures[-1], ChecksumError):
        raise ChecksumError(f"{target.name} could not be downloaded ({reasons})")
    raise DownloadError(f"{target.name} could not be downloaded ({reasons})")


def _fetch(
    url: str, part: Path, n_bytes: int, label: str, attempts: int, pause: float, timeout: float
) -> None:
    """Append to ``part`` until it holds ``n_bytes``, over as many connections as it takes."""
    with progress(total=n_bytes, label=label) as bar:
        idle = 0
        while True:
            before = part.stat().st_size if part.exists() else 0
            if before == n_bytes:
                return
            bar.update(before - bar.n)
            try:
                _fetch_once(url, part, before, n_bytes, bar, timeout)
                return
            except urllib.error.HTTPError as error:
                # The server has understood and refuses; asking again helps only if it is busy.
                if error.code not in (408, 429, 500, 502, 503, 504):
                    raise
                failure: Exception = error
            except (OSError, http.client.HTTPException) as error:
                failure = error
            gained = (part.stat().st_size if part.exists() else 0) > before
            idle = 0 if gained else idle + 1
            if idle >= attempts:
                raise failure
            time.sleep(pause * 2 ** max(idle - 1, 0))


def _fetch_once(url: str, part: Path, start: int, n_bytes: int, bar, timeout: float) -> None:
    request = urllib.request.Request(
        url, headers={"User-Agent": "fourviews", "Accept-Encoding": "identity"}
    )
    if start:
        request.add_header("Range", f"bytes={start}-")
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(
            f"bytes {start}-"
        )
        if start and not resumed:
            # The server sends the whole file again, or another range than asked for.
            if answer.status == 206:
                raise ConnectionError(f"{url} answered with another range than asked for")
            bar.update(-bar.n)
            start = 0
        with open(part, "ab" if start else "wb") as file:
            size = start
            while piece := answer.read(_PIECE):
                size += len(piece)
                if size > n_bytes:
                    file.close()
                    part.unlink(missing_ok=True)
                    raise ChecksumError(
                        f"{url} sends more than the {n_bytes} bytes that the file has"
                    )
                file.write(piece)
                bar.update(len(piece))
    if size < n_bytes:
        raise ConnectionError(f"{url} ended after {size} of {n_bytes} bytes")
