"""Progress bars for what takes longer than a second, silent everywhere else."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Any

from tqdm.std import tqdm

from .switches import switched_off, switched_on

# Shorter work is over before a bar could be read.
_SECONDS_BEFORE_SHOWN = 1.0


def progress_enabled(enabled: bool | None = None) -> bool:
    """Whether a bar may appear.

    An explicit ``True`` or ``False`` wins. ``None`` asks the environment: ``FOURVIEWS_PROGRESS=0``
    switches every bar off, and so does ``FOURVIEWS_BOOK_BUILD=1``, because a bar that is
    frozen into a built page says nothing and differs from run to run.
    """
    if enabled is not None:
        return bool(enabled)
    if switched_on("FOURVIEWS_BOOK_BUILD"):
        return False
    return not switched_off("FOURVIEWS_PROGRESS")


def progress(
    iterable: Iterable[Any] | None = None,
    *,
    total: int | None = None,
    label: str = "",
    enabled: bool | None = None,
):
    """Wrap an iterable, or count to ``total`` by hand, with a bar that appears after one second.

    Parameters
    ----------
    iterable
        What to loop over. Leave it out to call ``update`` yourself.
    total
        Number of steps; taken from ``len(iterable)`` where that exists.
    label
        Short text in front of the bar.
    enabled
        ``False`` hides the bar, ``True`` shows it whatever the environment says,
        ``None`` follows :func:`progress_enabled`.

    Returns
    -------
    tqdm
        Iterable and context manager with ``update(n)``, ``set_postfix_str(text)`` and ``close()``.
        All of them also work, and print nothing, when the bar is off.

    Raises
    ------
    ValueError
        If ``total`` is negative, or ``iterable`` cannot be iterated over.

    Examples
    --------
    >>> with progress(total=3, label="steps", enabled=False) as bar:
    ...     for _ in range(3):
    ...         _ = bar.update(1)
    >>> bar.n
    0
    """
    if total is not None and total < 0:
        raise ValueError(f"total is {total}; it needs to be 0 or more")
    if iterable is not None and not hasattr(iterable, "__iter__"):
        raise ValueError(
            f"iterable is of type {type(iterable).__name__}; it needs to be something to loop over"
            " (give a number of steps as total=…)"
        )
    shown = progress_enabled(enabled)
    bar = _bar_class() if shown else tqdm
    return bar(
        iterable,
        total=total,
        desc=label or None,
        disable=not shown,
        delay=_SECONDS_BEFORE_SHOWN,
        leave=False,
        dynamic_ncols=True,
    )


def _bar_class() -> type[tqdm]:
    """The notebook's bar in a notebook with widgets, the terminal's bar everywhere else.

    tqdm's own choice, ``tqdm.auto``, warns on import in a notebook without ipywidgets.
    """
    if importlib.util.find_spec("ipywidgets") is None:
        return tqdm
    from tqdm.auto import tqdm as automatic

    return automatic
