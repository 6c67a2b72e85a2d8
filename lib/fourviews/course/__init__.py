"""Checks of the lessons' exercises, and the sizes of labs, for any notebook that has the library.

An exercise ends with a cell such as ``course.check("ex-mlp-adjoint", forward, adjoint)``.  It
draws fresh data, looks at properties that a right answer must have, and says in words what is
missing.  The checks of one lesson are in one module of its name; a new module is found by itself.

A lab takes its sizes from `preset`, continues after its last whole `piece` if it was interrupted, and
leaves its tables with `keep_results`.
"""

from .checking import Result, check, examine
from .presets import KeptResults, Preset, keep_results, kept_results, piece, preset

__all__ = [
    "KeptResults",
    "Preset",
    "Result",
    "check",
    "examine",
    "keep_results",
    "kept_results",
    "piece",
    "preset",
]
