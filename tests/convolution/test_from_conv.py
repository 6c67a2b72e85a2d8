"""Any convolution as attention: agreement, borders, sharpness (cnv-04, cnv-05, cnv-07, cnv-08)."""

from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from fourviews.convolution import attention_from_conv, leak_bound, offset_query, quadratic_encoding

from .cases import PADDINGS, Case, accepted, cases, randomised, scale

TOLERANCE = 1e-12


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def conv2d(*args, **options) -> nn.Conv2d:
    return randomised(nn.Conv2d(*args, dtype=torch.float64, **options), generator(7)).eval()


@torch.no_grad()
def agree(case: Case, **options) -> None:
    """Fast and dense path give the convolution's output, in the one-hot limit."""
    expected = accepted(case)
    if expected is None:
        with pytest.raises(ValueError, match="grid has a side of"):
            attention_from_conv(case.conv)(case.x)
        return
    layer = attention_from_conv(case.conv, **options)
    bound = TOLERANCE * scale(case.conv, case.x)
    for path in ("fast", "dense"):
        result = layer(case.x, path=path)
        assert result.shape == expected.shape
        assert result.numel() == 0 or float((result - expected).abs().max()) <= bound, path


# --- agreement ---------------------------------------------------------------------------


@pytest.mark.claim("cnv-08/stride-and-dilation", verdict="verified")
@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("padding", PADDINGS)
def test_every_combination(padding, stride, dilation, groups, even) -> None:
    if padding == "same" and stride > 1:
        with pytest.raises(ValueError, match="strided"):  # torch has no such convolution
            nn.Conv2d(2, 2, 3, stride=stride, padding="same")
        return
    found = []

    @settings(max_examples=4)
    @given(cases(2, padding, stride, dilation, groups, even))
    def run(case: Case) -> None:
        found.append(accepted(case) is not None)
        agree(case)

    run()
    assert any(found), "torch refused all inputs that were drawn"


@settings(max_examples=60)
@given(cases(2))
def test_mixed_settings_of_the_axes(case: Case) -> None:
    agree(case)


@pytest.mark.claim("cnv-07/encoding", verdict="verified")
@settings(max_examples=60)
@given(cases(1, largest=12))
def test_cnv_07_sequences(case: Case) -> None:
    """One head an entry of the kernel and an encoding of dimension 2."""
    agree(case)
    layer = attention_from_conv(case.conv)
    assert layer.n_heads == case.conv.kernel_size[0]
    assert layer.weight_r.shape == (2, 2)


@pytest.mark.mutation("cnv-07/encoding")
def test_cnv_07_with_one_head_less() -> None:
    conv = nn.Conv1d(2, 2, 3, padding=1, dtype=torch.float64)
    layer = attention_from_conv(conv)
    with torch.no_grad():
        layer.weight_v[2] = 0
        x = randn(1, 2, 8)
        assert float((layer(x) - conv(x)).abs().max()) > 1e-3


@settings(max_examples=40)
@given(cases(2, dtype=torch.float32))
def test_single_precision(case: Case) -> None:
    expected = accepted(case)
    assume(expected is not None and expected.numel() > 0)
    with torch.no_grad():
        result = attention_from_conv(case.conv)(case.x)
    assert float((result - expected).abs().max()) <= 3e-6 * scale(case.conv, case.x)


@settings(max_examples=40)
@given(cases(2), st.floats(0.05, 20))
def test_paths_agree_at_finite_sharpness(case: Case, alpha: float) -> None:
    assume(accepted(case) is not None)
    layer = attention_from_conv(case.conv, alpha=alpha)
    with torch.no_grad():
        fast, dense = layer(case.x, path="fast"), layer(case.x, path="dense")
    bound = TOLERANCE * scale(case.conv, case.x)
    assert fast.numel() == 0 or float((fast - dense).abs().max()) <= bound


