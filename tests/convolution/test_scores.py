"""Heads, the order of tokens, and what positions add to the scores (cnv-01, cnv-02)."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fourviews.attention import MultiHeadAttention
from fourviews.convolution import absolute_scores, relative_scores


def randn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- cnv-01 ------------------------------------------------------------------------------


def layer_and_tokens(seed: int, s: int, heads: int) -> tuple[MultiHeadAttention, Tensor]:
    torch.manual_seed(seed)
    layer = MultiHeadAttention(
        4, heads, d_key=3, d_value=2, d_out=5, scale=1.0, bias=True, dtype=torch.float64
    )
    with torch.no_grad():
        for parameter in (layer.bias_q, layer.bias_k, layer.bias_v, layer.bias_o):
            parameter.zero_()
        layer.bias_o.copy_(randn(seed, 5))
    return layer, 2 * randn(seed + 1, s, 4)


def forms(layer: MultiHeadAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    """Heads concatenated and multiplied by W_out, and summed with its blocks of rows."""
    heads = [
        torch.softmax(x @ q @ (x @ k).mT, -1) @ x @ v
        for q, k, v in zip(layer.weight_q, layer.weight_k, layer.weight_v, strict=True)
    ]
    concatenated = torch.cat(heads, -1) @ layer.weight_o.flatten(0, 1) + layer.bias_o
    summed = sum(h @ w for h, w in zip(heads, layer.weight_o, strict=True)) + layer.bias_o
    return concatenated, summed


@pytest.mark.claim("cnv-01", verdict="verified")
@torch.no_grad()
@settings(max_examples=30)
@given(st.integers(0, 1000), st.integers(1, 7), st.integers(1, 4))
def test_cnv_01_both_forms_and_the_layer_agree(seed, s, heads) -> None:
    layer, x = layer_and_tokens(seed, s, heads)
    concatenated, summed = forms(layer, x)
    assert torch.allclose(concatenated, summed, rtol=0, atol=1e-12)
    assert torch.allclose(concatenated, layer(x), rtol=0, atol=1e-12)


def permutation_error(layer: MultiHeadAttention, x: Tensor, seed: int, positions=0.0) -> float:
    """Between the layer of permuted tokens and the permuted rows of the layer."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    return float((layer(x[order] + positions) - layer(x + positions)[order]).abs().max())


@pytest.mark.claim("cnv-01", verdict="verified")
@torch.no_grad()
@settings(max_examples=30)
@given(st.integers(0, 1000), st.integers(1, 7), st.integers(1, 4))
def test_cnv_01_equivariant_without_positions(seed, s, heads) -> None:
    """Rows of the result move along with the tokens; they do not stay where they were."""
    layer, x = layer_and_tokens(seed, s, heads)
    assert permutation_error(layer, x, seed) < 1e-12


@pytest.mark.mutation("cnv-01")
@torch.no_grad()
def test_cnv_01_blocks_in_another_order_and_positions_are_noticed() -> None:
    layer, x = layer_and_tokens(0, 5, 2)
    concatenated, _ = forms(layer, x)
    layer.weight_o.copy_(layer.weight_o.flip(0))
    assert not torch.allclose(concatenated, layer(x), rtol=0, atol=1e-3)
    assert permutation_error(layer, x, 1) < 1e-12
    assert permutation_error(layer, x, 1, positions=randn(3, 5, 4)) > 1e-3
    order = torch.tensor([1, 0, 2, 3, 4])
    assert not torch.allclose(layer(x[order]), layer(x), rtol=0, atol=1e-3)  # not invariant


# --- cnv-02 ------------------------------------------------------------------------------


@pytest.mark.claim("cnv-02/absolute", verdict="verified")
@settings(max_examples=30)
@given(st.integers(0, 1000), st.integers(1, 6))
def test_cnv_02_absolute_scores_have_four_terms(seed, s) -> None:
    x, p, q, k = (randn(seed + i, *n) for i, n in enumerate([(s, 4), (s, 4), (4, 3), (4, 3)]))
    terms = absolute_scores(x, p, q, k)
    assert torch.allclose((x + p) @ q @ k.mT @ (x + p).mT, terms.total, rtol=0, atol=1e-11)
    for left, right, term in ((x, x, 0), (x, p, 1), (p, x, 2), (p, p, 3)):
        assert torch.allclose(left @ q @ k.mT @ right.mT, terms[term], rtol=0, atol=1e-11)


def relative(seed: int, s: int) -> dict[str, Tensor]:
    shapes = {
        "queries": (s, 4),
        "keys": (s, 4),
        "encoding": (s, s, 3),
        "weight_q": (4, 5),
        "weight_k": (4, 5),
        "weight_r": (3, 5),
        "u": (5,),
        "v": (5,),
    }
    return {name: randn(seed + i, *shape) for i, (name, shape) in enumerate(shapes.items())}


