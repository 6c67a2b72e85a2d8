"""Unpack an archive that is not trusted: only plain files, only inside the target, only so many
bytes."""

from __future__ import annotations

import lzma
import os
import re
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

_PIECE = 1 << 18


class UnsafeArchiveError(ValueError):
    """An archive holds something that a data set has no reason to hold."""


def extract(
    archive: Path,
    target: Path,
    *,
    max_bytes: int,
    max_files: int = 500_000,
    members: Collection[str] | None = None,
    skip: tuple[str, ...] = (),
) -> Path:
    """Unpack a zip or tar archive into the new folder ``target``, all of it or nothing.

    Refused are absolute paths, ``..``, links, devices, names that collide, encrypted entries, and
    more than ``max_bytes`` bytes (counted as they are written, whatever the headers say) or
    ``max_files`` entries.

    Parameters
    ----------
    archive
        A zip file, or a tar file, compressed or not.
    target
        Folder to make; it must not exist yet.
    max_bytes, max_files
        Limits on what is unpacked.
    members
        Names to unpack; everything if left out.
    skip
        Beginnings of names that are not unpacked; they are checked all the same.

    Returns
    -------
    Path
        ``target``.

    Raises
    ------
    UnsafeArchiveError
        If an entry is refused; nothing is left behind.
    ValueError
        If the file is no archive, or a name in ``members`` is not in it.
    FileExistsError
        If ``target`` exists.
    """
    if target.exists():
        raise FileExistsError(f"{target} exists already")
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp"))
    try:
        try:
            _unpack(archive, scratch, max_bytes, max_files, members, skip)
        except (
            tarfile.TarError,
            zipfile.BadZipFile,
            zlib.error,
            lzma.LZMAError,
            EOFError,
        ) as error:
            raise ValueError(f"{archive.name} is damaged ({error})") from error
        os.chmod(scratch, 0o755)  # mkdtemp makes folders that only their owner may read
        os.rename(scratch, target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return target


def _unpack(
    archive: Path,
    root: Path,
    max_bytes: int,
    max_files: int,
    members: Collection[str] | None,
    skip: tuple[str, ...],
) -> None:
    seen: set[str] = set()
    found: set[str] = set()
    written = 0
    for count, (name, is_folder, size, content) in enumerate(_entries(archive), start=1):
        if count > max_files:
            raise UnsafeArchiveError(f"{archive.name} holds more than {max_files} entries")
        path = _safe_path(archive.name, name)
        if is_folder or (members is not None and str(path) not in members):
            continue
        if skip and str(path).startswith(skip):
            continue
        # Some file systems ignore case: two such names would be one file there.
        if str(path).casefold() in seen:
            raise UnsafeArchiveError(f"{archive.name} holds {name!r} twice")
        seen.add(str(path).casefold())
        found.add(str(path))
        if written + size > max_bytes:
            raise UnsafeArchiveError(f"{archive.name} unpacks to more than {max_bytes} bytes")
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with content() as source, open(place, "xb") as file:
            while piece := source.read(_PIECE):
                written += len(piece)
                if written > max_bytes:
                    raise UnsafeArchiveError(
                        f"{archive.name} unpacks to more than {max_bytes} bytes"
                    )
                file.write(piece)
    missing = sorted(set(members or ()) - found)
    if missing:
        raise ValueError(f"{archive.name} does not hold {', '.join(missing)}")


def _entries(archive: Path) -> Iterator[tuple[str, bool, int, Callable[[], IO[bytes]]]]:
    """Name, whether it is a folder, declared size and an opener of each entry; only plain ones
    pass."""
    # Tar first: a tar whose last file is a zip also passes for a zip.
    if tarfile.is_tarfile(archive):
        with tarfile.open(archive, "r:*") as tar:
            for member in tar:
                if not (member.isreg() or member.isdir()):
                    raise UnsafeArchiveError(
                        f"{archive.name}: {member.name!r} is a link or a device"
                    )
                yield (
                    member.name,
                    member.isdir(),
                    member.size,
                    lambda member=member: _open_member(tar, member),
                )
    elif zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            for info in file.infolist():
                # The upper half of external_attr holds the Unix mode, 0 if the archive was made
                # elsewhere.
                kind = stat.S_IFMT(info.external_attr >> 16)
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise UnsafeArchiveError(
                        f"{archive.name}: {info.filename!r} is a link or a device"
                    )
                if info.flag_bits & 0x1:
                    raise UnsafeArchiveError(f"{archive.name}: {info.filename!r} is encrypted")
                yield (
                    info.orig_filename,
                    info.is_dir(),
                    info.file_size,
                    lambda info=info: file.open(info),
                )
    else:
        raise ValueError(f"{archive.name} is neither a zip nor a tar archive")


def _open_member(file: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = file.extractfile(member)
    if content is None:
        raise UnsafeArchiveError(f"{member.name!r} has no content")
    return content


def _safe_path(archive: str, name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    unsafe = (
        not name
        or "\\" in name
        or "\0" in name
        or re.match(r"[A-Za-z]:", name)
        or path.is_absolute()
        or ".." in path.parts
    )
    if unsafe:
        raise UnsafeArchiveError(
            f"{archive} holds the path {name!r}, which leads out of the folder"
        )
    return path
