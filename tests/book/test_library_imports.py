"""Which library files a lesson depends on: all that its imports reach, nothing that they do not."""

from __future__ import annotations

from pathlib import Path

import pytest

import library_imports

FILES = {
    "__init__.py": "from importlib import import_module\n\ndef __getattr__(name):\n"
    "    return import_module(f'{__name__}.{name}')\n",
    "plain.py": "VALUE = 1\n",
    "view/__init__.py": "from .deep import thing\n",
    "view/deep.py": "def thing():\n    from fourviews import plain\n    return plain.VALUE\n",
    "view/aside.py": "import numpy\n",
    "view/table.csv": "1,2\n",
    "view/tables/more.csv": "3,4\n",
    "lazy/__init__.py": "import importlib\n\ndef __getattr__(name):\n"
    "    return importlib.import_module('.' + name, __name__)\n",
    "lazy/one.py": "from ..other import stuff\n",
    "named/__init__.py": "import importlib\nother = importlib.import_module('fourviews.other.stuff')\n",
    "other/__init__.py": "",
    "other/stuff.py": "",
}


@pytest.fixture
def root(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "lib" / "fourviews" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "constraints.txt").write_text("lock\n")
    return tmp_path


def closure(root: Path, source: str) -> set[str]:
    package = root / "lib" / "fourviews"
    library = library_imports.Library(root)
    return {path.relative_to(package).as_posix() for path in library.closure([source])}


VIEW = {"__init__.py", "view/__init__.py", "view/deep.py", "plain.py", "view/table.csv",
        "view/tables/more.csv"}  # fmt: skip
OTHER = {"__init__.py", "other/__init__.py", "other/stuff.py"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import numpy as np", set()),
        ("from fourviews import plain", {"__init__.py", "plain.py"}),
        ("import fourviews.plain as p", {"__init__.py", "plain.py"}),
        ("from fourviews.plain import VALUE", {"__init__.py", "plain.py"}),
        ("from fourviews import view", VIEW),
        ("from fourviews.view.deep import thing", VIEW),
        ("def f():\n    from fourviews import view", VIEW),
        ("from fourviews import named", OTHER | {"named/__init__.py"}),
        # A package that chooses at run time could choose any of its modules.
        ("from fourviews import lazy", OTHER | {"lazy/__init__.py", "lazy/one.py"}),
        # After this, any attribute could be used.
        ("import fourviews", set(FILES)),
    ],
)
def test_closure(root, source, expected):
    assert closure(root, source) == expected


def test_the_fingerprint_follows_lock_library_and_data(root):
    source = ["from fourviews import view"]
    before = library_imports.fingerprint(source, root)
    assert library_imports.fingerprint(source, root) == before
    for name in ("view/deep.py", "plain.py", "view/table.csv", "view/tables/more.csv"):
        path = root / "lib" / "fourviews" / name
        text = path.read_text()
        path.write_text(text + "\n")
        assert library_imports.fingerprint(source, root) != before, name
        path.write_text(text)
    for name in ("view/aside.py", "other/stuff.py"):
        (root / "lib" / "fourviews" / name).write_text("changed = 1\n")
    assert library_imports.fingerprint(source, root) == before
    (root / "constraints.txt").write_text("another lock\n")
    assert library_imports.fingerprint(source, root) != before
