"""Derive the tree that Sphinx builds: MyST pages of one edition, and what lies around them.

What is secret in the student edition (graded solutions, hidden checks, rubrics) is cut out here,
before Sphinx sees anything. The instructor edition shows all of it, and takes its guides from
`instructor/`. All else stays as it is, line for line, so that a warning about line 120 of a page
means line 120 of the lesson. Files are rewritten only when their content changes, so that Sphinx
re-reads only those.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml

import concept_map
import corrections
import instructor_guides
import ledger
import settings as project
from lesson_source import (
    Cell,
    Directive,
    Exercise,
    Lesson,
    Rubric,
    Solution,
    in_words,
    rubric_item,
    walk,
)
from library_imports import Library, fingerprint
from numbering import Book, read_book
from reference_pages import START, Reference
from settings import ROOT, Settings

EDITIONS = ("student", "instructor")


def page(lesson: Lesson, kernel_hash: str, edition: str = "student") -> str:
    """The MyST page of one lesson; `kernel_hash` decides when its stored outputs still hold."""
    _check_edition(edition)
    lines: list[str | None] = list(lesson.lines)
    modes = {exercise.label: exercise.mode for exercise in lesson.exercises()}

    def replace(first: int, last: int, new: list[str]) -> None:
        """Put `new` in place of lines `first` to `last`, counted from 1.

        Where that makes one line more, a blank line after them is left out, so that later lines
        keep their numbers.
        """
        count = last - first + 1
        if len(new) > count:
            new = [*new[: count - 1], "\n".join(new[count - 1 :])]
            absorb(last)
        lines[first - 1 : last] = new + [""] * (count - len(new))

    def absorb(index: int) -> None:
        if index < len(lines) and lines[index] == "":
            lines[index] = None

    front = {
        "kernelspec": {
            "display_name": "Python 3",
            "fourviews_hash": kernel_hash,
            "language": "python",
            "name": "python3",
        },
        "jupytext": {"text_representation": {"extension": ".md", "format_name": "myst"}},
    }
    head = [f"{key}: {json.dumps(value)}" for key, value in front.items()]
    replace(1, lesson.front_matter_lines, ["---", *head, "---"])
    for block in walk(lesson.blocks):
        if isinstance(block, Directive) and "nonumber" in block.options:
            # Sphinx would make up a label that the next lesson's makes up as well.
            at = lines.index(":nonumber:", block.line)
            lines[at] = f":nonumber:\n:label: unnumbered-{lesson.name}-{block.line}"
            absorb(block.body[-1][0] + 1)  # the blank line after the closing fence
    for block in lesson.blocks:
        if isinstance(block, Exercise):
            facts = f"kind-{block.kind} minutes-{block.minutes} points-{block.points}"
            if block.mode == "graded":
                facts += " mode-graded"
            gate = [f"```{{exercise-start}} {block.title}", f":label: {block.label}"]
            replace(*block.start, [*gate, f":class: {facts}", "```"])
        elif isinstance(block, Solution) and edition == "instructor":
            gate = [f"```{{solution-start}} {block.label}"]
            if block.canary:
                gate.append(f":class: canary-{block.canary}")  # shown by the extension
            replace(*block.start, [*gate, "```"])
            for number, check in enumerate(block.hidden_checks, start=1):
                name = f"Hidden check {number}" if len(block.hidden_checks) > 1 else "Hidden check"
                _head_cell(lines, check.cell, f"**{name}:** {check.description}", replace)
            for rubric in _rubrics(block):
                shown = [_rubric_line(text) for text in lesson.lines[rubric.line : rubric.last - 1]]
                replace(rubric.line, rubric.last, ["**Rubric**", *shown])
        elif isinstance(block, Solution) and modes[block.label] == "practice":
            # Folded: the reader decides when to look.
            gate = [f"```{{solution-start}} {block.label}", ":class: dropdown", "```"]
            replace(*block.start, gate)
            for check in block.hidden_checks:
                replace(check.cell.line, check.cell.last, [])
            for rubric in _rubrics(block):
                replace(rubric.line, rubric.last, [])
        elif isinstance(block, Solution):
            replace(block.line, block.last, [])
    return "\n".join(line for line in lines if line is not None)


def _check_edition(edition: str) -> None:
    if edition not in EDITIONS:
        raise ValueError(f"edition {edition!r}: need one of {', '.join(EDITIONS)}")


def _rubrics(solution: Solution) -> list[Rubric]:
    return [block for block in solution.blocks if isinstance(block, Rubric)]


def _rubric_line(text: str) -> str:
    item = rubric_item(text)
    return f"- **{in_words(item[0], 'point')}:** {item[1]}" if item else text


def _head_cell(lines: list[str | None], cell: Cell, words: str, replace) -> None:
    """Put a line of text above a cell, in the place of a blank line in its head or after it.

    A fence may follow a paragraph directly, and options need no blank line after them.
    """
    first = cell.line - 1
    if first and (lines[first - 1] or "").strip():
        words = "\n" + words
    head = [text for text in lines[first : cell.source_line - 1] if text and text.strip()]
    code = lines[cell.source_line - 1 : cell.last]
    replace(cell.line, cell.last, [words, *head, *code])


def book_config(root: Path, settings: Settings, cache: Path, edition: str = "student") -> str:
    """`_config.yml` with addresses, cache and paths filled in."""
    _check_edition(edition)
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    config["execute"]["cache"] = str(cache)
    theme = config["sphinx"]["config"]["html_theme_options"]
    if settings.repository:
        theme["repository_url"] = settings.repository
        theme["repository_branch"] = settings.tag
        theme["path_to_docs"] = "book"
        theme["use_repository_button"] = True
    config["sphinx"]["config"]["fourviews_repository"] = settings.repository
    config["sphinx"]["config"]["fourviews_tag"] = settings.tag
    if edition == "instructor":
        # It is read at home: no address of its own, and no buttons to the students' notebooks.
        config["title"] += " · Instructor edition"
        theme["announcement"] = "Instructor edition: with all solutions, not for students."
        return yaml.safe_dump(config, sort_keys=True, allow_unicode=True)
    if settings.github_path:  # the only place that Colab opens notebooks from
        theme["launch_buttons"] = {
            "notebook_interface": "jupyterlab",
            "binderhub_url": "https://mybinder.org",
            "colab_url": "https://colab.research.google.com",
        }
    if settings.pages:
        config["html"]["baseurl"] = settings.pages
        config["sphinx"]["config"]["fourviews_pages"] = settings.pages
    return yaml.safe_dump(config, sort_keys=True)


def register_pages(
    book: Book, reference: Reference | None, root: Path, settings: Settings
) -> dict[str, str]:
    """The pages that come from the register: ledger, corrections, and the library's reference."""
    rows = ledger.read_all(root)
    lessons = list(book.lessons)
    functions = reference.claims(rows) if reference else None
    pages = {
        "ledger": ledger.render(
            rows,
            root=root,
            address=ledger.address(settings),
            lessons=lessons,
            functions=functions,
        )
    }
    if "corrections" in book.pages:
        found = corrections.read(rows, root)
        pages["corrections"] = corrections.page(found, len(rows), lessons=lessons)
    if reference:
        pages.update(reference.pages(functions))
    return {name: text for name, text in pages.items() if name in book.pages}


