"""Write the reference pages of the library, and the box at the end of each lesson.

What a name does stands in its docstring, which Sphinx reads when it builds the pages. Added here
are the links that no docstring could keep up to date: which lesson introduces the name, which use
it, and which claims of the ledger are computed with it.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import ledger
from lesson_source import Lesson
from library_symbols import (
    PACKAGE,
    SERVICES,
    VIEWS,
    Reach,
    Symbol,
    introductions,
    public_symbols,
    used_symbols,
)
from numbering import WRITTEN

START = "reference"


def page_name(view: str) -> str:
    return f"{START}_{view}"


TITLES = {view: WRITTEN[page_name(view)] for view in VIEWS}


class Reference:
    """The library's public names, joined with lessons and claims."""

    def __init__(self, lessons: Mapping[str, Lesson], root: Path):
        self.root = root
        self.symbols = public_symbols(root)
        self.titles = {name: lesson.title for name, lesson in lessons.items()}
        # Solutions stay out: what they use would give them away.
        sources = {
            name: [cell.source for cell in lesson.cells(solutions=False)]
            for name, lesson in lessons.items()
        }
        self.used = {name: used_symbols(cells, self.symbols) for name, cells in sources.items()}
        text = {name: "\n".join(lesson.lines) for name, lesson in lessons.items()}
        self.introduced = introductions(
            {name: (text[name], sources[name]) for name in lessons}, self.symbols
        )

    def claims(self, rows: Sequence[ledger.Row]) -> dict[str, list[str]]:
        """For each claim the public names, of the views alone, that its tests compute with."""
        reach = Reach(self.symbols)
        found = {}
        for row in rows:
            names = {name for item in row.evidence for name in reach.uses(item.file, item.name)}
            found[row.claim.id] = [
                name
                for name in self.symbols
                if name in names and self.symbols[name].view not in SERVICES
            ]
        return found

    def box(self, lesson: str) -> str:
        """A folded list, in MyST, of what the lesson's code uses of the library."""
        by_view: dict[str, list[str]] = {}
        for name in self.used[lesson]:
            symbol = self.symbols[name]
            by_view.setdefault(symbol.view, []).append(f"{{py:obj}}`{symbol.name} <{symbol.path}>`")
        if not by_view:
            return ""
        lines = [
            f"- {{doc}}`{PACKAGE}.{view} <{page_name(view)}>`: {', '.join(links)}"
            for view, links in by_view.items()
        ]
        head = ["", "````{dropdown} What this lesson uses of the library", ""]
        return "\n".join([*head, *lines, "````", ""])

    def pages(self, functions: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """Page name to MyST text: one that lists the views, and one for each of them.

        `functions` are those of each claim, as `claims` finds them.
        """
        claims: dict[str, list[str]] = {}
        for id_, names in functions.items():
            for name in names:
                claims.setdefault(name, []).append(id_)
        pages = {START: self._start()}
        for view in VIEWS:
            names = [name for name, symbol in self.symbols.items() if symbol.view == view]
            if names:
                pages[page_name(view)] = self._page(view, names, claims)
        return pages

    def _start(self) -> str:
        lines = [
            f"# {WRITTEN[START]}",
            "",
            f"Every public name of `{PACKAGE}`, from its docstring: what it computes, shapes, errors, and the",
            "theorem behind it. Below each name stand the lesson that introduces it and the rows of the",
            "{doc}`ledger` whose tests compute with it. Each lesson ends with a list of what it uses.",
            "",
            "| Page | Module | Public names |",
            "|:--|:--|--:|",
        ]
        for view in VIEWS:
            count = sum(symbol.view == view for symbol in self.symbols.values())
            if count:
                link = f"{{doc}}`{TITLES[view]} <{page_name(view)}>`"
                lines.append(f"| {link} | `{PACKAGE}.{view}` | {count} |")
        return "\n".join(lines) + "\n"

    def _page(self, view: str, names: Sequence[str], claims: Mapping[str, Sequence[str]]) -> str:
        module = f"{PACKAGE}.{view}"
        lines = [f"# {TITLES[view]}", "", "```{eval-rst}", f".. automodule:: {module}", ""]
        for name in names:
            symbol = self.symbols[name]
            lines.append(f"- :py:obj:`{symbol.name} <{symbol.path}>`: {summary(symbol)}")
        lines += ["", "```", ""]
        for name in names:
            symbol = self.symbols[name]
            # A heading for each, so that the page's own list of contents and screen readers know it.
            lines += [f"## {symbol.name}", "", "```{eval-rst}"]
            lines += [f".. currentmodule:: {module}", "", *self._directive(symbol)]
            lines += [f"   {text}" for text in self._links(name, claims.get(name, ()))]
            lines += ["```", ""]
        return "\n".join(lines)

    def _links(self, name: str, claims: Sequence[str]) -> list[str]:
        """What stands below the docstring, in reStructuredText."""
        lines = []
        first = self.introduced.get(name)
        others = [lesson for lesson, used in self.used.items() if name in used and lesson != first]
        if first:
            lines.append(f":Introduced in: {self._lesson(first)}")
        if others:
            lines.append(f":Used in: {', '.join(map(self._lesson, others))}")
        if claims:
            links = ", ".join(f":ref:`{id_} <claim-{id_}>`" for id_ in claims)
            lines.append(f":Claims: {links}")
        return ["", *lines, ""] if lines else [""]

    def _directive(self, symbol: Symbol) -> list[str]:
        if symbol.kind == "function":
            return [f".. autofunction:: {symbol.name}"]
        if symbol.kind == "class":
            lines = [f".. autoclass:: {symbol.name}", "   :members:"]
            # What a public base class describes is said there once, not in each of its heads.
            bases = self._bases(symbol)
            again = _members(symbol) & set().union(*map(_members, bases))
            if again:
                lines.append(f"   :exclude-members: {', '.join(sorted(again))}")
            return lines
        if symbol.kind == "module":
            return [f".. automodule:: {symbol.path}"]
        # Sphinx looks for the comment beside the name's first value, in another file: given here.
        return [f".. py:data:: {symbol.name}", "", f"   {summary(symbol)}"]

    def _bases(self, symbol: Symbol) -> list[Symbol]:
        """Public classes of its view that a class is derived from, near and far."""
        found: list[Symbol] = []
        for name in symbol.leads_to:
            base = self.symbols.get(f"{symbol.view}.{name}")
            if base is not None and base.kind == "class":
                found += [base, *self._bases(base)]
        return found

    def _lesson(self, name: str) -> str:
        title = self.titles[name].replace("`", "").replace("<", "‹")
        return f":doc:`{title} <{name}>`"


def _members(symbol: Symbol) -> set[str]:
    """Public methods and attributes in the body of a class."""
    names: set[str] = set()
    for node in _parsed(symbol.file)[1].body:
        if isinstance(node, ast.ClassDef) and node.name == symbol.name:
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    names.add(part.name)
                elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    names.add(part.target.id)
                elif isinstance(part, ast.Assign):
                    names |= {n.id for n in part.targets if isinstance(n, ast.Name)}
    return {name for name in names if not name.startswith("_")}


@cache
def _parsed(file: Path) -> tuple[str, ast.Module]:
    text = file.read_text(encoding="utf-8")
    return text, ast.parse(text)


def summary(symbol: Symbol) -> str:
    """The first sentence of a docstring, or of the comment `#:` above data, on one line."""
    text, tree = _parsed(symbol.file)
    doc = (ast.get_docstring(tree) or "") if symbol.kind == "module" else ""
    for node in tree.body:
        if getattr(node, "name", None) == symbol.name:
            doc = inspect.cleandoc(ast.get_docstring(node) or "")
        elif symbol.kind == "data" and node.lineno == symbol.line:
            above = text.split("\n")[: node.lineno - 1]
            comment = []
            while above and above[-1].startswith("#:"):
                comment.insert(0, above.pop()[2:].strip())
            doc = " ".join(comment)
    return " ".join(doc.split("\n\n")[0].split())
