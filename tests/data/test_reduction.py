"""Reductions of features: against direct computations in memory, streamed and kept."""

import sys

import numpy as np
import pytest
import torch

from fourviews import data
from fourviews.data.features import array_file, backbone, moments, reduction, token_store
from fourviews.data.features.moments import mean_and_covariance

from .networks import install


@pytest.fixture
def store(alone, monkeypatch):
    monkeypatch.setattr(backbone, "NETWORKS", dict(backbone.NETWORKS))
    monkeypatch.setattr(token_store, "PIECE", 4)
    install(alone)
    images = np.random.default_rng(0).integers(0, 256, (10, 24, 24, 3), dtype=np.uint8)
    return data.token_store(torch.from_numpy(images), backbone="patches")


def tokens(n=7, s=5, d=12, seed=0, dtype=torch.float64):
    """Correlated features of very different scales, far from zero."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(d, d, generator=generator, dtype=torch.float64)
    scales = 10.0 ** torch.linspace(-2, 2, d, dtype=torch.float64)
    X = torch.randn(n, s, d, generator=generator, dtype=torch.float64) @ mix * scales
    return (X + 5 * scales).to(dtype)


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_moments_in_pieces_are_those_at_once(size):
    X = tokens()
    before = X.clone()
    count, mean, covariance = mean_and_covariance(token_store.batches(X, size))
    rows = X.flatten(0, 1).numpy()
    assert count == 35 and torch.equal(X, before)
    np.testing.assert_allclose(mean, rows.mean(0), rtol=1e-13)
    expected = np.cov(rows.T, bias=True)
    scale = np.sqrt(np.outer(expected.diagonal(), expected.diagonal()))
    np.testing.assert_allclose(covariance.numpy() / scale, expected / scale, atol=1e-13)


def test_a_distant_mean_costs_no_digits():
    """In float32 sums, or without the shift, nothing would be left of a variance of 1."""
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(400, 10, 2, generator=generator, dtype=torch.float64) + 1e7
    _, _, covariance = mean_and_covariance(token_store.batches(X, 16))
    # Centred first, which is exact enough in two passes.
    rows = (X - X.mean((0, 1))).flatten(0, 1)
    np.testing.assert_allclose(covariance, rows.T @ rows / len(rows), atol=1e-8)


def test_no_tokens_and_numbers_that_are_none():
    for shape in ((0, 5, 3), (5, 0, 3)):
        with pytest.raises(ValueError, match="no token"):
            data.reduce_features(torch.zeros(shape), to=2)
    for bad in (float("nan"), float("inf")):
        X = tokens()
        X[3, 2, 1] = bad
        with pytest.raises(ValueError, match="not finite"):
            data.reduce_features(X, to=2)


@pytest.mark.parametrize("to", [1, 4, 12])
def test_principal_components(to):
    X = tokens()
    map_ = data.reduce_features(X, to=to)
    rows = (X - X.mean((0, 1))).flatten(0, 1)
    _, singular, Vt = torch.linalg.svd(rows, full_matrices=False)
    # The same axes up to sign, the largest first.
    signs = (map_.matrix * Vt[:to].T).sum(0)
    torch.testing.assert_close(signs.abs(), torch.ones(to).double(), rtol=1e-6, atol=0)
    torch.testing.assert_close(map_.matrix, Vt[:to].T * signs.sign(), rtol=0, atol=1e-5)
    largest = map_.matrix.gather(0, map_.matrix.abs().argmax(0, keepdim=True))
    assert bool((largest > 0).all())
    kept = float(singular[:to].square().sum() / singular.square().sum())
    assert map_.explained == pytest.approx(kept, rel=1e-10)
    assert f"<{to} principal components of 12 features, {kept:.1%} of the variance>" == repr(map_)
    Z = map_.apply(X)
    assert Z.dtype == torch.float32 and Z.shape == (7, 5, to)
    torch.testing.assert_close(Z.double(), ((X - map_.centre) @ map_.matrix), rtol=1e-6, atol=1e-4)
    # No other map of this rank comes nearer: the rest of the variance is lost.
    lost = ((X - map_.centre) - (X - map_.centre) @ map_.matrix @ map_.matrix.T).square().sum()
    rest = singular[to:].square().sum()
    torch.testing.assert_close(lost, rest, rtol=1e-6, atol=1e-6 * float(singular[0] ** 2))


def test_scaled_components_are_white():
    X = tokens()
    Z = data.reduce_features(X, to=6, scale=True).apply(X).double().flatten(0, 1)
    torch.testing.assert_close(Z.T @ Z / len(Z), torch.eye(6).double(), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("d", "to"), [(12, 12), (12, 5), (12, 1), (256, 100), (112, 100)])
def test_means_of_neighbours_are_adaptive_pooling(d, to):
    X = tokens(d=d)
    map_ = data.reduce_features(X, to=to, how="average")
    expected = torch.nn.functional.adaptive_avg_pool1d(X, to)
    torch.testing.assert_close(map_.apply(X), expected.float(), rtol=1e-6, atol=1e-6)
    assert map_.explained is None and map_.centre.abs().max() == 0


def test_scaled_means_have_square_one_and_zero_stays_zero():
    X = tokens()
    X[..., :3] = 0
    map_ = data.reduce_features(X, to=4, how="average", scale=True)
    Z = map_.apply(X).double()
    square = Z.square().mean((0, 1))
    torch.testing.assert_close(square, torch.tensor([0.0, 1, 1, 1]).double(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("how", ["pca", "average"])
def test_constant_comes_last(how):
    X = tokens()
    plain = data.reduce_features(X, to=4, how=how).apply(X)
    more = data.reduce_features(X, to=4, how=how, constant=True)
    Z = more.apply(X)
    assert Z.shape == (7, 5, 5) and torch.equal(Z[..., :4], plain) and bool((Z[..., 4] == 1).all())
    assert "and a constant" in repr(more)


@pytest.mark.parametrize("options", [{}, {"scale": True}, {"constant": True, "how": "average"}])
def test_mean_over_tokens_commutes(options):
    X = tokens()
    map_ = data.reduce_features(X, to=5, **options)
    torch.testing.assert_close(
        map_.apply(X.mean(1)), map_.apply(X).double().mean(1).float(), rtol=1e-5, atol=1e-4
    )


def test_a_store_gives_a_store_with_the_same_numbers(store):
    for options in ({"to": 4}, {"to": 3, "how": "average", "scale": True, "constant": True}):
        map_ = data.reduce_features(store, **options)
        reduced = map_.apply(store)
        in_memory = torch.from_numpy(np.array(store.tokens))
        direct = data.reduce_features(in_memory, **options)
        torch.testing.assert_close(map_.matrix, direct.matrix, rtol=1e-9, atol=1e-12)
        assert reduced.tokens.dtype == np.float32 and reduced.computed == 10
        assert torch.equal(torch.from_numpy(np.array(reduced.tokens)), map_.apply(in_memory))
        assert reduced.features == f"{map_} of the features of Patches"
        assert map_.apply(store).computed == 0
        again = data.TokenStore.open(reduced.folder)
        torch.testing.assert_close(again.mean(), map_.apply(store.mean()), rtol=1e-5, atol=1e-5)
        half = map_.apply(store, dtype=torch.float16)
        assert half.tokens.dtype == np.float16 and half.folder != reduced.folder
    some = map_.apply(store[2:5])
    assert isinstance(some, data.ImageTokens) and torch.equal(some.tokens, reduced[2:5].tokens)


def test_moments_of_a_store_are_taken_once(store, monkeypatch):
    first = data.reduce_features(store, to=4)
    monkeypatch.setattr(moments, "mean_and_covariance", None)
    second = data.reduce_features(store, to=4)
    assert first.digest == second.digest
    assert data.reduce_features(store, to=2, how="average", scale=True).scaled
    file = store.folder / "moments.npz"
    whole = file.read_bytes()
    for damaged in (b"", whole[:50], whole[:-1], whole.replace(whole[200:208], b"\0" * 7 + b"\1")):
        file.write_bytes(damaged)
        with pytest.raises(TypeError):  # it would be computed
            data.reduce_features(store, to=4)


def test_on_a_disk_that_is_only_read_moments_are_computed_each_time(store, monkeypatch):
    first = data.reduce_features(store, to=4)
    (store.folder / "moments.npz").unlink()
    monkeypatch.setattr(moments.os, "access", lambda place, mode: False)
    monkeypatch.setattr(moments, "locked", None)
    for _ in range(2):
        assert data.reduce_features(store, to=4).digest == first.digest
    assert not (store.folder / "moments.npz").exists()


def test_every_wrong_bit_in_kept_moments_is_seen(store):
    """A damaged header of the file must not end in an error of the library that reads it."""
    data.reduce_features(store, to=4)
    file = store.folder / "moments.npz"
    whole = file.read_bytes()
    for place in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        file.write_bytes(damaged)
        assert moments._read(file) is None
    file.write_bytes(whole)
    assert moments._read(file) is not None


def test_nothing_is_kept_that_comes_from_damaged_bytes(store):
    map_ = data.reduce_features(store, to=4)
    (store.folder / "moments.npz").unlink()
    file = store.folder / "array.npy"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    with pytest.raises(data.ChecksumError):
        data.reduce_features(store, to=4)
    with pytest.raises(data.ChecksumError):
        map_.apply(store)


def test_an_interrupted_reduction_is_continued(store, monkeypatch):
    map_ = data.reduce_features(store, to=4)
    put, calls = array_file._put, []

    def fail(*arguments):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(put(*arguments))

    monkeypatch.setattr(array_file, "_put", fail)
    with pytest.raises(KeyboardInterrupt):
        map_.apply(store)
    monkeypatch.setattr(array_file, "_put", put)
    assert map_.apply(store).computed == 2


def test_too_few_directions():
    X = tokens(n=1, s=5)  # five points span four directions
    assert data.reduce_features(X, to=6).explained == pytest.approx(1)
    with pytest.raises(ValueError, match="varies in 4 directions only"):
        data.reduce_features(X, to=5, scale=True)
    assert data.reduce_features(X, to=4, scale=True).apply(X).isfinite().all()


def test_bad_arguments(store):
    X = tokens()
    for to in (0, 13, 2.0, True):
        with pytest.raises(ValueError, match="to is .* from 1 to 12"):
            data.reduce_features(X, to=to)
    with pytest.raises(ValueError, match="how is 'mean'"):
        data.reduce_features(X, to=2, how="mean")
    with pytest.raises(ValueError, match="scale is 1"):
        data.reduce_features(X, to=2, scale=1)
    with pytest.raises(ValueError, match="train is of type list"):
        data.reduce_features([1], to=2)
    with pytest.raises(ValueError, match="train has shape"):
        data.reduce_features(X[0], to=2)
    with pytest.raises(ValueError, match="train has shape .* torch.int64"):
        data.reduce_features(X.long(), to=2)
    map_ = data.reduce_features(X, to=2)
    with pytest.raises(ValueError, match="last size needs to be 12"):
        map_.apply(X[..., :11])
    with pytest.raises(ValueError, match="last size needs to be 12"):
        map_.apply(store)
    with pytest.raises(ValueError, match="tokens is of type ndarray"):
        map_.apply(X.numpy())
    with pytest.raises(ValueError, match="dtype is torch.float64"):
        map_.apply(X, dtype=torch.float64)
    with pytest.raises(ValueError, match="do not fit float16"):
        map_.apply(X * 1e9, dtype=torch.float16)
    with pytest.raises(ValueError, match="at least one token"):
        token_store.token_mean(torch.zeros(2, 0, 3))


def test_digest_names_the_map():
    X = tokens()
    maps = [
        data.reduce_features(X, to=4),
        data.reduce_features(X, to=3),
        data.reduce_features(X, to=4, scale=True),
        data.reduce_features(X, to=4, constant=True),
        data.reduce_features(X, to=4, how="average"),
    ]
    assert len({map_.digest for map_ in maps}) == 5
    assert data.reduce_features(X.clone(), to=4).digest == maps[0].digest
    assert sys.modules[reduction.__name__].FeatureReduction is data.FeatureReduction
