"""Figures that move: a slider or a play button over what a function draws for each value."""

from __future__ import annotations

import importlib.util
import operator
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .frames import Frame, chosen, draw_frame, strip
from .moving_html import moving_html
from .moving_widget import view
from .switches import switched_off, switched_on

_MOST_FRAMES = 60
_MOST_BYTES = 1_200_000
_FRAMES_ON_PAPER = 4
_SHORTEST_MS = 340  # nothing may flash more than three times a second
_SECONDS_OF_PATIENCE = 3.0


def slider(
    draw: Callable[[Any], Any],
    values: Iterable[Any],
    *,
    label: str,
    alt: Callable[[Any], str] | Sequence[str],
    format: Callable[[Any], str] = str,
    caption: str = "",
    start: int = 0,
) -> MovingFigure:
    """Show ``draw(value)`` for the value that a slider chooses.

    Parameters
    ----------
    draw
        Draws one Matplotlib figure for a value: on a figure that it makes, or on the current one,
        which is empty. It may return the figure and need not. Fix the limits of the axes, or they
        jump from frame to frame.
    values
        Two to 60 values, anything that ``draw`` understands.
    label
        What the slider changes, in plain words: «Weight decay β».
    alt
        Alternative text of each frame: a function of the value or one text a value. Say what is
        seen there and differs from frame to frame, in three words or more.
    format
        Text of a value beside the slider. The default writes numbers to six digits.
    caption
        Text below; what stands between dollars is set as mathematics.
    start
        Index of the value shown first.

    Returns
    -------
    MovingFigure
        To be the last line of a cell, or for ``IPython.display.display``.

    Raises
    ------
    ValueError
        If there are fewer than 2 or more than 60 values, ``start`` is none of their indices,
        a label, text or alternative text is missing, too short, or holds markup, ``draw`` draws
        nothing or more than one figure, frames differ in size, or all together take more
        than 1.2 MB of the page.
    """
    return MovingFigure(draw, values, label, alt, format, caption, start, None)


def animate(
    draw: Callable[[Any], Any],
    frames: Iterable[Any],
    *,
    label: str,
    alt: Callable[[Any], str] | Sequence[str],
    format: Callable[[Any], str] = str,
    caption: str = "",
    interval_ms: int = 700,
) -> MovingFigure:
    """Show ``draw(frame)`` for one frame after the other: :func:`slider` with a play button.

    Nothing moves before the button is pressed, and playing stops at the last frame. Where the
    reader's system asks for reduced motion, the button goes one frame further at each press.

    Parameters
    ----------
    draw, label, alt, format, caption
        As for :func:`slider`.
    frames
        Two to 60 values for ``draw``, in the order of time.
    interval_ms
        Milliseconds from frame to frame, 340 or more: faster flicker can do harm.

    Returns
    -------
    MovingFigure
        To be the last line of a cell, or for ``IPython.display.display``.

    Raises
    ------
    ValueError
        As for :func:`slider`, and if ``interval_ms`` is not a whole number from 340 to 10000.
    """
    try:
        interval = operator.index(interval_ms)
    except TypeError:
        interval = 0
    if not _SHORTEST_MS <= interval <= 10_000:
        raise ValueError(
            f"interval_ms is {interval_ms!r}; it needs to be a whole number from {_SHORTEST_MS}"
            " to 10000"
        )
    return MovingFigure(draw, frames, label, alt, format, caption, 0, interval)


