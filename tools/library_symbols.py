"""Say which public names of the library a piece of code uses, by reading it without running it.

The reference pages, the boxes at the end of lessons and the ledger's links to functions are made
from this. A name is public if its package lists it in `__all__`; `convex.solve` stands for
`fourviews.convex.solve`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from library_imports import PACKAGE
from settings import ROOT

# In the order of the course; the last three serve all views.
VIEWS = (
    "attention",
    "convex",
    "projection",
    "unrolled",
    "spline",
    "convolution",
    "data",
    "display",
    "course",
)
SERVICES = ("data", "display", "course")


class SymbolError(ValueError):
    """What is public cannot be read off the source."""


@dataclass(frozen=True)
class Symbol:
    """A public name: where it is defined, and whether it is a function, a class or data.

    `leads_to` holds the names in a function's return annotation and the bases of a class: whoever
    meets the symbol meets these.
    """

    view: str
    name: str
    kind: str
    file: Path
    line: int
    leads_to: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        return f"{self.view}.{self.name}"

    @property
    def path(self) -> str:
        return f"{PACKAGE}.{self.short}"


def public_symbols(root: Path = ROOT) -> dict[str, Symbol]:
    """All public names of the library under `root/lib`, by short name, in the order of `VIEWS`.

    Raises
    ------
    SymbolError
        If a package has no `__all__`, or lists there what it does not define.
    """
    package = root / "lib" / PACKAGE
    found: dict[str, Symbol] = {}
    for view in VIEWS:
        folder = package / view
        main = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        if not main.exists():
            continue
        files = sorted(folder.rglob("*.py")) if folder.is_dir() else [main]
        trees = {file: ast.parse(file.read_text(encoding="utf-8"), str(file)) for file in files}
        exported = _exported(trees[main], main)
        places = {
            name: (kind, file, line, leads_to)
            for file, tree in reversed(trees.items())
            for name, kind, line, leads_to in _defined(tree, exported)
        }
        for name in exported:
            inside = [folder / f"{name}.py", folder / name / "__init__.py"]
            module = next((file for file in inside if file.exists()), None)
            if name not in places and module:
                places[name] = ("module", module, 1, ())
            if name not in places:
                raise SymbolError(f"{main}: {name!r} in __all__ is defined nowhere in {view}")
            found[f"{view}.{name}"] = Symbol(view, name, *places[name])
    return found


def _exported(tree: ast.Module, file: Path) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            return list(ast.literal_eval(node.value))
    raise SymbolError(f"{file} has no __all__, so that nothing says what is public")


def _defined(
    tree: ast.Module, wanted: Iterable[str]
) -> Iterator[tuple[str, str, int, tuple[str, ...]]]:
    for node in tree.body:
        for name in _bound_names(node):
            if name in wanted:
                kind, others = "data", []
                if isinstance(node, ast.FunctionDef):
                    kind, others = "function", [node.returns] if node.returns else []
                elif isinstance(node, ast.ClassDef):
                    kind, others = "class", node.bases
                inside = (n for other in others for n in ast.walk(other))
                leads_to = tuple(n.id for n in inside if isinstance(n, ast.Name))
                yield name, kind, node.lineno, leads_to


def _bound_names(node: ast.stmt) -> list[str]:
    """Names that a statement of a module gives a value, imports apart."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    return []


class _Bindings:
    """What the imports of a piece of code call the library's packages and names."""

    def __init__(self, tree: ast.AST, symbols: dict[str, Symbol]):
        self.symbols = symbols
        self.packages: dict[str, str] = {}  # local name to view
        self.names: dict[str, str] = {}  # local name to short name
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    view = alias.name.removeprefix(f"{PACKAGE}.")
                    if view in VIEWS and alias.asname:
                        self.packages[alias.asname] = view
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                parts = node.module.split(".")
                for alias in node.names if parts[0] == PACKAGE else ():
                    local = alias.asname or alias.name
                    if len(parts) == 1 and alias.name in VIEWS:
                        self.packages[local] = alias.name
                    elif len(parts) > 1 and f"{parts[1]}.{alias.name}" in symbols:
                        self.names[local] = f"{parts[1]}.{alias.name}"

    def used(self, tree: ast.AST) -> set[str]:
        """Short names of the symbols that occur in `tree`."""
        found: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id in self.names:
                found.add(self.names[node.id])
            elif isinstance(node, ast.Attribute):
                owner = _dotted(node.value).removeprefix(f"{PACKAGE}.")
                view = self.packages.get(owner, owner if owner in VIEWS else None)
                if isinstance(node.value, ast.Name) and node.value.id not in self.packages:
                    view = None  # a variable that happens to be called «data»
                if view and f"{view}.{node.attr}" in self.symbols:
                    found.add(f"{view}.{node.attr}")
        return found


