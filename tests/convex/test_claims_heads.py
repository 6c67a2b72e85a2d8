"""Claims cvx-07 to cvx-22: what holds of the heads' programs, and where the print does not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from fourviews import convex

from .heads import build, circ_by_loops, dense_map
from .training import train, train_runs


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fit_residual(problem):
    """Least squares without regularisation: the squared distance of Y to the range of A."""
    A, Y = dense_map(problem), problem.loss.target.numpy().ravel()
    return float(np.sum((A @ np.linalg.lstsq(A, Y, rcond=None)[0] - Y) ** 2))


# cvx-07: merging -----------------------------------------------------------------------------


@pytest.mark.claim("cvx-07/fit", verdict="conditional")
def test_merging_loses_nothing_when_the_inner_width_reaches_the_rank():
    W = randn(4, 4)
    u, s, vt = torch.linalg.svd(W)
    Q, K = u * s.sqrt(), vt.T * s.sqrt()
    torch.testing.assert_close(Q @ K.T, W)
    # With width 2 < rank W the best product stays away by the singular values left out.
    best = (u[:, :2] * s[:2]) @ vt[:2]
    assert torch.linalg.matrix_norm(best - W) == pytest.approx(float(s[2:].norm()), rel=1e-12)
    assert float(s[2:].norm()) > 1e-3


@pytest.mark.claim("cvx-07/decay", verdict="corrected")
def test_decay_on_q_and_k_is_another_regulariser():
    """Least ½(‖Q‖² + ‖K‖²) over QKᵀ = W is ‖W‖_*; decay on the merged W is ½‖W‖_F²."""
    for W in (torch.eye(3, dtype=torch.float64), randn(3, 3)):
        u, s, vt = torch.linalg.svd(W)
        split = 0.5 * ((u * s.sqrt()).square().sum() + (vt.T * s.sqrt()).square().sum())
        assert float(split) == pytest.approx(float(convex.nuclear_norm(W)), rel=1e-12)
        T = randn(3, 3, seed=1)
        other = 0.5 * ((W @ T).square().sum() + torch.linalg.inv(T).square().sum())
        assert float(other) >= float(split) - 1e-12
    # The two order matrices differently: the identity against one large direction.
    flat, spiky = torch.eye(3).double(), torch.diag(torch.tensor([2.0, 0, 0])).double()
    assert convex.nuclear_norm(flat) > convex.nuclear_norm(spiky)
    assert flat.square().sum() < spiky.square().sum()


@pytest.mark.claim("cvx-07/scale", verdict="corrected")
def test_the_dropped_factor_is_another_beta():
    """Scores over √d: A/√d with beta is A with beta·√d."""
    problem = build("attention", n=4, d=3)
    scaled = problem.with_beta(problem.beta * 3**0.5)
    Z = convex.solve(scaled, tol=1e-10, progress=False).coefficients
    value = lambda W: float(  # noqa: E731
        problem.loss.value(problem.forward(W) / 3**0.5) + problem.beta * problem.norm(W)
    )
    assert value(Z * 3**0.5) == pytest.approx(scaled.objective(Z), rel=1e-12)
    dropped = convex.solve(problem, tol=1e-10, progress=False).objective
    assert abs(value(Z * 3**0.5) - dropped) > 1e-2 * dropped


def the_factor_is_paid_by_decay(power):
    """Weights of every layer times d^(1/4): with the factor it has the same objective at beta."""
    d, beta = 3, 0.7
    for seed, activation in enumerate(("linear", "relu")):
        options = {"n_gates": 2} if activation == "relu" else {}
        problem = convex.SelfAttention(
            randn(4, 2, d, seed=seed), randn(4, 2, 2, seed=seed + 5), beta=beta * d**power,
            activation=activation, **options,
        )  # fmt: skip
        first, second = randn(5, d * d, seed=seed + 7), randn(5, d * 2, seed=seed + 9)
        network = convex.SelfAttentionNetwork(first, second, activation=activation)
        f, decay = torch.zeros(4, 2, 2, dtype=torch.float64), 0.0
        for u, v in zip(first, second, strict=True):
            W1, W2 = d**0.25 * u.view(d, d).T, d**0.25 * v.view(d, 2)
            scores = problem.X @ W1 @ problem.X.mT / d**0.5
            scores = scores.clamp_min(0) if activation == "relu" else scores
            f += scores @ problem.X @ W2
            decay += 0.5 * float(W1.square().sum() + W2.square().sum())
        printed = 0.5 * float((f - problem.loss.target).square().sum()) + beta * decay
        assert printed == pytest.approx(float(problem.network_objective(network)), rel=1e-12)


@pytest.mark.claim("cvx-07/scale", verdict="corrected")
def test_every_layer_pays_for_the_dropped_factor_with_its_decay():
    the_factor_is_paid_by_decay(0.5)


# cvx-08, 18, 21: the linear programs ----------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("attention", marks=pytest.mark.claim("cvx-08", verdict="verified")),
        pytest.param("mixer", marks=pytest.mark.claim("cvx-14/equivalence", verdict="verified")),
        pytest.param("fno", marks=pytest.mark.claim("cvx-18", verdict="verified")),
        pytest.param("block_fno", marks=pytest.mark.claim("cvx-21/linear", verdict="verified")),
    ],
)
def test_linear_programs_have_the_value_of_training(name):
    problem = build(name, n=4)
    solution = convex.solve(problem, tol=1e-9, progress=False)
    assert convex.reference(problem).objective == pytest.approx(solution.objective, rel=1e-5)
    best = train_runs(problem, min(problem.block_shape) * problem.groups).min()
    assert best == pytest.approx(solution.objective, rel=1e-5)
    assert best >= solution.lower_bound
    wrong = [train(problem, 4, seed, decay=2 * problem.beta) for seed in range(3)]
    assert min(wrong) > solution.objective * (1 + 1e-3)


# cvx-09 --------------------------------------------------------------------------------------


@pytest.mark.claim("cvx-09/beta-zero", verdict="corrected")
def test_without_regularisation_attention_is_not_the_linear_mlp():
    """d = c = s = 1: attention is x³z, the MLP xz.  On x = 1, 2 with y = x only one fits."""
    x = [Fraction(1), Fraction(2)]
    cubes = [v**3 for v in x]
    z = sum(a * b for a, b in zip(cubes, x, strict=True)) / sum(a * a for a in cubes)
    rest = sum((z * a - b) ** 2 for a, b in zip(cubes, x, strict=True))
    assert rest == Fraction(36, 65)
    X = torch.tensor([1.0, 2.0]).double().view(2, 1, 1)
    attention = convex.SelfAttention(X, X.clone(), beta=0.0)
    mlp = convex.MLP(X, X.clone(), beta=0.0)
    assert fit_residual(attention) == pytest.approx(float(rest), rel=1e-12)
    assert fit_residual(mlp) < 1e-24
    # What holds: for one sample with a Gram matrix that is not zero the two fit alike.
    for seed in range(5):
        one, Y = randn(1, 3, 2, seed=seed), randn(1, 3, 2, seed=seed + 9)
        rest = [fit_residual(kind(one, Y, beta=0.0)) for kind in (convex.SelfAttention, convex.MLP)]
        assert rest[0] == pytest.approx(rest[1], rel=1e-9)
    # For every n attention fits at least what the MLP fits if tr G_i is the same for all samples.
    X = randn(4, 3, 2)
    X = X / X.square().sum((1, 2), keepdim=True).sqrt()
    Y = randn(4, 3, 2, seed=3)
    assert fit_residual(convex.SelfAttention(X, Y, beta=0.0)) <= fit_residual(
        convex.MLP(X, Y, beta=0.0)
    ) * (1 + 1e-12)


# cvx-10 --------------------------------------------------------------------------------------


def uncorrelated(n, s, groups, seed):
    """Samples whose feature groups are orthogonal: each lives on its own directions of tokens."""
    rng = np.random.default_rng(seed)
    X = np.zeros((n, s, sum(groups)))
    for i in range(n):
        frame = np.linalg.qr(rng.standard_normal((s, s)))[0]
        at = 0
        for g in groups:
            X[i, :, at : at + g] = frame[:, at : at + g] @ rng.standard_normal((g, g))
            at += g
    return torch.from_numpy(X)


@pytest.mark.claim("cvx-10", verdict="corrected")
def test_some_optimum_separates_and_another_mixes_with_fewer_heads():
    X, Y = uncorrelated(4, 4, (1, 2), 0), randn(4, 4, 2)
    unit = convex.SelfAttention(X, Y, beta=1.0)
    problem = unit.with_beta(0.2 * convex.largest_beta(unit))
    solution = convex.solve(problem, tol=1e-11, progress=False)
    Z = solution.coefficients
    own = torch.zeros_like(Z)
    for features in ([0], [1, 2]):  # rows (k, a) and columns (ℓ, b) with k and ℓ in the group
        rows = [k * 3 + a for k in features for a in range(3)]
        columns = [k * 2 + b for k in features for b in range(2)]
        own[np.ix_(rows, columns)] = Z[np.ix_(rows, columns)]
    # What the Gram zeros meet does not count, and pinching lowers the norm: the part is optimal.
    torch.testing.assert_close(problem.forward(own), problem.forward(Z))
    assert problem.objective(own) <= solution.objective * (1 + 1e-12)
    # Join one singular pair of each group: same predictions, same norm, one head fewer.
    u, s, vt = torch.linalg.svd(own, full_matrices=False)
    r = int((s > 1e-7 * s[0]).sum())
    group = [0 if float(v[:2].norm()) > 0.5 else 1 for v in vt[:r]]
    assert set(group) == {0, 1}
    a, b = group.index(0), group.index(1)
    left = s[a].sqrt() * u[:, a] + s[b].sqrt() * u[:, b]
    right = s[a].sqrt() * vt[a] + s[b].sqrt() * vt[b]
    rest = sum(s[k] * torch.outer(u[:, k], vt[k]) for k in range(r) if k not in (a, b))
    mixed = torch.outer(left, right) + rest
    assert problem.objective(mixed) == pytest.approx(problem.objective(own), rel=1e-10)
    torch.testing.assert_close(problem.forward(mixed), problem.forward(own))
    assert float((mixed - own).abs().max()) > 1e-3  # not zero where the Gram matrices are
    assert torch.linalg.matrix_rank(mixed, atol=1e-9) == r - 1


# cvx-12, 13 ----------------------------------------------------------------------------------


@pytest.mark.claim("cvx-12", verdict="verified")
def test_local_correlations_give_the_direct_pass():
    problem = build("attention", "gated_relu", n=2, s=3, d=2, c=2, n_gates=3, beta=1.0)
    X, Z = problem.X.numpy(), randn(*problem.coefficient_shape)
    d, c, out = 2, 2, np.zeros((2, 3, 2))
    for i in range(2):
        for j in range(3):
            W = problem.gates[j].numpy()
            D = (X[i] @ W @ X[i].T >= 0).astype(float)  # query × key
            for k in range(d):
                for m in range(d):
                    local = np.diag(sum(X[i, t, k] * X[i, t, m] * D[:, t] for t in range(3)))
                    block = Z[j].numpy()[k * d : (k + 1) * d, m * c : (m + 1) * c]
                    out[i] += local @ X[i] @ block
    np.testing.assert_allclose(problem.forward(Z).numpy(), out, atol=1e-12)
    # With the tokens' roles exchanged it is another function.
    assert np.abs(problem.with_data(problem.X).masks.numpy().reshape(3, 2, 3, 3) - problem.masks.numpy().reshape(3, 2, 3, 3).swapaxes(2, 3)).any()  # fmt: skip


@pytest.mark.claim("cvx-13", verdict="verified")
def test_relu_attention_is_not_the_relu_mlp():
    """s = d = c = 1, x = 1, 2, 3 and y = x: attention gives only multiples of x³."""
    X = torch.tensor([1.0, 2.0, 3.0]).double().view(3, 1, 1)
    attention = convex.SelfAttention(X, X.clone(), beta=0.0, activation="relu")
    mlp = convex.MLP(X, X.clone(), beta=0.0, activation="relu")
    assert convex.solve(attention, progress=False).objective == pytest.approx(
        0.5 * (14 - 98**2 / 794), rel=1e-6
    )
    assert convex.solve(mlp, progress=False).objective < 1e-9


# cvx-14, 15 ----------------------------------------------------------------------------------


@pytest.mark.claim("cvx-14/vec", verdict="corrected")
def test_form_18_needs_the_row_major_vec():
    """Z^(p,t) is s×d, so vec(X) must list token by token; the column-major vec is another map."""
    problem = build("mixer", n=3, s=3, d=2, c=2)
    _, s, d, c = *problem.X.shape, 2
    Z = randn(*problem.coefficient_shape)
    blocks = Z.reshape(s, s, d, c)  # output token, token t, feature, output
    stacked = blocks.permute(3, 0, 1, 2).reshape(c, s, s * d)  # Z^(p) = [Z^(p,1) … Z^(p,s)]
    row_major = torch.stack([stacked @ x.reshape(-1) for x in problem.X]).mT
    torch.testing.assert_close(row_major, problem.forward(Z))
    column_major = torch.stack([stacked @ x.T.reshape(-1) for x in problem.X]).mT
    assert float((column_major - problem.forward(Z)).abs().max()) > 0.1
    # Not a matter of renaming: the column-major program has another optimum.
    twin = convex.Mixer(
        problem.X.mT.reshape(-1, s * d).reshape(-1, s, d), problem.loss.target, beta=problem.beta
    )
    values = [convex.solve(q, tol=1e-9, progress=False).objective for q in (problem, twin)]
    assert abs(values[0] - values[1]) > 1e-3 * values[0]


@pytest.mark.claim("cvx-14/permuted", verdict="verified")
def test_permuted_columns_are_the_same_program():
    problem = build("mixer", n=3, s=3, d=2, c=2)
    Z = randn(*problem.coefficient_shape)
    order = torch.randperm(Z.shape[1], generator=torch.Generator().manual_seed(0))
    assert float(problem.norm(Z[:, order])) == pytest.approx(float(problem.norm(Z)), rel=1e-12)
    blocks = Z.reshape(3, 3, 2, 2)
    form = torch.einsum("ntk,ptkb->npb", problem.X, blocks)  # (19)
    torch.testing.assert_close(form, problem.forward(Z))


@pytest.mark.claim("cvx-15/freedom", verdict="conditional")
def test_the_mixers_freedom_token_wise_and_pooled():
    """Dimension of what each fits: s² times the MLP's token by token, only s times if pooled."""
    s, d, c = 3, 2, 2
    rank = lambda p: np.linalg.matrix_rank(dense_map(p))  # noqa: E731
    for pool, factor in ((None, s * s), ("mean", s)):
        mixer = build("mixer", n=20, s=s, d=d, c=c, beta=1.0, pool=pool)
        mlp = build("mlp", n=20, s=s, d=d, c=c, beta=1.0, pool=pool)
        assert rank(mlp) == d * c and rank(mixer) == factor * d * c


