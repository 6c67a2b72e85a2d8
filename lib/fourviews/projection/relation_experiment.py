"""Train a model of relations with several losses, and measure recall in constrained and other lists."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Generator, Tensor

from .metrics import relation_recall
from .relations import Frequencies, PairNetwork, Pairs, RelationLoss

__all__ = ["compare_relation_losses", "relation_recalls", "train_pair_network"]


def relation_recalls(
    scores: Tensor, pairs: Pairs, ks: Sequence[int] = (20, 50, 100)
) -> dict[str, float]:
    """Mean recall over scenes, of written relations and, where known, of all.

    Parameters
    ----------
    scores
        ``(n, pairs, P)``, one for each triple of each scene.
    pairs
        Those scenes.
    ks
        Lengths of the lists.

    Returns
    -------
    dict
        Keys such as ``"all@20"``, one predicate a pair, and ``"all@20+"``, any number; ``"written@20"``
        the same for what was written.

    Raises
    ------
    ValueError
        As :func:`fourviews.projection.relation_recall`.
    """
    found: dict[str, float] = {}
    for what, labels in (("all", pairs.truth), ("written", pairs.written)):
        if labels is None:
            continue
        for k in ks:
            for constrained in (True, False):
                rows = relation_recall(scores, labels, k, constrained=constrained, mask=pairs.mask)
                found[f"{what}@{k}{'' if constrained else '+'}"] = float(rows.nanmean())
    return found


def train_pair_network(
    network: PairNetwork,
    train: Pairs,
    validate: Pairs,
    loss: RelationLoss,
    *,
    epochs: int,
    seed: int = 0,
    batch: int = 32,
    rate: float = 3e-3,
    k: int = 20,
) -> PairNetwork:
    """Adam, and the epoch with the best recall at k of *written* validation relations.

    The untrained network, the frequencies, takes part in the choice: so a loss that does harm can only
    come out equal, up to what validation scenes do not show.

    Parameters
    ----------
    network
        Changed in place.
    train, validate
        Scenes to learn from and to choose the epoch by.
    loss
        Of logits ``(batch, pairs, P)``, written triples and the mask of pairs.
    epochs, batch, rate, seed
        Passes over the scenes, scenes a step, Adam's rate, and the seed of the order.
    k
        Length of the list that chooses the epoch.

    Returns
    -------
    PairNetwork
        The network, with the weights of the best epoch.

    Raises
    ------
    ValueError
        If ``epochs`` is negative, or the loss becomes NaN.
    """
    if epochs < 0:
        raise ValueError(f"epochs is {epochs}; it needs to be at least 0")
    generator = Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    best, kept = _seen(network, validate, k), copy.deepcopy(network.state_dict())
    for _ in range(epochs):
        for rows in torch.randperm(len(train), generator=generator).split(batch):
            some = train[rows]
            optimizer.zero_grad()
            value = loss(network(some), some.written, some.mask)
            if bool(value.isnan()):
                raise ValueError("loss gave NaN")
            value.backward()
            optimizer.step()
        seen = _seen(network, validate, k)
        if seen > best:
            best, kept = seen, copy.deepcopy(network.state_dict())
    network.load_state_dict(kept)
    return network


@torch.no_grad()
def _seen(network: PairNetwork, pairs: Pairs, k: int) -> float:
    """Recall at k of the written relations, any number of predicates a pair."""
    rows = relation_recall(network(pairs), pairs.written, k, constrained=False, mask=pairs.mask)
    return float(rows.nanmean())


def compare_relation_losses(
    train: Pairs,
    validate: Pairs,
    test: Pairs,
    losses: Mapping[str, RelationLoss],
    *,
    kinds: int,
    seed: int,
    epochs: int,
    width: int = 64,
    ks: Sequence[int] = (20, 50, 100),
) -> list[dict[str, float | str]]:
    """One row for the frequencies and one for each loss: ``loss``, ``seed`` and all recalls.

    All networks start alike and see the scenes in the same order.

    Parameters
    ----------
    train, validate, test
        Scenes to learn from, to choose the epoch by, and to judge.
    losses
        By name, as from :func:`relation_losses`.
    kinds
        How many kinds of objects there are.
    seed, epochs, width
        Of the networks: first weights and order of scenes, passes, hidden units.
    ks
        Lengths of the lists; the shortest chooses the epoch.

    Returns
    -------
    list of dict
        ``"loss"``, ``"seed"`` and the keys of :func:`relation_recalls`.

    Raises
    ------
    ValueError
        As :func:`train_pair_network` and :func:`relation_recalls`.
    """
    frequencies = Frequencies(train, kinds)
    rows = [{"loss": "frequencies", "seed": seed, **relation_recalls(frequencies(test), test, ks)}]
    for name, loss in losses.items():
        network = PairNetwork(frequencies, width, seed)
        train_pair_network(network, train, validate, loss, epochs=epochs, seed=seed, k=min(ks))
        with torch.no_grad():
            scores = network(test)
        rows.append({"loss": name, "seed": seed, **relation_recalls(scores, test, ks)})
    return rows
