"""The reader of lessons refuses what it does not understand, with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

import lesson_source
from lesson_source import SourceError

HEAD = """\
---
jupytext:
  text_representation: {extension: .md, format_name: myst}
kernelspec: {display_name: Python 3, language: python, name: python3}
---

# Title

"""
FIRST = HEAD.count("\n") + 1  # the line that a test's own text begins at

EXERCISE = """\
```{exercise-start} Name
:label: ex-a
:kind: code
:minutes: 5
```

Do it.

```{exercise-end}
```
"""
SOLUTION = """\
```{solution-start} ex-a
```

SECRET

```{solution-end}
```
"""


def read(folder: Path, text: str, name: str = "part_01_topic.md"):
    path = folder / name
    path.write_text(HEAD + text, encoding="utf-8")
    return lesson_source.read(path)


def test_a_lesson_with_exercise_and_solution_is_read(tmp_path):
    lesson = read(tmp_path, EXERCISE + "\n" + SOLUTION)
    (exercise,) = lesson.exercises()
    assert exercise.title == "Name"
    assert exercise.effort == "code, 5 min"
    assert exercise.points == 1
    assert exercise.mode == "practice"
    assert exercise.solution is not None
    assert lesson.lines[exercise.solution.line - 1].startswith("```{solution-start}")
    assert lesson.lines[exercise.solution.last - 1] == "```"


REFUSED = {
    "indented gate": (
        EXERCISE + SOLUTION.replace("```{solution-start}", " ```{solution-start}"),
        11,
    ),
    "gate in a quotation": (EXERCISE + "> ```{solution-start} ex-a\n> ```\n", 11),
    "gate in a list": (EXERCISE + "- ```{solution-start} ex-a\n  ```\n", 11),
    "misspelt gate": (EXERCISE + SOLUTION.replace("solution-start", "solution-strat"), 11),
    "gate with an underscore": (
        EXERCISE + SOLUTION.replace("solution-start", "solution_start"),
        11,
    ),
    "gate in capitals": (EXERCISE + SOLUTION.replace("solution-start", "Solution-Start"), 11),
    "gate with a blank": (EXERCISE + SOLUTION.replace("{solution-start}", "{ solution-start}"), 11),
    "gate with four backticks": (
        EXERCISE
        + SOLUTION.replace("```{solution-start} ex-a\n```", "````{solution-start} ex-a\n````"),
        11,
    ),
    "gate fenced by colons": (
        EXERCISE
        + SOLUTION.replace("```{solution-start} ex-a\n```", ":::{solution-start} ex-a\n:::"),
        11,
    ),
    "gate without braces": (EXERCISE + "solution-start ex-a\n\nSECRET\n", 11),
    "gate in a code block": (EXERCISE + "```text\n```{solution-start} ex-a\n```\n", 12),
    "gate in a code cell": (
        EXERCISE + "```{code-cell} ipython3\n# solution-start ex-a\nx = 1\n```\n",
        12,
    ),
    "gate in a directive": (EXERCISE + "````{note}\n" + SOLUTION + "````\n", 12),
    "missing end": (EXERCISE + SOLUTION.replace("```{solution-end}\n```\n", ""), 11),
    "missing start": (EXERCISE + "SECRET\n\n```{solution-end}\n```\n", 13),
    "nested": (EXERCISE.replace("Do it.\n", SOLUTION), 7),
    "solution before its exercise": (SOLUTION + EXERCISE, 1),
    "second solution": (EXERCISE + SOLUTION + SOLUTION, 18),
    "exercise without solution": (EXERCISE, 1),
    "solution of another exercise": (EXERCISE + SOLUTION.replace("ex-a", "ex-b"), 11),
    "text inside the gate's fence": (
        EXERCISE
        + SOLUTION.replace("```{solution-start} ex-a\n", "```{solution-start} ex-a\nSECRET\n"),
        11,
    ),
    "end of the wrong kind": (EXERCISE + SOLUTION.replace("solution-end", "exercise-end"), 16),
    "unknown option": (EXERCISE.replace(":kind:", ":sort:") + SOLUTION, 1),
    "unknown kind": (EXERCISE.replace("kind: code", "kind: fun") + SOLUTION, 1),
    "no minutes": (EXERCISE.replace(":minutes: 5\n", "") + SOLUTION, 1),
    "unknown mode": (EXERCISE.replace(":kind: code", ":kind: code\n:mode: secret") + SOLUTION, 1),
    "numbered equation in a solution": (
        EXERCISE + SOLUTION.replace("SECRET", "$$\nx\n$$ (eq-x)"),
        14,
    ),
    "hidden check in the open": (
        "```{code-cell} ipython3\n:tags: [hidden-check]\n\nassert True\n```\n",
        1,
    ),
    "hidden check in an exercise": (
        EXERCISE.replace("Do it.", "```{code-cell} ipython3\n:tags: [hidden-check]\n\nx = 1\n```")
        + SOLUTION,
        7,
    ),
    "unknown tag": ("```{code-cell} ipython3\n:tags: [hide_input]\n\nx = 1\n```\n", 1),
    "unknown cell option": ("```{code-cell} ipython3\n:load: file.py\n\nx = 1\n```\n", 1),
    "code cell in a directive": ("````{note}\n```{code-cell} ipython3\nx = 1\n```\n````\n", 2),
    "indented code cell": ("- item\n\n  ```{code-cell} ipython3\n  x = 1\n  ```\n", 3),
    "code cell in a dropdown": (
        ":::{dropdown} More\n```{code-cell} ipython3\nx = 1\n```\n:::\n",
        2,
    ),
    "unknown directive": ("```{sidebar} Title\ntext\n```\n", 1),
    "directive not split from its brace": ("``` {note\ntext\n```\n", 1),
    "backtick in a title": ("```{prf:theorem} On {math}`E`\n:label: thm-e\ntext\n```\n", 1),
    "unknown directive option": ("```{note}\n:colour: red\n\ntext\n```\n", 1),
    "unclosed fence": ("```{note}\ntext\n", 1),
    "unclosed mathematics": ("$$\nx", 1),
    "blank line in mathematics": ("$$\nx\n\ny\n$$\n", 3),
    "mathematics within a line": ("so $$x$$ holds\n", 1),
    "bare environment": ("\\begin{align}\nx\n\\end{align}\n", 1),
    "figure without alternative text": ("```{figure} a.png\n:name: fig-a\n\nCaption\n```\n", 1),
    "figure with a file name for a text": (
        "```{figure} a.png\n:name: fig-a\n:alt: the file a.png\n\nCaption\n```\n",
        1,
    ),
    "figure without caption": ("```{figure} a.png\n:name: fig-a\n:alt: one two three\n```\n", 1),
    "cell figure without alternative text": (
        "```{code-cell} ipython3\n---\nmystnb: {figure: {caption: c, name: fig-a}}\n---\nx = 1\n```\n",
        1,
    ),
    "theorem without label": ("```{prf:theorem} Name\ntext\n```\n", 1),
    "label twice": ("$$\nx\n$$ (eq-x)\n\n$$\ny\n$$ (eq-x)\n", 7),
    "proof that begins with a formula": ("```{prf:proof}\n$$\nx\n$$\n```\n", 1),
    "second title": ("# Another\n", 1),
    "magic command": ("```{code-cell} ipython3\nx = 1\n%matplotlib widget\n```\n", 3),
    "shell command": ("```{code-cell} ipython3\n!pip install x\n```\n", 2),
    "syntax error": ("```{code-cell} ipython3\nx = 1\ny = = 2\n```\n", 3),
    "import of the book's machinery": (
        "```{code-cell} ipython3\nfrom myst_nb import glue\n```\n",
        2,
    ),
    "footnote": ("word[^1]\n", 1),
    "metadata at a break": ('+++ {"tags": ["solution"]}\n', 1),
    "tab": ("a\tb\n", 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_file_and_line(tmp_path, name):
    text, line = REFUSED[name]
    with pytest.raises(SourceError) as caught:
        read(tmp_path, text)
    assert caught.value.line == FIRST + line - 1, str(caught.value)
    assert str(caught.value).startswith(f"part_01_topic.md:{caught.value.line}: ")


def test_the_budget_may_be_lowered_only(tmp_path):
    for name, most in (("part_01_topic.md", 45), ("part_02_topic_lab.md", 120)):
        path = tmp_path / name
        for seconds in (most + 1, 0, -1, "true", "many"):
            own = f"fourviews: {{budget_seconds: {seconds}}}\n---\n\n# Title"
            path.write_text(HEAD.replace("---\n\n# Title", own), encoding="utf-8")
            with pytest.raises(SourceError, match="budget_seconds"):
                lesson_source.read(path)
        own = "fourviews: {budget_seconds: 7}\n---\n\n# Title"
        path.write_text(HEAD.replace("---\n\n# Title", own), encoding="utf-8")
        assert lesson_source.read(path).budget_seconds == 7
        path.write_text(HEAD, encoding="utf-8")
        assert lesson_source.read(path).budget_seconds == most


def test_names_of_lessons(tmp_path):
    with pytest.raises(SourceError, match="PART_NN_topic"):
        read(tmp_path, "text\n", name="notes.md")
