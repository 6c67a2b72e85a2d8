"""How time and memory grow with size: doubled rows, features, gates, and what the formulas say."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from problems import Case, build
from results import Row

from fourviews import convex

METHODS = ("fista", "splitting", "newton", "factored")


def seconds_of(method: str, problem: convex.Problem, tol: float = 1e-5) -> float:
    started = time.perf_counter()
    solution = convex.solve(problem, method=method, tol=tol, progress=False)
    return time.perf_counter() - started if solution.converged else float("nan")


def tables(quick: bool = False) -> Iterator[str]:
    sizes = (100, 200, 400) if quick else (100, 200, 400, 800, 1600)
    # Before the solvers: what they leave of the memory makes large temporaries dearer.
    yield from one_map(quick)
    yield ""
    yield "Time to a gap of 1e-5 against the number of rows (d = 10, one output, 100 gates)"
    yield ""
    slow: set[str] = set()
    for n in sizes:
        problem = build(Case(n, 10, 1, 0.05), "gated_relu", 100)
        for name in METHODS:
            value = float("nan") if name in slow else seconds_of(name, problem)
            yield Row(
                f"    {n:6} {name:10} {value:8.2f} s", "rows", n=n, method=name, seconds=value
            )
            if value > 30:
                slow.add(name)


def one_map(quick: bool) -> list[str]:
    """The cost of A and A* is n·d·P·c: seconds for one of each, and their growth when one doubles."""
    # Small maps take as long as the calls that make them.
    base = {"n": 400, "d": 40, "gates": 100, "c": 4}
    if not quick:
        base = {"n": 3000, "d": 100, "gates": 200, "c": 16}
    rows = [
        "One forward and one adjoint map: seconds, and ratio when one size doubles (formula: 2)"
    ]

    def problem_of(n: int, d: int, gates: int, c: int) -> convex.Problem:
        return build(Case(n, d, c, 0.1), "gated_relu", gates)

    problems = {name: problem_of(**{**base, name: 2 * base[name]}) for name in base}
    problems[""] = problem_of(**base)
    best = dict.fromkeys(problems, float("inf"))
    # All sizes in turns, so that what else runs slows down all alike.
    for _ in range(3 if quick else 15):
        for name, problem in problems.items():
            Z = torch.ones(problem.coefficient_shape, dtype=torch.float64)
            started = time.perf_counter()
            problem.adjoint(problem.forward(Z))
            best[name] = min(best[name], time.perf_counter() - started)
    rows.append(f"    {base}: {best['']:.4f} s")
    for name in base:
        ratio = best[name] / best[""]
        text = f"    {name:6} doubled: ratio {ratio:.2f}"
        rows.append(Row(text, "maps", doubled=name, ratio=ratio))
    return rows
