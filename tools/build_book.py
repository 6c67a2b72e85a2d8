"""Build the book: derive, run lessons, write notebooks, make pages. `make book` calls this.

    python tools/build_book.py                          # the whole book
    python tools/build_book.py --lesson convex_02_mlp   # run one lesson; others as they are stored
    python tools/build_book.py --edition instructor     # with all solutions, in folders of its own

Ends with where the page is and how long each stage took; exits non-zero when a lesson is not
understood, a cell fails, a lesson is over its budget, or Sphinx has anything to warn of.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import yaml

import settings as project
import write_notebooks
from derive_pages import EDITIONS, derive
from execute_lessons import Run, execute, stored_run
from execute_solutions import code_cells, execute_solutions, executed_notebook
from ledger import LedgerError
from lesson_source import SourceError
from library_symbols import SymbolError
from settings import ROOT


class BuildError(Exception):
    """The build stops here; the message says why."""


class Clock:
    """Durations of the stages, in order."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
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


# Trees of pages and of code are millions of objects that stay. To look through all of them for
# garbage again and again takes most of the time of a build in which nothing has changed.
RARELY = (100_000, 10, 10)


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


def run_sphinx(
    tree: Path, out: Path, root: Path, *, quiet: bool, strict: bool, builder: str = "html"
) -> int:
    """Jupyter Book on the derived tree; if `strict`, warnings are errors. Returns the status.

    The command line of Jupyter Book always writes into a folder `_build/html`; the function behind
    it takes any folder, which lets each edition have its own.
    """
    start = (
        f"import gc, sys; gc.set_threshold{RARELY}; from jupyter_book.sphinx import build_sphinx; "
        "tree, out, builder, *flags = sys.argv[1:]; "
        "sys.exit(build_sphinx(tree, out, noconfig=True, path_config=tree + '/_config.yml', "
        "builder=builder, "
        "confoverrides={'external_toc_path': tree + '/_toc.yml', 'latex_individualpages': False}, "
        "keep_going=True, quiet='quiet' in flags, warningiserror='strict' in flags) != 0)"
    )
    command = [sys.executable, "-c", start, str(tree), str(out), builder]
    command += ["quiet"] * quiet + ["strict"] * strict
    # The library too: the reference pages take its docstrings.
    own = [str(root / "tools" / "sphinx_ext"), str(root / "lib")]
    paths = [*own, os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONWARNINGS": "ignore",
    }
    status = subprocess.run(command, env=environment, check=False).returncode
    if status and strict:
        # Sphinx warns of a page when it reads it: were it not to read it again, the next build of
        # the same text would pass.
        (out.parent / ".doctrees" / "environment.pickle").unlink(missing_ok=True)
    return status


def sphinx_values(root: Path, notebooks: Path, lessons: Iterable[str]) -> dict:
    """What the book's extension has to know of this build."""
    return {
        "fourviews_lessons": list(lessons),
        "fourviews_looks": looks(root),
        "fourviews_notebooks": str(notebooks),
        "fourviews_tests": str(root / "tests"),
    }


def write_config(tree: Path, values: dict) -> None:
    """Add `values` to Sphinx's settings in the tree's `_config.yml`, if they are not there yet."""
    path = tree / "_config.yml"
    before = path.read_text(encoding="utf-8")
    config = yaml.safe_load(before)
    for key, value in values.items():
        if key == "exclude_from_execution":
            config["execute"]["exclude_patterns"] = value
        else:
            config["sphinx"]["config"][key] = value
    text = yaml.safe_dump(config, sort_keys=True)
    if before != text:
        path.write_text(text, encoding="utf-8")


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
    cache = (cache or build_dir / ".jupyter_cache").resolve()
    settings = project.load(root)
    committed = project.load(root, use_environment=False)
    tree = build_dir / "derived" / "student"
    clock = Clock()
    with clock.stage("derive pages and notebooks"):
        book = derive(tree, root=root, settings=settings, cache=cache)
        notebooks = build_dir / "derived" / "notebooks"
        texts = write_notebooks.render(root, settings)
        write_notebooks.put(texts, notebooks)
        if build_dir == (root / "_build").resolve() and settings == committed:
            for name in write_notebooks.put(texts, root / "book"):
                print(f"   book/{name} was rewritten: commit it with its lesson")
        config = sphinx_values(root, notebooks, book.lessons)
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
        config["exclude_from_execution"] = [f"{name}*" for name in never_run]
    write_config(tree, config)
    with clock.stage("run lessons"):
        run_all(execute(wanted, tree, cache, root / "lib"))
    html = (build_dir if lesson is None else build_dir / "lesson" / "_build") / "html"
    with clock.stage("make pages"):
        status = run_sphinx(tree, html, root, quiet=quiet, strict=not never_run)
        if status:
            raise BuildError("Sphinx found something to mend, see above")
    return finished(html / (f"{lesson}.html" if lesson else "index.html"), clock, root)


