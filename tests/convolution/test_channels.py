"""Heads, their dimension, and how many channels they can make (cnv-03, cnv-06, cnv-07)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fourviews.convolution import attention_from_conv, heads_needed

from .cases import randomised, scale


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def convolution(seed: int, d: int, o: int, size=(3, 3)) -> nn.Module:
    kind = (nn.Conv1d, nn.Conv2d)[len(size) - 1]
    return randomised(kind(d, o, size, padding="same", dtype=torch.float64), generator(seed))


def channels(head_dim: int, d_in: int, d_out: int) -> int:
    """Output channels of which every convolution can be made, in the repaired statement."""
    return d_out if head_dim >= d_in else min(head_dim, d_out)


# --- cnv-03, cnv-07: enough --------------------------------------------------------------


@torch.no_grad()
def made(conv: nn.Module, head_dim: int, outputs: int, seed: int) -> float:
    """Error, relative to Σ|W| max|x|, of the first outputs; one head an entry of the kernel."""
    whole = outputs == conv.out_channels and head_dim >= conv.in_channels
    layer = attention_from_conv(conv, head_dim=head_dim, outputs=None if whole else range(outputs))
    assert layer.n_heads == conv.weight[0, 0].numel() and layer.head_dim == head_dim
    x = randn(seed, 2, conv.in_channels, *(5, 6)[: len(conv.kernel_size)])
    error = (layer(x) - conv(x))[:, :outputs].abs().max()
    return float(error) / scale(conv, x)


@pytest.mark.claim("cnv-03/channels", verdict="corrected")
@pytest.mark.claim("cnv-07/channels", verdict="corrected")
@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from([(1,), (3,), (4,), (3, 3), (2, 4), (1, 5)]),
)
def test_cnv_03_enough_channels(seed, d, o, head_dim, size) -> None:
    """D_out channels if D_h ≥ D_in, else min(D_h, D_out); rectangles too."""
    assert made(convolution(seed, d, o, size), head_dim, channels(head_dim, d, o), seed) < 1e-12


# --- cnv-03, cnv-07: not more --------------------------------------------------------------


def attention_output(x: Tensor, heads: int, head_dim: int, o: int, seed: int) -> Tensor:
    """A layer with arbitrary attention, arbitrary values and projection."""
    t, d = x.shape
    weights = torch.softmax(5 * randn(seed, heads, t, t), -1)
    values = weights @ x @ randn(seed + 1, heads, d, head_dim)
    return (values @ randn(seed + 2, heads, head_dim, o)).sum(0)


def largest_rank(heads: int, head_dim: int, d: int) -> int:
    """Rank of the layer's output: heads of dimension D_h add up to N_h D_h."""
    ranks = [
        int(torch.linalg.matrix_rank(attention_output(randn(s, 9, d), heads, head_dim, d, s)))
        for s in range(20)
    ]
    return max(ranks)


@pytest.mark.claim("cnv-03/channels", verdict="corrected")
@pytest.mark.claim("cnv-07/channels", verdict="corrected")
@pytest.mark.parametrize(("heads", "head_dim", "d"), [(1, 1, 2), (1, 2, 3), (4, 1, 5), (3, 2, 7)])
def test_cnv_03_counterexample_too_few_head_dimensions(heads, head_dim, d) -> None:
    """N_h·D_h < min(D_in, D_out): the identity at one entry of the kernel is out of reach.

    The result of the layer has rank N_h·D_h at most, whatever its attention; the convolution's on
    X with orthonormal columns has rank d, and its distance from all matrices of smaller rank is 1.
    """
    assert largest_rank(heads, head_dim, d) <= heads * head_dim < d
    x = torch.linalg.qr(randn(0, 9, d)).Q
    assert float(torch.linalg.svdvals(x)[heads * head_dim]) > 0.999


@pytest.mark.claim("cnv-03/channels", verdict="corrected")
def test_cnv_03_counterexample_too_few_channels() -> None:
    """D_in = 1: the printed min(D_in, D_out) is one channel, and all of them can be made."""
    assert made(convolution(0, 1, 4), 1, 4, 0) < 1e-12


@pytest.mark.mutation("cnv-03/channels")
@pytest.mark.mutation("cnv-07/channels")
def test_cnv_03_one_channel_more_is_noticed() -> None:
    conv = convolution(3, 3, 4)
    assert channels(2, 3, 4) == 2
    layer = attention_from_conv(conv, head_dim=2, outputs=(0, 1))
    x = randn(0, 1, 3, 5, 5)
    with torch.no_grad():
        error = (layer(x) - conv(x)).abs().amax((0, 2, 3))
    assert float(error[:2].max()) < 1e-12 * scale(conv, x) < 1e-4 < float(error[2:].min())


