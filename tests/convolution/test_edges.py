"""Corners of the convolution view: precisions, long sequences, and input that does not fit."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from fourviews import convolution
from fourviews.convolution import error

from .cases import randomised

REAL = torch.float64


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
@pytest.mark.parametrize("alpha", [math.inf, 3.0])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("path", ["fast", "dense"])
def test_wide_dilation_in_little_precision(path, dtype, alpha) -> None:
    # 303 is no bfloat16 number, and 303² no float16 one: both would move a head by pixels.
    conv = nn.Conv1d(1, 1, 4, dilation=303, dtype=REAL)
    conv.weight.copy_(torch.tensor([[[1.0, -2.0, 4.0, 8.0]]]))
    conv.bias.zero_()
    conv.to(dtype)
    x = torch.randint(-3, 4, (1, 1, 920), generator=generator()).to(dtype)
    layer = convolution.attention_from_conv(conv, alpha=alpha)
    expected = conv(x).double()
    bound = layer.error_bound((-3, 3), (920,))
    assert (layer(x, path=path).double() - expected).abs().max() <= bound
    converted = convolution.attention_from_conv(conv.double(), alpha=alpha).to(dtype)
    assert torch.equal(converted(x, path=path), layer(x, path=path))


@torch.no_grad()
def test_dense_path_far_from_the_query_keeps_the_bound() -> None:
    # α‖δ‖² and 2αΔδ are about 10⁶ and nearly cancel; float32 alone is off by parts of one.
    conv = nn.Conv1d(1, 1, 3, dilation=1000)
    layer = convolution.attention_from_conv(conv, alpha=1.0)
    x, error = layer.worst_case_input((-1.0, 1.0), (2100,))
    out, expected = layer(x, path="dense"), conv(x)
    assert float((out - expected).abs().max()) <= layer.error_bound((-1.0, 1.0), (2100,))
    assert float((out - expected).abs().max()) >= 0.999 * error
    assert torch.allclose(out, layer(x, path="fast"), atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("padding", ["zeros", "circular", "reflect", "replicate"])
@pytest.mark.parametrize("alpha", [0.8, 30.0, math.inf])
def test_long_sequences_go_in_parts(padding, alpha) -> None:
    conv = nn.Conv1d(2, 3, 4, 2, 5, 3, padding_mode=padding, dtype=REAL)
    randomised(conv, generator())
    layer = convolution.attention_from_conv(conv, alpha=alpha)
    x = torch.randn(2, 2, 2600, generator=generator(1), dtype=REAL)
    if alpha < math.inf:
        assert layer._reach(2600) is not None
    scale = float(conv.weight.abs().sum()) * float(x.abs().max())
    assert (layer(x) - layer(x, path="dense")).abs().max() <= 1e-14 * scale


@torch.no_grad()
@pytest.mark.parametrize("alpha", [2.0, math.inf])
def test_memory_is_linear_in_the_length(alpha) -> None:
    # The matrix of 200 000 × 200 000 weights would take 160 GB a head.
    conv = nn.Conv1d(1, 1, 3, padding=1)
    layer = convolution.attention_from_conv(conv, alpha=alpha)
    x = torch.rand(1, 1, 200_000, generator=generator())
    bound = layer.error_bound((0, 1), (200_000,))
    assert (layer(x) - conv(x)).abs().max() <= bound
    if alpha < math.inf:
        image, attained = layer.worst_case_input((0, 1), (200_000,))
        assert (layer(image) - conv(image)).abs().max() >= 0.99 * attained > 0.9 * bound


@pytest.mark.parametrize("padding", ["zeros", "circular", "reflect", "replicate"])
@pytest.mark.parametrize("stride", [1, 3])
def test_a_shorter_image_has_the_same_bound(padding, stride, monkeypatch) -> None:
    conv = nn.Conv2d(2, 2, (3, 2), stride, 3, 2, padding_mode=padding, dtype=REAL)
    randomised(conv, generator())
    layer, grid = convolution.attention_from_conv(conv, alpha=3.0), (97, 83)
    assert error._shortened(layer, grid) != list(grid)
    found = [layer.error_bound((-1, 2), grid, method=m) for m in ("joint", "heads")]
    image, attained = layer.worst_case_input((-1, 2), grid)
    with torch.no_grad():
        reached = float((layer(image) - conv(image)).abs().max())
    assert reached == pytest.approx(attained, rel=1e-9)
    monkeypatch.setattr(error, "_shortened", lambda layer, grid: list(grid))
    full = [layer.error_bound((-1, 2), grid, method=m) for m in ("joint", "heads")]
    assert found == pytest.approx(full, rel=1e-9)


@pytest.mark.parametrize("dtype", [REAL, torch.float32])
def test_the_worst_input_has_the_two_values_of_the_range(dtype) -> None:
    span = (-0.1, 0.7)  # no single-precision numbers
    layer = convolution.attention_from_conv(nn.Conv2d(1, 2, 3, padding=1, dtype=dtype), alpha=1.0)
    image, _ = layer.worst_case_input(span, (5, 6))
    assert image.dtype == dtype
    assert set(image.unique().tolist()) == set(torch.tensor(span, dtype=dtype).tolist())


def test_nearly_flat_heads_have_a_bound() -> None:
    conv = nn.Conv2d(1, 1, 3, padding=1, padding_mode="replicate", dtype=REAL)
    layer = convolution.attention_from_conv(conv, alpha=1e-300)
    image, _ = layer.worst_case_input((0, 1), (5, 4))
    with torch.no_grad():
        reached = float((layer(image) - conv(image)).abs().max())
    for method in ("joint", "heads"):
        assert reached <= layer.error_bound((0, 1), (5, 4), method=method)


def test_the_worst_input_of_a_layer_that_looks_at_content_is_refused() -> None:
    layer = convolution.attention_from_conv(nn.Conv2d(1, 1, 3), alpha=1.0)
    layer.u.fill_(1.0), layer.weight_k.fill_(1.0)
    with pytest.raises(ValueError, match="looks at content"):
        layer.worst_case_input((0, 1), (5, 5))


def _layer(alpha=math.inf, **options):
    return convolution.attention_from_conv(nn.Conv2d(3, 4, 3), alpha=alpha, **options)


def _part(**changes):
    axis = convolution.Axis(1, 1, 1, 0, 0, "zeros")
    parts = {
        "offsets": torch.zeros(2, 1), "alpha": torch.ones(2),
        "weight_v": torch.ones(2, 3, 2), "weight_o": torch.ones(2, 2, 4),
    }  # fmt: skip
    return convolution.ConvolutionAttention([axis], **(parts | changes))


_Q, _N = convolution.QuadraticAttention, convolution.AttentionNetwork
_CONV = nn.Conv2d(1, 1, 3, padding=1)
_BAD = {
    "alpha is 'a'": lambda: _layer("a"),
    "alpha is None": lambda: _layer(None),
    r"alpha is 1e\+300; in torch.float32": lambda: _layer(1e300),
    "alpha is 1e-300; in torch.float32": lambda: _layer(1e-300),
    "head_dim is 2.5": lambda: _layer(head_dim=2.5),
    r"outputs is \[0.5\]": lambda: _layer(head_dim=2, outputs=[0.5]),
    "padding is": lambda: _layer(padding=[1, 1]),
    "padding is 1; it needs a pair": lambda: _layer(padding=1),
    "whole numbers, 0 or more": lambda: _layer(padding=[(0.5, 1), (1, 1)]),
    "real floats": lambda: convolution.attention_from_conv(
        nn.Conv2d(1, 1, 1, dtype=torch.complex64)
    ),
    "method is 'x'": lambda: _layer().error_bound((0, 1), (5, 5), method="x"),
    r"grid is \[5.5, 5\]": lambda: _layer().error_bound((0, 1), (5.5, 5)),
    "grid is 5; it needs one side an axis": lambda: _layer().error_bound((0, 1), 5),
    "input_range is 1": lambda: _layer().error_bound(1, (5, 5)),
    "offsets has shape": lambda: _part(offsets=torch.zeros(2, 2)),
    "alpha has shape": lambda: _part(alpha=torch.ones(3)),
    "weight_o has shape": lambda: _part(weight_o=torch.ones(3, 2, 4)),
    "bias has shape": lambda: _part(bias=torch.ones(3)),
    "kernel is 0": lambda: convolution.Axis(0, 1, 1, 0, 0, "zeros"),
    "kernel is 3.5; it needs to be a whole": lambda: convolution.Axis(3.5, 1, 1, 0, 0, "zeros"),
    "stride is 0": lambda: convolution.Axis(1, 0, 1, 0, 0, "zeros"),
    "before is -1": lambda: convolution.Axis(1, 1, 1, -1, 0, "zeros"),
    "border is 'foo'": lambda: convolution.Axis(1, 1, 1, 0, 0, "foo"),
    "alpha is 'a'; it needs to be a number, 0": lambda: convolution.leak_bound("a"),
    "dims is 1.5": lambda: convolution.leak_bound(1.0, 1.5),
    r"alpha has shape \(3,\); it needs to be one": lambda: convolution.offset_query(
        torch.zeros(2, 2), torch.ones(3)
    ),
    "offsets is torch.int64": lambda: convolution.offset_query(
        torch.zeros(2, 2, dtype=torch.int64), 1.0
    ),
    "delta is torch.int8": lambda: convolution.quadratic_encoding(
        torch.full((2, 2), 20, dtype=torch.int8)  # 800 is no int8
    ),
    "matrices is torch.float32 of shape": lambda: convolution.heads_needed(torch.ones(2, 3), 1),
    "head_dim is None": lambda: convolution.heads_needed(torch.ones(1, 3, 3), None),
    "matrices is torch.int64": lambda: convolution.factor_kernel(
        torch.ones(1, 3, 3, dtype=torch.int64), 2
    ),
    "matrices has numbers": lambda: convolution.factor_kernel(torch.full((1, 3, 3), math.nan), 2),
    "maps is torch.int32": lambda: convolution.head_reach(torch.zeros(1, 2, 2, 2, 2).int()),
    "a mean needs at least one map": lambda: convolution.head_reach(torch.zeros(0, 3, 2, 2, 2, 2)),
    "no negative": lambda: convolution.head_reach(
        torch.ones(1, 2, 2, 2, 2), queries=torch.tensor([[-1.0, 1], [1, 1]])
    ),
    "step is 7": lambda: convolution.cosine_with_warm_up(7, 5, 0.1),
    "steps is 0": lambda: convolution.cosine_with_warm_up(0, 0, 0.0),
    "warm_up is 1.0": lambda: convolution.cosine_with_warm_up(5, 5, 1.0),
    "epochs is 1.5": lambda: convolution.Recipe(epochs=1.5),
    "momentum is nan": lambda: convolution.Recipe(momentum=math.nan),
    "weight_decay is -1": lambda: convolution.Recipe(weight_decay=-1),
    "clip is 0": lambda: convolution.Recipe(clip=0),
    "x is torch.int32": lambda: _Q(2, 3)(torch.zeros(1, 4, 4, 2).int()),
    "x is torch.float64; the layer": lambda: _Q(2, 3)(torch.zeros(1, 4, 4, 2, dtype=REAL)),
    "x is ndarray": lambda: _Q(2, 3)(np.zeros((1, 4, 4, 2))),
    "d_model is 2.5": lambda: _Q(2.5, 3),
    "centre_std is nan": lambda: _Q(2, 3, centre_std=math.nan),
    "keep is": lambda: _Q(2, 3).prune_heads([0.0]),
    "grid is 4": lambda: convolution.LearnedRelativeAttention(2, 3, 4),
    r"grid is \(2.5, 3\)": lambda: convolution.LearnedRelativeAttention(2, 3, (2.5, 3)),
    "d_key is 4.0": lambda: convolution.LearnedRelativeAttention(2, 3, (4, 3), d_key=4.0),
    r"grid is \(3, 3, 3\); it needs": lambda: _Q(2, 3).attention_maps((3, 3, 3)),
    r"grid is \(-1, 3\); it needs": lambda: _Q(2, 3).attention_maps((-1, 3)),
    "grid is 3; it needs": lambda: convolution.LearnedRelativeAttention(
        2, 3, (4, 3)
    ).attention_maps(3),
    r"x has \(4, 4\) pixels": lambda: convolution.LearnedRelativeAttention(
        2, 3, (4, 4), content=True, d_key=4
    ).attention_maps((3, 3), torch.zeros(1, 4, 4, 2)),
    "conv is a Conv1d": lambda: convolution.imitate(nn.Conv1d(1, 1, 3)),
    "steps is -1": lambda: convolution.imitate(_CONV, steps=-1),
    "batch is 0": lambda: convolution.imitate(_CONV, batch=0),
    "steps is -2": lambda: convolution.teach(_Q(1, 1), _CONV, steps=-2),
    "batch is -1": lambda: convolution.teach(_Q(1, 1), _CONV, batch=-1),
    "layer has 5 outputs": lambda: convolution.teach(_Q(1, 1, d_out=5), _CONV, steps=1),
    "layer has 2 inputs": lambda: convolution.teach(_Q(2, 1, d_out=1), _CONV, steps=1),
    "images has shape": lambda: convolution.imitate(_CONV, images=torch.zeros(3, 2, 4, 4)),
    r"grid is \(32,\); they": lambda: _N(grid=(32,), hidden=8, layers=1),
    "patch is 2.0": lambda: _N(patch=2.0, hidden=8, layers=1),
    "hidden is 8.0": lambda: _N(hidden=8.0, layers=1),
    "classes is 0": lambda: _N(classes=0, hidden=8, layers=1),
    "images is torch.uint8": lambda: _N(hidden=8, layers=1)(torch.zeros(1, 3, 32, 32).byte()),
    "channels is 0": lambda: convolution.ResNet(channels=0, width=2, blocks=(1,)),
    "weight_q makes 3 features": lambda: convolution.absolute_scores(
        torch.zeros(2, 2), torch.zeros(2, 2), torch.zeros(2, 3), torch.zeros(2, 4)
    ),
    "weight_r makes 5": lambda: convolution.relative_scores(
        torch.zeros(2, 2), torch.zeros(2, 2), torch.zeros(2, 2, 3), torch.zeros(2, 4),
        torch.zeros(2, 4), torch.zeros(3, 5), torch.zeros(4), torch.zeros(4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", _BAD)
def test_what_does_not_fit_is_named(words) -> None:
    with pytest.raises(ValueError, match=words):
        _BAD[words]()


def test_a_bias_that_is_no_number_is_refused() -> None:
    conv = nn.Conv2d(1, 1, 1)
    conv.bias.data.fill_(math.nan)
    with pytest.raises(ValueError, match="a bias not finite"):
        convolution.attention_from_conv(conv)


def _train(tmp_path, **changes):
    data = {
        "train_images": torch.zeros(4, 8, 8, 3, dtype=torch.uint8),
        "train_labels": torch.tensor([0, 1, 0, 1]),
        "test_images": torch.zeros(2, 8, 8, 3, dtype=torch.uint8),
        "test_labels": torch.tensor([0, 1]),
    }
    torch.manual_seed(0)
    network = convolution.ResNet(classes=2, width=2, blocks=(1,))
    recipe = convolution.Recipe(epochs=1, batch_size=2)
    file = tmp_path / "run.pt"
    return convolution.train(
        network, recipe=recipe, checkpoint=file, progress=False, **(data | changes)
    )


@pytest.mark.parametrize(
    ("words", "changes"),
    {
        "scores have shape": {"train_labels": torch.tensor([0, 1, 2, 5])},
        "labels up to 9": {"test_labels": torch.tensor([0, 9])},
        "train_labels is torch.float32": {"train_labels": torch.tensor([0.0, 1, 0, 1])},
        "test_labels is torch.int64": {"test_labels": torch.tensor([0, -1])},
        "test_images is of shape": {"test_images": torch.zeros(2, 4, 4, 3, dtype=torch.uint8)},
    }.items(),
)
def test_data_that_do_not_fit_are_named(words, changes, tmp_path) -> None:
    with pytest.raises(ValueError, match=words):
        _train(tmp_path, **changes)


def test_checkpoints_of_other_test_images_or_of_something_else_are_refused(tmp_path) -> None:
    assert _train(tmp_path).finished
    with pytest.raises(ValueError, match="of another data"):
        _train(tmp_path, test_images=torch.ones(2, 8, 8, 3, dtype=torch.uint8))
    for content in (b"xx", b""):
        (tmp_path / "run.pt").write_bytes(content)
        with pytest.raises(ValueError, match="cannot be read .*no checkpoint"):
            _train(tmp_path)


def test_counting_leaves_the_network_as_it_is_and_no_image_is_no_error() -> None:
    network = _N(hidden=8, layers=1)
    network.blocks[0].dropout.eval()
    convolution.cost(network, torch.zeros(1, 3, 32, 32))
    assert network.training and not network.blocks[0].dropout.training
    assert network(torch.zeros(0, 3, 32, 32)).shape == (0, 10)
