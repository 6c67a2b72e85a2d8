"""Attention as a spline: exact piecewise polynomials, and a compiler from them to encoders.

ReLU attention is a cubic spline. This package computes with that statement: degrees by rule and
measured, sign classes along a line, and the way back, from splines to encoders.
"""

from .analysis.degree import degree, measured_degree, transformer_degree
from .analysis.pieces import Piece, pieces
from .analysis.smoothing import smooth, smoothing_errors
from .compiler.compile import compile_decoder, compile_encoder
from .compiler.cpwl import chen_bound, cpwl_network, difference_of_convex, reduce_maximum
from .compiler.encoder import CompiledEncoder, Report
from .compiler.veronese import (
    linear_after_veronese,
    monomials,
    network_block,
    veronese,
    veronese_encoder,
)
from .functions.expression import Expression, maximum, minimum, rational, variables
from .functions.normal_form import NormalForm, normal_form
from .functions.partition import (
    PiecewisePolynomial,
    SignPartition,
    sum_and_composition_parameters,
    triangulation_partition,
)
from .functions.pierce_birkhoff import (
    Counterexample,
    counterexample,
    product_of_positive_parts,
    twin_points,
)

__all__ = [
    "CompiledEncoder",
    "Counterexample",
    "Expression",
    "NormalForm",
    "Piece",
    "PiecewisePolynomial",
    "Report",
    "SignPartition",
    "chen_bound",
    "compile_decoder",
    "compile_encoder",
    "counterexample",
    "cpwl_network",
    "degree",
    "difference_of_convex",
    "linear_after_veronese",
    "maximum",
    "measured_degree",
    "minimum",
    "monomials",
    "network_block",
    "normal_form",
    "pieces",
    "product_of_positive_parts",
    "rational",
    "reduce_maximum",
    "smooth",
    "smoothing_errors",
    "sum_and_composition_parameters",
    "transformer_degree",
    "triangulation_partition",
    "twin_points",
    "variables",
    "veronese",
    "veronese_encoder",
]
