"""Every head's linear map: its definition, adjoint, Gram matrix, units, network and growth."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fourviews import convex

from .heads import ACTIVATIONS, HEADS, NEW_HEADS, POOLS, build, circ_by_loops, dense_map

EVERY = list(itertools.product(HEADS, ACTIVATIONS, POOLS))
every = pytest.mark.parametrize("name, activation, pool", EVERY)


def draw(shape, seed, like):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(like)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_map_is_its_definition_and_the_adjoint_its_transpose(name, activation, pool, dtype):
    if activation == "relu" and dtype == torch.float32:
        pytest.skip("points of thin cells do not survive rounding to float32; the masks count")
    for seed in range(3):
        n = 2 if activation == "relu" else 3
        problem = build(name, activation, pool=pool, n=n, beta=0.1, dtype=dtype, seed=seed)
        A = dense_map(problem)
        Z = draw(problem.coefficient_shape, seed, problem.X)
        R = draw(problem.loss.target.shape, seed, problem.X)
        scale = 200 * torch.finfo(dtype).eps * np.abs(A).sum()
        forward = problem.forward(Z)
        assert forward.dtype == dtype and forward.shape == problem.loss.target.shape
        assert np.abs(forward.numpy().ravel() - A @ Z.double().numpy().ravel()).max() <= scale
        image = problem.adjoint(R)
        assert image.dtype == dtype and tuple(image.shape) == problem.coefficient_shape
        assert np.abs(image.numpy().ravel() - A.T @ R.double().numpy().ravel()).max() <= scale


@given(
    name=st.sampled_from(HEADS),
    activation=st.sampled_from(("linear", "gated_relu")),
    pool=st.sampled_from(POOLS),
    n=st.integers(1, 4),
    grid=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    d=st.integers(1, 3),
    c=st.integers(1, 3),
    blocks=st.integers(1, 2),
    P=st.integers(1, 4),
    scale=st.sampled_from((1e-6, 1.0, 1e6)),
    seed=st.integers(0, 2**31 - 1),
)
@settings(max_examples=80, deadline=None)
def test_adjoint_identity_for_all_sizes(
    name, activation, pool, n, grid, d, c, blocks, P, scale, seed
):
    if name == "block_fno":
        d, c = d * blocks, c * blocks
    options = {"grid": grid, "blocks": blocks} if "fno" in name else {}
    s = grid[0] * grid[1]
    problem = build(
        name, activation, pool=pool, n=n, s=s, d=d, c=c, n_gates=P, beta=0.1, seed=seed,
        x_scale=scale, **options,
    )  # fmt: skip
    Z = draw(problem.coefficient_shape, seed, problem.X)
    R = draw(problem.loss.target.shape, seed, problem.X)
    AZ, AR = problem.forward(Z), problem.adjoint(R)
    size = float(AZ.norm() * R.norm()) + 1e-300
    assert abs(float((AZ * R).sum() - (Z * AR).sum())) <= 1e-12 * size * Z.numel()
    with_loops = dense_map(problem) @ Z.numpy().ravel()
    np.testing.assert_allclose(AZ.numpy().ravel(), with_loops, rtol=0, atol=1e-12 * np.abs(with_loops).max() * Z.numel() ** 0.5 + 1e-300)  # fmt: skip


@every
def test_integer_data_with_ties(name, activation, pool):
    """Pre-activations that are exactly zero: a gate is on there, through the FFT too."""
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.integers(-1, 2, (4, 4, 2)).astype(float))
    X[0] = 0.0
    Y = torch.from_numpy(rng.standard_normal((4, 4, 2) if pool is None else (4, 2)))
    from .heads import head

    options = {"grid": (2, 2)} if "fno" in name else {}
    unit = head(name, X, Y, beta=0.1, activation="gated_relu", pool=pool, n_gates=1, **options)
    shape = (unit.gates.shape[0], 6, *unit.gates.shape[2:]) if name == "block_fno" else (6, *unit.gates.shape[1:])  # fmt: skip
    gates = torch.from_numpy(rng.integers(-1, 2, shape).astype(float))
    if activation != "linear":
        options |= {"gates": gates}
    problem = head(name, X, Y, beta=0.1, activation=activation, pool=pool, **options)
    Z = draw(problem.coefficient_shape, 1, X)
    want = dense_map(problem) @ Z.numpy().ravel()
    np.testing.assert_allclose(problem.forward(Z).numpy().ravel(), want, atol=1e-12)
    if activation == "gated_relu":
        blocks = torch.arange(problem.n_blocks)
        first = draw((len(blocks), problem.block_shape[0]), 2, X)
        second = draw((len(blocks), problem.block_shape[1]), 3, X)
        Z = torch.einsum("mp,mq->mpq", first, second).reshape(problem.coefficient_shape)
        network = problem._units(first, second, blocks)
        torch.testing.assert_close(network(X), problem.forward(Z), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name, activation, pool", [e for e in EVERY if e[1] != "relu"])
def test_gram_matrix(name, activation, pool):
    options = {"grid": (2, 2)} if "fno" in name else {}
    problem = build(name, activation, pool=pool, s=4, beta=0.1, **options)
    A = dense_map(problem)
    G = problem.gram().numpy()
    columns = problem.loss.target.numel() // len(G)
    whole = np.kron(G, np.eye(columns))
    np.testing.assert_allclose(whole, A @ A.T, atol=1e-11 * np.abs(whole).max())
    index = torch.tensor([problem.n_blocks - 1, 0]).unique()
    weights = torch.tensor([0.3, 2.0], dtype=torch.float64)[: len(index)]
    part = A.reshape(len(A), problem.n_blocks, -1)[:, index.numpy()]
    want = np.einsum("ajx,j,bjx->ab", part, weights.numpy(), part)
    got = np.kron(problem.gram(index, weights).numpy(), np.eye(columns))
    if activation == "linear" and problem.n_blocks == 1:
        want = weights[0].item() * A @ A.T
    np.testing.assert_allclose(got, want, atol=1e-11 * np.abs(whole).max())


@pytest.mark.parametrize(
    "name, activation, pool",
    [e for e in EVERY if e[1] != "relu"],
)
def test_blocks_with_one_column(name, activation, pool):
    d = 1 if name in ("attention", "mixer") else 2
    c = 2 if name == "block_fno" else 1
    problem = build(name, activation, pool=pool, d=d, c=c, beta=0.1)
    assert problem.block_shape[1] == 1
    A = dense_map(problem).reshape(-1, problem.n_blocks, problem.block_shape[0])
    index = torch.arange(problem.n_blocks).flip(0)
    Z = draw((len(index), problem.block_shape[0]), 0, problem.X)
    got = problem.block_predictions(Z, index).reshape(len(index), -1).numpy()
    want = np.einsum("ajp,jp->ja", A[:, index.numpy()], Z.numpy())
    np.testing.assert_allclose(got, want, atol=1e-12 * np.abs(A).sum())
    bounds = problem.block_norm_bounds()
    assert len(bounds) == problem.n_blocks
    norms = np.linalg.norm(np.moveaxis(A, 1, 0), 2, axis=(1, 2))
    assert (bounds.numpy() >= norms * (1 - 1e-12)).all()


@pytest.mark.parametrize("name, activation, pool", [e for e in EVERY if e[1] != "relu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_units_are_rank_one_coefficients(name, activation, pool, dtype):
    problem = build(name, activation, pool=pool, beta=0.1, n=5, s=3, dtype=dtype)
    p, q = problem.block_shape
    block = torch.arange(7) % problem.n_blocks
    first, second = draw((7, p), 0, problem.X).double(), draw((7, q), 1, problem.X).double()
    R = draw(problem.loss.target.shape, 2, problem.X).double()
    exact = problem.to(torch.float64)
    Z = torch.zeros(problem.n_blocks, p, q, dtype=torch.float64)
    Z.index_add_(0, block, torch.einsum("mp,mq->mpq", first, second))
    Z = Z.reshape(problem.coefficient_shape)
    image = exact.adjoint(R).reshape(-1, p, q)[block]
    close = {"rtol": 1e-10, "atol": 1e-10}
    output, backward = problem.units_passes(first, second, block)
    for got in (output, problem.units_forward(first, second, block)):
        torch.testing.assert_close(got, exact.forward(Z), **close)
    want = torch.einsum("mpq,mq->mp", image, second), torch.einsum("mpq,mp->mq", image, first)
    for got, expected in zip(backward(R), want, strict=True):
        torch.testing.assert_close(got, expected, **close)
    torch.testing.assert_close(problem.units_first_gradient(R, second, block), want[0], **close)
    torch.testing.assert_close(problem.units_second_gradient(R, first, block), want[1], **close)
    parts = [problem.part(slice(0, 2)), problem.part(slice(2, 5))]
    pieces = torch.cat([part.units_forward(first, second, block) for part in parts])
    torch.testing.assert_close(pieces, exact.forward(Z), **close)
    none = problem.units_forward(first[:0], second[:0], block[:0])
    assert none.shape == problem.loss.target.shape and not none.any()


@every
def test_effective_matrix_and_first_layer(name, activation, pool):
    options = {"grid": (2, 2)} if "fno" in name else {}
    problem = build(name, pool=pool, s=4, d=2, beta=0.1, **options)
    X = problem.X.numpy()
    for g in range(problem.groups):
        if name == "mlp":
            want = X.reshape(-1, X.shape[-1])
        elif name == "attention":
            want = np.concatenate([np.kron(x, x) for x in X])
        elif name == "mixer":
            # X'⊗I takes vec(W₁) in column-major order; the weights here are row-major.
            s = X.shape[1]
            order = np.arange(s * s).reshape(s, s).T.ravel()
            want = np.concatenate([np.kron(x.T, np.eye(s)) for x in X])[:, order]
        else:
            width = X.shape[-1] // problem.groups
            part = slice(g * width, (g + 1) * width)
            want = np.concatenate([circ_by_loops(x[:, part], problem.grid) for x in X])
        np.testing.assert_array_equal(problem.effective_matrix(g), want)
        u = draw((3, problem.block_shape[0]), g, problem.X)
        group = problem.group_of(torch.full((3,), g))
        np.testing.assert_allclose(problem.first_layer(u, group).numpy(), u.numpy() @ want.T, atol=1e-12)  # fmt: skip


@every
def test_network_and_back(name, activation, pool):
    """Units of every block, lifted: same predictions, an objective that does not rise."""
    problem = build(name, activation, pool=pool, beta=0.3, n=2)
    m = 2 * problem.n_blocks
    p, q = problem.block_shape
    first, second = draw((m, p), 0, problem.X), draw((m, q), 1, problem.X)
    block = torch.arange(m) % problem.n_blocks
    if activation == "relu":
        block = problem.pattern_of(first, block % problem.groups)
        assert (block >= 0).all()
    network = problem._units(first, second, block)
    lifted = convex.from_network(problem, network)
    torch.testing.assert_close(problem.forward(lifted.coefficients), network(problem.X))
    assert lifted.objective <= problem.network_objective(network) * (1 + 1e-12)


def test_public_shapes():
    s, d, c, P = 4, 2, 2, 5
    want = {
        "mlp": ((d, c), (P, d)),
        "attention": ((d * d, d * c), (P, d, d)),
        "mixer": ((s * s, d * c), (P, s, s)),
        "fno": ((s * d, c), (P, s * d)),
        "block_fno": ((2, s * d // 2, c // 2), (2, P, s * d // 2)),
    }
    for name, (coefficients, gates) in want.items():
        problem = build(name, s=s, beta=0.1)
        assert problem.coefficient_shape == coefficients
        gated = build(name, "gated_relu", s=s, beta=0.1, n_gates=P)
        assert gated.coefficient_shape == (P, *coefficients)
        assert tuple(gated.gates.shape) == gates
        again = build(name, "gated_relu", s=s, beta=0.1, gates=gated.gates)
        assert torch.equal(again.masks, gated.masks)


@pytest.mark.parametrize(
    "options, match",
    [
        (dict(grid=(2, 3)), "6 cells, X has 4 tokens"),
        (dict(grid=(4,)), "two integers"),
        (dict(grid=(0, 4)), "two integers"),
        (dict(grid=4), "two integers"),
    ],
)
def test_bad_grids_are_refused(options, match):
    X, Y = torch.randn(3, 4, 2), torch.randn(3, 4, 2)
    with pytest.raises(ValueError, match=match):
        convex.FNO(X, Y, beta=0.1, **options)
    with pytest.raises(ValueError, match=match):
        convex.BlockFNO(X, Y, beta=0.1, blocks=2, **options)


def test_bad_blocks_and_gates_are_refused():
    X, Y = torch.randn(3, 4, 4), torch.randn(3, 4, 2)
    for blocks, match in ((3, "4 features"), (4, "2 outputs"), (0, ">= 1"), (True, ">= 1")):
        with pytest.raises(ValueError, match=match):
            convex.BlockFNO(X, Y, beta=0.1, blocks=blocks, grid=(2, 2))
    with pytest.raises(ValueError, match=r"gates must have shape \(2, P, 8\)"):
        convex.BlockFNO(
            X, Y, beta=0.1, blocks=2, grid=(2, 2), activation="relu", gates=torch.randn(5, 8)
        )
    with pytest.raises(ValueError, match=r"gates must have shape \(P, 4, 4\)"):
        convex.SelfAttention(X, Y, beta=0.1, activation="relu", gates=torch.randn(5, 16))
    for name in NEW_HEADS:
        with pytest.raises(ValueError, match=r"\(n, s, d\)"):
            from .heads import head

            head(name, torch.randn(3, 4), torch.randn(3, 2), beta=0.1, grid=(1, 4))


@pytest.mark.parametrize(
    ("shape", "grid", "words"),
    [
        ((2, 5, 1), (2, 3), "6 cells, X has 5 tokens"),
        ((2, 6), (2, 3), "shape"),
        ((2, 6, 1), (2, 0), "two integers"),
        ((2, 6, 1), (-2, -3), "two integers"),
        ((2, 6, 1), 6, "two integers"),
    ],
)
def test_circulant_refuses_what_is_no_grid_of_tokens(shape, grid, words):
    with pytest.raises(ValueError, match=words):
        convex.circulant(torch.zeros(shape), grid)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("name", HEADS)
def test_networks_refuse_inputs_of_other_sizes(name, pool):
    problem = build(name, "linear", pool=pool)
    n, s, d = problem.X.shape
    m, (p, q) = 3, problem.block_shape
    group = torch.arange(m) % problem.groups if problem.groups > 1 else None
    network = problem.hidden_layers(
        torch.ones(m, p).double(), torch.ones(m, q).double(), None, group
    )
    network(problem.X)
    wrong = [(n, s, d + 1), (n, d + 1), (d,), (1, n, s, d)]
    wrong += [(n, d)] if pool or name != "mlp" else []
    wrong += [(n, s + 1, d)] if name in ("mixer", "fno", "block_fno") else []
    for shape in wrong:
        if name == "mixer" and shape == (n, s, d + 1) and q % (d + 1) == 0:
            continue  # fewer outputs of more features: the weights cannot tell
        with pytest.raises(ValueError, match="X "):
            network(torch.zeros(shape, dtype=torch.float64))
