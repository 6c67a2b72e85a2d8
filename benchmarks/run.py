"""All benchmarks: `make bench`. Prints ratios, writes `_build/bench/report.txt` and plots.

python benchmarks/run.py [--quick] [PART ...]
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import attention_from_conv
import energies
import features
import gated
import growth
import heads
import lml
import relu
import spline_compiler
import vector
from machine import describe

FOLDER = Path(__file__).resolve().parents[1] / "_build" / "bench"
PARTS: dict[str, Callable[[bool], Iterable[str]]] = {
    "gated": gated.tables,
    "vector": vector.tables,
    "relu": relu.tables,
    "growth": lambda quick: growth.tables(quick, FOLDER),
    "heads": heads.tables,
    "lml": lml.tables,
    "convolution": attention_from_conv.tables,
    "spline": spline_compiler.tables,
    "unrolled": energies.tables,
    "features": features.tables,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help=", ".join(PARTS))
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    report = describe()
    print("\n".join(report), flush=True)
    for name in arguments.parts or PARTS:
        for row in itertools.chain([""], PARTS[name](arguments.quick)):
            print(row, flush=True)
            report.append(row)
    report += ["", f"together {time.perf_counter() - started:.0f} s"]
    print(report[-1])
    (FOLDER / "report.txt").write_text("\n".join(report) + "\n", encoding="utf-8")
    print(f"Report: {(FOLDER / 'report.txt').relative_to(FOLDER.parents[1])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
