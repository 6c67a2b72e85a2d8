r"""Projections on the polytope of k labels, and losses and metrics for the k best.

:func:`lml` is the limited multi-label projection (Amos, Koltun & Kolter 2019), beside
:func:`softmax`, :func:`sparsemax` and :func:`hard_topk` in one frame; :func:`exactly_k_marginals`
is the law with exactly k labels, which LML is not. :func:`lml_loss`, :func:`topk_entropy_loss` and
:func:`smooth_topk_svm_loss` train for the k best, :func:`topk_recall` and :func:`relation_recall`
measure them.
"""

from .lml import LML, LMLInfo, lml, lml_logits
from .losses import lml_loss, smooth_topk_svm_loss, topk_entropy_loss
from .metrics import relation_recall, topk_recall
from .polytope import hard_topk, softmax, sparsemax
from .subsets import exactly_k_marginals, log_elementary

__all__ = [
    "LML",
    "LMLInfo",
    "exactly_k_marginals",
    "hard_topk",
    "lml",
    "lml_logits",
    "lml_loss",
    "log_elementary",
    "relation_recall",
    "smooth_topk_svm_loss",
    "softmax",
    "sparsemax",
    "topk_entropy_loss",
    "topk_recall",
]
