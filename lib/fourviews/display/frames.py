"""Frames of a moving figure: what a drawing function draws, as small PNG pictures of one size."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# Dots per inch of the stored picture, and pixels per inch at which a page shows it: the latter is
# figure.dpi of use_style(), so that text in a moving figure is as large as in one that stands.
_DPI = 144
_SHOWN_DPI = 110
# 128 colours hold lines, text and a colour map without visible steps, at a third of the bytes.
_COLOURS = 128
_MOST_COLOURS_OF_A_DRAWING = 20_000


@dataclass(frozen=True)
class Frame:
    """One picture: PNG bytes, and width and height in pixels of the page."""

    png: bytes
    width: int
    height: int

    @property
    def address(self) -> str:
        """The picture as a ``data:`` address, which needs no file beside the page."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode("ascii")


def draw_frame(draw: Callable[[Any], Any], value: Any, text: str) -> Frame:
    """Let ``draw(value)`` draw a figure and take a picture of it.

    Figures that ``draw`` makes are closed. All others stay open, and the current one stays the
    current one. Matplotlib's settings are afterwards what they were.

    Parameters
    ----------
    draw
        Draws on a figure of its own or on the current one, which is empty; or returns a figure.
    value
        Passed on as it is.
    text
        How messages name the value.

    Raises
    ------
    ValueError
        If ``draw`` draws nothing or more than one figure.
    """
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure, FigureBase

    with plt.rc_context(), _own_figures() as mine:
        empty = plt.figure()
        figure = draw(value)
        if isinstance(figure, FigureBase) and not isinstance(figure, Figure):
            figure = figure.figure  # a part of a figure stands for the whole
        if not isinstance(figure, Figure):
            drawn = [number for number in mine() if _holds_something(plt.figure(number))]
            if len(drawn) > 1:
                raise ValueError(
                    f"draw makes {len(drawn)} figures for {text}; it needs to draw one"
                    " (plt.subplots draws side by side)"
                )
            if not drawn:
                raise ValueError(
                    f"draw draws nothing for {text}; it needs to draw on a figure that it makes"
                    " with plt.subplots(), or to return a figure"
                )
            figure = plt.figure(drawn[0])
        elif not _holds_something(figure):
            raise ValueError(f"draw returns an empty figure for {text}; it needs to draw on it")
        frame = _picture(figure)
        plt.close(empty)
    return frame


@contextmanager
def _own_figures() -> Iterator[Callable[[], list[int]]]:
    """Give the numbers of figures made inside, close these at the end, and restore the rest.

    Nothing is shown meanwhile: ``plt.show()`` does nothing, or a notebook would show each frame
    once more, and no window opens.
    """
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    current = plt.gcf().number if before else None
    show = plt.show

    def mine() -> list[int]:
        return [number for number in plt.get_fignums() if number not in before]

    plt.show = lambda *arguments, **options: None
    try:
        with plt.ioff():
            yield mine
    finally:
        plt.show = show
        with plt.ioff():
            for number in mine():
                plt.close(number)
            if current is not None and plt.fignum_exists(current):
                plt.figure(current)


def _holds_something(figure) -> bool:
    return bool(figure.get_axes() or figure.get_children()[1:])  # the first child is the background


def _picture(figure) -> Frame:
    """The whole canvas of a figure, on white, as a PNG that holds nothing but the picture."""
    import matplotlib as mpl
    from PIL import Image

    raw = io.BytesIO()
    # «tight» would cut each frame to its own size, and the picture would jump.
    with mpl.rc_context({"savefig.bbox": None}):
        figure.savefig(raw, format="png", dpi=_DPI, transparent=False, facecolor="auto")
    drawn = Image.open(raw).convert("RGBA")
    image = Image.new("RGB", drawn.size, "white")
    image.paste(drawn, mask=drawn.getchannel("A"))
    return Frame(
        encode(image),
        round(image.width * _SHOWN_DPI / _DPI),
        round(image.height * _SHOWN_DPI / _DPI),
    )


def encode(image) -> bytes:
    """PNG bytes of a Pillow picture with a palette; the same picture gives the same bytes."""
    from PIL import Image

    image = image.convert("RGB")
    drawing = image.getcolors(_MOST_COLOURS_OF_A_DRAWING) is not None
    # Maximum coverage keeps thin lines in their colour. With the many colours of photographs it
    # takes seconds, where an octree is as good; that one puts white a shade too low.
    method = Image.Quantize.MAXCOVERAGE if drawing else Image.Quantize.FASTOCTREE
    small = image.quantize(_COLOURS, method=method, dither=Image.Dither.NONE)
    small.putpalette([255 if level == 254 else level for level in small.getpalette()])
    buffer = io.BytesIO()
    small.save(buffer, format="PNG", optimize=True)  # without info: no dates, no versions
    return buffer.getvalue()


def chosen(count: int, most: int) -> list[int]:
    """At most ``most`` of ``count`` indices, spread evenly, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return [round(k * (count - 1) / (most - 1)) for k in range(most)]


def strip(frames: Sequence[Frame], texts: Sequence[str]) -> bytes:
    """Frames side by side, two a row, each above its text: for paper, where nothing moves."""
    import matplotlib as mpl
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    images = [np.asarray(Image.open(io.BytesIO(frame.png)).convert("RGB")) for frame in frames]
    height, width = images[0].shape[:2]
    columns = min(2, len(images))
    rows = math.ceil(len(images) / columns)
    gap, line = 24, 48
    size = (columns * width + (columns - 1) * gap, rows * (height + line))
    with mpl.rc_context({"figure.constrained_layout.use": False}):
        figure = Figure(figsize=(size[0] / _DPI, size[1] / _DPI), dpi=_DPI, facecolor="white")
        canvas = FigureCanvasAgg(figure)
        for k, text in enumerate(texts):
            left = (k % columns) * (width + gap)
            top = size[1] - (k // columns) * (height + line)
            figure.text(
                (left + width / 2) / size[0],
                (top - height - line / 2) / size[1],
                text,
                ha="center",
                va="center",
                fontsize=13,
                fontweight="bold",
                color="black",
                parse_math=False,
            )
        canvas.draw()
        sheet = Image.fromarray(np.asarray(canvas.buffer_rgba()).copy()).convert("RGB")
    for k, image in enumerate(images):
        corner = ((k % columns) * (width + gap), (k // columns) * (height + line))
        sheet.paste(Image.fromarray(image), corner)
    return encode(sheet)
