"""A small book beside the real one, on which builds can be tried in seconds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SANDBOX = Path(__file__).parent / "sandbox"


def make(target: Path) -> Path:
    """The project's own tools and settings around the sandbox's two lessons."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tools", target / "tools", ignore=ignore)
    for name in ("_config.yml", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, target / name)
    shutil.copytree(SANDBOX / "lessons_src", target / "lessons_src")
    shutil.copytree(SANDBOX / "book", target / "book")
    shutil.copytree(SANDBOX / "instructor", target / "instructor")
    shutil.copytree(ROOT / "book" / "_assets", target / "book" / "_assets")
    shutil.copy(ROOT / "book" / "references.bib", target / "book")
    package = target / "lib" / "fourviews"
    package.mkdir(parents=True)
    shutil.copy(ROOT / "lib" / "fourviews" / "__init__.py", package)
    for path in (SANDBOX / "lib").glob("*.py"):
        shutil.copy(path, package)
    return target


def build(root: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """Run the sandbox's own copy of the build script."""
    names = ("FOURVIEWS_REPOSITORY", "FOURVIEWS_TAG", "FOURVIEWS_PAGES")
    inherited = {key: value for key, value in os.environ.items() if key not in names}
    return subprocess.run(
        [sys.executable, str(root / "tools" / "build_book.py"), *arguments],
        cwd=root,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
