"""A hundred letters and digits in twelve typefaces that Matplotlib ships, in place of CIFAR-100.

Many classes, and some that are hard to tell apart (O and 0, l and I): what top-k learning is about.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import UInt8

from ..choice import choose, shortfall
from ..sources import Source
from .images import ImageSet, stack

PACKAGE = "matplotlib"
INSTEAD = "Letters and digits of twelve typefaces, turned and tinted"
LICENCE = "DejaVu fonts, free for any use, shipped by matplotlib"

_UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_GREEK = "αβγδεζηθικλμνξπρστυφχψω"  # no omicron: it looks like o
_CYRILLIC = "бгджзлфцчшщыэюя"  # no и, no п: their italics look like u and n
CHARACTERS = "0123456789" + _UPPER + _UPPER.lower() + _GREEK + _CYRILLIC
_FACES = tuple(
    f"DejaVu{family}{style}.ttf"
    for family, slanted in (("Sans", "Oblique"), ("SansMono", "Oblique"), ("Serif", "Italic"))
    for style in ("", "-Bold", f"-{slanted}", f"-Bold{slanted}")
)
_SIDE = 32
_COUNTS = {"train": 100, "test": 20}


def find() -> Path | None:
    """The folder with the typefaces, or None if Matplotlib is not installed."""
    spec = importlib.util.find_spec("matplotlib")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "mpl-data" / "fonts" / "ttf"
    return folder if all((folder / face).is_file() for face in _FACES) else None


def glyphs(
    split: Literal["train", "test"],
    *,
    n_classes: int | None,
    n_per_class: int | None,
    seed: int,
    source: Source,
) -> ImageSet:
    """100 drawings of each character for training and 20 for testing, 32×32 pixels.

    Typeface, size, place, angle and two colours are random, by the split, character and number
    alone. Fewer are given where more is asked for, and the source says so.
    """
    names, picks = choose(
        dict.fromkeys(CHARACTERS, _COUNTS[split]),
        n_classes=n_classes,
        n_per_class=n_per_class,
        seed=seed,
        at_most=True,
    )
    detail = f"{PACKAGE} {importlib.metadata.version(PACKAGE)}" + shortfall(
        names, picks, n_classes=n_classes, n_per_class=n_per_class
    )
    index = {name: row for row, name in enumerate(names)}
    return ImageSet(
        stack([_draw(source.path, split, name, k) for name, k in picks], _SIDE, _SIDE),
        torch.tensor([index[name] for name, _ in picks], dtype=torch.int64),
        tuple(names),
        Source(source.name, source.kind, source.path, detail),
        LICENCE,
        may_be_shown=True,
    )


def _draw(folder: Path, split: str, character: str, number: int) -> UInt8[np.ndarray, "h w 3"]:
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise ImportError("drawing letters needs Pillow: pip install 'fourviews[data]'") from error
    rng = np.random.default_rng([list(_COUNTS).index(split), ord(character), number])
    face = _font(folder / _FACES[rng.integers(len(_FACES))], int(rng.integers(32, 49)))
    dark, light = rng.integers(0, 110, 3), rng.integers(145, 256, 3)
    ink, paper = (dark, light) if rng.random() < 0.5 else (light, dark)
    # Drawn at twice the size as a mask of ink, turned, then scaled down.
    side = 2 * _SIDE
    mask = Image.new("L", (side, side), 0)
    x, y = (side / 2 + rng.uniform(-6, 6, 2)).tolist()
    ImageDraw.Draw(mask).text((x, y), character, fill=255, font=face, anchor="mm")
    mask = mask.rotate(float(rng.uniform(-15, 15)), resample=Image.Resampling.BILINEAR)
    cover = np.array(mask.resize((_SIDE, _SIDE), Image.Resampling.BOX)) / 255.0
    return np.rint(paper + cover[..., None] * (ink - paper)).astype(np.uint8)


@cache
def _font(file: Path, size: int):
    from PIL import ImageFont

    # The basic layout engine: the other one is not in every Pillow, and draws a little differently.
    return ImageFont.truetype(str(file), size, layout_engine=ImageFont.Layout.BASIC)
