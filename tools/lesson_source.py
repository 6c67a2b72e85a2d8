"""Read a lesson of `lessons_src/` into blocks, and refuse whatever is not understood.

A lesson is a MyST text notebook. What is read here decides what readers get to see: exercises and
solutions stand between gates, and a gate that is misspelt, indented, nested or missing would put
a solution on the page. So the reader fails closed: each construct is either one of those listed
below or a `SourceError` with file and line. Nothing is skipped.
"""

from __future__ import annotations

import ast
import builtins
import re
import secrets
import symtable
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
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
ROLES_OF_CELLS = ("stub", "check", "hidden-check")  # tags that give a cell a part in an exercise

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
_RUBRIC_ITEM = re.compile(r"- (\d+): +(\S.*)$")
_CHOICE = re.compile(r"- \[([^\]]*)\](.*)$")
_MODULE_NAMES = {*dir(builtins), "__name__", "__doc__", "__file__"}
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
class HiddenCheck:
    """A check that only graders see: a function of some of the answers and a seed."""

    cell: Cell
    name: str
    description: str
    parameters: list[str]  # names of answers, without the seed that comes last


@dataclass
class Rubric:
    """What earns the points that no program can give: pairs of points and words."""

    line: int
    last: int
    items: list[tuple[int, str]]


@dataclass
class Choice:
    """One answer of a quiz, with numbered lines of its text and of its explanation."""

    line: int
    correct: bool
    text: list[tuple[int, str]]
    explanation: list[tuple[int, str]]


@dataclass
class Quiz:
    line: int
    last: int
    label: str
    question: list[Block]
    choices: list[Choice]


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
    canary: str | None = None
    hidden_checks: list[HiddenCheck] = field(default_factory=list)

    @property
    def code(self) -> list[Cell]:
        """The cells of the reference solution, hidden checks left out."""
        return [b for b in self.blocks if isinstance(b, Cell) and "hidden-check" not in b.tags]

    @property
    def rubric(self) -> list[tuple[int, str]]:
        """Points and what earns them; empty without a rubric."""
        return [item for b in self.blocks if isinstance(b, Rubric) for item in b.items]


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
    answers: list[str] = field(default_factory=list)  # the names that the check is given

    @property
    def effort(self) -> str:
        """What stands beside the title, `code, 15 min, 2 points, graded`."""
        graded = ", graded" if self.mode == "graded" else ""
        return f"{self.kind}, {self.minutes} min, {in_words(self.points, 'point')}{graded}"

    @property
    def stubs(self) -> list[Cell]:
        return [b for b in self.blocks if isinstance(b, Cell) and "stub" in b.tags]

    @property
    def check(self) -> Cell | None:
        """The cell that calls the public check, if there is one."""
        cells = [b for b in self.blocks if isinstance(b, Cell) and "check" in b.tags]
        return cells[0] if cells else None

    @property
    def automatic_points(self) -> int:
        """What the rubric leaves to the checks; each check earns the same share of it."""
        rubric = self.solution.rubric if self.solution else []
        return self.points - sum(points for points, _ in rubric)


Block = Prose | Heading | Math | Directive | Cell | Break | Quiz | Rubric | Exercise | Solution


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

    def quizzes(self) -> list[Quiz]:
        return [block for block in self.blocks if isinstance(block, Quiz)]

    def prelude(self) -> list[str]:
        """The lesson's imports, a line each: all that an exercise may take for granted.

        They are the top-level imports of the cells outside exercises and solutions, in order and
        without repetitions.
        """
        lines: dict[str, None] = {}
        for block in self.blocks:
            if isinstance(block, Cell):
                for node in ast.parse(block.source).body:
                    if isinstance(node, ast.Import | ast.ImportFrom):
                        lines[ast.unparse(node)] = None
        return list(lines)

    def cells(self, *, solutions: bool | str = True) -> list[Cell]:
        """Code cells in order, as one of the editions shows them.

        `solutions` is True for all there is, hidden checks included; False for none; "practice"
        for what the reader's page shows: practice solutions without their hidden checks.
        """
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
                if shown and solutions is True:
                    cells += [b for b in block.blocks if isinstance(b, Cell)]
                elif shown:
                    cells += block.code
        return cells


