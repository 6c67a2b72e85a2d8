"""All benchmarks: `make bench`. Prints ratios and writes the book's page of them.

    python benchmarks/run.py [--quick] [PART ...]

Each part that is measured takes its place in `benchmarks/results.json`; the others stay as they
were, with their dates. Then `book/benchmarks.md` and its plots are made again. With `--quick` all
of this goes to `_build/bench`, since small sizes and few rounds say nothing of speed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterable

import attention_from_conv
import energies
import features
import gated
import growth
import heads
import lml
import page
import relu
import results
import scale
import spline_compiler
import vector
from machine import describe

FOLDER = page.ROOT / "_build" / "bench"
PARTS: dict[str, Callable[[bool], Iterable[str]]] = {
    "gated": gated.tables,
    "vector": vector.tables,
    "relu": relu.tables,
    "growth": growth.tables,
    "attention": heads.full_size,
    "heads": heads.tables,
    "scale": scale.tables,
    "lml": lml.tables,
    "convolution": attention_from_conv.tables,
    "spline": spline_compiler.tables,
    "unrolled": energies.tables,
    "features": features.tables,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help=", ".join(PARTS))
    options = parser.parse_args(arguments)
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / "results.json" if options.quick else page.RESULTS
    book = FOLDER if options.quick else page.BOOK
    started = time.perf_counter()
    described = describe()
    report = [f"{described['date']}: {described['machine']}", described["versions"]]
    print("\n".join(report), flush=True)
    for name in options.parts or PARTS:
        lines = []
        for line in itertools.chain([""], PARTS[name](options.quick)):
            print(line, flush=True)
            lines.append(line)
        report += lines
        # After every part, so that a run that is stopped has not run for nothing.
        found = {**results.load(kept), name: {**described, "tables": results.tables_of(lines)}}
        results.save(kept, {part: found[part] for part in PARTS if part in found})
    written = page.write(results.load(kept), book)
    report += ["", f"together {time.perf_counter() - started:.0f} s"]
    print(report[-1])
    (FOLDER / "report.txt").write_text("\n".join(report) + "\n", encoding="utf-8")
    for path in (FOLDER / "report.txt", kept, *written):
        print(f"Written: {path.relative_to(page.ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
