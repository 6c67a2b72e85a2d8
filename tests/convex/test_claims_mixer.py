"""Claims cvx-14 to cvx-16 and cvx-22 where the mixer's lesson goes beyond the heads' tests."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fourviews import convex

from .training import train


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def nuclear(M):
    return float(convex.nuclear_norm(M))


def blocks(Z, c):
    """Z^(b), one for each output: columns of Z are feature-major, output-minor."""
    return Z.reshape(len(Z), -1, c).unbind(-1)


def saving(Z, c):
    return sum(map(nuclear, blocks(Z, c))) - nuclear(Z)


def together_and_alone(seed, share=0.1, s=3, d=3, c=3):
    """Coefficients of the joint optimum, and of each output's own optimum at the same beta."""
    X, W1, W2 = randn(12, s, d, seed=seed), randn(s, s, seed=seed + 1), randn(d, c, seed=seed + 2)
    Y = W1 @ X @ W2 + 0.5 * randn(12, s, c, seed=seed + 3)
    beta = share * convex.largest_beta(convex.Mixer(X, Y, beta=1.0))

    def solve(T):
        problem = convex.Mixer(X, T.contiguous(), beta=beta)
        return convex.solve(problem, tol=1e-8, progress=False).coefficients

    alone = torch.stack([solve(Y[..., b : b + 1]) for b in range(c)], dim=-1).flatten(1)
    return solve(Y), alone


# cvx-14 --------------------------------------------------------------------------------------


@pytest.mark.claim("cvx-14/vec", verdict="corrected")
@pytest.mark.parametrize("beta", [0.2, 0.8])
def test_the_two_readings_of_vec_have_these_optima(beta):
    X = torch.zeros(2, 2, 2, dtype=torch.float64)
    X[0, 0, 0] = X[1, 0, 1] = 1
    Y = torch.eye(2, dtype=torch.float64)[:, :, None]
    rows, columns = (
        convex.solve(convex.Mixer(data, Y, beta=beta), tol=1e-10, progress=False).objective
        for data in (X, X.mT.contiguous())
    )
    assert rows == pytest.approx(2 * beta - beta**2, rel=1e-8)
    assert columns == pytest.approx(2**0.5 * beta - beta**2 / 2, rel=1e-8)


# cvx-15 --------------------------------------------------------------------------------------


@pytest.mark.claim("cvx-15/pooled", verdict="conditional")
def test_the_pooled_mixer_is_a_classifier_of_the_whole_image():
    """L(vec(X) Ā) + √s β‖Ā‖_* over s × dc matrices: Z_p = Ā attains it, no Z is below."""
    s, d, c = 3, 2, 2
    X, Y = randn(8, s, d), randn(8, c, seed=1)
    problem = convex.Mixer(X, Y, beta=0.3, pool="mean")
    solution = convex.solve(problem, tol=1e-10, progress=False)
    A = solution.coefficients.reshape(s, s, d * c).mean(0)
    value = 0.5 * (torch.einsum("itk,tkb->ib", X, A.reshape(s, d, c)) - Y).square().sum()
    assert float(value) + 0.3 * s**0.5 * nuclear(A) == pytest.approx(solution.objective, rel=1e-8)
    for seed in range(20):
        Z = randn(s * s, d * c, seed=seed)
        mean = Z.reshape(s, s, d * c).mean(0)
        assert nuclear(Z) >= s**0.5 * nuclear(mean) - 1e-9
        assert nuclear(mean.repeat(s, 1)) == pytest.approx(s**0.5 * nuclear(mean))
    assert solution.rank <= min(s, d * c)


# cvx-15b -------------------------------------------------------------------------------------


@pytest.mark.claim("cvx-15b/similar", verdict="corrected")
def test_the_coupling_does_not_make_blocks_alike():
    """With the second target negated the optimum has Z^(2) = -Z^(1), at the same value."""
    X, T = randn(6, 2, 3), randn(6, 2, 1, seed=1)
    value = {}
    for sign in (1, -1):
        problem = convex.Mixer(X, torch.cat([T, sign * T], dim=2), beta=0.5)
        solution = convex.solve(problem, tol=1e-11, progress=False)
        first, second = blocks(solution.coefficients, 2)
        torch.testing.assert_close(second, sign * first, atol=1e-5, rtol=1e-5)
        assert float(first.norm()) > 0.1
        value[sign] = solution.objective
    assert value[1] == pytest.approx(value[-1], rel=1e-9)


@pytest.mark.claim("cvx-15b/norm", verdict="corrected")
def test_what_the_norm_rewards_is_shared_left_singular_vectors():
    """(Σ a²)^½ <= ‖Z‖_* <= Σ a, the ends at shared and at orthogonal column spaces."""
    for seed in range(20):
        Z = randn(9, 12, seed=seed)
        a = np.array(list(map(nuclear, blocks(Z, 3))))
        assert np.linalg.norm(a) + 1e-3 < nuclear(Z) < a.sum() - 1e-3
    A = randn(9, 4)
    turned = [A @ torch.linalg.qr(randn(4, 4, seed=k)).Q for k in range(3)]
    a = np.array(list(map(nuclear, turned)))
    assert nuclear(torch.cat(turned, dim=1)) == pytest.approx(np.linalg.norm(a), rel=1e-12)
    frame = torch.linalg.qr(randn(9, 9)).Q
    apart = [frame[:, 3 * k : 3 * k + 3] @ randn(3, 4, seed=k) for k in range(3)]
    assert nuclear(torch.cat(apart, dim=1)) == pytest.approx(sum(map(nuclear, apart)), rel=1e-12)


