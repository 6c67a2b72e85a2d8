"""Sentences of film reviews that people rated, in place of whole reviews (Hutto and Gilbert 2014).

The source archive of the package vaderSentiment holds them, its wheel does not. So they are found
like a data set of their own: under ``FOURVIEWS_DATA``, in the cache, or fetched from the package
index (2.5 MB).
"""

from __future__ import annotations

import math
from hashlib import sha256
from pathlib import Path
from typing import Literal

import torch

from ..choice import choose
from ..files.cache import cache_dir, locked
from ..files.extraction import extract
from ..sources import Archive, DataNotFoundError, DataSet, Source, Substitute, locate
from .texts import CLASSES, TextSet

_VERSION = "3.3.2"
_TOP = f"vaderSentiment-{_VERSION}"
_INNER = "additional_resources/hutto_ICWSM_2014.tar.gz"
_FILE = "hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt"

SNIPPETS = DataSet(
    name="Rated sentences of film reviews",
    folder=_TOP,
    archive=Archive(
        file=f"{_TOP}.tar.gz",
        urls=(
            "https://files.pythonhosted.org/packages/77/8c/"
            "4a48c10a50f750ae565e341e697d74a38075a3e43ff0df6f1ab72e186902/"
            f"{_TOP}.tar.gz",
        ),
        checksum="sha256:5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
        n_bytes=2_466_783,
        max_bytes=10_000_000,
        members=(f"{_TOP}/{_INNER}",),
    ),
)


def find() -> Path | None:
    """The folder with the sentences, or None if they are nowhere."""
    try:
        outer = locate(SNIPPETS).path
    except DataNotFoundError:
        return None
    # What unpacks it lies in the cache, whether the archive does or not.
    inner = outer / _INNER
    if not inner.is_file():
        raise ValueError(f"the folder {outer} needs to hold {_INNER}")
    place = _place(inner)
    with locked(place):
        if not place.exists():
            extract(inner, place, max_bytes=20_000_000, members=[_FILE])
    return place


def _place(inner: Path) -> Path:
    name = sha256(inner.read_bytes()).hexdigest()[:16]
    return cache_dir() / "rated-sentences" / f"sha256-{name}"


STAND_IN = Substitute(
    package=f"vaderSentiment {_VERSION} in its source archive",
    find=find,
    extra="data",
    instead="Rated sentences of film reviews",
    other_way=(
        f"pip download --no-deps --no-binary=:all: vaderSentiment=={_VERSION}, and put the archive"
        " into the folder that FOURVIEWS_DATA names"
    ),
)


def snippets(
    part: Literal["train", "dev", "test"], *, n_per_class: int | None, seed: int, source: Source
) -> TextSet:
    """Sentences rated by people from −4 to 4; a mean below 0 is negative, above 0 positive.

    A mean of exactly 0 is left out. A sentence belongs to a part by a hash of its text (80 % train,
    10 % dev, 10 % test), so that one that comes twice is in one part only.
    """
    by_class: dict[str, list[tuple[str, float]]] = {name: [] for name in CLASSES}
    undecided = 0
    for text, rating in _read(source.path / _FILE):
        if _part(text) != part:
            continue
        if rating == 0:
            undecided += 1
        else:
            by_class[CLASSES[rating > 0]].append((text, rating))
    _, picks = choose(
        {name: len(members) for name, members in by_class.items()},
        n_classes=None,
        n_per_class=n_per_class,
        seed=seed,
        at_most=True,
    )
    notes = [f"{undecided} with a mean rating of 0 left out"] if undecided else []
    if n_per_class is not None and len(picks) < 2 * n_per_class:
        notes.append("fewer than asked for")
    return TextSet(
        tuple(by_class[name][k][0] for name, k in picks),
        torch.tensor([CLASSES.index(name) for name, _ in picks], dtype=torch.int64),
        CLASSES,
        source,
        torch.tensor([by_class[name][k][1] for name, k in picks], dtype=torch.float32),
        "; ".join(notes),
    )


def _read(file: Path) -> list[tuple[str, float]]:
    rows = []
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), start=1):
        line = line.strip("\r")
        if not line:
            continue
        fields = line.split("\t")
        try:
            rating = float(fields[1])
        except (IndexError, ValueError):
            rating = math.nan
        if len(fields) != 3 or not -4 <= rating <= 4:
            raise ValueError(
                f"{file.name}, line {number}: it needs a number, a rating between -4 and 4, a text"
            )
        rows.append((fields[2].strip(), rating))
    return rows


def _part(text: str) -> str:
    tenth = sha256(text.encode()).digest()[0] * 10 // 256
    return {8: "dev", 9: "test"}.get(tenth, "train")
