"""CIFAR-10 and CIFAR-100 from each of their sources, and what stands in for them."""

import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fourviews import data
from fourviews.data.files.checksums import ChecksumError
from fourviews.data.files.extraction import UnsafeArchiveError

MODULE = sys.modules["fourviews.data.pictures.cifar"]
TINY = sys.modules["fourviews.data.pictures.tiny_imagenet"]
CLASSES = [f"kind{number}" for number in range(10)]
FINE = [f"fine{number:03}" for number in range(100)]
COARSE = [f"coarse{number:02}" for number in range(20)]


def image(label, number, split):
    """Red is the label, green the number, blue the column: orders and channels can be told apart."""
    pixels = np.zeros((3, 32, 32), dtype=np.uint8)
    pixels[0], pixels[1] = label, number
    pixels[2] = np.arange(32) + (100 if split == "test" else 0)
    return pixels.reshape(-1)


def batch(rows, split, **labels):
    return pickle.dumps(
        {
            b"data": np.stack([image(label, number, split) for label, number in rows]),
            **{key.encode(): value for key, value in labels.items()},
            b"batch_label": b"toy",
        },
        protocol=2,
    )


def cifar10_files(batches=2):
    """Batch b holds images 10·b … 10·b + 9; class of image i is 7·i mod 10, its number i."""
    files = {
        "cifar-10-batches-py/batches.meta": pickle.dumps({"label_names": CLASSES}, 2),
        "cifar-10-batches-py/readme.html": b"x",
    }
    for number in range(batches):
        rows = [(7 * i % 10, i) for i in range(20 * number, 20 * number + 20)]
        files[f"cifar-10-batches-py/data_batch_{number + 1}"] = batch(
            rows, "train", labels=[label for label, _ in rows]
        )
    rows = [(i, i) for i in range(10)]
    files["cifar-10-batches-py/test_batch"] = batch(rows, "test", labels=list(range(10)))
    return files


