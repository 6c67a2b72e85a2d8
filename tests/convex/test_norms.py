"""Nuclear and spectral norm, singular-value thresholding: polar pair and proximal identities."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fourviews import convex
from fourviews.convex import nuclear_norm, singular_value_threshold, spectral_norm
from fourviews.convex.network import balanced_factors
from fourviews.convex.norms import polar_upper_bound

matrices = st.fixed_dictionaries(
    {
        "blocks": st.integers(0, 3),
        "p": st.integers(1, 5),
        "q": st.integers(1, 5),
        "rank": st.integers(0, 5),
        "scale": st.sampled_from([1e-8, 1.0, 1e8]),
        "dtype": st.sampled_from([torch.float32, torch.float64]),
        "ties": st.booleans(),
        "seed": st.integers(0, 2**31 - 1),
    }
)
many = settings(max_examples=100)


def draw(case, salt=0):
    """A matrix or stack of them, of any rank, perhaps with equal singular values."""
    rng = np.random.default_rng(case["seed"] + salt)
    shape = (case["blocks"],) if case["blocks"] else ()
    p, q = case["p"], case["q"]
    u = np.linalg.qr(rng.standard_normal((*shape, p, min(p, q))))[0]
    v = np.linalg.qr(rng.standard_normal((*shape, q, min(p, q))))[0]
    s = np.ones(min(p, q)) if case["ties"] else np.abs(rng.standard_normal(min(p, q)))
    s[case["rank"] :] = 0
    return torch.from_numpy(case["scale"] * (u * s) @ np.swapaxes(v, -1, -2)).to(case["dtype"])


def slack(case):
    return 100 * torch.finfo(case["dtype"]).eps


def project_spectral_ball(Z, radius):
    """By numpy, in float64: singular values cut at the radius."""
    u, s, vt = np.linalg.svd(Z.double().numpy(), full_matrices=False)
    return torch.from_numpy((u * np.minimum(s, radius)[..., None, :]) @ vt)


@given(case=matrices)
@many
def test_norms_are_those_of_the_singular_values(case):
    Z = draw(case)
    s = np.linalg.svd(Z.double().numpy(), compute_uv=False)
    size = case["scale"] * case["p"]
    assert float(nuclear_norm(Z)) == pytest.approx(s.sum(), rel=slack(case), abs=slack(case) * size)
    assert np.allclose(
        spectral_norm(Z).double().numpy(), s.max(-1), rtol=slack(case), atol=slack(case) * size
    )
    assert polar_upper_bound(Z.double()) >= s.max()
    assert polar_upper_bound(Z.double()) <= s.max() * (1 + 1e-12)


@given(case=matrices)
@many
def test_polar_inequality_and_attainment(case):
    """<M, Z> <= |M|° |Z|, attained at u v' of the leading singular pair."""
    Z, M = draw(case).double(), draw(case, 1).double()
    inner = float((Z * M).sum())
    polar = float(spectral_norm(M).max())
    assert inner <= polar * float(nuclear_norm(Z)) * (1 + 1e-12) + 1e-300
    blocks = M.reshape(-1, *M.shape[-2:])
    j = int(spectral_norm(blocks).argmax())
    u, _, vt = np.linalg.svd(blocks[j].numpy())
    attained = np.zeros(blocks.shape)
    attained[j] = np.outer(u[:, 0], vt[0])
    assert float(nuclear_norm(torch.from_numpy(attained))) == pytest.approx(1)
    assert float((blocks.numpy() * attained).sum()) == pytest.approx(polar, rel=1e-12, abs=1e-300)


@given(case=matrices, share=st.sampled_from([0.0, 1e-6, 0.5, 1.0, 3.0]))
@many
def test_moreau(case, share):
    """prox of the norm + projection on the polar's ball = identity."""
    Z = draw(case)
    threshold = share * case["scale"]
    P = singular_value_threshold(Z, threshold)
    assert P.dtype == Z.dtype and P.shape == Z.shape
    total = P.double() + project_spectral_ball(Z, threshold)
    assert torch.allclose(total, Z.double(), rtol=0, atol=slack(case) * case["scale"])


