"""The build fails when it should, says where, and runs again only what has to run again."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import numbering

_spec = importlib.util.spec_from_file_location(
    "sandbox_book", Path(__file__).with_name("sandbox_book.py")
)
sandbox_book = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sandbox_book)

FIRST, SECOND = "first_01_everything", "second_01_short_lab"
CANARIES = (  # what stands in a withheld part of the sandbox's lesson
    "graded-solution-canary",
    "graded-code-canary",
    "hidden-check-canary",
    "fresh_numbers",
    "rubric-canary",
    "squares are not negative",
    "0a1b2c3d",
    "4e5f6071",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """One sandbox for the whole module: its outputs are stored, so later builds are quick."""
    root = sandbox_book.make(tmp_path_factory.mktemp("book"))
    done = sandbox_book.build(root)
    assert done.returncode == 0, done.stdout + done.stderr
    return root, done.stdout


@pytest.fixture
def edit(built):
    """Change files of the sandbox for one test; they are put back afterwards."""
    root, _ = built
    before: dict[Path, bytes] = {}

    def change(name: str, old: str, new: str) -> None:
        path = root / name
        before.setdefault(path, path.read_bytes())
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, (name, old)
        path.write_text(text.replace(old, new), encoding="utf-8")

    yield change
    for path, content in before.items():
        path.write_bytes(content)


def ran(output: str) -> set[str]:
    """Lessons that a build really ran, from its table."""
    return set(re.findall(r"^ +(\w+) +ran ", output, re.M))


LESSONS_ONLY = """\
import sys
from pathlib import Path

sys.path.insert(0, "tools")
from build_book import derive, execute, report

if __name__ == "__main__":
    root = Path.cwd()
    tree, cache = root / "_build" / "derived" / "student", root / "_build" / ".jupyter_cache"
    book = derive(tree, root=root, cache=cache)
    for run in execute(list(book.lessons.values()), tree, cache, root / "lib"):
        print(report(run), run.error or "")
