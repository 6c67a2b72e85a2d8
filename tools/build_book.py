"""Build the book: derive, run lessons, write notebooks, make pages. `make book` calls this.

    python tools/build_book.py                          # the whole book
    python tools/build_book.py --lesson convex_02_mlp   # run one lesson; others as they are stored

Ends with where the page is and how long each stage took; exits non-zero when a lesson is not
understood, a cell fails, a lesson is over its budget, or Sphinx has anything to warn of.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

import settings as project
import write_notebooks
from derive_pages import derive
from execute_lessons import Run, execute, stored_run
from ledger import LedgerError
from lesson_source import SourceError
from settings import ROOT


class BuildError(Exception):
    """The build stops here; the message says why."""


class Clock:
    """Durations of the stages, in order."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, float]] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        print(f"== {name}", flush=True)
        started = time.perf_counter()
        yield
        self.stages.append((name, time.perf_counter() - started))


def report(run: Run) -> str:
    how = "stored" if run.cached else "ran"
    return (
        f"   {run.name:<32} {how:<7} {run.cpu_seconds:6.1f} CPU-s {run.memory_bytes / 1e6:6.0f} MB"
    )


def looks(root: Path) -> str:
    """Hash of style sheets, notebooks, templates and the book's extension.

    Sphinx copies these only when it writes some page, and it writes pages only when their text or
    its configuration has changed. So this hash is part of the configuration.
    """
    digest = hashlib.sha256()
    for folder in (root / "book", root / "tools" / "sphinx_ext"):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix in (".css", ".svg", ".js", ".html", ".py", ".ipynb"):
                digest.update(f"\0{path.relative_to(root).as_posix()}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def run_sphinx(tree: Path, output: Path, root: Path, *, quiet: bool, strict: bool) -> int:
    """Jupyter Book on the derived tree; if `strict`, warnings are errors. Returns the status."""
    start = "from jupyter_book.cli.main import main; main()"
    command = [sys.executable, "-c", start, "build", str(tree)]
    command += ["--config", str(tree / "_config.yml"), "--path-output", str(output)]
    command += ["--keep-going"] + (["-W"] if strict else []) + (["-q"] if quiet else [])
    paths = [str(root / "tools" / "sphinx_ext"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONWARNINGS": "ignore",
    }
    return subprocess.run(command, env=environment, check=False).returncode


def build(
    *,
    root: Path = ROOT,
    build_dir: Path | None = None,
    cache: Path | None = None,
    lesson: str | None = None,
    quiet: bool = True,
) -> Path:
    """Build into `build_dir` (`root/_build`); returns the page to open."""
    build_dir = (build_dir or root / "_build").resolve()
    if build_dir.name != "_build":
        raise ValueError(f"build_dir {build_dir}: Jupyter Book writes into a folder named _build")
    cache = (cache or build_dir / ".jupyter_cache").resolve()
    settings = project.load(root)
    committed = project.load(root, use_environment=False)
    tree = build_dir / "derived" / "student"
    clock = Clock()
    started = time.perf_counter()
    with clock.stage("derive pages and notebooks"):
        book = derive(tree, root=root, settings=settings, cache=cache)
        notebooks = build_dir / "derived" / "notebooks"
        write_notebooks.write(notebooks, root, settings)
        if build_dir == (root / "_build").resolve() and settings == committed:
            for name in write_notebooks.write(root / "book", root, committed):
                print(f"   book/{name} was rewritten: commit it with its lesson")
        config_path = tree / "_config.yml"
        config = yaml.safe_load(config_path.read_text(encoding="utf-8"))
        config["sphinx"]["config"]["fourviews_notebooks"] = str(notebooks)
        config["sphinx"]["config"]["fourviews_looks"] = looks(root)
    wanted, never_run = list(book.lessons.values()), []
    if lesson is not None:
        if lesson not in book.lessons:
            known = ", ".join(book.lessons)
            raise BuildError(f"no lesson {lesson!r} in lessons_src/; there are: {known}")
        wanted = [book.lessons[lesson]]
        # Other lessons are shown as they are stored. Those never run stay without outputs, and
        # references to their figures find nothing: that is no fault of the lesson asked for.
        never_run = [
            name
            for name in book.lessons
            if name != lesson and stored_run(name, tree / f"{name}.md", cache) is None
        ]
        config["execute"]["exclude_patterns"] = [f"{name}*" for name in never_run]
    text = yaml.safe_dump(config, sort_keys=True)
    if config_path.read_text(encoding="utf-8") != text:
        config_path.write_text(text, encoding="utf-8")
    with clock.stage("run lessons"):
        runs = execute(wanted, tree, cache, root / "lib")
        for run in runs:
            print(report(run))
        errors = [run.error for run in runs if run.error]
        if errors:
            raise BuildError("\n".join(errors))
    output = build_dir.parent if lesson is None else build_dir / "lesson"
    with clock.stage("make pages"):
        status = run_sphinx(tree, output, root, quiet=quiet, strict=not never_run)
        if status:
            raise BuildError("Sphinx found something to mend, see above")
    html = output / "_build" / "html"
    page = html / (f"{lesson}.html" if lesson else "index.html")
    if not page.exists():
        raise BuildError(f"{page} was not made")
    for name, seconds in clock.stages:
        print(f"{name:<28} {seconds:6.1f} s")
    print(f"{'together':<28} {time.perf_counter() - started:6.1f} s")
    print(f"Open {page.relative_to(root) if page.is_relative_to(root) else page}")
    return page


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lesson", help="run and show only this lesson")
    parser.add_argument("--build-dir", type=Path, help="a folder named _build, elsewhere")
    parser.add_argument("--cache", type=Path, help="where outputs are stored")
    parser.add_argument("--verbose", action="store_true", help="all that Sphinx has to say")
    arguments = parser.parse_args()
    try:
        build(
            build_dir=arguments.build_dir,
            cache=arguments.cache,
            lesson=arguments.lesson or None,
            quiet=not arguments.verbose,
        )
    except (BuildError, LedgerError, SourceError) as error:
        print(f"The book was not built.\n{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
