"""Figures and progress bars: everything a reader sees while a lesson runs.

Matplotlib is imported when a figure function is called, not before, so that solvers can use
:func:`progress` without paying for it.
"""

from .attention_map import attention_map
from .moving_figure import animate, slider
from .progress import progress, progress_enabled
from .style import COLOURS, use_style

__all__ = [
    "COLOURS",
    "animate",
    "attention_map",
    "progress",
    "progress_enabled",
    "slider",
    "use_style",
]