@given(case=matrices, share=st.sampled_from([1e-6, 0.5, 1.0, 3.0]))
@many
def test_threshold_is_optimal(case, share):
    """(Z - P)/τ is a subgradient of the norm at P: polar <= 1 and <., P> = |P|."""
    Z = draw(case).double()
    threshold = share * case["scale"]
    P = singular_value_threshold(Z, threshold)
    G = (Z - P) / threshold
    # Z - P is exact to rounding of Z only: the error grows when τ is small beside Z.
    tolerance = 1e-12 * (1 + float(Z.norm()) / threshold)
    assert float(spectral_norm(G).max()) <= 1 + tolerance
    size = float(nuclear_norm(P))
    assert float((G * P).sum()) == pytest.approx(size, abs=tolerance * (size + 1e-300))
    # Firmly nonexpansive, as every proximal map.
    W = draw(case, 2).double()
    Q = singular_value_threshold(W, threshold)
    left = float((P - Q).square().sum())
    assert left <= float(((P - Q) * (Z - W)).sum()) + 1e-12 * (
        float(Z.square().sum()) + float(W.square().sum())
    )


@pytest.mark.parametrize("shape", [(1, 1), (4, 1), (1, 4), (3, 4, 1), (3, 2, 2)])
def test_zero_and_infinite_shrinkage(shape):
    Z = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.allclose(singular_value_threshold(Z, 0.0), Z, atol=1e-15)
    assert (singular_value_threshold(Z, 1e9) == 0).all()
    assert (singular_value_threshold(torch.zeros(shape), 0.0) == 0).all()
    assert (singular_value_threshold(torch.zeros(shape), 1.0) == 0).all()


@pytest.mark.parametrize("shape", [(3, 1), (1, 3), (2, 3)])
@pytest.mark.parametrize("size", [1e-150, 1e150])
def test_extreme_magnitudes_keep_their_direction(shape, size):
    Z = size * torch.ones(shape, dtype=torch.float64)
    P = singular_value_threshold(Z, 0.25 * float(spectral_norm(Z)))
    assert torch.allclose(P / size, 0.75 * Z / size, rtol=1e-12)


@given(case=matrices)
@many
def test_weight_decay_of_balanced_factors_is_the_norm(case):
    Z = draw(case).double()
    blocks = Z.reshape(-1, *Z.shape[-2:])
    first, second, block = balanced_factors(blocks, 1e-14)
    decay = 0.5 * float(first.square().sum() + second.square().sum())
    size = float(nuclear_norm(Z))
    assert decay == pytest.approx(size, rel=1e-11, abs=1e-300)
    again = torch.zeros_like(blocks).index_add_(0, block, torch.einsum("mp,mq->mpq", first, second))
    assert torch.allclose(again, blocks, rtol=0, atol=1e-12 * case["scale"])
    assert torch.allclose(first.norm(dim=1), second.norm(dim=1), rtol=1e-10)


@given(case=matrices)
@many
def test_no_other_factorisation_decays_less(case):
    """½(|U|² + |V|²) >= |Z|_* for Z = UV', whatever the factors (Srebro et al. 2004)."""
    Z = draw(case | {"blocks": 0}).double()
    rng = np.random.default_rng(case["seed"] + 3)
    first, second, _ = balanced_factors(Z.unsqueeze(0), 1e-14)
    m = len(first)
    if m == 0:
        return
    mix = torch.from_numpy(rng.standard_normal((m, m)) + 3 * np.eye(m))
    if float(torch.linalg.cond(mix)) > 1e6:
        return
    U, V = mix @ first, torch.linalg.inv(mix).T @ second
    assert torch.allclose(U.T @ V, Z, atol=1e-8 * case["scale"])
    assert 0.5 * float(U.square().sum() + V.square().sum()) >= float(nuclear_norm(Z)) * (1 - 1e-8)


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_problem_prox_scales_with_beta(share, make_problem):
    problem = make_problem("gated_relu", c=2, share=share)
    Z = torch.randn(
        problem.coefficient_shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    expected = torch.stack(
        [convex.singular_value_threshold(block, 0.5 * problem.beta) for block in Z]
    )
    assert torch.allclose(problem.prox(Z, 0.5), expected, atol=1e-14)
    assert float(problem.norm(Z)) == pytest.approx(sum(float(nuclear_norm(block)) for block in Z))
