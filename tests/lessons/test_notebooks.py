"""Notebooks say the same as the text, in plain Markdown, byte for byte on every run."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import nbformat
import pytest
from markdown_it import MarkdownIt
from mdit_py_plugins.colon_fence import colon_fence_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.myst_blocks import myst_block_plugin
from mdit_py_plugins.myst_role import myst_role_plugin

import derive_pages
import numbering
import write_notebooks
from lesson_source import ROLES, SourceError
from settings import Settings

ROOT = Path(__file__).resolve().parents[2]
SANDBOX = ROOT / "tests" / "book" / "sandbox"
NOWHERE = Settings(repository="", tag="v1.2.3", pages="")
SOMEWHERE = Settings(
    repository="https://github.com/someone/somewhere",
    tag="v1.2.3",
    pages="https://example.org/book",
)
PLACES = {"unpublished": NOWHERE, "published": SOMEWHERE}
REAL = sorted(path.stem for path in (ROOT / "lessons_src").glob("*.md"))
SMALL = sorted(path.stem for path in (SANDBOX / "lessons_src").glob("*.md"))


def sandbox_sources(target: Path) -> Path:
    """A copy of the sandbox, to be changed at will."""
    shutil.copytree(SANDBOX / "lessons_src", target / "lessons_src")
    shutil.copytree(SANDBOX / "book", target / "book")
    shutil.copy(ROOT / "book" / "references.bib", target / "book")
    return target


@pytest.fixture
def small(tmp_path):
    return sandbox_sources(tmp_path)


def markdown(text: str) -> str:
    notebook = json.loads(text)
    return "\n\n".join(
        "".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown"
    )


def outside_code(text: str) -> str:
    text = re.sub(r"^(`{3,}|~{3,}).*?^\1", "", text, flags=re.S | re.M)
    return re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text, flags=re.S)


def test_committed_notebooks_are_what_the_lessons_give():
    assert write_notebooks.stale(ROOT) == []


def test_a_changed_notebook_is_noticed(small):
    write_notebooks.write(small / "book", small, NOWHERE)
    shutil.copy(ROOT / "pyproject.toml", small)
    assert write_notebooks.stale(small) == []
    path = small / "book" / "second_01_short_lab.ipynb"
    path.write_bytes(path.read_bytes() + b"\n")
    (small / "book" / "third_01_gone.ipynb").write_text("{}")
    assert write_notebooks.stale(small) == ["second_01_short_lab.ipynb", "third_01_gone.ipynb"]


def test_the_same_bytes_in_another_process(small):
    code = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import write_notebooks as w;"
        "from settings import Settings;"
        "w.write(pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[2]), Settings('', 'v1.2.3', ''))"
    )
    out = small / "out"
    for seed in ("1", "2"):
        arguments = [sys.executable, "-c", code, str(ROOT / "tools"), str(small), str(out / seed)]
        subprocess.run(arguments, env={**os.environ, "PYTHONHASHSEED": seed}, check=True)
    first = {path.name: path.read_bytes() for path in (out / "1").iterdir()}
    second = {path.name: path.read_bytes() for path in (out / "2").iterdir()}
    assert first == second
    assert len(first) == 2


def bare_myst(text: str) -> list[str]:
    """What MyST would turn into something else and plain Markdown shows as it stands.

    The grammar is MyST's own, with code spans and maths read first, as it does. Pieces of HTML are
    searched by the letter, since no parser looks into them.
    """
    parser = MarkdownIt("commonmark").enable("table")
    parser.use(dollarmath_plugin).use(myst_role_plugin).use(myst_block_plugin)
    parser.use(colon_fence_plugin)
    found = []
    for block in parser.parse(text):
        for token in [block, *(block.children or [])]:
            if token.type.startswith(("myst_", "colon_fence")):
                found.append(f"{token.type}: {token.meta.get('name', token.info)} {token.content}")
            elif token.type == "fence" and token.info.startswith("{"):
                found.append(f"directive: {token.info}")
            elif token.type in ("html_block", "html_inline"):
                found += re.findall(r"\{[\w:+-]+\}`[^`]*`?", token.content)
    return found


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "text",
    [
        "See {%s}`there`.",
        "See {%s}`the words <there>`, or `{code}` and `more`.",
        "- in a list, `a` then\n  {%s}`there`",
        "| a | b |\n|--|--|\n| $x$ | **{%s}`there`** |",
        "<details><summary>About {%s}`there`</summary>\n\nText\n\n</details>",
        "[a link with {%s}`there`](https://example.org)",
    ],
)
def test_a_bare_role_would_be_seen(role, text):
    assert bare_myst(text % role)


@pytest.mark.parametrize("text", ["(label)=\n# T", "+++", "% words", ":::{note}\nx\n:::"])
def test_other_bare_constructs_would_be_seen(text):
    assert bare_myst(text)
    assert bare_myst("```{note}\nx\n```")


def test_code_and_maths_are_let_stand():
    text = "`{doc}` and `a`, ``{eq}`x` ``, $\\{a\\}$ `b`, f(x) = {x} `y`\n\n```\n{doc}`x`\n```"
    assert bare_myst(text) == []


@pytest.fixture(scope="module")
def rendered(tmp_path_factory) -> dict[tuple[str, str, str], str]:
    """All notebooks of the course and of the sandbox, in both editions, at no address and at one."""
    sandbox = sandbox_sources(tmp_path_factory.mktemp("sandbox"))
    return {
        (name.removesuffix(".ipynb"), place, edition): text
        for place, where in PLACES.items()
        for edition in write_notebooks.EDITIONS
        for root in (ROOT, sandbox)
        for name, text in write_notebooks.render(root, where, edition).items()
    }


@pytest.mark.parametrize("edition", write_notebooks.EDITIONS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", [*REAL, *SMALL])
def test_nothing_of_myst_is_left(rendered, name, place, edition):
    text = rendered[name, place, edition]
    nbformat.validate(nbformat.reads(text, as_version=4))
    cells = json.loads(text)["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    assert all(not cell.get("outputs") for cell in cells)
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            assert bare_myst(source) == []
        else:  # captions and descriptions in code are shown, too
            strings = [n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant)]
            known = "|".join(map(re.escape, ROLES))
            shown = [text for text in strings if re.search(rf"\{{({known})\}}`", str(text))]
            assert shown == []
    plain = outside_code(markdown(text))
    assert not re.search(r"^\s*(:{3,}|`{3,}\s*\{)|^:[a-z-]+:", plain, re.M)


def test_every_notebook_was_looked_at(rendered):
    assert {name for name, _, _ in rendered} == {*REAL, *SMALL}
    assert len(list((ROOT / "book").glob("*.ipynb"))) == len(REAL)


def test_titles_of_pages_end_somewhere(small):
    """As a link where there is a page, in quotation marks where there is none."""
    wanted = "«A short lab» and the words."
    text = write_notebooks.render(small, NOWHERE)["first_01_everything.ipynb"]
    assert wanted in markdown(text)
    assert "(1.2), «Two equations» and this section." in markdown(text)
    text = markdown(write_notebooks.render(small, SOMEWHERE)["first_01_everything.ipynb"])
    assert "«A short lab»" not in text and "«Two equations»" not in text
    address = "https://example.org/book"
    assert f"[Two equations]({address}/first_01_everything.html#two-equations)" in text


def test_numbers_titles_and_references(small):
    text = markdown(write_notebooks.render(small, NOWHERE)["first_01_everything.ipynb"])
    for expected in (
        "# 1. Every *construct* once",
        "**Definition 1.1 (Pattern).** A *pattern* is a row of signs.",
        "**Theorem 1.2 (Descent of $E$).** The step (1.2) never raises $E$:",
        "$$\nE(x_{t+1}) \\le E(x_t). \\tag{1.3}\n$$",
        "*Proof.* By Definition 1.1 and convexity.",
        "**Remark.** Nothing more.",
        "**Fig. 1.2.** The identity $x \\mapsto x$, drawn from two points.",
        "| $n$ | samples, as in (1.1) |",
        "**Table 1.2.** Plain",
        "Fig. 1.1 and Picture 1.2 beside Table 1.1; Exercise 1.1 follows.",
        "**Exercise 1.1 (Warm up).** (code, 5 min, 2 points)",
        "**Exercise 1.2 (Prove it).** (proof, 20 min, 3 points, graded)",
        "**Quick question.** What does the step (1.2) do to $E$?\n\n"
        "It is Theorem 1.2 that says so.\n\n- (a) It raises $E$\n- (b) It never raises $E$\n",
        "<details><summary>The answer, and why</summary>\n\nIt is (b).\n\n"
        "- (a) **Not quite.** That would be a step along $+\\nabla E$.\n"
        "- (b) **Right.** Yes: $E(x_{t+1}) \\le E(x_t)$, which is what the theorem says.\n",
        "**A remark on names.** Boxes have titles.",
        "a work by Cover (1965), others\n(Sahiner et al., 2022; Boyd and Vandenberghe, 2004)",
        "<details><summary>More</summary>\n\nHidden at first",
        "Lemma 2.1 in the other lesson, (2.1) as well.",
        "Code stays: `{eq}` and `a $ b`.",
        "# Not a cell, only shown: $ {eq} $",
        "## References\n\n- Stephen Boyd and Lieven Vandenberghe. *Convex",
    ):
        assert expected in text
    assert "A comment that nobody sees" not in text
    assert "sheep" not in text


def test_references_lead_to_the_pages_once_there_are_any(small):
    text = markdown(write_notebooks.render(small, SOMEWHERE)["first_01_everything.ipynb"])
    address = "https://example.org/book"
    assert f"[Theorem 1.2]({address}/first_01_everything.html#thm-descent)" in text
    assert f"[(1.2)]({address}/first_01_everything.html#equation-eq-step)" in text
    assert f"[A short lab]({address}/second_01_short_lab.html)" in text
    assert f"[the words]({address}/words.html)" in text
    logo = "https://github.com/someone/somewhere/raw/v1.2.3/book/_assets/logo.svg"
    assert f"![Four coloured squares around a white disc]({logo})" in text


def test_no_solution_in_any_notebook(small):
    for text in write_notebooks.render(small, NOWHERE).values():
        assert "canary" not in text.lower()
        assert "fresh_numbers" not in text
        assert not any(canary in text for canary in ("0a1b2c3d", "4e5f6071"))
    text = write_notebooks.render(small, NOWHERE)["first_01_everything.ipynb"]
    assert "def double(x):" in text
    assert 'course.check(\\"ex-warm-up\\", double)' in text


def test_the_instructors_notebook_holds_all_there_is(small):
    text = write_notebooks.render(small, NOWHERE, edition="instructor")["first_01_everything.ipynb"]
    nbformat.validate(nbformat.reads(text, as_version=4))
    words = markdown(text)
    for expected in (
        "**Solution to Exercise 1.1.** *Canary 0a1b2c3d*\n\nCanary practice-solution-canary.",
        "**Hidden check.** Numbers that nobody has seen, hidden-check-canary.",
        "**Rubric.**\n\n- **1 point:** says why, rubric-canary",
        "**Solution to Exercise 1.2.** *Canary 4e5f6071*\n\nCanary graded-solution-canary.",
        "- **2 points:** squares are not negative\n- **1 point:** a sum of such",
    ):
        assert expected in words
    code = [
        "".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"
    ]
    lesson = numbering.read_book(small).lessons["first_01_everything"]
    assert code[1:] == [cell.source for cell in lesson.cells(solutions=True)]
    with pytest.raises(ValueError, match="student edition"):
        write_notebooks.write(small / "book", small, NOWHERE, edition="instructor")
    with pytest.raises(ValueError, match="need one of student, instructor"):
        write_notebooks.render(small, NOWHERE, edition="teacher")


SECRETS = (  # of the sandbox: what no student may see
    "0a1b2c3d",
    "4e5f6071",
    "hidden-check",
    "fresh_numbers",
    "random",
    "rubric",
    "says why",
    "graded-solution-canary",
    "graded-code-canary",
    "squares are not negative",
)


def test_what_is_withheld_does_not_reach_the_pages(small):
    lesson = numbering.read_book(small).lessons["first_01_everything"]
    page = derive_pages.page(lesson, "0" * 32)
    assert "practice-solution-canary" in page
    assert "```{solution-start} ex-warm-up\n:class: dropdown\n```" in page
    assert ":kind:" not in page
    assert [secret for secret in SECRETS if secret in page.lower()] == []
    source = "\n".join(lesson.lines).lower()
    assert [secret for secret in SECRETS if secret not in source] == []  # they could have been


def test_the_instructors_page_shows_all_of_it_unfolded(small):
    lesson = numbering.read_book(small).lessons["first_01_everything"]
    page = derive_pages.page(lesson, "0" * 32, edition="instructor")
    for expected in (
        "```{solution-start} ex-warm-up\n:class: canary-0a1b2c3d\n```",
        "```{solution-start} ex-prove-it\n:class: canary-4e5f6071\n```",
        "\n\n**Hidden check:** Numbers that nobody has seen, hidden-check-canary.\n```{code-cell}",
        "**Rubric**\n- **2 points:** squares are not negative\n- **1 point:** a sum",
        "graded-solution-canary",
    ):
        assert expected in page
    assert "dropdown\n" not in page[page.index("## Exercises") :]
    assert "{rubric}" not in page
    assert page.count("{code-cell}") == len(lesson.cells(solutions=True))
    with pytest.raises(ValueError, match="need one of student, instructor"):
        derive_pages.page(lesson, "0" * 32, edition="teacher")


@pytest.mark.parametrize("edition", derive_pages.EDITIONS)
@pytest.mark.parametrize("blank", [True, False], ids=["roomy", "tight"])
def test_pages_keep_the_lines_of_their_lesson(small, edition, blank):
    if not blank:  # no blank line in the head of the hidden check: one after it has to go
        path = small / "lessons_src" / "first_01_everything.md"
        text = path.read_text(encoding="utf-8")
        assert ":tags: [hidden-check]\n\n" in text
        path.write_text(text.replace(":tags: [hidden-check]\n\n", ":tags: [hidden-check]\n"))
    lesson = numbering.read_book(small).lessons["first_01_everything"]
    page = derive_pages.page(lesson, "0" * 32, edition).split("\n")
    headings = [i for i, text in enumerate(lesson.lines) if text.startswith("#")]
    assert len(headings) > 5
    for i in headings:
        if not lesson.lines[i].startswith("# Not a cell"):
            assert page[i] == lesson.lines[i]
    assert len(page) == len(lesson.lines)


def test_two_lessons_cannot_share_a_canary(small):
    path = small / "lessons_src" / "second_01_short_lab.md"
    text = path.read_text(encoding="utf-8")
    extra = (
        "\n```{exercise-start} More\n:label: ex-more\n:kind: proof\n:minutes: 1\n```\n\nWhy?\n\n"
        "```{exercise-end}\n```\n\n```{solution-start} ex-more\n:canary: 0a1b2c3d\n```\n\nSo.\n\n"
        "```{rubric}\n- 1: so\n```\n\n```{solution-end}\n```\n"
    )
    path.write_text(text + extra, encoding="utf-8")
    with pytest.raises(SourceError, match="canary 0a1b2c3d stands already at") as caught:
        numbering.read_book(small)
    line = (text + extra).split("\n").index("```{solution-start} ex-more") + 1
    assert str(caught.value).startswith(f"lessons_src/second_01_short_lab.md:{line}: ")
    path.write_text(text + extra.replace("0a1b2c3d", "0a1b2c3e"), encoding="utf-8")
    assert numbering.read_book(small).lessons["second_01_short_lab"].exercises()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("{glue}`x`", "unknown role"),
        ("{eq}`eq-none`", "no such label"),
        ("{prf:ref}`eq-energy`", "no such label"),
        ("{doc}`nowhere`", "no such page"),
        ("{cite}`nobody1900`", "not in the bibliography"),
        ("[text](nowhere.md)", "no such page"),
        ("costs $5", "without a second one"),
        ("{{ name }}", "substitution"),
        ("![x](y.png)", "pictures stand in"),
    ],
)
def test_the_writer_stops_with_file_and_line(small, words, message):
    path = small / "lessons_src" / "second_01_short_lab.md"
    text = path.read_text(encoding="utf-8")
    path.write_text(text + f"\nFirst line\nthen {words} here.\n", encoding="utf-8")
    with pytest.raises(SourceError, match=message) as caught:
        write_notebooks.render(small, NOWHERE)
    line = text.count("\n") + 3
    assert str(caught.value).startswith(f"lessons_src/second_01_short_lab.md:{line}: ")


def test_an_address_moves_notebooks_and_install_line_together(small):
    cell = write_notebooks.install_cell(SOMEWHERE)
    line = "fourviews[lessons,data] @ git+https://github.com/someone/somewhere@v1.2.3"
    assert f'"{line}"' in cell
    text = write_notebooks.render(small, SOMEWHERE)["second_01_short_lab.ipynb"]
    assert "".join(json.loads(text)["cells"][0]["source"]) == cell


def test_the_install_line_holds_on_to_torch_and_numpy():
    """What the cell asks of pip where the library is missing; nothing is installed here."""
    pretend = (
        "import importlib.util, subprocess, types\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'fourviews' else found(name)\n"
        "asked = []\n"
        "subprocess.run = lambda command, **_: (\n"
        "    asked.append(command), types.SimpleNamespace(returncode=0))[1]\n"
    )
    code = pretend + write_notebooks.install_cell(SOMEWHERE) + "\nprint(*asked[0][1:], sep='\\n')\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said, *command = done.stdout.splitlines()
    assert said == "Installed fourviews v1.2.3."
    assert command == [
        *("-m", "pip", "install", "-q"),
        "fourviews[lessons,data] @ git+https://github.com/someone/somewhere@v1.2.3",
        f"torch=={version('torch')}",
        f"numpy=={version('numpy')}",
    ]


def test_the_first_cell_says_what_is_missing_without_failing():
    code = write_notebooks.install_cell(NOWHERE)
    hide = "import sys, importlib.util; importlib.util.find_spec = lambda name: None\n"
    done = subprocess.run(
        [sys.executable, "-c", hide + code], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("\n") == 1
    assert "no public address yet" in done.stdout
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "lib")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "fourviews is installed.\n"


@pytest.mark.parametrize("name", REAL)
def test_no_interactive_backend_and_no_builder_in_lessons(name):
    text = (ROOT / "book" / f"{name}.ipynb").read_text(encoding="utf-8")
    code = "\n".join(
        "".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"
    )
    assert not re.search(r"^\s*[%!]|ipympl|myst_nb", code, re.M)
