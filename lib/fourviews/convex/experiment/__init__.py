"""One comparison of heads on the tokens of a fixed backbone: a configuration in, a table out."""

from .config import HeadsConfig
from .run import HeadFit, fit_head, fit_heads, heads_experiment, parameter_count
from .statistics import Comparison, findings, holm, paired, summary
from .tokens import InputForm, TokenSet, mosaics, token_set

__all__ = [
    "Comparison",
    "HeadFit",
    "HeadsConfig",
    "InputForm",
    "TokenSet",
    "findings",
    "fit_head",
    "fit_heads",
    "heads_experiment",
    "holm",
    "mosaics",
    "paired",
    "parameter_count",
    "summary",
    "token_set",
]
