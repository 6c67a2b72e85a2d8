"""Write `book/PART_NN_topic.ipynb`: the lessons as plain notebooks, for Colab and JupyterLab.

No MyST is left: directives become bold run-in headings, roles become links to the page once its
address is known and text until then, with titles in quotation marks; numbers are those of the page,
quizzes are lists with folded answers.
Solutions are absent; only an instructor's notebook has them, with hidden checks and rubrics. The
same source gives the same bytes on every run and machine.

    python tools/write_notebooks.py          # all lessons
    python tools/write_notebooks.py check    # compare with what is committed, write nothing
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path

import settings as project
from bibliography import Bibliography
from lesson_source import (
    ADMONITIONS,
    ROLES,
    THEOREMS,
    Block,
    Break,
    Cell,
    Directive,
    Exercise,
    Heading,
    Lesson,
    Math,
    Prose,
    Quiz,
    Rubric,
    Solution,
    SourceError,
    in_words,
    list_table,
)
from numbering import Book, read_book
from settings import ROOT, Settings

_ROLE = re.compile(r"\{([^}\s]*)\}(`+)(?!`)")
EDITIONS = ("student", "instructor")
_EXPLICIT = re.compile(r"(.*?)\s*<([^<>]+)>\s*$", re.S)


def install_cell(settings: Settings) -> str:
    """The first code cell: gets the library where it is missing, and says what it did.

    The versions of torch and NumPy that are there are asked for along with the library, so that
    pip cannot replace them: either all fits together or nothing is installed. Its own output is
    shown only when it fails; on a machine with many packages it warns of faults that are not ours.
    """
    if not settings.repository:
        otherwise = [
            '    print("The library fourviews is missing, and this book has no public address yet: "',
            '          "install it from a copy of the repository with pip.")',
        ]
        also: list[str] = []
    else:
        line = f"fourviews[lessons,data] @ git+{settings.repository}@{settings.tag}"
        also = ["import subprocess", "import sys", "from importlib.metadata import version"]
        otherwise = [
            f'    package = "{line}"',
            '    there = [name for name in ("torch", "numpy") if importlib.util.find_spec(name)]',
            '    keep = [f"{name}=={version(name)}" for name in there]',
            '    pip = [sys.executable, "-m", "pip", "install", "-q", package, *keep]',
            "    done = subprocess.run(pip, capture_output=True, text=True)",
            "    importlib.invalidate_caches()",
            "    if done.returncode == 0:",
            f'        print("Installed fourviews {settings.tag}.")',
            "    else:",
            '        print(f"Could not install {package}. This is what pip says:")',
            "        print(done.stdout + done.stderr, file=sys.stderr)",
        ]
    return "\n".join(
        [
            "# Set-up for Colab and other fresh machines. An installed torch stays as it is.",
            "import importlib.util",
            *also,
            "",
            'if importlib.util.find_spec("fourviews"):',
            '    print("fourviews is installed.")',
            "else:",
            *otherwise,
        ]
    )


class NotebookWriter:
    """One lesson to one notebook of one edition."""

    def __init__(
        self,
        lesson: Lesson,
        book: Book,
        works: Bibliography,
        settings: Settings,
        edition: str = "student",
    ):
        if edition not in EDITIONS:
            raise ValueError(f"edition {edition!r}: need one of {', '.join(EDITIONS)}")
        self.lesson, self.book, self.works, self.settings = lesson, book, works, settings
        self.edition = edition
        self.shown_as = f"lessons_src/{lesson.path.name}"
        self.chapter = book.chapters[lesson.name]
        self.cited: set[str] = set()
        self.cells: list[dict] = []
        self.pending: list[str] = []
        self.seen: dict[str, int] = {}

    def fail(self, line: int, message: str):
        raise SourceError(self.shown_as, line, message)

    def notebook(self) -> dict:
        self.code(install_cell(self.settings), [])
        for block in self.lesson.blocks:
            self.top(block)
        self.flush()
        return self.finished()

    def finished(self) -> dict:
        """The notebook of the cells so far, with the works that they cite at its end."""
        if self.cited:
            items = self.works.reference_list(self.cited)
            self.pending = ["## References", "\n".join(items)]
            self.flush()
        return {
            "cells": self.cells,
            "metadata": {
                "kernelspec": {
                    "display_name": "Python 3",
                    "language": "python",
                    "name": "python3",
                },
                "language_info": {"name": "python"},
            },
            "nbformat": 4,
            "nbformat_minor": 5,
        }

    # Cells

    def identifier(self, kind: str, source: str) -> str:
        """A cell's id: the same for the same text, and different for a second copy of it."""
        key = f"{self.lesson.name}\0{kind}\0{source}"
        self.seen[key] = self.seen.get(key, 0) + 1
        return hashlib.sha256(f"{key}\0{self.seen[key]}".encode()).hexdigest()[:12]

    def flush(self) -> None:
        source = "\n\n".join(part for part in self.pending if part)
        self.pending = []
        if source:
            self.cells.append(
                {
                    "cell_type": "markdown",
                    "id": self.identifier("markdown", source),
                    "metadata": {},
                    "source": source.splitlines(keepends=True),
                }
            )

    def code(self, source: str, tags: list[str]) -> None:
        self.flush()
        metadata: dict = {"tags": sorted(tags)} if tags else {}
        if "hide-input" in tags or "hide-cell" in tags:
            metadata["jupyter"] = {"source_hidden": True}
        self.cells.append(
            {
                "cell_type": "code",
                "execution_count": None,
                "id": self.identifier("code", source),
                "metadata": metadata,
                "outputs": [],
                "source": source.splitlines(keepends=True),
            }
        )

    def top(self, block: Block) -> None:
        if isinstance(block, Cell):
            self.code(block.source, block.tags)
            if block.name:
                caption = self.inline(block.caption or "", block.line)
                self.pending.append(f"**{self.book.entries[block.name].name}.** {caption}")
        elif isinstance(block, Break):
            self.flush()
        elif isinstance(block, Heading):
            self.flush()
            title = self.inline(block.text, block.line)
            if block.level == 1:
                title = f"{self.chapter}. {title}"
            self.pending.append("#" * block.level + " " + title)
        elif isinstance(block, Exercise):
            self.flush()
            entry = self.book.entries[block.label]
            title = self.title(block.title, block.line)
            self.pending.append(f"**{entry.name} ({title}).** ({block.effort})")
            for inner in block.blocks:
                self.top(inner)
            self.flush()
        elif isinstance(block, Solution):
            self.flush()
            if self.edition == "instructor":
                self.solution(block)
        elif isinstance(block, Quiz):
            self.flush()
            self.pending.append(self.quiz(block))
            self.flush()
        else:
            self.pending.append(self.text(block))

    def solution(self, solution: Solution) -> None:
        """All that belongs to a solution, for the instructor's notebook."""
        name = self.book.entries[solution.label].name
        self.pending.append(f"**Solution to {name}.** *Canary {solution.canary}*")
        checks = {check.cell.line: check for check in solution.hidden_checks}
        for block in solution.blocks:
            if isinstance(block, Rubric):
                items = [
                    f"- **{in_words(points, 'point')}:** {self.inline(words, block.line)}"
                    for points, words in block.items
                ]
                self.pending.append("\n".join(["**Rubric.**", "", *items]))
                continue
            if isinstance(block, Cell) and block.line in checks:
                words = self.inline(checks[block.line].description, block.line)
                self.pending.append(f"**Hidden check.** {words}")
            self.top(block)
        self.flush()

    def quiz(self, quiz: Quiz) -> str:
        """Question and choices, the answer and what is said to each choice folded below."""
        choices, said = [], []
        for letter, choice in zip("abcde", quiz.choices, strict=False):
            text = self.run(choice.text)
            choices.append(f"- ({letter}) {text}")
            verdict = "Right." if choice.correct else "Not quite."
            said.append(f"- ({letter}) **{verdict}** {self.run(choice.explanation)}")
        right = next(
            letter for letter, choice in zip("abcde", quiz.choices, strict=False) if choice.correct
        )
        parts = [
            f"**Quick question.** {self.texts(quiz.question)}",
            "\n".join(choices),
            f"<details><summary>The answer, and why</summary>\n\nIt is ({right}).",
            "\n".join(said),
            "</details>",
        ]
        return "\n\n".join(parts)

    def run(self, lines: list[tuple[int, str]]) -> str:
        """Numbered lines of one paragraph as a single line."""
        text = self.inline("\n".join(text for _, text in lines), lines[0][0])
        return re.sub(r"\s*\n\s*", " ", text)

    # Blocks of text

    def texts(self, blocks: list[Block]) -> str:
        return "\n\n".join(part for part in map(self.text, blocks) if part)

    def text(self, block: Block) -> str:
        if isinstance(block, Prose):
            return self.prose(block)
        if isinstance(block, Math):
            return self.math(block.body, block.label, block.indent)
        assert isinstance(block, Directive)
        name, argument = block.name, block.argument
        if name in ADMONITIONS:
            return f"**{ADMONITIONS[name]}.** {self.texts(block.children)}"
        if name == "admonition":
            return f"**{self.sentence(argument, block.line)}** {self.texts(block.children)}"
        if name == "dropdown":
            summary = self.inline(argument, block.line)
            body = self.texts(block.children)
            return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"
        if name == "epigraph":
            body = self.texts(block.children)
            return "\n".join(f"> {line}".rstrip() for line in body.split("\n"))
        if name == "index":
            return ""
        if name == "math":
            body = [text.strip() for _, text in block.body if text.strip()]
            return self.math(body, block.options.get("label"), "")
        if name == "figure":
            return self.figure(block)
        if name in ("table", "list-table"):
            rows = self.rows(block) if name == "list-table" else self.texts(block.children)
            if not argument:
                return rows
            entry = self.book.entries[block.options["name"]]
            return f"**{entry.name}.** {self.inline(argument, block.line)}\n\n{rows}"
        if name == "prf:proof":
            return f"*Proof.* {self.texts(block.children)}"
        kind = name.removeprefix("prf:")
        if kind in THEOREMS:
            label = block.options.get("label")
            heading = self.book.entries[label].name if label else kind.capitalize()
            if argument:
                heading += f" ({self.title(argument, block.line)})"
            return f"**{heading}.** {self.texts(block.children)}"
        self.fail(block.line, f"directive {{{name}}} has no form in plain Markdown")

    def title(self, text: str, line: int) -> str:
        """A title that is going to be set in bold, so without bold words of its own."""
        return self.inline(text.replace("**", ""), line)

    def sentence(self, text: str, line: int) -> str:
        text = self.title(text, line)
        return text if text.endswith((".", "!", "?", ":")) else text + "."

    def math(self, body: list[str], label: str | None, indent: str) -> str:
        lines = list(body)
        if label:
            lines[-1] += rf" \tag{{{self.book.entries[label].number}}}"
        return "\n".join(indent + line for line in ["$$", *lines, "$$"])

    def figure(self, block: Directive) -> str:
        entry = self.book.entries[block.options["name"]]
        caption = self.inline(" ".join(text for _, text in block.body).strip(), block.line)
        source = block.argument
        if self.settings.github_path and not re.match(r"https?:", source):
            # A notebook opened on Colab stands alone: the picture comes from the repository.
            source = f"{self.settings.repository}/raw/{self.settings.tag}/book/{source.lstrip('/')}"
        return f"![{block.options['alt']}]({source})\n\n**{entry.name}.** {caption}"

    def rows(self, block: Directive) -> str:
        rows = [
            [
                " ".join(self.inline(text, number) for number, text in cell)
                .replace("|", r"\|")
                .strip()
                for cell in row
            ]
            for row in list_table(block, self.fail)
        ]
        heads = int(block.options.get("header-rows") or 0)
        if heads > 1:
            self.fail(block.line, "list-table: plain Markdown has one header row at most")
        if heads == 0:
            rows.insert(0, [""] * len(rows[0]))
        rows.insert(1, ["---"] * len(rows[0]))
        return "\n".join("| " + " | ".join(row) + " |" for row in rows)

    def prose(self, block: Prose) -> str:
        """Paragraphs, with roles replaced; code blocks as they are."""
        out: list[str] = []
        run: list[tuple[int, str]] = []

        def flush() -> None:
            if run:
                out.append(self.inline("\n".join(text for _, text in run), run[0][0]))
                run.clear()

        fence: str | None = None
        for number, text in block.lines:
            marks = re.match(r"\s*(`{3,}|~{3,})", text)
            if fence is None and marks:
                flush()
                fence = marks.group(1)
                out.append(text)
            elif fence is not None:
                out.append(text)
                if (
                    text.strip()
                    and set(text.strip()) == {fence[0]}
                    and len(text.strip()) >= len(fence)
                ):
                    fence = None
            elif not text.strip():
                flush()
                out.append("")
            else:
                run.append((number, text))
        flush()
        return "\n".join(line.rstrip() for line in out)

    # Text within a paragraph

    def inline(self, text: str, line: int) -> str:
        out: list[str] = []
        at = 0

        def here() -> int:
            return line + text[:at].count("\n")

        while at < len(text):
            char = text[at]
            if char == "\\" and at + 1 < len(text):
                out.append(text[at : at + 2])
                at += 2
            elif char == "$":
                end = _closing_dollar(text, at + 1)
                if end < 0:
                    self.fail(
                        here(), "`$` without a second one in the paragraph; write \\$ for the sign"
                    )
                out.append(text[at : end + 1])
                at = end + 1
            elif char == "`":
                ticks = re.match(r"`+", text[at:]).group(0)
                end = _closing_ticks(text, at + len(ticks), ticks)
                if end < 0:
                    self.fail(here(), f"{ticks} without its counterpart in the paragraph")
                out.append(text[at : end + len(ticks)])
                at = end + len(ticks)
            elif char == "{" and (role := _ROLE.match(text, at)):
                ticks = role.group(2)
                end = _closing_ticks(text, role.end(), ticks)
                if end < 0:
                    self.fail(here(), f"role {{{role.group(1)}}} without closing {ticks}")
                content = re.sub(r"\s+", " ", text[role.end() : end])
                out.append(self.role(role.group(1), content, here()))
                at = end + len(ticks)
            elif text.startswith("{{", at):
                self.fail(here(), "substitution `{{`: not available in notebooks")
            elif char == "[" and (link := re.match(r"\[([^\]\[]*)\]\(([^()\s]+)\)", text[at:])):
                out.append(self.link(link.group(1), link.group(2), here()))
                at += link.end()
            elif char == "!" and re.match(r"!\[", text[at:]):
                self.fail(
                    here(), "pictures stand in {figure}, with name, alternative text and caption"
                )
            else:
                out.append(char)
                at += 1
        return "".join(out)

    def link(self, text: str, target: str, line: int) -> str:
        if re.match(r"(https?|mailto):", target):
            return f"[{self.inline(text, line)}]({target})"
        if target.startswith("#"):
            return self.reference(target[1:], text, line)
        page, _, fragment = target.removesuffix(".md").partition(".md#")
        if page not in self.book.titles:
            self.fail(line, f"link to {target!r}: no such page")
        shown = self.inline(text, line) or self.called(self.book.titles[page])
        return self.to_page(shown, page, fragment)

    def role(self, name: str, content: str, line: int) -> str:
        if name not in ROLES:
            self.fail(line, f"unknown role {{{name}}}")
        if name == "math":
            return f"${content}$"
        explicit = _EXPLICIT.match(content)
        shown, target = (explicit.group(1), explicit.group(2)) if explicit else ("", content)
        if name in ("term", "index"):
            return shown if explicit else content
        if name.startswith("cite"):
            keys = [key.strip() for key in content.split(",")]
            for key in keys:
                if key not in self.works:
                    self.fail(line, f"citation key {key!r} is not in the bibliography")
            self.cited.update(keys)
            return self.works.textual(keys) if name == "cite:t" else self.works.parenthetical(keys)
        if name == "doc":
            page = target.removeprefix("/")
            if page not in self.book.titles:
                self.fail(line, f"{{doc}} {target!r}: no such page")
            return self.to_page(shown or self.called(self.book.titles[page]), page, "")
        entry = self.book.entries.get(target)
        kinds = {
            "eq": lambda kind: kind == "equation",
            "prf:ref": lambda kind: kind in THEOREMS,
            "numref": lambda kind: kind in ("figure", "table", "exercise"),
            "ref": lambda kind: kind != "equation",
        }
        if entry is None or not kinds[name](entry.kind):
            self.fail(line, f"{{{name}}} {target!r}: no such label")
        if name == "numref" and shown:
            shown = shown.replace("%s", entry.number).replace("{number}", entry.number)
        return self.reference(target, shown, line)

    def reference(self, label: str, shown: str, line: int) -> str:
        entry = self.book.entries.get(label)
        if entry is None:
            self.fail(line, f"reference to {label!r}: no such label")
        name = self.called(entry.name) if entry.kind == "section" else entry.name
        return self.to_page(shown or name, entry.page, entry.anchor)

    def called(self, title: str) -> str:
        """A title within a sentence; without a link around it, nothing else shows where it ends."""
        return title if self.settings.pages else f"«{title}»"

    def to_page(self, text: str, page: str, fragment: str) -> str:
        if not self.settings.pages:
            return text
        address = f"{self.settings.pages}/{page}.html" + (f"#{fragment}" if fragment else "")
        return f"[{text}]({address})"


