"""ReLU to optimality: certified gaps on the fixed list, and what becomes of larger problems."""

from __future__ import annotations

import time
from collections.abc import Iterator

from problems import RELU, RELU_LARGER, build
from results import Row

from fourviews import convex

LIMIT_SECONDS = 120
TARGET = 0.05
ACCURATE = 1e-3


def tables(quick: bool = False) -> Iterator[str]:
    yield f"ReLU: certified relative gap, at most {LIMIT_SECONDS} s a problem (target {TARGET:.0%})"
    yield ""
    yield f"    {'problem':44} {'cells':>7} {'neurons':>7} {'gap':>8} {'seconds':>8}  method"
    cases = RELU[:4] if quick else RELU
    reached = 0
    for case in cases:
        row, gap = line(case)
        reached += gap <= TARGET
        yield row
    yield f"    within {TARGET:.0%}: {reached} of {len(cases)}"
    if not quick:
        yield "    larger:"
        for case in RELU_LARGER:
            yield line(case)[0]


def line(case) -> tuple[str, float]:
    started = time.perf_counter()
    problem = build(case, "relu")
    solution = convex.solve(problem, tol=ACCURATE, time_limit=LIMIT_SECONDS, progress=False)
    seconds = time.perf_counter() - started
    text = Row(
        f"    {str(case):44} {len(problem.masks):7} {solution.rank:7} "
        f"{solution.relative_gap:8.1e} {seconds:8.1f}  {solution.method}",
        "relu",
        problem=str(case),
        cells=len(problem.masks),
        neurons=solution.rank,
        gap=solution.relative_gap,
        seconds=seconds,
        method=solution.method,
    )
    return text, solution.relative_gap
