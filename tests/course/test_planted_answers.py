"""The reader of planted answers refuses whatever it does not understand, with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

import planted_answers
from lesson_source import SourceError

LESSON = """\
---
kernelspec:
  name: python3
---

# A lesson

```{code-cell} ipython3
from fourviews import course
```

```{exercise-start} Double it
:label: ex-test-double
:kind: code
:minutes: 5
:points: 3
```

Double it.

```{code-cell} ipython3
:tags: [stub]
def double(x):
    ...
```

```{code-cell} ipython3
:tags: [check]
course.check("ex-test-double", double)
```

```{exercise-end}
```

```{solution-start} ex-test-double
:canary: 0a1b2c3d
```

```{code-cell} ipython3
def double(x):
    return 2 * x
```

```{code-cell} ipython3
:tags: [hidden-check]
def negative(double, seed):
    \"\"\"Negative numbers.\"\"\"
    assert double(-1.0 - seed) == -2.0 - 2 * seed, "double(x) is wrong for negative x"
```

```{code-cell} ipython3
:tags: [hidden-check]
def whole(double, seed):
    \"\"\"Whole numbers.\"\"\"
    assert isinstance(double(seed), int), "double(3) is no whole number"
```

```{solution-end}
```

```{exercise-start} Prove it
:label: ex-test-proof
:kind: proof
:minutes: 5
:points: 1
```

Why?

```{exercise-end}
```

```{solution-start} ex-test-proof
:canary: 1a1b2c3d
```

Because.

```{rubric}
- 1: says so
```

```{solution-end}
```
"""

GOOD = """\
# %% Adds nothing
# passes: nothing
# says: double(x) is
def double(x):
    return x


# %% Takes the absolute value
# passes: public, hidden 2
def double(x):
    # a comment of its own
    return 2 * abs(x)
"""


@pytest.fixture
def course_folder(tmp_path) -> Path:
    """A course of one lesson without planted answers."""
    (tmp_path / "lessons_src").mkdir()
    (tmp_path / "lessons_src" / "probe_01_double.md").write_text(LESSON, encoding="utf-8")
    return tmp_path


def plant(root: Path, text: str, name: str = "ex-test-double.py") -> Path:
    path = root / "tests" / "answers" / "probe_01_double" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_answers_are_read(course_folder):
    assert planted_answers.read("probe_01_double", course_folder) == {}
    plant(course_folder, GOOD)
    (label, (first, second)) = planted_answers.read("probe_01_double", course_folder).popitem()
    assert label == "ex-test-double"
    assert (first.title, first.says, first.line) == ("Adds nothing", "double(x) is", 1)
    assert first.passes == frozenset()
    assert first.source == "def double(x):\n    return x"
    assert first.path == "tests/answers/probe_01_double/ex-test-double.py"
    assert second.passes == {"public", "hidden 2"}
    assert (second.says, second.line) == ("", 8)
    assert "# a comment of its own" in second.source


def test_an_unknown_lesson_is_refused(course_folder):
    with pytest.raises(ValueError, match="lesson_name: there is no lesson 'probe_02'"):
        planted_answers.read("probe_02", course_folder)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        (GOOD, "", 1, "there is no wrong answer"),
        ("# %% Adds nothing", "import os\n# %% Adds nothing", 1, "before the first section"),
        ("# %% Adds nothing", "#%% Adds nothing", 1, "a section begins with"),
        ("# %% Takes the", "# %%Takes the", 8, "a section begins with"),
        ("# %% Takes the", "# % Takes the", 8, "a section begins with"),
        ("# %% Takes the", "  # %% Takes the", 8, "a section begins with"),
        ("# %% Takes the absolute value", "# %%", 8, "a section begins with"),
        ("# %% Takes the absolute value", "# %% Adds nothing", 8, "stands already in line 1"),
        ("# passes: nothing\n", "", 1, "`# passes: nothing`, or the checks that pass"),
        ("# passes: nothing\n", "\n# passes: nothing\n", 3, "follow the title at once"),
        ("# passes: nothing\n", "# Passes: nothing\n", 2, "follow the title at once"),
        ("# passes: nothing\n", "# passes:\n", 2, "follow the title at once"),
        ("# passes: nothing\n", "# pass: nothing\n", 2, "follow the title at once"),
        ("# passes: nothing\n", "# passes: nothing\n# passes: public\n", 3, "given twice"),
        ("# says: double(x) is\n", "# say: double(x) is\n", 3, "follow the title at once"),
        ("# says: double(x) is\n", "", 1, "exactly if the public check fails"),
        ("hidden 2\n", "hidden 2\n# says: x\n", 8, "exactly if the public check fails"),
        ("public, hidden 2", "public, hidden two", 8, "passes: need `nothing`, `public`"),
        ("public, hidden 2", "public, hidden 02", 8, "passes: need `nothing`, `public`"),
        ("public, hidden 2", "public, nothing", 8, "passes: need `nothing`, `public`"),
        ("public, hidden 2", "public,", 8, "passes: need `nothing`, `public`"),
        ("public, hidden 2", "public, hidden 3", 8, "has public, hidden 1, hidden 2, not"),
        ("public, hidden 2", "public, public", 8, "named twice"),
        ("public, hidden 2", "public, hidden 1, hidden 2", 8, "passes every check"),
        ("    return x\n", "    return x +\n", 5, "not Python"),
        ("def double(x):\n    return x\n", "# nothing here\n", 1, "a section without an answer"),
        (
            "    # a comment of its own\n    return 2 * abs(x)",
            "    return x",
            8,
            "the one of line 1",
        ),
    ],
)
def test_malformed_files_are_refused(course_folder, old, new, line, words):
    assert GOOD.count(old) == 1
    plant(course_folder, GOOD.replace(old, new))
    with pytest.raises(SourceError) as caught:
        planted_answers.read("probe_01_double", course_folder)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"tests/answers/probe_01_double/ex-test-double.py:{line}: ")


@pytest.mark.parametrize("name", ["ex-test-proof.py", "ex-test-other.py", "notes.txt", "ex.pyc"])
def test_files_without_an_exercise_are_refused(course_folder, name):
    plant(course_folder, GOOD, name)
    with pytest.raises(SourceError, match="has no exercise .* with a check"):
        planted_answers.read("probe_01_double", course_folder)
