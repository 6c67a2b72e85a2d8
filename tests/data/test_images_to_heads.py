"""From images to heads with everything in files: what the lab's largest preset does, in small."""

import ast
import gc
import importlib
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import lesson_source
from fourviews import convex, data
from fourviews.data.features import backbone, token_store

from .networks import install

LESSON = Path(__file__).parents[2] / "lessons_src" / "convex_08_cifar100_lab.md"
problem = importlib.import_module("fourviews.convex.problem")
shards = importlib.import_module("fourviews.convex.shards")
attention = importlib.import_module("fourviews.convex.heads.self_attention")
tokens_module = importlib.import_module("fourviews.convex.experiment.tokens")
run = importlib.import_module("fourviews.convex.experiment.run")


def pictures(split, *, n_classes, n_per_class):
    """Noise with a tint for each class, in the place of CIFAR-100."""
    rng = np.random.default_rng(["train", "test"].index(split))
    label = np.arange(n_classes * n_per_class) % n_classes
    tint = np.random.default_rng(5).integers(0, 120, (n_classes, 1, 1, 3))
    noise = rng.integers(0, 136, (len(label), 32, 32, 3))
    return data.ImageSet(
        torch.from_numpy((noise + tint[label]).astype(np.uint8)),
        torch.from_numpy(label),
        tuple(map(str, range(n_classes))),
        data.Source("Tinted noise", "substitute", Path("x"), "numpy"),
        "free",
    )


def lab_preset(name="full"):
    """The sizes that the lab's own text gives this preset."""
    (source,) = (c.source for c in lesson_source.read(LESSON).cells() if "preset(" in c.source)
    (call,) = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "preset"
    )
    (sizes,) = (keyword.value for keyword in call.keywords if keyword.arg == name)
    return {keyword.arg: ast.literal_eval(keyword.value) for keyword in sizes.keywords}


def config(**changes):
    """The lab's full preset with other sizes, but for those that decide which way it goes."""
    full = lab_preset()
    kept = {name: full[name] for name in ("method", "dtype", "loss", "grid")}
    assert kept["method"] == "factored" and full["shard"] is not None and full["device"] == "cuda"
    small = dict(
        classes=3, train=4, holdout=2, test=3, seeds=1, features=4, gates=2, attention_gates=2,
        blocks=1, shares=(0.3,), tol=0.1, shard=5, inputs=("constant",), backbone="patches",
    )  # fmt: skip
    return convex.HeadsConfig(**kept | small | changes)


@pytest.fixture
def images(alone, monkeypatch):
    """A cheap backbone, and a few images at a time."""
    monkeypatch.setattr(backbone, "NETWORKS", dict(backbone.NETWORKS))
    monkeypatch.setattr(token_store, "PIECE", 4)
    monkeypatch.setattr(data, "cifar100", pictures)
    for module in (tokens_module, run):
        monkeypatch.setattr(module, "_PIECE", 8)
    return install(alone)


@pytest.fixture
def files(images, monkeypatch):
    """Nothing is small enough for memory; returns the arrays that are mapped from files."""
    monkeypatch.setattr(shards, "_LARGEST_KEPT", 0)
    monkeypatch.setattr(shards, "_PIECE", 2**10)
    monkeypatch.setattr(problem, "_LARGEST_MASKS", 0)
    monkeypatch.setattr(problem, "_PIECE", 2**10)
    monkeypatch.setattr(attention, "_LARGEST_MOMENTS", 0)
    kept, memmap = [], np.memmap

    def mapped(*arguments, **options):
        kept.append(memmap(*arguments, **options))
        return kept[-1]

    monkeypatch.setattr(np, "memmap", mapped)
    return kept


def address(array):
    return array.__array_interface__["data"][0]


class Largest(TorchDispatchMode):
    """Bytes of the largest storage that any operation hands out, mapped files left out."""

    def __init__(self, files):
        super().__init__()
        self.files, self.known, self.bytes = files, set(), 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        self.known |= {address(file) for file in self.files[len(self.known) :]}
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor):
                storage = value.untyped_storage()
                if storage.data_ptr() not in self.known:
                    self.bytes = max(self.bytes, storage.nbytes())
        return result


