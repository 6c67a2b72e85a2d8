"""Networks of timm: with a stand-in of the package everywhere, with the package where it is."""

import importlib.util
import sys
import types

import numpy as np
import pytest
import torch
from torch import nn

from fourviews import data
from fourviews.data.features import backbone, timm_networks
from fourviews.data.features.network import middle_square

MODELS = {
    "gmlp-s16": ("gmlp_s16_224.ra3_in1k", 256, 0),
    "vit-s16": ("vit_small_patch16_224.augreg_in1k", 384, 1),
}


class Small(nn.Module):
    """A patch embedding with as many tokens and features as the network that it stands for."""

    def __init__(self, features, prefix):
        super().__init__()
        self.embed = nn.Conv2d(3, features, 16, 16)
        if prefix:
            self.num_prefix_tokens = prefix

    def forward_features(self, images):
        tokens = self.embed(images).flatten(2).mT
        prefix = tokens.new_full(
            (len(tokens), getattr(self, "num_prefix_tokens", 0), tokens.shape[2]), 99.0
        )
        return torch.cat([prefix, tokens], 1)


@pytest.fixture
def small_timm(alone, monkeypatch):
    """A timm that builds small networks from files; returns what was asked of it."""
    asked = []

    def create_model(model, *, pretrained, pretrained_cfg_overlay):
        assert pretrained and pretrained_cfg_overlay["custom_load"] is False
        asked.append(model)
        _, features, prefix = next(m for m in MODELS.values() if m[0] == model)
        network = Small(features, prefix)
        with open(pretrained_cfg_overlay["file"], "rb") as file:
            network.load_state_dict(torch.load(file, weights_only=True))
        return network

    timm = types.ModuleType("timm")
    timm.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", timm)
    return asked


def hub(monkeypatch, file=None, error=None):
    """A hub that gives a file or an error; returns what was asked of it."""
    asked = []

    def hf_hub_download(repository, name, *, local_files_only):
        asked.append((repository, name, local_files_only))
        if error is not None:
            raise error
        return str(file)

    module = types.ModuleType("huggingface_hub")
    module.hf_hub_download = hf_hub_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return asked


def weights(folder, name, seed=0):
    model, features, prefix = MODELS[name]
    torch.manual_seed(seed)
    network = Small(features, prefix)
    with open(folder / f"{model}.safetensors", "wb") as file:  # the stand-in's own format
        torch.save(network.state_dict(), file)
    return network


@pytest.fixture
def images():
    return torch.from_numpy(
        np.random.default_rng(0).integers(0, 256, (3, 30, 40, 3), dtype=np.uint8)
    )


@pytest.mark.parametrize("name", MODELS)
def test_tokens_are_the_networks_features_without_class_token(alone, small_timm, images, name):
    network = weights(alone / "data", name)
    tokens = data.image_tokens(images, backbone=name)
    assert tokens.tokens.shape == (3, 196, MODELS[name][1]) and tokens.computed == 3
    assert tokens.backbone == name and tokens.grid == (14, 14)
    with torch.no_grad():
        expected = network.forward_features(timm_networks.prepare(images))[:, MODELS[name][2] :]
    torch.testing.assert_close(tokens.tokens, expected, rtol=1e-5, atol=1e-5)
    assert float(tokens.tokens.max()) < 90  # the class token is not among them
    assert data.image_tokens(images, backbone=name).computed == 0
    assert small_timm == [MODELS[name][0]]
    store = data.token_store(images, backbone=name, dtype=torch.float32)
    assert torch.equal(torch.from_numpy(np.array(store.tokens)), tokens.tokens)
    pooled = data.pooled_features(data_set(images), backbone=name)
    torch.testing.assert_close(pooled, tokens.tokens.mean(1), rtol=1e-2, atol=1e-3)


def data_set(images):
    return data.ImageSet(
        images,
        torch.zeros(len(images), dtype=torch.int64),
        ("a",),
        data.Source("x", "substitute", None, "y"),
        "",
    )


def test_other_weights_are_other_features(alone, small_timm, images):
    weights(alone / "data", "vit-s16")
    first = data.image_tokens(images, backbone="vit-s16").tokens
    weights(alone / "data", "vit-s16", seed=1)
    again = data.image_tokens(images, backbone="vit-s16")
    assert again.computed == 3 and not torch.equal(again.tokens, first)


def test_preparation_maps_the_middle_square_to_one_and_minus_one(images):
    prepared = timm_networks.prepare(images)
    assert prepared.shape == (3, 3, 224, 224)
    assert -1 <= float(prepared.min()) < -0.9 and 0.9 < float(prepared.max()) <= 1
    grey = torch.tensor([0, 51, 255], dtype=torch.uint8)[:, None, None, None].expand(3, 9, 7, 3)
    expected = torch.tensor([-1, -0.6, 1])[:, None, None, None].expand(3, 3, 224, 224)
    torch.testing.assert_close(timm_networks.prepare(grey), expected, rtol=0, atol=1e-5)
    outside = images.clone()
    outside[:, :, :5], outside[:, :, 35:] = 0, 255
    assert torch.equal(timm_networks.prepare(outside), prepared)


