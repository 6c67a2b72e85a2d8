"""Write the page «What was corrected» from the register, the tests, the lessons and a few words.

Which statements of the sources are false as printed follows from the verdicts of the tests. The
words for them stand in ``book/corrections.yml``, and counterexample and proof in the lessons. Here
the three are joined. Each row that is corrected or refuted needs its words, a counterexample and a
proof of what holds; a row that is neither may have no words.

Command line::

    python tools/corrections.py  # read everything, print how many rows are corrected
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

import ledger
from ledger import ROOT, Label, LedgerError, Row, at

FILE = "corrections.yml"
_WORDS = ("printed", "wrong", "counterexample", "holds")
_LABELS = ("shown", "proved")


@dataclass(frozen=True)
class Correction:
    """What is said of one row, and the statements of the lessons that prove it."""

    row: Row
    printed: str
    wrong: str
    counterexample: str
    holds: str
    shown: tuple[Label, ...]
    proved: tuple[Label, ...]


def is_corrected(row: Row) -> bool:
    """Whether the row, or a part of it, is false as its source prints it."""
    return bool({"corrected", "refuted"} & set(row.verdicts.values()))


def read(rows: Sequence[Row], root: Path | str = ROOT) -> list[Correction]:
    """Join the words of ``corrections.yml`` with the rows of the ledger.

    Parameters
    ----------
    rows : sequence of Row
        From `ledger.read_all`.
    root : Path or str
        The checkout.

    Returns
    -------
    list of Correction
        In the order of the register.

    Raises
    ------
    LedgerError
        With file and line, when a corrected row has no words, words belong to no corrected row,
        or a counterexample or a proof is stated in no lesson.
    """
    path = Path(root) / "book" / FILE
    problems: list[str] = []

    def report(line: int, text: str) -> None:
        problems.append(at(path, line, text))

    wanted = {row.claim.id: row for row in rows if is_corrected(row)}
    labels = {label.label: label for row in rows for label in row.labels}
    entries = dict(ledger.entries_of(ledger.compose(path), FILE, report))
    for id_ in wanted.keys() - entries.keys():
        report(1, f"{id_} is {wanted[id_].verdict}, and nothing here says what was wrong")
    found: dict[str, Correction] = {}
    for id_, node in entries.items():
        line = ledger.line_of(node)
        if id_ not in wanted:
            report(line, f"{id_} is no row that is corrected or refuted")
            continue
        fields = ledger.fields_of(node, _WORDS, id_, report, optional=_LABELS)
        words = {
            name: ledger.text_of(fields[name], name, report) for name in _WORDS if name in fields
        }
        own = [label.label for label in wanted[id_].labels]
        places = {
            "shown": [name for name in own if name.startswith(f"{id_}-counterexample")],
            "proved": [name for name in own if name.startswith(f"{id_}-repaired")]
            or [name for name in own if name == id_],
        }
        for name in _LABELS:
            if name in fields:
                places[name] = _names(fields[name], name, report)
            for label in places[name]:
                if label not in labels:
                    report(line, f"{id_}: no lesson has a statement with the label {label!r}")
            if not places[name]:
                what = "counterexample" if name == "shown" else "proof of what holds"
                report(line, f"{id_}: a verdict without evidence, no lesson states the {what}")
        if len(words) == len(_WORDS) and not problems:
            shown, proved = (tuple(labels[label] for label in places[name]) for name in _LABELS)
            found[id_] = Correction(wanted[id_], **words, shown=shown, proved=proved)
    if problems:
        raise LedgerError(sorted(problems))
    return [found[id_] for id_ in wanted]


def _names(node: yaml.Node, name: str, report: ledger.Report) -> list[str]:
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        report(ledger.line_of(node), f"{name} must be a list of labels")
        return []
    return [ledger.text_of(item, name, report) for item in node.value]


_PREFACE = """\
# What was corrected

{total} statements of five papers are in the {{doc}}`ledger` of this book, each with tests. {false} of them are false as
they are printed, wholly or in part. This page lists these: what is printed, what is wrong with it, the smallest
case that shows it, and what does hold. Proofs stand in the lessons; the tests run with every build of the book.

Some are slips of the pen, such as a missing index. Others change what may be concluded. We give both, since a reader who
computes with a formula needs both. The register was made from the abstract of one paper and from translations and
summaries of the others. So a slip of the pen may be the copy's and not the authors'; where we know that it is, the row
says so. Where the other {rest} statements hold only under a condition that the source leaves out, the ledger names it.

To refer to one of them, give its number, as in «cvx-10», together with the version of this book.
"""


def page(
    corrections: Sequence[Correction],
    total: int,
    *,
    lessons: Collection[str] | None = None,
) -> str:
    """The page in MyST; statements of lessons outside of ``lessons`` are not linked."""
    false = len(corrections)
    out = [_PREFACE.format(total=total, false=false, rest=total - false)]
    by_source: dict[str, list[Correction]] = {}
    for item in corrections:
        by_source.setdefault(item.row.claim.heading, []).append(item)
    for heading, items in by_source.items():
        out += [
            f"## {heading}",
            "",
            f"{{cite:t}}`{items[0].row.claim.source}`: {len(items)} rows.",
            "",
        ]
        for item in items:
            out += _entry(item, lessons)
    return "\n".join(out).rstrip() + "\n"


def _entry(item: Correction, lessons: Collection[str] | None) -> list[str]:
    claim = item.row.claim

    def links(labels: Sequence[Label]) -> str:
        shown = [x for x in labels if lessons is None or x.file.stem in lessons]
        return f" ({', '.join(f'{{prf:ref}}`{x.label}`' for x in shown)})" if shown else ""

    return [
        f"(corrected-{claim.id})=",
        f"### {claim.id}: {claim.title}",
        "",
        f"- **Printed** ({claim.place}): {item.printed}",
        f"- **Wrong:** {item.wrong}",
        f"- **Counterexample**{links(item.shown)}: {item.counterexample}",
        f"- **Holds**{links(item.proved)}: {item.holds}",
        f"- **Tests:** in {{ref}}`the ledger <claim-{claim.id}>`, {len(item.row.evidence)} for it and "
        f"{len(item.row.mutations)} of altered statements that must fail.",
        "",
    ]


def main() -> int:
    try:
        print(f"corrected       {len(read(ledger.read_all())):4}")
    except LedgerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
