"""Made-up scenes whose relations are all known, in place of Visual Genome."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float

from .scenes import SceneSet

NAME = "Scenes made up by rule and chance, in place of Visual Genome"

# In falling frequency, with the group that decides about relations and the usual height.
_KINDS = (
    ("man", "person", 0.40),
    ("tree", "scenery", 0.45),
    ("window", "scenery", 0.15),
    ("shirt", "clothes", 0.15),
    ("building", "scenery", 0.55),
    ("woman", "person", 0.38),
    ("chair", "furniture", 0.22),
    ("table", "furniture", 0.22),
    ("car", "vehicle", 0.22),
    ("hat", "clothes", 0.07),
    ("road", "scenery", 0.25),
    ("dog", "animal", 0.17),
    ("child", "person", 0.27),
    ("jacket", "clothes", 0.16),
    ("cup", "thing", 0.05),
    ("horse", "animal", 0.33),
    ("bird", "animal", 0.07),
    ("bicycle", "vehicle", 0.22),
    ("umbrella", "thing", 0.16),
    ("phone", "thing", 0.04),
    ("boat", "vehicle", 0.22),
    ("bed", "furniture", 0.25),
    ("cake", "food", 0.07),
    ("apple", "food", 0.04),
)
_ANY = ("person", "scenery", "clothes", "furniture", "vehicle", "animal", "thing", "food")
_ALIVE = ("person", "animal")
_SMALL = ("thing", "food", "clothes", "animal")
# Predicate: log-odds where nothing speaks for or against it, groups of its subject and its object,
# and what speaks for it in the pair's geometry: overlap, nearness, higher in the picture, nearer to
# the viewer, smaller.
_PREDICATES: tuple[tuple[str, float, tuple[str, ...], tuple[str, ...], tuple[float, ...]], ...] = (
    ("near", -3.2, _ANY, _ANY, (-0.5, 3.0, 0.0, 0.0, 0.0)),
    ("on", -4.2, _ANY, ("furniture", "vehicle", "scenery"), (4.0, 1.0, 1.5, 0.0, 1.0)),
    ("behind", -5.2, _ANY, _ANY, (1.0, 1.0, 0.0, -4.0, 0.0)),
    ("in front of", -5.6, _ANY, _ANY, (1.0, 1.0, 0.0, 4.0, 0.0)),
    ("wearing", -1.6, ("person",), ("clothes",), (4.5, 1.0, 0.0, 0.0, -1.0)),
    ("has", -3.9, ("person", "scenery", "vehicle"), _SMALL + ("scenery",), (3.0, 1.0, 0, 0, -1.5)),
    ("above", -6.4, _ANY, _ANY, (-1.0, 0.5, 4.0, 0.0, 0.0)),
    ("under", -6.8, _ANY, _ANY, (-1.0, 0.5, -4.0, 0.0, 0.0)),
    ("looking at", -3.9, _ALIVE, _ANY, (-1.5, 2.0, 0.0, -0.5, 0.0)),
    ("holding", -2.8, ("person",), ("thing", "food"), (3.5, 1.5, 0.0, 0.0, -1.0)),
    ("sitting on", -3.8, _ALIVE, ("furniture", "vehicle"), (4.0, 1.0, 1.5, 0.0, 0.0)),
    ("covering", -6.4, ("clothes", "thing", "scenery"), _ANY, (4.0, 0.0, 1.0, 1.0, -1.0)),
    ("riding", -4.6, ("person",), ("vehicle", "animal"), (4.0, 1.0, 2.0, 0.0, 0.0)),
    ("carrying", -4.8, ("person",), _SMALL, (3.0, 1.0, 0.0, 0.5, -1.0)),
    ("eating", -3.6, _ALIVE, ("food",), (2.5, 2.0, 0.0, 0.0, -1.0)),
)
KINDS = tuple(name for name, _, _ in _KINDS)
PREDICATES = tuple(rule[0] for rule in _PREDICATES)
_HABITS_SEED = 20


def generated_scenes(
    n: int,
    *,
    seed: int = 0,
    max_objects: int = 9,
    left_out: float = 0.7,
    writers: Literal["uniform", "salient"] = "uniform",
) -> SceneSet:
    r"""Draw scenes with 24 kinds of objects and 15 predicates, both with a long tail.

    Kinds are drawn with frequencies :math:`\propto 1/(\text{rank} + 1)`. An object stands anywhere
    or, more often, close to an earlier one. Each ordered pair has each predicate by itself with
    probability σ of the sum of

    - how common the predicate is, and −∞ where the two kinds forbid it (nobody wears a tree);
    - a habit of this pair of kinds, standard normal, the same in all scenes;
    - what the boxes say: overlap, nearness, height, depth and relative size.

    These are all relations, ``truth``. Of them only a part is written down, ``written``:
    ``"uniform"`` writers write each with probability 1 − ``left_out``; ``"salient"`` ones prefer large
    subjects and frequent predicates, with the same mean.

    The scenes stand in for Visual Genome, of which nobody knows all relations; they resemble it in
    the long tails and in what is missing, and in nothing else.

    Parameters
    ----------
    n
        Number of scenes.
    seed
        Of everything but the habits: scenes of all seeds obey the same law.
    max_objects
        From 4 objects to this many in a scene, at least 4.
    left_out
        Share of the relations that nobody writes, at least 0, below 1.
    writers
        ``"uniform"`` or ``"salient"``.

    Returns
    -------
    SceneSet
        With ``truth``.

    Raises
    ------
    ValueError
        If an argument is out of range.
    """
    for name, number, least in (("n", n, 0), ("seed", seed, 0), ("max_objects", max_objects, 4)):
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise ValueError(f"{name} is {number!r}; it needs to be an integer of at least {least}")
    if not isinstance(left_out, int | float) or not 0 <= left_out < 1:
        raise ValueError(f"left_out is {left_out!r}; it needs to be at least 0 and below 1")
    if writers not in ("uniform", "salient"):
        raise ValueError(f"writers is {writers!r}; it needs to be 'uniform' or 'salient'")
    rng = np.random.default_rng([seed, _HABITS_SEED])
    kinds, boxes = _objects(rng, n, max_objects)
    truth = rng.random((n, max_objects, max_objects, len(PREDICATES))) < _probabilities(
        kinds, boxes
    )
    written = truth & (rng.random(truth.shape) < _written(truth, boxes, 1 - left_out, writers))
    return SceneSet(
        torch.from_numpy(kinds),
        torch.from_numpy(boxes.astype(np.float32)),
        torch.from_numpy(written),
        torch.from_numpy(truth),
        KINDS,
        PREDICATES,
        f"{NAME}; {writers} writers, {100 * left_out:.0f} % of the relations left out",
    )


def _objects(rng: np.random.Generator, n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Kinds (n, m) and boxes (n, m, 4)."""
    frequency = 1 / np.arange(2, len(KINDS) + 2)
    kinds = rng.choice(len(KINDS), size=(n, m), p=frequency / frequency.sum())
    height = np.array([usual for _, _, usual in _KINDS])[kinds]
    height = np.clip(height * np.exp(0.35 * rng.standard_normal((n, m))), 0.03, 0.9)
    width = np.clip(height * np.exp(0.35 * rng.standard_normal((n, m))), 0.03, 0.9)
    size = np.stack([width, height], -1)
    middle = rng.uniform(0.1, 0.9, (n, m, 2))
    rows = np.arange(n)
    for i in range(1, m):
        anchor = rng.integers(0, i, n)
        apart = 0.3 * rng.standard_normal((n, 2)) * (size[rows, anchor] + size[:, i])
        close = rng.random(n) < 0.7
        middle[close, i] = (middle[rows, anchor] + apart)[close]
    # Moved inside the picture, whole.
    corner = np.clip(middle - size / 2, 0, 1 - size)
    here = np.arange(m) < rng.integers(4, m + 1, n)[:, None]
    boxes = np.concatenate([corner, size], -1) * here[..., None]
    return np.where(here, kinds, -1).astype(np.int64), boxes


