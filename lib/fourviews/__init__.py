"""Four views of attention: convex programs, unrolled energies, splines, convolutions.

The package holds what the lessons of the book import:

- :mod:`fourviews.attention` - softmax, ReLU and linear attention, the modules every view speaks of
- :mod:`fourviews.convex` - two-layer networks as convex programs, solved with a certificate
- :mod:`fourviews.convolution` - convolutions as attention, attention that learns to be one
- :mod:`fourviews.course` - checks of the exercises, which say in words what is missing
- :mod:`fourviews.data` - real data: found, verified, cached
- :mod:`fourviews.display` - figure style, moving figures, progress bars
- :mod:`fourviews.projection` - softmax, sparsemax and LML as projections, losses for the k best
- :mod:`fourviews.spline` - exact splines, their degrees, and a compiler from them to encoders
- :mod:`fourviews.unrolled` - energies whose descent steps are layers, and certificates of descent

Importing the package itself loads none of them; the submodules are loaded on first use, so that
``import fourviews`` is quick and ``fourviews.data`` works without torch being started first.
"""

from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec

__version__ = "0.1.0"


def __getattr__(name: str):
    if not name.startswith("_") and _find_spec(f"{__name__}.{name}") is not None:
        return _import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
