"""Attention as a spline: exact piecewise polynomials, and a compiler from them to encoders.

ReLU attention is a cubic spline. This package computes with that statement: degrees by rule and
measured, sign classes along a line, and the way back, from splines to encoders.
"""

from .compile import compile_decoder, compile_encoder
from .cpwl import chen_bound, cpwl_network, difference_of_convex, reduce_maximum
from .degree import degree, measured_degree, transformer_degree
from .encoder import CompiledEncoder, Report
from .expression import Expression, maximum, minimum, rational, variables
from .normal_form import NormalForm, normal_form
from .partition import (
    PiecewisePolynomial,
    SignPartition,
    sum_and_composition_parameters,
    triangulation_partition,
)
from .pieces import Piece, pieces
from .pierce_birkhoff import (
    Counterexample,
    counterexample,
    product_of_positive_parts,
    twin_points,
)
from .smoothing import smooth, smoothing_errors
from .veronese import (
    linear_after_veronese,
    monomials,
    network_block,
    veronese,
    veronese_encoder,
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