def without_times(rows):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def test_tokens_are_the_stores_and_are_computed_once(images, files, alone):
    some = config()
    found = convex.token_set(some)
    assert found.train.shape == (18, 196, 6) and found.train.dtype == torch.float16
    assert found.grid == (14, 14) and found.data == "Tinted noise" and images.seen == 27
    store = data.token_store(pictures("train", n_classes=3, n_per_class=6), backbone="patches")
    assert store.computed == 0
    assert torch.equal(found.train, torch.from_numpy(np.array(store.tokens)))
    assert found.train.data_ptr() in map(address, files)
    # A mosaic, another grid, other heads: the same store.
    convex.token_set(config(task="mosaic", grid=(4, 4), heads=("mixer",)))
    assert images.seen == 27 and len(list((alone / "cache" / "token-stores").glob("[!.]*"))) == 2
    assert not list((alone / "cache").glob("image-tokens"))


@pytest.mark.parametrize("task", ["pooled", "mosaic"])
def test_in_files_it_is_the_same_table(images, monkeypatch, task):
    """All heads of the lab, linear and gated; values and their types."""
    some = config(task=task, grid=(4, 4), blocks=1)
    in_memory = convex.heads_experiment(some, progress=False)
    assert len(in_memory) == 10 and all(row["converged"] for row in in_memory)
    made, room = [], shards.room

    def watched(*arguments):
        made.append(room(*arguments))
        return made[-1]

    monkeypatch.setattr(shards, "_LARGEST_KEPT", 0)
    for module in (shards, tokens_module, run):
        monkeypatch.setattr(module, "room", watched)
    in_files = convex.heads_experiment(some, progress=False)
    assert without_times(in_files) == without_times(in_memory)
    shapes = {tuple(x.shape) for x in made}
    n, leading = (12, ()) if task == "pooled" else (3, (16,))
    assert {(18, 16, 6), (9, 16, 6), (n, 16, 4), (n, *leading), (n, *leading, 3)} <= shapes