def cifar100_files():
    files = {
        "cifar-100-python/meta": pickle.dumps(
            {"fine_label_names": FINE, "coarse_label_names": COARSE}, 2
        )
    }
    for split, count in (("train", 200), ("test", 100)):
        rows = [(13 * i % 100, i) for i in range(count)]
        fine = [label for label, _ in rows]
        coarse = [label // 5 for label in fine]
        files[f"cifar-100-python/{split}"] = batch(
            rows, split, fine_labels=fine, coarse_labels=coarse
        )
    return files


def unpack(files, root):
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


def red(images):
    assert images.images.shape[1:] == (32, 32, 3) and images.images.dtype == torch.uint8
    return images.images[:, 0, 0, 0].tolist()


@pytest.mark.parametrize("layout", ["folder", "subset"])
def test_cifar10(alone, pack, layout):
    if layout == "folder":
        unpack(cifar10_files(), alone / "data")
    else:
        pack(alone / "data" / "cifar-10-python-subset.tar.gz", cifar10_files())
    train, test = data.cifar10(), data.cifar10("test")
    assert train.source.kind == layout and "CIFAR-10" in str(train.source)
    assert train.classes == tuple(CLASSES) and (len(train), len(test)) == (40, 10)
    assert red(train) == train.labels.tolist() and red(test) == test.labels.tolist()
    assert sorted(train.images[:, 0, 0, 1].tolist()) == list(range(40))
    # Columns run along the third axis, and the test part is another one.
    assert train.images[0, 5, :, 2].tolist() == list(range(32))
    assert test.images[0, 5, :, 2].tolist() == list(range(100, 132))
    assert train.labels[:10].sort().values.tolist() == list(range(10))  # classes take turns


def test_one_to_five_batches(alone):
    for batches in (1, 5):
        unpack(cifar10_files(batches), alone / "data")
        assert len(data.cifar10()) == 20 * batches
    (alone / "data" / "cifar-10-batches-py" / "data_batch_1").unlink()
    assert len(data.cifar10()) == 80
    assert red(data.cifar10(n_classes=3)) == [
        int(data.cifar10(n_classes=3).classes[label][4:])
        for label in data.cifar10(n_classes=3).labels
    ]


def test_choices(alone):
    unpack(cifar10_files(), alone / "data")
    few = data.cifar10(n_classes=3, n_per_class=2, seed=5)
    assert len(few) == 6 and few.labels.tolist() == [0, 1, 2] * 2
    assert [f"kind{level}" for level in red(few)] == [few.classes[label] for label in few.labels]
    assert data.cifar10("test", n_classes=3, seed=5).classes == few.classes
    more = data.cifar10(n_classes=3, n_per_class=3, seed=5)
    assert torch.equal(more.images[:6], few.images)
    with pytest.raises(ValueError, match="has 4"):
        data.cifar10(n_per_class=5)
    with pytest.raises(ValueError, match="there are 10 classes"):
        data.cifar10(n_classes=11)
    with pytest.raises(ValueError, match="split is 'val'"):
        data.cifar10("val")


def test_cifar100(alone, pack):
    pack(alone / "data" / "cifar-100-python-subset.tar.gz", cifar100_files())
    fine, coarse = data.cifar100(), data.cifar100(labels="coarse")
    assert fine.source.kind == "subset" and fine.classes == tuple(FINE)
    assert coarse.classes == tuple(COARSE) and len(fine) == len(coarse) == 200
    assert red(fine) == fine.labels.tolist()
    assert [level // 5 for level in red(coarse)] == coarse.labels.tolist()
    assert len(data.cifar100("test", n_classes=7, n_per_class=1)) == 7
    with pytest.raises(ValueError, match="labels is 'all'"):
        data.cifar100(labels="all")


@pytest.mark.parametrize(
    "load, name, files",
    [(data.cifar10, "CIFAR10", cifar10_files), (data.cifar100, "CIFAR100", cifar100_files)],
)
def test_download_is_resumed(alone, pack, publish, monkeypatch, load, name, files):
    content = pack(alone / "cifar.tar.gz", files()).read_bytes()
    published, ranges = publish(getattr(MODULE, name), content, cuts=[700])
    monkeypatch.setattr(MODULE, name, published)
    assert load().source.kind == "substitute" and ranges == []
    images = load(source="official")
    assert images.source.kind == "download" and ranges == [None, "bytes=700-"]
    assert red(images) == images.labels.tolist()
    assert load().source.kind == "cache"


def test_archives_that_are_not_official_or_do_harm(alone, pack):
    official = pack(alone / "data" / "cifar-10-python.tar.gz", cifar10_files())
    with pytest.raises(ChecksumError, match="remove it from FOURVIEWS_DATA"):
        data.cifar10()
    official.unlink()
    subset = alone / "data" / "cifar-10-python-subset.tar.gz"
    pack(subset, {**cifar10_files(), "cifar-10-batches-py/../../evil": b"evil"})
    with pytest.raises(UnsafeArchiveError, match="leads out"):
        data.cifar10()
    whole = pack(subset, cifar10_files()).read_bytes()
    subset.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="damaged"):
        data.cifar10()
    assert not list((alone / "cache").rglob("data_batch_*"))


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


def test_pickles_that_call_something(alone, monkeypatch):
    monkeypatch.chdir(alone)
    unpack(cifar10_files(), alone / "data")
    place = alone / "data" / "cifar-10-batches-py" / "data_batch_2"
    place.write_bytes(pickle.dumps({b"data": Evil(), b"labels": []}, 2))
    with pytest.raises(data.UnsafePickleError, match="data_batch_2 is no data.*mkdir"):
        data.cifar10()
    assert not (alone / "evil").exists()
    assert len(data.cifar10("test")) == 10


PIXELS = np.zeros((2, 3072), dtype=np.uint8)


@pytest.mark.parametrize(
    "content",
    [
        {b"labels": [0, 1]},
        {b"data": PIXELS},
        {b"data": PIXELS, b"labels": [0]},
        {b"data": PIXELS, b"labels": [0, 1.0]},
        {b"data": PIXELS, b"labels": [0, True]},
        {b"data": PIXELS[:, :100], b"labels": [0, 1]},
        {b"data": [[0] * 3072] * 2, b"labels": [0, 1]},
        {b"data": PIXELS, b"labels": [0, 10]},
        {b"data": PIXELS, b"labels": [0, -1]},
    ],
)
def test_batches_of_another_form(alone, content):
    unpack(cifar10_files(), alone / "data")
    place = alone / "data" / "cifar-10-batches-py" / "data_batch_2"
    place.write_bytes(pickle.dumps(content, 2))
    with pytest.raises(ValueError, match="data_batch_2 needs|labels outside its 10 classes"):
        data.cifar10()


def test_missing_files(alone):
    unpack(cifar10_files(0), alone / "data")
    with pytest.raises(ValueError, match="holds no data_batch_1"):
        data.cifar10()
    (alone / "data" / "cifar-10-batches-py" / "test_batch").unlink()
    with pytest.raises(ValueError, match="needs to hold test_batch"):
        data.cifar10("test")
    (alone / "data" / "cifar-10-batches-py" / "batches.meta").write_bytes(pickle.dumps({}, 2))
    unpack(
        {"cifar-10-batches-py/test_batch": cifar10_files()["cifar-10-batches-py/test_batch"]},
        alone / "data",
    )
    with pytest.raises(ValueError, match="batches.meta needs a list of names"):
        data.cifar10("test")


# --- what stands in ------------------------------------------------------------------------------


def test_digits_stand_in_for_cifar10(alone):
    datasets = pytest.importorskip("sklearn.datasets")
    train, test = data.cifar10("train"), data.cifar10("test")
    said = str(train.source)
    assert train.source.kind == "substitute" and "scikit-learn" in said and "digits" in said
    assert "fewer" not in said and train.may_be_shown and "Attribution" in train.licence
    assert len(train) + len(test) == 1797 and train.classes == tuple("0123456789")
    # Each is one of scikit-learn's, with its label, and none is in both parts.
    known = datasets.load_digits()
    by_pixels = {}
    for pixels, digit in zip(known.data.astype(int), known.target, strict=True):
        by_pixels.setdefault(pixels.tobytes(), set()).add(int(digit))
    seen = []
    for images in (train, test):
        small = images.images[:, ::4, ::4, 0].long()
        small = torch.where(small == 255, 16, small // 16).reshape(len(images), 64).numpy()
        for pixels, label in zip(small, images.labels.tolist(), strict=True):
            assert label in by_pixels[pixels.tobytes()]
            seen.append(pixels.tobytes())
    assert len(seen) == len(known.data) and set(seen) == set(by_pixels)
    few = data.cifar10(n_per_class=2000)
    assert len(few) == len(train) and "fewer than asked for" in str(few.source)


def test_letters_stand_in_for_cifar100(alone):
    pytest.importorskip("matplotlib", reason="ships the typefaces")
    train = data.cifar100(n_per_class=3)
    said = str(train.source)
    assert train.source.kind == "substitute" and "matplotlib" in said and "Letters" in said
    assert len(train.classes) == len(set(train.classes)) == 100 and train.may_be_shown
    assert train.images.shape == (300, 32, 32, 3)
    # Repeatable, nested, never blank, never twice the same; the test part draws others.
    assert torch.equal(data.cifar100(n_per_class=2).images, train.images[:200])
    assert (train.images.float().flatten(1).std(1) > 5).all()
    test = data.cifar100("test", n_per_class=3)
    every = {picture.numpy().tobytes() for part in (train, test) for picture in part.images}
    assert len(every) == 600
    assert "fewer than asked for" in str(data.cifar100("test", n_classes=2, n_per_class=50).source)
    with pytest.raises(ValueError, match="only CIFAR-100 itself has"):
        data.cifar100(labels="coarse")


def test_each_letter_is_drawn_differently(alone):
    """No two characters look the same in a typeface, and none is the box of a missing one."""
    pytest.importorskip("matplotlib", reason="ships the typefaces")
    pil = pytest.importorskip("PIL.Image")
    from PIL import ImageDraw

    glyphs = sys.modules["fourviews.data.pictures.glyphs"]
    folder = glyphs.find()
    for face in glyphs._FACES:
        font = glyphs._font(folder / face, 40)
        pictures = set()
        for character in [*glyphs.CHARACTERS, "\uffff"]:
            mask = pil.new("L", (64, 64), 0)
            ImageDraw.Draw(mask).text((32, 32), character, fill=255, font=font, anchor="mm")
            pictures.add(mask.tobytes())
        assert len(pictures) == 101, face


def test_tiny_imagenet_stands_in_for_cifar100_where_it_is_at_hand(alone, pack, jpeg):
    files = {"tiny-imagenet-100/words.txt": b"n1\tlemon\nn2\tpier\n"}
    halves = np.zeros((64, 64, 3), dtype=np.uint8)
    for wnid, level in (("n1", 40), ("n2", 200)):
        for split, count in (("train", 3), ("val", 2)):
            for number in range(count):
                halves[:, :32], halves[:, 32:] = level, level + 20
                files[f"tiny-imagenet-100/{split}/{wnid}/{number}.JPEG"] = jpeg(halves)
    pack(alone / "data" / "tiny-imagenet-100.tar", files)
    train = data.cifar100()
    said = str(train.source)
    assert "Tiny ImageNet scaled to 32×32 pixels, in place of CIFAR-100" in said
    assert train.images.shape == (6, 32, 32, 3) and train.classes == ("lemon", "pier")
    assert not train.may_be_shown and len(data.cifar100("test")) == 4
    for picture, label in zip(train.images.float(), train.labels.tolist(), strict=True):
        level = (40, 200)[label]
        assert (picture[:, :14].mean() - level).abs() < 4
        assert (picture[:, 18:].mean() - level - 20).abs() < 4
    assert "fewer than asked for" in str(data.cifar100(n_classes=50).source)
    # On request, the package's; and never in place of the official set.
    assert data.cifar100(n_per_class=1, source="package").source.kind == "substitute"
    with pytest.raises(data.DataNotFoundError, match="CIFAR-100"):
        data.cifar100(source="official")
    with pytest.raises(ValueError, match="only CIFAR-100 itself has"):
        data.cifar100(labels="coarse")


def test_nothing_there_names_the_ways(alone, monkeypatch):
    for name in ("CIFAR10", "CIFAR100"):
        there = getattr(MODULE, name)
        monkeypatch.setattr(
            MODULE, name, replace(there, substitute=replace(there.substitute, find=lambda: None))
        )
    for load, size in ((data.cifar10, "170 MB"), (data.cifar100, "169 MB")):
        with pytest.raises(data.DataNotFoundError) as refusal:
            load()
        for way in ("fourviews[data]", 'source="official"', size, "FOURVIEWS_DATA", "subset"):
            assert way in str(refusal.value), way


HERE = Path(os.environ.get("FOURVIEWS_DATA", "") or "/nowhere")


@pytest.mark.skipif(
    not (HERE / "cifar-10-python-subset.tar.gz").is_file(),
    reason="FOURVIEWS_DATA holds no CIFAR-10",
)
def test_real_subset(monkeypatch, tmp_path):
    monkeypatch.setenv("FOURVIEWS_CACHE", str(tmp_path))
    train, test = data.cifar10(), data.cifar10("test")
    assert train.labels.bincount().tolist() == [1000] * 10
    assert test.labels.bincount().tolist() == [200] * 10
    assert train.classes[:3] == ("airplane", "automobile", "bird")
    # Photographs, the right way round: skies are above, so planes are bluest at the top; and
    # neighbouring pixels are alike in both directions.
    planes = train.images[train.labels == 0].float()
    assert planes[:, :8].mean() > planes[:, 20:].mean() + 10
    pixels = train.images[:500].float()
    for axis in (1, 2):
        assert pixels.diff(dim=axis).abs().mean() < 0.5 * (pixels - pixels.mean()).abs().mean()
