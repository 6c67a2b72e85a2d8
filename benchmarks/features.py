"""Images to tokens on disk: images a second, and what reading and reducing them costs beside it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from results import Row

from fourviews import data
from fourviews.data.features import backbone

#: What two cores should reach with EfficientNet-Lite0.
TARGET = 20.0
NAME = "efficientnet-lite0"


@contextmanager
def empty_cache() -> Iterator[None]:
    """A cache of its own, so that everything is computed; nothing is left of it."""
    before = os.environ.get("FOURVIEWS_CACHE")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["FOURVIEWS_CACHE"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["FOURVIEWS_CACHE"]
            else:
                os.environ["FOURVIEWS_CACHE"] = before


def pictures(n: int, side: int = 64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randint(0, 256, (n, 8, 8, 3), generator=generator, dtype=torch.uint8)
    return coarse.repeat_interleave(side // 8, 1).repeat_interleave(side // 8, 2)


def rate(n: int, step) -> tuple[float, float, object]:
    """Images a second, milliseconds of CPU time an image, and the result."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = step()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return n / wall, 1e3 * cpu / n, result


def shared_out(loaded: backbone.Backbone, images: torch.Tensor, size: int) -> list[torch.Tensor]:
    """The rival: whole batches, each operation of which torch shares out among its threads."""
    with torch.inference_mode():
        return [loaded.trunk(loaded.network.prepare(some)) for some in images.split(size)]


def tables(quick: bool = False) -> Iterator[str]:
    n, rival = (16, 8) if quick else (256, 48)
    threads = torch.get_num_threads()
    images = pictures(n)
    yield (
        f"Features: {n} images of 64×64 pixels, {NAME}, {threads} threads; at least {TARGET:.0f}"
        " images/s are wanted of two cores"
    )
    loaded = backbone.load(NAME)
    shared_out(loaded, images[:2], 2)
    for size in (8, 16):
        with empty_cache():
            ours, cpu, _ = rate(
                n, lambda size=size: data.token_store(images, batch_size=size, progress=False)
            )
        theirs, their_cpu, _ = rate(
            rival, lambda size=size: shared_out(loaded, images[:rival], size)
        )
        yield (
            f"    batch {size:2}   to a store on disk {ours:6.1f} images/s, {cpu:5.1f} ms CPU an image"
            f" ({1e3 * threads / cpu:.0f} images/s where {threads} cores are free)   batches as torch shares them out {theirs:6.1f} images/s, {their_cpu:5.1f} ms CPU"
            f"   ratio {ours / theirs:5.2f}"
        )
        for work, speed, used in (
            (f"to a store on disk, batches of {size}", ours, cpu),
            (f"as torch shares batches of {size} out", theirs, their_cpu),
        ):
            yield Row(f"         {work}", "features", work=work, rate=speed, cpu=used / 1e3)
    with empty_cache():
        store = data.token_store(images, progress=False)
        size = store.tokens.nbytes / 1e6
        steps = {
            "digests compared": store.verify,
            "mean over tokens": store.mean,
            "covariance, once": lambda: data.reduce_features(store, to=100, progress=False),
            "components again": lambda: data.reduce_features(store, to=100),
            "reduced to a store": lambda: data.reduce_features(store, to=100).apply(
                store, progress=False
            ),
        }
        yield f"    then, from {size:.0f} MB in half precision:"
        for name, step in steps.items():
            speed, cpu, _ = rate(n, step)
            yield Row(
                f"    {name:20} {speed:9.0f} images/s, {cpu:6.3f} ms CPU an image",
                "features",
                work=name,
                rate=speed,
                cpu=cpu / 1e3,
            )