def tokens_in_files(some, seed=0):
    """A token set of noise, in half precision, as a store of that size would give it."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for count in (some.train + some.holdout, some.test):
        label = torch.arange(count * some.classes) % some.classes
        tokens = shards.room((len(label), 16, 6), "cpu", torch.float16)
        tokens.copy_(torch.randn(tokens.shape, generator=generator) + label.view(-1, 1, 1))
        found += [tokens, label]
    return convex.TokenSet(*found, grid=(4, 4), classes=3, data="noise", backbone="none")


@pytest.mark.parametrize("task, counts", [("pooled", (20, 100)), ("mosaic", (80, 400))])
def test_no_operation_needs_more_memory_for_more_images(files, task, counts):
    """Every tensor that any operation hands out is counted, but for what is mapped from files."""
    largest, n = [], []
    for train in counts:
        some = config(
            task=task,
            grid=(4, 4),
            train=train,
            holdout=train // 4,
            test=train,
            shard=16,
            tol=0.5,
            shares=(0.9,),
            heads=("linear", "mlp", "attention"),
        )
        tokens = tokens_in_files(some)
        with Largest(files) as seen:
            rows = convex.heads_experiment(some, tokens, progress=False)
        assert len(rows) == 4
        n.append(rows[0]["train"])
        largest.append(seen.bytes)
    assert n == [60, 300]
    assert largest[1] <= 1.2 * largest[0]
    whole = 300 * 16 * 4 * 4  # bytes of the reduced tokens
    assert largest[1] < whole
    # What there is of that size is in files.
    assert sum(file.nbytes >= whole for file in files) >= 2


def test_what_is_too_large_for_memory_would_be_noticed(files, monkeypatch):
    some = config(train=100, grid=(4, 4), heads=("linear",), shard=16, tol=0.5, shares=(0.9,))
    tokens = tokens_in_files(some)
    monkeypatch.setattr(shards, "_LARGEST_KEPT", 2**40)
    with Largest(files) as seen:
        convex.heads_experiment(some, tokens, progress=False)
    assert seen.bytes >= 300 * 16 * 4 * 4


def problems():
    return sum(convex.Problem in type(x).__mro__ for x in gc.get_objects())


def test_one_draw_is_gone_when_the_next_is_made(images, monkeypatch):
    """Each may fill a disk."""
    alive, samples = [], run.samples

    def watched(*arguments):
        alive.append(problems())
        return samples(*arguments)

    monkeypatch.setattr(run, "samples", watched)
    gc.collect()
    before = problems()
    some = config(seeds=3, heads=("linear",))
    convex.heads_experiment(some, progress=False)
    assert len(alive) == 9 and max(alive) == before


def test_all_heads_of_a_draw_are_those_one_by_one(images):
    some = config(heads=("linear", "attention"), shares=(0.5, 0.3))
    tokens = convex.token_set(some)
    together = convex.fit_heads(some, tokens, form="constant", seed=0)
    assert tuple(together) == some.pairs
    for pair, fit in together.items():
        alone_ = convex.fit_head(some, tokens, *pair, form="constant", seed=0)
        assert without_times([fit.row]) == without_times([alone_.row])
        assert len(fit.train_scores) == len(fit.holdout_scores) == len(fit.path) == 2
        X, labels = fit.solution.problem.X, fit.solution.problem.loss.target.argmax(-1)
        for solution, score in zip(fit.path, fit.train_scores, strict=True):
            own = solution.predict(X).argmax(-1) == labels
            assert score == pytest.approx(float(own.double().mean()))


# What is refused ---------------------------------------------------------------------------------


def test_too_few_images_are_told_before_any_token_is_computed(images):
    def fewer(split, *, n_classes, n_per_class):
        return pictures(split, n_classes=min(n_classes, 2), n_per_class=min(n_per_class, 5))

    data.cifar100 = fewer  # the fixture puts it back
    with pytest.raises(ValueError, match="Tinted noise has 2 classes and 5 images of the rarest"):
        convex.token_set(config())
    assert images.seen == 0


def test_a_grid_finer_than_the_backbones(images):
    with pytest.raises(ValueError, match=r"grid is \(14, 15\); the backbone's is \(14, 14\)"):
        convex.token_set(config(grid=(14, 15)))


@pytest.mark.parametrize("device", ["cuda:99", "nothing"])
def test_a_device_that_is_not_there_is_told_first(images, device):
    with pytest.raises(ValueError, match=f"device is '{device}', which this machine does not have"):
        convex.token_set(config(device=device))
    tokens = convex.token_set(config())
    with pytest.raises(ValueError, match="which this machine does not have"):
        convex.heads_experiment(config(device=device), tokens)
    with pytest.raises(ValueError, match="which this machine does not have"):
        data.image_tokens(pictures("test", n_classes=2, n_per_class=1), device=device)
    assert images.seen == 27


@pytest.mark.parametrize("where", ["train", "test"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_tokens_that_are_no_numbers(images, where, value):
    """In any training or test image."""
    found = convex.token_set(config(heads=("linear",)))
    for row in (0, 7, 17) if where == "train" else (0, 8):
        tokens = getattr(found, where).clone()
        tokens[row, 3, 1] = value
        with pytest.raises(ValueError, match=f"{where} must be finite"):
            convex.TokenSet(**{**vars(found), where: tokens})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tokens_of_any_floating_type(images, dtype):
    some = config(heads=("linear",))
    found = convex.token_set(some)
    typed = {name: getattr(found, name).to(dtype) for name in ("train", "test")}
    (row,) = convex.heads_experiment(some, convex.TokenSet(**vars(found) | typed), progress=False)
    assert row["converged"]
    with pytest.raises(ValueError, match="train has shape .* torch.int32"):
        convex.TokenSet(**vars(found) | {"train": typed["train"].int()})


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system has no such call")
def test_a_disk_too_small_for_temporary_files(files, monkeypatch):
    def full(descriptor, first, count):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shards.os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"no room for .* bytes in .*No space left.* set TMPDIR"):
        convex.heads_experiment(config(), progress=False)
