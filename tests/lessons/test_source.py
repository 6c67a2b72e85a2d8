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
:kind: proof
:minutes: 5
```

Do it.

```{exercise-end}
```
"""
SOLUTION = """\
```{solution-start} ex-a
:canary: 0a1b2c3d
```

SECRET

```{rubric}
- 1: says so
```

```{solution-end}
```
"""
START = "```{solution-start} ex-a\n:canary: 0a1b2c3d\n```"

# A code exercise: its parts in a known order, so that a test can name lines.
CODE = '''\
```{code-cell} ipython3
import torch
from fourviews import course
```

```{exercise-start} Double
:label: ex-b
:kind: code
:minutes: 5
:points: 3
:mode: graded
```

Double it.

```{code-cell} ipython3
:tags: [stub]

def double(x): ...


def halve(x): ...
```

```{code-cell} ipython3
:tags: [check]

course.check("ex-b", double, halve)
```

```{exercise-end}
```

```{solution-start} ex-b
:canary: 4e5f6071
```

Twice.

```{code-cell} ipython3
def double(x):
    return x + x


def halve(x):
    return x / 2


print(double(torch.ones(2)))
course.check("ex-b", double, halve)
```

```{code-cell} ipython3
:tags: [hidden-check]

import random


def one_way(double, seed):
    """Numbers that nobody has seen."""
    x = random.Random(seed).random()
    assert double(x) == x + x, "double(x) is not x + x"
```

```{code-cell} ipython3
:tags: [hidden-check]

def there_and_back(halve, double, seed):
    """One undoes the other."""
    assert halve(double(seed)) == seed, "halve does not undo double"
```

```{rubric}
- 1: says why two cells
  are enough
```

```{solution-end}
```
'''
QUIZ = """\
```{quiz} quiz-a
How many?

Think of $x$.

- [ ] $8$
  - Too
    many.
- [x] $6$
  - *Just*
    *right*.

- [ ] four
  or fewer
  - Too few.
```
"""


def at(text: str, words: str, skip: int = 0) -> int:
    """The number of the line that holds `words`, past the first `skip` of such lines."""
    lines = [i for i, line in enumerate(text.split("\n"), start=1) if words in line]
    return lines[skip]


def changed(text: str, old: str, new: str, words: str | None = None, skip: int = 0):
    """A faulty text and the line of its fault: the line of `words`, first of what is new."""
    assert text.count(old) == 1, old
    text = text.replace(old, new)
    return text, at(text, words if words is not None else new.split("\n")[0], skip)


def read(folder: Path, text: str, name: str = "part_01_topic.md"):
    path = folder / name
    path.write_text(HEAD + text, encoding="utf-8")
    return lesson_source.read(path)


def test_a_lesson_with_exercise_and_solution_is_read(tmp_path):
    lesson = read(tmp_path, EXERCISE + "\n" + SOLUTION)
    (exercise,) = lesson.exercises()
    assert exercise.title == "Name"
    assert exercise.effort == "proof, 5 min, 1 point"
    assert exercise.points == 1
    assert exercise.automatic_points == 0
    assert exercise.mode == "practice"
    assert exercise.check is None
    assert exercise.stubs == []
    assert exercise.solution is not None
    assert exercise.solution.canary == "0a1b2c3d"
    assert exercise.solution.rubric == [(1, "says so")]
    assert lesson.lines[exercise.solution.line - 1].startswith("```{solution-start}")
    assert lesson.lines[exercise.solution.last - 1] == "```"


def test_the_parts_of_a_code_exercise(tmp_path):
    lesson = read(tmp_path, CODE)
    (exercise,) = lesson.exercises()
    solution = exercise.solution
    assert exercise.effort == "code, 5 min, 3 points, graded"
    assert exercise.automatic_points == 2
    assert exercise.answers == ["double", "halve"]
    assert exercise.check.source == 'course.check("ex-b", double, halve)'
    assert [cell.source.split("(")[0] for cell in exercise.stubs] == ["def double"]
    assert [cell.source.split("(")[0] for cell in solution.code] == ["def double"]
    assert [
        (check.name, check.description, check.parameters) for check in solution.hidden_checks
    ] == [
        ("one_way", "Numbers that nobody has seen.", ["double"]),
        ("there_and_back", "One undoes the other.", ["halve", "double"]),
    ]
    assert solution.hidden_checks[0].cell.source.startswith("import random")
    assert solution.rubric == [(1, "says why two cells are enough")]
    assert lesson.prelude() == ["import torch", "from fourviews import course"]


