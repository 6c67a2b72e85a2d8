"""Recall against counting by hand."""

from __future__ import annotations

import math

import pytest
import torch

from fourviews import projection


def test_lml_8_topk_recall_by_counting() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(40, 9, generator=generator)
    labels = torch.rand(40, 9, generator=generator) < 0.3
    labels[5] = False
    for k in range(10):
        found = projection.topk_recall(scores, labels, k)
        for i in range(40):
            best = sorted(range(9), key=lambda j: -scores[i, j].item())[:k]
            truth = labels[i].nonzero()[:, 0].tolist()
            if truth:
                assert float(found[i]) == len(set(best) & set(truth)) / len(truth)
            else:
                assert math.isnan(float(found[i]))
    one = torch.zeros(40, 9, dtype=torch.bool)
    one[torch.arange(40), torch.randint(0, 9, (40,), generator=generator)] = True
    hits = (scores.argmax(-1) == one.int().argmax(-1)).double()
    assert torch.equal(projection.topk_recall(scores, one, 1), hits)


def test_ties_count_by_their_share() -> None:
    labels = torch.tensor([True, False, True, False])
    assert float(projection.topk_recall(torch.zeros(4), labels, 1)) == 0.25
    assert float(projection.topk_recall(torch.zeros(4), labels, 3)) == 0.75


def test_precision_of_scores_does_not_matter() -> None:
    scores = torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16)
    labels = torch.tensor([False, True, True])
    assert float(projection.topk_recall(scores, labels, 2)) == 1


@pytest.mark.parametrize("constrained", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_lml_8_relation_recall_by_counting(constrained: bool, padded: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(6, 5, 4, generator=generator)
    labels = torch.rand(6, 5, 4, generator=generator) < 0.3
    labels[3] = False
    mask = torch.ones(6, 5, dtype=torch.bool)
    if padded:
        mask[0, 3:] = mask[1, 1:] = False
        labels &= mask[..., None]
    for k in (1, 2, 5, 50):
        found = projection.relation_recall(
            scores, labels, k, constrained=constrained, mask=mask if padded else None
        )
        for i in range(6):
            triples = []
            for p in range(5):
                if not mask[i, p]:
                    continue
                ranked = sorted(((scores[i, p, r].item(), p, r) for r in range(4)), reverse=True)
                triples += ranked[:1] if constrained else ranked
            best = {(p, r) for _, p, r in sorted(triples, reverse=True)[:k]}
            truth = {(int(p), int(r)) for p, r in labels[i].nonzero()}
            if truth:
                assert float(found[i]) == pytest.approx(len(best & truth) / len(truth), abs=1e-15)
            else:
                assert math.isnan(float(found[i]))


def test_a_pair_with_two_predicates_needs_the_unconstrained_list() -> None:
    scores = torch.tensor([[5.0, 4.0, 0.0], [3.0, 1.0, 0.0]])
    labels = torch.tensor([[True, True, False], [False, False, False]])
    assert float(projection.relation_recall(scores, labels, 2)) == 0.5
    assert float(projection.relation_recall(scores, labels, 2, constrained=False)) == 1.0


@pytest.mark.parametrize(
    "change, message",
    [
        ({"scores": torch.zeros(3)}, r"it needs \(..., pairs, predicates\)"),
        ({"labels": torch.zeros(2, 4, dtype=torch.bool)}, r"labels has shape \(2, 4\)"),
        ({"labels": torch.zeros(2, 3)}, "labels is torch.float32"),
        ({"k": 0}, "k is 0"),
        ({"k": 1.5}, "k is 1.5"),
        ({"scores": torch.full((2, 3), torch.nan)}, "NaN"),
        ({"mask": torch.ones(3, dtype=torch.bool)}, "mask needs to be boolean"),
        ({"mask": torch.tensor([False, True])}, "mask leaves out"),
    ],
)
def test_bad_input_is_refused(change: dict, message: str) -> None:
    arguments = {
        "scores": torch.zeros(2, 3),
        "labels": torch.ones(2, 3, dtype=torch.bool),
        "k": 1,
    } | change
    if arguments["scores"].ndim == 1:
        arguments["labels"] = torch.ones(3, dtype=torch.bool)
    with pytest.raises(ValueError, match=message):
        projection.relation_recall(**arguments)
    with pytest.raises(ValueError, match="labels is list"):
        projection.topk_recall(torch.zeros(2), [True, False], 1)
