"""Run the code of a lab in one process, in the size that the environment asks for.

``make lab LESSON=unrolled_04_sentiment_lab`` runs ``reduced``; ``PRESET=full`` the size for a GPU.
Exercises are left out. Tables go to `lib/fourviews/course/results`, where the page finds them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from lesson_source import Cell, read
from settings import ROOT

PRESETS = ("page", "reduced", "full")


def lab_source(path: Path) -> str:
    """The lab's cells outside exercises as one program whose lines are those of the lesson."""
    lesson = read(path)
    program: list[str] = []
    for block in lesson.blocks:
        if isinstance(block, Cell) and "skip-execution" not in block.tags:
            # A traceback names the line of the lesson.
            program += [""] * (block.source_line - 1 - len(program))
            program += block.source.splitlines()
    return "\n".join(program)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("lesson")
    parser.add_argument("--preset", choices=PRESETS, default="reduced")
    options = parser.parse_args(arguments)
    path = ROOT / "lessons_src" / f"{options.lesson}.md"
    labs = sorted(p.stem for p in path.parent.glob("*_lab.md"))
    if options.lesson not in labs:
        print(f"{options.lesson!r} is not a lab; there are: {', '.join(labs)}", file=sys.stderr)
        return 2
    os.environ["FOURVIEWS_PRESET"] = options.preset
    os.environ.setdefault(
        "FOURVIEWS_RESULTS", str(ROOT / "lib" / "fourviews" / "course" / "results")
    )
    os.environ.setdefault("MPLBACKEND", "agg")
    started = time.perf_counter()
    code = compile(lab_source(path), str(path), "exec")
    exec(code, {"__name__": "__main__"})
    print(f"{options.lesson}, preset {options.preset}: {time.perf_counter() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