@pytest.mark.claim("cnv-03/heads", verdict="verified")
@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_cnv_03_more_heads_make_up_for_small_ones(seed, d, o, head_dim) -> None:
    """Σ_δ ⌈rank W_δ / D_h⌉ heads make the whole convolution, with any D_h."""
    conv = convolution(seed, d, o, (2, 3))
    layer = attention_from_conv(conv, head_dim=head_dim)
    matrices = conv.weight.detach().flatten(2).permute(2, 1, 0)
    assert layer.n_heads == heads_needed(matrices, head_dim)
    assert layer.n_heads == 6 * -(-min(d, o) // head_dim)
    x = randn(seed, 1, d, 4, 5)
    with torch.no_grad():
        for path in ("fast", "dense"):
            error = float((layer(x, path=path) - conv(x)).abs().max())
            assert error < 1e-12 * scale(conv, x)


def test_entries_of_rank_zero_need_no_head() -> None:
    conv = convolution(0, 3, 3)
    with torch.no_grad():
        conv.weight[:, :, 0] = 0
        conv.weight[:, :, 1, 1] = torch.ones(3, 3)
    layer = attention_from_conv(conv, head_dim=1)
    assert layer.n_heads == 5 * 3 + 1
    x = randn(0, 1, 3, 4, 5)
    with torch.no_grad():
        assert float((layer(x) - conv(x)).abs().max()) < 1e-12 * scale(conv, x)
        conv.weight.zero_()
        nothing = attention_from_conv(conv, head_dim=1)
        assert nothing.n_heads == 1
        assert torch.equal(nothing(x), conv.bias.view(1, 3, 1, 1).expand(1, 3, 4, 5))


@pytest.mark.claim("cnv-03/heads", verdict="verified")
def test_cnv_03_heads_that_mix_places_can_do_with_less() -> None:
    """Two entries of rank 2, two heads of dimension 1: one-hot heads would need four.

    W_1 = E + F and W_2 = E + 2F with E, F of rank 1: heads that give (1/2, 1/2) and (1/3, 2/3) to
    the two places.  So the count of heads is exact for heads that look at one place each.
    """
    e, f = torch.diag(torch.tensor([1.0, 0.0])), torch.diag(torch.tensor([0.0, 1.0]))
    first, second = e + f, e + 2 * f
    assert heads_needed(torch.stack([first, second]), 1) == 4
    x = randn(0, 7, 2).float()
    other = x.roll(-1, 0)
    wanted = x @ first + other @ second
    got = (x + other) / 2 @ (2 * e) + (x + 2 * other) / 3 @ (3 * f)
    assert torch.allclose(wanted, got, atol=1e-6)


# --- cnv-03: the dimension of the encoding ------------------------------------------------


def places_singled_out(encoding: Tensor) -> int:
    """How many places have the largest score for some v, tried in all directions of the plane."""
    angles = torch.linspace(0, 2 * torch.pi, 100_001, dtype=torch.float64)[:-1]
    directions = torch.stack([angles.cos(), angles.sin()])[: encoding.shape[1]]
    if encoding.shape[1] == 1:
        directions = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    return len(set((encoding @ directions).argmax(0).tolist()))


@pytest.mark.claim("cnv-03/encoding", verdict="verified")
def test_cnv_03_three_dimensions_suffice_two_would() -> None:
    """A place needs to be a corner of the convex hull of all encodings.

    (n², n) with the places numbered is a curve all of whose points are: dimension 2 is enough for
    a plane too, for an encoding that is chosen freely.  On a line there are two corners.  Of
    encodings that depend on δ through a quadratic, (‖δ‖², δ) is the smallest.
    """
    side = torch.arange(-1.0, 2.0, dtype=torch.float64)
    delta = torch.cartesian_prod(side, side)
    number = (delta[:, 0] * 3 + delta[:, 1])[:, None]
    scores = torch.cat([number**2, number], 1) @ torch.cat([-torch.ones(9, 1), 2 * number], 1).mT
    assert scores.argmax(0).tolist() == list(range(9))
    assert places_singled_out(torch.cat([number**2, number], 1)) == 9
    assert places_singled_out(number) == 2
    # Without the square the middle of the kernel cannot be singled out: only corners can.
    assert places_singled_out(delta) == 4
    conv = convolution(0, 2, 2)
    assert attention_from_conv(conv).weight_r.shape == (3, 3)
    assert made(conv, 2, 2, 0) < 1e-12


@pytest.mark.mutation("cnv-03/encoding")
def test_cnv_03_without_the_square_it_fails() -> None:
    conv = convolution(0, 2, 2)
    layer = attention_from_conv(conv, alpha=50.0)
    x = randn(0, 1, 2, 5, 5)
    with torch.no_grad():
        exact = float((layer(x, path="dense") - conv(x)).abs().max())
        layer.weight_r[0, 0] = 0
        wrong = float((layer(x, path="dense") - conv(x)).abs().max())
    assert exact < 1e-9 * scale(conv, x) < 1e-3 * wrong


@pytest.mark.mutation("cnv-03/heads")
def test_cnv_03_a_head_less_is_noticed() -> None:
    conv = convolution(1, 3, 3, (1, 2))
    layer = attention_from_conv(conv, head_dim=2)
    x = randn(0, 1, 3, 4, 4)
    with torch.no_grad():
        layer.weight_v[-1] = 0
        assert float((layer(x) - conv(x)).abs().max()) > 1e-8 * scale(conv, x)


# --- cnv-06 --------------------------------------------------------------------------------


def rank_of_a_head(d: int, o: int, head_dim: int) -> int:
    return max(
        int(torch.linalg.matrix_rank(randn(s, d, head_dim) @ randn(s + 99, head_dim, o)))
        for s in range(5)
    )


@pytest.mark.claim("cnv-06/rank", verdict="corrected")
@pytest.mark.parametrize("d", [1, 3, 6])
@pytest.mark.parametrize("o", [2, 5])
@pytest.mark.parametrize("head_dim", [1, 2, 4])
def test_cnv_06_rank(d, o, head_dim) -> None:
    """A product of d × D_h and D_h × o matrices has rank min(D_h, d, o) at most, and reaches it."""
    assert rank_of_a_head(d, o, head_dim) == min(head_dim, d, o)


@pytest.mark.claim("cnv-06/rank", verdict="corrected")
def test_cnv_06_counterexample_to_the_rank() -> None:
    """D_h = 1, D_out = 5: the rank printed is 4, the product has 1, in whole numbers."""
    value = torch.tensor([[2], [3], [5], [7], [11]])
    projection = torch.tensor([[1, 2, 4, 8, 16]])
    product = value @ projection
    minors = [
        int(product[i, k] * product[j, m] - product[i, m] * product[j, k])
        for i in range(5) for j in range(i) for k in range(5) for m in range(k)
    ]  # fmt: skip
    printed = 5 - 1
    assert set(minors) == {0} and int(product.abs().max()) > 0  # so the rank is 1
    assert int(torch.linalg.matrix_rank(product.double())) == 1 < printed


@pytest.mark.mutation("cnv-06/rank")
def test_cnv_06_the_printed_rank_fails() -> None:
    assert rank_of_a_head(6, 5, 1) != 5 - 1
    assert rank_of_a_head(6, 5, 4) != 5 - 4


@pytest.mark.claim("cnv-06/not-every", verdict="conditional")
def test_cnv_06_not_every_convolution_if_inputs_are_more_than_head_dimensions() -> None:
    """K = 1, one head: D_h < D_in is what it needs. With D_in ≤ D_h < D_out all can be made."""
    conv = convolution(0, 3, 4, (1, 1))
    matrix = conv.weight.detach()[:, :, 0, 0].T
    singular = torch.linalg.svdvals(matrix)
    assert heads_needed(matrix[None], 2) == 2 and heads_needed(matrix[None], 3) == 1
    x = torch.linalg.qr(randn(0, 12, 3)).Q
    for seed in range(20):  # at best the next singular value is missed
        best = attention_output(x, 1, 2, 4, seed)
        assert float((best - x @ matrix).norm()) >= float(singular[2])
    assert made(convolution(1, 3, 4), 3, 4, 0) < 1e-12


@pytest.mark.mutation("cnv-06/not-every")
def test_cnv_06_enough_head_dimensions_are_noticed() -> None:
    matrix = convolution(0, 3, 4, (1, 1)).weight.detach()[:, :, 0, 0].T
    assert heads_needed(matrix[None], 3) == 1
    with pytest.raises(AssertionError):
        assert heads_needed(matrix[None], 2) == 1


@pytest.mark.claim("cnv-06/any-outputs", verdict="verified")
@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 5), st.permutations(range(5)), st.integers(1, 4))
def test_cnv_06_any_outputs(seed, d, order, head_dim) -> None:
    conv = convolution(seed, d, 5)
    chosen = order[:head_dim]
    layer = attention_from_conv(conv, head_dim=head_dim, outputs=chosen)
    assert layer.n_heads == 9 and layer.head_dim == head_dim
    x = randn(seed, 1, d, 4, 5)
    with torch.no_grad():
        error = (layer(x) - conv(x))[:, chosen].abs().max()
    assert float(error) < 1e-12 * scale(conv, x)


@pytest.mark.mutation("cnv-06/any-outputs")
def test_cnv_06_other_outputs_are_lost() -> None:
    conv = convolution(0, 5, 5)
    layer = attention_from_conv(conv, head_dim=2, outputs=(1, 4))
    x = randn(0, 1, 5, 4, 5)
    with torch.no_grad():
        error = (layer(x) - conv(x)).abs().amax((0, 2, 3)) / scale(conv, x)
    assert bool((error > 1e-6).eq(torch.tensor([True, False, True, True, False])).all())


def test_clear_errors() -> None:
    conv = convolution(0, 2, 3)
    with pytest.raises(ValueError, match="head_dim is 0"):
        attention_from_conv(conv, head_dim=0)
    with pytest.raises(ValueError, match="head_dim is 0"):
        heads_needed(randn(0, 1, 2, 2), 0)
    for outputs in ((), (0, 0), (0, 1, 2)):
        with pytest.raises(ValueError, match="outputs is"):
            attention_from_conv(conv, head_dim=2, outputs=outputs)
    with pytest.raises(ValueError, match="channels 0 to 2"):
        attention_from_conv(conv, head_dim=1, outputs=(3,))