def derive(
    target: Path,
    *,
    root: Path = ROOT,
    settings: Settings | None = None,
    cache: Path | None = None,
    edition: str = "student",
) -> Book:
    """Write one edition's tree into `target` and remove what no longer belongs there.

    The book that is returned has the guides among its pages if `edition` is "instructor".
    """
    _check_edition(edition)
    settings = settings or project.load(root)
    book = read_book(root)
    library = Library(root)
    reference = Reference(book.lessons, root) if START in book.pages else None
    keep: set[Path] = set()

    def put(relative: str, content: bytes) -> None:
        path = target / relative
        keep.add(path)
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    for path in sorted((root / "book").rglob("*")):
        if path.is_file() and path.suffix != ".ipynb" and path.name != "claims.yml":
            put(path.relative_to(root / "book").as_posix(), path.read_bytes())
    for name, lesson in book.lessons.items():
        shown = True if edition == "instructor" else "practice"
        sources = [cell.source for cell in lesson.cells(solutions=shown)]
        kernel_hash = fingerprint(sources, root, library)
        box = reference.box(name) if reference else ""
        put(f"{name}.md", (page(lesson, kernel_hash, edition) + box).encode())
        # The theme links Colab and Binder to NAME.ipynb if such a file lies beside NAME.md.
        put(f"{name}.ipynb", b"")
    if edition == "instructor":
        guides = instructor_guides.pages(book, root)
        for name, text in guides.items():
            put(f"{name}.md", text.encode())
        put("_toc.yml", instructor_guides.table_of_contents(root, list(guides)).encode())
        book.titles.update({name: text.split("\n")[0][2:] for name, text in guides.items()})
        book.pages[1:1] = guides
    front = (root / "book" / "index.md").read_text(encoding="utf-8")
    for name, draw in concept_map.FILES.items():
        if name in front:
            put(name, draw(book).encode())
    cache = cache or target.parents[1] / ".jupyter_cache"
    put("_config.yml", book_config(root, settings, cache.resolve(), edition).encode())
    if "ledger" in book.pages:
        for name, text in register_pages(book, reference, root, settings).items():
            put(f"{name}.md", text.encode())
    for path in sorted(target.rglob("*"), reverse=True):
        if path.is_file() and path not in keep:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    return book
