r"""Convolutions as attention, and attention that learns to be one.

:func:`attention_from_conv` turns any ``Conv1d`` or ``Conv2d`` into multi-head self-attention with
the quadratic relative encoding (:func:`quadratic_encoding`).  Source: Cordonnier, Loukas and Jaggi
(2020), with repairs.
"""

from .axis import Axis
from .encoding import leak_bound, offset_query, quadratic_encoding
from .factor import factor_kernel, heads_needed
from .from_conv import ConvolutionAttention, attention_from_conv
from .scores import ScoreTerms, absolute_scores, relative_scores

__all__ = [
    "Axis",
    "ConvolutionAttention",
    "ScoreTerms",
    "absolute_scores",
    "attention_from_conv",
    "factor_kernel",
    "heads_needed",
    "leak_bound",
    "offset_query",
    "quadratic_encoding",
    "relative_scores",
]
