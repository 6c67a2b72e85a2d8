"""The book's page of benchmarks, made of `benchmarks/results.json`: `book/benchmarks.md` and plots.

python benchmarks/page.py                # write the page again from the results as they are
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from results import COLUMNS, Value, load

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results.json"
BOOK = ROOT / "book"
PLOTS = Path("_assets") / "benchmarks"

HEAD = """\
# Benchmarks

How long does the library take, and how long do others take for the same problem? Both solve it in
the same run, on the same data, in the same precision. A ratio is the other's time by ours, so that
10 means ten times as long, unless a table says otherwise. Seconds depend on the machine, which
stands above each group of tables. Ratios depend on it less.

`make bench` measures everything again and writes this page. Of times that repeat it takes the
median or the least; a solver that runs for seconds runs once.
"""


@dataclass(frozen=True)
class Part:
    """A group of tables that one module of `benchmarks/` measures."""

    title: str
    words: str
    tables: tuple[str, ...]


#: In the order of the page. Names are those of `run.PARTS`.
PARTS = {
    "gated": Part(
        "Gated ReLU with one output",
        "Time until the objective is within $10^{-6}$ of the optimum, relatively. Our time includes "
        "the certificate; that of the others is the time of the first run whose result is good "
        "enough, and they prove nothing. Accuracy: our certified gap, their excess over a bound "
        "of $10^{-10}$.",
        ("gated",),
    ),
    "vector": Part(
        "Several outputs",
        "Time to a certified gap of $10^{-6}$, against solvers that CVXPY calls, asked for the same "
        "accuracy. Accuracy: the gap that our certificate shows for each result.",
        ("vector",),
    ),
    "relu": Part(
        "ReLU to optimality",
        "ReLU programs have exponentially many cells, so nothing is promised: each problem has two "
        "minutes, and its row says which gap is certified when it ends.",
        ("relu",),
    ),
    "growth": Part(
        "Cost against the number of samples",
        "Time of each method to a gap of $10^{-5}$: 10 features, one output, 100 gates. No entry: "
        "more than 30 s at a smaller size, or no convergence. The second table doubles one size of "
        "the linear map and its adjoint at a time, for which the formula $n \\cdot d \\cdot P \\cdot c$ "
        "says 2. To switch its $P$ gates takes $n \\cdot P \\cdot c$ more, whatever $d$ is.",
        ("rows", "maps"),
    ),
    "attention": Part(
        "Attention at full size",
        "Pooled linear attention by the factored solver with certificates that build no matrix, to a "
        "gap of $10^{-4}$ at $0.1\\,\\beta_{\\max}$ and of $10^{-3}$ at $0.05\\,\\beta_{\\max}$.",
        ("attention",),
    ),
    "heads": Part(
        "Attention, mixer and Fourier heads",
        "All heads against CVXPY, whose time is that of its own compilation and solver; the matrix of "
        "the map, which it needs and we do not, is made before. Each of its solvers counts with the "
        "accuracy that it reaches in a minute. Accuracy: certified gaps.",
        ("heads",),
    ),
    "scale": Part(
        "More tokens than memory",
        "One full gradient in factored form, 196 tokens of 100 features, 100 classes, read from a file "
        "256 samples at a time with one thread. Memory is what no file stands behind. The second "
        "table shares the samples out between two processes; its ratio is one process by two.",
        ("gradients", "processes"),
    ),
    "lml": Part(
        "LML projection",
        "Forward and backward pass for 5 of $n$ classes. Rivals: root finding in torch, written "
        "plainly; the same program as a layer of cvxpylayers; softmax, which solves an easier "
        "problem. Accuracy: the largest $|\\sum_i y_i - k|$. The second table is a whole training "
        "step; its ratio is the time with the LML loss by the time with cross-entropy.",
        ("lml", "training"),
    ),
    "convolution": Part(
        "A convolution as attention",
        "Nine heads, 16 channels, one image. The separable fast path against the attention matrix as "
        "the module builds it, and against the bare product with a matrix that is given. Accuracy: "
        "largest difference to the fast path.",
        ("paths", "pixels"),
    ),
    "spline": Part(
        "Compiling splines",
        "The ratio is the encoder's time by SciPy's for the same points: an encoder is no faster way "
        "to evaluate a spline. Errors are relative to the largest value. The second table compares "
        "digits with the textbook form, the third counts neurons of piecewise-linear networks "
        "against the bound of Chen, Garudadri and Rao (2022).",
        ("splines", "digits", "neurons"),
    ),
    "unrolled": Part(
        "Unrolled energies",
        "Energy and step of attention; the ratio is their time by that of the two matrix products "
        "that a step needs at least. The energy alone needs one.",
        ("steps",),
    ),
    "features": Part(
        "Images to tokens",
        "EfficientNet-Lite0 on images of 64 × 64 pixels: tokens to a store on disk, against batches "
        "each of whose operations torch shares out among its threads; then what is done with a store.",
        ("features",),
    ),
}


# --- tables ------------------------------------------------------------------------------------


def unit(text: str, name: str) -> str:
    """Number and unit stay in one line."""
    return f"{text}\N{NO-BREAK SPACE}{name}"


def seconds(value: Value) -> str:
    if value is None:
        return "–"
    if value >= 0.1:
        return unit(f"{value:.0f}" if value >= 10 else f"{value:.2g}", "s")
    if value < 1e-3:
        return unit(f"{1e6 * value:.0f}", "µs")
    return unit(f"{1e3 * value:.0f}" if value >= 1e-2 else f"{1e3 * value:.2g}", "ms")


def ratio(value: Value) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def small(value: Value) -> str:
    """Powers of ten as the page writes them."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    digits, power = f"{value:.1e}".split("e")
    return f"${digits} \\cdot 10^{{{int(power)}}}$"


