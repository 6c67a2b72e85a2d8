"""A moving figure in a live notebook: ipywidgets ask, the kernel draws."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Protocol

from .frames import Frame

_MEDIA_TYPE = "application/vnd.jupyter.widget-view+json"


class Drawn(Protocol):
    """What the widget asks of a figure: its texts, and a frame whenever a value is chosen."""

    label: str
    caption: str
    texts: Sequence[str]
    alts: Sequence[str]
    start: int
    interval_ms: int | None
    complete: bool

    def frame(self, index: int) -> Frame: ...


def build(figure: Drawn):
    """A box with the picture, the slider, and the play button of an animation.

    Parameters
    ----------
    figure
        Asked for the frame of each value that is chosen.

    Returns
    -------
    ipywidgets.VBox
        Its children are the picture, the row of controls and the caption.
    """
    import ipywidgets

    picture = ipywidgets.HTML()
    control = ipywidgets.SelectionSlider(
        options=[(text, index) for index, text in enumerate(figure.texts)],
        value=figure.start,
        description=figure.label,
        continuous_update=figure.complete,  # else each value on the way would have to be drawn
        style={"description_width": "initial"},
        layout={"width": "100%", "max_width": "660px"},
    )

    def show(change=None) -> None:
        picture.value = _picture(figure, control.value)

    control.observe(show, names="value")
    show()
    controls = [control]
    if figure.interval_ms is not None:
        play = ipywidgets.Play(
            value=figure.start, max=len(figure.texts) - 1, interval=figure.interval_ms
        )
        # Through the kernel: a frame that takes long to draw is waited for.
        ipywidgets.link((play, "value"), (control, "value"))
        controls.insert(0, play)
    rows = [picture, ipywidgets.HBox(controls)]
    if figure.caption:
        rows.append(ipywidgets.HTMLMath(escape(figure.caption)))
    return ipywidgets.VBox(rows)


def _picture(figure: Drawn, index: int) -> str:
    """The frame as HTML, or what went wrong: an error in a callback would be lost otherwise."""
    try:
        frame = figure.frame(index)
    except Exception as error:
        words = f"draw fails for {figure.texts[index]}: {type(error).__name__}: {error}"
        return f'<p role="alert">{escape(words)}</p>'
    return (
        f'<img src="{frame.address}" width="{frame.width}" height="{frame.height}"'
        f' style="max-width:100%;height:auto;background:#fff" alt="{escape(figure.alts[index])}">'
    )


def view(figure: Drawn) -> dict[str, dict]:
    """The entry of an output that says which widget to show there."""
    return {
        _MEDIA_TYPE: {
            "version_major": 2,
            "version_minor": 0,
            "model_id": build(figure).model_id,
        }
    }
