"""Energies and steps of attention: time against plain matrix products, memory, and who raises E.

Two products of the size are what attention needs at least, scores and mean.  With a weight the
scores need YW too; that third product is counted with ours, not with the yardstick.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

import torch
from results import Row
from timing import timed
from torch import Tensor

from fourviews import data, unrolled

N, D = 1024, 300


def tokens(n: int, d: int, dtype: torch.dtype) -> Tensor:
    """Random tokens whose distances spread over the interesting part of exp."""
    generator = torch.Generator().manual_seed(n)
    return (torch.randn(n, d, generator=generator) / d**0.5).to(dtype)


def against_products(n: int, d: int, dtype: torch.dtype, rounds: int) -> Iterator[str]:
    """Energy and step together, without and with a weight and an anchor."""
    Y, W = tokens(n, d, dtype), tokens(d, d, dtype)
    plain = unrolled.AttentionEnergy(confinement=1.0)
    weighted = unrolled.AttentionEnergy(confinement=1.0, weight=W)
    full = unrolled.AttentionEnergy(weight=W, anchor=Y, anchoring=1.0)
    rows = {
        "two matrix products": lambda: (Y @ Y.mT) @ Y,
        "energy": lambda: plain.value(Y),
        "step": lambda: plain.step(Y),
        "energy and step": lambda: plain.value_and_step(Y),
        "energy and step, weight": lambda: weighted.value_and_step(Y),
        "energy and step, weight, anchor": lambda: full.value_and_step(Y),
    }
    with torch.no_grad():
        found = {name: statistics.median(t) for name, t in timed(rows, rounds).items()}
    least = found["two matrix products"]
    yield f"n = {n}, d = {d}, {str(dtype).removeprefix('torch.')}"
    for name, seconds in found.items():
        yield Row(
            f"    {name:32} {1e3 * seconds:8.2f} ms   ratio {seconds / least:5.2f}",
            "steps",
            problem=f"n = {n}, d = {d}, {str(dtype).removeprefix('torch.')}",
            step=name,
            seconds=seconds,
            ratio=seconds / least,
        )


def largest_tensor(step: Callable[[], object]) -> int:
    """Entries of the largest tensor that any operation returns."""
    most = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal most
            out = function(*args, **(kwargs or {}))
            for part in out if isinstance(out, tuple | list) else (out,):
                if isinstance(part, Tensor):
                    most = max(most, part.untyped_storage().nbytes() // part.element_size())
            return out

    with torch.no_grad(), Watch():
        step()
    return most


def memory(n: int, d: int) -> Iterator[str]:
    """The largest tensor, for growing d and growing n."""
    yield "largest tensor of energy and step, in entries; n·n·d is never built"
    for rows, columns in ((n, d), (n, 2 * d), (2 * n, d), (64, 4 * n)):
        Y = tokens(rows, columns, torch.float32)
        energy = unrolled.AttentionEnergy(confinement=1.0)
        most = largest_tensor(lambda Y=Y, energy=energy: energy.value_and_step(Y))
        yield (
            f"    n = {rows:5}, d = {columns:5}   {most:10}   / max(n·n, n·d) ="
            f" {most / (rows * max(rows, columns)):.2f}   / n·n·d = {most / rows**2 / columns:.4f}"
        )


def raised(quick: bool) -> Iterator[str]:
    """Layers that raise the energy of their text: the published model, parts put right, ours."""
    try:
        vectors = data.glove()
    except (data.DataNotFoundError, ImportError) as error:
        yield f"layers that raise the energy: left out, {error}"
        return
    how_many, layers = (4, 4) if quick else (20, 12)
    for kind in ("long", "short"):
        texts = data.reviews(kind, "test", n_per_class=how_many // 2)
        batch = vectors.embed_batch(texts.texts, max_tokens=160, unknown="drop")
        X = [batch.vectors[k, :n] for k, n in enumerate(batch.lengths.tolist()) if n]
        yield f"layers that raise the energy, random weights: {texts}"
        for anchored in (False, True):
            yield f"    quadratic term about {'the input' if anchored else 'zero'}"
            for name, model in models(vectors.dim, layers, anchored):
                run = unrolled.energies_along(model, X)
                sure = 100 * run.share("guaranteed")
                yield (
                    f"        {name:32} {run.rises:5} of {run.fell.numel():5}"
                    f"   guaranteed {sure:5.1f} %"
                )


def models(d: int, layers: int, anchored: bool) -> Iterator[tuple[str, torch.nn.Module]]:
    for relu in (False, True):
        end = ", ReLU" if relu else ""
        for name, parts in (
            ("published", {}),
            ("published, scores put right", {"scores": "energy"}),
            ("published, scores and β", {"scores": "energy", "reweighted": True}),
        ):
            yield (
                name + end,
                unrolled.PublishedTransformer(d, layers, relu=relu, anchored=anchored, **parts),
            )
        for name, step, size in (
            ("ours, alternating", "alternating", 1.0),
            ("ours, alternating, short", "alternating", 0.05),
            ("ours, joint", "joint", 1.0),
        ):
            yield (
                name + end,
                unrolled.UnrolledTransformer(
                    d,
                    layers,
                    relu=relu,
                    step=step,
                    relaxation=size,
                    step_size=size,
                    confinement=0.0 if anchored else 1.0,
                    anchoring=1.0 if anchored else 0.0,
                ),
            )


def tables(quick: bool = False) -> Iterator[str]:
    """Rows of text; ``quick`` takes smaller sizes and fewer repetitions."""
    yield "Unrolled energies; ratio: time by that of two matrix products"
    yield ""
    n, d, rounds = (256, 64, 3) if quick else (N, D, 31)
    for dtype in (torch.float32, torch.float64):
        yield from against_products(n, d, dtype, rounds)
    yield from memory(n, d)
    yield from raised(quick)