def _dotted(node: ast.expr) -> str:
    """`a.b.c` as it is written; empty for everything that is no such name."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def used_symbols(sources: Iterable[str], symbols: dict[str, Symbol]) -> list[str]:
    """Public names that code in `sources`, run in one namespace, uses; in the order of `symbols`."""
    tree = ast.Module([node for text in sources for node in ast.parse(text).body], [])
    found = _Bindings(tree, symbols).used(tree)
    return [name for name in symbols if name in found]


def introductions(
    lessons: Mapping[str, tuple[str, Sequence[str]]], symbols: dict[str, Symbol]
) -> dict[str, str]:
    """The lesson that introduces each symbol, for those that some lesson does.

    It is the first that uses the name in its code; failing that, the first whose text has it in
    backquotes; failing that, the first that introduces a function which returns it, or a class
    which is derived from it. `lessons` holds text and code of each, in the order of the book.
    """
    first: dict[str, str] = {}
    for lesson, (_, sources) in lessons.items():
        for name in used_symbols(sources, symbols):
            first.setdefault(name, lesson)
    for lesson, (text, _) in lessons.items():
        quoted = set(re.findall(r"`(?:fourviews\.)?(\w+\.\w+)(?:\(\))?`", text))
        for name in symbols:
            if name in quoted:
                first.setdefault(name, lesson)
    for _ in symbols:  # as long as this finds something
        before = len(first)
        for lesson in lessons:
            for name in [name for name, where in first.items() if where == lesson]:
                for other in symbols[name].leads_to:
                    if f"{symbols[name].view}.{other}" in symbols:
                        first.setdefault(f"{symbols[name].view}.{other}", lesson)
        if len(first) == before:
            break
    return first


class Reach:
    """What tests use of the library, helpers in their own and neighbouring files included."""

    def __init__(self, symbols: dict[str, Symbol]):
        self.symbols = symbols
        self._files: dict[Path, _File] = {}

    def uses(self, file: Path, name: str) -> list[str]:
        """Public names that a test reaches; `name` as in the ledger, `""` for the whole file."""
        found: set[str] = set()
        seen: set[tuple[Path, str]] = set()
        waiting = [(file, top) for top in ([name] if name else self._file(file).top)]
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            source = self._file(place[0])
            for node in source.nodes(place[1]):
                found |= source.bindings.used(node)
                waiting += source.reached(node)
        return [symbol for symbol in self.symbols if symbol in found]

    def _file(self, path: Path) -> _File:
        if path not in self._files:
            self._files[path] = _File(path, self.symbols)
        return self._files[path]


class _File:
    """A test file: its definitions by name, and where names that it imports are defined."""

    def __init__(self, path: Path, symbols: dict[str, Symbol]):
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        self.path = path
        self.bindings = _Bindings(tree, symbols)
        self.top: dict[str, list[ast.AST]] = {}
        self.elsewhere: dict[str, tuple[Path, str]] = {}
        for node in tree.body:
            for name in _bound_names(node):
                self.top.setdefault(name, []).append(node)
            if isinstance(node, ast.ImportFrom) and node.level:
                folder = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                for alias in node.names:
                    if folder.with_suffix(".py").exists():
                        place = (folder.with_suffix(".py"), alias.name)
                        self.elsewhere[alias.asname or alias.name] = place

    def nodes(self, name: str) -> list[ast.AST]:
        """What defines `name`; of a method `TestX::test_y`, the method."""
        first, *rest = name.split("::")
        nodes = self.top.get(first, [])
        for part in rest:
            inside = [child for node in nodes for child in ast.iter_child_nodes(node)]
            nodes = [node for node in inside if getattr(node, "name", None) == part]
        return nodes

    def reached(self, node: ast.AST) -> Iterator[tuple[Path, str]]:
        """Definitions that `node` mentions; a fixture is mentioned by a parameter's name."""
        for child in ast.walk(node):
            if isinstance(child, ast.Name):
                name = child.id
            elif isinstance(child, ast.arg):
                name = child.arg
            else:
                continue
            if name in self.top:
                yield self.path, name
            elif name in self.elsewhere:
                yield self.elsewhere[name]
