"""Where a data set comes from: your folder, the cache, the publisher, or a package that ships
it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fourviews.display.switches import switched_on

from .files.cache import cache_dir, locked
from .files.checksums import ChecksumError, digest, verify
from .files.download import DownloadError, download, offline
from .files.extraction import extract

Kind = Literal["folder", "archive", "subset", "cache", "download", "substitute"]

_SAID = {
    "folder": "the official data, unpacked, from FOURVIEWS_DATA",
    "archive": "the official archive from FOURVIEWS_DATA, checksum verified",
    "subset": "a subset of the official data, from FOURVIEWS_DATA (no checksum)",
    "cache": "the official data, downloaded earlier, checksum verified",
    "download": "the official data, downloaded now, checksum verified",
    "substitute": "shipped by the package {detail}",
}


# Downloads that failed in this process: a page that asks ten times for a set that cannot be fetched
# waits once.
_failed: dict[str, DownloadError] = {}


class DataNotFoundError(FileNotFoundError):
    """A data set is nowhere to be found; the message says how to get it."""


@dataclass(frozen=True)
class Source:
    """What a result was loaded from; ``str`` gives a sentence for a page, without any path.

    Attributes
    ----------
    name
        Of the data set, as its publisher calls it.
    kind
        Which of the ways it came by, or that it stands in for the real data.
    path
        Where it lies on this machine.
    detail
        What the sentence adds, such as a release.
    """

    name: str
    kind: Kind
    path: Path
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {_SAID[self.kind].format(detail=self.detail)}"


@dataclass(frozen=True)
class Archive:
    """An archive as its publisher offers it.

    ``members`` names the only entries that are unpacked, ``skip`` the beginnings of names that are
    left out, ``max_bytes`` the most that unpacking may write.
    """

    file: str
    urls: tuple[str, ...]
    checksum: str
    n_bytes: int
    max_bytes: int
    members: tuple[str, ...] | None = None
    skip: tuple[str, ...] = ()


@dataclass(frozen=True)
class Substitute:
    """What a Python package ships: its name, a function that finds the folder or returns None, the
    extra (or another way to get it), and, where it is not the data set itself, what it is."""

    package: str
    find: Callable[[], Path | None]
    extra: str
    instead: str = ""
    other_way: str = ""

    @property
    def install(self) -> str:
        return self.other_way or f"pip install 'fourviews[{self.extra}]'"


@dataclass(frozen=True)
class DataSet:
    """Everything needed to find a data set.

    Parameters
    ----------
    name
        For messages and the cache.
    folder
        Folder that the official archive unpacks to, or that stands for it under ``FOURVIEWS_DATA``.
    archive
        The official archive.
    subset, subset_max_bytes
        File accepted under ``FOURVIEWS_DATA`` without checksum, and the most it may unpack to.
    subset_folder
        Folder that it unpacks to; ``folder`` if left out.
    substitute
        What a package ships.
    automatic_download
        ``False`` for what is too large to be fetched without being asked for.
    """

    name: str
    folder: str
    archive: Archive | None = None
    subset: str | None = None
    subset_folder: str | None = None
    subset_max_bytes: int = 2_000_000_000
    substitute: Substitute | None = None
    automatic_download: bool = True


def data_dir() -> Path | None:
    """The folder that ``FOURVIEWS_DATA`` names, or None.

    Raises
    ------
    ValueError
        If the variable names something that is no folder.
    """
    named = os.environ.get("FOURVIEWS_DATA", "").strip()
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise ValueError(
            f"FOURVIEWS_DATA is {named!r}; it needs to be an existing folder, or unset"
        )
    return folder


def locate(
    data: DataSet,
    *,
    source: Literal["official", "package"] | None = None,
) -> Source:
    """Find a data set and say where it was found.

    The order is: under ``FOURVIEWS_DATA`` the unpacked official folder, the official archive
    (checksum), the subset (no checksum); then the cache; then a download, if
    ``data.automatic_download``; then the substitute that a package ships.

    Parameters
    ----------
    data
        The data set.
    source
        ``"official"`` skips subset and substitute and downloads whatever the size, also where a
        download failed before; ``"package"``
        takes the substitute only; ``None`` follows the order.

    Returns
    -------
    Source
        Its ``path`` is the folder that holds the data.

    Raises
    ------
    DataNotFoundError
        If it is nowhere; the message names every way to get it.
    ChecksumError
        If an archive under the official name has other content.
    ValueError
        If ``source`` is unknown.
    """
    if source not in (None, "official", "package"):
        raise ValueError(f"source is {source!r}; it needs to be 'official', 'package' or None")
    failure: DownloadError | None = None
    if source != "package":
        found = _under_data_dir(data, subset=source is None) or _in_cache(data)
        if found is not None:
            return found
        if data.archive is not None and (data.automatic_download or source == "official"):
            failure = _failed.get(data.archive.checksum) if source is None else None
            if failure is None:
                try:
                    return _download(data, data.archive)
                except DownloadError as error:
                    failure = error
                    if not offline():
                        _failed[data.archive.checksum] = error
    if source != "official" and data.substitute is not None:
        path = data.substitute.find()
        if path is not None:
            # A built page says what it used by printing the source; a warning would show the folder of
            # the run.
            if failure is not None and not switched_on("FOURVIEWS_BOOK_BUILD"):
                warnings.warn(
                    f"{failure}. Using what {data.substitute.package} ships instead.", stacklevel=3
                )
            return Source(
                data.substitute.instead or data.name, "substitute", path, data.substitute.package
            )
    raise DataNotFoundError(_ways_out(data, failure)) from failure


def _under_data_dir(data: DataSet, *, subset: bool) -> Source | None:
    root = data_dir()
    if root is None:
        return None
    folder = root / data.folder
    if folder.is_dir():
        return Source(data.name, "folder", folder)
    if data.archive is not None:
        archive = root / data.archive.file
        if archive.is_file():
            place = _place(data, data.archive.checksum)
            if not place.exists():
                try:
                    verify(archive, data.archive.checksum)
                except ChecksumError as error:
                    raise ChecksumError(
                        f"{error}. It is damaged or no official archive: replace it, or"
                        " remove it from FOURVIEWS_DATA"
                    ) from None
                _unpack(archive, place, data.archive)
            return Source(data.name, "archive", _inside(place, data))
    if subset and data.subset is not None:
        file = root / data.subset
        if file.is_dir():
            return Source(data.name, "subset", file)
        if file.is_file():
            # Whatever the file is called, another content gets another place.
            place = _place(data, f"subset:{digest(file)}")
            with locked(place):
                if not place.exists():
                    extract(file, place, max_bytes=data.subset_max_bytes)
            folder = place / (data.subset_folder or data.folder)
            return Source(data.name, "subset", folder if folder.is_dir() else place)
    return None


def _in_cache(data: DataSet) -> Source | None:
    if data.archive is None:
        return None
    place = _place(data, data.archive.checksum)
    return Source(data.name, "cache", _inside(place, data)) if place.exists() else None


def _download(data: DataSet, archive: Archive) -> Source:
    place = _place(data, archive.checksum)
    file = download(
        archive.urls,
        place.with_name(archive.file),
        checksum=archive.checksum,
        n_bytes=archive.n_bytes,
    )
    _unpack(file, place, archive)
    file.unlink(missing_ok=True)  # the unpacked content is what is used from now on
    return Source(data.name, "download", _inside(place, data))


def _place(data: DataSet, checksum: str) -> Path:
    kind, _, hexadecimal = checksum.partition(":")
    return cache_dir() / data.name.lower().replace(" ", "-") / f"{kind}-{hexadecimal[:16]}"


def _unpack(file: Path, place: Path, archive: Archive) -> None:
    with locked(place):
        if not place.exists():
            extract(
                file,
                place,
                max_bytes=archive.max_bytes,
                members=archive.members,
                skip=archive.skip,
            )


def _inside(place: Path, data: DataSet) -> Path:
    return place / data.folder if (place / data.folder).is_dir() else place


def _ways_out(data: DataSet, failure: Exception | None) -> str:
    ways = []
    if data.substitute is not None:
        ways.append(
            f"install the copy that {data.substitute.package} ships: {data.substitute.install}"
        )
    local = [f"the folder {data.folder}/"]
    if data.archive is not None:
        local.append(f"the archive {data.archive.file}")
        size = data.archive.n_bytes / 1e6
        if data.automatic_download:
            ways.append(f"connect to the network and run this again; it downloads {size:.0f} MB")
        else:
            ways.append(f'download it, {size:.0f} MB, by asking for source="official"')
    if data.subset is not None:
        local.append(f"the subset {data.subset}")
    ways.append(f"set FOURVIEWS_DATA to a folder that holds {' or '.join(local)}")
    listed = "\n".join(f"  {number}. {way}" for number, way in enumerate(ways, start=1))
    because = f" ({failure})" if failure is not None else ""
    return f"{data.name} is not on this machine{because}. Ways to get it:\n{listed}"
