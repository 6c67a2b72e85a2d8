"""Solvers: one method a file, each by name and all behind :func:`solve`."""

from .factored import factored
from .fista import fista
from .frank_wolfe import frank_wolfe
from .newton import newton
from .solve import solve
from .splitting import splitting

__all__ = ["factored", "fista", "frank_wolfe", "newton", "solve", "splitting"]
