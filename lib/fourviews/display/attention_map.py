"""Attention weights as a heat map with words at both sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage


def attention_map(
    weights,
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    ax: Axes | None = None,
    title: str = "",
    limit: float | None = None,
    colorbar: bool = True,
) -> AxesImage:
    """Draw attention weights: one row a query, one column a key.

    Weights that are all non-negative run from white to blue, starting at 0; if any is negative, the
    colours run from vermilion over white (0) to blue, symmetrically, so that white always means «no
    weight».

    Parameters
    ----------
    weights
        ``(q, k)``, torch or numpy.
    queries, keys
        Labels of rows and columns; ``keys`` are the queries if left out.
    ax
        Where to draw; the current axes if left out.
    title
        Text above the map.
    limit
        Weight of the strongest colour; the largest absolute value if left out.
    colorbar
        Whether to draw the scale.

    Returns
    -------
    AxesImage
        For a colour bar of your own.

    Raises
    ------
    ValueError
        If the labels do not fit the weights, or a weight is not finite.
    """
    import matplotlib.pyplot as plt
    from matplotlib.colors import LinearSegmentedColormap

    from .style import COLOURS

    if hasattr(weights, "detach"):
        weights = weights.detach().cpu().numpy()
    weights = np.asarray(weights)
    keys = queries if keys is None else keys
    if weights.shape != (len(queries), len(keys)):
        raise ValueError(
            f"weights has shape {weights.shape}; it needs ({len(queries)}, {len(keys)}),"
            " one row a query and one column a key"
        )
    if not np.isfinite(weights).all():
        raise ValueError("weights holds NaN or infinity; it needs finite numbers")
    if ax is None:
        ax = plt.gca()
    limit = float(np.abs(weights).max(initial=0.0)) if limit is None else limit
    limit = limit or 1.0  # a map of zeros is white
    signed = bool((weights < 0).any())
    ends = (
        [COLOURS["vermilion"], "white", COLOURS["blue"]] if signed else ["white", COLOURS["blue"]]
    )
    image = ax.imshow(
        weights,
        cmap=LinearSegmentedColormap.from_list("attention", ends),
        vmin=-limit if signed else 0.0,
        vmax=limit,
        aspect="auto",
    )
    ax.set_xticks(range(len(keys)), keys, rotation=55, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(queries)), queries)
    ax.tick_params(length=0)
    # Thin lines between the cells: a white cell can be told from the background.
    ax.set_xticks(np.arange(len(keys) + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(len(queries) + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="#E3E5E8", linewidth=0.8)
    ax.tick_params(which="minor", length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    if title:
        ax.set_title(title)
    if colorbar:
        bar = ax.figure.colorbar(image, ax=ax, shrink=0.9, pad=0.02)
        bar.outline.set_visible(False)
    return image
