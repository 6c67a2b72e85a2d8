"""Claims cvx-07 to cvx-10 and cvx-22 for attention: what the lessons prove beyond the print."""

from __future__ import annotations

import pytest
import torch

from fourviews import convex

from .heads import build


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def nuclear(W):
    return float(convex.nuclear_norm(W))


def solve(problem, tol=1e-10):
    solution = convex.solve(problem, tol=tol, progress=False)
    assert solution.converged
    return solution


# cvx-07 ----------------------------------------------------------------------------------------


def least_decay_on_four(W1, W2, seed):
    """½(‖Q‖² + ‖K‖² + ‖V‖² + ‖W‖²) at a given head, by descent from a random factorisation."""
    d, c = W2.shape
    start = randn(2 * d * d + d * c + c * c + 1, seed=seed)
    T = (torch.eye(d).double() + 0.3 * start[: d * d].view(d, d)).requires_grad_()
    S = (torch.eye(d).double() + 0.3 * start[d * d : 2 * d * d].view(d, d)).requires_grad_()
    t = (0.5 * start[-1:]).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [T, S, t], max_iter=500, tolerance_grad=1e-12, line_search_fn="strong_wolfe"
    )

    def decay():
        scale = t.exp()
        scores = scale * (W1 @ T).square().sum() + scale * torch.linalg.inv(T).square().sum()
        values = S.square().sum() / scale + (torch.linalg.inv(S) @ W2).square().sum() / scale
        return 0.5 * (scores + values)

    def closure():
        optimizer.zero_grad()
        value = decay()
        value.backward()
        return value

    optimizer.step(closure)
    return float(decay().detach())


@pytest.mark.claim("cvx-07/decay", verdict="corrected")
def test_four_matrices_cost_a_root_which_is_not_convex():
    for seed in range(3):
        W1 = randn(3, 3, seed=seed) + 2 * torch.eye(3).double()
        W2 = randn(3, 3, seed=seed + 20) + 2 * torch.eye(3).double()
        price = 2 * (nuclear(W1) * nuclear(W2)) ** 0.5
        found = min(least_decay_on_four(W1, W2, k) for k in range(3))
        assert found == pytest.approx(price, rel=1e-6)
        half = 2 * (nuclear(0.5 * W1) * nuclear(W2)) ** 0.5
        assert half > 0.5 * price * 1.4  # a convex price through zero has at most half


# cvx-08 ----------------------------------------------------------------------------------------


@pytest.mark.claim("cvx-08", verdict="verified")
def test_the_gradient_is_a_sum_of_kronecker_products():
    problem = build("attention", n=3, s=4, d=3, c=2)
    R = randn(3, 4, 2)
    whole = sum(torch.kron(x.T @ x, x.T @ r) for x, r in zip(problem.X, R, strict=True))
    torch.testing.assert_close(problem.adjoint(R), whole)
    largest = sum(
        torch.kron(x.T @ x, x.T @ y) for x, y in zip(problem.X, problem.loss.target, strict=True)
    )
    assert convex.largest_beta(problem) == pytest.approx(
        float(torch.linalg.matrix_norm(largest, 2)), rel=1e-8
    )


# cvx-09 ----------------------------------------------------------------------------------------


@pytest.mark.claim("cvx-09/weights", verdict="corrected")
def test_one_sample_is_a_linear_network_with_less_decay():
    for seed, loss in ((0, "squared"), (1, "squared"), (2, "cross_entropy")):
        problem = build("attention", n=1, s=5, d=3, c=2, loss=loss, seed=seed)
        x = problem.X[0]
        size, vectors = torch.linalg.eigh(x.T @ x)
        target = problem.loss.target
        mlp = convex.MLP(problem.X, target, beta=problem.beta / float(size[-1]), loss=loss)
        attention, network = solve(problem), solve(mlp)
        assert attention.objective == pytest.approx(network.objective, rel=1e-8)
        q = vectors[:, -1]
        made = torch.kron(torch.outer(q, q), network.coefficients / size[-1])
        assert problem.objective(made) == pytest.approx(network.objective, rel=1e-8)
        # The leading eigenvalue is simple: every solution has this form.
        error = (attention.coefficients - made).norm() / made.norm()
        assert float(error) < 1e-3