def number(value: Value) -> str:
    return "–" if value is None else f"{value:g}"


def count(value: Value) -> str:
    return "–" if value is None else f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def megabytes(value: Value) -> str:
    return unit(f"{value / 1e6:.1f}", "MB")


def gigabytes(value: Value) -> str:
    return "–" if value is None else unit(f"{value:.1f}", "GB")


def plain(value: Value) -> str:
    return str(value).replace("|", "\\|")


#: Heading and format of each column; `size` is for plots alone. Words on the left, figures right.
FORMATS: dict[str, tuple[str, Callable[[Value], str]]] = {
    "problem": ("problem", plain),
    "solver": ("by", plain),
    "seconds": ("time", seconds),
    "ratio": ("ratio", ratio),
    "accuracy": ("accuracy", small),
    "cells": ("cells", count),
    "neurons": ("neurons", count),
    "gap": ("certified gap", small),
    "method": ("method", plain),
    "n": ("$n$", count),
    "doubled": ("doubled", plain),
    "features": ("features", plain),
    "share": ("$\\beta/\\beta_{\\max}$", number),
    "processor": ("processor time", seconds),
    "rank": ("rank", count),
    "memory": ("memory", gigabytes),
    "side": ("height and width", count),
    "bytes": ("largest tensor", megabytes),
    "spline": ("spline", plain),
    "compile": ("compiling", seconds),
    "blocks": ("blocks", count),
    "weights": ("weights", count),
    "error": ("error, float64", small),
    "float32": ("error, float32", small),
    "knots": ("knots", count),
    "powers": ("truncated powers", small),
    "ours": ("this compiler", small),
    "points": ("points", count),
    "pieces": ("pieces", count),
    "bound": ("bound", count),
    "step": ("step", plain),
    "head": ("head", plain),
    "one": ("one process", seconds),
    "two": ("two processes", seconds),
    "work": ("work", plain),
    "rate": ("images a second", number),
    "cpu": ("processor time an image", seconds),
}


def shown(table: str) -> list[str]:
    return [name for name in COLUMNS[table] if name != "size"]


def table_lines(table: str, rows: list[list[Value]]) -> Iterator[str]:
    names = shown(table)
    yield "| " + " | ".join(FORMATS[name][0] for name in names) + " |"
    yield "|" + "|".join(":--" if FORMATS[name][1] is plain else "--:" for name in names) + "|"
    before: Value = None
    for row in rows:
        values = dict(zip(COLUMNS[table], row, strict=True))
        cells = [FORMATS[name][1](values[name]) for name in names]
        # A problem is named once, above the solvers that share it.
        if names[0] == "problem" and values["problem"] == before:
            cells[0] = ""
        before = values.get("problem")
        yield "| " + " | ".join(cells) + " |"


