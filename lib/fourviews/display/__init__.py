"""Figures and progress bars: everything a reader sees while a lesson runs.

Matplotlib is imported when a figure function is called, not before, so that solvers can use
:func:`progress` without paying for it.
"""

from .progress import progress, progress_enabled

__all__ = ["progress", "progress_enabled"]