@pytest.mark.claim("cvx-09/weights", verdict="corrected")
def test_correlated_features_can_have_weight_zero():
    """G = diag(4, [[2, 1], [1, 2]]): only features 2 and 3 correlate, and their block is zero."""
    X = torch.tensor([[2.0, 0, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1]]).double()[None]
    assert (X.mT @ X)[0].tolist() == [[4, 0, 0], [0, 2, 1], [0, 1, 2]]
    for seed in range(3):
        unit = convex.SelfAttention(X, randn(1, 4, 2, seed=seed), beta=1.0)
        Z = solve(unit.with_beta(0.2 * convex.largest_beta(unit))).coefficients
        sizes = Z.reshape(3, 3, 3, 2).transpose(1, 2).norm(dim=(2, 3))
        assert float(sizes[0, 0]) > 1e-2
        assert float(sizes[1:, 1:].max()) < 1e-4 * float(sizes[0, 0])


@pytest.mark.claim("cvx-09/beta-zero", verdict="corrected")
def test_independent_gram_matrices_give_each_sample_its_own_model():
    X, Y = randn(6, 4, 3), randn(6, 4, 2, seed=1)
    grams = (X.mT @ X).flatten(1)
    assert torch.linalg.matrix_rank(grams) == 6
    dual = torch.linalg.pinv(grams)  # column i: M_i
    own = torch.linalg.lstsq(X, Y, driver="gelsd").solution.contiguous()
    Z = sum(torch.kron(M.reshape(3, 3), W) for M, W in zip(dual.T, own, strict=True))
    problem = convex.SelfAttention(X, Y, beta=0.0)
    torch.testing.assert_close(problem.forward(Z), X @ own)
    # A seventh sample is one too many.
    X = randn(7, 4, 3)
    assert torch.linalg.matrix_rank((X.mT @ X).flatten(1)) == 6


# cvx-10 ----------------------------------------------------------------------------------------


@pytest.mark.claim("cvx-10", verdict="corrected")
def test_the_printed_penalty_needs_its_sum_and_the_fewest_heads_are_the_largest_rank():
    frame = torch.linalg.qr(randn(5, 6, 4)).Q
    X = torch.cat(
        [frame[..., :2] @ randn(5, 2, 2, seed=1), frame[..., 2:] @ randn(5, 2, 2, seed=2)], dim=2
    )
    unit = convex.SelfAttention(X, randn(5, 6, 2, seed=3), beta=1.0)
    problem = unit.with_beta(0.03 * convex.largest_beta(unit))
    solution = solve(problem)
    Z = solution.coefficients
    parts = [Z[:8, :4], Z[8:, 4:]]
    pairs = [torch.linalg.svd(part, full_matrices=False) for part in parts]
    ranks = [int((s > 1e-8).sum()) for _, s, _ in pairs]
    assert min(ranks) >= 1
    # The value is the fit and the *sum* of the norms.
    fit = float(problem.loss.value(problem.forward(Z)))
    total = fit + problem.beta * sum(map(nuclear, parts))
    assert total == pytest.approx(solution.objective, rel=1e-8)
    joined = torch.zeros_like(Z)
    for h in range(max(ranks)):
        (u, s, vt), (p, t, qt) = pairs
        left = torch.cat([s[h].sqrt() * u[:, h], t[h].sqrt() * p[:, h]])
        right = torch.cat([s[h].sqrt() * vt[h], t[h].sqrt() * qt[h]])
        joined += torch.outer(left, right)
    assert torch.linalg.matrix_rank(joined, rtol=1e-6) == max(ranks) < sum(ranks)
    assert problem.objective(joined) == pytest.approx(solution.objective, rel=1e-8)


# cvx-22 ----------------------------------------------------------------------------------------