def _probabilities(kinds: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Of each predicate for each ordered pair, (n, m, m, P); 0 where there is no pair."""
    corner, size = boxes[..., :2], boxes[..., 2:]
    a, b = np.s_[:, :, None], np.s_[:, None, :]
    low = np.maximum(corner[a], corner[b])
    high = np.minimum((corner + size)[a], (corner + size)[b])
    both = np.clip(high - low, 0, None).prod(-1)
    area = size.prod(-1)
    smaller = np.minimum(area[a], area[b])
    overlap = both / np.where(smaller > 0, smaller, 1)
    middle = corner + size / 2
    distance = np.linalg.norm(middle[a] - middle[b], axis=-1)
    nearness = np.exp(-distance / 0.2)
    higher = np.clip((middle[b] - middle[a])[..., 1] / 0.3, -1, 1)
    bottom = (corner + size)[..., 1]
    nearer = np.clip((bottom[a] - bottom[b]) / 0.3, -1, 1)
    smaller_than = np.tanh(np.log(np.where(area > 0, area, 1)[b] / np.where(area > 0, area, 1)[a]))
    geometry = np.stack([overlap, nearness, higher, nearer, smaller_than], -1)
    base = np.array([rule[1] for rule in _PREDICATES])
    weights = np.array([rule[4] for rule in _PREDICATES])
    groups = [group for _, group, _ in _KINDS]
    fits = np.array(
        [[[x in rule[2] and y in rule[3] for rule in _PREDICATES] for y in groups] for x in groups]
    )
    habit = np.random.default_rng(_HABITS_SEED).standard_normal(fits.shape)
    known = np.where(fits, habit, -np.inf)[kinds[a], kinds[b]]
    odds = np.exp(base + known + geometry @ weights.T)  # below e^15, no overflow
    there = (kinds >= 0)[a] & (kinds >= 0)[b] & ~np.eye(kinds.shape[1], dtype=bool)
    return odds / (1 + odds) * there[..., None]


def _written(
    truth: Bool[np.ndarray, "n m m p"],
    boxes: Float[np.ndarray, "n m 4"],
    share: float,
    writers: str,
) -> np.ndarray:
    """Probability that a relation is written if it holds; its mean over ``truth`` is ``share``."""
    if writers == "uniform" or not truth.any():
        return np.full(truth.shape, share)
    subject = np.sqrt(boxes[..., 2:].prod(-1))[:, :, None, None]
    frequency = truth.sum((0, 1, 2))
    wish = np.broadcast_to(subject * np.sqrt(frequency), truth.shape)
    held = wish[truth]
    # Σ min(1, c·wish) = share·count: concave and increasing in c.
    low, high = 0.0, 1 / held[held > 0].min()
    for _ in range(100):
        c = (low + high) / 2
        low, high = (c, high) if np.minimum(1, c * held).mean() < share else (low, c)
    return np.minimum(1, c * wish)
