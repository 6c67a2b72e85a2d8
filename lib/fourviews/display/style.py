"""One look for all figures: safe for colour-blind readers, opaque, readable on a telephone."""

from __future__ import annotations

#: Okabe and Ito's palette, darkest first where two would stand side by side in a small figure.
COLOURS = {
    "blue": "#0072B2",
    "vermilion": "#D55E00",
    "green": "#009E73",
    "purple": "#CC79A7",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "grey": "#5F6368",
}


def use_style() -> None:
    """Set Matplotlib's defaults for the figures of this book.

    Figures are 6 inches wide, so that 12 points come out as about 10 pixels when a page 360 pixels
    wide shows them. The background is white and opaque: on a dark page the figure stays legible.
    Colours are those of Okabe and Ito, which readers with the common colour-vision deficiencies can
    tell apart; lines also differ by marker or dash where it matters.

    Raises
    ------
    ImportError
        If Matplotlib is missing; the message names the extra.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ImportError("figures need Matplotlib: pip install 'fourviews[lessons]'") from error
    mpl.rcParams.update(
        {
            "figure.figsize": (6.0, 3.8),
            "figure.dpi": 110,
            "savefig.dpi": 160,
            "figure.facecolor": "white",
            "savefig.facecolor": "white",
            "savefig.transparent": False,
            "figure.constrained_layout.use": True,
            "axes.facecolor": "white",
            "axes.edgecolor": COLOURS["grey"],
            "axes.labelcolor": "black",
            "axes.prop_cycle": mpl.cycler(color=list(COLOURS.values())),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 13,
            "axes.titlelocation": "left",
            "axes.labelsize": 12,
            "axes.grid": False,
            "grid.color": "#D9DCE0",
            "font.size": 12,
            "xtick.labelsize": 11,
            "ytick.labelsize": 11,
            "legend.fontsize": 11,
            "legend.frameon": False,
            "lines.linewidth": 2.0,
            "lines.markersize": 6,
            "image.cmap": "viridis",
            "text.color": "black",
            "mathtext.fontset": "dejavusans",
        }
    )
