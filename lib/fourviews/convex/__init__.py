r"""Two-layer heads as convex programs, solved with a certificate of the gap to the optimum.

A *problem* (``MLP``, ``SelfAttention``, ``Mixer``, ``FNO`` or ``BlockFNO``) holds data, loss and norm; ``solve`` returns coefficients with
objective, lower bound and relative gap; ``Solution.network()`` turns them into a two-layer
network with the same objective, ``from_network`` goes back.  Source: Sahiner et al. (2022).
"""

from .arrangements import arrangement_bound, arrangements
from .certificates import lower_bound
from .cones import cone_decomposition, project_cone, quasi_nuclear_norm
from .distributed import Group, processes
from .experiment import (
    HeadsConfig,
    TokenSet,
    findings,
    fit_head,
    fit_heads,
    heads_experiment,
    paired,
    parameter_count,
    summary,
    token_set,
)
from .head_count import HeadCount, fewer_heads, head_count
from .heads import (
    FNO,
    MLP,
    BlockFNO,
    FNONetwork,
    Mixer,
    MixerNetwork,
    SelfAttention,
    SelfAttentionNetwork,
    circulant,
)
from .losses import CrossEntropy, Squared
from .network import MLPNetwork, TwoLayerNetwork
from .norms import nuclear_norm, singular_value_threshold, spectral_norm
from .path import largest_beta, regularization_path
from .problem import Problem
from .reference import reference
from .shards import Certificate, Shards
from .solution import Solution
from .solvers import factored, fista, frank_wolfe, newton, solve, splitting
from .weight_map import from_network

__all__ = [
    "FNO",
    "MLP",
    "BlockFNO",
    "Certificate",
    "CrossEntropy",
    "FNONetwork",
    "HeadCount",
    "HeadsConfig",
    "MLPNetwork",
    "Mixer",
    "MixerNetwork",
    "Problem",
    "SelfAttention",
    "SelfAttentionNetwork",
    "Shards",
    "Solution",
    "Squared",
    "TokenSet",
    "TwoLayerNetwork",
    "arrangement_bound",
    "arrangements",
    "circulant",
    "cone_decomposition",
    "factored",
    "fewer_heads",
    "findings",
    "fista",
    "fit_head",
    "fit_heads",
    "frank_wolfe",
    "from_network",
    "head_count",
    "heads_experiment",
    "largest_beta",
    "lower_bound",
    "newton",
    "nuclear_norm",
    "paired",
    "parameter_count",
    "project_cone",
    "quasi_nuclear_norm",
    "reference",
    "regularization_path",
    "singular_value_threshold",
    "solve",
    "spectral_norm",
    "splitting",
    "summary",
    "token_set",
    "Group",
    "processes",
]
