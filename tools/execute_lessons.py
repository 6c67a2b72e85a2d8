"""Run lessons in fresh kernels, several at a time, and store their outputs for Sphinx.

Sphinx finds outputs in the cache by the page's code and the hash in its front matter, which covers
the lock and the library files that the lesson imports (see `library_imports`). So a lesson runs
again exactly when one of these has changed. A failing cell, a lesson over its budget of CPU time
and one over the memory limit are errors that name the file and the cell.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import nbformat
import psutil
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from lesson_source import Lesson

MEMORY_BYTES = 2_000_000_000
CELL_TIMEOUT_SECONDS = 600  # far above any budget: a hung cell ends, a slow one gets its message


@dataclass(frozen=True)
class Run:
    """What became of one lesson."""

    name: str
    cpu_seconds: float
    memory_bytes: int
    wall_seconds: float
    error: str | None = None
    cached: bool = False


def page_notebook(page: Path) -> nbformat.NotebookNode:
    """The notebook that MyST-NB makes of a derived page, so that both look up the same key."""
    from myst_nb.core.read import myst_nb_reader_plugin

    return myst_nb_reader_plugin(str(page))


class _Meter(threading.Thread):
    """Follows a kernel and its children: most memory so far, CPU time."""

    def __init__(self, pid: int):
        super().__init__(daemon=True)
        self.process = psutil.Process(pid)
        self.memory = 0
        self.started_at = self.cpu()
        self.done = threading.Event()

    def family(self) -> list[psutil.Process]:
        try:
            return [self.process, *self.process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def cpu(self) -> float:
        seconds = 0.0
        for process in self.family():
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            seconds += times.user + times.system
            if process == self.process:  # children that have ended already
                seconds += times.children_user + times.children_system
        return seconds

    def run(self) -> None:
        while not self.done.wait(0.05):
            memory = 0
            for process in self.family():
                try:
                    memory += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.memory = max(self.memory, memory)


def _environment() -> dict[str, str]:
    """One thread a kernel: lessons already fill the cores, and sums come out alike everywhere."""
    threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    fixed = {"FOURVIEWS_BOOK_BUILD": "1", "FOURVIEWS_PRESET": "page"}
    return {**os.environ, **dict.fromkeys(threads, "1"), **fixed}


@dataclass
class Cost:
    """What running a notebook took, and the first error as `POSITION:what`, if there was one."""

    cpu_seconds: float
    memory_bytes: int
    wall_seconds: float
    error: str | None


def run_notebook(notebook: nbformat.NotebookNode, library: Path) -> Cost:
    """Run all code cells in one fresh kernel, which keeps their outputs in `notebook`.

    Stops at the first failing cell; its position, counted from 1 among code cells, begins the error.
    """
    started = time.perf_counter()
    error: str | None = None
    environment = _environment()
    paths = [str(library), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_SECONDS,
        kernel_name="python3",
        record_timing=False,
        extra_arguments=["--log-level=40"],  # kernels talk to this machine only: no warning of it
        skip_cells_with_tag="skip-execution",
    )
    client.reset_execution_trackers()
    with tempfile.TemporaryDirectory(prefix="lesson-") as folder:
        client.resources = {"metadata": {"path": folder}}
        with client.setup_kernel(env=environment):
            meter = _Meter(client.km.provisioner.pid)
            meter.start()
            reply = client.wait_for_reply(client.kc.kernel_info())
            notebook.metadata["language_info"] = reply["content"]["language_info"]
            position = 0
            for index, cell in enumerate(notebook.cells):
                if cell.cell_type != "code":
                    continue
                position += 1
                try:
                    client.execute_cell(cell, index)
                except CellExecutionError as failure:
                    error = f"{position}:{failure.ename}: {failure.evalue}\n{failure.traceback}"
                except CellTimeoutError:
                    error = f"{position}:no end after {CELL_TIMEOUT_SECONDS} s"
                except DeadKernelError:
                    error = f"{position}:the kernel died"
                if error:
                    break
            client.set_widgets_metadata()
            cpu = meter.cpu() - meter.started_at
            meter.done.set()
            meter.join()
    return Cost(cpu, meter.memory, time.perf_counter() - started, error)


def store(notebook: nbformat.NotebookNode, page: Path, cache_path: Path, cost: Cost) -> None:
    """Put a page's outputs where Sphinx finds them, with what they cost."""
    data = {
        "execution_seconds": cost.wall_seconds,
        "cpu_seconds": cost.cpu_seconds,
        "memory_bytes": cost.memory_bytes,
    }
    bundle = CacheBundleIn(notebook, page.name, data=data)
    get_cache(cache_path).cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def _execute(name: str, page: Path, cache_path: Path, library: Path) -> Run:
    """Run one page in a fresh kernel; stores the outputs if no cell failed."""
    notebook = page_notebook(page)
    cost = run_notebook(notebook, library)
    if cost.error is None:
        store(notebook, page, cache_path, cost)
    return Run(name, cost.cpu_seconds, cost.memory_bytes, cost.wall_seconds, cost.error)