"""


def lessons_only(root: Path) -> str:
    """Derive and run without making pages, which is all that the tests of the cache need."""
    program = root / "lessons_only.py"
    program.write_text(LESSONS_ONLY, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_build_says_where_the_page_is_and_how_long_it_took(built):
    root, output = built
    assert "Open _build/html/index.html" in output
    for stage in ("derive pages and notebooks", "run lessons", "make pages", "together"):
        assert re.search(rf"^{stage} +\d+\.\d s$", output, re.M)
    assert ran(output) == {FIRST, SECOND}
    assert (root / "_build" / "html" / "notebooks" / f"{FIRST}.ipynb").read_bytes() == (
        root / "book" / f"{FIRST}.ipynb"
    ).read_bytes()


def test_numbers_of_pages_and_notebooks_agree(built):
    root, _ = built
    sphinx = json.loads((root / "_build" / "numbers.json").read_text(encoding="utf-8"))
    own = {
        label: {"page": entry.page, "id": entry.anchor, "number": entry.number}
        for label, entry in numbering.read_book(root).entries.items()
        if entry.number
    }
    assert own == sphinx
    assert len(own) == 13


def test_withheld_solutions_are_nowhere_in_what_is_published(built):
    root, _ = built
    practice = False
    for path in (root / "_build").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            practice |= path.suffix == ".html" and b"practice-solution-canary" in content
            for canary in CANARIES:
                assert canary.encode() not in content, path
    assert practice
    page = (root / "_build" / "html" / f"{FIRST}.html").read_text(encoding="utf-8")
    assert re.search(
        r'class="solution dropdown admonition"|class="dropdown solution admonition"', page
    )
    assert not (root / "_build" / "html" / "_sources").exists()


def test_exercises_say_what_they_ask_of_a_reader(built):
    root, _ = built
    page = (root / "_build" / "html" / f"{FIRST}.html").read_text(encoding="utf-8")
    assert '<span class="exercise-effort"> (code, 5 min, 2 points)</span>' in page
    assert '<span class="exercise-effort"> (proof, 20 min, 3 points, graded)</span>' in page
    # The public check ran on the untouched stub.
    assert "ex-warm-up: not yet." in page


def test_a_fault_in_a_quiz_stops_the_build_with_its_line(built, edit):
    root, _ = built
    edit(f"lessons_src/{FIRST}.md", "- [x] It never raises $E$", "- [ ] It never raises $E$")
    done = sandbox_book.build(root)
    assert done.returncode != 0
    source = (root / "lessons_src" / f"{FIRST}.md").read_text(encoding="utf-8").split("\n")
    line = source.index("```{quiz} quiz-descent") + 1
    assert f"lessons_src/{FIRST}.md:{line}: quiz: need exactly one right" in done.stderr


def test_no_page_names_another_site_for_a_script_style_or_picture(built):
    root, _ = built
    for path in (root / "_build" / "html").glob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"<(script|img|iframe)\b[^>]*\bsrc=\"(https?:)?//", text), path
        assert not re.search(
            r"<link\b[^>]*rel=\"(stylesheet|preload)\"[^>]*href=\"(https?:)?//", text
        )
        assert "thebe" not in text.lower()


def test_no_buttons_without_an_address(built):
    root, _ = built
    text = (root / "_build" / "html" / f"{FIRST}.html").read_text(encoding="utf-8")
    assert "colab" not in text
    assert "mybinder" not in text
    assert "source-repository-button" not in text
    assert f'href="notebooks/{FIRST}.ipynb"' in text


def test_buttons_lead_to_the_plain_notebook_at_the_tag(built):
    root, _ = built
    place = root / "published" / "_build"
    done = sandbox_book.build(
        root,
        *("--build-dir", str(place), "--cache", str(root / "_build" / ".jupyter_cache")),
        FOURVIEWS_REPOSITORY="https://github.com/someone/somewhere",
        FOURVIEWS_TAG="v9.8.7",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ran(done.stdout) == set()  # an address changes no output
    for name in (FIRST, SECOND):
        text = (place / "html" / f"{name}.html").read_text(encoding="utf-8")
        links = set(re.findall(r'href="(https://[^"]+)"', text))
        colab = "https://colab.research.google.com/github/someone/somewhere/blob/v9.8.7"
        assert {link for link in links if "colab" in link} == {f"{colab}/book/{name}.ipynb"}
        binder = "https://mybinder.org/v2/gh/someone/somewhere/v9.8.7"
        assert {link for link in links if "mybinder" in link} == {
            f"{binder}?urlpath=lab/tree/book/{name}.ipynb"
        }
        assert "https://github.com/someone/somewhere" in links
        title = f"title=Mistake%20on%20page%20{name}%20%28v9.8.7%29%3A%20"
        assert f"https://github.com/someone/somewhere/issues/new?{title}" in links
        notebook = (place / "html" / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8")
        assert "git+https://github.com/someone/somewhere@v9.8.7" in notebook
    # The committed notebooks follow the file of settings, never the environment.
    assert "someone" not in (root / "book" / f"{FIRST}.ipynb").read_text(encoding="utf-8")


def test_words_change_and_nothing_runs(built, edit):
    root, _ = built
    edit(f"lessons_src/{FIRST}.md", "Words with", "Other words with")
    edit(f"lessons_src/{SECOND}.md", "A short lab", "A brief lab")
    assert ran(lessons_only(root)) == set()


def test_code_changes_and_its_lesson_runs(built, edit):
    root, _ = built
    edit(f"lessons_src/{SECOND}.md", 'print("value"', 'print("the value"')
    assert ran(lessons_only(root)) == {SECOND}


def test_a_library_file_changes_and_the_lessons_that_import_it_run(built, edit):
    root, _ = built
    edit("lib/fourviews/probe_b.py", "2.5", "3.5")
    assert ran(lessons_only(root)) == {SECOND}
    stored = root / "_build" / ".jupyter_cache"
    assert any("value 3.5" in path.read_text() for path in stored.rglob("base.ipynb"))
    edit("lib/fourviews/probe_a.py", "1.5", "1.0")
    assert ran(lessons_only(root)) == {FIRST}


def test_the_lock_changes_and_all_lessons_run(built, edit):
    root, _ = built
    edit("constraints.txt", "# The lock:", "# The changed lock:")
    assert ran(lessons_only(root)) == {FIRST, SECOND}


def test_a_failing_cell_fails_the_build_and_is_named(built, edit):
    root, _ = built
    edit(f"lessons_src/{SECOND}.md", "from fourviews import probe_b", "print(undefined_name)")
    done = sandbox_book.build(root)
    assert done.returncode != 0
    source = (root / "lessons_src" / f"{SECOND}.md").read_text(encoding="utf-8").split("\n")
    line = source.index("print(undefined_name)") + 1
    assert f"lessons_src/{SECOND}.md:{line}: code cell 1 failed: NameError" in done.stderr


def test_a_lesson_over_its_budget_fails_the_build(built, edit):
    root, _ = built
    edit(
        f"lessons_src/{SECOND}.md",
        "name: python3}\n",
        "name: python3}\nfourviews: {budget_seconds: 1}\n",
    )
    busy = "import time\nwhile time.process_time() < 3.0:\n    pass\nfrom fourviews import probe_b"
    edit(f"lessons_src/{SECOND}.md", "from fourviews import probe_b", busy)
    for attempt in ("run", "stored"):
        done = sandbox_book.build(root)
        assert done.returncode != 0, attempt
        assert re.search(
            rf"lessons_src/{SECOND}\.md: took [23]\.\d CPU-seconds, its budget is 1", done.stderr
        )


def test_a_lesson_over_the_memory_limit_is_named(built, edit):
    root, _ = built
    hungry = "block = bytearray(2_100_000_000)\ndel block\nfrom fourviews import probe_b"
    edit(f"lessons_src/{SECOND}.md", "from fourviews import probe_b", hungry)
    output = lessons_only(root)
    assert re.search(rf"lessons_src/{SECOND}\.md: took 2\.\d+ GB of memory", output)


def test_a_picture_without_alternative_text_fails_the_build(built, edit):
    root, _ = built
    picture = "import matplotlib.pyplot as plt\nplt.plot([0, 1])\nplt.show()\nfrom fourviews import probe_b"
    edit(f"lessons_src/{SECOND}.md", "from fourviews import probe_b", picture)
    done = sandbox_book.build(root)
    assert done.returncode != 0
    assert "picture without alternative text" in done.stdout + done.stderr


def test_a_broken_reference_fails_the_build(built, edit):
    root, _ = built
    edit("book/index.md", "{doc}`words`", "{doc}`no_such_page`")
    for _ in range(2):  # and fails again as long as nobody mends it
        done = sandbox_book.build(root)
        assert done.returncode != 0
        assert "no_such_page" in done.stdout + done.stderr


def test_a_changed_style_sheet_reaches_the_pages(built, edit):
    root, _ = built
    edit("book/_assets/course.css", "/* A proof is", "/* canary-of-style; a proof is")
    done = sandbox_book.build(root)
    assert done.returncode == 0, done.stdout + done.stderr
    styles = (root / "_build" / "html" / "_static" / "course.css").read_text(encoding="utf-8")
    assert "canary-of-style" in styles


def test_a_single_lesson_can_be_built(built):
    root, _ = built
    done = sandbox_book.build(root, "--lesson", SECOND)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (root / "_build" / "lesson" / "_build" / "html" / f"{SECOND}.html").exists()
    done = sandbox_book.build(root, "--lesson", "no_such_lesson")
    assert done.returncode != 0
    assert f"there are: {FIRST}, {SECOND}" in done.stderr
