"""What benchmarks measured, as data: lines of the report that carry a row of a table.

`benchmarks/results.json` keeps the rows of each part with the date, the machine and the versions
of its run; the book's page of benchmarks is made of that file (see `page`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path

Value = str | float | int | None

#: Columns of every table. Seconds are seconds; what a ratio divides stands in the page's words.
COMPARISON = ("problem", "size", "solver", "seconds", "ratio", "accuracy")
COLUMNS: dict[str, tuple[str, ...]] = {
    "gated": COMPARISON,
    "vector": COMPARISON,
    "relu": ("problem", "cells", "neurons", "gap", "seconds", "method"),
    "rows": ("n", "method", "seconds"),
    "maps": ("doubled", "ratio"),
    "attention": ("features", "n", "share", "seconds", "processor", "gap", "rank", "memory"),
    "heads": COMPARISON,
    "gradients": ("head", "n", "seconds", "processor", "memory"),
    "processes": ("head", "n", "one", "two", "ratio"),
    "lml": COMPARISON,
    "training": COMPARISON,
    "paths": COMPARISON,
    "pixels": ("side", "seconds", "bytes"),
    "splines": ("spline", "compile", "blocks", "weights", "ratio", "error", "float32"),
    "digits": ("knots", "powers", "ours"),
    "neurons": ("points", "pieces", "neurons", "bound", "seconds"),
    "steps": ("problem", "step", "seconds", "ratio"),
    "features": ("work", "rate", "cpu"),
}
OURS = "fourviews"


class Row(str):
    """A line of the report and the row of a table that it says."""

    table: str
    values: dict[str, Value]

    def __new__(cls, text: str, table: str, **values: Value) -> Row:
        if tuple(values) != COLUMNS[table]:
            raise ValueError(f"values: {table} has the columns {COLUMNS[table]}, not {[*values]}")
        self = super().__new__(cls, text)
        self.table = table
        self.values = {name: _plain(value) for name, value in values.items()}
        return self


def _plain(value: Value) -> Value:
    """Four digits are more than any clock gives; what is not a number has no place in JSON."""
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else None
    return value


def tables_of(lines: Iterable[str]) -> dict[str, list[list[Value]]]:
    """The rows among lines of a report, by table, each as a list in the order of its columns."""
    found: dict[str, list[list[Value]]] = {}
    for line in lines:
        if isinstance(line, Row):
            found.setdefault(line.table, []).append([*line.values.values()])
    return found


def load(path: Path) -> dict[str, dict]:
    """Parts of a file of results; none if there is no file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def save(path: Path, parts: dict[str, dict]) -> None:
    """One row a line, so that a comparison of two runs can be read."""
    blocks = []
    for part, run in parts.items():
        tables = []
        for name, rows in run["tables"].items():
            lines = ",\n        ".join(json.dumps(row, ensure_ascii=False) for row in rows)
            tables.append(f'      "{name}": [\n        {lines}\n      ]')
        described = "".join(
            f"    {json.dumps(key)}: {json.dumps(run[key], ensure_ascii=False)},\n"
            for key in ("date", "machine", "versions")
        )
        inner = ",\n".join(tables)
        blocks.append(f'  "{part}": {{\n{described}    "tables": {{\n{inner}\n    }}\n  }}')
    path.write_text("{\n" + ",\n".join(blocks) + "\n}\n", encoding="utf-8")