def test_the_prelude_holds_imports_of_open_cells_once_and_in_order(tmp_path):
    more = (
        "```{code-cell} ipython3\nimport numpy as np\nimport torch\nx = 1\n"
        "from fourviews import (\n    convex,\n)\ndef f():\n    import os\n```\n"
    )
    lesson = read(tmp_path, CODE + more)
    assert lesson.prelude() == [
        "import torch",
        "from fourviews import course",
        "import numpy as np",
        "from fourviews import convex",
    ]


def test_cells_of_the_readers_page_hold_no_hidden_check(tmp_path):
    def first_lines(lesson, solutions):
        return [cell.source.split("\n")[0] for cell in lesson.cells(solutions=solutions)]

    stub, check = "def double(x): ...", 'course.check("ex-b", double, halve)'
    hidden = ["import random", "def there_and_back(halve, double, seed):"]
    graded = read(tmp_path, CODE)
    assert first_lines(graded, "practice") == ["import torch", stub, check]
    assert first_lines(graded, False) == ["import torch", stub, check]
    solved = ["import torch", stub, check, "def double(x):"]
    assert first_lines(graded, True) == [*solved, *hidden]
    practice = read(tmp_path, CODE.replace("mode: graded", "mode: practice"))
    assert first_lines(practice, "practice") == solved
    assert first_lines(practice, False) == ["import torch", stub, check]


def test_a_quiz_is_read(tmp_path):
    (quiz,) = read(tmp_path, "Words.\n\n" + QUIZ).quizzes()
    assert quiz.label == "quiz-a"
    assert (quiz.line, quiz.last) == (FIRST + 2, FIRST + 17)
    assert [block.lines[0][1] for block in quiz.question] == ["How many?"]
    assert [choice.correct for choice in quiz.choices] == [False, True, False]
    assert [text for _, text in quiz.choices[1].explanation] == ["*Just*", "*right*."]
    assert [text for _, text in quiz.choices[2].text] == ["four", "or fewer"]
    assert quiz.choices[2].line == FIRST + 14


