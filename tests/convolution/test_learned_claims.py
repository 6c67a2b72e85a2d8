"""Claims cnv-09 to cnv-11: what training finds, and what can be proved about it."""

from __future__ import annotations

import copy
import functools
import math

import pytest
import torch
from torch import Tensor, nn

from fourviews import data
from fourviews.convolution import (
    AttentionNetwork,
    ImageAttention,
    LearnedRelativeAttention,
    QuadraticAttention,
    Recipe,
    ResNet,
    cost,
    head_reach,
    run_cifar10,
    teach,
    train,
)

SIDE = 6


def teacher(seed: int, size: int = 3) -> nn.Conv2d:
    conv = nn.Conv2d(3, 4, size, padding="same", padding_mode="replicate", bias=False)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        conv.weight.copy_(torch.randn(conv.weight.shape, generator=generator))
    return conv


# --- cnv-09: the loss on white images ---------------------------------------------------------


def white_loss(layer: ImageAttention, conv: nn.Conv2d, query: int) -> Tensor:
    """Sum over keys of the squared matrices that are not the kernel's, for a query inside."""
    side = 2 * query + 1
    maps = layer.attention_maps((side, side))[:, query, query]
    matrices = torch.einsum("hij,hdo->ijdo", maps, layer.weight_o)
    kernel = torch.zeros_like(matrices)
    reach = conv.kernel_size[0] // 2
    inside = slice(query - reach, query + reach + 1)
    kernel[inside, inside] = conv.weight.permute(2, 3, 1, 0)
    return (matrices - kernel).square().sum()


def expected_error_is(loss=white_loss) -> None:
    torch.manual_seed(0)
    query, conv = 3, teacher(0).double()
    layer = QuadraticAttention(3, 5, d_out=4, alpha=0.7, centre_std=0.3).double()
    with torch.no_grad():
        layer.weight_o.abs_().mul_(4)  # heads that overlap and pull the same way
    x = torch.randn(20_000, 7, 7, 3, dtype=torch.float64)
    with torch.no_grad():
        error = layer(x)[:, query, query] - conv(x.movedim(-1, 1)).movedim(1, -1)[:, query, query]
        squares = error.square().sum(-1)
        sem = float(squares.std()) / math.sqrt(len(x))
        assert abs(float(squares.mean()) - float(loss(layer, conv, query))) < 4 * sem


@pytest.mark.claim("cnv-09/loss", verdict="verified")
def test_cnv_09_loss_on_white_images_is_a_distance_of_matrices() -> None:
    expected_error_is()


@pytest.mark.mutation("cnv-09/loss")
def test_cnv_09_a_loss_of_heads_one_by_one_is_noticed() -> None:
    def apart(layer, conv, query):
        """As if heads that look at one place did not add up before the square."""
        maps = layer.attention_maps((2 * query + 1,) * 2)[:, query, query]
        sizes = maps.square().sum((1, 2)) * layer.weight_o.square().sum((1, 2))
        return sizes.sum() + conv.weight.square().sum()

    with pytest.raises(AssertionError):
        expected_error_is(apart)


def head_on_two_equal_pixels(right: float = 1.0) -> float:
    """Gradient of the centre of a head between two pixels, the second weighing ``right``."""
    conv = nn.Conv2d(1, 1, 3, padding="same", bias=False).double()
    with torch.no_grad():
        conv.weight.zero_()
        conv.weight[0, 0, 1, 0], conv.weight[0, 0, 1, 2] = 1, right
    torch.manual_seed(0)
    layer = QuadraticAttention(1, 3, alpha=0.6).double()
    with torch.no_grad():
        layer.centres.zero_()
    white_loss(layer, conv, 6).backward()
    assert float(layer.log_alpha.grad.abs().max()) > 1e-3
    return float(layer.centres.grad.abs().max())


@pytest.mark.claim("cnv-09/loss", verdict="verified")
def test_cnv_09_heads_in_the_middle_of_a_symmetric_kernel_stay_there() -> None:
    assert head_on_two_equal_pixels() < 1e-15


@pytest.mark.mutation("cnv-09/loss")
def test_cnv_09_without_the_symmetry_heads_leave() -> None:
    assert head_on_two_equal_pixels(right=0.9) > 1e-3


