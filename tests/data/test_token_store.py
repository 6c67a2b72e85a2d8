"""Tokens of large sets: what is kept, under which name, and how it is read."""

import dataclasses
import json
import multiprocessing
import pickle
import time
import warnings

import numpy as np
import pytest
import torch

from fourviews import data
from fourviews.data.features import array_file, backbone, token_store

from .networks import install


@pytest.fixture
def network(alone, monkeypatch):
    """A cheap backbone «patches», and pieces of four images."""
    monkeypatch.setattr(backbone, "NETWORKS", dict(backbone.NETWORKS))
    monkeypatch.setattr(token_store, "PIECE", 4)
    return install(alone)


def picture_set(n=10, seed=0, side=20):
    rng = np.random.default_rng(seed)
    return data.ImageSet(
        torch.from_numpy(rng.integers(0, 256, (n, side, side, 3), dtype=np.uint8)),
        torch.arange(n) % 3,
        ("a", "b", "c"),
        data.Source("Noise", "substitute", __import__("pathlib").Path("x"), "numpy"),
        "free",
    )


def kept(images, **options):
    return data.token_store(images, backbone="patches", **options)


def in_memory(store):
    return torch.from_numpy(np.array(store.tokens))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_tokens_are_those_of_image_tokens(network, dtype):
    images = picture_set()
    store = kept(images, dtype=dtype, batch_size=3)
    assert store.tokens.shape == (10, 196, 6) and store.computed == 10 and len(store) == 10
    plain = data.image_tokens(images, backbone="patches", dtype=dtype, cache=False)
    assert torch.equal(in_memory(store), plain.tokens)
    assert torch.equal(store.labels, images.labels) and store.classes == images.classes
    assert store.source == images.source and store.grid == (14, 14)
    assert store.backbone == "patches" and store.features == "features of Patches"
    assert "10 images of 196 tokens with 6 features on disk" in repr(store)
    assert not store.tokens.flags.writeable and isinstance(store.tokens, np.memmap)


def test_second_call_computes_nothing_and_loads_no_network(network, monkeypatch):
    images = picture_set()
    first = kept(images)
    monkeypatch.setattr(backbone, "load", None)
    second = kept(images, batch_size=5)
    assert second.computed == 0 and second.folder == first.folder and network.seen == 10
    assert torch.equal(in_memory(first), in_memory(second))


def test_half_precision_errs_as_little_as_it_says(network, monkeypatch):
    """|rounded − x| ≤ max(2⁻¹¹|x|, 2⁻²⁵), also where half precision has no leading digit left."""
    images = picture_set(4)
    load = backbone.load

    def spread(name):
        loaded = load(name)
        scale = torch.tensor([1.0, 1e3, 1e-3, 1e-5, 1e-7, 3e-8])
        loaded.trunk.register_forward_hook(lambda _, __, out: out * scale)
        return loaded

    monkeypatch.setattr(backbone, "load", spread)
    exact = in_memory(kept(images, dtype=torch.float32)).double()
    half = in_memory(kept(images, dtype=torch.float16)).double()
    error = (half - exact).abs()
    assert bool((error <= torch.clamp(exact.abs() * 2**-11, min=2**-25)).all())
    assert (
        float((error / exact.abs().clamp(min=2**-14)).max()) > 2**-12.5
    )  # the bound is no fiction


def test_names_depend_on_everything_that_matters(network, alone):
    images = picture_set()
    folders = [kept(images).folder, kept(images, dtype=torch.float32).folder]
    changed = images.images.clone()
    changed[3, 5, 5, 0] ^= 1
    for other in (
        images[:9],
        images.images,
        data.ImageSet(changed, images.labels, images.classes, images.source, "free"),
        data.ImageSet(images.images, images.labels.flip(0), images.classes, images.source, "free"),
        data.ImageSet(images.images, images.labels, ("a", "b", "d"), images.source, "free"),
        data.ImageSet(
            images.images.reshape(10, 10, 40, 3), images.labels, images.classes, images.source, ""
        ),
    ):
        folders.append(kept(other).folder)
    (alone / "weights").write_bytes(b"others")
    folders.append(kept(images).folder)
    assert len(set(folders)) == 9
    (alone / "weights").write_bytes(b"no weights")
    elsewhere = data.Source("Noise", "cache", alone, "numpy")
    same = data.ImageSet(images.images, images.labels, images.classes, elsewhere, "free")
    found = kept(same)
    assert found.computed == 0 and found.folder == folders[0] and found.source == elsewhere


