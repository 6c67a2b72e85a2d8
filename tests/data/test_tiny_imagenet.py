"""Tiny ImageNet from each of its sources, and what stands in for it."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from fourviews import data
from fourviews.data.files.checksums import ChecksumError
from fourviews.data.files.extraction import UnsafeArchiveError

MODULE = sys.modules["fourviews.data.pictures.tiny_imagenet"]
WORDS = "n01\tcrane, wading bird\nn02\tcrane, machine\nn03\tlemon\nn99\tunused\n"
# Class by its level of grey, image by the last digit: what was read can be told from the pixels.
GREY = {"n01": 20, "n02": 100, "n03": 180}


@pytest.fixture
def official(jpeg):
    files = {"tiny-imagenet-200/words.txt": WORDS.encode()}
    annotations = []
    for number, (wnid, grey) in enumerate(GREY.items()):
        for k in range(3):
            name = f"tiny-imagenet-200/train/{wnid}/images/{wnid}_{k}.JPEG"
            files[name] = jpeg(grey + 10 * k, mode="L" if k == 0 else "RGB")
        for k in range(2):
            name = f"val_{2 * number + k}.JPEG"
            files[f"tiny-imagenet-200/val/images/{name}"] = jpeg(grey + 10 * k)
            annotations.append(f"{name}\t{wnid}\t0\t0\t62\t62")
        files[f"tiny-imagenet-200/test/images/test_{number}.JPEG"] = b"has no label"
    files["tiny-imagenet-200/val/val_annotations.txt"] = "\n".join(annotations).encode()
    return files


@pytest.fixture
def subset(jpeg):
    files = {"tiny-imagenet-100/words.txt": WORDS.encode()}
    for wnid, grey in GREY.items():
        for split, count in (("train", 3), ("val", 2)):
            for k in range(count):
                name = f"tiny-imagenet-100/{split}/{wnid}/{wnid}_{k}.JPEG"
                files[name] = jpeg(grey + 10 * k)
    return files


def assert_labels_fit_pixels(images):
    """Every image has the grey of its class, within what the images of one class differ by."""
    grey = dict(zip(("crane, wading bird", "crane, machine", "lemon"), GREY.values(), strict=True))
    for image, label in zip(images.images, images.labels, strict=True):
        level = image.float().mean().item()
        assert -3 <= level - grey[images.classes[label]] <= 23


def unpack(files, root):
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


@pytest.mark.parametrize("split, each", [("train", 3), ("val", 2)])
@pytest.mark.parametrize("layout", ["folder", "subset"])
def test_both_layouts(alone, official, subset, pack, layout, split, each):
    if layout == "folder":
        unpack(official, alone / "data")
    else:
        pack(alone / "data" / "tiny-imagenet-100.tar", subset)
    images = data.tiny_imagenet(split)
    assert images.source.kind == layout and "Tiny ImageNet" in str(images.source)
    assert images.images.shape == (3 * each, 64, 64, 3) and images.images.dtype == torch.uint8
    assert images.classes == ("crane, wading bird", "crane, machine", "lemon")
    assert images.labels.tolist() == [0, 1, 2] * each
    assert not images.may_be_shown
    assert_labels_fit_pixels(images)
    # No image comes twice.
    assert len({image.numpy().tobytes() for image in images.images}) == 3 * each


def test_choice_of_classes_is_the_same_for_both_splits(alone, official):
    unpack(official, alone / "data")
    for seed in range(5):
        train = data.tiny_imagenet("train", n_classes=2, n_per_class=2, seed=seed)
        val = data.tiny_imagenet("val", n_classes=2, n_per_class=1, seed=seed)
        assert train.classes == val.classes and len(train) == 4 and len(val) == 2
        assert_labels_fit_pixels(train)
        assert_labels_fit_pixels(val)


def test_classes_by_name_and_by_id(alone, official):
    unpack(official, alone / "data")
    images = data.tiny_imagenet(classes=["lemon", "n01"])
    assert images.classes == ("crane, wading bird", "lemon") and len(images) == 6
    assert_labels_fit_pixels(images)
    for bad in (["crane"], ["lemon", "lemon"], []):
        with pytest.raises(ValueError, match="it needs to be different names among 3"):
            data.tiny_imagenet(classes=bad)


def test_download_is_resumed_and_test_images_are_left_out(
    alone, official, pack, publish, monkeypatch
):
    content = pack(alone / "tiny.zip", official).read_bytes()
    published, ranges = publish(MODULE.TINY_IMAGENET, content, cuts=[1000])
    monkeypatch.setattr(MODULE, "TINY_IMAGENET", published)
    assert data.tiny_imagenet().source.kind == "substitute"  # not fetched without being asked for
    assert ranges == []
    images = data.tiny_imagenet(source="official")
    assert images.source.kind == "download" and ranges == [None, "bytes=1000-"]
    assert_labels_fit_pixels(images)
    assert not list((alone / "cache").rglob("test_*.JPEG"))
    assert data.tiny_imagenet().source.kind == "cache"


def test_wrong_checksum_is_refused(alone, official, pack, publish, monkeypatch):
    content = pack(alone / "tiny.zip", official).read_bytes()
    published, _ = publish(MODULE.TINY_IMAGENET, content)
    forged = replace(published.archive, checksum="md5:" + "0" * 32)
    monkeypatch.setattr(MODULE, "TINY_IMAGENET", replace(published, archive=forged))
    with pytest.raises(ChecksumError, match="tiny-imagenet-200.zip"):
        data.tiny_imagenet(source="official")
    (alone / "data" / "tiny-imagenet-200.zip").write_bytes(content)
    with pytest.raises(ChecksumError, match="remove it from FOURVIEWS_DATA"):
        data.tiny_imagenet()
    assert not list((alone / "cache").rglob("*.JPEG"))


def test_subset_with_a_path_that_leads_out(alone, subset, pack):
    pack(alone / "data" / "tiny-imagenet-100.tar", {**subset, "../evil.JPEG": b"evil"})
    with pytest.raises(UnsafeArchiveError, match="leads out"):
        data.tiny_imagenet()
    assert not list(alone.rglob("evil*"))


def test_truncated_archive_and_damaged_picture(alone, official, subset, pack):
    archive = pack(alone / "data" / "tiny-imagenet-100.tar", subset)
    archive.write_bytes(archive.read_bytes()[:2000])
    with pytest.raises(ValueError, match="tiny-imagenet-100.tar is damaged"):
        data.tiny_imagenet()
    official["tiny-imagenet-200/train/n02/images/n02_1.JPEG"] = b"no picture"
    unpack(official, alone / "data")
    with pytest.raises(ValueError, match="n02_1.JPEG is damaged"):
        data.tiny_imagenet()
    data.tiny_imagenet("val")


@pytest.mark.parametrize("line", ["val_0.JPEG", "../train/x.JPEG\tn01"])
def test_bad_annotations(alone, official, line):
    official["tiny-imagenet-200/val/val_annotations.txt"] = line.encode()
    unpack(official, alone / "data")
    with pytest.raises(ValueError, match="line 1"):
        data.tiny_imagenet("val")


def test_empty_folder(alone):
    (alone / "data" / "tiny-imagenet-200").mkdir()
    with pytest.raises(ValueError, match="holds no images in train"):
        data.tiny_imagenet()


def test_bad_arguments(alone):
    with pytest.raises(ValueError, match="split is 'test'"):
        data.tiny_imagenet("test")
    with pytest.raises(ValueError, match="only one of them"):
        data.tiny_imagenet(n_classes=1, classes=["a"])
    with pytest.raises(ValueError, match="classes is 'lemon'"):
        data.tiny_imagenet(classes="lemon")
    with pytest.raises(ValueError, match="source is 'x'"):
        data.tiny_imagenet(source="x")


def test_photographs_stand_in(alone, monkeypatch):
    pytest.importorskip("sklearn", reason="comes with scikit-learn")
    monkeypatch.delenv("FOURVIEWS_DATA")
    train = data.tiny_imagenet("train", n_classes=10, n_per_class=20)
    said = str(train.source)
    assert train.source.kind == "substitute" and "scikit-learn" in said
    assert "two sample photographs" in said and "2 classes and 40 images, fewer than asked" in said
    assert train.classes == ("temple", "flower") and train.labels.tolist() == [0, 1] * 20
    assert train.images.shape == (40, 64, 64, 3)
    assert train.may_be_shown and "Attribution" in train.licence
    # Repeatable, nested, and each class has colours of its own.
    again = data.tiny_imagenet("train", n_per_class=10)
    assert torch.equal(again.images, train.images[:20]) and "fewer" not in str(again.source)
    with pytest.raises(ValueError, match="none of Tiny ImageNet's classes"):
        data.tiny_imagenet(classes=["lemon"])


def test_crops_of_the_two_splits_share_no_pixel():
    crops = sys.modules["fourviews.data.pictures.photo_crops"]
    seen = np.zeros((2, 640), dtype=bool)
    columns = np.broadcast_to(np.arange(640)[None, :, None], (427, 640, 3))
    read = crops._read
    try:
        crops._read = lambda folder, name: columns
        for row, split in enumerate(("train", "val")):
            for number in range(crops._CROPS[split]):
                crop = crops._crop(None, split, "temple", number)
                assert crop.shape[0] == crop.shape[1] >= 96
                seen[row, crop[0, :, 0]] = True
    finally:
        crops._read = read
    assert seen.any(axis=1).all() and not (seen[0] & seen[1]).any()


def test_nothing_there_names_the_ways(alone, monkeypatch):
    crops = sys.modules["fourviews.data.pictures.photo_crops"]
    substitute = replace(MODULE.TINY_IMAGENET.substitute, find=lambda: None)
    monkeypatch.setattr(
        MODULE, "TINY_IMAGENET", replace(MODULE.TINY_IMAGENET, substitute=substitute)
    )
    with pytest.raises(data.DataNotFoundError) as refusal:
        data.tiny_imagenet()
    for way in ("fourviews[data]", 'source="official"', "248 MB", "tiny-imagenet-100.tar"):
        assert way in str(refusal.value), way
    monkeypatch.setattr(crops, "find", lambda: None)
    with pytest.raises(ImportError, match=r"fourviews\[data\]"):
        data.photographs()