@torch.no_grad()
@pytest.mark.parametrize("mode", ["constant", "circular", "reflect", "replicate"])
def test_padding_of_ones_own(mode) -> None:
    """Different before and after, as TensorFlow's «same» with a stride: F.pad, then valid."""
    plain = conv2d(2, 3, (3, 2), stride=2, dilation=(1, 2))
    x = randn(2, 2, 6, 7)
    pairs = ((0, 1), (3, 2))
    padded = nn.functional.pad(x, (3, 2, 0, 1), mode=mode)
    border = "zeros" if mode == "constant" else mode
    conv = conv2d(2, 3, (3, 2), stride=2, dilation=(1, 2), padding_mode=border)
    conv.load_state_dict(plain.state_dict())
    layer = attention_from_conv(conv, padding=pairs)
    assert float((layer(x) - plain(padded)).abs().max()) <= TOLERANCE * scale(conv, x)

    class Derived(nn.Conv2d):
        pass

    derived = Derived(1, 1, 3)
    assert attention_from_conv(derived, padding=((0, 0), (1, 0))).out_grid((3, 2)) == (1, 1)
    with pytest.raises(ValueError, match="conv is a Derived"):
        attention_from_conv(derived)
    for wrong in (((0, 0),), ((0, 0), (-1, 0)), ((0,), (1,))):
        with pytest.raises(ValueError, match="padding is"):
            attention_from_conv(conv, padding=wrong)


def test_layouts() -> None:
    conv = conv2d(3, 4, (2, 3), padding=(1, 2), stride=(2, 1))
    layer, last = attention_from_conv(conv), attention_from_conv(conv, channels="last")
    x = randn(2, 3, 6, 5)
    with torch.no_grad():
        expected = conv(x)
        bound = TOLERANCE * scale(conv, x)
        in_memory = layer(x.contiguous(memory_format=torch.channels_last))
        assert in_memory.is_contiguous(memory_format=torch.channels_last)
        assert layer(x).is_contiguous()
        for result in (in_memory, layer(x), last(x.movedim(1, -1)).movedim(-1, 1)):
            assert float((result - expected).abs().max()) <= bound
        assert float((layer(x[0]) - expected[0]).abs().max()) <= bound
        assert float((last(x[0].movedim(0, -1)).movedim(-1, 0) - expected[0]).abs().max()) <= bound


def test_gradients_agree() -> None:
    conv = conv2d(3, 4, 3, padding=1)
    x = randn(2, 3, 5, 6).requires_grad_()
    y = randn(2, 4, 5, 6, seed=1)
    wanted = torch.autograd.grad((conv(x) * y).sum(), x)[0]
    for alpha, tolerance in ((math.inf, 1e-12), (60.0, 1e-12)):
        layer = attention_from_conv(conv, alpha=alpha)
        for path in ("fast", "dense"):
            got = torch.autograd.grad((layer(x, path=path) * y).sum(), x)[0]
            assert float((got - wanted).abs().max()) <= tolerance * scale(conv, y)


def test_deep_in_underflow_the_softmax_is_the_limit() -> None:
    """exp(-746) is 0 in float64, exp(-104) in float32: no special case is needed."""
    for dtype, alpha in ((torch.float64, 746.0), (torch.float32, 104.0)):
        conv = nn.Conv2d(2, 3, 3, padding=1, dtype=dtype)
        layer = attention_from_conv(conv, alpha=alpha)
        x = torch.randn(1, 2, 6, 6, generator=generator(), dtype=dtype)
        for weights in (layer.attention_maps(x), *layer.key_weights((6, 6))):
            assert set(weights.unique().tolist()) == {0.0, 1.0}


# --- cnv-05: the limit --------------------------------------------------------------------


