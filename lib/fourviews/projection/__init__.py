r"""Projections on the polytope of k labels, and losses and metrics for the k best.

:func:`lml` is the limited multi-label projection (Amos, Koltun & Kolter 2019), beside
:func:`softmax`, :func:`sparsemax` and :func:`hard_topk` in one frame; :func:`exactly_k_marginals`
is the law with exactly k labels, which LML is not. :func:`lml_loss`, :func:`topk_entropy_loss` and
:func:`smooth_topk_svm_loss` train for the k best, :func:`topk_recall` and :func:`relation_recall`
measure them.

The rest compares these losses: linear heads on fixed features with confused labels
(:class:`NoisyLabels`), and models of relations in scenes of which a part was written down
(:class:`Pairs`, :func:`compare_relation_losses`).
"""

from .intervals import gains, paired_interval
from .label_noise import confuse_labels, similar_classes
from .linear_head import LinearHead, fit_linear_head
from .lml import LML, LMLInfo, lml, lml_logits
from .losses import lml_loss, smooth_topk_svm_loss, topk_entropy_loss
from .metrics import relation_recall, topk_recall
from .noise_experiment import NoisyLabels, topk_losses
from .polytope import hard_topk, softmax, sparsemax
from .relation_experiment import compare_relation_losses, relation_recalls, train_pair_network
from .relations import Frequencies, PairNetwork, Pairs, relation_losses
from .subsets import exactly_k_marginals, log_elementary

__all__ = [
    "Frequencies",
    "LML",
    "LMLInfo",
    "LinearHead",
    "NoisyLabels",
    "PairNetwork",
    "Pairs",
    "compare_relation_losses",
    "confuse_labels",
    "exactly_k_marginals",
    "fit_linear_head",
    "gains",
    "hard_topk",
    "lml",
    "lml_logits",
    "lml_loss",
    "log_elementary",
    "paired_interval",
    "relation_losses",
    "relation_recall",
    "relation_recalls",
    "similar_classes",
    "smooth_topk_svm_loss",
    "softmax",
    "sparsemax",
    "topk_entropy_loss",
    "topk_losses",
    "topk_recall",
    "train_pair_network",
]