def test_a_missing_canary_is_proposed(tmp_path):
    with pytest.raises(SourceError, match=r"put `:canary: [0-9a-f]{8}` under"):
        read(tmp_path, CODE.replace(":canary: 4e5f6071\n", ""))


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
        EXERCISE + SOLUTION.replace(START, f"`{START}`"),
        11,
    ),
    "gate fenced by colons": (
        EXERCISE + SOLUTION.replace(START, START.replace("```", ":::")),
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
    "second solution": (EXERCISE + SOLUTION + SOLUTION, 23),
    "exercise without solution": (EXERCISE, 1),
    "solution of another exercise": (EXERCISE + SOLUTION.replace("ex-a", "ex-b"), 11),
    "text inside the gate's fence": (
        EXERCISE + SOLUTION.replace(":canary: 0a1b2c3d\n", "SECRET\n"),
        11,
    ),
    "end of the wrong kind": (EXERCISE + SOLUTION.replace("solution-end", "exercise-end"), 21),
    "unknown option": (EXERCISE.replace(":kind:", ":sort:") + SOLUTION, 1),
    "unknown kind": (EXERCISE.replace("kind: proof", "kind: fun") + SOLUTION, 1),
    "no minutes": (EXERCISE.replace(":minutes: 5\n", "") + SOLUTION, 1),
    "unknown mode": (EXERCISE.replace(":kind: proof", ":kind: proof\n:mode: secret") + SOLUTION, 1),
    "numbered equation in a solution": (
        EXERCISE + SOLUTION.replace("SECRET", "$$\nx\n$$ (eq-x)"),
        15,
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
    # Parts of an exercise
    "check in the open": ("```{code-cell} ipython3\n:tags: [check]\n\nx = 1\n```\n", 1),
    "check called in the open": (
        '```{code-cell} ipython3\nfrom fourviews import course\n\ncourse.check("ex-b", 1)\n```\n',
        4,
    ),
    "check in a solution": changed(
        CODE,
        "def double(x):\n    return",
        ":tags: [check]\ndef double(x):\n    return",
        "```{code-cell}",
        3,
    ),
    "stub in a solution": changed(
        CODE,
        "def double(x):\n    return",
        ":tags: [stub]\ndef double(x):\n    return",
        "```{code-cell}",
        3,
    ),
    "two parts in one cell": changed(CODE, "[stub]", "[stub, check]", "```{code-cell}", 1),
    "a stub that does not run": changed(
        CODE, "[stub]", "[stub, skip-execution]", "```{code-cell}", 1
    ),
    "a cell of an exercise without a part": changed(
        CODE, ":tags: [stub]\n", "", "```{code-cell}", 1
    ),
    "code exercise without stub": (EXERCISE.replace("proof", "code") + SOLUTION, 1),
    "code exercise without check": (
        EXERCISE.replace("proof", "code").replace(
            "Do it.", "```{code-cell} ipython3\n:tags: [stub]\nx = 1\n```"
        )
        + SOLUTION,
        1,
    ),
    "two checks": changed(
        CODE,
        "```{exercise-end}",
        '```{code-cell} ipython3\n:tags: [check]\ncourse.check("ex-b", double)\n```\n\n'
        "```{exercise-end}",
        "```{code-cell}",
        3,
    ),
    "check without hidden check": (
        CODE[: CODE.index("```{code-cell} ipython3\n:tags: [hidden-check]")]
        + CODE[CODE.index("```{rubric}") :],
        at(CODE, "{solution-start}"),
    ),
    "hidden check without check": (
        EXERCISE
        + SOLUTION.replace(
            "SECRET",
            "```{code-cell} ipython3\n:tags: [hidden-check]\n"
            'def f(x, seed):\n    """Doc."""\n    assert x, "no"\n```',
        ),
        15,
    ),
    "check of another exercise": changed(
        CODE,
        'course.check("ex-b", double, halve)\n```\n\n```{exercise-end}',
        'course.check("ex-c", double, halve)\n```\n\n```{exercise-end}',
    ),
    "check of another exercise in a solution": changed(
        CODE,
        'print(double(torch.ones(2)))\ncourse.check("ex-b"',
        'print(double(torch.ones(2)))\ncourse.check("ex-c"',
        'course.check("ex-c"',
    ),
    "check with other statements": changed(
        CODE, "[check]\n\ncourse", "[check]\n\nx = 1\ncourse", "```{code-cell}", 2
    ),
    "check with an expression": changed(
        CODE,
        "double, halve)\n```\n\n```{ex",
        "double, halve + 1)\n```\n\n```{ex",
        "```{code-cell}",
        2,
    ),
    "check with a keyword": changed(
        CODE,
        "double, halve)\n```\n\n```{ex",
        "double, x=halve)\n```\n\n```{ex",
        "```{code-cell}",
        2,
    ),
    "check without answers": changed(
        CODE, '"ex-b", double, halve)\n```\n\n```{ex', '"ex-b")\n```\n\n```{ex', "```{code-cell}", 2
    ),
    "check that prints": changed(
        CODE,
        'course.check("ex-b", double, halve)\n```\n\n```{ex',
        'print(course.check("ex-b", double, halve))\n```\n\n```{ex',
        "```{code-cell}",
        2,
    ),
    "an answer that no stub defines": changed(
        CODE, "def halve(x): ...", "def half(x): ...", "```{code-cell}", 2
    ),
    "an answer that the solution does not define": changed(
        CODE, "def halve(x):\n", "def half(x):\n", "{solution-start}"
    ),
    "course is not imported": changed(
        CODE, "from fourviews import course", "from fourviews import data", "```{code-cell}", 2
    ),
    "a stub that uses the lesson": changed(
        CODE.replace("from fourviews import course\n", "from fourviews import course\ny = 1\n"),
        "def double(x): ...",
        "def double(x): ...\nprint(y)",
        "print(y)",
    ),
    "a solution that uses the lesson": changed(
        CODE.replace("from fourviews import course\n", "from fourviews import course\ny = 1\n"),
        "return x / 2",
        "return x / 2 * y",
    ),
    "a hidden check that uses the lesson's imports": changed(
        CODE, "x = random.Random(seed).random()", "x = torch.rand(1)"
    ),
    "a hidden check that uses another answer": changed(
        CODE, "assert double(x) == x + x,", "assert double(x) == 4 * halve(x),"
    ),
    "hidden check with a statement beside": changed(
        CODE, "import random\n", "import random\nrandom.seed(0)\n", "random.seed(0)"
    ),
    "hidden check with two functions": changed(
        CODE,
        "def one_way(double, seed):",
        "def other():\n    pass\n\n\ndef one_way(double, seed):",
        "```{code-cell}",
        4,
    ),
    "hidden check without docstring": changed(
        CODE, '    """One undoes the other."""\n', "", "def there_and_back"
    ),
    "hidden check with a long docstring": changed(
        CODE, "One undoes the other.", "One undoes\n    the other.", "def there_and_back"
    ),
    "hidden check without seed": changed(CODE, "halve, double, seed", "seed, halve, double"),
    "hidden check of nothing": changed(CODE, "one_way(double, seed)", "one_way(seed)"),
    "hidden check with a default": changed(
        CODE, "one_way(double, seed)", "one_way(double, seed=0)"
    ),
    "hidden check of an unknown name": changed(
        CODE, "one_way(double, seed)", "one_way(treble, seed)"
    ),
    "hidden check that asserts nothing": changed(
        CODE, "    assert double(x) == x + x,", "    x = double(x) == x + x,", "def one_way"
    ),
    "hidden check without words": changed(
        CODE, 'x + x, "double(x) is not x + x"', "x + x", "assert double(x)"
    ),
    "hidden check that calls the public one": changed(
        CODE,
        "    x = random",
        '    course.check("ex-b", double)\n    x = random',
        "course.check",
        2,
    ),
    "rubric in the open": ("```{rubric}\n- 1: x\n```\n", 1),
    "rubric in an exercise": (EXERCISE.replace("Do it.", "```{rubric}\n- 1: x\n```") + SOLUTION, 7),
    "rubric in a directive": (
        EXERCISE + SOLUTION.replace("SECRET", "````{note}\n```{rubric}\n- 1: x\n```\n````"),
        16,
    ),
    "indented rubric": (EXERCISE + SOLUTION.replace("```{rubric}", " ```{rubric}"), 17),
    "misspelt rubric": (EXERCISE + SOLUTION.replace("{rubric}", "{rubrik}"), 17),
    "two rubrics": (EXERCISE + SOLUTION.replace("SECRET", "```{rubric}\n- 1: x\n```"), 19),
    "empty rubric": (EXERCISE + SOLUTION.replace("- 1: says so\n", ""), 17),
    "rubric with other lines": (EXERCISE + SOLUTION.replace("- 1: says", "- one: says"), 18),
    "rubric item without points": (EXERCISE + SOLUTION.replace("- 1: says", "- 0: says"), 18),
    "rubric with an argument": (EXERCISE + SOLUTION.replace("{rubric}", "{rubric} now"), 17),
    "rubric that gives too much": (EXERCISE + SOLUTION.replace("- 1: says", "- 2: says"), 17),
    "rubric that gives too little": (
        EXERCISE.replace(":minutes: 5", ":minutes: 5\n:points: 2") + SOLUTION,
        18,
    ),
    "proof without rubric": (
        EXERCISE + SOLUTION.replace("```{rubric}\n- 1: says so\n```\n", ""),
        1,
    ),
    "rubric that leaves nothing to the checks": changed(CODE, "- 1: says", "- 3: says", "{rubric}"),
    "no canary beside a hidden check": changed(
        CODE.replace("- 1: says why two cells\n  are enough", "")
        .replace("```{rubric}\n\n```\n", "")
        .replace(":mode: graded\n", ""),
        ":canary: 4e5f6071\n",
        "",
        "{solution-start}",
    ),
    "no canary beside a rubric": (EXERCISE + SOLUTION.replace(":canary: 0a1b2c3d\n", ""), 11),
    "malformed canary": (EXERCISE + SOLUTION.replace("0a1b2c3d", "0A1B2C3D"), 11),
    "canary twice": (
        EXERCISE + SOLUTION + CODE.replace("4e5f6071", "0a1b2c3d"),
        22 + at(CODE, "{solution-start}"),
    ),
    "option of a solution": (EXERCISE + SOLUTION.replace(":canary:", ":kanary:"), 11),
    # Quizzes
    "quiz without label": (QUIZ.replace(" quiz-a", ""), 1),
    "quiz with another label": (QUIZ.replace(" quiz-a", " ex-a"), 1),
    "quiz label twice": (QUIZ + "\n" + QUIZ, 18),
    "quiz with an option": (QUIZ.replace("How many?", ":label: quiz-b"), 1),
    "quiz without question": (QUIZ.replace("How many?\n\nThink of $x$.\n", ""), 1),
    "quiz with two right choices": (QUIZ.replace("- [ ] four", "- [x] four"), 13),
    "quiz without right choice": (QUIZ.replace("[x]", "[ ]"), 1),
    "quiz with two choices": (QUIZ.replace("- [ ] $8$\n  - Too\n    many.\n", ""), 1),
    "quiz with six choices": (QUIZ[:-4] + "- [ ] c\n  - d\n" * 3 + "```\n", 1),
    "choice without explanation": (QUIZ.replace("  - Too\n    many.\n", ""), 6),
    "choice with an empty explanation": (QUIZ.replace("  - Too few.", "  -"), 15),
    "choice with two explanations": (QUIZ.replace("    many.", "  - many."), 8),
    "choice without words": (QUIZ.replace("- [x] $6$", "- [x]"), 9),
    "choice with another mark": (QUIZ.replace("[x]", "[X]"), 9),
    "choice without a mark": (QUIZ.replace("- [x] $6$", "- $6$"), 9),
    "quiz of plain bullets": (QUIZ.replace("- [ ]", "-").replace("- [x]", "-"), 6),
    "text among the choices": (QUIZ.replace("  - Too few.", "Too few."), 15),
    "display maths in a choice": (QUIZ.replace("$6$", "$$6$$"), 9),
    "numbered maths in a quiz": (QUIZ.replace("Think of $x$.", "$$\nx\n$$ (eq-x)"), 4),
    "directive in a quiz": (
        QUIZ.replace("```", "````").replace("Think of $x$.", "```{note}\nx\n```"),
        4,
    ),
    "quiz in a directive": ("````{note}\n" + QUIZ + "````\n", 2),
    "quiz in an exercise": (EXERCISE.replace("Do it.\n", QUIZ) + SOLUTION, 7),
    "quiz in a solution": (EXERCISE + SOLUTION.replace("SECRET\n", QUIZ), 15),
    "indented quiz": ("- a\n\n" + "  " + QUIZ.replace("\n", "\n  "), 3),
    "misspelt quiz": (QUIZ.replace("{quiz}", "{quizz}"), 1),
    "quiz fenced by colons": (QUIZ.replace("```", ":::"), 1),
    "gate in a quiz": (QUIZ.replace("Too few.", "solution-start ex-a"), 15),
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
    "gate in maths": ("````{math}\nx\n```{solution-start} ex-a\n```\n````\n", 3),
    "rubric in maths": ("````{math}\nx\n```{rubric}\n- 1: all\n```\n````\n", 3),
    "cell in dollar maths": ("$$\nx\n```{code-cell} ipython3\nx = 1\n```\n$$\n", 3),
    "hidden check in a list table": (
        "````{list-table}\n* - a\n    ```{code-cell}\n    :tags: [hidden-check]\n    ```\n````\n",
        3,
    ),
    "HTML comment": ("<!-- the answer is 3 -->\n", 1),
    "HTML comment in a line": ("word <!-- the answer is 3 -->\n", 1),
    "HTML comment in a quotation": ("> <!-- the answer is 3 -->\n", 1),
    "HTML comment in a quiz": (
        "```{quiz} quiz-a\nWhich?\n\n- [x] a <!-- why -->\n  - b\n- [ ] c\n  - d\n- [ ] e\n  - f\n```\n",
        4,
    ),
    "HTML that hides gates": ("<div hidden>\n" + EXERCISE + SOLUTION, 1),
    "indented comment": ("text\n\n  % the answer is 3\n", 3),
    "indented break": ('text\n\n +++ {"answer": 3}\n', 3),
    "end of a fence far from its begin": ("```text\nx\n        ```\n", 3),
    "end of a fence after a hard blank": ("```text\nx\n\u00a0```\n", 3),
    "tags that are not YAML": ("```{code-cell} ipython3\n:tags: [stub\nx = 1\n```\n", 1),
    "output options without keys": (
        "```{code-cell} ipython3\n---\nmystnb: {image: 5}\n---\nx = 1\n```\n",
        1,
    ),
    "code that does not compile": ("```{code-cell} ipython3\nx = 1\nreturn x\n```\n", 3),
    "parameter twice": ("```{code-cell} ipython3\ndef f(a, a):\n    pass\n```\n", 2),
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


@pytest.mark.parametrize("key", ["fourviews", "kernelspec"])
def test_front_matter_without_keys_is_refused(tmp_path, key):
    path = tmp_path / "part_01_topic.md"
    path.write_text(f"---\n{key}: 3\n---\n\n# Title\n", encoding="utf-8")
    with pytest.raises(SourceError, match=f"{key} needs keys and values"):
        lesson_source.read(path)