def stored_run(name: str, page: Path, cache_path: Path) -> Run | None:
    """The run whose outputs Sphinx will find for this page, None if there is none."""
    try:
        data = get_cache(cache_path).match_cache_notebook(page_notebook(page)).data
    except KeyError:
        return None
    if "cpu_seconds" not in data:
        return None  # not stored by this module: its cost is unknown
    return Run(
        name, data["cpu_seconds"], data["memory_bytes"], data["execution_seconds"], cached=True
    )


def open_cache(cache_path: Path) -> None:
    """Make the cache and its database, before several processes try to."""
    cache_path.mkdir(parents=True, exist_ok=True)
    get_cache(cache_path).list_cache_records()


def pool_for(tasks: int) -> ProcessPoolExecutor:
    """Processes that run kernels side by side, no more of them than there are cores."""
    workers = min(tasks, max(1, os.cpu_count() or 1), 4)
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"))


def execute(lessons: Sequence[Lesson], pages: Path, cache_path: Path, library: Path) -> list[Run]:
    """Outputs of all `lessons` in the cache, run where they are missing; errors say where."""
    open_cache(cache_path)
    runs: dict[str, Run] = {}
    missing: list[Lesson] = []
    for lesson in lessons:
        run = stored_run(lesson.name, pages / f"{lesson.name}.md", cache_path)
        if run:
            runs[lesson.name] = run
        else:
            missing.append(lesson)
    # Long ones first, so that no core waits for a lab at the end.
    missing.sort(key=lambda lesson: -lesson.budget_seconds)
    if missing:
        with pool_for(len(missing)) as pool:
            futures = [
                pool.submit(_execute, lesson.name, pages / f"{lesson.name}.md", cache_path, library)
                for lesson in missing
            ]
            for future in futures:
                run = future.result()
                runs[run.name] = run
    return [_judge(lesson, runs[lesson.name]) for lesson in lessons]


def _judge(lesson: Lesson, run: Run) -> Run:
    """Turn a failure into a message that names file and cell; check the budget of a success."""
    file = f"lessons_src/{lesson.path.name}"
    error = None
    if run.error:
        position, _, reason = run.error.partition(":")
        cell = lesson.cells(solutions="practice")[int(position) - 1]
        error = f"{file}:{cell.source_line}: code cell {position} failed: {reason}"
    elif run.cpu_seconds > lesson.budget_seconds:
        error = (
            f"{file}: took {run.cpu_seconds:.1f} CPU-seconds, "
            f"its budget is {lesson.budget_seconds:g}"
        )
    elif run.memory_bytes > MEMORY_BYTES:
        error = (
            f"{file}: took {run.memory_bytes / 1e9:.2f} GB of memory, "
            f"the limit is {MEMORY_BYTES / 1e9:.2f} GB"
        )
    return Run(run.name, run.cpu_seconds, run.memory_bytes, run.wall_seconds, error, run.cached)