# --- plots -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plot:
    """Seconds against a size, a line for each value of `by`; both axes logarithmic."""

    table: str
    x: str
    by: str
    label: str
    caption: str

    @property
    def files(self) -> tuple[Path, Path]:
        """For pages and for paper, where LaTeX reads no SVG."""
        return PLOTS / f"{self.table}.svg", PLOTS / f"{self.table}.pdf"

    def lines(self, rows: list[list[Value]]) -> dict[str, list[tuple[float, float]]]:
        """Points of each line, sorted; lines of one point show no growth and are left out."""
        found: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            values = dict(zip(COLUMNS[self.table], row, strict=True))
            if values[self.x] is None or values["seconds"] is None:
                continue
            name = self.name(values)
            found.setdefault(name, []).append((values[self.x], values["seconds"]))
        return {name: sorted(points) for name, points in found.items() if len(points) > 1}

    def name(self, values: dict[str, Value]) -> str:
        if not self.by:
            return "time"
        if self.by == "share":
            return f"β = {values['share']:g} β_max"
        if self.table == "lml":
            return f"{values['solver']}, {str(values['problem']).split(', ')[-1]}"
        return str(values[self.by])


ALL_PLOTS = (
    Plot("rows", "n", "method", "samples n", "Time of each method to a gap of $10^{-5}$"),
    Plot("attention", "n", "share", "samples n", "Pooled linear attention at full size"),
    Plot("heads", "size", "solver", "features d", "Pooled linear attention, against CVXPY"),
    Plot("gradients", "n", "head", "samples n", "One full gradient of tokens in a file"),
    Plot("paths", "size", "solver", "pixels", "One image, by three ways to apply the same layer"),
    Plot("pixels", "side", "", "height and width in pixels", "The fast path on larger images"),
    Plot("neurons", "points", "", "points", "Building a piecewise-linear network"),
)


def figure_lines(plot: Plot, rows: list[list[Value]]) -> Iterator[str]:
    lines = plot.lines(rows)
    if not lines:
        return
    ends = "; ".join(
        f"{name}: {seconds(points[0][1])} at {points[0][0]:g}, {seconds(points[-1][1])} at "
        f"{points[-1][0]:g}"
        for name, points in lines.items()
    )
    # Sphinx takes the one that its output can show.
    yield f"```{{figure}} {plot.files[0].with_suffix('.*').as_posix()}"
    yield f":alt: Seconds against {plot.label}, both axes logarithmic. {ends}."
    yield ""
    yield f"{plot.caption}: seconds against {plot.label}."
    yield "```"


def draw(plot: Plot, rows: list[list[Value]], folder: Path) -> list[Path]:
    """Draw the plot below `folder`; returns the files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from fourviews import display

    display.use_style()
    # The same bytes from the same points, and text that stays text.
    matplotlib.rcParams.update({"svg.hashsalt": plot.table, "svg.fonttype": "none"})
    fig, ax = plt.subplots()
    for index, (name, points) in enumerate(plot.lines(rows).items()):
        x, y = zip(*points, strict=True)
        ax.loglog(x, y, marker="os^vDPX*<>"[index % 10], label=name)
    ticks = sorted({x for points in plot.lines(rows).values() for x, _ in points})
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set(xlabel=plot.label, ylabel="seconds")
    if plot.by:
        ax.legend()
    svg, pdf = (folder / path for path in plot.files)
    svg.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(svg, metadata={"Date": None})
    fig.savefig(pdf, metadata={"CreationDate": None})
    plt.close(fig)
    return [svg, pdf]


# --- the page ----------------------------------------------------------------------------------


def render(parts: dict[str, dict]) -> str:
    """The page that says these results and no others."""
    blocks = [HEAD.rstrip("\n")]
    for key, part in PARTS.items():
        if key not in parts:
            continue
        run = parts[key]
        blocks += [f"## {part.title}", part.words, f"*{run['date']}, {run['machine']}.*"]
        for table in part.tables:
            rows = run["tables"].get(table, [])
            if rows:
                blocks.append("\n".join(table_lines(table, rows)))
            for plot in ALL_PLOTS:
                if plot.table == table:
                    blocks.append("\n".join(figure_lines(plot, rows)))
    blocks.append("## Versions")
    versions: dict[str, list[str]] = {}
    for key, part in PARTS.items():
        if key in parts:
            versions.setdefault(parts[key]["versions"], []).append(part.title)
    for said, titles in versions.items():
        about = "All parts" if len(versions) == 1 else "; ".join(titles)
        blocks.append(f"{about}: {said}.")
    return "\n\n".join(block for block in blocks if block) + "\n"


def write(parts: dict[str, dict], folder: Path = BOOK) -> list[Path]:
    """Page and plots in `folder`; returns what was written."""
    written = [folder / "benchmarks.md"]
    for part in parts.values():
        for plot in ALL_PLOTS:
            rows = part["tables"].get(plot.table, [])
            if plot.lines(rows):
                written += draw(plot, rows, folder)
    written[0].write_text(render(parts), encoding="utf-8")
    return written


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "lib"))
    for path in write(load(RESULTS)):
        print(path.relative_to(ROOT))
