"""Commands, and virtual environments that see some of this environment's packages."""

from __future__ import annotations

import os
import re
import site
import subprocess
import venv
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


def run(*command, cwd: Path, **environment: str) -> subprocess.CompletedProcess:
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MPLBACKEND")}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**inherited, "MPLBACKEND": "Agg", "FOURVIEWS_BOOK_BUILD": "1", **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def empty_environment(folder: Path) -> tuple[Path, Path]:
    """Python and the package folder of a new virtual environment that holds pip alone."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    done = run(python, "-c", "import site; print(site.getsitepackages()[0])", cwd=folder)
    return python, Path(done.stdout.strip())


def fresh_environment(folder: Path) -> Path:
    """A virtual environment that has all dependencies but no `fourviews` of its own.

    A line in a .pth file makes the packages of the test's environment visible without copying two
    gigabytes. Files of the same kind in that folder are not followed, so the checkout that is
    installed there in editable mode stays out of sight.
    """
    python, packages = empty_environment(folder)
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    assert_no_checkout(python, folder)
    return python


def assert_no_checkout(python: Path, folder: Path) -> None:
    missing = run(python, "-c", "import fourviews", cwd=folder)
    assert missing.returncode != 0, "the checkout is visible: the test would prove nothing"


def needed(requirements: Iterable[str]) -> dict[str, metadata.Distribution]:
    """The installed distributions that requirements ask for, with all that these ask for."""
    found: dict[str, metadata.Distribution] = {}
    done: set[tuple[str, frozenset[str]]] = set()
    todo = [(Requirement(text), frozenset[str]()) for text in requirements]
    while todo:
        requirement, outer = todo.pop()
        if requirement.marker and not any(
            requirement.marker.evaluate({"extra": extra}) for extra in outer or {""}
        ):
            continue
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        extras = frozenset(requirement.extras)
        if (name, extras) not in done:
            done.add((name, extras))
            found[name] = metadata.distribution(requirement.name)
            inner = found[name].requires or []
            todo += [(Requirement(text), extras | {""}) for text in inner]
    return found


def show_packages(
    distributions: Iterable[metadata.Distribution], packages: Path, folder: Path
) -> None:
    """Make these distributions and no others importable, without copying them.

    They are linked into a folder of their own, which a .pth file names, so that pip counts them
    as installed but never removes a file of theirs.
    """
    folder.mkdir()
    for distribution in distributions:
        for top in sorted({file.parts[0] for file in distribution.files or []}):
            if top not in ("..", "__pycache__") and not (folder / top).exists():
                (folder / top).symlink_to(distribution.locate_file(top))
    (packages / "dependencies.pth").write_text(f"{folder}\n")