def walk(blocks: Sequence[Block]) -> Iterator[Block]:
    """Every block, each directive and gate before its content."""
    for block in blocks:
        yield block
        if isinstance(block, Directive):
            yield from walk(block.children)
        elif isinstance(block, Exercise | Solution):
            yield from walk(block.blocks)
        elif isinstance(block, Quiz):
            yield from walk(block.question)


def read(path: Path, shown_as: str | None = None) -> Lesson:
    """Parse one lesson; `shown_as` is the path that errors name.

    A build asks for each lesson several times. The same text is parsed once, so what comes is shared
    and not to be changed.
    """
    return _parsed(path, shown_as or path.name, path.read_text(encoding="utf-8"))


@lru_cache(maxsize=128)
def _parsed(path: Path, shown_as: str, text: str) -> Lesson:
    return _Reader(path, shown_as, text).lesson()


class _Reader:
    def __init__(self, path: Path, shown_as: str, text: str):
        self.path = path
        self.shown_as = shown_as
        if "\r" in text:
            self.fail(1, "carriage returns: save the file with Unix line ends")
        if "\t" in text:
            line = text[: text.index("\t")].count("\n") + 1
            self.fail(line, "tab character: indent with blanks")
        self.lines = text.split("\n")
        self.labels: dict[str, int] = {}
        self.canaries: dict[str, int] = {}

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
        imported = _bound("\n".join(lesson.prelude()))
        for exercise in lesson.exercises():
            self.check_exercise(exercise, imported)
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
        for key in data:
            if not isinstance(data[key] or {}, dict):
                self.fail(1, f"front matter: {key} needs keys and values, got {data[key]!r}")
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
            if isinstance(block, Cell):
                if set(ROLES_OF_CELLS) & set(block.tags):
                    self.fail(
                        block.line,
                        "tags stub and check belong in an exercise, hidden-check in a solution",
                    )
                self.check_calls(block, None)
            if isinstance(block, Rubric):
                self.fail(block.line, "{rubric} outside a solution would be shown")
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
        self.gate_options(block, ("canary",))
        exercise = exercises.get(block.argument)
        if exercise is None:
            self.fail(block.line, f"solution-start {block.argument!r}: no such exercise above")
        if exercise.solution is not None:
            self.fail(block.line, f"a second solution to {exercise.label}")
        start = (block.line, block.body[-1][0])
        canary = block.options.get("canary")
        if canary is not None:
            if not re.fullmatch(r"[0-9a-f]{8}", canary):
                self.fail(
                    block.line,
                    f"canary {canary!r}: need eight hexadecimal digits, such as {new_canary()}",
                )
            if canary in self.canaries:
                self.fail(
                    block.line,
                    f"canary {canary} stands already in line {self.canaries[canary]}; "
                    f"free is {new_canary()}",
                )
            self.canaries[canary] = block.line
        exercise.solution = Solution(block.line, block.line, exercise.label, start, canary=canary)
        return exercise.solution

    def check_gate(self, gate: Exercise | Solution) -> None:
        inside_solution = isinstance(gate, Solution)
        for block in walk(gate.blocks):
            if isinstance(block, Cell):
                tags = set(block.tags)
                if "hidden-check" in tags and not inside_solution:
                    self.fail(block.line, "tag hidden-check outside a solution would be shown")
                if not inside_solution and not {"stub", "check"} & tags:
                    self.fail(block.line, "a code cell of an exercise is tagged stub or check")
                if {"stub", "check"} & tags and inside_solution:
                    self.fail(block.line, "tags stub and check belong in the exercise")
                self.check_calls(block, gate.label)
            if isinstance(block, Quiz):
                self.fail(block.line, "a quiz cannot stand in an exercise or solution")
            if isinstance(block, Rubric) and not inside_solution:
                self.fail(block.line, "{rubric} outside a solution would be shown")
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

    # Exercises: what belongs together

    def check_exercise(self, exercise: Exercise, imported: set[str]) -> None:
        """Stub, check, hidden checks, rubric and points fit together; nothing else is used."""
        solution = exercise.solution
        assert solution is not None
        checks = [b for b in exercise.blocks if isinstance(b, Cell) and "check" in b.tags]
        hidden = [b for b in solution.blocks if isinstance(b, Cell) and "hidden-check" in b.tags]
        rubrics = [b for b in solution.blocks if isinstance(b, Rubric)]
        if exercise.kind == "code":
            if not exercise.stubs:
                self.fail(
                    exercise.line, f"{exercise.label}: a code exercise needs a cell tagged stub"
                )
            if not checks:
                self.fail(
                    exercise.line, f"{exercise.label}: a code exercise needs a cell tagged check"
                )
        if len(checks) > 1:
            self.fail(checks[1].line, f"a second check cell in {exercise.label}")
        if checks and not hidden:
            self.fail(
                solution.line,
                f"the solution of {exercise.label} needs a cell tagged hidden-check, "
                "as there is a check",
            )
        if hidden and not checks:
            self.fail(
                hidden[0].line, f"hidden-check, but {exercise.label} has no cell tagged check"
            )
        if len(rubrics) > 1:
            self.fail(rubrics[1].line, "a second {rubric} in one solution")
        if checks:
            exercise.answers = self.answers(checks[0], exercise.label)
            self.check_answers(exercise, solution, imported)
        self.check_names(exercise, solution, imported)
        solution.hidden_checks = [self.hidden_check(cell, exercise) for cell in hidden]
        self.check_points(exercise, rubrics, bool(checks))
        if solution.canary is None:
            # There is always something withheld: a check brings a hidden one, a proof its rubric.
            self.fail(
                solution.line,
                f"the solution of {exercise.label} has no canary, by which a leak is found: "
                f"put `:canary: {new_canary()}` under solution-start",
            )

    def answers(self, cell: Cell, label: str) -> list[str]:
        """The names that a check cell hands over."""
        wanted = f'the only line of a check cell is `course.check("{label}", name, …)`'
        body = ast.parse(cell.source).body
        call = body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None
        if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "course.check"):
            self.fail(cell.line, wanted)
        names = [argument.id for argument in call.args[1:] if isinstance(argument, ast.Name)]
        if call.keywords or len(names) != len(call.args) - 1 or not names:
            self.fail(cell.line, f"{wanted}, with plain names and at least one")
        if len(set(names)) != len(names) or "seed" in names:
            self.fail(cell.line, f"{wanted}, each name once and none of them `seed`")
        return names

    def check_calls(self, cell: Cell, label: str | None) -> None:
        """`course.check` is called for the exercise that it stands in, and nowhere else."""
        if "check" not in cell.source:
            return
        for node in ast.walk(ast.parse(cell.source)):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "course.check"):
                continue
            line = cell.source_line + node.lineno - 1
            first = (
                node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
            )
            if label is None:
                self.fail(line, "course.check outside an exercise")
            if first != label:
                self.fail(
                    line, f"course.check of {first!r} in {label}: need `course.check({label!r}, …)`"
                )
            if "hidden-check" in cell.tags:
                self.fail(line, "course.check in a hidden check: it asserts by itself")

    def check_answers(self, exercise: Exercise, solution: Solution, imported: set[str]) -> None:
        """Stub and solution both define all that is checked."""
        check = exercise.check
        assert check is not None
        stubs = "\n".join(cell.source for cell in exercise.stubs)
        code = "\n".join(cell.source for cell in solution.code)
        for name in exercise.answers:
            if name not in _bound(stubs):
                self.fail(check.line, f"{exercise.label}: no stub defines {name}, which is checked")
            if name not in _bound(code):
                self.fail(
                    solution.line,
                    f"the solution of {exercise.label} does not define {name}, which is checked",
                )
        if "course" not in imported | _bound(stubs):
            self.fail(check.line, "the lesson does not import course: from fourviews import course")

    def check_names(self, exercise: Exercise, solution: Solution, imported: set[str]) -> None:
        """Stubs and solution use imports and their own names, no variable of the lesson."""
        known = imported | _MODULE_NAMES
        for cells in (exercise.stubs, solution.code):
            known |= {name for cell in cells for name in _bound(cell.source)}
            for cell in cells:
                for name, line in _used(cell.source):
                    if name not in known:
                        self.fail(
                            cell.source_line + line - 1,
                            f"{name} is no import of the lesson and not defined in "
                            f"{exercise.label}: stubs and solutions run by themselves",
                        )

    def hidden_check(self, cell: Cell, exercise: Exercise) -> HiddenCheck:
        tree = ast.parse(cell.source)
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        others = [
            node
            for node in tree.body
            if not isinstance(node, ast.FunctionDef | ast.Import | ast.ImportFrom)
        ]
        if len(functions) != 1 or others:
            line = cell.source_line + others[0].lineno - 1 if others else cell.line
            self.fail(line, "a hidden check holds imports and exactly one function, nothing else")
        function = functions[0]
        line = cell.source_line + function.lineno - 1
        text = ast.get_docstring(function)
        if not text or "\n" in text.strip():
            self.fail(line, f"{function.name}: a hidden check needs a docstring of one line")
        if function.decorator_list:
            self.fail(line, f"{function.name}: a hidden check takes no decorator")
        a = function.args
        names = [argument.arg for argument in a.args]
        plain = not (a.posonlyargs or a.kwonlyargs or a.vararg or a.kwarg or a.defaults)
        if not plain or len(names) < 2 or names[-1] != "seed":
            self.fail(
                line,
                f"{function.name}: parameters are names of the check call and `seed` last, "
                "without defaults",
            )
        for name in names[:-1]:
            if name not in exercise.answers:
                given = ", ".join(exercise.answers)
                self.fail(line, f"{function.name}: {name} is not handed to the check ({given})")
        if not any(isinstance(node, ast.Assert | ast.Raise) for node in ast.walk(function)):
            self.fail(line, f"{function.name}: a hidden check needs an assert, or it cannot fail")
        for node in ast.walk(function):
            if isinstance(node, ast.Assert) and node.msg is None:
                self.fail(
                    cell.source_line + node.lineno - 1,
                    'an assert of a hidden check says what is wrong: `assert …, "words"`',
                )
        own = _bound(cell.source) | _MODULE_NAMES
        for name, used in _used(cell.source):
            if name not in own:
                self.fail(
                    cell.source_line + used - 1,
                    f"{name} is not defined in the hidden check: it runs by itself, "
                    "with its own imports",
                )
        return HiddenCheck(cell, function.name, text.strip(), names[:-1])

    def check_points(self, exercise: Exercise, rubrics: list[Rubric], checked: bool) -> None:
        given = sum(points for rubric in rubrics for points, _ in rubric.items)
        line = rubrics[0].line if rubrics else exercise.line
        if given > exercise.points:
            self.fail(
                line, f"the rubric gives {given} points, {exercise.label} has {exercise.points}"
            )
        if checked and given == exercise.points:
            self.fail(
                line,
                f"the rubric gives all {given} points of {exercise.label}: none are left for "
                "its checks",
            )
        if not checked and given < exercise.points:
            self.fail(
                line,
                f"{exercise.label} has {in_words(exercise.points, 'point')}, no check, and a rubric for "
                f"{given}: its solution needs a {{rubric}} for all",
            )

    def rubric(self, number: int, last: int, body: Lines) -> Rubric:
        items: list[tuple[int, str]] = []
        for line, text in body:
            if not text.strip():
                continue
            item = rubric_item(text)
            if item:
                if item[0] == 0:
                    self.fail(line, "rubric: an item that earns 0 points")
                items.append(item)
            elif re.match(r"  +[^\s-]", text) and items:
                items[-1] = (items[-1][0], f"{items[-1][1]} {text.strip()}")
            else:
                self.fail(line, f"rubric: need `- POINTS: what earns them`, got {text.strip()!r}")
        if not items:
            self.fail(number, "rubric without items")
        return Rubric(number, last, items)

    def quiz(self, number: int, last: int, label: str, body: Lines) -> Quiz:
        if not label.startswith("quiz-"):
            self.fail(number, f"quiz label {label!r}: need `{{quiz}} quiz-…`")
        self.claim_label(label, number)
        question, choices = quiz_parts(number, body, self.fail)
        blocks = self.blocks(question, top=False)
        for block in blocks:
            if not isinstance(block, Prose | Math) or (isinstance(block, Math) and block.label):
                self.fail(block.line, "a quiz asks in paragraphs and maths without a number")
        for choice in choices:
            for line, text in [*choice.text, *choice.explanation]:
                self.plain(line, text)
                if "$$" in text:
                    self.fail(line, "a choice of a quiz holds text and inline maths only")
        return Quiz(number, last, label, blocks, choices)

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
            self.plain(number, text)
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

    def plain(self, number: int, text: str) -> None:
        """Refuse a line of text that holds a gate, a fence or HTML."""
        self.no_gate(number, text)
        if re.search(r"`{3,}|~{3,}|:{3,}", text):
            self.fail(number, "a fence must stand at the start of its line")
        if "<!--" in text or re.match(r"\s*<(?!https?:)[a-zA-Z/!?]", text):
            # It could hide gates from Sphinx, and readers find comments in pages and notebooks.
            self.fail(number, "HTML is not read here; a comment begins with `%`")
        if re.match(r" +(%|\+\+\+)", text):
            self.fail(number, "`%` and `+++` must stand at the start of their line")

    def closing(self, lines: Lines, at: int, fence: str, opened: int) -> int:
        margin = re.escape(lines[at][1][: lines[at][1].index(fence)] + fence[0])
        for index in range(at + 1, len(lines)):
            text = lines[index][1].strip()
            if text and set(text) == {fence[0]} and len(text) >= len(fence):
                if not re.match(margin, lines[index][1]):
                    self.fail(lines[index][0], "the end of a fence stands where the fence begins")
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
        if name in ("quiz", "rubric"):
            if not top:
                self.fail(number, f"{{{name}}} inside another directive")
            if not re.fullmatch(r"`{3,}", marks):
                self.fail(number, f"{{{name}}} is fenced by backticks")
            for key in options:
                self.fail(number, f"{{{name}}}: unknown option {key!r}")
            for inner_number, inner in content:
                self.no_gate(inner_number, inner)
            if name == "quiz":
                blocks.append(self.quiz(number, lines[end][0], argument, content))
            else:
                if argument:
                    self.fail(number, f"{{rubric}} takes no argument, got {argument!r}")
                blocks.append(self.rubric(number, lines[end][0], content))
            return end + 1
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
        if name in ("math", "list-table"):
            # Their text is not read any further, so nothing with a meaning of its own may stand in it.
            for inner_number, inner in block.body:
                self.plain(inner_number, inner)
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
            self.plain(*lines[end])
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
            for key, value in short.items():
                options |= self.yaml(number, "code-cell", [(number, f"{key}: {value}")])
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
        parts = [tag for tag in tags if tag in ROLES_OF_CELLS]
        if len(parts) > 1 or (parts and "skip-execution" in tags):
            self.fail(number, f"code-cell: tags {' and '.join(tags)} exclude each other")
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
        if not isinstance(options, dict):
            self.fail(cell.line, f"code-cell: mystnb {options!r}: need keys and values")
        unknown = set(options) - {"image", "figure"}
        image, figure = options.get("image") or {}, options.get("figure") or {}
        if not (isinstance(image, dict) and isinstance(figure, dict)):
            self.fail(cell.line, "code-cell: mystnb image and figure need keys and values")
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
            compile(tree, "cell", "exec", dont_inherit=True)  # `return` outside a function, too
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


