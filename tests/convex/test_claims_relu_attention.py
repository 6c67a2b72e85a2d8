"""Claims cvx-11 to cvx-13 and cvx-22 for ReLU attention: what the lesson proves beyond the print."""

from __future__ import annotations

import math

import pytest
import torch

from fourviews import convex

from .training import train


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rows(X):
    return torch.cat([torch.kron(x, x) for x in X])


def printed(n, r):
    """The printed 2r(e(n − 1)/r)^r with n samples."""
    return 2 * r * (math.e * (n - 1) / r) ** r


def bound(n_rows, r):
    return 2 * sum(math.comb(n_rows - 1, k) for k in range(r))


@pytest.mark.claim("cvx-11/patterns", verdict="corrected")
@pytest.mark.parametrize("n, s, d", [(1, 1, 1), (2, 2, 2), (2, 3, 2), (1, 4, 2)])
def test_patterns_are_counted_by_token_pairs_and_not_by_samples(n, s, d):
    F = rows(randn(n, s, d))
    r = int(torch.linalg.matrix_rank(F))
    assert r == min(d * d, n * min(s, d) ** 2)
    found = len(convex.arrangements(F))
    assert printed(n, r) < found <= bound(len(F), r)


@pytest.mark.claim("cvx-11/bound", verdict="verified")
@pytest.mark.parametrize("seed", range(4))
def test_one_bound_holds_for_every_head(seed):
    """τ = ½(‖A*(R)‖ + ‖F‖‖T‖) is at least the polar at every head, and as small as the norms."""
    X, R = randn(3, 4, 2, seed=seed), randn(3, 4, 2, seed=seed + 10)
    grams = X.mT @ X
    kron = lambda A, B: sum(torch.kron(a, b) for a, b in zip(A, B, strict=True))  # noqa: E731
    norm = lambda M: float(torch.linalg.matrix_norm(M, 2))  # noqa: E731
    F = rows(X)
    T = torch.cat(
        [torch.einsum("td,qc->tqdc", x, r).reshape(16, 4) for x, r in zip(X, R, strict=True)]
    )
    assert norm(F) ** 2 == pytest.approx(norm(kron(grams, grams)), rel=1e-10)
    assert norm(T) ** 2 == pytest.approx(norm(kron(grams, R.mT @ R)), rel=1e-10)
    tau = 0.5 * (norm(F.T @ T) + norm(F) * norm(T))
    heads = randn(4000, 4, seed=seed + 20)
    heads = heads / heads.norm(dim=1, keepdim=True)
    polar = float((torch.relu(heads @ F.T) @ T).norm(dim=1).max())
    assert 0.2 * tau < polar <= tau
    problem = convex.SelfAttention(X, R, beta=1.0, activation="relu", n_gates=2)
    assert problem.relu_polar_bound(R) >= tau * (1 - 1e-10)


TWO_TOKENS = torch.tensor([[[1.0], [-2.0]]], dtype=torch.float64)
HEADS_FOR_ONE = 2  # as many ReLU heads do what one linear head does, and cost so much more


def value_below_linear(X, Y, beta, tol=1e-6):
    """Optimal value of ReLU attention, checked against that of linear attention at 2β."""
    solution = convex.solve(
        convex.SelfAttention(X, Y, beta=beta, activation="relu"), tol=tol, progress=False
    )
    linear = convex.SelfAttention(X, Y, beta=HEADS_FOR_ONE * beta)
    linear = convex.solve(linear, tol=tol, progress=False)
    assert solution.converged and linear.converged
    assert solution.lower_bound <= linear.objective
    return solution.objective


