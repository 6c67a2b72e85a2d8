"""Softmax, ReLU and linear attention as functions: values, masks, gradients, errors."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fourviews.attention import (
    attention,
    attention_weights,
    causal_mask,
    linear_attention,
    padding_mask,
    relu_attention,
    softmax_attention,
)

KINDS = ("softmax", "relu", "linear")
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}

sizes = st.fixed_dictionaries(
    {
        "batch": st.lists(st.integers(1, 3), max_size=2).map(tuple),
        "q": st.integers(1, 7),
        "k": st.integers(1, 7),
        "d": st.integers(1, 5),
        "v": st.integers(1, 5),
        "seed": st.integers(0, 2**31 - 1),
    }
)
few = settings(max_examples=60, deadline=None)


def draw(case, dtype=torch.float64, requires_grad=False):
    generator = torch.Generator().manual_seed(case["seed"])
    shapes = ((case["q"], case["d"]), (case["k"], case["d"]), (case["k"], case["v"]))
    tensors = [
        torch.randn(*case["batch"], *shape, generator=generator, dtype=dtype) for shape in shapes
    ]
    return [tensor.requires_grad_(requires_grad) for tensor in tensors]


def draw_mask(case, keep=0.6):
    generator = torch.Generator().manual_seed(case["seed"] + 1)
    return torch.rand(*case["batch"], case["q"], case["k"], generator=generator) < keep


def by_loops(q, k, v, kind, mask, scale):
    """The definition, one query at a time and without any batch axis, as an independent
    reference."""
    out = torch.zeros(q.shape[0], v.shape[1], dtype=v.dtype)
    for i in range(q.shape[0]):
        keys = [j for j in range(k.shape[0]) if mask[i, j]]
        scores = [
            scale * sum(float(a) * float(b) for a, b in zip(q[i], k[j], strict=True)) for j in keys
        ]
        if kind == "softmax":
            top = max(scores, default=0.0)
            powers = [math.exp(score - top) for score in scores]
            scores = [power / sum(powers) for power in powers]
        elif kind == "relu":
            scores = [max(0.0, score) for score in scores]
        for weight, j in zip(scores, keys, strict=True):
            out[i] += weight * v[j]
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [None, 0.7, -2.0])
@given(case=sizes)
@few
def test_equals_the_definition(kind, scale, case):
    q, k, v = draw(case)
    mask = draw_mask(case)
    out = attention(q, k, v, activation=kind, mask=mask, scale=scale)
    assert out.shape == (*case["batch"], case["q"], case["v"])
    factor = 1 / math.sqrt(case["d"]) if scale is None else scale
    flat = (tensor.reshape(-1, *tensor.shape[-2:]) for tensor in (q, k, v, mask, out))
    for q_b, k_b, v_b, mask_b, out_b in zip(*flat, strict=True):
        torch.testing.assert_close(
            out_b, by_loops(q_b, k_b, v_b, kind, mask_b, factor), atol=1e-12, rtol=1e-11
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(case=sizes, causal=st.booleans(), masked=st.booleans())
@few
def test_softmax_agrees_with_torch(dtype, case, causal, masked):
    if causal:
        case = {**case, "k": case["q"]}
    q, k, v = draw(case, dtype)
    mask = draw_mask(case) if masked else None
    ours = softmax_attention(q, k, v, mask=mask, causal=causal)
    full = torch.ones(case["q"], case["k"], dtype=torch.bool) if mask is None else mask
    if causal:
        full = full & torch.ones(case["q"], case["q"], dtype=torch.bool).tril()
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=full)
    theirs = theirs.masked_fill(~full.any(-1, keepdim=True), 0.0)
    torch.testing.assert_close(
        ours, theirs.expand_as(ours), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype]
    )


@pytest.mark.parametrize("kind", KINDS)
@given(case=sizes)
@few
def test_permuting_tokens_permutes_the_output(kind, case):
    case = {**case, "k": case["q"], "v": case["d"]}
    q, k, v = draw(case)
    order = torch.randperm(case["q"], generator=torch.Generator().manual_seed(case["seed"]))
    out = attention(q, k, v, activation=kind)
    permuted = attention(q[..., order, :], k[..., order, :], v[..., order, :], activation=kind)
    torch.testing.assert_close(permuted, out[..., order, :], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@given(case=sizes)
@few
def test_order_of_the_keys_does_not_matter(kind, case):
    q, k, v = draw(case)
    order = torch.randperm(case["k"], generator=torch.Generator().manual_seed(case["seed"]))
    torch.testing.assert_close(
        attention(q, k[..., order, :], v[..., order, :], activation=kind),
        attention(q, k, v, activation=kind),
        atol=1e-12,
        rtol=1e-12,
    )


@pytest.mark.parametrize("kind", KINDS)
@given(case=sizes)
@few
def test_masked_keys_might_as_well_be_absent(kind, case):
    q, k, v = draw(case)
    kept = torch.rand(case["k"], generator=torch.Generator().manual_seed(case["seed"])) < 0.6
    torch.testing.assert_close(
        attention(q, k, v, activation=kind, mask=kept),
        attention(q, k[..., kept, :], v[..., kept, :], activation=kind),
        atol=1e-12,
        rtol=1e-12,
    )


@pytest.mark.parametrize("kind", KINDS)
@given(case=sizes, masked=st.booleans())
@few
def test_output_is_weights_times_values(kind, case, masked):
    q, k, v = draw(case)
    mask = draw_mask(case) if masked else None
    out, weights = attention(q, k, v, activation=kind, mask=mask, return_weights=True)
    assert weights.shape == (*case["batch"], case["q"], case["k"])
    torch.testing.assert_close(weights @ v, out, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(
        attention(q, k, v, activation=kind, mask=mask), out, atol=1e-12, rtol=1e-12
    )
    torch.testing.assert_close(attention_weights(q, k, activation=kind, mask=mask), weights)
    if mask is not None:
        assert (weights[~mask] == 0).all()
    if kind == "softmax":
        some_key = torch.ones(case["q"], dtype=torch.bool) if mask is None else mask.any(-1)
        torch.testing.assert_close(weights.sum(-1), some_key.double().expand(weights.shape[:-1]))


# --- linear attention without the matrix ---------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_linear_attention_in_both_orders(causal, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 200, 6, generator=generator, dtype=torch.float64) for _ in range(3))
    with_matrix, _ = linear_attention(q, k, v, causal=causal, return_weights=True)

    def matrix_is_formed(*_):
        raise AssertionError("formed the 200 × 200 matrix")

    monkeypatch.setattr("fourviews.attention._weights", matrix_is_formed)
    torch.testing.assert_close(
        linear_attention(q, k, v, causal=causal), with_matrix, atol=1e-11, rtol=1e-11
    )
    with pytest.raises(AssertionError):
        linear_attention(q, k, v, mask=torch.ones(200, 200, dtype=torch.bool))


# --- rows without keys ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_row_without_keys_is_zero_and_passes_no_gradient(kind):
    case = {"batch": (2,), "q": 4, "k": 5, "d": 3, "v": 2, "seed": 3}
    q, k, v = draw(case, requires_grad=True)
    mask = torch.ones(2, 4, 5, dtype=torch.bool)
    mask[0, 1] = False
    mask[1] = False
    out = attention(q, k, v, activation=kind, mask=mask)
    assert (out[0, 1] == 0).all() and (out[1] == 0).all() and (out[0, [0, 2, 3]] != 0).all()
    out.square().sum().backward()
    for tensor in (q, k, v):
        assert torch.isfinite(tensor.grad).all()
        assert (tensor.grad[1] == 0).all()
    assert (q.grad[0, 1] == 0).all() and (v.grad[0] != 0).any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "mask", [None, torch.ones(3, 0, dtype=torch.bool), torch.ones(3, 1, dtype=torch.bool)]
)
def test_no_keys_at_all(kind, mask):
    q, k, v = torch.randn(3, 4), torch.randn(0, 4), torch.randn(0, 2)
    q[0, 0] = float("nan") if mask is not None else 0.0
    out = attention(q, k, v, activation=kind, mask=mask)
    assert out.shape == (3, 2) and (out == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_empty_sentence(kind):
    x = torch.randn(2, 0, 4, requires_grad=True)
    out = attention(x, x, x, activation=kind, causal=True)
    assert out.shape == (2, 0, 4)
    out.sum().backward()
    assert x.grad.shape == x.shape


# --- NaN behind a mask ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
@given(case=sizes, where=st.sampled_from(["key", "value", "both"]))
@settings(max_examples=40, deadline=None)
def test_nan_reaches_only_queries_that_may_see_it(kind, poison, case, where):
    clean = draw(case, requires_grad=True)
    q, k, v = (tensor.detach().clone().requires_grad_() for tensor in clean)
    mask = draw_mask(case)
    bad = case["seed"] % case["k"]
    with torch.no_grad():
        if where != "value":
            k[..., bad, 0] = poison
        if where != "key":
            v[..., bad, 0] = poison
    out = attention(q, k, v, activation=kind, mask=mask)
    expected = attention(*clean, activation=kind, mask=mask)
    sees = mask[..., bad]
    assert out[sees].isnan().all()
    torch.testing.assert_close(out[~sees], expected[~sees])
    out[~sees].square().sum().backward()
    expected[~sees].square().sum().backward()
    for ours, reference in zip((q, k, v), clean, strict=True):
        assert torch.isfinite(ours.grad).all()
        torch.testing.assert_close(ours.grad, reference.grad)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "s", [5, 60]
)  # 60 > 3·3: the running sums of linear attention would be used
def test_nan_in_a_later_token_leaves_earlier_ones_alone(kind, s):
    x = torch.randn(s, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    clean, dirty = x.clone().requires_grad_(), x.clone()
    dirty[s - 2, 1] = float("nan")
    dirty.requires_grad_()
    out, expected = (attention(t, t, t, activation=kind, causal=True) for t in (dirty, clean))
    torch.testing.assert_close(out[: s - 2], expected[: s - 2])
    assert out[s - 2 :].isnan().all()
    out[: s - 2].square().sum().backward()
    expected[: s - 2].square().sum().backward()
    torch.testing.assert_close(dirty.grad, clean.grad)


def test_nan_in_the_loss_reaches_the_gradient():
    q, k, v = draw({"batch": (), "q": 3, "k": 3, "d": 2, "v": 2, "seed": 0}, requires_grad=True)
    with torch.no_grad():
        v[2, 0] = float("nan")
    softmax_attention(q, k, v, causal=True).square().sum().backward()
    assert q.grad.isnan().any()


def test_without_a_mask_nan_spreads():
    x = torch.randn(4, 3)
    x[1, 0] = float("nan")
    assert softmax_attention(x, x, x).isnan().all()


# --- causality -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(case=sizes)
@few
def test_later_tokens_do_not_change_earlier_outputs(kind, case):
    case = {**case, "k": case["q"], "v": case["d"]}
    q, k, v = draw(case)
    t = case["seed"] % case["q"]
    changed = [tensor.clone() for tensor in (q, k, v)]
    for tensor in changed:
        tensor[..., t:, :] += 10.0
    before = attention(q, k, v, activation=kind, causal=True)
    after = attention(*changed, activation=kind, causal=True)
    assert torch.equal(before[..., :t, :], after[..., :t, :])
    assert not torch.equal(before[..., t, :], after[..., t, :])


# --- size of the numbers, gradients, masks -------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_huge_scores_give_one_hot_weights(dtype):
    scores = torch.tensor([[1e30, -1e30, 0.0], [-1e30, -1e30 * 1.1, -1e30 * 1.2]], dtype=dtype)
    q, k = scores.clone().requires_grad_(), torch.eye(3, dtype=dtype)
    weights = attention_weights(q, k, scale=1.0)
    assert torch.equal(weights, torch.tensor([[1.0, 0, 0], [1.0, 0, 0]], dtype=dtype))
    weights.square().sum().backward()
    assert torch.isfinite(q.grad).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("masked", [False, True])
def test_gradients(kind, masked):
    case = {"batch": (2,), "q": 3, "k": 4, "d": 2, "v": 3, "seed": 11}
    q, k, v = draw(case, requires_grad=True)
    mask = draw_mask(case) if masked else None
    if masked:
        mask[0, 0] = False

    def f(q, k, v):
        return attention(q, k, v, activation=kind, mask=mask)

    assert torch.autograd.gradcheck(f, (q, k, v))
    assert torch.autograd.gradgradcheck(f, (q, k, v))


def test_gradient_of_the_running_sums():
    q, k, v = (torch.randn(9, 2, dtype=torch.float64, requires_grad=True) for _ in range(3))
    assert torch.autograd.gradcheck(
        lambda q, k, v: linear_attention(q, k, v, causal=True), (q, k, v)
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_kept(kind, dtype):
    x = torch.randn(2, 5, 3, dtype=dtype)
    assert attention(x, x, x, activation=kind, causal=True).dtype == dtype


def test_named_functions_are_the_three_kinds():
    x = torch.randn(2, 5, 3)
    for kind, function in zip(
        KINDS, (softmax_attention, relu_attention, linear_attention), strict=True
    ):
        assert torch.equal(function(x, x, x), attention(x, x, x, activation=kind))


def test_masks():
    assert causal_mask(3).tolist() == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
    assert causal_mask(0).shape == (0, 0)
    assert padding_mask([2, 0], 3).tolist() == [[[True, True, False]], [[False, False, False]]]
    assert padding_mask(torch.tensor([[1], [2]]), 2).shape == (2, 1, 1, 2)
    both = causal_mask(3) & padding_mask([2], 3)
    assert both.tolist() == [[[True, False, False], [True, True, False], [True, True, False]]]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"key": torch.ones(4, 2)}, "key has 2 features, query has 3"),
        ({"value": torch.ones(5, 3)}, "value has 5 tokens, key has 4"),
        ({"key": torch.ones(4, 3, dtype=torch.float64)}, "key has dtype torch.float64"),
        ({"query": torch.ones(3)}, "query has shape"),
        ({"query": torch.ones(4, 3, dtype=torch.int64)}, "query has dtype torch.int64"),
        ({"query": [[1.0]]}, "query is a list"),
        ({"query": torch.ones(4, 0), "key": torch.ones(4, 0)}, "0 features"),
        ({"query": torch.ones(2, 4, 3), "key": torch.ones(3, 4, 3)}, "leading axes"),
        ({"activation": "gelu"}, "activation is 'gelu'"),
        ({"scale": float("nan")}, "scale is nan"),
        ({"mask": torch.ones(4, 4)}, "mask is torch.float32"),
        ({"mask": torch.ones(3, 4, dtype=torch.bool)}, "mask has shape"),
        ({"mask": torch.ones(2, 4, 4, dtype=torch.bool)}, "mask has shape"),
        ({"query": torch.ones(2, 3), "causal": True}, "causal needs as many queries"),
    ],
)
def test_bad_input_is_named(change, message):
    arguments = {
        "query": torch.ones(4, 3),
        "key": torch.ones(4, 3),
        "value": torch.ones(4, 3),
        **change,
    }
    with pytest.raises(ValueError, match=message):
        attention(**arguments)


@pytest.mark.parametrize("lengths", [[4], [-1], torch.tensor([1.5])])
def test_bad_lengths_are_named(lengths):
    with pytest.raises(ValueError, match="lengths"):
        padding_mask(lengths, 3)