@pytest.mark.claim("cvx-15b/measured", verdict="empirical")
def test_outputs_trained_together_share_token_weights():
    """Ten data sets: the saving is larger together than alone, and the rank smaller."""
    ranks = []
    for seed in range(0, 40, 4):
        joint, alone = together_and_alone(seed)
        assert saving(joint, 3) > saving(alone, 3) + 1e-3
        ranks.append([int(torch.linalg.matrix_rank(Z, rtol=1e-4)) for Z in (joint, alone)])
    ranks = np.array(ranks)
    assert (ranks[:, 0] <= ranks[:, 1]).all() and (ranks[:, 0] < ranks[:, 1]).sum() >= 8, ranks


# cvx-16 --------------------------------------------------------------------------------------


@pytest.mark.claim("cvx-16/patterns", verdict="corrected")
@pytest.mark.parametrize("n, s, d", [(1, 2, 2), (2, 2, 2), (1, 2, 3), (1, 3, 2)])
def test_patterns_are_a_product_over_output_tokens(n, s, d):
    """Q^s cells of nsd rows; the printed count, with n rows, is too small."""
    X = randn(n, s, d)
    rows = torch.cat([torch.kron(x.mT.contiguous(), torch.eye(s).double()) for x in X])
    cells = len(convex.arrangements(rows))
    assert cells == len(convex.arrangements(X.mT.reshape(n * d, s))) ** s
    r = int(torch.linalg.matrix_rank(rows))
    assert r == s * min(s, n * d)
    assert 2 * r * (np.e * (n - 1) / r) ** r < cells
    assert cells <= convex.arrangement_bound(n * s * d, r)


@pytest.mark.claim("cvx-16/vec", verdict="verified")
def test_the_relu_form_by_outputs_holds_with_the_usual_vec():
    """[D^(i,1) Z^(p,1) … D^(i,d) Z^(p,d)] vec(X): blocks of s columns belong to features, so vec
    lists column by column.  Row by row, which form (18) of the linear mixer needs, it is wrong."""
    n, s, d, c = 2, 3, 2, 2
    X, gates = randn(n, s, d), randn(3, s, s, seed=1)
    problem = convex.Mixer(X, randn(n, s, c), beta=1.0, activation="gated_relu", gates=gates)
    Z = randn(*problem.coefficient_shape)
    want = problem.forward(Z)
    for vec, right in ((X.mT.reshape(n, -1), True), (X.reshape(n, -1), False)):
        out = torch.zeros(n, s, c, dtype=torch.float64)
        for i in range(n):
            for j in range(3):
                on = (gates[j] @ X[i] >= 0).double()  # output token, feature
                B = Z[j].reshape(s, s, d, c)
                for b in range(c):
                    M = torch.cat([torch.diag(on[:, k]) @ B[:, :, k, b] for k in range(d)], dim=1)
                    out[i, :, b] += M @ vec[i]
        assert torch.allclose(out, want) == right


# cvx-22 --------------------------------------------------------------------------------------


@pytest.mark.claim("cvx-22/relu", verdict="corrected")
@pytest.mark.parametrize("beta", [0.1, 0.6])
def test_one_relu_mixer_unit_misses_by_this_much(beta):
    X = torch.tensor([[[1.0], [-1.0]]], dtype=torch.float64)
    b = beta / 2**0.5
    problem = convex.Mixer(X, X, beta=beta, activation="relu")
    solution = convex.solve(problem, tol=1e-8, progress=False)
    assert solution.objective == pytest.approx(2 * b - b**2, rel=1e-6)
    single = min(train(problem, 1, seed) for seed in range(15))
    assert single == pytest.approx(0.5 + b - b**2 / 2, rel=1e-6)


# What is altered is noticed --------------------------------------------------------------------


@pytest.mark.mutation("cvx-14")
def test_exchanged_readings_of_vec_are_noticed(monkeypatch):
    right = convex.Mixer
    monkeypatch.setattr(convex, "Mixer", lambda X, Y, **o: right(X.mT.contiguous(), Y, **o))
    with pytest.raises(AssertionError):
        test_the_two_readings_of_vec_have_these_optima(0.2)


@pytest.mark.mutation("cvx-15b")
def test_the_frobenius_norm_would_not_couple(monkeypatch):
    monkeypatch.setattr(convex, "nuclear_norm", torch.linalg.matrix_norm)
    with pytest.raises(AssertionError):
        test_what_the_norm_rewards_is_shared_left_singular_vectors()


@pytest.mark.mutation("cvx-15b")
def test_outputs_that_are_trained_alone_are_noticed(monkeypatch):
    check = test_outputs_trained_together_share_token_weights
    right = together_and_alone
    monkeypatch.setitem(check.__globals__, "together_and_alone", lambda seed: right(seed)[1:] * 2)
    with pytest.raises(AssertionError):
        check()


@pytest.mark.mutation("cvx-15")
def test_a_missing_root_of_s_is_noticed(monkeypatch):
    right = convex.nuclear_norm
    monkeypatch.setattr(convex, "nuclear_norm", lambda M: right(M) * (1 + (len(M) == 9)))
    with pytest.raises(AssertionError):
        test_the_pooled_mixer_is_a_classifier_of_the_whole_image()


@pytest.mark.mutation("cvx-16")
def test_a_sum_over_tokens_is_noticed(monkeypatch):
    right = convex.arrangements
    monkeypatch.setattr(convex, "arrangements", lambda rows: right(rows)[:-1])
    with pytest.raises(AssertionError):
        test_patterns_are_a_product_over_output_tokens(2, 2, 2)