@pytest.mark.claim("cvx-11/linear", verdict="verified")
@pytest.mark.parametrize("seed", range(3))
def test_linear_attention_bounds_relu_attention_from_both_sides(seed):
    X, Y = randn(2, 2, 2, seed=seed), randn(2, 2, 1, seed=seed + 10)
    T = torch.cat(
        [torch.einsum("td,qc->tqdc", x, -y).reshape(4, 2) for x, y in zip(X, Y, strict=True)]
    )
    largest = convex.largest_beta(convex.SelfAttention(X, Y, beta=1.0, activation="relu"))
    heads = randn(200_000, 4, seed=seed + 20)
    heads = heads / heads.norm(dim=1, keepdim=True)
    sampled = float((torch.relu(heads @ rows(X).T) @ T).norm(dim=1).max())
    assert 0.95 * largest < sampled <= largest  # it is the polar P
    assert 0.5 * float(torch.linalg.matrix_norm(rows(X).T @ T, 2)) <= largest
    of_zero = float(Y.square().sum()) / 2
    for share in (1.05, 0.9, 0.3):
        value = value_below_linear(X, Y, share * largest)
        assert (
            value == pytest.approx(of_zero, rel=1e-6) if share > 1 else value < (1 - 1e-4) * of_zero
        )


@pytest.mark.claim("cvx-11/linear", verdict="verified")
@pytest.mark.parametrize("R, linear, relu", [((2, -1), 20, 10), ((2, 1), 0, 6), ((3, 6), 45, 45)])
def test_half_is_attained_and_nothing_bounds_from_above(R, linear, relu):
    Y = -torch.tensor(R).double().view(1, 2, 1)
    for kind, wanted in (("linear", linear), ("relu", relu)):
        problem = convex.SelfAttention(TWO_TOKENS, Y, beta=1.0, activation=kind)
        assert convex.largest_beta(problem) == pytest.approx(wanted, abs=1e-9)
    of_zero = float(Y.square().sum()) / 2
    assert value_below_linear(TWO_TOKENS, Y, 0.9 * relu) < (1 - 1e-4) * of_zero
    assert value_below_linear(TWO_TOKENS, Y, 1.2 * relu) == pytest.approx(of_zero, rel=1e-6)


@pytest.mark.claim("cvx-22/relu", verdict="corrected")
def test_two_tokens_need_two_heads_and_one_leaves_90_over_13():
    X = torch.tensor([[[1.0], [-2.0]]]).double()
    Y = torch.tensor([[[-3.0], [-6.0]]]).double()
    for beta in (0.05, 1.0):
        problem = convex.SelfAttention(X, Y, beta=beta, activation="relu")
        solution = convex.solve(problem, tol=1e-8, progress=False)
        assert solution.objective <= 2 * beta < 90 / 13
        assert min(train(problem, 1, seed) for seed in range(8)) >= 90 / 13
    assert 45 - 45**2 / 65 == pytest.approx(180 / 13, rel=1e-14)


@pytest.mark.claim("cvx-13", verdict="verified")
def test_attention_fits_cubes_which_the_relu_network_cannot():
    x = torch.tensor([1.0, 2.0, 3.0]).double().view(3, 1, 1)
    left, right = (
        convex.solve(kind(x, x**3, beta=0.0, activation="relu"), progress=False).objective
        for kind in (convex.SelfAttention, convex.MLP)
    )
    assert left < 1e-8
    assert right == pytest.approx(54, rel=1e-8)


@pytest.mark.mutation("cvx-11")
def test_rows_of_tokens_in_place_of_pairs_are_noticed(monkeypatch):
    monkeypatch.setitem(globals(), "rows", lambda X: X.reshape(-1, X.shape[-1]))
    with pytest.raises(AssertionError):
        test_patterns_are_counted_by_token_pairs_and_not_by_samples(2, 2, 2)


@pytest.mark.mutation("cvx-22")
def test_a_second_head_is_noticed(monkeypatch):
    monkeypatch.setitem(globals(), "train", lambda p, units, seed, _train=train: _train(p, 2, seed))
    with pytest.raises(AssertionError):
        test_two_tokens_need_two_heads_and_one_leaves_90_over_13()


@pytest.mark.mutation("cvx-11")
def test_the_price_of_the_second_head_is_noticed(monkeypatch):
    monkeypatch.setitem(globals(), "HEADS_FOR_ONE", 1)
    with pytest.raises(AssertionError):
        test_half_is_attained_and_nothing_bounds_from_above((2, -1), 20, 10)
