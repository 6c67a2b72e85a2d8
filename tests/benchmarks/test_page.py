"""The page of benchmarks says what the file of results says, and the file what was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def page():
    import page

    return page


def made_up(table: str, rows: int = 3) -> list[list]:
    """Rows with a value of the right kind in each column; sizes and times that grow."""
    import page
    import results

    words = {page.plain: "words"}
    found = []
    for index in range(1, rows + 1):
        row = []
        for name in results.COLUMNS[table]:
            of_words = words.get(page.FORMATS[name][1]) if name in page.FORMATS else None
            fixed = {"seconds": 0.01 * index, "share": 0.1}
            row.append(fixed.get(name, of_words or 10 * index))
        found.append(row)
    return found


@pytest.fixture(scope="module")
def all_parts(page) -> dict[str, dict]:
    return {
        key: {
            "date": "2020-02-20",
            "machine": f"machine of {key}",
            "versions": "python 3",
            "tables": {table: made_up(table) for table in part.tables},
        }
        for key, part in page.PARTS.items()
    }


def test_the_committed_page_is_what_the_results_give(page):
    from results import load

    assert (ROOT / "book" / "benchmarks.md").read_text(encoding="utf-8") == page.render(
        load(page.RESULTS)
    ), "run `python benchmarks/page.py` and commit the page with the results"


def test_the_committed_plots_are_those_of_the_page_and_show_its_lines(page):
    from results import load

    text = (ROOT / "book" / "benchmarks.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\{figure\} (\S+)", text))
    there = {
        path.relative_to(ROOT / "book").with_suffix(".*").as_posix()
        for path in (ROOT / "book" / page.PLOTS).iterdir()
    }
    assert there == named
    parts = load(page.RESULTS)
    for plot in page.ALL_PLOTS:
        svg, pdf = plot.files
        if svg.with_suffix(".*").as_posix() in named:
            (rows,) = (p["tables"][plot.table] for p in parts.values() if plot.table in p["tables"])
            picture = (ROOT / "book" / svg).read_text(encoding="utf-8")
            # A single line has no name.
            for name in plot.lines(rows) if plot.by else [plot.label]:
                assert name in picture, f"{svg} does not show {name}"
            assert (ROOT / "book" / pdf).is_file()


def test_the_committed_results_have_the_columns_of_their_tables(page):
    from results import COLUMNS, load

    parts = load(page.RESULTS)
    assert parts
    for key, run in parts.items():
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", run["date"])
        assert "cores" in run["machine"] and "torch " in run["versions"]
        assert set(run["tables"]) <= set(page.PARTS[key].tables)
        for table, rows in run["tables"].items():
            assert rows and {len(row) for row in rows} == {len(COLUMNS[table])}
            for row in rows:
                values = dict(zip(COLUMNS[table], row, strict=True))
                # A ratio is one of times in the same table, up to what was rounded.
                if "solver" in values and str(values["solver"]).startswith("fourviews"):
                    assert values["ratio"] == 1


def test_parts_of_the_page_are_those_that_are_measured(page):
    import results
    import run

    assert list(page.PARTS) == list(run.PARTS)
    tables = [table for part in page.PARTS.values() for table in part.tables]
    assert sorted(tables) == sorted(results.COLUMNS)
    shown = {name for table in results.COLUMNS for name in page.shown(table)}
    assert shown == set(page.FORMATS)
    for plot in page.ALL_PLOTS:
        assert {plot.x, "seconds"} | ({plot.by} - {""}) <= {*results.COLUMNS[plot.table]}


def test_every_part_has_its_date_its_machine_and_a_line_a_row(page, all_parts):
    text = page.render(all_parts)
    sections = text.split("\n## ")
    assert len(sections) == 1 + len(page.PARTS) + 1
    for (key, part), section in zip(page.PARTS.items(), sections[1:-1], strict=True):
        assert section.startswith(part.title)
        assert f"*2020-02-20, machine of {key}.*" in section
        lines = [line for line in section.split("\n") if line.startswith("|")]
        assert len(lines) == sum(2 + 3 for _ in part.tables)
        assert section.count("{figure}") == sum(p.table in part.tables for p in page.ALL_PLOTS)
    assert sections[-1] == "Versions\n\nAll parts: python 3.\n"


def test_what_was_not_measured_has_no_place(page, all_parts):
    one = {"lml": {**all_parts["lml"], "tables": {"lml": made_up("lml")}}}
    text = page.render(one)
    assert re.findall(r"^## (.*)$", text, re.M) == [page.PARTS["lml"].title, "Versions"]
    two = {**one, "unrolled": {**all_parts["unrolled"], "versions": "python 4"}}
    versions = page.render(two).split("## Versions\n\n")[1]
    assert versions == "LML projection: python 3.\n\nUnrolled energies: python 4.\n"


def test_plots_are_written_for_growth_alone(page, all_parts, tmp_path):
    rows = [["a", 10, "x", 1.0, 1.0, None], ["b", 20, "x", 2.0, 1.0, None]]
    rows += [["a", 10, "y", 1.0, 1.0, None], ["a", None, "y", 3.0, 1.0, None]]
    rows += [["b", 20, "y", None, None, None]]
    (plot,) = (plot for plot in page.ALL_PLOTS if plot.table == "heads")
    assert plot.lines(rows) == {"x": [(10, 1.0), (20, 2.0)]}
    run = {**all_parts["heads"], "tables": {"heads": rows}}
    written = page.write({"heads": run}, tmp_path)
    assert [path.relative_to(tmp_path) for path in written] == [Path("benchmarks.md"), *plot.files]
    assert "<svg" in written[1].read_text(encoding="utf-8")
    assert written[2].read_bytes().startswith(b"%PDF")
    assert page.render({"heads": run}) == written[0].read_text(encoding="utf-8")
    once = [path.read_bytes() for path in written]
    page.write({"heads": run}, tmp_path)
    assert [path.read_bytes() for path in written] == once


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1234.5, "1234 s"),
        (22.4, "22 s"),
        (9.0, "9 s"),
        (0.13, "0.13 s"),
        (0.03, "30 ms"),
        (0.0997, "100 ms"),
    ],
)
def test_seconds_have_two_digits_at_least(page, value, said):
    assert page.seconds(value) == said.replace(" ", "\N{NO-BREAK SPACE}")
    assert page.seconds(None) == "–"
    assert page.seconds(4e-5) == "40\N{NO-BREAK SPACE}µs"


def test_numbers_as_the_page_writes_them(page):
    assert page.small(7.2e-7) == "$7.2 \\cdot 10^{-7}$"
    assert page.small(0.0) == "0" and page.small(None) == page.ratio(None) == "–"
    assert [page.ratio(x) for x in (405.6, 9.96, 1.0, 0.54)] == ["406", "10", "1", "0.54"]
    assert page.count(12345) == "12\u202f345"


def test_a_file_of_results_is_read_as_it_was_written(tmp_path, all_parts):
    import results

    path = tmp_path / "results.json"
    assert results.load(path) == {}
    results.save(path, all_parts)
    assert results.load(path) == json.loads(path.read_text(encoding="utf-8")) == all_parts
    results.save(path, results.load(path))
    assert results.load(path) == all_parts


def test_a_row_has_the_columns_of_its_table():
    import results

    row = results.Row("said", "digits", knots=5, powers=float("inf"), ours=1.23456e-15)
    assert row == "said" and row.values == {"knots": 5, "powers": None, "ours": 1.235e-15}
    assert results.tables_of(["", row, "words"]) == {"digits": [[5, None, 1.235e-15]]}
    with pytest.raises(ValueError, match="values: digits has the columns"):
        results.Row("said", "digits", knots=5, ours=1.0)


def test_a_quick_run_writes_a_page_of_its_own_and_touches_no_results(page, monkeypatch, tmp_path):
    import results
    import run

    def part(quick: bool):
        assert quick
        yield "A title"
        yield results.Row("said", "digits", knots=5, powers=1e-9, ours=1e-15)

    monkeypatch.setattr(run, "FOLDER", tmp_path)
    monkeypatch.setattr(page, "ROOT", tmp_path)
    monkeypatch.setitem(run.PARTS, "spline", part)
    kept = page.RESULTS, page.BOOK / "benchmarks.md"
    before = [path.read_bytes() for path in kept]
    assert run.main(["--quick", "spline"]) == 0
    assert [path.read_bytes() for path in kept] == before
    found = results.load(tmp_path / "results.json")
    assert found["spline"]["tables"] == {"digits": [[5, 1e-9, 1e-15]]}
    assert (tmp_path / "benchmarks.md").read_text(encoding="utf-8") == page.render(found)
    assert "A title\nsaid\n" in (tmp_path / "report.txt").read_text(encoding="utf-8")


def test_a_part_measured_again_takes_its_place_and_leaves_the_others(page, monkeypatch, tmp_path):
    import results
    import run

    for name, ours in (("spline", 1e-15), ("gated", 1e-12), ("spline", 1e-14)):
        row = results.Row("said", "digits", knots=5, powers=1e-9, ours=ours)
        if name == "gated":
            values = {"problem": "p", "size": 1, "solver": "s", "seconds": ours, "ratio": 1.0}
            row = results.Row("said", "gated", **values, accuracy=None)
        monkeypatch.setattr(run, "FOLDER", tmp_path)
        monkeypatch.setattr(page, "ROOT", tmp_path)
        monkeypatch.setitem(run.PARTS, name, lambda quick, row=row: [row])
        assert run.main(["--quick", name]) == 0
    found = results.load(tmp_path / "results.json")
    assert list(found) == ["gated", "spline"]
    assert found["gated"]["tables"] == {"gated": [["p", 1, "s", 1e-12, 1.0, None]]}
    assert found["spline"]["tables"] == {"digits": [[5, 1e-9, 1e-14]]}