@pytest.mark.claim("cvx-22/linear", verdict="verified")
def test_some_optimum_has_a_rank_that_the_number_of_predictions_bounds():
    """The reduction of the proof, carried out: a mean of many optima loses rank, not value."""
    frame = torch.linalg.qr(randn(1, 4, 2)).Q[:, :, [0, 1]]
    X = torch.cat([frame, torch.zeros(1, 4, 1).double()], dim=2)
    Y = randn(1, 1, seed=4)
    unit = convex.SelfAttention(X, Y, beta=1.0, pool="mean")
    problem = unit.with_beta(0.3 * convex.largest_beta(unit))
    solution = solve(problem)
    # G = diag(1, 1, 0): turn the optimum in the plane of the two equal eigenvalues.
    Z, q = solution.coefficients, randn(2, 2, seed=5)
    q = torch.linalg.qr(q).Q
    turn = torch.eye(3).double()
    turn[:2, :2] = q
    other = torch.kron(turn, torch.eye(3).double()) @ Z @ torch.kron(turn, torch.eye(1).double()).T
    mean = (Z + other) / 2
    for point in (other, mean):
        assert problem.objective(point) == pytest.approx(solution.objective, rel=1e-7)
    N, r = 1, int(torch.linalg.matrix_rank(mean, rtol=1e-6))
    assert r == 2 and r * (r + 1) // 2 > N
    reduced = reduce_rank(problem, mean)
    assert torch.linalg.matrix_rank(reduced, rtol=1e-6) == 1
    assert problem.objective(reduced) == pytest.approx(solution.objective, rel=1e-7)


def reduce_rank(problem, Z):
    """Pataki's step: move the core along a symmetric direction that no prediction sees."""
    u, s, vt = torch.linalg.svd(Z, full_matrices=False)
    r = int((s > 1e-7 * s[0]).sum())
    N = problem.loss.target.numel()
    while r * (r + 1) // 2 > N:
        left, right = u[:, :r] * s[:r].sqrt(), s[:r].sqrt()[:, None] * vt[:r]
        basis = []
        for a in range(r):
            for b in range(a, r):
                E = torch.zeros(r, r).double()
                E[a, b] = E[b, a] = 1.0
                basis.append(E)
        images = torch.stack([problem.forward(left @ E @ right).ravel() for E in basis], dim=1)
        direction = torch.linalg.svd(images, full_matrices=True).Vh[-1]
        delta = sum(w * E for w, E in zip(direction, basis, strict=True))
        if float((torch.diag(s[:r]) * delta).sum()) > 0:
            delta = -delta
        step = -1 / torch.linalg.eigvalsh(delta)[0]
        Z = left @ (torch.eye(r).double() + step * delta) @ right
        u, s, vt = torch.linalg.svd(Z, full_matrices=False)
        r = int((s > 1e-7 * s[0]).sum())
    return Z


# What is altered is noticed ----------------------------------------------------------------------


@pytest.mark.mutation("cvx-09")
def test_the_trace_in_place_of_the_largest_eigenvalue_is_noticed(monkeypatch):
    right = torch.linalg.eigh

    def with_trace(G):
        size, vectors = right(G)
        return size.sum().expand(len(size)), vectors

    monkeypatch.setattr(torch.linalg, "eigh", with_trace)
    with pytest.raises(AssertionError):
        test_one_sample_is_a_linear_network_with_less_decay()


@pytest.mark.mutation("cvx-07")
def test_another_price_of_four_matrices_is_noticed(monkeypatch):
    monkeypatch.setattr(convex, "nuclear_norm", lambda W: W.norm())
    with pytest.raises(AssertionError):
        test_four_matrices_cost_a_root_which_is_not_convex()


@pytest.mark.mutation("cvx-22")
def test_a_direction_that_predictions_see_is_noticed(monkeypatch):
    monkeypatch.setattr(torch.linalg, "svd", _largest_direction(torch.linalg.svd))
    with pytest.raises(AssertionError):
        test_some_optimum_has_a_rank_that_the_number_of_predictions_bounds()


def _largest_direction(right):
    def altered(M, full_matrices=True):
        found = right(M, full_matrices=full_matrices)
        if full_matrices and M.shape[0] == 1:
            return type(found)((found[0], found[1], found[2].flip(0)))
        return found

    return altered
