r"""Energies along the layers, text by text: what figures of energy against depth are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from ..inputs import check_tokens
from .certificate import _sizes, descent_certificate
from .published import PublishedTransformer
from .threads import few_threads
from .transformer import UnrolledTransformer

__all__ = ["DepthRun", "energies_along"]


@dataclass(frozen=True)
class DepthRun:
    r"""m texts through L tied layers.

    Attributes
    ----------
    lengths
        Tokens of each text.
    energies
        Energy at the input and after each layer (L + 1 states), divided by the text's number of tokens.  With
        ReLU it is infinite at an input that has negative entries.
    fell
        Whether the energy did not rise beyond rounding, for each text and layer.
    by_theorem, guaranteed
        What :func:`descent_certificate` says: known before the layer ran, and known at all.
    """

    lengths: Int64[Tensor, "m"]
    energies: Float[Tensor, "m states"]
    fell: Bool[Tensor, "m layers"]
    by_theorem: Bool[Tensor, "m layers"]
    guaranteed: Bool[Tensor, "m layers"]

    @property
    def rises(self) -> int:
        """How many of the m · L layers raised the energy of their text."""
        return int((~self.fell).sum())

    @property
    def mean(self) -> Float[Tensor, "states"]:
        """Mean over texts of the energy per token."""
        return self.energies.mean(0)

    def share(self, what: str) -> float:
        """Share of all texts and layers with ``fell``, ``by_theorem`` or ``guaranteed``."""
        return float(getattr(self, what).double().mean())


def energies_along(
    model: UnrolledTransformer | PublishedTransformer, texts: Sequence[Float[Tensor, "_ d"]]
) -> DepthRun:
    r"""Run a tied model on texts, one by one, without padding.

    An energy per token, so that a long text does not outweigh a short one by its length alone.  It
    does not take the length out: the pair energy of n tokens lies between −n² and −n.

    Parameters
    ----------
    model
        One energy for all layers.
    texts
        Tokens ``(n, d)`` of each, n ≥ 1.

    Returns
    -------
    DepthRun
        Energies per token ``(texts, layers + 1)``, falls and guarantees ``(texts, layers)``.

    Raises
    ------
    ValueError
        If ``model`` is none of the two, the layers are not tied, there is no text, or a text has no
        token.
    """
    if not isinstance(model, UnrolledTransformer | PublishedTransformer):
        raise ValueError(
            f"model is a {type(model).__name__}; it needs to be a model of this package"
        )
    if isinstance(model, UnrolledTransformer) and not model.tied:
        raise ValueError("model has one energy for each layer; its layers need to be tied")
    if not len(texts):
        raise ValueError("texts is empty; it needs at least one text")
    rows: list[tuple[Tensor, ...]] = []
    with torch.no_grad(), few_threads(texts):
        for number, X in enumerate(texts):
            check_tokens(X, f"texts[{number}]")
            if X.ndim != 2 or not len(X):
                raise ValueError(f"texts[{number}] is {tuple(X.shape)}; it needs (n >= 1, d)")
            values, *rest = _published(model, X) if _is_published(model) else _certified(model, X)
            rows.append((values / len(X), *rest))
    energies, fell, by_theorem, guaranteed = (
        torch.stack(column) for column in zip(*rows, strict=True)
    )
    return DepthRun(torch.tensor([len(X) for X in texts]), energies, fell, by_theorem, guaranteed)


def _is_published(model) -> bool:
    return isinstance(model, PublishedTransformer)


def _certified(model: UnrolledTransformer, X: Tensor) -> tuple[Tensor, ...]:
    layers = descent_certificate(model, X)
    if not layers:
        none = torch.zeros(0, dtype=torch.bool)
        return X.new_zeros(1), none, none, none
    flags = (
        torch.stack([getattr(c, n) for c in layers]) for n in ("fell", "by_theorem", "guaranteed")
    )
    return torch.stack([layers[0].before] + [c.after for c in layers]), *flags


def _published(model: PublishedTransformer, X: Tensor) -> tuple[Tensor, ...]:
    """The same test of a fall as for certified layers, and no promise."""
    energy, states = model.energy(X), [X]
    for _ in range(model.layers):
        states.append(model.layer(states[-1], X))
    values = torch.stack([energy.value(Y) for Y in states])
    sizes = torch.stack([_sizes(energy, Y) for Y in states])
    room = 16 * torch.finfo(X.dtype).eps * (sizes[1:] + sizes[:-1])
    fell = values[1:] <= values[:-1] + room
    return values, fell, torch.zeros_like(fell), torch.zeros_like(fell)
