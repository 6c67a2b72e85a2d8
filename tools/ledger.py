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
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

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
    OPEN: "no test yet",
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
        """The most severe verdict, or ``open`` where there is no evidence."""
        verdicts = self.verdicts.values()
        return min(verdicts, key=VERDICTS.index) if verdicts else OPEN


# --- the register -----------------------------------------------------------------------

_TOP_KEYS = ("sources", "claims")
_SOURCE_KEYS = ("key", "heading")
_CLAIM_KEYS = ("id", "title", "statement", "source", "place")


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
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise LedgerError([f"{_show(path)}:{line}: not valid YAML: {error.problem}"]) from error

    problems: list[str] = []

    def report(line: int, text: str) -> None:
        problems.append(f"{_show(path)}:{line}: {text}")

    if root is None:
        raise LedgerError([f"{_show(path)}:1: the register is empty"])

    top = _mapping(root, _TOP_KEYS, "the register", report)
    sources: dict[str, Source] = {}
    if "sources" in top:
        for prefix, node in _pairs(top["sources"], "sources", report):
            fields = _mapping(node, _SOURCE_KEYS, f"source {prefix}", report)
            texts = {name: _text(value, name, report) for name, value in fields.items()}
            sources[prefix] = Source(prefix, texts.get("key", ""), texts.get("heading", ""))

    claims: list[Claim] = []
    first_line: dict[str, int] = {}
    rows = top.get("claims")
    if rows is not None and not isinstance(rows, yaml.SequenceNode):
        report(_line(rows), "claims must be a list")
        rows = None
    for node in rows.value if rows is not None else ():
        line = _line(node)
        fields = _mapping(node, _CLAIM_KEYS, "claim", report)
        texts = {name: _text(value, name, report) for name, value in fields.items()}
        if set(texts) != set(_CLAIM_KEYS):
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
            report(line, f"id {id_}: source is {texts['source']!r}, but {id_[:3]} rows come from {source.key!r}")
            continue
        claims.append(
            Claim(id_, texts["title"], texts["statement"], texts["source"], texts["place"], line, source.heading)
        )
    if problems:
        raise LedgerError(problems)
    if not claims:
        raise LedgerError([f"{_show(path)}:1: the register holds no claim"])
    return claims


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1


def _pairs(node: yaml.Node, what: str, report) -> list[tuple[str, yaml.Node]]:
    """The entries of a mapping; repeated keys are reported, since YAML would drop one silently."""
    if not isinstance(node, yaml.MappingNode):
        report(_line(node), f"{what} must be a mapping")
        return []
    entries: dict[str, yaml.Node] = {}
    for key_node, value in node.value:
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else str(key_node.value)
        if key in entries:
            report(_line(key_node), f"{what}: key {key!r} is given twice")
            continue
        entries[key] = value
    return list(entries.items())


def _mapping(node: yaml.Node, keys: Sequence[str], what: str, report) -> dict[str, yaml.Node]:
    entries = dict(_pairs(node, what, report))
    for key, value in entries.items():
        if key not in keys:
            report(_line(value), f"{what}: unknown key {key!r}; known are {', '.join(keys)}")
    if isinstance(node, yaml.MappingNode):
        for key in keys:
            if key not in entries:
                report(_line(node), f"{what}: {key!r} is missing")
    return {key: value for key, value in entries.items() if key in keys}


def _text(node: yaml.Node, name: str, report) -> str:
    if not isinstance(node, yaml.ScalarNode) or not node.value.strip():
        report(_line(node), f"{name} must be a text that is not empty")
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
        raise ValueError(f"unknown verdict {verdict!r} for {args[0]}; known are {', '.join(VERDICTS)}")
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
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    except SyntaxError as error:
        problems.append(f"{_show(path)}:{error.lineno or 1}: not valid Python: {error.msg}")
        return
    runs_here = path.name.startswith("test_") or path.name.endswith("_test.py")

    def report(node: ast.AST, text: str) -> None:
        problems.append(f"{_show(path)}:{node.lineno}: {text}")

    seen: set[ast.AST] = set()

    def take(expression: ast.AST, name: str, line: int, runs: bool) -> None:
        """Record every marker inside a decorator or a ``pytestmark`` value."""
        for node in ast.walk(expression):
            kind = _marker_kind(node)
            if kind is None:
                continue
            seen.add(node)
            call = next((c for c in ast.walk(expression) if isinstance(c, ast.Call) and c.func is node), None)
            if call is None:
                report(node, f"the {kind} marker needs an id")
                continue
            if not (runs and runs_here):
                report(node, f"the {kind} marker stands on {name}, which pytest does not run as a test")
                continue
            try:
                args = [ast.literal_eval(a) for a in call.args]
                kwargs = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg}
                if len(kwargs) != len(call.keywords):
                    raise ValueError
            except ValueError:
                report(node, f"the {kind} marker takes literal strings, so that it can be read without running")
                continue
            try:
                if kind == "claim":
                    id_, part, verdict = check_claim_marker(args, kwargs, ids)
                    evidence.append(Evidence(id_, part, verdict, path, line, name))
                else:
                    id_, part = check_mutation_marker(args, kwargs, ids)
                    mutations.append(Mutation(id_, part, path, line, name))
            except ValueError as error:
                report(node, str(error))

    def visit(body: Iterable[ast.stmt], prefix: str, runs: bool) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                is_class = isinstance(node, ast.ClassDef)
                collected = runs and node.name.startswith("Test" if is_class else "test")
                name = f"{prefix}::{node.name}" if prefix else node.name
                marked = False
                for decorator in node.decorator_list:
                    if any(_marker_kind(n) for n in ast.walk(decorator)):
                        marked = True
                        take(decorator, name, node.lineno, collected)
                if marked:
                    for decorator in node.decorator_list:
                        never = _mark_name(decorator)
                        if never in ("skip", "xfail"):
                            report(decorator, f"{name} carries a claim or mutation and {never}: evidence must run and pass")
                if is_class:
                    visit(node.body, name, collected)
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in targets):
                    take(node.value, prefix, node.lineno, runs)

    visit(tree.body, "", True)
    for node in ast.walk(tree):
        kind = _marker_kind(node)
        if kind and node not in seen:
            report(node, f"the {kind} marker must be a decorator of a test or stand in pytestmark")


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


