"""What holds for all loaders: light to import, annotated truly, able to do without the network."""

import subprocess
import sys

import pytest

from fourviews import data

IMPORT = """
import sys
import fourviews.data
heavy = {"PIL", "sklearn", "matplotlib", "pandas", "pyarrow", "efficientnet_lite_pytorch"}
sys.exit(", ".join(sorted(heavy & set(sys.modules))) or 0)
"""

ANNOTATED = """
from jaxtyping import install_import_hook
install_import_hook(["fourviews.data"], "beartype.beartype")
import numpy as np
import torch
from fourviews import data
images = data.tiny_imagenet("val", n_classes=2, n_per_class=2)
assert data.image_tokens(images[:1]).computed == 1
data.image_tokens(images.images[:1], dtype=torch.float16)
data.image_tokens(images[:1], cache=False)
data.image_tokens(images[:0])
data.cifar10(n_per_class=2)[[0, 1]]
data.cifar100("test", n_per_class=1)
data.photographs()
words = data.WordVectors(["the", "bank"], np.eye(2, dtype=np.float32))
words.embed_batch(["the bank", ""], max_tokens=1)
words.embed_batch([])
words.embed("the bank")
words.out_of_vocabulary(["a bank"])
"""


def run(script):
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300
    )


def test_import_is_light():
    result = run(IMPORT)
    assert result.returncode == 0, result.stderr


def test_shapes_are_as_annotated(alone):
    for package in ("beartype", "sklearn", "matplotlib", "efficientnet_lite_pytorch"):
        pytest.importorskip(package)
    result = run(ANNOTATED)
    assert result.returncode == 0, result.stderr[-2000:]


def test_images_need_neither_network_nor_folder(alone, monkeypatch):
    for package in ("sklearn", "matplotlib"):
        pytest.importorskip(package)
    monkeypatch.delenv("FOURVIEWS_DATA")
    for load in (data.tiny_imagenet, data.cifar10, data.cifar100):
        images = load(n_per_class=2)
        assert images.source.kind == "substitute" and "shipped by the package" in str(images.source)
        # What is shown on a page names no folder of this machine.
        assert "/" not in str(images.source) and str(images.source.path) not in repr(images)


def test_bad_folder_is_named(alone, monkeypatch):
    monkeypatch.setenv("FOURVIEWS_DATA", str(alone / "missing"))
    for load in (data.tiny_imagenet, data.cifar10, data.cifar100, data.imdb, data.sst2, data.glove):
        with pytest.raises(ValueError, match="FOURVIEWS_DATA is"):
            load()
