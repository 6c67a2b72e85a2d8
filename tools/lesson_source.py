"""Read a lesson of `lessons_src/` into blocks, and refuse whatever is not understood.

A lesson is a MyST text notebook. What is read here decides what readers get to see: exercises and
solutions stand between gates, and a gate that is misspelt, indented, nested or missing would put
a solution on the page. So the reader fails closed: each construct is either one of those listed
below or a `SourceError` with file and line. Nothing is skipped.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

Lines = Sequence[tuple[int, str]]
"""Numbered lines, so that errors in nested blocks still name the line of the file."""

ADMONITIONS = {
    "note": "Note",
    "tip": "Tip",
    "hint": "Hint",
    "warning": "Warning",
    "caution": "Caution",
    "important": "Important",
    "seealso": "See also",
}
THEOREMS = (
    "algorithm",
    "assumption",
    "conjecture",
    "corollary",
    "definition",
    "example",
    "lemma",
    "notation",
    "observation",
    "property",
    "proposition",
    "remark",
    "theorem",
)
GATES = ("exercise-start", "exercise-end", "solution-start", "solution-end")
KINDS = ("code", "proof", "exploration")
MODES = ("practice", "graded")

# Each directive: the options it may carry and whether it takes an argument.
_NUMBERED = {"label", "class", "nonumber"}
DIRECTIVES: dict[str, tuple[set[str], bool]] = {
    **{name: ({"class"}, False) for name in ADMONITIONS},
    "admonition": ({"class"}, True),
    "dropdown": ({"open"}, True),
    "epigraph": (set(), False),
    "figure": ({"name", "alt", "width", "align"}, True),
    "index": (set(), True),
    "list-table": ({"name", "header-rows", "widths", "align"}, True),
    "math": ({"label"}, False),
    "prf:proof": ({"class"}, False),
    **{f"prf:{name}": (_NUMBERED, True) for name in THEOREMS},
    "table": ({"name", "align", "widths"}, True),
}
ROLES = (
    "cite",
    "cite:p",
    "cite:t",
    "doc",
    "eq",
    "index",
    "math",
    "numref",
    "prf:ref",
    "ref",
    "term",
)
TAGS = {
    "check",
    "hidden-check",
    "hide-cell",
    "hide-input",
    "hide-output",
    "remove-input",
    "remove-output",
    "scroll-output",
    "skip-execution",
    "stub",
}
BUDGET_SECONDS = {"lesson": 45, "lab": 120}

_FENCE = re.compile(r"(`{3,}|~{3,}|:{3,})(.*)$")
_DIRECTIVE = re.compile(r"\{([^}]*)\}[ \t]*(.*)$")
_GATE_LIKE = re.compile(
    r"(exercise|solution)\s*[-_ ]?\s*(start|end|begin|stop|strat|satrt)\b", re.I
)
_TARGET = re.compile(r"\(([^)\s]+)\)=\s*$")
_LABEL = re.compile(r"[a-z][a-z0-9]*(?:[-_.][a-z0-9]+)*")
_BUILD_ONLY = ("myst_nb", "sphinx", "jupyter_book")


class SourceError(ValueError):
    """Something in a lesson that is not understood, as `file:line: what`."""

    def __init__(self, path: Path | str, line: int, message: str):
        self.path, self.line, self.message = str(path), line, message
        super().__init__(f"{path}:{line}: {message}")


@dataclass
class Prose:
    """Markdown without directives: paragraphs, lists, tables, plain code blocks."""

    line: int
    lines: list[tuple[int, str]]


@dataclass
class Heading:
    line: int
    level: int
    text: str
    target: str | None = None


@dataclass
class Math:
    """Displayed mathematics; `indent` when it belongs to a list item."""

    line: int
    body: list[str]
    label: str | None
    indent: str = ""


@dataclass
class Directive:
    line: int
    name: str
    argument: str
    options: dict[str, str]
    body: list[tuple[int, str]]
    children: list[Block] = field(default_factory=list)


@dataclass
class Cell:
    """A code cell; `first` and `last` are its lines in the file, fences included."""

    line: int
    last: int
    source: str
    source_line: int
    tags: list[str]
    alt: str | None = None
    caption: str | None = None
    name: str | None = None
    index: int = 0


@dataclass
class Break:
    """`+++`: the text on either side goes into cells of its own."""

    line: int


@dataclass
class Solution:
    line: int
    last: int
    label: str
    start: tuple[int, int] = (0, 0)
    blocks: list[Block] = field(default_factory=list)


@dataclass
class Exercise:
    line: int
    last: int
    title: str
    label: str
    kind: str
    minutes: int
    points: int
    mode: str
    start: tuple[int, int] = (0, 0)
    blocks: list[Block] = field(default_factory=list)
    solution: Solution | None = None

    @property
    def effort(self) -> str:
        """What stands beside the title, `code, 15 min`."""
        return f"{self.kind}, {self.minutes} min"


Block = Prose | Heading | Math | Directive | Cell | Break | Exercise | Solution


@dataclass
class Lesson:
    path: Path
    lines: list[str]
    front_matter_lines: int
    budget_seconds: float
    blocks: list[Block]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def title(self) -> str:
        heading = self.blocks[0]
        assert isinstance(heading, Heading)
        return heading.text

    def exercises(self) -> list[Exercise]:
        return [block for block in self.blocks if isinstance(block, Exercise)]

    def cells(self, *, solutions: bool | str = True) -> list[Cell]:
        """Code cells in order; `solutions` is True, False, or "practice" for those on the page."""
        cells: list[Cell] = []
        modes = {block.label: block.mode for block in self.exercises()}
        for block in self.blocks:
            if isinstance(block, Cell):
                cells.append(block)
            elif isinstance(block, Exercise):
                cells += [b for b in block.blocks if isinstance(b, Cell)]
            elif isinstance(block, Solution):
                shown = solutions is True or (
                    solutions == "practice" and modes[block.label] == "practice"
                )
                if shown:
                    cells += [b for b in block.blocks if isinstance(b, Cell)]
        return cells


def walk(blocks: Sequence[Block]) -> Iterator[Block]:
    """Every block, each directive and gate before its content."""
    for block in blocks:
        yield block
        if isinstance(block, Directive):
            yield from walk(block.children)
        elif isinstance(block, Exercise | Solution):
            yield from walk(block.blocks)


def read(path: Path, shown_as: str | None = None) -> Lesson:
    """Parse one lesson; `shown_as` is the path that errors name."""
    return _Reader(path, shown_as or path.name).lesson()


class _Reader:
    def __init__(self, path: Path, shown_as: str):
        self.path = path
        self.shown_as = shown_as
        text = path.read_text(encoding="utf-8")
        if "\r" in text:
            self.fail(1, "carriage returns: save the file with Unix line ends")
        if "\t" in text:
            line = text[: text.index("\t")].count("\n") + 1
            self.fail(line, "tab character: indent with blanks")
        self.lines = text.split("\n")
        self.labels: dict[str, int] = {}

    def fail(self, line: int, message: str):
        raise SourceError(self.shown_as, line, message)

    # The file as a whole

    def lesson(self) -> Lesson:
        if not re.fullmatch(r"[a-z]+_\d\d_[a-z0-9_]+", self.path.stem):
            self.fail(1, f"file name {self.path.name!r}: need PART_NN_topic.md")
        end, budget = self.front_matter()
        blocks = self.gated([(i + 1, self.lines[i]) for i in range(end, len(self.lines))])
        while blocks and isinstance(blocks[0], Break):
            blocks.pop(0)
        if not blocks or not isinstance(blocks[0], Heading) or blocks[0].level != 1:
            self.fail(end + 1, "a lesson begins with its title, `# Title`")
        for block in walk(blocks[1:]):
            if isinstance(block, Heading) and block.level == 1:
                self.fail(block.line, "a second `# Title`: sections begin with `##`")
        lesson = Lesson(self.path, self.lines, end, budget, blocks)
        for index, cell in enumerate(lesson.cells(), start=1):
            cell.index = index
        return lesson

    def front_matter(self) -> tuple[int, float]:
        if self.lines[0] != "---":
            self.fail(1, "a lesson begins with front matter between `---` lines")
        try:
            end = self.lines.index("---", 1)
        except ValueError:
            self.fail(1, "front matter without a closing `---`")
        try:
            data = yaml.safe_load("\n".join(self.lines[1:end])) or {}
        except yaml.YAMLError as error:
            self.fail(1, f"front matter is not YAML: {error}")
        if not isinstance(data, dict):
            self.fail(1, "front matter: need keys and values")
        unknown = set(data) - {"jupytext", "kernelspec", "fourviews"}
        if unknown:
            self.fail(1, f"front matter: unknown key {sorted(unknown)[0]!r}")
        if (data.get("kernelspec") or {}).get("name") != "python3":
            self.fail(1, "front matter: kernelspec.name must be python3")
        own = data.get("fourviews") or {}
        if set(own) - {"budget_seconds"}:
            self.fail(1, f"front matter: unknown key fourviews.{sorted(own)[0]}")
        most = BUDGET_SECONDS["lab" if self.path.stem.endswith("_lab") else "lesson"]
        budget = own.get("budget_seconds", most)
        if (
            not isinstance(budget, int | float)
            or isinstance(budget, bool)
            or not 0 < budget <= most
        ):
            self.fail(
                1,
                f"front matter: budget_seconds is {budget!r}; it may lower {most} s, not raise it",
            )
        return end + 1, float(budget)

    # Gates

    def gated(self, lines: Lines) -> list[Block]:
        """Blocks of the whole text, with exercises and solutions folded between their gates."""
        flat = self.blocks(lines, top=True)
        folded: list[Block] = []
        open_gate: Exercise | Solution | None = None
        exercises: dict[str, Exercise] = {}
        for block in flat:
            if not (isinstance(block, Directive) and block.name in GATES):
                (open_gate.blocks if open_gate else folded).append(block)
                continue
            kind, side = block.name.split("-")
            if side == "start":
                if open_gate:
                    self.fail(block.line, f"{block.name} inside the gate of line {open_gate.line}")
                if kind == "exercise":
                    open_gate = self.exercise(block)
                    exercises[open_gate.label] = open_gate
                else:
                    open_gate = self.solution(block, exercises)
                folded.append(open_gate)
                continue
            wanted = Exercise if kind == "exercise" else Solution
            if not isinstance(open_gate, wanted):
                self.fail(block.line, f"{block.name} without {kind}-start before it")
            self.gate_options(block, ())
            if block.argument:
                self.fail(block.line, f"{block.name} takes no argument, got {block.argument!r}")
            open_gate.last = block.body[-1][0]
            self.check_gate(open_gate)
            open_gate = None
        if open_gate:
            kind = type(open_gate).__name__.lower()
            self.fail(open_gate.line, f"{kind}-start without {kind}-end")
        for exercise in exercises.values():
            if exercise.solution is None:
                self.fail(exercise.line, f"exercise {exercise.label} has no solution")
        for block in folded:
            if isinstance(block, Cell) and {"stub", "check", "hidden-check"} & set(block.tags):
                self.fail(
                    block.line,
                    "tags stub and check belong in an exercise, hidden-check in a solution",
                )
        return folded

    def gate_options(self, block: Directive, known: Sequence[str]) -> None:
        for key in block.options:
            if key not in known:
                self.fail(block.line, f"{block.name}: unknown option {key!r}")

    def exercise(self, block: Directive) -> Exercise:
        self.gate_options(block, ("label", "kind", "minutes", "points", "mode"))
        if not block.argument:
            self.fail(block.line, "exercise-start needs a title")
        label = block.options.get("label", "")
        if not label.startswith("ex-"):
            self.fail(block.line, f"exercise label {label!r}: need `:label: ex-…`")
        self.claim_label(label, block.line)
        kind = block.options.get("kind", "")
        if kind not in KINDS:
            self.fail(block.line, f"exercise kind {kind!r}: need one of {', '.join(KINDS)}")
        mode = block.options.get("mode", "practice")
        if mode not in MODES:
            self.fail(block.line, f"exercise mode {mode!r}: need one of {', '.join(MODES)}")
        numbers = {}
        for key, default in (("minutes", None), ("points", "1")):
            value = block.options.get(key, default)
            if value is None or not re.fullmatch(r"[1-9]\d{0,2}", value):
                self.fail(block.line, f"exercise {key} {value!r}: need a whole number from 1")
            numbers[key] = int(value)
        start = (block.line, block.body[-1][0])
        return Exercise(
            block.line, block.line, block.argument, label, kind, mode=mode, start=start, **numbers
        )

    def solution(self, block: Directive, exercises: dict[str, Exercise]) -> Solution:
        self.gate_options(block, ())
        exercise = exercises.get(block.argument)
        if exercise is None:
            self.fail(block.line, f"solution-start {block.argument!r}: no such exercise above")
        if exercise.solution is not None:
            self.fail(block.line, f"a second solution to {exercise.label}")
        start = (block.line, block.body[-1][0])
        exercise.solution = Solution(block.line, block.line, exercise.label, start)
        return exercise.solution

    def check_gate(self, gate: Exercise | Solution) -> None:
        inside_solution = isinstance(gate, Solution)
        for block in walk(gate.blocks):
            if isinstance(block, Cell):
                tags = set(block.tags)
                if "hidden-check" in tags and not inside_solution:
                    self.fail(block.line, "tag hidden-check outside a solution would be shown")
                if {"stub", "check"} & tags and inside_solution:
                    self.fail(block.line, "tags stub and check belong in the exercise")
            if isinstance(block, Heading):
                self.fail(block.line, "a heading cannot stand in an exercise or solution")
            # Numbers must be the same in every edition, with and without the solutions.
            numbered = (
                (isinstance(block, Cell) and block.name)
                or (isinstance(block, Math) and block.label)
                or (
                    isinstance(block, Directive)
                    and (
                        block.name == "figure"
                        or (block.name in ("table", "list-table") and block.argument)
                        or (
                            block.name.startswith("prf:")
                            and block.name != "prf:proof"
                            and "nonumber" not in block.options
                        )
                        or (block.name == "math" and "label" in block.options)
                    )
                )
            )
            if numbered and inside_solution:
                self.fail(
                    block.line, "a solution cannot hold numbered objects: leave out the label"
                )

    # Blocks

    def blocks(self, lines: Lines, *, top: bool) -> list[Block]:
        """Split numbered lines into blocks; `top` where cells, gates and breaks may stand."""
        blocks: list[Block] = []
        prose: list[tuple[int, str]] = []
        target: tuple[int, str] | None = None

        def flush() -> None:
            while prose and not prose[0][1].strip():
                prose.pop(0)
            while prose and not prose[-1][1].strip():
                prose.pop()
            if prose:
                blocks.append(Prose(prose[0][0], list(prose)))
            prose.clear()

        at = 0
        while at < len(lines):
            number, text = lines[at]
            stripped = text.strip()
            if target and stripped and not re.match(r"#{1,6} ", text):
                self.fail(target[0], f"target ({target[1]})= must stand right before a heading")
            fence = _FENCE.match(text)
            if fence:
                flush()
                at = self.fenced(lines, at, fence, blocks, prose, top)
                continue
            indented = _FENCE.match(stripped)
            if indented and not indented.group(1).startswith(":"):
                if "{" in indented.group(2):
                    self.fail(number, "a directive must stand at the start of its line")
                end = self.closing(lines, at, indented.group(1), number)
                for inner_number, inner in lines[at : end + 1]:
                    self.no_gate(inner_number, inner)
                prose += lines[at : end + 1]
                at = end + 1
                continue
            self.no_gate(number, text)
            if re.search(r"(`{3,}|~{3,}|:{3,})\s*\{?", text):
                self.fail(number, "a fence must stand at the start of its line")
            if stripped.startswith("$$"):
                flush()
                at = self.dollar_math(lines, at, blocks)
                continue
            if "$$" in re.sub(r"`+[^`]*`+", "", text):
                self.fail(number, "displayed maths `$$` must begin on a line of its own")
            if re.match(r"\s*\\begin\{", text):
                self.fail(number, "displayed maths outside `$$`")
            heading = re.match(r"(#{1,6}) +(.+?)\s*#*$", text)
            if heading:
                if not top:
                    self.fail(number, "a heading cannot stand in a directive")
                flush()
                blocks.append(
                    Heading(number, len(heading.group(1)), heading.group(2), target and target[1])
                )
                target = None
            elif re.match(r"#+[^ #]", text):
                self.fail(number, "a heading needs a blank after its `#`")
            elif text.startswith("+++"):
                if not top:
                    self.fail(number, "`+++` cannot stand in a directive")
                if not re.fullmatch(r"\+\+\+\s*", text):
                    self.fail(number, "`+++` takes no metadata")
                flush()
                blocks.append(Break(number))
            elif _TARGET.match(text):
                flush()
                target = (number, _TARGET.match(text).group(1))
                self.claim_label(target[1], number)
            elif text.startswith("%"):
                flush()  # a comment: on no page and in no notebook
            elif re.match(r"\[\^", stripped) or re.search(r"\[\^[^\]]+\]", text):
                self.fail(number, "footnotes do not show on Colab")
            else:
                prose.append((number, text))
            at += 1
        if target:
            self.fail(target[0], f"target ({target[1]})= must stand right before a heading")
        flush()
        return blocks

    def no_gate(self, number: int, text: str) -> None:
        if _GATE_LIKE.search(text):
            self.fail(number, f"looks like a gate but is none: {text.strip()!r}")

    def closing(self, lines: Lines, at: int, fence: str, opened: int) -> int:
        for index in range(at + 1, len(lines)):
            text = lines[index][1].strip()
            if text and set(text) == {fence[0]} and len(text) >= len(fence):
                return index
        self.fail(opened, f"fence {fence} is never closed")

    def fenced(self, lines, at, fence, blocks, prose, top) -> int:
        """A fence at the start of a line: a cell, a gate, a directive, or a plain code block."""
        number, text = lines[at]
        marks, info = fence.group(1), fence.group(2).strip()
        end = self.closing(lines, at, marks, number)
        body = list(lines[at + 1 : end])
        if marks.startswith("`") and "`" in info:
            self.fail(
                number, "a backtick in the first line of a fence undoes it: use $…$, no roles"
            )
        directive = _DIRECTIVE.match(info)
        if not directive:
            if "{" in info or marks.startswith(":"):
                self.fail(number, f"not a directive: {text.strip()!r}")
            self.no_gate(number, text)
            for inner_number, inner in body:
                self.no_gate(inner_number, inner)
                if re.match(r"\s*(`{3,}|~{3,})", inner):
                    self.fail(
                        inner_number, "a fence inside a code block: was the block above closed?"
                    )
            blocks.append(Prose(number, list(lines[at : end + 1])))
            return end + 1
        name, argument = directive.group(1), directive.group(2).strip()
        if name == "code-cell":
            if not top:
                self.fail(number, "a code cell inside another directive would silently be no cell")
            if not re.fullmatch(r"`{3,}", marks):
                self.fail(number, "a code cell is fenced by backticks")
            if argument not in ("ipython3", "python", "python3", ""):
                self.fail(number, f"code-cell {argument!r}: need ipython3")
            blocks.append(self.cell(number, lines[end][0], body))
            return end + 1
        options, content = self.options(number, name, body)
        if name in GATES:
            if not top:
                self.fail(number, f"{name} inside another directive")
            if marks != "```":
                self.fail(number, f"{name}: a gate is fenced by three backticks")
            if any(inner.strip() for _, inner in content):
                self.fail(number, f"{name} holds text: its content belongs after the gate")
            # The body carries the closing fence alone, whose line the editions need.
            blocks.append(Directive(number, name, argument, options, [lines[end]]))
            return end + 1
        self.no_gate(number, text)
        if name not in DIRECTIVES:
            self.fail(number, f"unknown directive {{{name}}}")
        known, takes_argument = DIRECTIVES[name]
        for key in options:
            if key not in known:
                self.fail(number, f"{{{name}}}: unknown option {key!r}")
        if argument and not takes_argument:
            if name in ADMONITIONS or name == "prf:proof":
                content.insert(0, (number, argument))  # MyST reads it as the first line of the text
                argument = ""
            else:
                self.fail(number, f"{{{name}}} takes no argument, got {argument!r}")
        block = Directive(number, name, argument, options, content)
        self.check_directive(block)
        blocks.append(block)
        return end + 1

    def check_directive(self, block: Directive) -> None:
        name, number, options = block.name, block.line, block.options
        text = any(inner.strip() for _, inner in block.body)
        if name in ("admonition", "dropdown", "figure") and not block.argument:
            self.fail(number, f"{{{name}}} needs an argument")
        if name == "index":
            if text:
                self.fail(number, "{index} takes its entries as argument")
            return
        if not text:
            self.fail(
                number,
                f"{{{name}}} is empty" + (": a figure needs a caption" if name == "figure" else ""),
            )
        if name == "math":
            if any(not inner.strip() for _, inner in self.trimmed(block.body)):
                self.fail(number, "blank line in displayed maths")
            if "label" in options:
                self.claim_label(options["label"], number)
            return
        if name == "figure":
            for key in ("name", "alt"):
                if not options.get(key):
                    self.fail(number, f"{{figure}} needs `:{key}:`")
            self.check_alt(options["alt"], number)
        if name in ("figure", "table", "list-table"):
            if name != "figure" and bool(block.argument) != ("name" in options):
                self.fail(number, f"{{{name}}}: a title and `:name:` go together")
            if "name" in options:
                self.claim_label(options["name"], number)
        if name == "list-table":
            list_table(block, self.fail)
            return
        if name.startswith("prf:") and name != "prf:proof":
            if "nonumber" in options:
                if "label" in options:
                    self.fail(
                        number, f"{{{name}}}: `:label:` without a number cannot be referred to"
                    )
            elif not options.get("label"):
                self.fail(number, f"{{{name}}} needs `:label:`")
            else:
                self.claim_label(options["label"], number)
        block.children = self.blocks(block.body, top=False)
        if name == "prf:proof" and not isinstance(block.children[0], Prose):
            self.fail(number, "{prf:proof} begins with words, as «Proof.» is put before them")
        if name == "epigraph" and not all(isinstance(child, Prose) for child in block.children):
            self.fail(number, "{epigraph} holds text only")

    def options(self, number: int, name: str, body: list) -> tuple[dict[str, str], list]:
        """`:key: value` lines, or YAML between `---` lines, at the head of a directive."""
        options: dict[str, str] = {}
        if body and body[0][1].strip() == "---":
            ends = [i for i in range(1, len(body)) if body[i][1].strip() == "---"]
            if not ends:
                self.fail(number, f"{{{name}}}: options without a closing `---`")
            data = self.yaml(number, name, body[1 : ends[0]])
            return {k: "" if v is None else str(v) for k, v in data.items()}, body[ends[0] + 1 :]
        at = 0
        while at < len(body) and (match := re.match(r":([\w-]+):(?:\s+(.*))?$", body[at][1])):
            if match.group(1) in options:
                self.fail(body[at][0], f"{{{name}}}: option {match.group(1)!r} given twice")
            options[match.group(1)] = (match.group(2) or "").strip()
            at += 1
        return options, body[at:]

    def yaml(self, number: int, name: str, lines: Lines) -> dict:
        try:
            data = yaml.safe_load("\n".join(text for _, text in lines)) or {}
        except yaml.YAMLError as error:
            self.fail(number, f"{{{name}}}: options are not YAML: {error}")
        if not isinstance(data, dict):
            self.fail(number, f"{{{name}}}: options are not keys and values")
        return data

    def dollar_math(self, lines: Lines, at: int, blocks: list[Block]) -> int:
        number, text = lines[at]
        indent = text[: len(text) - len(text.lstrip())]
        content, end = text.lstrip()[2:], at
        body: list[str] = []
        while "$$" not in content:
            body.append(content.strip())
            end += 1
            if end == len(lines):
                self.fail(number, "displayed maths `$$` is never closed")
            self.no_gate(*lines[end])
            content = lines[end][1]
            if not content.strip():
                self.fail(lines[end][0], "blank line in displayed maths")
        last, _, rest = content.partition("$$")
        body.append(last.strip())
        label = None
        if rest.strip():
            match = re.fullmatch(r"\s*\(([^)]+)\)\s*", rest)
            if not match:
                self.fail(
                    lines[end][0], f"after `$$` only `(label)` may follow, got {rest.strip()!r}"
                )
            label = match.group(1)
            self.claim_label(label, lines[end][0])
        body = [part for part in body if part]
        if not body:
            self.fail(number, "empty displayed maths")
        blocks.append(Math(number, body, label, indent))
        return end + 1

    # Code cells

    def cell(self, number: int, last: int, body: list) -> Cell:
        options: dict = {}
        if body and body[0][1].strip() == "---":
            ends = [i for i in range(1, len(body)) if body[i][1].strip() == "---"]
            if not ends:
                self.fail(number, "code-cell: options without a closing `---`")
            options = self.yaml(number, "code-cell", body[1 : ends[0]])
            body = body[ends[0] + 1 :]
        else:
            short, rest = self.options(number, "code-cell", body)
            options = {key: yaml.safe_load(value) for key, value in short.items()}
            body = rest
        for key in options:
            if key not in ("tags", "mystnb"):
                self.fail(number, f"code-cell: unknown option {key!r}")
        tags = options.get("tags") or []
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            self.fail(number, f"code-cell: tags {tags!r}: need a list of words")
        for tag in tags:
            if tag not in TAGS:
                self.fail(number, f"code-cell: unknown tag {tag!r}")
        while body and not body[0][1].strip():
            body.pop(0)
        while body and not body[-1][1].strip():
            body.pop()
        if not body:
            self.fail(number, "empty code cell")
        for inner_number, inner in body:
            self.no_gate(inner_number, inner)
        source = "\n".join(text.rstrip() for _, text in body)
        self.check_code(source, body[0][0])
        cell = Cell(number, last, source, body[0][0], list(tags))
        self.output_options(cell, options.get("mystnb") or {})
        return cell

    def output_options(self, cell: Cell, options: dict) -> None:
        unknown = set(options) - {"image", "figure"}
        image, figure = options.get("image") or {}, options.get("figure") or {}
        unknown |= set(image) - {"alt", "width", "align"} | set(figure) - {"caption", "name"}
        if unknown:
            self.fail(cell.line, f"code-cell: unknown option mystnb … {sorted(unknown)[0]!r}")
        if image:
            cell.alt = str(image.get("alt") or "").strip()
            self.check_alt(cell.alt, cell.line)
        if figure:
            cell.caption = str(figure.get("caption") or "").strip()
            cell.name = str(figure.get("name") or "").strip()
            if not (cell.caption and cell.name and cell.alt):
                self.fail(
                    cell.line, "a figure needs mystnb.figure caption and name, and mystnb.image alt"
                )
            self.claim_label(cell.name, cell.line)

    def check_code(self, source: str, line: int) -> None:
        for offset, text in enumerate(source.split("\n")):
            if re.match(r"\s*[%!]", text):
                self.fail(
                    line + offset, f"magic command {text.strip()!r}: lessons are plain Python"
                )
        try:
            tree = ast.parse(source)
        except SyntaxError as error:
            self.fail(line + (error.lineno or 1) - 1, f"not Python: {error.msg}")
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                if name.split(".")[0] in _BUILD_ONLY:
                    self.fail(line + node.lineno - 1, f"import of {name}: readers do not have it")

    # Labels and texts

    def claim_label(self, label: str, line: int) -> None:
        if not _LABEL.fullmatch(label):
            self.fail(line, f"label {label!r}: need lower-case words joined by hyphens")
        if label in self.labels:
            self.fail(line, f"label {label!r} stands already in line {self.labels[label]}")
        self.labels[label] = line

    def check_alt(self, alt: str, line: int) -> None:
        if len(alt.split()) < 3 or re.search(r"\.(png|svg|jpe?g|gif)$", alt, re.I):
            self.fail(line, f"alternative text {alt!r}: say what the picture shows")

    @staticmethod
    def trimmed(lines: Lines) -> list[tuple[int, str]]:
        lines = list(lines)
        while lines and not lines[0][1].strip():
            lines.pop(0)
        while lines and not lines[-1][1].strip():
            lines.pop()
        return lines


def list_table(block: Directive, fail) -> list[list[list[tuple[int, str]]]]:
    """Rows of cells of numbered lines, from the two-level bullet list of a `{list-table}`."""
    rows: list[list[list[tuple[int, str]]]] = []
    for number, text in block.body:
        if not text.strip():
            continue
        row = re.match(r"[*-] [*-](?: (.*))?$", text)
        cell = re.match(r"  [*-](?: (.*))?$", text)
        if row:
            rows.append([[(number, row.group(1) or "")]])
        elif cell and rows:
            rows[-1].append([(number, cell.group(1) or "")])
        elif text.startswith("    ") and rows:
            rows[-1][-1].append((number, text.strip()))
        else:
            fail(number, f"list-table: not a row or cell: {text.strip()!r}")
    widths = {len(row) for row in rows}
    if len(widths) != 1:
        fail(block.line, f"list-table: rows of {sorted(widths)} cells")
    return rows
