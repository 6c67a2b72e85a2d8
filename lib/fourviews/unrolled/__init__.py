r"""Energies whose descent steps are the layers of a Transformer.

An *energy* has a value, a gradient, a majoriser and a natural step; the step of the pair energy is
attention (:func:`attention_step`), that of the Hopfield energy cross-attention, that of the MLP
energy a feed-forward layer.  Sums of energies, alternating steps and their certificates make the
:class:`UnrolledTransformer`, whose layers tell whether they were bound to lower the energy
(:func:`descent_certificate`).  Source: Yang, Huang and Wipf (2022), with repairs.
"""

from .energies.asymmetric import asymmetric_attention, asymmetric_linear
from .energies.attention_energy import AttentionEnergy, attention_energy, attention_step
from .energies.distances import half_squared_distances
from .energies.energy import Energy, Majoriser, TokenEnergy
from .energies.feed_forward import FeedForwardEnergy
from .energies.graph import irls_step
from .energies.hopfield import HopfieldEnergy
from .energies.mlp_energy import SIGMAS, MLPEnergy, Sigma
from .energies.rho import RHOS, Rho
from .energies.sphere import constant_norm, layer_norm, normalised_attention_step, sphere_step
from .networks.admissible import AdmissibleWeight
from .networks.certificate import LayerCertificate, descent_certificate
from .networks.classifier import TextClassifier, fit_readout, train_online
from .networks.depth import DepthRun, energies_along
from .networks.published import PublishedTransformer
from .networks.transformer import LayerEnergies, UnrolledTransformer
from .steps.alternating import (
    AlternatingRun,
    AlternatingStep,
    Smooth,
    alternate,
    alternating_step,
    orthant_alignment,
    orthant_gain,
    threshold,
)
from .steps.apollonius import Apollonius, apollonius
from .steps.implicit import implicit_minimiser
from .steps.proximal import PROXIMAL_MAPS, NonNegative, ProximalMap, proximal_kind, proximal_penalty
from .steps.sums import SumEnergy
from .steps.synthetic import matrix_pair

__all__ = [
    "PROXIMAL_MAPS",
    "RHOS",
    "SIGMAS",
    "AdmissibleWeight",
    "AlternatingRun",
    "AlternatingStep",
    "Apollonius",
    "AttentionEnergy",
    "DepthRun",
    "Energy",
    "FeedForwardEnergy",
    "HopfieldEnergy",
    "LayerCertificate",
    "LayerEnergies",
    "MLPEnergy",
    "Majoriser",
    "NonNegative",
    "ProximalMap",
    "PublishedTransformer",
    "Rho",
    "Sigma",
    "Smooth",
    "SumEnergy",
    "TextClassifier",
    "TokenEnergy",
    "UnrolledTransformer",
    "alternate",
    "alternating_step",
    "apollonius",
    "asymmetric_attention",
    "asymmetric_linear",
    "attention_energy",
    "attention_step",
    "constant_norm",
    "descent_certificate",
    "energies_along",
    "fit_readout",
    "half_squared_distances",
    "implicit_minimiser",
    "irls_step",
    "layer_norm",
    "matrix_pair",
    "normalised_attention_step",
    "orthant_alignment",
    "orthant_gain",
    "proximal_kind",
    "proximal_penalty",
    "sphere_step",
    "threshold",
    "train_online",
]