class MovingFigure:
    """What :func:`slider` and :func:`animate` return; a notebook shows it.

    Without a live notebook kernel, without ipywidgets, and in the build of the book, it is a piece
    of HTML that holds all frames and moves by itself, with a strip of some frames as a picture for
    paper. So is the page of a saved notebook, whoever shows it.

    In a live kernel with ipywidgets it is a widget that draws what the slider asks for, and keeps
    what it has drawn. JupyterLab, VS Code and Colab choose the widget; a front end that knows no
    widgets finds the HTML beside it, with all frames if drawing them takes less than three
    seconds, otherwise with as many, evenly spread. The environment variable
    ``FOURVIEWS_WIDGETS=0`` switches the widget off, for notebooks that are run to be saved as
    pages.
    """

    def __init__(
        self,
        draw: Callable[[Any], Any],
        values: Iterable[Any],
        label: str,
        alt: Callable[[Any], str] | Sequence[str],
        format: Callable[[Any], str],
        caption: str,
        start: int,
        interval_ms: int | None,
    ):
        name = "values" if interval_ms is None else "frames"
        if not callable(draw):
            raise ValueError(f"draw is of type {type(draw).__name__}; it needs to be a function")
        self.values = _listed(values, name)
        self.label = _plain(label, "label")
        self.texts = [
            _plain(_text_of(value) if format is str else format(value), "format(value)")
            for value in self.values
        ]
        self.alts = _alternatives(alt, self.values, name)
        if not isinstance(caption, str):
            raise ValueError(f"caption is of type {type(caption).__name__}; it needs to be a text")
        self.caption = caption
        try:
            self.start = operator.index(start)
        except TypeError:
            self.start = -1
        if not 0 <= self.start < len(self.values):
            raise ValueError(
                f"start is {start!r}; it needs to be an index from 0 to {len(self.values) - 1}"
            )
        self.interval_ms = interval_ms
        self._draw = draw
        self._frames: dict[int, Frame] = {}
        self._live = _live()
        # Drawn now and not when shown: an error while showing would only be printed.
        if self._live:
            self._draw_for_a_while()
        else:
            for index in range(len(self.values)):
                self.frame(index)
            self._check_bytes()

    def frame(self, index: int) -> Frame:
        """The picture of one value, drawn when it is asked for the first time."""
        if index not in self._frames:
            text = f"{self.label}: {self.texts[index]}"
            frame = draw_frame(self._draw, self.values[index], text)
            other = next(iter(self._frames.values()), frame)
            if (frame.width, frame.height) != (other.width, other.height):
                raise ValueError(
                    f"draw makes a figure of {frame.width} x {frame.height} pixels for {text},"
                    f" after one of {other.width} x {other.height}; all need the same figsize"
                )
            self._frames[index] = frame
        return self._frames[index]

    @property
    def complete(self) -> bool:
        """Whether all frames have been drawn."""
        return len(self._frames) == len(self.values)

    def html(self) -> str:
        """The frames drawn so far, with a control that needs no kernel."""
        drawn = sorted(self._frames)
        caption = self.caption
        if not self.complete:
            missing = (
                f"{len(drawn)} of {len(self.values)} frames; a running notebook draws the rest."
            )
            caption = f"{caption} ({missing})".strip()
        return moving_html(
            [self._frames[index] for index in drawn],
            [self.texts[index] for index in drawn],
            [self.alts[index] for index in drawn],
            label=self.label,
            caption=caption,
            start=drawn.index(self.start),
            interval_ms=self.interval_ms,
        )

    def _draw_for_a_while(self) -> None:
        """Draw frames from coarse to fine until the time is over, the first one in any case."""
        end = time.monotonic() + _SECONDS_OF_PATIENCE
        self.frame(self.start)
        for most in (2, 3, 5, 9, 17, 33, len(self.values)):
            for index in chosen(len(self.values), min(most, len(self.values))):
                if time.monotonic() > end:
                    return
                self.frame(index)

    def _check_bytes(self) -> None:
        total = sum(len(frame.address) for frame in self._frames.values())
        if total > _MOST_BYTES:
            count = len(self._frames)
            raise ValueError(
                f"the {count} frames of «{self.label}» take {total / 1e6:.2f} MB of the page; they"
                f" need to stay below {_MOST_BYTES / 1e6:.1f} MB: draw fewer values"
                f" ({_MOST_BYTES * count // total} would fit), a smaller figsize, fewer points or"
                " no shading"
            )

    def __repr__(self) -> str:
        kind = "Slider" if self.interval_ms is None else "Animation"
        return (
            f"{kind} «{self.label}»: {len(self.values)} frames, from {self.texts[0]}"
            f" to {self.texts[-1]}"
        )

    def _repr_mimebundle_(self, include=None, exclude=None):
        bundle: dict[str, Any] = {"text/plain": repr(self), "text/html": self.html()}
        if self._live:
            bundle.update(view(self))
        else:
            shown = chosen(len(self.values), _FRAMES_ON_PAPER)
            bundle["image/png"] = strip(
                [self.frame(index) for index in shown], [self.texts[index] for index in shown]
            )
        return bundle


def _live() -> bool:
    """Whether a notebook's kernel can draw while the reader moves the slider."""
    if switched_on("FOURVIEWS_BOOK_BUILD") or switched_off("FOURVIEWS_WIDGETS"):
        return False
    if any(importlib.util.find_spec(name) is None for name in ("IPython", "ipywidgets")):
        return False
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None


def _listed(values: Iterable[Any], name: str) -> list[Any]:
    try:
        listed = list(values)
    except TypeError:
        raise ValueError(
            f"{name} is of type {type(values).__name__}; it needs to be a sequence of values"
        ) from None
    if not 2 <= len(listed) <= _MOST_FRAMES:
        raise ValueError(f"{name} holds {len(listed)} values; it needs 2 to {_MOST_FRAMES}")
    return listed


def _text_of(value: Any) -> str:
    """Numbers, also those of numpy and torch, to six digits; the rest as Python writes it."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _plain(text: Any, name: str) -> str:
    """A text that is read out as it stands, so that it must not hold LaTeX."""
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{name} is {text!r}; it needs to be a text")
    if re.search(r"\$[^$]+\$|\\[a-zA-Z(]", text):
        raise ValueError(
            f"{name} is {text!r}; it is shown and read out as it stands: write β instead of LaTeX"
        )
    return text.strip()


def _alternatives(alt: Any, values: list[Any], name: str) -> list[str]:
    if callable(alt):
        texts = [alt(value) for value in values]
    elif isinstance(alt, str):
        raise ValueError(
            f"alt is one text for {len(values)} frames; it needs to be a function of the value, or"
            " a list with a text for each"
        )
    else:
        try:
            texts = list(alt)
        except TypeError:
            raise ValueError(
                f"alt is of type {type(alt).__name__}; it needs to be a function of the value, or a"
                " list with a text for each"
            ) from None
        if len(texts) != len(values):
            raise ValueError(f"alt holds {len(texts)} texts for {len(values)} {name}")
    texts = [_plain(text, f"alt of frame {k}") for k, text in enumerate(texts)]
    for k, text in enumerate(texts):
        if len(text.split()) < 3:
            raise ValueError(
                f"alt of frame {k} is {text!r}; it needs three words or more that say what is seen"
            )
    if len(set(texts)) == 1:
        raise ValueError(
            f"alt is {texts[0]!r} for every frame; it needs to say what differs between them"
        )
    return texts
