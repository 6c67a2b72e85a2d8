"""Pairs of objects, the frequency baseline, losses of relations, and their training."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from fourviews import data, projection


@pytest.fixture(scope="module")
def scenes() -> data.SceneSet:
    return data.generated_scenes(60, seed=1, max_objects=5)


@pytest.fixture(scope="module")
def pairs(scenes) -> projection.Pairs:
    return projection.Pairs.of(scenes)


def test_pairs_are_those_of_the_scenes(scenes, pairs) -> None:
    assert pairs.mask.shape == (60, 25) and pairs.written.shape == (60, 25, 15)
    for i, a, b in itertools.product(range(5), range(5), range(5)):
        row = 5 * a + b
        there = a != b and min(scenes.kinds[i, a], scenes.kinds[i, b]) >= 0
        assert bool(pairs.mask[i, row]) == there
        if there:
            assert pairs.subject[i, row] == scenes.kinds[i, a]
            assert pairs.object[i, row] == scenes.kinds[i, b]
            assert torch.equal(pairs.truth[i, row], scenes.truth[i, a, b])
            (x, y, w, h), (u, v, p, q) = scenes.boxes[i, a].tolist(), scenes.boxes[i, b].tolist()
            offset = (u + p / 2 - x - w / 2, v + q / 2 - y - h / 2)
            width = max(0, min(x + w, u + p) - max(x, u))
            height = max(0, min(y + h, v + q) - max(y, v))
            wanted = [
                *offset,
                math.hypot(*offset),
                width * height / min(w * h, p * q),
                math.log(p / w),
                math.log(q / h),
                w * h,
                v + q - y - h,
            ]
            assert pairs.geometry[i, row].tolist() == pytest.approx(wanted, abs=2e-5)
    assert len(pairs[:7]) == 7 and bool(pairs.geometry.isfinite().all())


def test_frequencies_are_counted(scenes, pairs) -> None:
    baseline = projection.Frequencies(pairs, 24, smoothing=2.0)
    scores = baseline(pairs)
    triples, places = {}, {}
    written = 0
    for i, row in pairs.mask.nonzero().tolist():
        key = (int(pairs.subject[i, row]), int(pairs.object[i, row]))
        places[key] = places.get(key, 0) + 1
        if pairs.written[i, row, 1]:
            triples[key] = triples.get(key, 0) + 1
            written += 1
    share = (written + 0.5) / (sum(places.values()) + 1)
    for i, row in pairs.mask.nonzero().tolist()[::37]:
        key = (int(pairs.subject[i, row]), int(pairs.object[i, row]))
        wanted = (triples.get(key, 0) + 2 * share) / (places[key] + 2)
        assert float(scores[i, row, 1]) == pytest.approx(math.log(wanted), rel=1e-5)
    assert bool((baseline.table < 0).all()) and bool(baseline.table.isfinite().all())
    for smoothing in (0.0, math.nan, -1.0):
        with pytest.raises(ValueError, match="smoothing is"):
            projection.Frequencies(pairs, 24, smoothing)
    with pytest.raises(ValueError, match="no pair"):
        projection.Frequencies(pairs[:0], 24)


def test_the_network_begins_as_the_frequencies(pairs) -> None:
    baseline = projection.Frequencies(pairs, 24)
    before = torch.get_rng_state()
    network = projection.PairNetwork(baseline, 8, seed=3)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(network(pairs), baseline(pairs))
    same, other = (projection.PairNetwork(baseline, 8, seed=s) for s in (3, 4))
    assert torch.equal(network.hidden.weight, same.hidden.weight)
    assert not torch.equal(network.hidden.weight, other.hidden.weight)


def plain(name: str, x: torch.Tensor, written: torch.Tensor, mask: torch.Tensor, k: int) -> float:
    """The same losses in loops."""
    total, count = 0.0, 0
    for i in range(len(x)):
        triples = [(r, p) for r in range(x.shape[1]) if mask[i, r] for p in range(x.shape[2])]
        value = {t: float(x[i][t]) for t in triples}
        asked = [t for t in triples if written[i][t]]
        count += len(asked)
        if name == "independent":
            for t in triples:
                total += math.log1p(math.exp(-value[t] if t in asked else value[t]))
        elif name == "pair softmax":
            for r in {r for r, _ in triples}:
                norm = math.log(1 + sum(math.exp(value[t]) for t in triples if t[0] == r))
                own = [value[t] for t in asked if t[0] == r] or [0.0]
                total += norm - sum(own) / len(own)
        elif name in ("scene softmax", "truncated entropy"):
            j = 1 if name == "scene softmax" else k
            for t in asked:
                others = sorted(value[u] for u in triples if u not in asked)
                kept = others[: max(len(others) - (j - 1), 0)]
                total += math.log(1 + sum(math.exp(v - value[t]) for v in kept))
        elif asked:
            j = min(max(k, len(asked)), len(triples) - 1)
            row = torch.tensor([value[t] for t in triples], dtype=torch.float64)
            y = dict(zip(triples, projection.lml(row, j).tolist(), strict=True))
            total -= sum(math.log(y[t]) for t in asked)
    return total / count


@pytest.mark.parametrize("name", list(projection.relation_losses(5)))
def test_losses_agree_with_loops(pairs, name: str) -> None:
    some = pairs[:6]
    x = torch.randn(6, 25, 15, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x.requires_grad_()
    for k in (1, 5, 20, 10_000):
        value = projection.relation_losses(k)[name](x, some.written, some.mask)
        if k < 10_000:
            wanted = plain(name, x.detach(), some.written, some.mask, k)
            assert float(value.detach()) == pytest.approx(wanted, rel=1e-9)
        (gradient,) = torch.autograd.grad(value, x)
        assert bool(gradient.isfinite().all())
        assert bool((gradient[~some.mask] == 0).all())
    nothing = torch.zeros_like(some.written)
    value = projection.relation_losses(5)[name](x, nothing, some.mask)
    assert bool(value.isfinite())
    if name not in ("independent", "pair softmax"):
        assert float(value.detach()) == 0


def test_training_keeps_the_best_epoch_and_recalls_have_their_keys(pairs) -> None:
    baseline = projection.Frequencies(pairs[:40], 24)
    loss = projection.relation_losses(20)["LML"]

    def seen(network: projection.PairNetwork) -> float:
        with torch.no_grad():
            found = projection.relation_recalls(network(pairs[40:50]), pairs[40:50], ks=(20,))
        return found["written@20+"]

    untrained = projection.PairNetwork(baseline, 16)
    start = seen(untrained)
    projection.train_pair_network(untrained, pairs[:40], pairs[40:50], loss, epochs=0)
    assert seen(untrained) == start
    network = projection.PairNetwork(baseline, 16)
    projection.train_pair_network(network, pairs[:40], pairs[40:50], loss, epochs=4)
    assert seen(network) >= start
    rows = projection.compare_relation_losses(
        pairs[:40],
        pairs[40:50],
        pairs[50:],
        {"LML": loss},
        kinds=24,
        seed=0,
        epochs=2,
        ks=(5, 10),
    )
    assert [row["loss"] for row in rows] == ["frequencies", "LML"]
    names = {f"{w}@{k}{p}" for w in ("all", "written") for k in (5, 10) for p in ("", "+")}
    assert all(set(row) == names | {"loss", "seed"} for row in rows)
    assert all(row["all@5+"] <= row["all@10+"] for row in rows)
    unknown = projection.Pairs(**{**vars(pairs), "truth": None})
    found = projection.relation_recalls(baseline(pairs), unknown, ks=(5,))
    assert set(found) == {"written@5", "written@5+"}
    with pytest.raises(ValueError, match="epochs is -1"):
        projection.train_pair_network(network, pairs, pairs, loss, epochs=-1)
    with pytest.raises(ValueError, match="NaN"):
        projection.train_pair_network(
            network, pairs, pairs, lambda x, w, m: x.sum() * math.nan, epochs=1
        )