def _marker_kind(node: ast.AST) -> str | None:
    """``claim`` or ``mutation`` for the attribute node of such a marker."""
    if isinstance(node, ast.Attribute) and node.attr in ("claim", "mutation"):
        return _mark_name(node)
    return None


_FENCE = re.compile(r"^(?P<indent> {0,3})(?P<fence>`{3,}|~{3,}|:{3,})\s*(?P<info>.*)$")
_DIRECTIVE = re.compile(r"^\{(?P<name>[^}]+)\}")
_LABEL_OPTION = re.compile(r"^\s*:?label:\s*(?P<label>\S+)\s*$")


def _scan_lesson(path: Path, ids: Collection[str], labels: list[Label], problems: list[str]) -> None:
    by_length = sorted(ids, key=len, reverse=True)
    open_fences: list[tuple[str, int, bool]] = []  # character, length, literal content
    in_solution = False
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, text in enumerate(lines, start=1):
        match = _FENCE.match(text)
        if not match:
            continue
        character, length, info = match["fence"][0], len(match["fence"]), match["info"].strip()
        if open_fences and not info:
            top_character, top_length, _ = open_fences[-1]
            if character == top_character and length >= top_length:
                open_fences.pop()
                continue
        if open_fences and open_fences[-1][2]:
            continue  # text inside a code block, whatever it looks like
        directive = _DIRECTIVE.match(info)
        name = directive["name"].strip() if directive else ""
        if name == "solution-start":
            in_solution = True
        elif name == "solution-end":
            in_solution = False
        literal = not name or name in ("code-cell", "code", "code-block", "math", "raw", "literalinclude")
        open_fences.append((character, length, literal))
        if not name.startswith("prf:"):
            continue
        label, line = _directive_label(lines, number)
        if label is None or not _CLAIM_LIKE_LABEL.match(label):
            continue
        id_ = next((i for i in by_length if label == i or label.startswith(f"{i}-")), None)
        if id_ is None:
            problems.append(f"{_show(path)}:{line}: label {label!r} looks like a claim's, but no claim has that id")
        elif in_solution:
            problems.append(f"{_show(path)}:{line}: {label!r} states a claim inside a solution, which readers may not see")
        else:
            labels.append(Label(id_, label, name.removeprefix("prf:"), path, line))


def _directive_label(lines: Sequence[str], opening: int) -> tuple[str | None, int]:
    """The label option of the directive that opens in line ``opening`` (counted from 1)."""
    block = False
    for index in range(opening, len(lines)):
        text = lines[index].strip()
        if text == "---":
            if block:
                break
            block = True
            continue
        if not block and not text.startswith(":"):
            break
        match = _LABEL_OPTION.match(text)
        if match:
            return match["label"], index + 1
    return None, opening


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
    first: dict[tuple[str, str | None], Evidence] = {}
    for item in collected.evidence:
        earlier = first.setdefault((item.id, item.part), item)
        if earlier.verdict != item.verdict:
            reference = item.id + (f"/{item.part}" if item.part else "")
            problems.append(
                f"{_show(item.file)}:{item.line}: {reference} is {item.verdict!r} here, "
                f"but {earlier.verdict!r} in {_show(earlier.file)}:{earlier.line}"
            )
        rows[item.id].evidence.append(item)
    for mutation in collected.mutations:
        rows[mutation.id].mutations.append(mutation)
        if not rows[mutation.id].evidence:
            problems.append(
                f"{_show(mutation.file)}:{mutation.line}: a mutation of {mutation.id}, for which no test has a verdict"
            )
    places: dict[str, Label] = {}
    for label in collected.labels:
        if label.label in places:
            other = places[label.label]
            problems.append(
                f"{_show(label.file)}:{label.line}: label {label.label!r} already stands in {_show(other.file)}:{other.line}"
            )
            continue
        places[label.label] = label
        rows[label.id].labels.append(label)
        if not rows[label.id].evidence:
            problems.append(f"{_show(label.file)}:{label.line}: the lesson states {label.id}, but no test covers it")
    if problems:
        raise LedgerError(problems)
    return list(rows.values())


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
    text = render(read_all(root), root=root, address=_test_address(root), lessons=lessons)
    target.mkdir(parents=True, exist_ok=True)
    path = target / "ledger.md"
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def _test_address(root: Path) -> str | None:
    """Where the repository shows its files, or None while it has no address."""
    settings = root / "pyproject.toml"
    if not settings.is_file():
        return None
    tool = tomllib.loads(settings.read_text(encoding="utf-8")).get("tool", {}).get("fourviews", {})
    repository = str(tool.get("repository") or "").rstrip("/")
    tag = str(tool.get("release_tag") or tool.get("tag") or "main")
    return f"{repository}/blob/{tag}" if repository else None


