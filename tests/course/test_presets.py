"""Sizes of labs and the tables they leave."""

import datetime
import json
import math

import numpy as np
import pytest
import torch

import run_lab
from fourviews import course
from fourviews.course import presets

SIZES = {"page": {"steps": 5}, "reduced": {"steps": 50}, "full": {"steps": 500}}
LAB = "unrolled_99_test_lab"


@pytest.fixture(autouse=True)
def no_preset(monkeypatch):
    monkeypatch.delenv(presets.VARIABLE, raising=False)


@pytest.mark.parametrize(("name", "steps"), [("page", 5), ("reduced", 50), ("full", 500)])
def test_the_environment_chooses(monkeypatch, name, steps):
    monkeypatch.setenv(presets.VARIABLE, name)
    chosen = course.preset(**SIZES)
    assert (chosen.name, chosen.steps) == (name, steps)


@pytest.mark.parametrize("value", [None, ""])
def test_a_page_is_the_default(monkeypatch, value):
    if value is not None:
        monkeypatch.setenv(presets.VARIABLE, value)
    assert course.preset(**SIZES).name == "page"


def test_an_unknown_preset_is_refused(monkeypatch):
    monkeypatch.setenv(presets.VARIABLE, "large")
    with pytest.raises(ValueError, match="FOURVIEWS_PRESET is 'large'; it must be one of page"):
        course.preset(**SIZES)


def test_all_presets_name_the_same_sizes():
    with pytest.raises(ValueError, match="full and page must name the same sizes; seeds"):
        course.preset(page={"steps": 1}, reduced={"steps": 1}, full={"steps": 1, "seeds": 3})
    with pytest.raises(ValueError, match='a size cannot be called "name"'):
        course.preset(page={"name": 1}, reduced={"name": 1}, full={"name": 1})


def test_a_page_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv(presets.FOLDER_VARIABLE, str(tmp_path))
    assert course.keep_results(LAB, [{"a": 1}], preset=course.preset(**SIZES)) is None
    assert not list(tmp_path.iterdir())