@pytest.mark.claim("cnv-02/relative", verdict="corrected")
@settings(max_examples=30)
@given(st.integers(0, 1000), st.integers(1, 6))
def test_cnv_02_relative_scores_one_pair_at_a_time(seed, s) -> None:
    a = relative(seed, s)
    terms = relative_scores(**a)
    for i in range(s):
        for j in range(s):
            query, key, r = a["queries"][i], a["keys"][j], a["encoding"][i, j]
            projected = r @ a["weight_r"]
            wanted = (
                (query @ a["weight_q"]) @ (key @ a["weight_k"]),
                (query @ a["weight_q"]) @ projected,
                a["u"] @ (key @ a["weight_k"]),
                a["v"] @ projected,
            )
            for term, value in zip(terms, wanted, strict=True):
                assert abs(float(term.expand(s, s)[i, j] - value)) < 1e-11
            assert abs(float(terms.total[i, j] - sum(wanted))) < 1e-11


@pytest.mark.claim("cnv-02/relative", verdict="corrected")
@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(2, 6))
def test_cnv_02_the_four_terms_are_those_of_the_expansion(seed, s) -> None:
    """P_k W_key → r_δ Ŵ_key and P_q W_qry → u beside content, v beside places."""
    x, q, k = randn(seed, s, 4), randn(seed + 1, 4, 5), randn(seed + 2, 4, 5)
    same, p = randn(seed + 3, 4), randn(seed + 4, s, 4)
    # A query's place that is the same for all, a key's that does not depend on the query.
    score = (x + same) @ q @ k.mT @ x.mT + (x + same) @ q @ k.mT @ p.mT
    got = relative_scores(x, x, p.expand(s, s, 4), q, k, k, same @ q, same @ q)
    assert torch.allclose(score, got.total, rtol=0, atol=1e-10)


def three_terms(a: dict[str, Tensor]) -> Tensor:
    terms = relative_scores(**a)
    return terms.content_content + terms.content_position + terms.position_content


@pytest.mark.claim("cnv-02/relative", verdict="corrected")
def test_cnv_02_counterexample_to_three_terms() -> None:
    """A score of the three printed terms is 0 at X = 0, attention uniform; no shift is like that.

    So the layer's derivative at 0 is the mean over tokens times Σ_h W_h, for whatever weights and
    encoding, and that of the convolution x ↦ x_{q+1} is a shift.  With the fourth term the layer
    is the shift.
    """
    a = relative(0, 6)
    a["queries"] = a["keys"] = torch.zeros(6, 4, dtype=torch.float64)
    assert float(three_terms(a).abs().max()) == 0.0

    def layer(x: Tensor, score) -> Tensor:
        return torch.softmax(score(a | {"queries": x, "keys": x}), -1) @ x

    x = randn(9, 6, 4)
    small = 1e-6 * x
    rate = layer(small, three_terms) / 1e-6
    assert float((rate - x.mean(0)).abs().max()) < 1e-4
    assert float((rate - x.roll(-1, 0)).abs().max()) > 0.5

    delta = torch.remainder(torch.arange(6.0)[None] - torch.arange(6.0)[:, None] + 3, 6) - 3
    delta = delta.double()
    a["encoding"] = torch.stack([delta**2, delta, torch.zeros_like(delta)], -1)
    a["weight_r"] = torch.eye(3, 5, dtype=torch.float64)
    a["v"] = -60 * torch.tensor([1.0, -2.0, 0, 0, 0]).double()
    rate = layer(small, lambda b: relative_scores(**b).total) / 1e-6
    assert float((rate - x.roll(-1, 0)).abs().max()) < 1e-4


@pytest.mark.mutation("cnv-02/relative")
def test_cnv_02_a_swapped_vector_is_noticed() -> None:
    a = relative(0, 4)
    swapped = a | {"u": a["v"], "v": a["u"]}
    change = relative_scores(**a).total - relative_scores(**swapped).total
    assert float(change.abs().max()) > 0.1


@pytest.mark.mutation("cnv-02/absolute")
def test_cnv_02_a_transpose_is_noticed() -> None:
    x, p, q, k = (randn(i, *n) for i, n in enumerate([(4, 4), (4, 4), (4, 3), (4, 3)]))
    terms = absolute_scores(x, p, q, k)
    wrong = terms.content_content + terms.content_position.mT + terms[2].mT + terms[3]
    assert not torch.allclose((x + p) @ q @ k.mT @ (x + p).mT, wrong, rtol=0, atol=0.1)


def test_scores_name_what_does_not_fit() -> None:
    a = relative(0, 4)
    with pytest.raises(ValueError, match="encoding is for"):
        relative_scores(**a | {"encoding": randn(0, 3, 4, 3)})
    with pytest.raises(ValueError, match="weight_r takes 2"):
        relative_scores(**a | {"weight_r": randn(0, 2, 5)})
    with pytest.raises(ValueError, match="v has 4 entries"):
        relative_scores(**a | {"v": randn(0, 4)})
    with pytest.raises(ValueError, match="positions has shape"):
        absolute_scores(randn(0, 3, 4), randn(0, 2, 4), randn(0, 4, 2), randn(0, 4, 2))
    assert math.isfinite(float(relative_scores(**a).total.sum()))
