"""Visual Genome: photographs with objects and relations that people wrote down (Krishna et al. 2017)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ..files.json_stream import array_of_objects
from ..sources import DataSet, locate
from .scenes import SceneSet

VISUAL_GENOME = DataSet(name="Visual Genome", folder="visual_genome")
_TRAIN_SHARE = 0.7
# Annotations have some 250 objects at most; what has more is no annotation.
_MAX_LISTED = 10_000


@dataclass
class _Picture:
    size: tuple[float, float]
    #: Name and box (left, top, width, height in pixels) of each object.
    objects: dict[int, tuple[str, tuple[float, ...]]] = field(default_factory=dict)
    #: Objects that were merged into others.
    merged: dict[int, int] = field(default_factory=dict)
    relations: set[tuple[int, str, int]] = field(default_factory=set)


def visual_genome(
    split: Literal["train", "test"] = "train",
    *,
    n_kinds: int = 150,
    n_predicates: int = 50,
    max_scenes: int | None = 2000,
    max_objects: int = 20,
    seed: int = 0,
) -> SceneSet:
    """Load scene graphs of Visual Genome from files that you have.

    They have to lie in the folder ``visual_genome/`` under ``FOURVIEWS_DATA``, unpacked, with the
    names of versions 1.2 and 1.4: ``image_data.json``, ``objects.json``, ``relationships.json``, and if
    you like ``object_alias.txt`` and ``relationship_alias.txt``. Pictures are not needed. Nothing is
    downloaded: the annotations have more than a gigabyte. They are read as a stream, and only what
    was chosen is kept.

    Seven of ten pictures, by the seed, are for training. The most frequent kinds and predicates of the
    chosen training pictures are kept, the same for both parts; pictures without a relation among them
    are left out. This is not the split that most articles use, which comes from another source; numbers
    are not comparable with theirs.

    Parameters
    ----------
    split
        ``"train"`` or ``"test"``.
    n_kinds, n_predicates
        How many of the most frequent names to keep; fewer if there are fewer.
    max_scenes
        How many pictures of each part to choose; all if None.
    max_objects
        Objects of a scene, those with most relations first, then as listed.
    seed
        Of split and choice.

    Returns
    -------
    SceneSet
        ``written`` relations; ``truth`` is None, since nobody knows it.

    Raises
    ------
    DataNotFoundError
        If the folder is not there; the message says where it is looked for.
    ValueError
        If an argument is out of range, or a file is missing or has another layout; the message names
        the file and the picture.
    """
    if split not in ("train", "test"):
        raise ValueError(f"split is {split!r}; it needs to be 'train' or 'test'")
    for name, number, least in (
        ("n_kinds", n_kinds, 1),
        ("n_predicates", n_predicates, 1),
        ("max_scenes", max_scenes, 1),
        ("max_objects", max_objects, 2),
        ("seed", seed, 0),
    ):
        if number is None and name == "max_scenes":
            continue
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise ValueError(f"{name} is {number!r}; it needs to be an integer of at least {least}")
    found = locate(VISUAL_GENOME)
    train, test = _pictures(found.path / "image_data.json", max_scenes, seed)
    pictures = {**train, **test}
    rename = _aliases(found.path / "object_alias.txt")
    _read_objects(found.path / "objects.json", pictures, rename)
    _read_relations(
        found.path / "relationships.json",
        pictures,
        rename,
        _aliases(found.path / "relationship_alias.txt"),
    )
    kinds = _most_frequent(
        (name for picture in train.values() for name, _ in picture.objects.values()), n_kinds
    )
    predicates = _most_frequent(
        (name for picture in train.values() for _, name, _ in picture.relations), n_predicates
    )
    chosen = train if split == "train" else test
    scenes = [
        scene
        for picture in chosen.values()
        if (scene := _scene(picture, kinds, predicates, max_objects)) is not None
    ]
    n, m = len(scenes), max_objects
    all_kinds = torch.full((n, m), -1, dtype=torch.int64)
    boxes = torch.zeros(n, m, 4)
    written = torch.zeros(n, m, m, len(predicates), dtype=torch.bool)
    for i, (listed, places, relations) in enumerate(scenes):
        all_kinds[i, : len(listed)] = torch.tensor(listed)
        boxes[i, : len(listed)] = torch.tensor(places, dtype=torch.float32)
        for relation in relations:
            written[(i, *relation)] = True
    return SceneSet(all_kinds, boxes, written, None, tuple(kinds), tuple(predicates), found)


def _pictures(
    file: Path, max_scenes: int | None, seed: int
) -> tuple[dict[int, _Picture], dict[int, _Picture]]:
    sizes: dict[int, tuple[float, float]] = {}
    for entry in array_of_objects(file):
        image = _integer(entry, "image_id", file.name)
        where = f"{file.name}, picture {image}"
        size = _number(entry, "width", where), _number(entry, "height", where)
        if min(size) <= 0:
            raise ValueError(f"{where}: it has {size[0]:g}×{size[1]:g} pixels")
        if image in sizes:
            raise ValueError(f"{where} is listed twice")
        sizes[image] = size
    order = np.random.default_rng(seed).permutation(sorted(sizes)).tolist()
    cut = round(_TRAIN_SHARE * len(order))
    parts = order[:cut][:max_scenes], order[cut:][:max_scenes]
    train, test = ({image: _Picture(sizes[image]) for image in part} for part in parts)
    return train, test


def _read_objects(file: Path, pictures: dict[int, _Picture], rename: dict[str, str]) -> None:
    for entry in array_of_objects(file):
        image = _integer(entry, "image_id", file.name)
        if image not in pictures:
            continue
        where = f"{file.name}, picture {image}"
        for item in _listed(entry, "objects", where):
            number = _integer(item, "object_id", where)
            pictures[image].objects[number] = _object(item, rename, where)
            for other in item.get("merged_object_ids") or ():
                if type(other) is int:
                    pictures[image].merged[other] = number


def _read_relations(
    file: Path, pictures: dict[int, _Picture], rename: dict[str, str], say: dict[str, str]
) -> None:
    for entry in array_of_objects(file):
        image = _integer(entry, "image_id", file.name)
        if image not in pictures:
            continue
        picture, where = pictures[image], f"{file.name}, picture {image}"
        for item in _listed(entry, "relationships", where):
            ends = []
            for end in ("subject", "object"):
                if not isinstance(item.get(end), dict):
                    raise ValueError(f"{where}: a relation needs an object under {end!r}")
                number = _integer(item[end], "object_id", where)
                number = picture.merged.get(number, number)
                if number not in picture.objects:
                    picture.objects[number] = _object(item[end], rename, where)
                ends.append(number)
            predicate = _text(item.get("predicate"), "predicate", where)
            if ends[0] != ends[1] and predicate:
                picture.relations.add((ends[0], say.get(predicate, predicate), ends[1]))


def _object(
    item: dict[str, Any], rename: dict[str, str], where: str
) -> tuple[str, tuple[float, ...]]:
    names = item.get("names")
    if isinstance(names, list) and names:
        name = names[0]
    else:
        name = item.get("name")
    name = _text(name, "name", where)
    box = tuple(_number(item, key, where) for key in "xywh")
    return rename.get(name, name), box


def _scene(
    picture: _Picture, kinds: dict[str, int], predicates: dict[str, int], max_objects: int
) -> tuple[list[int], list[list[float]], list[tuple[int, int, int]]] | None:
    """Kinds, boxes and relations (subject, object, predicate); None if no relation is left."""
    here = {number for number, (name, _) in picture.objects.items() if name in kinds}
    relations = [
        (a, b, predicates[name])
        for a, name, b in sorted(picture.relations)
        if a in here and b in here and name in predicates
    ]
    degree = Counter(number for a, b, _ in relations for number in (a, b))
    kept = sorted(
        (number for number in picture.objects if number in here), key=lambda i: -degree[i]
    )
    row = {number: i for i, number in enumerate(kept[:max_objects])}
    relations = [(row[a], row[b], p) for a, b, p in relations if a in row and b in row]
    if not relations:
        return None
    width, height = picture.size
    boxes = []
    for number in row:
        x, y, w, h = picture.objects[number][1]
        left, right = (min(max(v / width, 0.0), 1.0) for v in (x, x + w))
        top, bottom = (min(max(v / height, 0.0), 1.0) for v in (y, y + h))
        boxes.append([left, top, max(right - left, 0.0), max(bottom - top, 0.0)])
    return [kinds[picture.objects[number][0]] for number in row], boxes, relations


def _most_frequent(names: Iterable[str], n: int) -> dict[str, int]:
    """The n most frequent names with their indices; of equally frequent ones the first by alphabet."""
    counts = Counter(names)
    ranked = sorted(counts, key=lambda name: (-counts[name], name))[:n]
    return {name: i for i, name in enumerate(ranked)}


def _aliases(file: Path) -> dict[str, str]:
    """Lines ``name,other,other``: each other name means the first."""
    if not file.is_file():
        return {}
    found: dict[str, str] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        first, *others = (name.strip().lower() for name in line.split(","))
        for other in others:
            if other and first:
                found.setdefault(other, first)
    return found


def _checked(
    item: dict[str, Any], key: str, where: str, fits: Callable[[Any], bool], what: str
) -> Any:
    value = item.get(key)
    if not fits(value):
        raise ValueError(f"{where}: {key!r} is {str(value)[:40]!r}; it needs to be {what}")
    return value


def _integer(item: dict[str, Any], key: str, where: str) -> int:
    return _checked(item, key, where, lambda v: type(v) is int, "an integer")


def _number(item: dict[str, Any], key: str, where: str) -> float:
    fits = lambda v: type(v) in (int, float) and -1e9 < v < 1e9  # noqa: E731
    return float(_checked(item, key, where, fits, "a number of ordinary size"))


def _listed(item: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    fits = lambda v: isinstance(v, list) and all(isinstance(e, dict) for e in v)  # noqa: E731
    value = _checked(item, key, where, fits, "a list of objects")
    if len(value) > _MAX_LISTED:
        raise ValueError(f"{where}: {key!r} has {len(value)} entries, more than {_MAX_LISTED}")
    return value


def _text(value: Any, key: str, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where}: {key!r} is {str(value)[:40]!r}; it needs to be a text")
    return " ".join(value.lower().split())