@pytest.mark.claim("cvx-15/beta-zero", verdict="verified")
def test_without_regularisation_the_mixer_is_not_the_mlp():
    X = torch.tensor([[[1.0], [0.0]], [[0.0], [1.0]]]).double()
    Y = X.flip(1)  # swap the tokens: no map of each token alone does it
    assert fit_residual(convex.Mixer(X, Y, beta=0.0)) < 1e-24
    assert fit_residual(convex.MLP(X, Y, beta=0.0)) == pytest.approx(2.0)


@pytest.mark.claim("cvx-15/cost", verdict="conditional")
def test_the_mixer_is_the_smaller_program_if_tokens_are_fewer_than_features():
    for s, d in ((1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (4, 5)):
        mixer, attention = (
            int(np.prod(build(name, n=2, s=s, d=d, c=3, beta=1.0).coefficient_shape))
            for name in ("mixer", "attention")
        )
        assert (mixer, attention) == (s**2 * d * 3, d**3 * 3)
        assert (mixer < attention) == (s < d)
    # The source's own setting has more tokens than features.
    s, d, c = 196, 100, 100
    assert s > d and s**2 * d * c == 384_160_000 > d**3 * c == 100_000_000


@pytest.mark.claim("cvx-15/cost", verdict="conditional")
def test_pooled_the_mixer_shows_fewer_dimensions_up_to_half_d_times_d_plus_one_tokens():
    for s, d in ((2, 2), (3, 2), (4, 2), (3, 3)):
        mixer, attention = (
            np.linalg.matrix_rank(dense_map(build(name, n=20, s=s, d=d, beta=1.0, pool="mean")))
            for name in ("mixer", "attention")
        )
        assert (mixer, attention) == (s * d * 2, d * d * (d + 1) // 2 * 2)
        assert (mixer < attention) == (2 * s < d * (d + 1))
    # The source's own setting, if outputs are pooled there.
    s, d, c = 196, 100, 100
    assert s * d * c == 1_960_000 < d**2 * (d + 1) // 2 * c == 50_500_000


# cvx-17, 20: folding --------------------------------------------------------------------------


def fourier_block(X, L, W1, W2, grid):
    """(22) for one sample, linear: the unnormalised DFT of tokens and of L along its first axis."""
    h, w = grid
    F = np.kron(np.fft.fft(np.eye(h)), np.fft.fft(np.eye(w)))
    V = np.tensordot(F, L, axes=1)
    mixed = np.linalg.inv(F) @ np.einsum("sf,sfg->sg", F @ X, V)
    return np.maximum(mixed.real @ W1, 0) @ W2


@pytest.mark.claim("cvx-17/forward", verdict="corrected")
@pytest.mark.parametrize("grid", [(2, 3), (3, 2), (1, 5), (4, 1), (3, 3)])
def test_the_fourier_block_is_a_two_dimensional_convolution(grid):
    rng = np.random.default_rng(0)
    s, d, m, c = grid[0] * grid[1], 2, 3, 2
    X, L = rng.standard_normal((4, s, d)), rng.standard_normal((s, d, d))
    W1, W2 = rng.standard_normal((d, m)), rng.standard_normal((m, c))
    folded = np.einsum("qfg,gm->mqf", L, W1).reshape(m, s * d)
    network = convex.FNONetwork(
        torch.from_numpy(folded), torch.from_numpy(W2), grid=grid, activation="relu"
    )
    want = np.stack([fourier_block(x, L, W1, W2, grid) for x in X])
    np.testing.assert_allclose(network(torch.from_numpy(X)).detach().numpy(), want, atol=1e-10)
    # Shifts along the first axis of X alone, as printed, are right for one row or column only.
    flat = np.stack([np.maximum(circ_by_loops(x, (1, s)) @ folded.T, 0) @ W2 for x in X])
    assert (np.abs(flat - want).max() < 1e-10) == (1 in grid)


@pytest.mark.claim("cvx-17/folding", verdict="conditional")
def test_folding_is_a_relaxation_when_units_outnumber_features():
    """The folded weights [w_1 … w_m] at all shifts are L W₁: of rank at most d."""
    rng = np.random.default_rng(0)
    s, d = 4, 2
    for m, possible in ((1, True), (2, True), (3, False)):
        target = rng.standard_normal((s * d, m))
        # m <= d: put the kernels into L and let W₁ pick them.
        if possible:
            L, W1 = np.zeros((s, d, d)), np.eye(d)[:, :m]
            L[:, :, :m] = target.reshape(s, d, m)
            np.testing.assert_array_equal((L @ W1).reshape(s * d, m), target)
        else:
            assert np.linalg.svd(target)[1][d] > 0.1  # rank d + 1, out of reach for every L, W₁


@pytest.mark.claim("cvx-20", verdict="verified")
def test_the_block_fno_is_a_grouped_convolution():
    rng = np.random.default_rng(0)
    grid, s, d, c, B = (2, 3), 6, 4, 6, 2
    X = rng.standard_normal((3, s, d))
    first, second = rng.standard_normal((4, s * d // B)), rng.standard_normal((4, c // B))
    group = torch.tensor([0, 1, 1, 0])
    network = convex.FNONetwork(
        torch.from_numpy(first), torch.from_numpy(second),
        grid=grid, blocks=B, group=group, activation="relu",
    )  # fmt: skip
    want = np.zeros((3, s, B, c // B))
    for i, x in enumerate(X):
        for k, b in enumerate(group.tolist()):
            part = circ_by_loops(x[:, b * 2 : b * 2 + 2], grid)
            want[i, :, b] += np.outer(np.maximum(part @ first[k], 0), second[k])
    got = network(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(got, want.reshape(3, s, c), atol=1e-10)


@pytest.mark.claim("cvx-20", verdict="verified")
@pytest.mark.parametrize("grid", [(2, 3), (1, 4), (3, 3)])
def test_the_block_diagonal_transform_is_the_grouped_convolution(grid):
    """(27) by its definition, L[q] and W₂ block diagonal: columns of L are the folded kernels,
    and every set of kernels is one, however many units there are."""
    rng = np.random.default_rng(1)
    s, d, m, c, B = grid[0] * grid[1], 4, 6, 2, 2
    first, second = rng.standard_normal((m, s * d // B)), rng.standard_normal((m, c // B))
    group = torch.arange(m) // (m // B)
    L, W2 = np.zeros((s, d, m)), np.zeros((m, c))
    for j, b in enumerate(group.tolist()):
        L[:, b * d // B : (b + 1) * d // B, j] = first[j].reshape(s, d // B)
        W2[j, b * c // B : (b + 1) * c // B] = second[j]
    X = rng.standard_normal((3, s, d))
    want = np.stack([fourier_block(x, L, np.eye(m), W2, grid) for x in X])
    network = convex.FNONetwork(
        torch.from_numpy(first), torch.from_numpy(second),
        grid=grid, blocks=B, group=group, activation="relu",
    )  # fmt: skip
    got = network(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(got, want, atol=1e-10)


@pytest.mark.claim("cvx-21/groups", verdict="corrected")
def test_squared_loss_separates_the_blocks_and_each_has_its_own_norm():
    """(30) prints ‖Z‖ inside a sum over b: it must be ‖Z_b‖."""
    problem = build("block_fno", n=4, s=3, d=4, c=4)
    solution = convex.solve(problem, tol=1e-9, progress=False)
    parts = [
        convex.solve(
            convex.FNO(
                problem.X[..., 2 * b : 2 * b + 2].contiguous(),
                problem.loss.target[..., 2 * b : 2 * b + 2].contiguous(),
                beta=problem.beta,
                grid=problem.grid,
            ),
            tol=1e-9,
            progress=False,
        ).objective
        for b in range(2)
    ]
    assert sum(parts) == pytest.approx(solution.objective, rel=1e-7)
    # Read literally, every block would pay for all of them.
    doubled = convex.solve(problem.with_beta(2 * problem.beta), tol=1e-9, progress=False).objective
    assert doubled > solution.objective * (1 + 1e-2)


@pytest.mark.claim("cvx-23/pooled-fno", verdict="verified")
@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_pooled_linear_fno_is_the_linear_mlp_with_beta_over_root_s(loss):
    for name, blocks in (("fno", 1), ("block_fno", 2)):
        problem = build(name, loss=loss, pool="mean", n=6, s=4, d=4, c=4, grid=(2, 2))
        solution = convex.solve(problem, tol=1e-9, progress=False)
        beta = problem.beta / 2  # √4
        if blocks == 1:
            twin = convex.MLP(problem.X, problem.loss.target, beta=beta, loss=loss, pool="mean")
            assert convex.solve(twin, tol=1e-9, progress=False).objective == pytest.approx(solution.objective, rel=1e-6)  # fmt: skip
        # Both: the sum over shifts W has ‖Z‖_* >= ‖W‖_*/√s, with equality for equal shifts.
        Z = solution.coefficients.reshape(blocks, 4, -1, 4 // blocks)
        W = Z.sum(dim=1)
        spread = (W / 4).repeat(1, 4, 1).reshape(problem.coefficient_shape)
        torch.testing.assert_close(problem.forward(spread), problem.forward(solution.coefficients))
        assert float(problem.norm(spread)) == pytest.approx(float(convex.nuclear_norm(W)) / 2)
        assert float(problem.norm(spread)) == pytest.approx(float(problem.norm(solution.coefficients)), rel=1e-4)  # fmt: skip
        # A block-diagonal linear classifier of the mean token.
        mean = problem.X.mean(1).view(6, blocks, -1)
        classifier = torch.einsum("nbd,bdq->nbq", mean, W).flatten(1)
        torch.testing.assert_close(classifier, problem.forward(solution.coefficients))


# cvx-22: head counts --------------------------------------------------------------------------


@pytest.mark.claim("cvx-22/relu", verdict="corrected")
@pytest.mark.parametrize("name", ["mixer", "fno", "block_fno"])
def test_one_relu_unit_is_not_enough_where_the_print_says_so(name):
    """One sample, one column: n·min(p, q) = 1, but targets of both signs need two units."""
    X = torch.tensor([[[1.0], [-1.0]]]).double()
    Y = torch.tensor([[[1.0], [-1.0]]]).double()
    kinds = {
        "mixer": lambda b: convex.Mixer(X, Y, beta=b, activation="relu"),
        "fno": lambda b: convex.FNO(X, Y, beta=b, activation="relu", grid=(1, 2)),
        "block_fno": lambda b: convex.BlockFNO(X, Y, beta=b, activation="relu", grid=(1, 2), blocks=1),
    }  # fmt: skip
    problem = kinds[name](0.05)
    solution = convex.solve(problem, tol=1e-8, progress=False)
    count = convex.head_count(solution)
    printed = len(X) * min(problem.block_shape)
    assert printed == 1
    single = min(train(problem, 1, seed) for seed in range(10))
    assert single > solution.objective * 1.2
    assert len(convex.fewer_heads(solution).first) == 2 <= count.bound
    assert min(train(problem, count.bound, seed) for seed in range(20)) == pytest.approx(solution.objective, rel=1e-5)  # fmt: skip


@pytest.mark.claim("cvx-22/relu", verdict="corrected")
def test_one_relu_head_is_not_enough_for_attention():
    """d = c = n = 1: one head sees token pairs of one sign of x_s·x_t only."""
    X = torch.tensor([[[1.0], [-2.0]]]).double()
    u = torch.tensor([[1.0], [-1.0]]).double()
    Y = convex.SelfAttentionNetwork(u, torch.tensor([[1.0], [2.0]]).double(), activation="relu")(X)
    problem = convex.SelfAttention(X, Y.detach(), beta=0.05, activation="relu")
    assert len(X) * min(problem.block_shape) == 1
    solution = convex.solve(problem, tol=1e-8, progress=False)
    assert min(train(problem, 1, seed) for seed in range(10)) > 1.2 * solution.objective
    assert len(convex.fewer_heads(solution).first) == 2 <= convex.head_count(solution).bound


@pytest.mark.claim("cvx-22/linear", verdict="verified")
@pytest.mark.parametrize("name", ["attention", "mixer", "fno", "block_fno"])
def test_linear_optima_keep_the_bounds(name):
    problem = build(name, n=2, s=2, d=2, c=2, share=0.02)
    solution = convex.solve(problem, tol=1e-9, progress=False)
    count = convex.head_count(solution)
    assert count.heads <= count.by_rank == problem.groups * min(problem.block_shape)
    runs = [train(problem, count.bound, seed) for seed in range(8)]
    assert min(runs) == pytest.approx(solution.objective, rel=1e-4)


@pytest.mark.claim("cvx-22/gated", verdict="verified")
@pytest.mark.parametrize("name", ["attention", "mixer", "fno", "block_fno"])
def test_gated_optima_can_be_cut_to_the_number_of_predictions(name):
    problem = build(name, "gated_relu", n=1, s=2, d=2, c=2, share=0.05, n_gates=8)
    solution = convex.solve(problem, tol=1e-9, progress=False)
    fewer, count = convex.fewer_heads(solution), convex.head_count(solution)
    assert len(fewer.first) <= count.by_predictions == 4
    assert problem.network_objective(fewer) <= solution.objective * (1 + 1e-8)


# cvx-11, 16, 19, 21: ReLU ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, sizes",
    [
        pytest.param("attention", dict(n=2), marks=pytest.mark.claim("cvx-11", verdict="verified")),
        pytest.param("mixer", dict(n=2), marks=pytest.mark.claim("cvx-16", verdict="verified")),
        pytest.param("fno", dict(c=1), marks=pytest.mark.claim("cvx-19", verdict="verified")),
        pytest.param(
            "block_fno", dict(c=2), marks=pytest.mark.claim("cvx-21/relu", verdict="verified")
        ),
    ],
)
def test_relu_programs_have_the_value_of_training(name, sizes):
    problem = build(name, "relu", **sizes)
    solution = convex.solve(problem, tol=1e-6, progress=False)
    assert solution.converged
    best = train_runs(problem, 12).min()
    assert solution.lower_bound <= best <= solution.objective * (1 + 1e-4)


# cvx-19, 21: patterns --------------------------------------------------------------------------


def patterns_need_tokens(X, grid, shifts):
    """The printed 2r(e(n − 1)/r)^r with n samples is too small; with ns rows it is a bound."""
    n, s, _ = X.shape
    rows = np.concatenate([shifts(x, grid) for x in X.numpy()])
    r = int(np.linalg.matrix_rank(rows))
    found = len(convex.arrangements(rows))
    assert 2 * r * (np.e * (n - 1) / r) ** r < found
    assert found <= convex.arrangement_bound(n * s, r)
    assert found <= 2 * r * (np.e * (n * s - 1) / r) ** r
    return found


@pytest.mark.claim("cvx-19/patterns", verdict="corrected")
def test_patterns_of_shifts_are_counted_by_tokens_and_not_by_samples():
    one = torch.tensor([[[1.0], [0.0]]]).double()
    assert patterns_need_tokens(one, (1, 2), circ_by_loops) == 4
    for seed in range(5):
        X = randn(2, 3, 1, seed=seed)
        X[0, :, 0] = torch.tensor([1.0, 0, 0])
        assert patterns_need_tokens(X, (1, 3), circ_by_loops) >= 8 > 6 * (np.e / 3) ** 3
        patterns_need_tokens(randn(2, 4, 1, seed=seed), (2, 2), circ_by_loops)
        patterns_need_tokens(randn(1, 2, 2, seed=seed), (1, 2), circ_by_loops)


@pytest.mark.claim("cvx-21/patterns", verdict="corrected")
def test_patterns_of_a_group_are_counted_by_tokens_too():
    for seed in range(5):
        for part in randn(2, 3, 4, seed=seed).split(1, dim=2):  # B = 4 groups of one feature
            patterns_need_tokens(part, (1, 3), circ_by_loops)


@pytest.mark.mutation("cvx-19")
def test_tokens_without_their_shifts_are_noticed():
    with pytest.raises(AssertionError):
        patterns_need_tokens(randn(2, 3, 1), (1, 3), lambda x, grid: x)


# What is altered is noticed --------------------------------------------------------------------


def other_pairing(problem, units, *, _train=train_runs):
    return _train(problem, units, decay=0.5 * problem.beta)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("attention", marks=pytest.mark.mutation("cvx-08")),
        pytest.param("mixer", marks=pytest.mark.mutation("cvx-14")),
        pytest.param("fno", marks=pytest.mark.mutation("cvx-18")),
        pytest.param("block_fno", marks=pytest.mark.mutation("cvx-21")),
    ],
)
def test_another_pairing_of_decay_and_norm_is_noticed(name, monkeypatch):
    check = test_linear_programs_have_the_value_of_training
    monkeypatch.setitem(check.__globals__, "train_runs", other_pairing)
    with pytest.raises(AssertionError):
        check(name)


@pytest.mark.parametrize(
    "name, sizes",
    [
        pytest.param("attention", dict(n=2), marks=pytest.mark.mutation("cvx-11")),
        pytest.param("mixer", dict(n=2), marks=pytest.mark.mutation("cvx-16")),
        pytest.param("fno", dict(c=1), marks=pytest.mark.mutation("cvx-19")),
    ],
)
def test_another_pairing_is_noticed_for_relu(name, sizes, monkeypatch):
    check = test_relu_programs_have_the_value_of_training
    monkeypatch.setitem(check.__globals__, "train_runs", other_pairing)
    with pytest.raises(AssertionError):
        check(name, sizes)


@pytest.mark.mutation("cvx-07")
def test_d_in_place_of_its_root_is_noticed():
    with pytest.raises(AssertionError):
        the_factor_is_paid_by_decay(1.0)


@pytest.mark.mutation("cvx-07")
def test_another_norm_for_split_decay_is_noticed(monkeypatch):
    monkeypatch.setattr(convex, "nuclear_norm", lambda W: 0.5 * W.square().sum())
    with pytest.raises(AssertionError):
        test_decay_on_q_and_k_is_another_regulariser()


@pytest.mark.mutation("cvx-09")
def test_attention_without_its_gram_matrix_is_noticed(monkeypatch):
    monkeypatch.setattr(convex, "SelfAttention", convex.MLP)
    with pytest.raises(AssertionError):
        test_without_regularisation_attention_is_not_the_linear_mlp()


@pytest.mark.mutation("cvx-13")
def test_relu_attention_without_its_gram_matrix_is_noticed(monkeypatch):
    monkeypatch.setattr(convex, "SelfAttention", convex.MLP)
    with pytest.raises(AssertionError):
        test_relu_attention_is_not_the_relu_mlp()


@pytest.mark.mutation("cvx-10")
def test_correlated_groups_are_noticed(monkeypatch):
    check = test_some_optimum_separates_and_another_mixes_with_fewer_heads
    monkeypatch.setitem(
        check.__globals__, "uncorrelated", lambda n, s, groups, seed: randn(n, s, sum(groups))
    )
    with pytest.raises(AssertionError):
        check()


@pytest.mark.mutation("cvx-12")
def test_masks_of_the_wrong_token_are_noticed(monkeypatch):
    right = convex.SelfAttention.first_layer

    def swapped(self, weights, group=None):
        n, s, _ = self.X.shape
        return right(self, weights).view(-1, n, s, s).mT.flatten(1)

    monkeypatch.setattr(convex.SelfAttention, "first_layer", swapped)
    with pytest.raises(AssertionError):
        test_local_correlations_give_the_direct_pass()


@pytest.mark.mutation("cvx-15")
def test_a_mixer_that_does_not_mix_is_noticed(monkeypatch):
    monkeypatch.setattr(convex, "Mixer", convex.MLP)
    for check in (
        test_the_mixers_freedom_token_wise_and_pooled,
        test_without_regularisation_the_mixer_is_not_the_mlp,
        test_the_mixer_is_the_smaller_program_if_tokens_are_fewer_than_features,
        test_pooled_the_mixer_shows_fewer_dimensions_up_to_half_d_times_d_plus_one_tokens,
    ):
        with pytest.raises(AssertionError):
            check()


@pytest.mark.mutation("cvx-17")
def test_a_transposed_grid_is_noticed(monkeypatch):
    right = convex.FNONetwork
    monkeypatch.setattr(convex, "FNONetwork", lambda *a, grid, **o: right(*a, grid=grid[::-1], **o))
    with pytest.raises(AssertionError):
        test_the_fourier_block_is_a_two_dimensional_convolution((2, 3))


@pytest.mark.mutation("cvx-20")
def test_exchanged_groups_are_noticed(monkeypatch):
    right = convex.FNONetwork
    monkeypatch.setattr(
        convex, "FNONetwork", lambda *a, group, **o: right(*a, group=1 - group, **o)
    )
    with pytest.raises(AssertionError):
        test_the_block_fno_is_a_grouped_convolution()


@pytest.mark.mutation("cvx-22")
def test_a_second_unit_is_noticed(monkeypatch):
    check = test_one_relu_head_is_not_enough_for_attention
    monkeypatch.setitem(check.__globals__, "train", _two_units)
    with pytest.raises(AssertionError):
        check()


def _two_units(problem, units, seed, *, _train=train):
    return _train(problem, 2, seed)


@pytest.mark.mutation("cvx-23")
def test_another_factor_than_root_s_is_noticed(monkeypatch):
    right = convex.MLP
    monkeypatch.setattr(convex, "MLP", lambda *a, beta, **o: right(*a, beta=2 * beta, **o))
    with pytest.raises(AssertionError):
        test_pooled_linear_fno_is_the_linear_mlp_with_beta_over_root_s("squared")
