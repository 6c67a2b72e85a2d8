"""Checks of the lessons' exercises, for any notebook that has the library.

An exercise ends with a cell such as ``course.check("ex-mlp-adjoint", forward, adjoint)``.  It
draws fresh data, looks at properties that a right answer must have, and says in words what is
missing.  The checks of one lesson are in one module of its name; a new module is found by itself.
"""

from .checking import Result, check, examine

__all__ = ["Result", "check", "examine"]
