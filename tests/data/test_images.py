"""Picture files, choices by a seed, sets of images."""

import io

import numpy as np
import pytest
import torch

from fourviews.data.choice import choose
from fourviews.data.pictures.images import ImageSet, read_image, resize
from fourviews.data.pictures.photo_crops import photographs
from fourviews.data.sources import Source


def image_set(n=4, classes=("a", "b")):
    return ImageSet(
        torch.arange(n * 12, dtype=torch.uint8).reshape(n, 2, 2, 3),
        torch.arange(n) % len(classes),
        tuple(classes),
        Source("Toy", "folder", None),
        "none",
    )


def test_a_part_of_a_set_keeps_images_and_labels_together():
    images = image_set()
    for rows in (slice(1, 3), [1, 2], torch.tensor([False, True, True, False])):
        part = images[rows]
        assert torch.equal(part.images, images.images[1:3])
        assert part.labels.tolist() == [1, 0] and part.classes == images.classes
    assert len(images[:0]) == 0 and len(images) == 4 and "4 images of 2×2" in repr(images)
    with pytest.raises(ValueError, match="rows is 1"):
        images[1]


def test_sets_that_do_not_fit_are_refused():
    good = image_set()
    rest = (good.source, good.licence)
    with pytest.raises(ValueError, match="images has shape"):
        ImageSet(good.images.float(), good.labels, good.classes, *rest)
    with pytest.raises(ValueError, match="images is of type ndarray"):
        ImageSet(good.images.numpy(), good.labels, good.classes, *rest)
    with pytest.raises(ValueError, match="it needs 4 integers"):
        ImageSet(good.images, good.labels[:3], good.classes, *rest)
    with pytest.raises(ValueError, match="indices of 1 classes"):
        ImageSet(good.images, good.labels, ("a",), *rest)


def test_greyscale_becomes_colour(jpeg):
    for mode in ("L", "RGB"):
        image = read_image(jpeg(200, mode=mode), name="x")
        assert image.shape == (64, 64, 3) and image.dtype == np.uint8
        assert np.abs(image.astype(int) - 200).max() <= 2


def test_damaged_pictures_are_named(jpeg):
    good = jpeg(np.random.default_rng(0).integers(0, 255, (64, 64, 3)))
    for bad in (b"", b"no picture", good[: len(good) // 2]):
        with pytest.raises(ValueError, match="n123.JPEG is damaged"):
            read_image(bad, name="n123.JPEG")
    with pytest.raises(ValueError, match="64×64 pixels; it needs 32×32"):
        read_image(good, name="n123.JPEG", size=(32, 32))


def test_resize_averages():
    checkers = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)
    small = resize(np.repeat(checkers[..., None], 3, axis=2), 8)
    assert small.shape == (8, 8, 3) and np.abs(small.astype(int) - 127).max() <= 12


COUNTS = {"a": 5, "b": 3, "c": 7, "d": 4}


def test_choices_are_nested_balanced_and_repeatable():
    def pick(classes, images, seed=0):
        return choose(COUNTS, n_classes=classes, n_per_class=images, seed=seed, at_most=False)

    names, picks = pick(None, None)
    assert names == list(COUNTS)
    assert sorted(picks) == [(name, k) for name, count in COUNTS.items() for k in range(count)]
    assert {name for name, _ in picks[:4]} == set(COUNTS)  # every class takes a turn
    for classes in (1, 2, 3):
        fewer, more = pick(classes, 2), pick(classes + 1, 3)
        assert set(fewer[0]) < set(more[0]) and set(fewer[1]) < set(more[1])
        assert pick(classes, 2) == fewer
    assert pick(None, None, seed=1)[1] != picks


def test_choices_that_cannot_be_met():
    options = {"seed": 0, "at_most": False}
    with pytest.raises(ValueError, match="n_classes is 5; there are 4"):
        choose(COUNTS, n_classes=5, n_per_class=None, **options)
    with pytest.raises(ValueError, match="'b' has 3"):
        choose(COUNTS, n_classes=None, n_per_class=4, **options)
    for bad in (0, -1, 1.5, True, "2"):
        with pytest.raises(ValueError, match="n_per_class is"):
            choose(COUNTS, n_classes=None, n_per_class=bad, **options)
    names, picks = choose(COUNTS, n_classes=9, n_per_class=9, seed=0, at_most=True)
    assert len(names) == 4 and len(picks) == sum(COUNTS.values())


def test_photographs_are_read_once_and_are_the_readers_own():
    pytest.importorskip("sklearn", reason="comes with scikit-learn")
    first = photographs()
    assert list(first) == ["temple", "flower"]
    for picture in first.values():
        assert picture.shape == (427, 640, 3) and picture.dtype == torch.uint8
        assert picture.float().std() > 20  # a photograph, no blank
    first["temple"].zero_()
    assert photographs()["temple"].any()


def test_the_temple_is_scikit_learns():
    datasets = pytest.importorskip("sklearn.datasets")
    assert np.array_equal(photographs()["temple"].numpy(), datasets.load_sample_image("china.jpg"))


def test_bytes_and_files_give_the_same(tmp_path, jpeg):
    (tmp_path / "x.jpg").write_bytes(jpeg(7))
    assert np.array_equal(
        read_image(tmp_path / "x.jpg", name="x"), read_image(io.BytesIO(jpeg(7)).read(), name="x")
    )
