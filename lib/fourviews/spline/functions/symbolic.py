"""sympy, loaded when it is first needed."""

from __future__ import annotations

from types import ModuleType


def sympy() -> ModuleType:
    """The module, or an error that names the extra which installs it."""
    try:
        import sympy as module
        import sympy.polys.matrices
        import sympy.polys.rings
    except ImportError as error:
        raise ImportError(
            "exact polynomials need sympy: pip install 'fourviews[spline]'"
        ) from error
    return module
