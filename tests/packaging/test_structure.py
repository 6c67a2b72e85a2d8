"""Which module of the library imports which: no circles, and the views stand beside each other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from .environments import ROOT

VIEWS = {"convex", "convolution", "projection", "spline", "unrolled"}


def imports(source: Path) -> dict[str, set[str]]:
    """For each module below ``source`` those that an import in it names, wherever it stands.

    Imports inside of functions, and those for annotations alone, count like all others.
    """
    modules = {}
    for file in sorted(source.rglob("*.py")):
        name = ".".join(file.relative_to(source).with_suffix("").parts)
        modules[name.removesuffix(".__init__")] = file
    found = {}
    for name, file in modules.items():
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        found[name] = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            named = []
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                parts = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*(parts if node.level else []), *filter(None, [node.module])])
                inside = [f"{base}.{alias.name}" for alias in node.names]
                named = [one if one in modules else base for one in inside]
            found[name] |= {one for one in named if one in modules}
    return found


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """For each import that leads back to where it stands, a shortest way round."""
    found = []
    for start, named in graph.items():
        for first in sorted(named):
            ways = [[start, first]]
            seen = {first}
            while ways and ways[0][-1] != start:
                way = ways.pop(0)
                for after in sorted(graph[way[-1]] - seen):
                    seen.add(after)
                    ways.append([*way, after])
            found += ways[:1]
    return found


@pytest.fixture(scope="module")
def library() -> dict[str, set[str]]:
    return imports(ROOT / "lib")


def test_no_import_leads_back_to_where_it_stands(library):
    assert len(library) > 150 and sum(map(len, library.values())) > 500
    assert circles(library) == []


def test_views_do_not_import_each_other_and_what_serves_them_imports_none(library):
    view = lambda name: name.split(".")[1] if "." in name else ""  # noqa: E731
    allowed = {
        **{name: {name, "attention", "data", "display"} for name in VIEWS},
        "attention": {"attention"},
        "data": {"data", "display"},
        "display": {"display"},
    }
    others = {
        (name, one)
        for name, named in library.items()
        for one in named
        if view(name) in allowed and view(one) not in allowed[view(name)]
    }
    assert others == set()


@pytest.mark.parametrize(
    "back",
    [
        "from .a import x",
        "def f():\n    from .a import x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import x",
        "import p.q.a",
        "from p.q import a",
        "from . import a",
        "from ..q.a import x",
        "from .. import q",  # whose __init__ imports a
    ],
)
def test_a_circle_would_be_found(back, tmp_path):
    folder = tmp_path / "p" / "q"
    folder.mkdir(parents=True)
    (tmp_path / "p" / "__init__.py").write_text("")
    (folder / "__init__.py").write_text("from .a import x\n")
    (folder / "a.py").write_text("from .b import y\nx = 1\n")
    (folder / "b.py").write_text("y = 1\n")
    assert circles(imports(tmp_path)) == []
    (folder / "b.py").write_text(back + "\n")
    assert circles(imports(tmp_path)) != []