def test_a_table_comes_back_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setenv(presets.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(presets.VARIABLE, "reduced")
    monkeypatch.setattr(presets, "_KEPT", tmp_path)
    assert course.kept_results(LAB) is None
    rows = [
        {"data": "IMDB", "accuracy": 0.1 + 0.2, "layers": torch.tensor(12), "trained": True},
        {"data": None, "accuracy": np.float64(1e-300), "layers": np.int64(3), "trained": False},
    ]
    written = course.keep_results(LAB, rows, preset=course.preset(**SIZES))
    assert course.kept_results(LAB, "reduced") == written
    assert course.kept_results(LAB, "full") is None
    assert [list(row.values()) for row in written.rows] == [
        ["IMDB", 0.1 + 0.2, 12, True],
        [None, 1e-300, 3, False],
    ]
    assert written.date == datetime.date.today().isoformat()
    assert written.commit and "cores" in written.hardware and torch.__version__[:4] in str(written)
    assert [path.name for path in tmp_path.iterdir()] == [f"{LAB}.reduced.json"]


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, [1.0], torch.zeros(2), np.zeros(0), torch.tensor(float("nan"))]
)
def test_what_is_no_number_is_refused_and_nothing_written(tmp_path, monkeypatch, value):
    monkeypatch.setenv(presets.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(presets.VARIABLE, "full")
    with pytest.raises(ValueError, match="rows: accuracy"):
        course.keep_results(LAB, [{"accuracy": value}], preset=course.preset(**SIZES))
    with pytest.raises(ValueError, match="rows is empty"):
        course.keep_results(LAB, [], preset=course.preset(**SIZES))
    assert not list(tmp_path.iterdir())


def test_a_part_is_computed_once_and_only_whole_ones_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv(presets.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(presets.VARIABLE, "full")
    chosen = course.preset(**SIZES)
    calls = []

    def compute():
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return {"weight": torch.arange(3.0), "rows": [{"a": 0.1, "b": None}], "n": 2}

    with pytest.raises(KeyboardInterrupt):
        course.piece(LAB, "long-1.0", compute, preset=chosen)
    assert not list(tmp_path.rglob("*.p*t"))
    first = course.piece(LAB, "long-1.0", compute, preset=chosen)
    again = course.piece(LAB, "long-1.0", compute, preset=chosen)
    assert len(calls) == 2
    assert torch.equal(again.pop("weight"), first.pop("weight")) and again == first
    course.piece(LAB, "other", compute, preset=chosen)
    assert len(calls) == 3

    # Another state of the library computes anew; a table that is written ends it.
    with monkeypatch.context() as other:
        other.setattr(presets, "_commit", lambda: "fourviews 9.9")
        course.piece(LAB, "other", compute, preset=chosen)
        assert len(calls) == 4
    course.keep_results(LAB, [{"a": 1}], preset=chosen)
    course.piece(LAB, "other", compute, preset=chosen)
    assert len(calls) == 5


def test_a_page_computes_each_part(tmp_path, monkeypatch):
    monkeypatch.setenv(presets.FOLDER_VARIABLE, str(tmp_path))
    calls = []
    for _ in range(2):
        course.piece(LAB, "a", lambda: calls.append(1), preset=course.preset(**SIZES))
    assert len(calls) == 2 and not list(tmp_path.iterdir())


class _Other:
    """Nothing that torch would load again."""


def test_a_part_that_could_not_come_back_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv(presets.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(presets.VARIABLE, "full")
    with pytest.raises(ValueError, match="a holds other things than numbers"):
        course.piece(LAB, "a", lambda: _Other(), preset=course.preset(**SIZES))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["", "../a", "a/b", ".a", "a b"])
def test_a_part_has_a_name_that_files_can_have(tmp_path, monkeypatch, name):
    monkeypatch.setenv(presets.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(presets.VARIABLE, "full")
    with pytest.raises(ValueError, match="can name a part"):
        course.piece(LAB, name, lambda: 1, preset=course.preset(**SIZES))


def test_names_are_checked():
    with pytest.raises(ValueError, match="lesson is '../secret'"):
        course.kept_results("../secret")
    with pytest.raises(ValueError, match="preset is 'page'"):
        course.kept_results(LAB, "page")


def test_kept_tables_are_whole():
    for path in presets._KEPT.glob("*.json"):
        lesson, preset, _ = path.name.split(".")
        kept = course.kept_results(lesson, preset)
        assert (kept.lesson, kept.preset) == (lesson, preset) and kept.rows, path.name
        assert "nan" not in json.dumps(kept.rows).lower().replace("banana", ""), path.name


def test_a_lab_runs_in_one_process_without_its_exercises(tmp_path, monkeypatch):
    lab = tmp_path / "lessons_src" / f"{LAB}.md"
    lab.parent.mkdir()
    lab.write_text(_LAB, encoding="utf-8")
    monkeypatch.setattr(run_lab, "ROOT", tmp_path)
    monkeypatch.setenv(presets.FOLDER_VARIABLE, str(tmp_path / "kept"))
    assert run_lab.main([LAB]) == 0
    kept = json.loads((tmp_path / "kept" / f"{LAB}.reduced.json").read_text())
    assert kept["rows"] == [{"steps": 50}]
    assert run_lab.main(["unrolled_98_other_lab"]) == 2
    monkeypatch.delenv(presets.FOLDER_VARIABLE)


def test_a_failing_lab_names_the_line_of_its_source(tmp_path):
    lab = tmp_path / f"{LAB}.md"
    lab.write_text(_LAB.replace("rows = ", "rows = 1 // 0; "), encoding="utf-8")
    line = next(n for n, text in enumerate(lab.read_text().splitlines(), 1) if "1 // 0" in text)
    with pytest.raises(ZeroDivisionError) as failure:
        exec(compile(run_lab.lab_source(lab), str(lab), "exec"), {})
    assert failure.traceback[-1].lineno + 1 == line


_LAB = """\
---
jupytext:
  text_representation: {extension: .md, format_name: myst}
kernelspec: {display_name: Python 3, language: python, name: python3}
---

# A lab

```{code-cell} python
from fourviews import course

preset = course.preset(page={"steps": 5}, reduced={"steps": 50}, full={"steps": 500})
```

```{exercise-start} A proof
:label: ex-test-proof
:kind: proof
:minutes: 1
```

Prove it.

```{exercise-end}
```

```{solution-start} ex-test-proof
:canary: f3a5d297
```

As follows.

```{code-cell} python
answer = 1 / 0
```

```{rubric}
- 1: it follows
```

```{solution-end}
```

```{code-cell} python
rows = [{"steps": preset.steps}]
course.keep_results("unrolled_99_test_lab", rows, preset=preset)
```
"""
