"""SST-2: phrases of film reviews, negative or positive (Socher et al. 2013, as in GLUE)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch

from ..choice import choose
from ..sources import Archive, DataSet, locate
from .snippets import STAND_IN, snippets
from .texts import CLASSES, TextSet

SST2 = DataSet(
    name="SST-2",
    folder="SST-2",
    archive=Archive(
        file="SST-2.zip",
        urls=("https://dl.fbaipublicfiles.com/glue/data/SST-2.zip",),
        checksum="sha256:d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa",
        n_bytes=7_439_277,
        max_bytes=20_000_000,
        members=("SST-2/train.tsv", "SST-2/dev.tsv", "SST-2/test.tsv"),
    ),
    substitute=STAND_IN,
)


def sst2(
    split: Literal["train", "dev", "test"] = "train",
    *,
    n_per_class: int | None = None,
    seed: int = 0,
    source: Literal["official", "package"] | None = None,
) -> TextSet:
    """Load the Stanford Sentiment Treebank with two labels, as GLUE distributes it.

    Looked for in this order: ``FOURVIEWS_DATA`` (the folder ``SST-2/`` or the archive ``SST-2.zip``,
    checksum verified), the cache, a download (7 MB), and rated sentences of film reviews from the
    source archive of vaderSentiment. ``.source`` of the result says which it was.

    The training part holds phrases, cut out of sentences, 44 % of them negative; a few come with
    both labels, as published. ``dev`` and ``test`` hold whole sentences.

    Parameters
    ----------
    split
        ``"train"`` (67 349 phrases), ``"dev"`` (872) or ``"test"`` (1 821, without labels).
    n_per_class
        How many of each class, chosen by the seed; all, in their order, if left out.
    seed
        Of the choice.
    source
        ``"official"`` insists on GLUE's files; ``"package"`` takes the rated sentences; ``None``
        follows the order above.

    Returns
    -------
    TextSet
        ``texts``, ``labels`` (0 negative, 1 positive), ``source``.

    Raises
    ------
    DataNotFoundError
        If nothing is there; the message names the ways to get it.
    ValueError
        If a file does not have GLUE's columns, or a class has fewer than ``n_per_class``.
    """
    if split not in ("train", "dev", "test"):
        raise ValueError(f"split is {split!r}; it needs to be 'train', 'dev' or 'test'")
    found = locate(SST2, source=source)
    if found.kind == "substitute":
        return snippets(split, n_per_class=n_per_class, seed=seed, source=found)
    texts, labels = _read(found.path / f"{split}.tsv", labelled=split != "test")
    if n_per_class is not None:
        if labels is None:
            raise ValueError("n_per_class is given, and the test part has no labels")
        rows = {
            name: [row for row, label in enumerate(labels) if label == number]
            for number, name in enumerate(CLASSES)
        }
        _, picks = choose(
            {name: len(members) for name, members in rows.items()},
            n_classes=None,
            n_per_class=n_per_class,
            seed=seed,
            at_most=False,
        )
        chosen = [rows[name][k] for name, k in picks]
        texts, labels = [texts[row] for row in chosen], [labels[row] for row in chosen]
    return TextSet(
        tuple(texts),
        None if labels is None else torch.tensor(labels, dtype=torch.int64),
        CLASSES,
        found,
    )


def _read(file: Path, *, labelled: bool) -> tuple[list[str], list[int] | None]:
    """GLUE's columns: text and label, or number and text. Quotes mean nothing in these files."""
    if not file.is_file():
        raise ValueError(f"the folder {file.parent} needs to hold {file.name}")
    # Not splitlines: some texts hold characters that count as line breaks there.
    header, *lines = file.read_text(encoding="utf-8").replace("\r\n", "\n").split("\n")
    if header != ("sentence\tlabel" if labelled else "index\tsentence"):
        raise ValueError(f"{file.name} begins with {header!r}; it needs GLUE's columns")
    texts: list[str] = []
    labels: list[int] = []
    for number, line in enumerate(lines, start=2):
        if not line:
            continue
        first, tab, second = line.rpartition("\t") if labelled else line.partition("\t")
        if not tab or (labelled and second not in ("0", "1")):
            raise ValueError(
                f"{file.name}, line {number}: it needs "
                + ("a sentence and 0 or 1" if labelled else "a number and a sentence")
            )
        texts.append((first if labelled else second).strip())
        if labelled:
            labels.append(int(second))
    return texts, labels if labelled else None
