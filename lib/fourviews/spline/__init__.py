"""Attention as a spline: exact piecewise polynomials, and a compiler from them to encoders."""

from .compile import compile_decoder, compile_encoder
from .encoder import CompiledEncoder, Report
from .expression import Expression, maximum, minimum, rational, variables

__all__ = [
    "CompiledEncoder",
    "Expression",
    "Report",
    "compile_decoder",
    "compile_encoder",
    "maximum",
    "minimum",
    "rational",
    "variables",
]
