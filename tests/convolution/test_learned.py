"""Attention with learned places: paths that agree, covariance, content, pruning."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from fourviews.convolution import (
    AttentionNetwork,
    LearnedRelativeAttention,
    QuadraticAttention,
    ResNet,
    attention_from_conv,
    cost,
    head_reach,
    relative_scores,
)

KINDS = ("isotropic", "full", "learned", "content")


def layer(kind: str, heads: int = 5, head_dim: int | None = None, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    options = {"d_out": 3, "head_dim": head_dim}
    if kind in ("isotropic", "full"):
        made = QuadraticAttention(4, heads, covariance=kind, **options)
    else:
        made = LearnedRelativeAttention(
            4, heads, (6, 7), content=kind == "content", d_key=6, **options
        )
    return made.double()


def image(seed: int = 1, h: int = 5, w: int = 7) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, h, w, 4, generator=generator, dtype=torch.float64)


def from_maps(made: nn.Module, x: Tensor) -> Tensor:
    """The layer by its full attention matrices and its heads, one after the other."""
    maps = made.attention_maps(x.shape[1:3], x)
    if maps.ndim == 5:
        maps = maps.expand(len(x), *maps.shape)
    out = torch.zeros(*x.shape[:3], 3, dtype=x.dtype)
    for h in range(made.n_heads):
        values = x if made.weight_v is None else x @ made.weight_v[h]
        mixed = torch.einsum("nijkl,nkld->nijd", maps[:, h], values)
        out = out + mixed @ made.weight_o[h]
    return out + made.bias_o


@torch.no_grad()
@pytest.mark.parametrize("head_dim", [None, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_layer_is_what_its_maps_say(kind, head_dim) -> None:
    made, x = layer(kind, head_dim=head_dim), image()
    nn.init.normal_(made.bias_o)
    assert torch.allclose(made(x), from_maps(made, x), rtol=0, atol=1e-12)
    maps = made.attention_maps((5, 7), x)
    assert torch.allclose(maps.sum((-1, -2)), torch.ones(()).double(), rtol=0, atol=1e-13)


@torch.no_grad()
def test_isotropic_is_a_special_case_of_full() -> None:
    round_, full = layer("isotropic"), layer("full")
    full.centres.copy_(round_.centres)
    eye = torch.eye(2).double()
    full.root.copy_((0.5 * round_.log_alpha).exp()[:, None, None] * eye)
    full.weight_o.copy_(round_.weight_o)
    assert torch.allclose(round_(image()), full(image()), rtol=0, atol=1e-12)


@torch.no_grad()
def test_full_covariance_is_the_gaussian() -> None:
    """Weights by their density, one pair of pixels after the other."""
    made = layer("full", heads=1)
    made.root.copy_(torch.tensor([[[0.7, 0.2], [-0.3, 0.4]]]))
    precision = (made.root @ made.root.mT)[0]
    maps = made.attention_maps((4, 4))[0]
    for query in ((0, 0), (2, 3)):
        density = torch.zeros(4, 4, dtype=torch.float64)
        for i in range(4):
            for j in range(4):
                off = torch.tensor([i - query[0], j - query[1]]).double() - made.centres[0]
                density[i, j] = torch.exp(-off @ precision @ off)
        assert torch.allclose(maps[query], density / density.sum(), rtol=0, atol=1e-13)


@torch.no_grad()
def test_content_scores_have_the_four_terms() -> None:
    made, x = layer("content"), image()
    rows, columns = made._tables((5, 7))
    encoding = torch.cat(
        [rows[:, None, :, None].expand(5, 7, 5, 7, 3), columns[None, :, None].expand(5, 7, 5, 7, 3)],
        -1,
    ).view(35, 35, 6)  # fmt: skip
    tokens = x.flatten(1, 2)[:, None]
    eye = torch.eye(6).double()
    terms = relative_scores(
        tokens, tokens, encoding, made.weight_q, made.weight_k, eye, made.u, made.v
    )
    wanted = torch.softmax(terms.total / 6**0.5, -1)
    got = made.attention_maps((5, 7), x).flatten(4).flatten(2, 3)
    assert torch.allclose(wanted, got, rtol=0, atol=1e-12)


@torch.no_grad()
def test_without_queries_and_keys_content_is_none() -> None:
    with_content, plain = layer("content"), layer("learned")
    for parameter in (with_content.weight_q, with_content.weight_k):
        parameter.zero_()
    plain.load_state_dict(with_content.state_dict(), strict=False)
    assert torch.allclose(with_content(image()), plain(image()), rtol=0, atol=1e-12)


@torch.no_grad()
def test_trained_places_can_be_those_of_a_convolution() -> None:
    conv = nn.Conv2d(4, 3, 3, padding=1, padding_mode="replicate").double()
    built, made = attention_from_conv(conv, alpha=2.0), layer("isotropic", heads=9)
    made.centres.copy_(built.offsets)
    made.log_alpha.fill_(torch.tensor(2.0).log())
    made.weight_o.copy_(built.kernel())
    made.bias_o.copy_(built.bias_o)
    x = image()
    assert torch.allclose(
        made(x), built(x.movedim(-1, 1)).movedim(1, -1), rtol=0, atol=1e-6
    )  # log and exp of 2 in single precision


def test_gradients_reach_everything() -> None:
    for kind in KINDS:
        made = layer(kind, head_dim=2)
        made(image()).square().sum().backward()
        for name, parameter in made.named_parameters():
            assert parameter.grad is not None and float(parameter.grad.abs().max()) > 0, name


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_pruned_heads_are_as_if_their_output_were_zero(kind) -> None:
    made, x = layer(kind, head_dim=2), image()
    before = sum(p.numel() for p in made.parameters())
    importance = made.head_importance()
    assert importance.shape == (5,)
    silenced = layer(kind, head_dim=2)
    silenced.weight_o[[0, 3]] = 0
    made.prune_heads([1, 2, 4])
    assert made.n_heads == 3 and sum(p.numel() for p in made.parameters()) < before
    assert torch.allclose(made(x), silenced(x), rtol=0, atol=1e-13)
    assert torch.equal(made.head_importance(), importance[[1, 2, 4]])
    for keep in ([], [0, 0], [3], [-1]):
        with pytest.raises(ValueError, match="keep is"):
            made.prune_heads(keep)


def flops(made: nn.Module, side: int) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        made(torch.randn(1, side, side, 16))
    return counter.get_total_flops()


def test_products_of_learned_places() -> None:
    """Isotropic: as rows and columns; full covariance: the full matrix."""
    for side in (8, 16, 32):
        made = QuadraticAttention(16, 3)
        matrices = 2 * 3 * 16 * 16 * side**2
        assert flops(made, side) == 2 * 3 * 16 * 2 * side**3 + matrices
        full = QuadraticAttention(16, 3, covariance="full")
        assert flops(full, side) >= 2 * 3 * 16 * side**4 + matrices


@torch.no_grad()
def test_reach_of_heads() -> None:
    made = layer("isotropic", heads=3)
    made.centres.copy_(torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 2.0]]))
    made.log_alpha.fill_(5.0)
    inside = torch.zeros(7, 7)
    inside[2:5, 2:5] = 1
    maps = made.attention_maps((7, 7))
    wanted = torch.tensor([0.0, 1.0, 8**0.5], dtype=torch.float64)
    assert torch.allclose(head_reach(maps, queries=inside), wanted, rtol=0, atol=1e-12)
    assert torch.equal(head_reach(maps), head_reach(maps.expand(2, *maps.shape)))
    # On a line of two pixels, uniform attention has the mean of 0 and 1.
    assert float(head_reach(torch.full((1, 1, 2, 1, 2), 0.5))) == 0.5
    with pytest.raises(ValueError, match="maps has shape"):
        head_reach(torch.zeros(1, 2, 3, 3, 2))
    with pytest.raises(ValueError, match="queries has shape"):
        head_reach(maps, queries=torch.zeros(7, 7))


# --- networks ---------------------------------------------------------------------------------


def test_sizes_of_the_source() -> None:
    """6 layers, 9 heads of 400 features on 16 × 16 tokens, and ResNet-18 for small images."""
    x = torch.zeros(1, 3, 32, 32)
    with torch.device("meta"):
        x = torch.zeros(1, 3, 32, 32)
        network, resnet = AttentionNetwork(), ResNet()
        attention, residual = cost(network, x), cost(resnet, x)
    assert len(network.attentions) == 6 and network.attentions[0].n_heads == 9
    a_layer = 9 * (400 * 400 + 3) + 400 + 2 * 400 * 512 + 912 + 4 * 400
    assert attention.parameters == 13 * 400 + 6 * a_layer + 4010
    assert residual.parameters == 11_173_962  # of ResNet-18 with 10 classes and a 3×3 stem
    assert 6.0e9 < attention.flops < 6.1e9 and 1.1e9 < residual.flops < 1.12e9


def test_cost_of_one_product() -> None:
    found = cost(nn.Linear(3, 5, bias=False), torch.randn(2, 3))
    assert found == (15, 2 * 2 * 3 * 5)


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["quadratic", "quadratic_full", "learned", "learned_content"])
def test_network(encoding) -> None:
    torch.manual_seed(0)
    network = AttentionNetwork(
        encoding, classes=4, channels=1, grid=(8, 12), layers=2, heads=3, hidden=8, intermediate=8,
        d_key=4,
    ).eval()  # fmt: skip
    x = torch.randn(3, 1, 8, 12)
    assert network(x).shape == (3, 4)
    maps = network.attention_maps(x)
    assert len(maps) == 2
    assert maps[0].shape == (3 if encoding == "learned_content" else 1, 3, 4, 6, 4, 6)
    # A token is a square of pixels: the first one's features come from these four alone.
    changed = x.clone()
    changed[:, :, 2:, :] += 1
    tokens, others = network.tokens(x), network.tokens(changed)
    assert torch.equal(tokens[:, 0], others[:, 0])
    assert not torch.equal(tokens[:, 1], others[:, 1])


def test_clear_errors() -> None:
    with pytest.raises(ValueError, match="covariance is"):
        QuadraticAttention(4, 2, covariance="round")
    with pytest.raises(ValueError, match="n_heads is 0"):
        QuadraticAttention(4, 0)
    with pytest.raises(ValueError, match="alpha is"):
        QuadraticAttention(4, 2, alpha=0.0)
    with pytest.raises(ValueError, match="d_key is 3"):
        LearnedRelativeAttention(4, 2, (3, 3), d_key=3)
    with pytest.raises(ValueError, match="learned up to 6"):
        layer("learned")(image(h=8))
    with pytest.raises(ValueError, match="x has shape"):
        layer("isotropic")(image()[..., :2])
    with pytest.raises(ValueError, match="x is missing"):
        layer("content").attention_maps((3, 3))
    with pytest.raises(ValueError, match="encoding is"):
        AttentionNetwork("cubic")
    with pytest.raises(ValueError, match="patch is 3"):
        AttentionNetwork(patch=3)
    with pytest.raises(ValueError, match="images has shape"):
        AttentionNetwork(layers=1, hidden=8)(torch.zeros(1, 3, 8, 8))
    with pytest.raises(ValueError, match="width is 0"):
        ResNet(width=0)
