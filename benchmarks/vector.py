"""Several outputs: against the solvers of CVXPY, at sizes where its fastest takes 10 to 60 seconds."""

from __future__ import annotations

import time

from problems import Case, build
from results import OURS, Row

from fourviews import convex

TARGET = 1e-6
SOLVERS = ("CLARABEL", "SCS")
#: Name, problem, gates. Sizes are for a machine with two cores.
CASES = (
    ("linear", Case(400, 80, 50, 0.1), None),
    ("gated_relu", Case(200, 18, 10, 0.1), 48),
)


def tables(quick: bool = False) -> list[str]:
    rows = ["Several outputs: certified gap 1e-6 against CVXPY", ""]
    for activation, case, n_gates in CASES:
        problem = build(case, activation, n_gates)
        started = time.perf_counter()
        ours = convex.solve(problem, tol=TARGET, progress=False)
        seconds = time.perf_counter() - started
        assert ours.converged
        known = {"problem": f"{activation}, {case}, {n_gates or 'no'} gates", "size": case.n}
        rows.append(
            Row(
                f"{activation}, {case}, {n_gates or 'no'} gates: {ours.method}, {seconds:.2f} s, "
                f"gap {ours.relative_gap:.1e}, rank {ours.rank}",
                "vector",
                **known,
                solver=f"{OURS}, {ours.method}",
                seconds=seconds,
                ratio=1.0,
                accuracy=ours.relative_gap,
            )
        )
        fastest = None
        for name in SOLVERS[:1] if quick else SOLVERS:
            started = time.perf_counter()
            peer = convex.reference(problem, tol=TARGET, solver=name)
            took = time.perf_counter() - started
            rows.append(
                Row(
                    f"    {name:10} {took:8.1f} s   ratio {took / seconds:7.1f}   "
                    f"gap {peer.relative_gap:.1e}",
                    "vector",
                    **known,
                    solver=f"CVXPY, {name}",
                    seconds=took,
                    ratio=took / seconds,
                    accuracy=peer.relative_gap,
                )
            )
            if peer.relative_gap <= TARGET:
                fastest = took if fastest is None else min(fastest, took)
        if fastest is not None:
            rows.append(
                f"    fastest to the target {fastest:.1f} s   ratio {fastest / seconds:7.1f}"
            )
    return rows
