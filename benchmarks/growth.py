"""How time and memory grow with size: doubled rows, features, gates, and what the formulas say."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from problems import Case, build

from fourviews import convex, display

METHODS = ("fista", "splitting", "newton", "factored")


def seconds_of(method: str, problem: convex.Problem, tol: float = 1e-5) -> float:
    started = time.perf_counter()
    solution = convex.solve(problem, method=method, tol=tol, progress=False)
    return time.perf_counter() - started if solution.converged else float("nan")


def tables(quick: bool, folder: Path) -> list[str]:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    display.use_style()
    sizes = (100, 200, 400) if quick else (100, 200, 400, 800, 1600)
    rows = ["Time to a gap of 1e-5 against the number of rows (d = 10, one output, 100 gates)", ""]
    rows.append("    " + "n".rjust(6) + "".join(name.rjust(12) for name in METHODS))
    found: dict[str, list[float]] = {name: [] for name in METHODS}
    slow: set[str] = set()
    for n in sizes:
        problem = build(Case(n, 10, 1, 0.05), "gated_relu", 100)
        for name in METHODS:
            value = float("nan") if name in slow else seconds_of(name, problem)
            found[name].append(value)
            if value > 30:
                slow.add(name)
        cells = "".join(f"{found[name][-1]:12.2f}" for name in METHODS)
        rows.append(f"    {n:6}{cells}")
    fig, ax = plt.subplots()
    for marker, name in zip("os^v", METHODS, strict=True):
        ax.loglog(sizes, found[name], marker=marker, label=name)
    ax.set(xlabel="rows n", ylabel="seconds to a gap of 1e-5")
    ax.legend()
    fig.savefig(folder / "time_against_rows.png")
    plt.close(fig)
    rows += ["", *one_map(quick)]
    return rows


def one_map(quick: bool) -> list[str]:
    """The cost of A and A* is n·d·P·c: seconds for one of each, and their growth when one doubles."""
    base = {"n": 400, "d": 40, "gates": 100, "c": 4}
    rows = [
        "One forward and one adjoint map: seconds, and ratio when one size doubles (formula: 2)"
    ]

    def timed(n: int, d: int, gates: int, c: int) -> float:
        problem = build(Case(n, d, c, 0.1), "gated_relu", gates)
        Z = torch.ones(problem.coefficient_shape, dtype=torch.float64)
        best = float("inf")
        for _ in range(3 if quick else 7):
            started = time.perf_counter()
            problem.adjoint(problem.forward(Z))
            best = min(best, time.perf_counter() - started)
        return best

    first = timed(**base)
    rows.append(f"    {base}: {first:.4f} s")
    for name in base:
        ratio = timed(**{**base, name: 2 * base[name]}) / first
        rows.append(f"    {name:6} doubled: ratio {ratio:.2f}")
    return rows
