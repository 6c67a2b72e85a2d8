"""The benchmarks' own parts: fixed problems, and tables that say what was measured."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


def test_half_of_the_relu_problems_have_several_outputs():
    from problems import RELU, RELU_LARGER

    several = [case for case in RELU if case.c > 1]
    assert 2 * len(several) >= len(RELU)
    assert {case.loss for case in RELU} == {"squared", "cross_entropy"}
    assert any(case.s for case in RELU)
    assert len(set(RELU + RELU_LARGER)) == len(RELU + RELU_LARGER)


def test_problems_depend_on_their_seed_alone():
    from problems import RELU, build

    torch.manual_seed(1)
    one = build(RELU[0], "relu")
    torch.manual_seed(2)
    other = build(RELU[0], "relu")
    assert torch.equal(one.X, other.X) and torch.equal(one.loss.target, other.loss.target)
    assert one.beta == other.beta


def test_a_line_of_the_relu_table_is_what_the_solver_says():
    import relu
    from problems import RELU

    text, gap = relu.line(RELU[5])
    assert gap <= relu.ACCURATE
    assert f"{gap:.1e}" in text and "fully corrective" in text


def test_the_machine_is_described():
    from machine import describe

    found = describe()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["date"])
    assert "cores" in found["machine"]
    assert f"torch {torch.__version__.split('+')[0]}" in found["versions"]


def test_quick_growth_has_a_row_for_each_size_and_method():
    import growth
    from results import tables_of

    found = tables_of(growth.tables(True))
    assert [row[:2] for row in found["rows"]] == [
        [n, method] for n in (100, 200, 400) for method in growth.METHODS
    ]
    assert all(row[2] > 0 for row in found["rows"])
    assert [row[0] for row in found["maps"]] == ["n", "d", "gates", "c"]


def test_tokens_have_the_scales_and_labels_that_they_say():
    import heads

    n, s, d, c = 400, 20, 12, 10
    X, label = heads.tokens(n, s, d, c)
    assert X.shape == (n, s, d) and X.dtype == torch.float32
    assert torch.equal(label.bincount(), torch.full((c,), n // c))
    assert float(X.mean(dim=(0, 1)).abs().max()) < 1e-6
    scale = X.square().mean(dim=(0, 1)).sqrt()
    assert torch.allclose(scale / scale[0], torch.arange(1, d + 1) ** -0.7, rtol=1e-4)
    assert float((X.mT @ X).diagonal(dim1=1, dim2=2).sum(dim=1).mean()) == pytest.approx(
        1, rel=1e-5
    )
    # Gram matrices tell classes apart: those of one class lie nearer to each other.
    grams = (X.mT @ X).flatten(1)
    distance = torch.cdist(grams, grams)
    same = label[:, None] == label
    assert distance[same & ~torch.eye(n, dtype=torch.bool)].mean() < 0.9 * distance[~same].mean()
    assert torch.equal(X, heads.tokens(n, s, d, c)[0])


def test_a_row_of_the_heads_table_certifies():
    import heads
    from results import tables_of

    rows = list(heads.factored(*heads.tokens(40, 6, 5, 4), {0.1: 1e-4}))
    assert len(rows) == 1 and "β=0.1·β_max" in rows[0] and "of 1e-04 wanted" in rows[0]
    gap = float(rows[0].split("certified gap ")[1].split()[0])
    assert gap <= 1e-4
    case = heads.Case("Mixer", "linear", 6, 3, 3, 2)
    ours, peer, fastest = heads.against_cvxpy(case, ("CLARABEL",))
    assert "not converged" not in ours and "CLARABEL" in peer and "ratio" in peer
    assert peer.split()[1:5] == fastest.split()[1:5]
    found = tables_of([*rows, ours, peer, fastest])
    assert [len(found[name]) for name in ("attention", "heads")] == [1, 2]
    mine, theirs = found["heads"]
    assert (mine[2], mine[4], theirs[2]) == ("fourviews, splitting", 1.0, "CVXPY, CLARABEL")
    assert theirs[4] == pytest.approx(theirs[3] / mine[3], rel=2e-3)


def test_the_largest_tensor_of_energy_and_step_is_no_larger_than_scores_or_tokens():
    import energies as part

    from fourviews import unrolled

    for n, d in ((64, 8), (16, 500), (1, 3)):
        Y = part.tokens(n, d, torch.float32)
        energy = unrolled.AttentionEnergy(confinement=1.0)
        assert part.largest_tensor(lambda Y=Y, e=energy: e.value_and_step(Y)) <= n * max(n, d)
        # The measure sees what it is meant to see.
        assert part.largest_tensor(lambda Y=Y: Y[:, None] * Y) == n * n * d


def test_the_unrolled_tables_count_rises_of_both_models():
    import energies as part

    rows = list(part.tables(True))
    assert sum("two matrix products  " in row and "ratio  1.00" in row for row in rows) == 2
    joint = [row for row in rows if "ours, joint" in row]
    if joint:  # there were word vectors
        assert len(joint) == 8
        assert all(" 0 of" in row and "guaranteed 100.0 %" in row for row in joint)
        assert sum("published" in row for row in rows) == 24


def test_a_peer_that_dies_or_takes_too_much_is_no_answer_and_no_end():
    from apart import answer

    limits = {"seconds": 60.0, "memory": 4e9}
    assert answer(pow, 2, 10, **limits) == 1024
    assert answer(os._exit, 3, **limits) is None
    assert answer(bytes, 5 * 10**9, **limits) is None
    assert answer(time.sleep, 60, **(limits | {"seconds": 0.5})) is None