def in_words(number: int, noun: str) -> str:
    """`1 point`, `2 points`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def new_canary() -> str:
    """Eight hexadecimal digits, for a solution that is to be found wherever it leaks."""
    return secrets.token_hex(4)


def rubric_item(text: str) -> tuple[int, str] | None:
    """Points and words of a line `- POINTS: what earns them`, None for any other line."""
    item = _RUBRIC_ITEM.match(text)
    return (int(item.group(1)), item.group(2).strip()) if item else None


def quiz_parts(number: int, body: Lines, fail) -> tuple[Lines, list[Choice]]:
    """The lines of a quiz's question, and its choices with their explanations."""
    question: list[tuple[int, str]] = []
    choices: list[Choice] = []
    part: list[tuple[int, str]] | None = None  # what a continuation line is added to
    for line, text in body:
        choice = _CHOICE.match(text)
        if choice:
            if choice.group(1) not in (" ", "x"):
                fail(line, f"quiz: need `- [ ]` or `- [x]`, got `- [{choice.group(1)}]`")
            part = []
            choices.append(Choice(line, choice.group(1) == "x", part, []))
            if choice.group(2).strip():
                part.append((line, choice.group(2).strip()))
        elif not choices:
            if re.match(r"\s*[-*+] ", text):
                fail(line, f"quiz: a choice begins with `- [ ]` or `- [x]`, got {text.strip()!r}")
            question.append((line, text))
        elif not text.strip():
            continue
        elif re.match(r"  - ", text):
            if choices[-1].explanation:
                fail(line, "quiz: a choice has one explanation, this is a second")
            part = choices[-1].explanation
            part.append((line, text.strip()[2:].strip()))
        elif text.startswith("  ") and part is not None and not re.match(r"\s*[-*+](\s|$)", text):
            part.append((line, text.strip()))
        else:
            fail(
                line,
                "quiz: need a choice `- [ ] …`, its explanation `  - …` or an indented "
                f"continuation, got {text.strip()!r}",
            )
    if not any(text.strip() for _, text in question):
        fail(number, "quiz without a question")
    for choice in choices:
        if not choice.text:
            fail(choice.line, "quiz: a choice without words")
        if not any(text for _, text in choice.explanation):
            fail(choice.line, "quiz: a choice without an explanation, `  - why` below it")
    if not 3 <= len(choices) <= 5:
        fail(number, f"quiz: need three to five choices, got {len(choices)}")
    right = [choice for choice in choices if choice.correct]
    if len(right) != 1:
        line = right[1].line if right else number
        fail(line, f"quiz: need exactly one right choice `- [x]`, got {len(right)}")
    return question, choices


def _bound(source: str) -> set[str]:
    """Names that `source` defines or imports at its top level."""
    table = symtable.symtable(source, "cell", "exec")
    return {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_assigned() or symbol.is_imported()
    } | {name for name in _declared_global(table)}


def _declared_global(table: symtable.SymbolTable) -> Iterator[str]:
    for child in table.get_children():
        for symbol in child.get_symbols():
            if symbol.is_declared_global() and symbol.is_assigned():
                yield symbol.get_name()
        yield from _declared_global(child)


def _used(source: str) -> list[tuple[str, int]]:
    """Names that `source` takes from its module, each with the first line that has it."""
    found: set[str] = set()

    def visit(table: symtable.SymbolTable) -> None:
        top = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (top or symbol.is_global()):
                found.add(symbol.get_name())
        for child in table.get_children():
            visit(child)

    visit(symtable.symtable(source, "cell", "exec"))
    lines: dict[str, int] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and node.id in found:
            lines[node.id] = min(node.lineno, lines.get(node.id, node.lineno))
    return sorted(((name, lines.get(name, 1)) for name in found), key=lambda pair: pair[::-1])


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