@pytest.mark.claim("cnv-09/loss", verdict="verified")
@pytest.mark.parametrize("alpha", [0.5, 2.0, 8.0])
def test_cnv_09_sharp_heads_hardly_move(alpha) -> None:
    """Σ_k |∂A_k/∂Δ| = 2α Σ_k A_k |δ_k - Δ| at a pixel, a sum of the line alone."""
    layer = QuadraticAttention(1, 1, alpha=alpha).double()
    side = 21
    with torch.no_grad():
        layer.centres.zero_()

    def weights(row: Tensor) -> Tensor:
        centres = torch.stack([row, torch.zeros_like(row)])[None]
        maps = torch.func.functional_call(
            _Maps(layer), {"layer.centres": centres, "layer.log_alpha": layer.log_alpha}, (side,)
        )
        return maps[0, side // 2, side // 2]

    slope = torch.autograd.functional.jacobian(weights, torch.zeros((), dtype=torch.float64))
    alpha = float(layer.log_alpha.detach().exp())
    terms = [math.exp(-alpha * j * j) for j in range(1, 11)]
    theta = 1 + 2 * sum(terms)
    wanted = 4 * alpha * sum(j * z for j, z in enumerate(terms, 1)) / theta
    assert float(slope.abs().sum()) == pytest.approx(wanted, rel=1e-10)


class _Maps(nn.Module):
    def __init__(self, layer: QuadraticAttention):
        super().__init__()
        self.layer = layer

    def forward(self, side: int) -> Tensor:
        return self.layer.attention_maps((side, side))


# --- cnv-10: cost, and digits ------------------------------------------------------------------


def layer_flops(side_h: int, side_w: int, d: int, heads: int) -> int:
    tokens = side_h * side_w
    return 2 * heads * tokens * d * (d + side_h + side_w)


@pytest.mark.claim("cnv-10/cost", verdict="verified")
@pytest.mark.parametrize("size", [(8, 8, 12, 9), (5, 9, 7, 4), (2, 6, 3, 2)])
def test_cnv_10_a_layer_of_places_costs_a_convolution_and_a_little(size) -> None:
    h, w, d, heads = size
    x = torch.randn(1, h, w, d)
    for layer in (QuadraticAttention(d, heads), LearnedRelativeAttention(d, heads, (h, w))):
        table = 0  # v · r for all pairs of rows and of columns
        if isinstance(layer, LearnedRelativeAttention):
            table = 2 * heads * (h * h + w * w) * layer.d_key // 2
        assert cost(layer, x).flops == layer_flops(h, w, d, heads) + table
    conv = nn.Conv2d(d, d, 3, padding=1, bias=False)
    assert 9 * layer_flops(h, w, d, heads) == pytest.approx(
        heads * cost(conv, x.movedim(-1, 1)).flops * (1 + (h + w) / d)
    )


@pytest.mark.mutation("cnv-10/cost")
def test_cnv_10_full_matrices_cost_more() -> None:
    layer = QuadraticAttention(4, 2, covariance="full")
    assert cost(layer, torch.randn(1, 8, 8, 4)).flops > 1.5 * layer_flops(8, 8, 4, 2)


@functools.cache
def accuracy(attention: bool, shuffled: bool) -> float:
    """Mean over three seeds on digits: attention with the quadratic encoding, or a ResNet."""
    parts = [
        data.cifar10(split, n_classes=4, n_per_class=most, source="package")
        for split, most in (("train", 50), ("test", 200))
    ]
    images = [part.images for part in parts]
    if shuffled:
        images = [_shuffled(each) for each in images]
    found = []
    for seed in (0, 1, 2):
        torch.manual_seed(seed)
        network = (
            AttentionNetwork(
                "quadratic", classes=4, patch=4, layers=2, hidden=24, intermediate=48, dropout=0.0
            )
            if attention
            else ResNet(classes=4, width=6, blocks=(1, 1, 1))
        )
        recipe = Recipe(
            epochs=10, batch_size=50, learning_rate=3e-3, optimizer="adamw", weight_decay=0.01,
            augment=False, clip=1.0, seed=seed,
        )  # fmt: skip
        labels = [part.labels for part in parts]
        run = train(network, images[0], labels[0], images[1], labels[1], recipe, progress=False)
        found.append(run.accuracy)
    return sum(found) / 3


def _shuffled(images: Tensor) -> Tensor:
    """Squares of 4 × 4 pixels in another order in each image."""
    generator = torch.Generator().manual_seed(0)
    squares = images.unflatten(2, (8, 4)).unflatten(1, (8, 4)).transpose(2, 3).flatten(1, 2)
    moved = torch.stack([each[torch.randperm(64, generator=generator)] for each in squares])
    back = moved.unflatten(1, (8, 8)).transpose(2, 3)
    return back.flatten(3, 4).flatten(1, 2)


def attention_competes(shuffled: bool = False) -> None:
    attention = accuracy(True, shuffled)
    assert attention > 0.9
    assert attention > accuracy(False, shuffled) - 0.06


@pytest.mark.claim("cnv-10/digits", verdict="empirical")
def test_cnv_10_attention_alone_competes_on_small_digits() -> None:
    attention_competes()


@pytest.mark.mutation("cnv-10/digits")
def test_cnv_10_without_places_it_does_not() -> None:
    with pytest.raises(AssertionError):
        attention_competes(shuffled=True)


# --- cnv-11: heads that could use content ------------------------------------------------------


@functools.cache
def taught(seed: int) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """Last loss and the reach of nine heads with content, before and after; uniform has 3.1."""
    torch.manual_seed(seed)
    layer = LearnedRelativeAttention(3, 9, (SIDE, SIDE), d_out=4, content=True, d_key=16)
    x = torch.randn(8, SIDE, SIDE, 3, generator=torch.Generator().manual_seed(99))

    @torch.no_grad()
    def reach() -> tuple[float, ...]:
        return tuple(head_reach(layer.attention_maps((SIDE, SIDE), x)).tolist())

    before = reach()
    losses = teach(
        layer, teacher(seed), steps=300, learning_rate=0.03, side=SIDE, batch=12, seed=seed
    )
    return float(losses[-20:].mean()), before, reach()


def heads_become_local(after: int = 2) -> None:
    uniform = float(head_reach(torch.full((1, 1, SIDE, SIDE, SIDE, SIDE), SIDE**-4.0 * SIDE**2)))
    for seed in (0, 1, 2):
        loss, reach = taught(seed)[0], taught(seed)[after]
        assert loss < 0.2
        assert sum(r < uniform / 2 for r in reach) >= 7


@pytest.mark.claim("cnv-11/teacher", verdict="empirical")
def test_cnv_11_with_content_heads_taught_by_a_convolution_become_local() -> None:
    heads_become_local()


@pytest.mark.mutation("cnv-11/teacher")
def test_cnv_11_heads_at_the_start_are_not_local() -> None:
    with pytest.raises(AssertionError):
        heads_become_local(after=1)


def content_moves_at_most(power: float = 1.0) -> None:
    """p of the weight by places alone is at least p/(p + (1 - p) exp R) with content."""
    torch.manual_seed(3)
    layer = LearnedRelativeAttention(4, 3, (5, 6), content=True, d_key=6).double()
    with torch.no_grad():
        layer.v.mul_(4)
        layer.weight_q.mul_(0.3)
    x = torch.randn(7, 5, 6, 4, dtype=torch.float64)
    places = copy.deepcopy(layer)
    with torch.no_grad():
        places.weight_q.zero_()
        places.weight_k.zero_()
        mixed, alone = (each.attention_maps((5, 6), x).flatten(4) for each in (layer, places))
    difference = mixed.log() - alone.log()
    spread = difference.amax(-1) - difference.amin(-1)
    tightest = math.inf
    for threshold in (0.5, 1.0):  # the worst set of keys: those with little content score
        cut = difference < difference.amin(-1, keepdim=True) + threshold * spread[..., None]
        p, found = (alone * cut).sum(-1), (mixed * cut).sum(-1)
        rest = (alone * ~cut).sum(-1)  # 1 - p without cancellation
        bound = p / (p + rest * (power * spread).exp())
        assert bool((found >= bound - 1e-12).all())
        tightest = min(tightest, float((found / bound)[cut.any(-1)].min()))
    assert tightest < 3


@pytest.mark.claim("cnv-11/bound", verdict="verified")
def test_cnv_11_small_content_leaves_heads_where_they_are() -> None:
    content_moves_at_most()


@pytest.mark.mutation("cnv-11/bound")
def test_cnv_11_half_the_spread_is_noticed() -> None:
    with pytest.raises(AssertionError):
        content_moves_at_most(power=0.25)


def test_a_result_has_its_start_and_takes_images_as_they_are() -> None:
    result = run_cifar10("quadratic", "page", epochs=1, progress=False)
    first = result.start.attentions[0].centres
    assert first.shape == result.run.network.attentions[0].centres.shape
    again = run_cifar10("quadratic", "page", epochs=2, progress=False).start
    assert torch.equal(first, again.attentions[0].centres)
    assert not torch.equal(first, result.run.network.attentions[0].centres)
    with torch.no_grad():
        scores = result.run.network(result.run.prepared(result.test.images))
    hits = (scores.argmax(-1) == result.test.labels).double().mean()
    assert float(hits) == pytest.approx(result.accuracy, abs=1e-12)
