"""Run what the instructor edition has beyond the student edition, and join both kinds of outputs.

Cells that students see keep the outputs that students see. Solutions and hidden checks run in one
fresh kernel a lesson: first the lesson's imports, then each exercise by itself with its stub, its
solution and its hidden checks. So a solution that needs a variable of the lesson fails here, and a
hidden check that the reference does not pass stops the build.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import nbformat
from jupyter_cache import get_cache

from execute_lessons import (
    Cost,
    Run,
    open_cache,
    page_notebook,
    pool_for,
    run_notebook,
    store,
    stored_run,
)
from lesson_source import Cell, Lesson

SEED = 1  # of the hidden checks on the instructor's page
# Names that an exercise leaves behind are taken away, and the imports put back as they were.
KEEP = "__imports = dict(globals())"
CLEAR = """\
for __name in [name for name in globals() if name not in __imports and name[0] != "_"]:
    del globals()[__name]
globals().update(__imports)"""


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _paired(
    lesson: Lesson, notebook: nbformat.NotebookNode, cells: Sequence[Cell]
) -> list[tuple[Cell, nbformat.NotebookNode]]:
    """Each cell of the lesson with the one of the derived page that was made from it."""
    made = code_cells(notebook)
    if [cell.source for cell in made] != [cell.source for cell in cells]:
        raise AssertionError(f"the page of {lesson.name} has other cells than the lesson")
    return list(zip(cells, made, strict=True))


def program(lesson: Lesson) -> list[tuple[Cell | None, str]]:
    """What the kernel runs, in order, each with the lesson's cell whose output it makes.

    A hidden check is a cell that defines a function; the call that follows makes its output.
    """
    steps: list[tuple[Cell | None, str]] = [(None, line) for line in lesson.prelude()]
    steps.append((None, KEEP))
    for exercise in lesson.exercises():
        solution = exercise.solution
        assert solution is not None
        if not solution.code:
            continue
        steps += [(cell, cell.source) for cell in [*exercise.stubs, *solution.code]]
        for check in solution.hidden_checks:
            call = f"{check.name}({', '.join([*check.parameters, str(SEED)])})"
            shown = f'print("{check.name}: the solution passes with seed {SEED}.")'
            steps += [(None, check.cell.source), (check.cell, f"{call}\n{shown}")]
        steps.append((None, CLEAR))
    return steps


def _solve(
    lesson: Lesson,
    page: Path,
    cache_path: Path,
    student_page: Path,
    student_cache: Path,
    library: Path,
) -> Run:
    """Store the outputs of the instructor's page of one lesson."""
    notebook, student = page_notebook(page), page_notebook(student_page)
    _, student = get_cache(student_cache).merge_match_into_notebook(student)
    steps = program(lesson)
    if not any(cell for cell, _ in steps):
        steps = []  # no exercise with code, no need of a kernel that imports the library
    cells = [nbformat.v4.new_code_cell(source) for _, source in steps]
    for (cell, _), run in zip(steps, cells, strict=True):
        if cell is not None and "skip-execution" in cell.tags:
            run.metadata["tags"] = ["skip-execution"]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    solved = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
    cost = run_notebook(solved, library) if steps else Cost(0.0, 0, 0.0, None)
    run = Run(lesson.name, cost.cpu_seconds, cost.memory_bytes, cost.wall_seconds, cost.error)
    if cost.error:
        position, _, reason = cost.error.partition(":")
        # A call of a hidden check stands for its cell, imports for the lesson's first line.
        cell = next((cell for cell, _ in steps[int(position) - 1 :] if cell is not None), None)
        line = cell.source_line if cell else 1
        words = (
            f"lessons_src/{lesson.path.name}:{line}: a solution or hidden check failed: {reason}"
        )
        return Run(run.name, run.cpu_seconds, run.memory_bytes, run.wall_seconds, words)
    outputs = {
        id(cell): made.outputs
        for (cell, _), made in zip(steps, code_cells(solved), strict=True)
        if cell is not None
    }
    seen = lesson.cells(solutions="practice")
    outputs |= {id(cell): made.outputs for cell, made in _paired(lesson, student, seen)}
    for count, (cell, made) in enumerate(_paired(lesson, notebook, lesson.cells()), start=1):
        made.outputs = outputs[id(cell)]
        made.execution_count = count
    notebook.metadata["language_info"] = student.metadata.get("language_info", {})
    store(notebook, page, cache_path, cost)
    return run


def execute_solutions(
    lessons: Sequence[Lesson],
    *,
    pages: Path,
    cache_path: Path,
    student_pages: Path,
    student_cache: Path,
    library: Path,
) -> list[Run]:
    """Outputs of the instructor edition of all `lessons` in the cache at `cache_path`.

    The student edition has to be stored in `student_cache` already. A lesson whose instructor page
    is stored is left alone; errors of the others name file and line.
    """
    open_cache(cache_path)
    stored = {
        lesson.name: stored_run(lesson.name, pages / f"{lesson.name}.md", cache_path)
        for lesson in lessons
    }
    missing = [lesson for lesson in lessons if stored[lesson.name] is None]
    if missing:
        with pool_for(len(missing)) as pool:
            futures = [
                pool.submit(
                    _solve,
                    lesson,
                    pages / f"{lesson.name}.md",
                    cache_path,
                    student_pages / f"{lesson.name}.md",
                    student_cache,
                    library,
                )
                for lesson in missing
            ]
            for future in futures:
                run = future.result()
                stored[run.name] = run
    return [stored[lesson.name] for lesson in lessons]


def executed_notebook(page: Path, cache_path: Path) -> nbformat.NotebookNode:
    """A derived page as a notebook with its stored outputs."""
    _, notebook = get_cache(cache_path).merge_match_into_notebook(page_notebook(page))
    return notebook