def render(
    rows: Sequence[Row], *, root: Path, address: str | None = None, lessons: Collection[str] | None = None
) -> str:
    """The ledger as a MyST page."""
    out = [
        "# Ledger of claims",
        "",
        "Each row below is something that one of the sources states, in our own words. A test in the",
        "repository decides what becomes of it, and this page is written anew from those tests",
        "at every build: a verdict stands here only while its test exists. A row that no test has",
        "taken up reads «open». Where a row has several parts, each has its own verdict, and the row leads",
        "with the most severe: the list below is in that order.",
        "",
        *(f"- **{verdict}**: {MEANING[verdict]}" for verdict in (*VERDICTS, OPEN)),
        "",
        "A *mutation* is the same check run on a claim that was altered on purpose, by a constant, a sign or a",
        "transpose. It has to fail, or the check would prove nothing.",
        "",
        *_summary(rows),
    ]
    heading = None
    for row in rows:
        if row.claim.heading != heading:
            heading = row.claim.heading
            out += [f"## {heading}", "", f"Source: {{cite:t}}`{row.claim.source}`.", ""]
        out += _block(row, root=root, address=address, lessons=lessons)
    return "\n".join(out).rstrip() + "\n"


def _summary(rows: Sequence[Row]) -> list[str]:
    counts = {verdict: sum(row.verdict == verdict for row in rows) for verdict in (*VERDICTS, OPEN)}
    out = ["| Verdict | Rows |", "|:--|--:|"]
    out += [f"| {verdict} | {count} |" for verdict, count in counts.items()]
    out += [f"| **all** | **{len(rows)}** |", ""]
    out += ["| Source | Rows | Open |", "|:--|--:|--:|"]
    headings = list(dict.fromkeys(row.claim.heading for row in rows))
    for heading in headings:
        group = [row for row in rows if row.claim.heading == heading]
        out.append(f"| {heading} | {len(group)} | {sum(row.verdict == OPEN for row in group)} |")
    return [*out, ""]


def _block(row: Row, *, root: Path, address: str | None, lessons: Collection[str] | None) -> list[str]:
    claim = row.claim
    title = f"{claim.id} · {claim.title} · {row.verdict}"
    # Open rows are folded: they are many, and the page should first show what is settled.
    if row.verdict == OPEN:
        opening = [f"````{{dropdown}} {title}", f":name: claim-{claim.id}"]
    else:
        opening = [f"````{{admonition}} {title}", f":class: {_BOX[row.verdict]}", f":name: claim-{claim.id}"]
    out = [*opening, "", claim.statement, "", f"- **Place:** {{cite:t}}`{claim.source}`, {claim.place}"]
    if row.verdict == OPEN:
        out.append("- **Verdict:** open")
    for part, verdict in row.verdicts.items():
        name = f" (*{part.replace('-', ' ')}*)" if part else ""
        out.append(f"- **Verdict**{name}: {verdict}")
    shown = [
        label for label in row.labels if lessons is None or label.file.stem in lessons
    ]
    if shown:
        out.append("- **In the book:** " + ", ".join(f"{{prf:ref}}`{label.label}`" for label in shown))
    tests = list(dict.fromkeys((e.file, e.name, e.line) for e in row.evidence))
    if tests:
        out.append("- **Tests:**")
        out += [f"  - {_test_link(root, address, *test)}" for test in tests]
        out.append(f"- **Mutations that fail as they must:** {len(row.mutations)}")
    return [*out, "````", ""]


def _test_link(root: Path, address: str | None, file: Path, name: str, line: int) -> str:
    relative = file.resolve().relative_to(root.resolve()).as_posix()
    text = f"`{relative}::{name}`" if name else f"`{relative}`"
    return f"[{text}]({address}/{relative}#L{line})" if address else text


def _show(path: Path) -> str:
    """The path relative to the checkout where possible: messages should not depend on where it lies."""
    try:
        return path.resolve().relative_to(ROOT).as_posix()
    except ValueError:
        return str(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the command line."""
    parser = argparse.ArgumentParser(description="Check the register of claims or write the ledger page.")
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
    except LedgerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