def test_another_version_of_a_network_is_another_store(network, monkeypatch):
    """Raised where preparation or network change while the weights stay."""
    images = picture_set()
    first, singly = kept(images), data.image_tokens(images, backbone="patches")
    changed = dataclasses.replace(backbone.NETWORKS["patches"], version=2)
    monkeypatch.setitem(backbone.NETWORKS, "patches", changed)
    second = kept(images)
    assert second.computed == 10 and second.folder != first.folder
    assert data.image_tokens(images, backbone="patches").computed == singly.computed == 10


def test_a_bare_tensor_and_no_images(network):
    store = kept(picture_set().images)
    assert store.labels is None and store.classes == () and store.source is None
    assert data.TokenStore.open(store.folder).labels is None
    none = kept(picture_set(0))
    assert none.tokens.shape == (0, 196, 6) and none.mean().shape == (0, 6)
    assert none[:].tokens.shape == (0, 196, 6) and list(none.batches()) == []
    assert kept(picture_set(0)).computed == 0


def test_opened_by_its_folder(network):
    store = kept(picture_set())
    again = data.TokenStore.open(str(store.folder))
    assert torch.equal(in_memory(again), in_memory(store))
    assert torch.equal(again.labels, store.labels) and again.classes == store.classes
    assert str(again.source) == str(store.source) and again.features == store.features
    with pytest.raises(FileNotFoundError, match="no whole array"):
        data.TokenStore.open(store.folder / "x")
    # To another process goes a name, not the tokens.
    sent = pickle.dumps(store)
    assert len(sent) < 1000 and torch.equal(in_memory(pickle.loads(sent)), in_memory(store))


def test_damage_is_named_on_opening_and_repaired_with_images(network):
    images = picture_set()
    store = kept(images)
    expected = in_memory(store)
    file = store.folder / "array.npy"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 4
    file.write_bytes(raw)
    with pytest.raises(data.ChecksumError, match="1 of 3 pieces .* rows from 8"):
        data.TokenStore.open(store.folder)
    with pytest.raises(data.ChecksumError):
        store.verify()
    data.TokenStore.open(store.folder, verify=False)
    with pytest.warns(UserWarning, match="are damaged .* computed again"):
        repaired = kept(images)
    assert repaired.computed == 2 and torch.equal(in_memory(repaired), expected)
    repaired.verify()


def test_another_format_is_refused(network):
    store = kept(picture_set())
    about, note = array_file.read_about(store.folder)
    array_file._describe(store.folder, {**about, "format": 99}, note)
    with pytest.raises(ValueError, match="has format 99; it needs 1"):
        data.TokenStore.open(store.folder)


def test_what_image_tokens_has_kept_is_not_computed_again(network):
    images = picture_set()
    known = data.image_tokens(images[2:7], backbone="patches", dtype=torch.float16)
    assert known.computed == 5 and network.seen == 5
    store = kept(images)
    assert network.seen == 10 and torch.equal(in_memory(store)[2:7], known.tokens)
    data.image_tokens(images, backbone="patches", dtype=torch.float32)
    assert network.seen == 20


def test_some_images_in_memory(network):
    store = kept(picture_set())
    tokens = in_memory(store)
    mask = torch.arange(10) % 4 == 1
    for rows in (slice(2, 9, 3), [4, 4, 0], torch.tensor([9, 1]), mask, slice(0, 0)):
        some = store[rows]
        assert isinstance(some, data.ImageTokens) and some.source == store.source
        assert torch.equal(some.tokens, tokens[rows]) and torch.equal(
            some.labels, store.labels[rows]
        )
    some.tokens.add_(1)
    store[:2].tokens.zero_()  # a copy
    assert torch.equal(in_memory(store), tokens)
    with pytest.raises(ValueError, match="rows is 3"):
        store[3]
    for rows in (np.int64(3), torch.tensor(3), True, None):
        with pytest.raises(ValueError, match="rows is"):
            store[rows]
    with pytest.raises(IndexError):
        store[[10]]


def test_opened_from_another_folder(network, monkeypatch, tmp_path):
    """A name that is relative to the working directory is no name for other processes."""
    store = kept(picture_set())
    monkeypatch.chdir(store.folder.parent)
    again = data.TokenStore.open(store.folder.name)
    assert again.folder == store.folder
    monkeypatch.chdir(tmp_path)
    assert torch.equal(in_memory(pickle.loads(pickle.dumps(again))), in_memory(store))
    again.verify()
    monkeypatch.setenv("FOURVIEWS_CACHE", "here")
    other = kept(picture_set(seed=1))
    monkeypatch.chdir(store.folder)
    other.verify()
    assert other.digest != store.digest


