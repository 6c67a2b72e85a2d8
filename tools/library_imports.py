"""Say which library files a lesson depends on, by reading its imports without running anything.

The book re-runs a lesson when one of these files changes, and only then. So the list must hold
every file that an import can reach: where a module is chosen at run time, all that it could choose
counts as imported.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from pathlib import Path

from settings import ROOT

PACKAGE = "fourviews"


class Library:
    """The package under `root/lib`, with what each of its files imports."""

    def __init__(self, root: Path = ROOT):
        self.source = root / "lib"
        self.package = self.source / PACKAGE
        self._imports: dict[Path, set[Path]] = {}

    def closure(self, sources: Iterable[str]) -> list[Path]:
        """Library files that code in `sources` can import, data files of their folders included."""
        found: set[Path] = set()
        waiting: list[Path] = []
        for source in sources:
            waiting += self._imported(ast.walk(ast.parse(source)), package=None)
        while waiting:
            path = waiting.pop()
            if path in found:
                continue
            found.add(path)
            waiting += self._imports_of(path)
        for folder in {path.parent for path in found}:
            found.update(self._data_files(folder))
        return sorted(found)

    def _data_files(self, folder: Path) -> Iterable[Path]:
        for path in folder.iterdir():
            if path.is_dir() and path.name != "__pycache__" and not (path / "__init__.py").exists():
                yield from (p for p in path.rglob("*") if p.is_file())
            elif path.is_file() and path.suffix not in (".py", ".pyc"):
                yield path

    def _imports_of(self, path: Path) -> set[Path]:
        if path not in self._imports:
            parts = path.relative_to(self.source).with_suffix("").parts
            package = parts[:-1]
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))))
            files = self._imported(nodes, package)
            # The package's own entry loads its submodules by name on first use: whoever uses one
            # names it, and that is counted where it is named.
            if path != self.package / "__init__.py" and _chooses_modules(nodes):
                files |= set(path.parent.rglob("*.py"))
            self._imports[path] = files
        return self._imports[path]

    def _imported(self, nodes: Iterable[ast.AST], package: tuple[str, ...] | None) -> set[Path]:
        files: set[Path] = set()
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    names = tuple(alias.name.split("."))
                    if names == (PACKAGE,):
                        # `import fourviews` and then any attribute: nothing can be left out.
                        files |= set(self.package.rglob("*.py"))
                    files |= self._module(names)
            elif isinstance(node, ast.ImportFrom):
                names = tuple(node.module.split(".")) if node.module else ()
                if node.level:
                    if package is None:
                        continue
                    names = package[: len(package) - node.level + 1] + names
                files |= self._module(names)
                for alias in node.names:
                    if alias.name == "*" and names == (PACKAGE,):
                        files |= set(self.package.rglob("*.py"))
                    files |= self._module((*names, alias.name))
            elif isinstance(node, ast.Call) and _name(node.func).endswith("import_module"):
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    name = first.value
                    base = package if name.startswith(".") and package else ()
                    files |= self._module((*base, *name.lstrip(".").split(".")))
        return files

    def _module(self, names: tuple[str, ...]) -> set[Path]:
        """The file of a module and the `__init__` of each package around it; none if not ours."""
        if not names or names[0] != PACKAGE:
            return set()
        files: set[Path] = set()
        folder = self.source
        for name in names:
            folder = folder / name
            if (folder / "__init__.py").exists():
                files.add(folder / "__init__.py")
            elif folder.with_suffix(".py").exists():
                files.add(folder.with_suffix(".py"))
                break
            else:
                break
        return files


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _chooses_modules(nodes: Iterable[ast.AST]) -> bool:
    """Whether some module is imported under a name that only a run would tell."""
    return any(
        isinstance(node, ast.Call)
        and _name(node.func) in ("import_module", "_import_module", "__import__")
        and not (node.args and isinstance(node.args[0], ast.Constant))
        for node in nodes
    )


def fingerprint(sources: Iterable[str], root: Path = ROOT, library: Library | None = None) -> str:
    """Hash of the lock and of every library file that `sources` can import."""
    library = library or Library(root)
    digest = hashlib.sha256((root / "constraints.txt").read_bytes())
    for path in library.closure(sources):
        digest.update(f"\0{path.relative_to(root).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]