def finished(page: Path, clock: Clock, root: Path) -> Path:
    """Say how long it took and what to open."""
    if not page.exists():
        raise BuildError(f"{page} was not made")
    for name, seconds in clock.stages:
        print(f"{name:<28} {seconds:6.1f} s")
    print(f"{'together':<28} {time.perf_counter() - clock.started:6.1f} s")
    print(f"Open {page.relative_to(root) if page.is_relative_to(root) else page}")
    return page


def run_all(runs: list[Run]) -> None:
    """Report what each lesson cost; stop if one of them failed."""
    for run in runs:
        print(report(run))
    errors = [run.error for run in runs if run.error]
    if errors:
        raise BuildError("\n".join(errors))


def build_instructor(
    *,
    root: Path = ROOT,
    build_dir: Path | None = None,
    cache: Path | None = None,
    quiet: bool = True,
) -> Path:
    """Build the instructor edition into `build_dir/instructor`; returns the page to open.

    What students see keeps the outputs that are stored for them in `cache`; the lessons run first
    where there are none. Solutions and hidden checks run by themselves, and all outputs together
    go into a cache of this edition's own, so that nothing of it comes near the students' pages.
    """
    build_dir = (build_dir or root / "_build").resolve()
    student_cache = (cache or build_dir / ".jupyter_cache").resolve()
    place = build_dir / "instructor"
    tree, own_cache = place / "derived", place / ".jupyter_cache"
    settings = project.load(root)
    clock = Clock()
    place.mkdir(parents=True, exist_ok=True)
    # The students' tree of `make book` stays as that left it.
    with tempfile.TemporaryDirectory(prefix=".student-", dir=place) as name:
        seen = Path(name) / "derived"
        with clock.stage("derive pages and notebooks"):
            book = derive(tree, root=root, settings=settings, cache=own_cache, edition="instructor")
            derive(seen, root=root, settings=settings, cache=student_cache)
            lessons = list(book.lessons.values())
            notebooks = place / "notebooks"
            write_notebooks.write(notebooks, root, settings, edition="instructor")
        with clock.stage("run lessons"):
            run_all(execute(lessons, seen, student_cache, root / "lib"))
        with clock.stage("run solutions"):
            runs = execute_solutions(
                lessons,
                pages=tree,
                cache_path=own_cache,
                student_pages=seen,
                student_cache=student_cache,
                library=root / "lib",
            )
            run_all(runs)
    with clock.stage("put outputs into notebooks"):
        for lesson in lessons:
            with_outputs(notebooks / f"{lesson.name}.ipynb", tree / f"{lesson.name}.md", own_cache)
        write_config(tree, sphinx_values(root, notebooks, book.lessons))
    with clock.stage("make pages"):
        if run_sphinx(tree, place / "html", root, quiet=quiet, strict=True):
            raise BuildError("Sphinx found something to mend, see above")
    return finished(place / "html" / "index.html", clock, root)


def with_outputs(notebook: Path, page: Path, cache: Path) -> None:
    """Put the outputs that are stored for a page into the notebook of the same lesson."""
    content = nbformat.read(notebook, as_version=4)
    executed = code_cells(executed_notebook(page, cache))
    cells = code_cells(content)[-len(executed) :]  # before them comes what installs the library
    for cell, run in zip(cells, executed, strict=True):
        if cell.source != run.source:
            raise BuildError(f"{notebook.stem} has changed while it was built: build it again")
        cell.outputs, cell.execution_count = run.outputs, run.execution_count
    text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False)
    notebook.write_text(text + "\n", encoding="utf-8")


def main() -> int:
    gc.set_threshold(*RARELY)
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lesson", help="run and show only this lesson")
    parser.add_argument("--edition", choices=EDITIONS, default="student")
    parser.add_argument("--build-dir", type=Path, help="a folder other than _build")
    parser.add_argument("--cache", type=Path, help="where outputs are stored")
    parser.add_argument("--verbose", action="store_true", help="all that Sphinx has to say")
    arguments = parser.parse_args()
    places = {"build_dir": arguments.build_dir, "cache": arguments.cache}
    if arguments.lesson and arguments.edition == "instructor":
        parser.error("--lesson is for the student edition")
    try:
        if arguments.edition == "instructor":
            build_instructor(**places, quiet=not arguments.verbose)
        else:
            build(**places, lesson=arguments.lesson or None, quiet=not arguments.verbose)
    except (BuildError, LedgerError, SourceError, SymbolError) as error:
        print(f"The book was not built.\n{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