def test_cubic_scaling_is_that_of_the_training(images):
    """Pillow's cubic filter, which the networks were trained with, to its rounding."""
    pillow = pytest.importorskip("PIL.Image", reason="needs Pillow")
    # Pillow rounds and cuts between rows and columns too: here nothing leaves 0…255.
    images = images // 4 + 96
    square = images[:, :, 5:35]
    ours = middle_square(images, "bicubic").permute(0, 2, 3, 1)
    for row, image in zip(ours, square, strict=True):
        scaled = pillow.fromarray(image.numpy()).resize((224, 224), pillow.Resampling.BICUBIC)
        theirs = torch.from_numpy(np.array(scaled)).float()
        assert float((row - theirs).abs().max()) < 1.5


def test_downloaded_once_from_the_hub(alone, small_timm, images, monkeypatch):
    monkeypatch.delenv("FOURVIEWS_OFFLINE")
    weights(alone, "gmlp-s16")
    asked = hub(monkeypatch, alone / "gmlp_s16_224.ra3_in1k.safetensors")
    assert data.image_tokens(images, backbone="gmlp-s16").computed == 3
    assert set(asked) == {("timm/gmlp_s16_224.ra3_in1k", "model.safetensors", False)}


def test_missing_weights_without_network(alone, small_timm, images, monkeypatch):
    asked = hub(monkeypatch, error=OSError("not in the hub's cache"))
    for call in (data.image_tokens, data.token_store):
        with pytest.raises(FileNotFoundError, match="FOURVIEWS_OFFLINE forbids") as caught:
            call(images, backbone="vit-s16")
        for told in ("Connect to the network once", "timm/vit_small", "FOURVIEWS_DATA names"):
            assert told in str(caught.value)
    assert {local for _, _, local in asked} == {True}
    monkeypatch.delenv("FOURVIEWS_OFFLINE")
    hub(monkeypatch, error=ConnectionError("no route"))
    with pytest.raises(FileNotFoundError, match="not be downloaded .ConnectionError: no route."):
        data.image_tokens(images, backbone="vit-s16")
    assert not list((alone / "cache").rglob("*.np[yz]"))


def test_damaged_weights(alone, small_timm, images):
    weights(alone / "data", "gmlp-s16")
    file = alone / "data" / "gmlp_s16_224.ra3_in1k.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ValueError, match="does not hold the weights of gmlp_s16"):
        data.image_tokens(images, backbone="gmlp-s16")


def test_missing_package_names_the_extra(alone, images, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ImportError, match=r"pip install 'fourviews\[backbones\]'"):
        data.image_tokens(images, backbone="gmlp-s16")


def test_a_torchvision_that_does_not_fit_is_named(alone, images, monkeypatch):
    """It raises RuntimeError on import, which nobody expects of an import."""

    class Broken:
        def find_spec(self, name, *_):
            if name == "timm":
                raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.delitem(sys.modules, "timm", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    with pytest.raises(ImportError, match="a torchvision that fits torch.*nms does not exist"):
        data.image_tokens(images, backbone="vit-s16")


def test_device_and_type_decide_the_arithmetic():
    """Half precision on a GPU is computed in half precision, and kept apart."""
    names = {
        (device, dtype): backbone.arithmetic(torch.device(device), dtype)
        for device in ("cpu", "cuda", "cuda:1")
        for dtype in (torch.float16, torch.float32)
    }
    assert names["cpu", torch.float16] == names["cpu", torch.float32] == ("cpu", False)
    assert names["cuda", torch.float32] == names["cuda:1", torch.float32] == ("cuda", False)
    assert names["cuda", torch.float16] == ("cuda-mixed", True)


def test_mixed_precision_is_near_the_full_one(alone, small_timm, images):
    """On a CPU, whose autocast is that of a GPU as far as the code goes."""
    network = weights(alone / "data", "gmlp-s16")
    loaded = backbone.load("gmlp-s16")
    place = torch.device("cpu")
    full = loaded.tokens(images, device=place)
    seen = []
    loaded.trunk.network.embed.register_forward_hook(lambda *call: seen.append(call[-1].dtype))
    mixed = loaded.tokens(images, device=place, mixed=True)
    assert mixed.dtype == torch.float32 and set(seen) == {torch.float16}
    assert 0 < float((mixed - full).abs().max()) < 2e-3 * float(full.abs().max())
    assert network is not None


def _timm_works():
    if importlib.util.find_spec("timm") is None:
        return False
    try:
        import timm  # noqa: F401
    except (ImportError, RuntimeError):  # a torchvision that does not fit
        return False
    return True


@pytest.mark.skipif(not _timm_works(), reason="needs the extra «backbones»")
@pytest.mark.parametrize("name", MODELS)
def test_with_the_package_itself(alone, images, name):
    import timm
    from safetensors.torch import save_file

    model, features, prefix = MODELS[name]
    torch.manual_seed(0)
    network = timm.create_model(model, pretrained=False).eval()
    save_file(network.state_dict(), alone / "data" / f"{model}.safetensors")
    tokens = data.image_tokens(images, backbone=name).tokens
    assert tokens.shape == (3, 196, features)
    with torch.no_grad():
        expected = network.forward_features(timm_networks.prepare(images))[:, prefix:]
    torch.testing.assert_close(tokens, expected, rtol=1e-4, atol=1e-4)
    config = network.pretrained_cfg
    assert config["mean"] == config["std"] == (0.5, 0.5, 0.5)
    assert config["interpolation"] == "bicubic"