def test_a_store_without_its_digests_has_no_name(network):
    """Else all such stores, and what is derived from them, would have the same one."""
    store = kept(picture_set())
    file = store.folder / "pieces.txt"
    lines = file.read_text().splitlines(keepends=True)
    for harm in ("", lines[0] + lines[2], "".join(lines) + f"3 {chr(48) * 64}\n"):
        file.write_text(harm)
        with pytest.raises(data.ChecksumError, match="pieces.txt is damaged"):
            repr(data.TokenStore.open(store.folder, verify=False).digest)


def test_a_whole_store_is_read_where_nothing_can_be_written(network, monkeypatch):
    images = picture_set()
    store = kept(images)

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(array_file, "locked", refuse)
    monkeypatch.setattr(array_file, "atomic_write", refuse)
    again = kept(images)
    assert again.computed == 0 and torch.equal(in_memory(again), in_memory(store))
    with pytest.raises(PermissionError):
        kept(picture_set(seed=1))


def test_batches_and_means(network):
    store = kept(picture_set())
    tokens = in_memory(store).float()
    sizes = [len(some) for some in store.batches(4)]
    assert sizes == [4, 4, 2]
    together = torch.cat(list(store.batches(3)))
    assert together.dtype == torch.float32 and torch.equal(together, tokens)
    torch.testing.assert_close(store.mean(), tokens.double().mean(1).float(), rtol=0, atol=0)
    for size in (0, True, 1.5):
        with pytest.raises(ValueError, match="size is"):
            next(store.batches(size))


def test_no_warning_while_reading(network):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = kept(picture_set())
        store[:2], store.mean(), list(store.batches()), data.TokenStore.open(store.folder)


def test_too_large_for_half_precision(network, monkeypatch):
    load = backbone.load

    def large(name):
        loaded = load(name)
        loaded.trunk.register_forward_hook(lambda _, __, out: out * 1e6)
        return loaded

    monkeypatch.setattr(backbone, "load", large)
    with pytest.raises(ValueError, match="do not fit float16"):
        kept(picture_set())
    assert kept(picture_set(), dtype=torch.float32).computed == 10


def test_bad_arguments(network):
    images = picture_set()
    with pytest.raises(ValueError, match="images has shape"):
        kept(images.images.float())
    with pytest.raises(ValueError, match="dtype is torch.float64"):
        kept(images, dtype=torch.float64)
    with pytest.raises(ValueError, match="backbone is 'vgg'"):
        data.token_store(images, backbone="vgg")
    for size in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match="batch_size is"):
            kept(images, batch_size=size)


def test_a_full_disk_names_the_bytes(network, monkeypatch):
    usage = array_file.shutil.disk_usage("/")
    monkeypatch.setattr(array_file.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(OSError, match="images to tokens: 23,648 bytes more .* 1,000 are free"):
        kept(picture_set())
    assert network.seen == 0


# --- a killed process ----------------------------------------------------------------------------


def _compute_slowly(folder):
    token_store.PIECE = 4
    patches = install(folder)
    forward = patches.forward

    def slow(self, images):
        time.sleep(0.2)
        return forward(self, images)

    patches.forward = slow
    kept(picture_set(40))


def test_a_killed_run_is_continued(network, alone):
    worker = multiprocessing.get_context("spawn").Process(target=_compute_slowly, args=(alone,))
    worker.start()  # it inherits FOURVIEWS_CACHE
    deadline = time.monotonic() + 120
    while sum(f.read_text().count("\n") for f in alone.rglob("pieces.txt")) < 2:
        assert worker.is_alive() and time.monotonic() < deadline
        time.sleep(0.02)
    worker.kill()
    worker.join(timeout=60)
    assert worker.exitcode == -9
    (part,) = (alone / "cache" / "token-stores").glob("*.part")
    with pytest.raises(FileNotFoundError):
        data.TokenStore.open(part)
    done = len((part / "pieces.txt").read_text().splitlines())
    assert 2 <= done < 10
    images = picture_set(40)
    store = kept(images)
    assert store.computed == 40 - 4 * done == network.seen
    plain = data.image_tokens(images, backbone="patches", dtype=torch.float16, cache=False)
    assert torch.equal(in_memory(store), plain.tokens) and not part.exists()
    assert json.loads((store.folder / "about.json").read_text())["about"]["shape"] == [40, 196, 6]
