"""Multi-head attention, position-wise networks, encoder and decoder blocks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fourviews.attention import (
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    MultiHeadAttention,
    attention,
    causal_mask,
    padding_mask,
)

KINDS = ("softmax", "relu", "linear")
D = torch.float64


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=D)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def randomise(module):
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module


def encoder(norm="post", residual=True, **options):
    layer = MultiHeadAttention(4, 2, dtype=D, **options)
    return randomise(EncoderBlock(layer, FeedForward(4, 7, dtype=D), norm=norm, residual=residual))


def decoder(norm="post", residual=True, d_context=3):
    cross = MultiHeadAttention(4, 2, d_context=d_context, dtype=D)
    return randomise(
        DecoderBlock(
            MultiHeadAttention(4, 2, dtype=D),
            cross,
            FeedForward(4, 7, dtype=D),
            norm=norm,
            residual=residual,
        )
    )


# --- multi-head attention ------------------------------------------------------------------------


@given(
    heads=st.sampled_from([1, 2, 4]),
    q=st.integers(1, 6),
    k=st.integers(1, 6),
    cross=st.booleans(),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=40, deadline=None)
def test_agrees_with_torch_multihead_attention(heads, q, k, cross, seed):
    ours = randomise(
        MultiHeadAttention(8, heads, d_context=5 if cross else None, bias=True, dtype=D)
    )
    theirs = torch.nn.MultiheadAttention(8, heads, kdim=5, vdim=5, batch_first=True, dtype=D)
    if not cross:
        theirs = torch.nn.MultiheadAttention(8, heads, batch_first=True, dtype=D)
    rows = [
        w.transpose(-1, -2).flatten(0, 1) for w in (ours.weight_q, ours.weight_k, ours.weight_v)
    ]
    with torch.no_grad():
        if cross:
            for name, weight in zip(("q", "k", "v"), rows, strict=True):
                getattr(theirs, f"{name}_proj_weight").copy_(weight)
        else:
            theirs.in_proj_weight.copy_(torch.cat(rows))
        theirs.in_proj_bias.copy_(
            torch.cat([b.flatten() for b in (ours.bias_q, ours.bias_k, ours.bias_v)])
        )
        theirs.out_proj.weight.copy_(ours.weight_o.flatten(0, 1).T)
        theirs.out_proj.bias.copy_(ours.bias_o)
    x = randn(3, q, 8, seed=seed)
    z = randn(3, k, 5, seed=seed + 1) if cross else x
    expected, expected_weights = theirs(x, z, z, average_attn_weights=False)
    out, weights = ours(x, z if cross else None, return_weights=True)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(weights, expected_weights)
    torch.testing.assert_close(ours(x, z if cross else None), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_concatenated_and_summed_forms_agree(kind):
    layer = randomise(
        MultiHeadAttention(6, 3, d_key=2, d_value=5, d_out=4, d_context=7, activation=kind, dtype=D)
    )
    x, z = randn(2, 5, 6), randn(2, 8, 7, seed=1)
    query_key, value_output = layer.merged_weights()
    assert query_key.shape == (3, 6, 7) and value_output.shape == (3, 7, 4)
    summed = sum(
        attention(x @ query_key[h], z, z @ value_output[h], activation=kind, scale=layer.scale)
        for h in range(3)
    )
    torch.testing.assert_close(layer(x, z), summed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [False, True])
def test_permutation_equivariance(kind, bias):
    layer = randomise(MultiHeadAttention(4, 2, activation=kind, bias=bias, dtype=D))
    x, order = randn(3, 6, 4), torch.tensor([3, 0, 5, 1, 4, 2])
    torch.testing.assert_close(layer(x[:, order]), layer(x)[:, order])


def test_offsets_break_permutation_equivariance():
    layer = randomise(MultiHeadAttention(4, 2, offset_tokens=6, dtype=D))
    x, order = randn(6, 4), torch.tensor([3, 0, 5, 1, 4, 2])
    assert (layer(x[order]) - layer(x)[order]).abs().max() > 1e-2


def test_offsets_are_matrices_in_affine_maps():
    layer = randomise(
        MultiHeadAttention(
            3, 1, d_key=2, activation="relu", scale=1.0, offset_tokens=5, project=False, dtype=D
        )
    )
    x = randn(5, 3)
    q = x @ layer.weight_q[0] + layer.offset_q[0]
    k = x @ layer.weight_k[0] + layer.offset_k[0]
    v = x @ layer.weight_v[0] + layer.offset_v[0]
    torch.testing.assert_close(layer(x), torch.relu(q @ k.T) @ v)
    with pytest.raises(ValueError, match="x has 4 tokens; the offsets are for 5"):
        layer(randn(4, 3))


def test_without_projection_heads_stand_side_by_side():
    layer = MultiHeadAttention(4, 2, project=False, dtype=D)
    x = randn(5, 4)
    heads = [
        attention(*(x @ w[h] for w in (layer.weight_q, layer.weight_k, layer.weight_v)))
        for h in range(2)
    ]
    torch.testing.assert_close(layer(x), torch.cat(heads, dim=-1))


@pytest.mark.parametrize("kind", KINDS)
def test_mask_is_shared_by_heads_and_rows_without_keys_are_zero(kind):
    layer = randomise(MultiHeadAttention(4, 2, activation=kind, dtype=D))
    x = randn(2, 5, 4)
    mask = padding_mask([3, 0], 5)
    out, weights = layer(x, mask=mask, return_weights=True)
    torch.testing.assert_close(out[0], layer(x[0], x[0, :3]))
    assert (out[1] == 0).all() and (weights[1] == 0).all() and (weights[0, :, :, 3:] == 0).all()
    torch.testing.assert_close(layer(x[0], mask=mask[0, 0]), out[0])


@pytest.mark.parametrize("kind", KINDS)
def test_nan_padding_reaches_neither_outputs_nor_weight_gradients(kind):
    layer = randomise(MultiHeadAttention(4, 2, activation=kind, bias=True, dtype=D))
    clean = randn(2, 5, 4)
    dirty = clean.clone()
    dirty[:, 3:] = float("nan")
    mask = padding_mask([3, 3], 5)

    def gradients(x):
        layer.zero_grad()
        out = layer(x, mask=mask)[:, :3]
        out.square().sum().backward()
        return out.detach(), [parameter.grad.clone() for parameter in layer.parameters()]

    for ours, expected in zip(gradients(dirty), gradients(clean), strict=True):
        torch.testing.assert_close(ours, expected)
    assert layer(dirty, mask=mask)[:, 3:].isnan().all()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"d_model": 0}, "d_model is 0"),
        ({"d_model": 5, "n_heads": 2}, "n_heads = 2 does not divide d_model = 5"),
        ({"d_model": 4, "n_heads": 2, "project": False, "d_out": 3}, "d_out is 3"),
        ({"d_model": 4, "activation": "tanh"}, "activation is 'tanh'"),
        ({"d_model": 4, "offset_tokens": 0}, "offset_tokens is 0"),
    ],
)
def test_bad_sizes_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**arguments)


def test_bad_inputs_are_named():
    layer = MultiHeadAttention(4, 2)
    with pytest.raises(ValueError, match="x has 3 features; this layer needs 4"):
        layer(torch.ones(5, 3))
    with pytest.raises(ValueError, match="dtype torch.float64"):
        layer(torch.ones(5, 4, dtype=D))
    with pytest.raises(ValueError, match="context has 3 features"):
        layer(torch.ones(5, 4), torch.ones(2, 3))
    with pytest.raises(ValueError, match="merged_weights"):
        MultiHeadAttention(4, 2, bias=True).merged_weights()


# --- feed-forward and blocks ---------------------------------------------------------------------


def test_feed_forward_is_the_same_for_every_token():
    network = FeedForward(4, 7, 3, dtype=D)
    x = randn(2, 5, 4)
    out = network(x)
    expected = (
        torch.relu(x @ network.hidden.weight.T + network.hidden.bias) @ network.output.weight.T
    )
    torch.testing.assert_close(out, expected + network.output.bias)
    torch.testing.assert_close(out[1, 2], network(x[1, 2:3])[0])
    with pytest.raises(ValueError, match="x has 3 features"):
        network(randn(5, 3))


def layer_norm(x):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("norm", ["post", "pre", None])
def test_encoder_block_is_what_its_text_says(norm, residual):
    block = encoder(norm, residual)
    for module in block.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.reset_parameters()
    x = expected = randn(2, 5, 4)
    for layer in (block.attention, block.feed_forward):
        result = layer(layer_norm(expected) if norm == "pre" else expected)
        expected = expected + result if residual else result
        expected = layer_norm(expected) if norm == "post" else expected
    torch.testing.assert_close(block(x), expected)


def test_encoder_block_agrees_with_torch():
    block = encoder("post", bias=True)
    theirs = torch.nn.TransformerEncoderLayer(4, 2, 7, dropout=0.0, batch_first=True, dtype=D)
    layer = block.attention
    with torch.no_grad():
        rows = [
            w.transpose(-1, -2).flatten(0, 1)
            for w in (layer.weight_q, layer.weight_k, layer.weight_v)
        ]
        theirs.self_attn.in_proj_weight.copy_(torch.cat(rows))
        theirs.self_attn.in_proj_bias.copy_(
            torch.cat([b.flatten() for b in (layer.bias_q, layer.bias_k, layer.bias_v)])
        )
        theirs.self_attn.out_proj.weight.copy_(layer.weight_o.flatten(0, 1).T)
        theirs.self_attn.out_proj.bias.copy_(layer.bias_o)
        theirs.linear1.load_state_dict(block.feed_forward.hidden.state_dict())
        theirs.linear2.load_state_dict(block.feed_forward.output.state_dict())
        theirs.norm1.load_state_dict(block.around_attention.norm.state_dict())
        theirs.norm2.load_state_dict(block.around_feed_forward.norm.state_dict())
    x = randn(3, 5, 4)
    torch.testing.assert_close(block(x), theirs(x))
    torch.testing.assert_close(block(x, causal=True), theirs(x, src_mask=~causal_mask(5)))


@pytest.mark.parametrize("norm", ["post", "pre", None])
def test_encoder_block_is_permutation_equivariant(norm):
    block = encoder(norm)
    x, order = randn(2, 5, 4), torch.tensor([4, 2, 0, 1, 3])
    torch.testing.assert_close(block(x[:, order]), block(x)[:, order])


def test_block_without_residual_may_change_width():
    block = EncoderBlock(
        MultiHeadAttention(4, 2, d_out=6), FeedForward(6, 5, 3), norm=None, residual=False
    )
    assert block(torch.randn(2, 5, 4)).shape == (2, 5, 3)


@pytest.mark.parametrize("norm", ["post", "pre", None])
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_blocks_keep_nan_behind_masks(norm, kind):
    block = encoder(norm) if kind == "encoder" else decoder(norm)
    clean, memory = randn(2, 5, 4), randn(2, 6, 3, seed=1)
    dirty, dirty_memory = clean.clone(), memory.clone()
    dirty[:, 3:] = float("nan")
    dirty_memory[:, 4:] = float("inf")

    def run(x, memory):
        if kind == "encoder":
            return block(x, mask=padding_mask([3, 3], 5))
        return block(x, memory, memory_mask=padding_mask([4, 4], 6))

    def gradients(x, memory):
        block.zero_grad()
        out = run(x, memory)[:, :3]
        out.square().sum().backward()
        return out.detach(), [parameter.grad.clone() for parameter in block.parameters()]

    for ours, expected in zip(
        gradients(dirty, dirty_memory), gradients(clean, memory), strict=True
    ):
        torch.testing.assert_close(ours, expected)
    assert run(dirty, dirty_memory)[:, 3:].isnan().all()


def test_memory_that_is_attended_to_and_not_finite_shows():
    block, memory = decoder(), randn(6, 3)
    memory[2, 0] = float("nan")
    mask = torch.ones(5, 6, dtype=torch.bool)
    mask[:2, 2] = False
    out = block(randn(5, 4), memory, memory_mask=mask)
    assert torch.isfinite(out[:2]).all() and out[2:].isnan().all()


@pytest.mark.parametrize("norm", ["post", "pre", None])
@pytest.mark.parametrize("t", range(5))
def test_decoder_block_is_causal_and_uses_the_memory(norm, t):
    block = decoder(norm)
    x, memory = randn(2, 5, 4), randn(2, 6, 3, seed=1)
    changed = x.clone()
    changed[:, t:] += randn(2, 5 - t, 4, seed=2)
    before, after = block(x, memory), block(changed, memory)
    torch.testing.assert_close(before[:, :t], after[:, :t], atol=0, rtol=0)
    assert (before[:, t] - after[:, t]).abs().max() > 1e-3
    assert (block(x, -memory) - before).abs().amax((0, 2)).min() > 1e-3


def test_decoder_without_encoder():
    block = DecoderBlock(MultiHeadAttention(4, 2), None, FeedForward(4, 7))
    assert block(torch.randn(2, 5, 4)).shape == (2, 5, 4)
    with pytest.raises(ValueError, match="memory is given"):
        block(torch.randn(2, 5, 4), torch.randn(2, 5, 4))
    with pytest.raises(ValueError, match="memory is missing"):
        decoder()(randn(2, 5, 4))


@pytest.mark.parametrize(
    "build, message",
    [
        (
            lambda: EncoderBlock(MultiHeadAttention(4), FeedForward(3, 5)),
            "attention gives 4 features, feed_forward",
        ),
        (
            lambda: EncoderBlock(MultiHeadAttention(4, d_out=3), FeedForward(3, 5)),
            "attention maps 4 features to 3",
        ),
        (
            lambda: EncoderBlock(MultiHeadAttention(4), FeedForward(4, 5, 2)),
            "feed_forward maps 4 features to 2",
        ),
        (
            lambda: EncoderBlock(MultiHeadAttention(4), FeedForward(4, 5), norm="mid"),
            "norm is 'mid'",
        ),
        (
            lambda: EncoderBlock(MultiHeadAttention(4, d_context=3), FeedForward(4, 5)),
            "context of 3 features",
        ),
        (
            lambda: DecoderBlock(MultiHeadAttention(4), MultiHeadAttention(3), FeedForward(4, 5)),
            "attention gives 4 features, cross_attention takes 3",
        ),
    ],
)
def test_blocks_whose_layers_do_not_fit_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("build", [encoder, decoder])
def test_gradients_of_blocks(build):
    block = build()
    x = randn(3, 4).requires_grad_()
    arguments = (x,) if build is encoder else (x, randn(4, 3, seed=1).requires_grad_())
    assert torch.autograd.gradcheck(block, arguments)