@pytest.mark.claim("cnv-05/limit", verdict="corrected")
@pytest.mark.parametrize("alpha", [0.01, 0.3, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("dims", [1, 2])
def test_cnv_05_never_one_and_how_near(alpha, dims) -> None:
    """1 - A on an unbounded grid is 1 - θ₃^-m: positive for each α, below θ₃^m - 1."""
    reach = math.ceil(math.sqrt(50 / alpha)) + 1
    side = torch.arange(-reach, reach + 1, dtype=torch.float64)
    delta = torch.cartesian_prod(*[side] * dims).view(-1, dims)
    target = torch.tensor([1.0, -1.0])[:dims].double()
    scores = quadratic_encoding(delta) @ offset_query(target, alpha)
    weights = torch.softmax(scores, 0)
    others = weights[(delta != target).any(-1)].sum()
    assert float(others) > 0
    assert bool((delta[weights.argmax()] == target).all())
    bound = leak_bound(alpha, dims)
    # The target is off the centre of the square, so one side is cut where terms are e^-50.
    assert abs(float(others) - bound) <= 1e-12 * bound + 1e-19
    kept = float(weights.max())
    assert bound <= 1 / kept - 1 + 1e-15  # θ₃^m - 1
    if alpha >= 4:
        assert abs(bound / (2 * dims * math.exp(-alpha)) - 1) < 0.1


def one_hot(alpha: float) -> None:
    """The statement as printed: weight one at the offset, zero elsewhere."""
    delta = torch.arange(-4.0, 5.0, dtype=torch.float64)[:, None]
    weights = torch.softmax(
        quadratic_encoding(delta) @ offset_query(torch.ones(1).double(), alpha), 0
    )
    assert weights.tolist() == [float(d == 1) for d in delta[:, 0]]


@pytest.mark.claim("cnv-05/limit", verdict="corrected")
def test_cnv_05_counterexample() -> None:
    """Scores are finite, so every weight is positive; e^-α is far above rounding."""
    for alpha in (1.0, 10.0, 100.0):
        with pytest.raises(AssertionError):
            one_hot(alpha)
    one_hot(800.0)  # the rounded softmax gets there, the exact one does not


@torch.no_grad()
def bound_holds(case: Case, alpha: float, shrink: float = 1.0) -> None:
    expected = accepted(case)
    if expected is None or not expected.numel():
        return
    layer = attention_from_conv(case.conv, alpha=alpha)
    grid = case.x.shape[-len(case.conv.kernel_size) :]
    span = (float(case.x.min()), float(case.x.max()))
    error = float((layer(case.x) - expected).abs().max())
    bounds = [layer.error_bound(span, grid, method=method) for method in ("joint", "heads", None)]
    assert error <= shrink * bounds[0]
    slack = 1e-14 * scale(case.conv, case.x)
    assert bounds[0] <= bounds[1] * (1 + 1e-9) + slack and bounds[2] == bounds[0]


@pytest.mark.claim("cnv-05/error", verdict="verified")
@settings(max_examples=60)
@given(st.integers(1, 2).flatmap(lambda dims: cases(dims)), st.floats(0.02, 60))
def test_cnv_05_error_bound_holds(case: Case, alpha: float) -> None:
    bound_holds(case, alpha)


@settings(max_examples=30)
@given(cases(2, dtype=torch.float32), st.floats(0.02, 60))
def test_cnv_05_error_bound_holds_in_single_precision(case: Case, alpha: float) -> None:
    bound_holds(case, alpha)


@torch.no_grad()
def bound_is_tight(case: Case, alpha: float, span: tuple[float, float], factor: float) -> None:
    grid = case.x.shape[-len(case.conv.kernel_size) :]
    if accepted(case) is None:
        return
    layer = attention_from_conv(case.conv, alpha=alpha)
    x, error = layer.worst_case_input(span, grid)
    assert float(x.min()) >= span[0] and float(x.max()) <= span[1]
    seen = float((layer(x) - case.conv(x)).abs().max())
    bound = layer.error_bound(span, grid)
    rounding = bound - error
    assert abs(seen - error) <= rounding
    assert seen <= bound
    if error > 1e-9 * scale(case.conv, x):  # else both are rounding
        assert seen >= bound / factor


@pytest.mark.claim("cnv-05/error", verdict="verified")
@settings(max_examples=60)
@given(
    st.integers(1, 2).flatmap(lambda dims: cases(dims)),
    st.floats(0.02, 15),
    st.sampled_from([(-1.0, 1.0), (0.0, 1.0), (2.0, 3.0), (-5.0, -4.0)]),
)
def test_cnv_05_error_bound_is_tight(case: Case, alpha: float, span) -> None:
    bound_is_tight(case, alpha, span, 1.01)


@pytest.mark.mutation("cnv-05/error")
def test_cnv_05_a_bound_that_is_too_small_or_too_large_is_noticed() -> None:
    conv = conv2d(2, 2, 3, padding=1)
    layer = attention_from_conv(conv, alpha=3.0)
    x, _ = layer.worst_case_input((-1.0, 1.0), (6, 6))
    with pytest.raises(AssertionError):
        bound_holds(Case(conv, x), 3.0, shrink=0.99)
    with pytest.raises(AssertionError):
        bound_is_tight(Case(conv, x), 3.0, (-1.0, 1.0), 0.99)


@pytest.mark.mutation("cnv-05/limit")
def test_cnv_05_leak_of_half_the_sharpness_is_noticed() -> None:
    assert leak_bound(4.0) < 0.2 * leak_bound(2.0)
    conv = nn.Conv2d(1, 1, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        conv.weight.fill_(1.0)
        x, _ = attention_from_conv(conv, alpha=4.0).worst_case_input((0.0, 1.0), (15, 15))
        error = float((attention_from_conv(conv, alpha=2.0)(x) - conv(x)).abs().max())
    assert error > 2 * leak_bound(4.0)


@pytest.mark.claim("cnv-05/error", verdict="verified")
@pytest.mark.parametrize("alpha", [0.5, 2.0, 8.0])
def test_cnv_05_sum_over_heads_from_theta(alpha) -> None:
    """Σ_h ε‖W_h‖·range with ε from θ₃ alone, whatever the border and the grid."""
    for mode, shape in itertools.product(("zeros", "circular", "reflect", "replicate"), ((5, 7),)):
        conv = conv2d(2, 3, 3, padding=2, padding_mode=mode, bias=False)
        layer = attention_from_conv(conv, alpha=alpha)
        weights = conv.weight.detach().abs().sum((1, 2, 3)).max()
        simple = leak_bound(alpha) * float(weights) * 2.0
        assert layer.error_bound((-1.0, 1.0), shape, method="heads") <= simple * (1 + 1e-9) + 1e-9
        assert layer.error_bound((-1.0, 1.0), shape) <= simple * (1 + 1e-9) + 1e-9


def test_wide_smooth_kernels_need_the_joint_bound() -> None:
    """A box of 13×13 pixels: what a head loses inside of it, its neighbours win."""
    conv = nn.Conv2d(1, 1, 13, padding=6, bias=False, dtype=torch.float64)
    nn.init.constant_(conv.weight, 1.0)
    layer = attention_from_conv(conv, alpha=5.0)
    x, error = layer.worst_case_input((-1.0, 1.0), (32, 32))
    assert layer.error_bound((-1.0, 1.0), (32, 32), method="heads") > 10 * error
    assert layer.error_bound((-1.0, 1.0), (32, 32)) <= 1.01 * error


# --- cnv-04: the sign of the offset ---------------------------------------------------------


def heads_look_at(x: torch.Tensor, conv: nn.Conv1d, sign: int, entry) -> torch.Tensor:
    """Σ_δ x at q + sign·δ times W at entry(δ), on the circle: heads with one-hot attention."""
    kernel = conv.weight.detach()
    first = -((kernel.shape[2] - 1) // 2)
    result = torch.zeros(conv.out_channels, x.shape[1], dtype=x.dtype)
    for a in range(kernel.shape[2]):
        delta = first + a
        result += kernel[:, :, entry(a)] @ x.roll(-sign * delta, 1)
    return result


def lemma_1(sign: int, size: int, entry=lambda a: a) -> float:
    """Largest difference to the convolution, which reads the pixel at q + δ."""
    conv = nn.Conv1d(2, 3, size, padding="same", padding_mode="circular", bias=False).double()
    x = randn(2, 8)
    return float((heads_look_at(x, conv, sign, entry) - conv(x[None])[0]).detach().abs().max())


@pytest.mark.claim("cnv-04", verdict="corrected")
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_cnv_04_the_key_stands_at_query_plus_offset(size) -> None:
    """With k - q = f(h), W_val of head h is the kernel's entry at f(h), for odd and even K."""
    assert lemma_1(+1, size) < 1e-14


@pytest.mark.claim("cnv-04", verdict="corrected")
def test_cnv_04_counterexample_to_query_minus_key() -> None:
    """As printed, f(h) = q - k: heads look at q - δ.

    For an odd kernel the set of offsets is symmetric: the layer is then the convolution if head h
    gets the entry at -f(h), and the mirrored one if it gets its own.  For K = 2 the offsets are 0
    and 1, heads look at q and q - 1, and no value matrices make a layer that reads q + 1.
    """
    assert lemma_1(-1, 3) > 0.1
    assert lemma_1(-1, 3, lambda a: 2 - a) < 1e-14
    # The layer's output at q does not change with x at q + 1, the convolution's does.
    conv = nn.Conv1d(1, 1, 2, padding="same", padding_mode="circular", bias=False).double()
    x = randn(1, 8)
    y = x.clone()
    y[0, 4] += 1
    for entry in (lambda a: a, lambda a: 1 - a):
        same = heads_look_at(x, conv, -1, entry)[0, 3] - heads_look_at(y, conv, -1, entry)[0, 3]
        assert float(same.abs()) == 0
    with torch.no_grad():
        assert float((conv(x[None]) - conv(y[None]))[0, 0, 3].abs()) > 0.01


@pytest.mark.mutation("cnv-04")
def test_cnv_04_layer_with_mirrored_offsets() -> None:
    conv = conv2d(2, 3, 3, padding=1)
    layer = attention_from_conv(conv)
    layer.offsets.neg_()
    x = randn(1, 2, 6, 6)
    with torch.no_grad():
        assert float((layer(x) - conv(x)).abs().max()) > 0.01


# --- cnv-08: borders ------------------------------------------------------------------------


@pytest.mark.claim("cnv-08/padding", verdict="conditional")
@settings(max_examples=40)
@given(cases(2))
def test_cnv_08_weights_sum_to_one_over_the_tokens(case: Case) -> None:
    """With the extra tokens; over the pixels alone only without zeros."""
    assume(accepted(case) is not None)
    layer = attention_from_conv(case.conv, alpha=2.0)
    grid = case.x.shape[-2:]
    for weights in layer.key_weights(grid):
        assert float((weights.sum(-1) - 1).abs().max()) < 1e-13
    for axis, weights, size in zip(layer.axes, layer.pixel_weights(grid), grid, strict=True):
        tokens = len(axis.keys(size)[0])
        extra = axis.before + axis.after if axis.border in ("zeros", "reflect") else 0
        assert tokens == size + extra
        assert (float(weights.sum(-1).min()) < 1 - 1e-9) <= (axis.border == "zeros" and extra > 0)


@pytest.mark.claim("cnv-08/padding", verdict="conditional")
def test_cnv_08_zero_padding_needs_an_extra_token() -> None:
    """A constant image: any attention over pixels gives a constant, zero padding does not.

    Whatever the weights A^h, rows sum to one: Σ_h A^h 1 W_h = 1 Σ_h W_h.
    """
    conv = nn.Conv2d(1, 1, 3, padding=1, bias=False, dtype=torch.float64)
    nn.init.constant_(conv.weight, 1.0)
    ones = torch.ones(1, 1, 5, 5, dtype=torch.float64)
    weights = torch.softmax(10 * randn(9, 25, 25), -1)
    pixels_only = (weights @ ones.view(25, 1) @ conv.weight.detach().view(9, 1, 1)).sum(0)
    assert float(pixels_only.max() - pixels_only.min()) < 1e-12
    with torch.no_grad():
        assert float(conv(ones).max() - conv(ones).min()) == 5.0
        assert float((attention_from_conv(conv)(ones) - conv(ones)).abs().max()) < 1e-12


@pytest.mark.claim("cnv-08/padding", verdict="conditional")
@pytest.mark.parametrize("other", ["zeros", "reflect", "circular"])
def test_cnv_08_pixels_alone_replicate(other) -> None:
    """Take the tokens beyond the border away: what is left is replicate padding."""
    conv = conv2d(2, 2, 5, padding=2, padding_mode=other)
    twin = conv2d(2, 2, 5, padding=2, padding_mode="replicate")
    twin.load_state_dict(conv.state_dict())
    x = randn(1, 2, 6, 6)
    layer, bare = attention_from_conv(conv), attention_from_conv(twin)
    assert torch.equal(layer.v((6, 6)), bare.v((6, 6))) or other == "circular"
    with torch.no_grad():
        assert float((bare(x) - twin(x)).abs().max()) <= TOLERANCE * scale(conv, x)
        assert float((bare(x) - conv(x)).abs().max()) > 0.1


@pytest.mark.mutation("cnv-08/padding")
@pytest.mark.parametrize("mode", ["zeros", "circular", "reflect"])
def test_cnv_08_wrong_border_is_noticed(mode) -> None:
    conv = conv2d(1, 1, 3, padding=1, padding_mode="replicate")
    wrong = conv2d(1, 1, 3, padding=1, padding_mode=mode)
    wrong.load_state_dict(conv.state_dict())
    x = randn(1, 1, 5, 5)
    with torch.no_grad():
        assert float((attention_from_conv(wrong)(x) - conv(x)).abs().max()) > 1e-3


@pytest.mark.mutation("cnv-08/stride-and-dilation")
def test_cnv_08_wrong_stride_is_noticed() -> None:
    conv = conv2d(1, 1, 3, stride=2, padding=1)
    wrong = conv2d(1, 1, 3, stride=2, padding=0)
    x = randn(1, 1, 7, 7)
    with torch.no_grad():
        assert attention_from_conv(wrong)(x).shape != conv(x).shape


# --- bad input --------------------------------------------------------------------------------


def test_clear_errors() -> None:
    conv = conv2d(2, 2, 3, padding=1)
    layer = attention_from_conv(conv)
    with pytest.raises(ValueError, match="conv is a Linear"):
        attention_from_conv(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="conv is a ConvTranspose2d"):
        attention_from_conv(nn.ConvTranspose2d(2, 2, 3))
    for alpha in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="alpha"):
            attention_from_conv(conv, alpha=alpha)
    with pytest.raises(ValueError, match="channels"):
        attention_from_conv(conv, channels="middle")
    with pytest.raises(ValueError, match="x has 3 channels"):
        layer(randn(1, 3, 4, 4))
    with pytest.raises(ValueError, match="x has 2 axes"):
        layer(randn(4, 4))
    with pytest.raises(ValueError, match="float32"):
        layer(randn(1, 2, 4, 4).float())
    with pytest.raises(ValueError, match="path"):
        layer(randn(1, 2, 4, 4), path="quick")
    with pytest.raises(ValueError, match="input_range"):
        layer.error_bound((1.0, 0.0), (4, 4))
    with pytest.raises(ValueError, match="grid has 1 sides"):
        layer.error_bound((0.0, 1.0), (4,))
    with pytest.raises(ValueError, match="method"):
        attention_from_conv(conv, alpha=1.0).error_bound((0.0, 1.0), (4, 4), method="quick")
    with torch.no_grad():
        conv.weight[0, 0, 0, 0] = math.nan
    with pytest.raises(ValueError, match="not finite"):
        attention_from_conv(conv)


def test_what_the_layer_is_made_of() -> None:
    """Every part of multi-head attention is there and can be counted, copied and stored."""
    conv = conv2d(2, 5, (3, 2), padding=1)
    layer = attention_from_conv(conv, alpha=3.0)
    heads, d, e, o, p = 6, 2, 2, 5, 3
    trained = sum(w.numel() for w in layer.parameters() if w.requires_grad)
    frozen = sum(w.numel() for w in layer.parameters() if not w.requires_grad)
    assert trained == heads * (d * e + e * o) + o
    assert frozen == heads * (2 * d * p + p) + p * p
    x = randn(1, 2, 5, 4)
    assert torch.equal(layer.v((5, 4)), offset_query(layer.offsets, 3.0))
    twin = attention_from_conv(conv2d(2, 5, (3, 2), padding=1, bias=True), alpha=7.0)
    twin.load_state_dict(layer.state_dict())
    assert torch.equal(twin(x), layer(x)) and torch.equal(copy.deepcopy(layer)(x), layer(x))


def test_content_leaves_the_fast_path() -> None:
    layer = attention_from_conv(conv2d(2, 2, 3, padding=1), alpha=2.0)
    x = randn(1, 2, 4, 4)
    before = layer(x)
    with torch.no_grad():
        layer.u += 1
        layer.weight_k += 1
    with pytest.raises(ValueError, match="fast"):
        layer(x, path="fast")
    with pytest.raises(ValueError, match="content"):
        layer.error_bound((0.0, 1.0), (4, 4))
    assert float((layer(x) - before).detach().abs().max()) > 1e-3
    terms = layer.scores(x)
    assert torch.allclose(
        torch.softmax(terms.total, -1), layer.attention_maps(x), rtol=0, atol=1e-14
    )
