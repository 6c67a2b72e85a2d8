"""Join the register of claims, the tests and the lessons into the book's ledger page.

``book/claims.yml`` says what the sources state, the tests say what became of it::

    @pytest.mark.claim("cvx-02", verdict="corrected")          # the whole row
    @pytest.mark.claim("cvx-09/beta-zero", verdict="verified")  # one part of a row
    @pytest.mark.mutation("cvx-02")                            # an altered claim must fail

and a lesson states the claim in a ``prf:`` block whose label is the claim's id, with
``cvx-02-counterexample`` and the like for further statements. Everything is read without
importing or running it, so that the page can be written where torch is not installed.

Whatever cannot be understood is an error with file and line: an unknown id, an unknown
verdict, two verdicts for one part, a marker on something that pytest does not run, a lesson
that states a claim which no test covers. A ledger that guesses would be worth nothing.

Command line::

    python tools/ledger.py check            # read everything, print the counts
    python tools/ledger.py write DIRECTORY  # write DIRECTORY/ledger.md
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

import lesson_source
import settings
from library_imports import PACKAGE

ROOT = Path(__file__).resolve().parents[1]

# Most severe first; a row leads with the first of these that one of its parts has.
# The order answers «how far may I rely on the sentence as the source prints it?»:
#   refuted         the sentence is false and no repaired sentence of its kind holds;
#   not reproduced  an experiment that could have shown it did not, so it may not be used;
#   corrected       false as printed, but a repaired statement stands in its place;
#   conditional     true as printed once a condition is added that the source leaves out;
#   empirical       seen in an experiment with its spread, which is less than a proof;
#   verified        holds as printed.
VERDICTS = ("refuted", "not reproduced", "corrected", "conditional", "empirical", "verified")
OPEN = "open"

MEANING = {
    "refuted": "false, and no repaired statement of the kind holds; a counterexample runs",
    "not reproduced": "an experiment of stated power does not show it",
    "corrected": "false as printed; a counterexample runs, and the lesson proves what does hold",
    "conditional": "holds under a condition that the source leaves out; the lesson names it",
    "empirical": "shown by an experiment, with its spread",
    "verified": "holds as printed; a numerical or exact test shows it",
    OPEN: "no test yet, of the whole or of the part that is named",
}

# Admonition classes that the theme already colours, legibly in light and dark.
_BOX = {
    "refuted": "danger",
    "not reproduced": "danger",
    "corrected": "warning",
    "conditional": "important",
    "empirical": "note",
    "verified": "tip",
}

_ID = re.compile(r"[a-z]{3}-\d{1,2}[a-z]?")
_PART = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_CLAIM_LIKE_LABEL = re.compile(r"[a-z]{3}-\d")


class LedgerError(ValueError):
    """One or more problems, each a line ``file:line: what is wrong``."""

    def __init__(self, problems: Sequence[str]):
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True)
class Source:
    """A source document: the prefix of its claims, its bibliography key, a heading."""

    prefix: str
    key: str
    heading: str


@dataclass(frozen=True)
class Claim:
    """One row of the register."""

    id: str
    title: str
    statement: str
    source: str
    place: str
    line: int
    heading: str = ""
    untested: str = ""  # what of the statement no test has taken up yet, if others have been


@dataclass(frozen=True)
class Evidence:
    """A test that carries a claim marker."""

    id: str
    part: str | None
    verdict: str
    file: Path
    line: int
    name: str


@dataclass(frozen=True)
class Mutation:
    """A test that carries a mutation marker."""

    id: str
    part: str | None
    file: Path
    line: int
    name: str


@dataclass(frozen=True)
class Label:
    """A ``prf:`` block of a lesson whose label belongs to a claim."""

    id: str
    label: str
    kind: str
    file: Path
    line: int


@dataclass(frozen=True)
class Collected:
    """Everything that tests and lessons say about claims, in file order."""

    evidence: tuple[Evidence, ...] = ()
    mutations: tuple[Mutation, ...] = ()
    labels: tuple[Label, ...] = ()


@dataclass
class Row:
    """A claim with what is known about it."""

    claim: Claim
    evidence: list[Evidence] = field(default_factory=list)
    mutations: list[Mutation] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)

    @property
    def verdicts(self) -> dict[str | None, str]:
        """The verdict of each part, the whole row (key ``None``) first, then by severity."""
        found = {e.part: e.verdict for e in self.evidence}
        order = sorted(found, key=lambda p: (p is not None, VERDICTS.index(found[p]), p or ""))
        return {part: found[part] for part in order}

    @property
    def verdict(self) -> str:
        """The most severe verdict, or ``open`` where evidence is missing, wholly or in part."""
        verdicts = self.verdicts.values()
        if self.claim.untested or not verdicts:
            return OPEN
        return min(verdicts, key=VERDICTS.index)


# --- the register -----------------------------------------------------------------------

Report = Callable[[int, str], None]

_TOP_KEYS = ("sources", "claims")
_SOURCE_KEYS = ("key", "heading")
_CLAIM_KEYS = ("id", "title", "statement", "source", "place")
_OPTIONAL_KEYS = ("untested",)


def load_register(path: Path | str) -> list[Claim]:
    """Read ``claims.yml`` and check it against its schema.

    Parameters
    ----------
    path : Path or str
        The register.

    Returns
    -------
    list of Claim
        The rows, in the order of the file.

    Raises
    ------
    LedgerError
        With ``file:line`` for each unknown, missing, repeated or empty field, malformed or
        repeated id, and each id whose source does not match its prefix.
    """
    path = Path(path)
    root = compose(path)
    problems: list[str] = []

    def report(line: int, text: str) -> None:
        problems.append(at(path, line, text))

    top = fields_of(root, _TOP_KEYS, "the register", report)
    sources: dict[str, Source] = {}
    if "sources" in top:
        for prefix, node in entries_of(top["sources"], "sources", report):
            fields = fields_of(node, _SOURCE_KEYS, f"source {prefix}", report)
            texts = {name: text_of(value, name, report) for name, value in fields.items()}
            sources[prefix] = Source(prefix, texts.get("key", ""), texts.get("heading", ""))

    claims: list[Claim] = []
    first_line: dict[str, int] = {}
    rows = top.get("claims")
    if rows is not None and not isinstance(rows, yaml.SequenceNode):
        report(line_of(rows), "claims must be a list")
        rows = None
    for node in rows.value if rows is not None else ():
        line = line_of(node)
        fields = fields_of(node, _CLAIM_KEYS, "claim", report, optional=_OPTIONAL_KEYS)
        texts = {name: text_of(value, name, report) for name, value in fields.items()}
        if not set(_CLAIM_KEYS) <= set(texts):
            continue
        id_ = texts["id"]
        if not _ID.fullmatch(id_):
            report(line, f"id {id_!r} is not of the form cvx-02 or cvx-15b")
            continue
        if id_ in first_line:
            report(line, f"id {id_} is already used in line {first_line[id_]}")
            continue
        first_line[id_] = line
        source = sources.get(id_[:3])
        if source is None:
            report(line, f"id {id_}: no source has the prefix {id_[:3]!r}")
            continue
        if texts["source"] != source.key:
            report(line, f"id {id_}: source is {texts['source']!r}, not {source.key!r}")
            continue
        claims.append(Claim(**texts, line=line, heading=source.heading))
    if problems:
        raise LedgerError(problems)
    if not claims:
        raise LedgerError([f"{show(path)}:1: the register holds no claim"])
    return claims


def compose(path: Path) -> yaml.Node:
    """The nodes of a YAML file, which know their lines."""
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise LedgerError([at(path, line, f"not valid YAML: {error.problem}")]) from error
    if root is None:
        raise LedgerError([at(path, 1, f"{path.name} is empty")])
    return root


def line_of(node: yaml.Node) -> int:
    """Where a node of a YAML file begins, counted from 1."""
    return node.start_mark.line + 1


def entries_of(node: yaml.Node, what: str, report: Report) -> list[tuple[str, yaml.Node]]:
    """The entries of a mapping; repeated keys are reported, since YAML would drop one silently."""
    if not isinstance(node, yaml.MappingNode):
        report(line_of(node), f"{what} must be a mapping")
        return []
    entries: dict[str, yaml.Node] = {}
    for key_node, value in node.value:
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else str(key_node.value)
        if key in entries:
            report(line_of(key_node), f"{what}: key {key!r} is given twice")
            continue
        entries[key] = value
    return list(entries.items())


def fields_of(
    node: yaml.Node,
    keys: Sequence[str],
    what: str,
    report: Report,
    optional: Sequence[str] = (),
) -> dict[str, yaml.Node]:
    """The entries of a mapping that may have only these keys; what else it has is reported."""
    entries = dict(entries_of(node, what, report))
    known = (*keys, *optional)
    for key, value in entries.items():
        if key not in known:
            report(line_of(value), f"{what}: unknown key {key!r}; known are {', '.join(known)}")
    if isinstance(node, yaml.MappingNode):
        for key in keys:
            if key not in entries:
                report(line_of(node), f"{what}: {key!r} is missing")
    return {key: value for key, value in entries.items() if key in known}


def text_of(node: yaml.Node, name: str, report: Report) -> str:
    """A text, without the blanks around it; one that is empty or no text is reported."""
    if not isinstance(node, yaml.ScalarNode) or not node.value.strip():
        report(line_of(node), f"{name} must be a text that is not empty")
        return ""
    return node.value.strip()


# --- markers ----------------------------------------------------------------------------


def parse_reference(reference: object, ids: Collection[str]) -> tuple[str, str | None]:
    """Split ``"cvx-09/beta-zero"`` into id and part.

    Raises
    ------
    ValueError
        When the id is not in ``ids`` or the part is not lower-case words joined by hyphens.
    """
    if not isinstance(reference, str):
        raise ValueError(f"a claim is named by a string, got {reference!r}")
    id_, slash, part = reference.partition("/")
    if id_ not in ids:
        raise ValueError(f"unknown claim {id_!r}; the ids are those of claims.yml")
    if slash and not _PART.fullmatch(part):
        raise ValueError(f"part {part!r} of {id_} must be lower-case words joined by hyphens")
    return id_, (part if slash else None)


def check_claim_marker(
    args: Sequence[object], kwargs: Mapping[str, object], ids: Collection[str]
) -> tuple[str, str | None, str]:
    """Check the arguments of a ``claim`` marker; return id, part and verdict.

    Raises
    ------
    ValueError
        Naming what is wrong with the marker.
    """
    if len(args) != 1 or set(kwargs) != {"verdict"}:
        raise ValueError('a claim marker is claim("id" or "id/part", verdict="…")')
    id_, part = parse_reference(args[0], ids)
    verdict = kwargs["verdict"]
    if verdict not in VERDICTS:
        raise ValueError(
            f"unknown verdict {verdict!r} for {args[0]}; known are {', '.join(VERDICTS)}"
        )
    return id_, part, str(verdict)


def check_mutation_marker(
    args: Sequence[object], kwargs: Mapping[str, object], ids: Collection[str]
) -> tuple[str, str | None]:
    """Check the arguments of a ``mutation`` marker; return id and part.

    Raises
    ------
    ValueError
        Naming what is wrong with the marker.
    """
    if len(args) != 1 or kwargs:
        raise ValueError('a mutation marker is mutation("id" or "id/part")')
    return parse_reference(args[0], ids)


# --- evidence ---------------------------------------------------------------------------


def collect_evidence(
    tests_dir: Path | str, lessons_dir: Path | str, ids: Collection[str]
) -> Collected:
    """Find the markers of all tests and the claim labels of all lessons.

    Parameters
    ----------
    tests_dir, lessons_dir : Path or str
        Folders; tests are searched recursively, lessons are the ``*.md`` files directly in it.
    ids : collection of str
        The known claims.

    Returns
    -------
    Collected

    Raises
    ------
    LedgerError
        With ``file:line`` for everything that cannot be understood.
    """
    problems: list[str] = []
    evidence: list[Evidence] = []
    mutations: list[Mutation] = []
    labels: list[Label] = []
    for path in sorted(Path(tests_dir).rglob("*.py")):
        _scan_test(path, ids, evidence, mutations, problems)
    for path in sorted(Path(lessons_dir).glob("*.md")):
        _scan_lesson(path, ids, labels, problems)
    if problems:
        raise LedgerError(problems)
    return Collected(tuple(evidence), tuple(mutations), tuple(labels))


def _scan_test(
    path: Path,
    ids: Collection[str],
    evidence: list[Evidence],
    mutations: list[Mutation],
    problems: list[str],
) -> None:
    text = path.read_text(encoding="utf-8")
    try:
        tree = ast.parse(text, filename=str(path))
    except SyntaxError as error:
        problems.append(at(path, error.lineno or 1, f"not valid Python: {error.msg}"))
        return
    if not any(kind in text for kind in _MARKERS):
        return
    seen: set[ast.AST] = set()
    for place in _places(
        tree.body, "", path.name.startswith("test_") or path.stem.endswith("_test")
    ):
        markers = [n for n in ast.walk(place.expression) if _marker_kind(n)]
        seen.update(markers)
        calls = {n.func: n for n in ast.walk(place.expression) if isinstance(n, ast.Call)}
        for node in markers:
            kind = _marker_kind(node)
            try:
                if not place.runs:
                    raise ValueError(
                        f"{place.name} is not run by pytest, so its {kind} proves nothing"
                    )
                if place.never:
                    raise ValueError(
                        f"{place.name} is marked {place.never}: evidence must run and pass"
                    )
                if node not in calls:
                    raise ValueError(f"the {kind} marker needs an id")
                args, kwargs = _literal_arguments(calls[node])
                if kind == "claim":
                    id_, part, verdict = check_claim_marker(args, kwargs, ids)
                    evidence.append(Evidence(id_, part, verdict, path, place.line, place.name))
                else:
                    id_, part = check_mutation_marker(args, kwargs, ids)
                    mutations.append(Mutation(id_, part, path, place.line, place.name))
            except ValueError as error:
                problems.append(at(path, node.lineno, str(error)))
    for node in ast.walk(tree):
        kind = _marker_kind(node)
        if kind and node not in seen:
            text = f"the {kind} marker must be a decorator of a test or stand in pytestmark"
            problems.append(at(path, node.lineno, text))


@dataclass(frozen=True)
class _Place:
    """An expression that may hold markers: a decorator, or what ``pytestmark`` is set to."""

    expression: ast.expr
    name: str
    line: int
    runs: bool
    never: str | None = None


def _places(body: Iterable[ast.stmt], prefix: str, runs: bool) -> Iterator[_Place]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            is_class = isinstance(node, ast.ClassDef)
            collected = runs and node.name.startswith("Test" if is_class else "test")
            name = f"{prefix}::{node.name}" if prefix else node.name
            marks = [_mark_name(decorator) for decorator in node.decorator_list]
            never = next((mark for mark in marks if mark in ("skip", "xfail")), None)
            for decorator in node.decorator_list:
                yield _Place(decorator, name, node.lineno, collected, never)
            if is_class:
                yield from _places(node.body, name, collected)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in targets):
                yield _Place(node.value, prefix, node.lineno, runs)


def _literal_arguments(call: ast.Call) -> tuple[list[object], dict[str, object]]:
    """The arguments of a marker, which must be readable without running the test."""
    try:
        if any(keyword.arg is None for keyword in call.keywords):
            raise ValueError
        args = [ast.literal_eval(argument) for argument in call.args]
        return args, {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except ValueError as error:
        raise ValueError("a marker takes literal strings, to be read without running") from error


def _mark_name(node: ast.AST) -> str | None:
    """``skip`` for ``pytest.mark.skip``, ``mark.skip`` and either of them called."""
    if isinstance(node, ast.Call):
        node = node.func
    if not isinstance(node, ast.Attribute):
        return None
    owner = node.value
    if isinstance(owner, ast.Attribute) and owner.attr == "mark":
        return node.attr
    if isinstance(owner, ast.Name) and owner.id == "mark":
        return node.attr
    return None


_MARKERS = ("claim", "mutation")


def _marker_kind(node: ast.AST) -> str | None:
    """``claim`` or ``mutation`` for the attribute node of such a marker."""
    if isinstance(node, ast.Attribute) and node.attr in _MARKERS:
        return _mark_name(node)
    return None


def _scan_lesson(
    path: Path, ids: Collection[str], labels: list[Label], problems: list[str]
) -> None:
    try:
        lesson = lesson_source.read(path, show(path))
    except lesson_source.SourceError as error:
        problems.append(str(error))
        return
    for block in lesson_source.walk(lesson.blocks):
        if not (isinstance(block, lesson_source.Directive) and block.name.startswith("prf:")):
            continue
        label = block.options.get("label", "")
        if not _CLAIM_LIKE_LABEL.match(label):
            continue
        # «lml-10-repaired» belongs to lml-10 and not to lml-1: the hyphen decides.
        id_ = next((i for i in ids if label == i or label.startswith(f"{i}-")), None)
        if id_ is None:
            text = f"label {label!r} looks like a claim's, but no claim has that id"
            problems.append(at(path, block.line, text))
        else:
            kind = block.name.removeprefix("prf:")
            labels.append(Label(id_, label, kind, path, block.line))


def validate(claims: Sequence[Claim], collected: Collected) -> list[Row]:
    """Join the register with what was collected.

    Returns
    -------
    list of Row
        One a claim, in the register's order.

    Raises
    ------
    LedgerError
        When a part has two different verdicts, a label stands twice, a lesson states a claim
        that no test covers, or a mutation belongs to a claim without a test.
    """
    rows = {claim.id: Row(claim) for claim in claims}
    problems: list[str] = []

    def report(where: Evidence | Mutation | Label, text: str) -> None:
        problems.append(at(where.file, where.line, text))

    first: dict[tuple[str, str | None], Evidence] = {}
    for item in collected.evidence:
        rows[item.id].evidence.append(item)
        earlier = first.setdefault((item.id, item.part), item)
        if earlier.verdict != item.verdict:
            reference = f"{item.id}/{item.part}" if item.part else item.id
            there = at(earlier.file, earlier.line, repr(earlier.verdict))
            report(item, f"{reference} is {item.verdict!r} here, but {there}")
    for mutation in collected.mutations:
        rows[mutation.id].mutations.append(mutation)
        if not rows[mutation.id].evidence:
            report(mutation, f"a mutation of {mutation.id}, for which no test has a verdict")
    places: dict[str, Label] = {}
    for label in collected.labels:
        rows[label.id].labels.append(label)
        earlier = places.setdefault(label.label, label)
        if earlier is not label:
            report(label, at(earlier.file, earlier.line, f"label {label.label!r} stands here too"))
        if not rows[label.id].evidence:
            report(label, f"the lesson states {label.id}, but no test covers it")
    if problems:
        raise LedgerError(problems)
    return list(rows.values())


def gaps(rows: Sequence[Row]) -> list[str]:
    """What is missing before the ledger is whole: a line for each gap, with the id of its row.

    While a lesson is written, rows may lie open. In the book as it is published each has a test,
    each that has one is stated in a lesson, and each verdict has a mutation: a check that has
    never failed is no evidence.
    """
    problems = []
    for row in rows:
        id_ = row.claim.id
        if not row.evidence:
            problems.append(f"{id_}: a claim without a test")
            continue
        if not row.labels:
            problems.append(f"{id_}: a test without a lesson; no statement has the label {id_}")
        if not row.mutations:
            verdicts = ", ".join(dict.fromkeys(row.verdicts.values()))
            problems.append(f"{id_}: a verdict without evidence; no mutation of «{verdicts}» fails")
    return problems


def read_all(root: Path | str = ROOT) -> list[Row]:
    """Register, tests and lessons of a checkout, joined and checked."""
    root = Path(root)
    claims = load_register(root / "book" / "claims.yml")
    collected = collect_evidence(root / "tests", root / "lessons_src", {c.id for c in claims})
    return validate(claims, collected)


# --- the page ---------------------------------------------------------------------------


def write_ledger(
    target_dir: Path | str, *, root: Path | str = ROOT, lessons: Collection[str] | None = None
) -> Path:
    """Write ``ledger.md`` into ``target_dir``.

    Parameters
    ----------
    target_dir : Path or str
        The folder that Sphinx will read.
    root : Path or str
        The checkout.
    lessons : collection of str, optional
        Names of the lessons in this build (``"convex_02_mlp"``); statements of other lessons
        are not linked, since Sphinx could not resolve them. By default every lesson is there.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    LedgerError
        See `load_register`, `collect_evidence` and `validate`.
    """
    root, target = Path(root), Path(target_dir)
    where = address(settings.load(root))
    text = render(read_all(root), root=root, address=where, lessons=lessons)
    target.mkdir(parents=True, exist_ok=True)
    path = target / "ledger.md"
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def address(where: settings.Settings) -> str | None:
    """Where the files of this release can be read; None as long as it is not published."""
    return f"{where.repository}/blob/{where.tag}" if where.repository else None


_PREFACE = [
    "# Ledger of claims",
    "",
    "Each row below is something that one of the sources states, in our own words. A test in",
    "the repository decides what becomes of it, and this page is written anew from those tests",
    "at every build: a verdict stands here only while its test exists. A row that no test has",
    "taken up reads «open», and so does one of which a part is not taken up. A row with several",
    "parts shows a verdict for each and leads with the most severe, in the order of this list.",
    "Each row leads to its statement and proof, to the tests, and to the functions of the library",
    "that the tests compute with.",
    "",
]
_MUTATIONS = [
    "",
    "A *mutation* is the same check run on a claim that was altered on purpose, by a constant, a",
    "sign or a transpose. It has to fail, or the check would prove nothing.",
    "",
]


def render(
    rows: Sequence[Row],
    *,
    root: Path,
    address: str | None = None,
    lessons: Collection[str] | None = None,
    functions: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """The ledger as a MyST page.

    ``functions`` holds, for each id, names of the library such as ``convex.solve`` that its tests
    compute with; a book without reference pages has none.
    """
    out = [*_PREFACE, *_summary(rows)]
    heading = None
    for row in rows:
        if row.claim.heading != heading:
            heading = row.claim.heading
            out += [f"## {heading}", "", f"Source: {{cite:t}}`{row.claim.source}`.", ""]
        computed = None if functions is None else functions.get(row.claim.id, ())
        out += _block(row, root=root, address=address, lessons=lessons, functions=computed)
    return "\n".join(out).rstrip() + "\n"


def _summary(rows: Sequence[Row]) -> list[str]:
    out = []
    for verdict in (*VERDICTS, OPEN):
        count = sum(row.verdict == verdict for row in rows)
        out.append(f"- **{verdict}** ({count} of {len(rows)}): {MEANING[verdict]}")
    out += [*_MUTATIONS, "| Source | Rows | Open |", "|:--|--:|--:|"]
    for heading in dict.fromkeys(row.claim.heading for row in rows):
        group = [row for row in rows if row.claim.heading == heading]
        out.append(f"| {heading} | {len(group)} | {sum(row.verdict == OPEN for row in group)} |")
    return [*out, ""]


def _block(
    row: Row,
    *,
    root: Path,
    address: str | None,
    lessons: Collection[str] | None,
    functions: Sequence[str] | None,
) -> list[str]:
    claim = row.claim
    title = f"{claim.id} · {claim.title} · {row.verdict}"
    # Open rows are folded: they are many, and the page should first show what is settled.
    if row.verdict == OPEN:
        opening = [f"````{{dropdown}} {title}", f":name: claim-{claim.id}"]
    else:
        opening = [
            f"````{{admonition}} {title}",
            f":class: {_BOX[row.verdict]}",
            f":name: claim-{claim.id}",
        ]
    out = [
        *opening,
        "",
        claim.statement,
        "",
        f"- **Place:** {{cite:t}}`{claim.source}`, {claim.place}",
    ]
    if row.verdict == OPEN:
        what = f" (*{claim.untested}*)" if claim.untested else ""
        out.append(f"- **Verdict**{what}: open" if what else "- **Verdict:** open")
    for part, verdict in row.verdicts.items():
        name = f" (*{part.replace('-', ' ')}*)" if part else ""
        out.append(f"- **Verdict**{name}: {verdict}")
    shown = [label for label in row.labels if lessons is None or label.file.stem in lessons]
    for heading, labels in _by_role(row.claim.id, shown).items():
        links = ", ".join(f"{{prf:ref}}`{label.label}`" for label in labels)
        out.append(f"- **{heading}:** {links}")
    if row.evidence and functions is not None:
        links = [f"{{py:obj}}`{name} <{PACKAGE}.{name}>`" for name in functions]
        out.append(f"- **Computed with:** {', '.join(links) or 'nothing but the test itself'}")
    tests = list(dict.fromkeys((e.file, e.name, e.line) for e in row.evidence))
    if tests:
        for file in dict.fromkeys(file for file, _, _ in tests):
            links = [_test_link(root, address, *test) for test in tests if test[0] == file]
            out.append(f"- **Tests** in `{_relative(file, root)}`: {', '.join(links)}")
        out.append(f"- **Mutations that fail as they must:** {len(row.mutations)}")
    return [*out, "````", ""]


def _by_role(id_: str, labels: Sequence[Label]) -> dict[str, list[Label]]:
    """The statements of a claim, sorted by what they are for."""
    roles: dict[str, list[Label]] = {
        "Statement": [],
        "Counterexample": [],
        "Repaired": [],
        "Lemmas": [],
    }
    for label in labels:
        end = label.label.removeprefix(id_)
        if end.startswith("-counterexample"):
            roles["Counterexample"].append(label)
        elif end.startswith("-repaired"):
            roles["Repaired"].append(label)
        elif end.startswith("-lemma"):
            roles["Lemmas"].append(label)
        else:
            roles["Statement"].append(label)
    return {role: found for role, found in roles.items() if found}


def _test_link(root: Path, address: str | None, file: Path, name: str, line: int) -> str:
    relative = _relative(file, root)
    # `TestA::test_b_of_c` reads «b of c», which says what is tested and may break anywhere.
    text = name.split("::")[-1].removeprefix("test_").removeprefix("Test").replace("_", " ")
    text = text or "the whole file"
    if address:
        return f"[{text}]({address}/{relative}#L{line})"
    # As long as the project has no address, the book shows the test itself, at its line.
    return f"{{testcode}}`{text} <{relative}#L{line}>`"


def _relative(file: Path, root: Path) -> str:
    return file.resolve().relative_to(root.resolve()).as_posix()


def at(path: Path, line: int, text: str) -> str:
    """A problem with its place."""
    return f"{show(path)}:{line}: {text}"


def show(path: Path) -> str:
    """The path inside the checkout, so that messages don't depend on where the checkout lies."""
    try:
        return path.resolve().relative_to(ROOT).as_posix()
    except ValueError:
        return str(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the command line."""
    parser = argparse.ArgumentParser(
        description="Check the register of claims or write the ledger page."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="read register, tests and lessons; print the counts")
    write = commands.add_parser("write", help="write ledger.md into a folder")
    write.add_argument("directory", type=Path)
    options: Any = parser.parse_args(arguments)
    try:
        if options.command == "write":
            print(write_ledger(options.directory))
        else:
            rows = read_all()
            for verdict in (*VERDICTS, OPEN):
                print(f"{verdict:15} {sum(row.verdict == verdict for row in rows):4}")
            print(f"{'all':15} {len(rows):4}")
            if missing := gaps(rows):
                raise LedgerError(missing)
    except LedgerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
