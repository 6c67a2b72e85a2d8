"""The spline compiler: time to compile, evaluation against SciPy, digits, blocks and neurons."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from results import Row
from scipy import interpolate
from torch import nn

from fourviews import spline


def seconds(call: Callable[[], object], repeats: int = 5) -> float:
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return best


def tables(quick: bool) -> Iterator[str]:
    yield from against_scipy(1_000 if quick else 100_000)
    yield from digits()
    yield from neurons((10, 30) if quick else (10, 30, 100, 300))


def cases(generator: np.random.Generator) -> Iterator[tuple[str, object, np.ndarray]]:
    """Name, spline and corners of a box that lies in its domain."""
    x = np.linspace(0, 1, 50)
    yield "CubicSpline, 50 knots", interpolate.CubicSpline(x, generator.standard_normal(50)), [0, 1]
    for k in (1, 5):
        t = np.r_[[0.0] * k, x, [1.0] * k]
        c = generator.standard_normal((len(t) - k - 1, 2))
        yield f"BSpline, degree {k}, 50 knots, curve", interpolate.BSpline(t, c, k), [0, 1]
    t = np.r_[[0.0] * 3, np.linspace(0, 1, 9), [1.0] * 3]
    c = generator.standard_normal((11, 11))
    yield "NdBSpline, degree 3, 8 x 8 cells", interpolate.NdBSpline((t, t), c, 3), [[0, 0], [1, 1]]
    corners = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]])
    points = np.r_[corners, generator.uniform(0, 1, (96, 2))]
    linear = interpolate.LinearNDInterpolator(points, generator.standard_normal(100))
    yield "LinearNDInterpolator, 100 points", linear, [[0, 0], [1, 1]]


def against_scipy(count: int) -> Iterator[str]:
    yield f"Splines as encoders; evaluation at {count} random points, time as a ratio to SciPy's"
    yield ""
    yield (
        "    "
        + "spline".ljust(38)
        + "".join(
            name.rjust(10)
            for name in ("compile s", "blocks", "weights", "ratio", "error", "float32")
        )
    )
    generator = np.random.default_rng(0)
    for name, f, (low, high) in cases(generator):
        started = time.perf_counter()
        encoder = spline.compile_encoder(f)
        compiled = time.perf_counter() - started
        shape = (count,) if np.ndim(low) == 0 else (count, len(low))
        x = generator.uniform(low, high, shape)
        wanted = f(x).reshape(count, -1)
        points = torch.tensor(x).reshape(count, 1, -1)
        single = spline.compile_encoder(f, dtype=torch.float32)
        scale = np.abs(wanted).max()
        error = np.abs(encoder(points)[:, 0].numpy() - wanted).max() / scale
        rounded = np.abs(single(points.float())[:, 0].numpy() - wanted).max() / scale
        ratio = seconds(lambda e=encoder, p=points: e(p)) / seconds(lambda g=f, p=x: g(p))
        report = encoder.report
        yield Row(
            f"    {name:38}{compiled:10.2f}{report.layers:10}{report.parameters:10}"
            f"{ratio:10.1f}{error:10.1e}{rounded:10.1e}",
            "splines",
            spline=name,
            compile=compiled,
            blocks=report.layers,
            weights=report.parameters,
            ratio=ratio,
            error=float(error),
            float32=float(rounded),
        )
    yield ""


def truncated_powers(f: interpolate.CubicSpline, x: np.ndarray) -> np.ndarray:
    """The textbook form: one polynomial, and the jumps of the third derivative."""
    total = sum(f.c[3 - k, 0] * (x - f.x[0]) ** k for k in range(4))
    for i in range(1, f.c.shape[1]):
        total = total + (f.c[0, i] - f.c[0, i - 1]) * np.maximum(x - f.x[i], 0) ** 3
    return total


def digits() -> Iterator[str]:
    yield "Largest relative error of a natural cubic spline on random knots, float64"
    yield ""
    yield "    " + "".join(
        name.rjust(20) for name in ("knots", "truncated powers", "this compiler")
    )
    generator = np.random.default_rng(0)
    for count in (5, 15, 50):
        x = np.sort(generator.uniform(0, 1, count))
        f = interpolate.CubicSpline(x, generator.standard_normal(count))
        points = generator.uniform(x[0], x[-1], 2000)
        wanted = f(points)
        scale = np.abs(wanted).max()
        encoder = spline.compile_encoder(f)
        ours = np.abs(encoder(torch.tensor(points)[:, None, None])[:, 0, 0].numpy() - wanted).max()
        theirs = np.abs(truncated_powers(f, points) - wanted).max()
        yield Row(
            f"    {count:20}{theirs / scale:20.1e}{ours / scale:20.1e}",
            "digits",
            knots=count,
            powers=float(theirs / scale),
            ours=float(ours / scale),
        )
    yield ""


def neurons(counts: tuple[int, ...]) -> Iterator[str]:
    yield "Piecewise-linear interpolation in the plane as a network of depth 3 (two hidden layers)"
    yield "against the neurons that Chen, Garudadri and Rao (2022) bound for as many pieces"
    yield ""
    names = ("points", "pieces", "neurons", "their bound", "seconds")
    yield "    " + "".join(name.rjust(13) for name in names)
    generator = np.random.default_rng(0)
    for count in counts:
        points = generator.uniform(0, 1, (count, 2))
        f = interpolate.LinearNDInterpolator(points, generator.standard_normal(count))
        started = time.perf_counter()
        network = spline.cpwl_network(f)
        spent = time.perf_counter() - started
        hidden = [m.out_features for m in network if isinstance(m, nn.Linear)][:-1]
        pieces = len(f.tri.simplices)
        bound = spline.chen_bound(pieces, pieces)
        yield Row(
            f"    {count:13}{pieces:13}{sum(hidden):13}{bound:13}{spent:13.2f}",
            "neurons",
            points=count,
            pieces=pieces,
            neurons=sum(hidden),
            bound=bound,
            seconds=spent,
        )
