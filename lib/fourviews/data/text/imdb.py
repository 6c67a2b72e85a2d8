"""IMDB: 50 000 film reviews, negative or positive (Maas et al. 2011)."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from ..sources import Archive, DataSet, locate
from .snippets import STAND_IN, snippets
from .texts import CLASSES, TextSet

IMDB = DataSet(
    name="IMDB",
    folder="aclImdb",
    archive=Archive(
        file="aclImdb_v1.tar.gz",
        urls=("https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",),
        checksum="md5:7c2ac02c03563afcf9b574c7e56c153a",
        n_bytes=84_125_825,
        max_bytes=400_000_000,
        skip=("aclImdb/train/unsup/",),  # 50 000 reviews without labels
    ),
    subset="aclImdb-subset.tar.gz",
    subset_folder="aclImdb",
    subset_max_bytes=400_000_000,
    substitute=STAND_IN,
)

_FOLDERS = {"negative": "neg", "positive": "pos"}
_NAME = re.compile(r"\d+_(\d+)\.txt")
# Dashes, quotes and ellipses of Windows' code page that were read as Latin-1. Five of its places are
# empty: they become spaces.
_C1 = {
    code: bytes([code]).decode("cp1252", "replace").replace("�", " ") for code in range(128, 160)
}


def imdb(
    split: Literal["train", "test"] = "train",
    *,
    n_per_class: int | None = None,
    seed: int = 0,
    source: Literal["official", "package"] | None = None,
) -> TextSet:
    """Load the Large Movie Review Dataset.

    Looked for in this order: ``FOURVIEWS_DATA`` (the folder ``aclImdb/``, the archive
    ``aclImdb_v1.tar.gz``, checksum verified, or a subset ``aclImdb-subset.tar.gz``), the cache, a
    download (84 MB), and rated sentences of film reviews from the source archive of vaderSentiment.
    ``.source`` of the result says which it was.

    Reviews for training that the test part holds too, word for word, are left out; ``note`` says how
    many were met. Control characters, which are dashes and quotes of another code page, become what
    they stand for. Line-break tags stay: :func:`~fourviews.data.tokenize` reads them as white space.

    Parameters
    ----------
    split
        ``"train"`` or ``"test"``, 25 000 reviews each; the subset has 6 000 and 3 000.
    n_per_class
        How many of each class, chosen by the seed; all if left out. Classes take turns.
    seed
        Of the choice and the order.
    source
        ``"official"`` insists on the full set; ``"package"`` takes the rated sentences; ``None``
        follows the order above.

    Returns
    -------
    TextSet
        ``texts``, ``labels`` (0 negative, 1 positive), ``ratings`` (1 to 10), ``source``, ``note``.

    Raises
    ------
    DataNotFoundError
        If nothing is there; the message names the ways to get it.
    ValueError
        If the folder has another layout, or a class has fewer reviews than ``n_per_class``.
    """
    if split not in ("train", "test"):
        raise ValueError(f"split is {split!r}; it needs to be 'train' or 'test'")
    if n_per_class is not None and (
        not isinstance(n_per_class, int) or isinstance(n_per_class, bool) or n_per_class < 1
    ):
        raise ValueError(
            f"n_per_class is {n_per_class!r}; it needs to be a positive integer or None"
        )
    found = locate(IMDB, source=source)
    if found.kind == "substitute":
        return snippets(split, n_per_class=n_per_class, seed=seed, source=found)
    held_out = _HeldOut(found.path) if split == "train" else None
    columns: list[list[tuple[str, int, int]]] = []
    dropped = 0
    for label, name in enumerate(CLASSES):
        files = _files(found.path, split, name)
        column: list[tuple[str, int, int]] = []
        for row in np.random.default_rng([seed, label]).permutation(len(files)):
            if len(column) == n_per_class:
                break
            content = files[row].read_bytes()
            if held_out is not None and content in held_out:
                dropped += 1
                continue
            column.append((_decode(content, files[row]), label, _rating(files[row])))
        if n_per_class is not None and len(column) < n_per_class:
            raise ValueError(
                f"n_per_class is {n_per_class}; the class {name!r} has {len(column)} reviews"
            )
        columns.append(column)
    longest = max(len(column) for column in columns)
    reviews = [column[k] for k in range(longest) for column in columns if k < len(column)]
    return TextSet(
        tuple(text for text, _, _ in reviews),
        torch.tensor([label for _, label, _ in reviews], dtype=torch.int64),
        CLASSES,
        found,
        torch.tensor([rating for _, _, rating in reviews], dtype=torch.float32),
        f"{dropped} that the test part holds too left out" if dropped else "",
    )


class _HeldOut:
    """Reviews of the test part, read only where one has the length of what is asked about."""

    def __init__(self, root: Path):
        self._files: dict[int, list[Path]] = {}
        for name in CLASSES:
            for file in _files(root, "test", name):
                self._files.setdefault(file.stat().st_size, []).append(file)
        self._digests: dict[int, set[bytes]] = {}

    def __contains__(self, content: bytes) -> bool:
        size = len(content)
        if size not in self._files:
            return False
        if size not in self._digests:
            self._digests[size] = {sha256(f.read_bytes()).digest() for f in self._files[size]}
        return sha256(content).digest() in self._digests[size]


def _files(root: Path, split: str, name: str) -> list[Path]:
    folder = root / split / _FOLDERS[name]
    files = sorted(folder.glob("*.txt")) if folder.is_dir() else []
    if not files:
        raise ValueError(f"the folder {root} holds no reviews in {split}/{_FOLDERS[name]}/")
    return files


def _rating(file: Path) -> int:
    match = _NAME.fullmatch(file.name)
    rating = int(match.group(1)) if match else 0
    if not 1 <= rating <= 10:
        raise ValueError(
            f"a review is called {file.name}; it needs to be NUMBER_RATING.txt, rated 1 to 10"
        )
    return rating


def _decode(content: bytes, file: Path) -> str:
    try:
        return content.decode("utf-8").translate(_C1).strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"{file.name} is not UTF-8 ({error.reason})") from error
