"""A moving figure as a piece of a page that needs neither kernel nor library nor network."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files

from .frames import Frame

_WITHOUT_SCRIPTS = (
    ".fv-slider-frames{display:grid;grid-template-columns:repeat(auto-fill,minmax(9rem,1fr));"
    "gap:.75rem}.fv-slider .fv-slider-frame{display:block!important}"
    ".fv-slider-first{grid-column:1/-1;order:-1}"
)


def moving_html(
    frames: Sequence[Frame],
    texts: Sequence[str],
    alts: Sequence[str],
    *,
    label: str,
    caption: str = "",
    start: int = 0,
    interval_ms: int | None = None,
) -> str:
    """Write the figure; with ``interval_ms`` it has a button that plays the frames.

    The frames stand in the page one after the other, each with its alternative text, all but one
    of them hidden. A script shows the control and moves. It leaves no name behind and sets up all
    figures that wait for it, so that any number of them, and copies of one, live on a page. No
    element has an ``id``. Without scripts the first frame is shown large, the others small below.
    """
    pictures = "\n".join(
        f'<div class="fv-slider-frame{" fv-slider-first" if k == start else ""}"'
        f' data-text="{escape(text)}"{"" if k == start else " hidden"}>'
        f'<img src="{frame.address}" width="{frame.width}" height="{frame.height}"'
        f' decoding="sync" alt="{escape(alt)}">'
        f'<p class="fv-slider-text">{escape(text)}</p></div>'
        for k, (frame, text, alt) in enumerate(zip(frames, texts, alts, strict=True))
    )
    interval = "" if interval_ms is None else f' data-interval="{interval_ms}"'
    return (
        # The last attribute keeps JupyterLab from taking arrow keys for itself.
        f'<figure class="fv-slider" aria-label="{escape(label)}" data-start="{start}"{interval}'
        ' data-lm-suppress-shortcuts="true">\n'
        f"<style>{_asset('moving.css')}</style>\n"
        f"<noscript><style>{_WITHOUT_SCRIPTS}</style></noscript>\n"
        f'<div class="fv-slider-frames">\n{pictures}\n</div>\n'
        + (_controls(label, texts, start, interval_ms is not None) if len(frames) > 1 else "")
        + (f"<figcaption>{_with_maths(caption)}</figcaption>\n" if caption else "")
        + f"</figure>\n<script>{_asset('moving.js')}</script>"
    )


def _controls(label: str, texts: Sequence[str], start: int, plays: bool) -> str:
    """Label, value, range and button, hidden until the script that serves them runs."""
    button = (
        '<button type="button"><span class="fv-slider-icon" aria-hidden="true"></span>'
        "<span>Play</span></button>"
    )
    return (
        '<div class="fv-slider-controls" hidden>'
        f'<span class="fv-slider-label">{escape(label)}</span>'
        f'<output class="fv-slider-value" aria-live="off">{escape(texts[start])}</output>'
        f'<div class="fv-slider-row">{button if plays else ""}'
        f'<input type="range" min="0" max="{len(texts) - 1}" step="1" value="{start}"'
        f' autocomplete="off" aria-label="{escape(label)}"'
        f' aria-valuetext="{escape(texts[start])}"></div></div>\n'
    )


def _with_maths(text: str) -> str:
    """Escape a text; what stands between dollars is marked as maths for the page to set."""
    parts = re.split(r"\$([^$]+)\$", text)
    return "".join(
        f'<span class="math notranslate nohighlight">\\({escape(part)}\\)</span>'
        if k % 2
        else escape(part)
        for k, part in enumerate(parts)
    )


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8").strip()