def _closing_dollar(text: str, at: int) -> int:
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == "$":
            return at
        else:
            at += 1
    return -1


def _closing_ticks(text: str, at: int, ticks: str) -> int:
    for match in re.finditer(r"`+", text[at:]):
        if match.group(0) == ticks:
            return at + match.start()
    return -1


def notebook(
    lesson: Lesson,
    book: Book,
    works: Bibliography,
    settings: Settings,
    edition: str = "student",
) -> dict:
    """The notebook of one lesson as a JSON object; with all solutions if for an instructor."""
    return NotebookWriter(lesson, book, works, settings, edition).notebook()


def render(
    root: Path = ROOT, settings: Settings | None = None, edition: str = "student"
) -> dict[str, str]:
    """File name to text of each notebook, from the sources under `root`."""
    settings = settings or project.load(root, use_environment=False)
    book = read_book(root)
    works = Bibliography(root / "book" / "references.bib")
    texts = {}
    for name, lesson in book.lessons.items():
        content = notebook(lesson, book, works, settings, edition)
        text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False)
        texts[f"{name}.ipynb"] = text + "\n"
    return texts


def write(
    target: Path,
    root: Path = ROOT,
    settings: Settings | None = None,
    edition: str = "student",
) -> list[str]:
    """Write the notebooks into `target`, remove those without a lesson; returns what changed."""
    if edition != "student" and target.resolve() == (root / "book").resolve():
        raise ValueError(f"target {target}: book/ holds the student edition, got {edition!r}")
    return put(render(root, settings, edition), target)


def put(texts: dict[str, str], target: Path) -> list[str]:
    """Write these notebooks into `target` and remove all others; returns what changed."""
    changed = []
    target.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        path = target / name
        if not path.exists() or path.read_bytes() != text.encode():
            path.write_bytes(text.encode())
            changed.append(name)
    for path in sorted(target.glob("*.ipynb")):
        if path.name not in texts:
            path.unlink()
            changed.append(path.name)
    return changed


def stale(root: Path = ROOT) -> list[str]:
    """Names of committed notebooks that differ from what the sources give."""
    texts = render(root)
    folder = root / "book"
    names = {path.name for path in folder.glob("*.ipynb")} | set(texts)
    return sorted(
        name
        for name in names
        if name not in texts
        or not (folder / name).exists()
        or (folder / name).read_bytes() != texts[name].encode()
    )


def main(arguments: list[str]) -> int:
    try:
        if arguments == ["check"]:
            names = stale()
            for name in names:
                print(f"book/{name} differs from its lesson: run `make book` and commit it")
            return 1 if names else 0
        for name in write(ROOT / "book"):
            print(f"book/{name}")
    except SourceError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
