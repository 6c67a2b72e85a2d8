r"""Convolutions as attention, and attention that learns to be one.

:func:`attention_from_conv` turns any ``Conv1d`` or ``Conv2d`` into multi-head self-attention with
the quadratic relative encoding (:func:`quadratic_encoding`).  :class:`QuadraticAttention` and
:class:`LearnedRelativeAttention` learn where to look; :func:`run_cifar10` trains networks of them
beside a :class:`ResNet`.  Source: Cordonnier, Loukas and Jaggi (2020), with repairs.
"""

from .axis import Axis
from .encoding import leak_bound, offset_query, quadratic_encoding
from .experiment import Result, run_cifar10
from .factor import factor_kernel, heads_needed
from .from_conv import ConvolutionAttention, attention_from_conv
from .imitation import Imitation, imitate, teach
from .learned import ImageAttention, LearnedRelativeAttention, QuadraticAttention
from .locality import head_reach
from .networks import AttentionNetwork, Cost, ResNet, cost
from .scores import ScoreTerms, absolute_scores, relative_scores
from .training import Recipe, TrainingRun, cosine_with_warm_up, train

__all__ = [
    "AttentionNetwork",
    "Axis",
    "ConvolutionAttention",
    "Cost",
    "ImageAttention",
    "Imitation",
    "LearnedRelativeAttention",
    "QuadraticAttention",
    "Recipe",
    "ResNet",
    "Result",
    "ScoreTerms",
    "TrainingRun",
    "absolute_scores",
    "attention_from_conv",
    "cosine_with_warm_up",
    "cost",
    "factor_kernel",
    "head_reach",
    "heads_needed",
    "imitate",
    "leak_bound",
    "offset_query",
    "quadratic_encoding",
    "relative_scores",
    "run_cifar10",
    "teach",
    "train",
]
