"""The register, and the module that joins it with tests and lessons.

Everything that fails closed is tried on a small tree of its own; the last tests read the
checkout itself.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

import ledger

ROOT = Path(__file__).resolve().parents[2]

REGISTER = """\
sources:
  cvx:
    key: sahiner2022
    heading: Convex duality
  lml:
    key: amos2019
    heading: Projection
claims:
- id: cvx-02
  title: patterns
  statement: |-
    There are $P$ patterns.
  source: sahiner2022
  place: Eq. (3)
- id: lml-1
  title: the layer
  statement: A projection.
  source: amos2019
  place: Abstract
- id: lml-10
  title: exactly k
  statement: Exactly $k$.
  source: amos2019
  place: Abstract
"""

TEST = """\
import pytest

@pytest.mark.claim("cvx-02", verdict="corrected")
def test_count():
    assert True

@pytest.mark.mutation("cvx-02")
def test_count_altered():
    assert True
"""

HEAD = """\
---
jupytext:
  text_representation: {extension: .md, format_name: myst}
kernelspec: {display_name: Python 3, language: python, name: python3}
---

# Lesson

"""

LESSON = """\
```{prf:theorem} Patterns
:label: cvx-02

There are finitely many.
```

```{prf:theorem} Something of our own
:label: thm-own

Text.
```
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A checkout in small: register, one test file, one lesson, no address yet."""
    for name in ("REPOSITORY", "TAG", "PAGES"):
        monkeypatch.delenv(f"FOURVIEWS_{name}", raising=False)
    _settings(tmp_path, repository="")
    for folder in ("book", "tests", "lessons_src"):
        (tmp_path / folder).mkdir()
    (tmp_path / "book" / "claims.yml").write_text(REGISTER)
    (tmp_path / "tests" / "test_patterns.py").write_text(TEST)
    (tmp_path / "lessons_src" / "convex_02_mlp.md").write_text(HEAD + LESSON)
    return tmp_path


def _settings(tree, repository):
    text = f'[tool.fourviews]\nrepository = "{repository}"\ntag = "v1.0.0"\npages = ""\n'
    (tree / "pyproject.toml").write_text(text)


def _fails(tree, *parts):
    """Reading the tree fails, and one line of the message holds all of ``parts``."""
    with pytest.raises(ledger.LedgerError) as caught:
        ledger.read_all(tree)
    assert any(all(part in line for part in parts) for line in caught.value.problems), str(
        caught.value
    )


def _register(tree, old, new):
    path = tree / "book" / "claims.yml"
    text = path.read_text()
    assert text.count(old) >= 1
    path.write_text(text.replace(old, new, 1))


def _tests(tree, source, name="test_patterns.py"):
    (tree / "tests" / name).write_text("import pytest\n" + textwrap.dedent(source))


def _verdicts(tree):
    return {row.claim.id: row.verdict for row in ledger.read_all(tree)}


# --- the register -------------------------------------------------------------------------


def test_register_is_read_in_order(tree):
    claims = ledger.load_register(tree / "book" / "claims.yml")
    assert [c.id for c in claims] == ["cvx-02", "lml-1", "lml-10"]
    assert claims[0] == ledger.Claim(
        "cvx-02",
        "patterns",
        "There are $P$ patterns.",
        "sahiner2022",
        "Eq. (3)",
        9,
        "Convex duality",
    )


@pytest.mark.parametrize(
    "old, new, line, words",
    [
        ("  title: patterns\n", "", 9, "'title' is missing"),
        ("title: patterns", "titel: patterns", 10, "unknown key 'titel'"),
        (
            "  place: Eq. (3)\n",
            "  place: Eq. (3)\n  verdict: verified\n",
            15,
            "unknown key 'verdict'",
        ),
        ("title: patterns", "title: patterns\n  title: again", 11, "given twice"),
        ("id: lml-10", "id: lml-1", 20, "already used in line 15"),
        ("id: cvx-02", "id: cvx2", 9, "not of the form"),
        ("id: cvx-02", "id: abc-02", 9, "no source has the prefix 'abc'"),
        ("source: sahiner2022", "source: amos2019", 9, "source is 'amos2019', not 'sahiner2022'"),
        ("place: Eq. (3)", "place: ''", 14, "place must be a text"),
        ("place: Eq. (3)", "place: [1, 2]", 14, "place must be a text"),
        ("sources:", "authors:", 2, "unknown key 'authors'"),
        ("    key: amos2019\n", "", 6, "'key' is missing"),
        ("place: Eq. (3)", "place: Eq. (3)\n  untested: ''", 15, "untested must be a text"),
    ],
)
def test_register_with_a_slip_is_refused_with_its_line(tree, old, new, line, words):
    _register(tree, old, new)
    _fails(tree, f"claims.yml:{line}:", words)


@pytest.mark.parametrize(
    "text", ["", "claims: []\nsources: {}\n", "- a\n", "sources: {}\nclaims: {a: b}\n", "a: [\n"]
)
def test_register_without_claims_is_refused(tree, text):
    (tree / "book" / "claims.yml").write_text(text)
    _fails(tree, "claims.yml:")


# --- markers ------------------------------------------------------------------------------


def test_evidence_mutations_and_labels_are_joined(tree):
    rows = {row.claim.id: row for row in ledger.read_all(tree)}
    row = rows["cvx-02"]
    assert [(e.name, e.line, e.verdict) for e in row.evidence] == [("test_count", 4, "corrected")]
    assert [m.name for m in row.mutations] == ["test_count_altered"]
    assert [(label.label, label.kind, label.line) for label in row.labels] == [
        ("cvx-02", "theorem", 9)
    ]
    assert rows["lml-1"].verdict == rows["lml-10"].verdict == "open"


def test_a_row_of_which_a_part_is_untested_is_open_and_names_the_part(tree):
    _register(tree, "place: Eq. (3)", "place: Eq. (3)\n  untested: the count on real data")
    rows = ledger.read_all(tree)
    row = rows[0]
    assert row.verdict == "open" and row.verdicts == {None: "corrected"}
    page = ledger.render(rows, root=tree)
    assert "- **Verdict** (*the count on real data*): open\n- **Verdict**: corrected" in page
    assert "- **open** (3 of 3)" in page


def test_markers_are_found_on_classes_in_lists_and_in_parameters(tree):
    (tree / "lessons_src" / "convex_02_mlp.md").unlink()
    _tests(
        tree,
        """
        from pytest import mark

        pytestmark = [pytest.mark.claim("cvx-02/module", verdict="verified"), pytest.mark.slow]

        @mark.claim("lml-1/on-class", verdict="verified")
        class TestLayer:
            pytestmark = pytest.mark.claim("lml-1/in-class", verdict="empirical")

            @pytest.mark.claim("lml-1/method", verdict="conditional")
            def test_method(self):
                pass

        @mark.parametrize("k", [pytest.param(1, marks=mark.claim("lml-10", verdict="refuted"))])
        def test_parameter(k):
            pass
        """,
    )
    rows = {row.claim.id: row for row in ledger.read_all(tree)}
    assert {(e.part, e.name) for e in rows["lml-1"].evidence} == {
        ("on-class", "TestLayer"),
        ("in-class", "TestLayer"),
        ("method", "TestLayer::test_method"),
    }
    assert [(e.part, e.name) for e in rows["cvx-02"].evidence] == [("module", "")]
    assert [(e.verdict, e.name) for e in rows["lml-10"].evidence] == [("refuted", "test_parameter")]
    assert rows["lml-1"].verdict == "conditional"


@pytest.mark.parametrize(
    "source, words",
    [
        (
            '@pytest.mark.claim("cvx-99", verdict="verified")\ndef test_a(): pass',
            "unknown claim 'cvx-99'",
        ),
        (
            '@pytest.mark.claim("lml-2", verdict="verified")\ndef test_a(): pass',
            "unknown claim 'lml-2'",
        ),
        (
            '@pytest.mark.claim("cvx-02", verdict="true")\ndef test_a(): pass',
            "unknown verdict 'true'",
        ),
        (
            '@pytest.mark.claim("cvx-02", verdict="open")\ndef test_a(): pass',
            "unknown verdict 'open'",
        ),
        ('@pytest.mark.claim("cvx-02")\ndef test_a(): pass', "a claim marker is"),
        ('@pytest.mark.claim("cvx-02", "verified")\ndef test_a(): pass', "a claim marker is"),
        ('@pytest.mark.claim("cvx-02/", verdict="verified")\ndef test_a(): pass', "part ''"),
        (
            '@pytest.mark.claim("cvx-02/Two Words", verdict="verified")\ndef test_a(): pass',
            "part 'Two Words'",
        ),
        ("@pytest.mark.claim(3, verdict='verified')\ndef test_a(): pass", "named by a string"),
        (
            "X = 'cvx-02'\n@pytest.mark.claim(X, verdict='verified')\ndef test_a(): pass",
            "literal strings",
        ),
        (
            "@pytest.mark.claim('cvx-02', **{'verdict': 'verified'})\ndef test_a(): pass",
            "literal strings",
        ),
        ("@pytest.mark.claim\ndef test_a(): pass", "needs an id"),
        ('@pytest.mark.mutation("cvx-99")\ndef test_a(): pass', "unknown claim 'cvx-99'"),
        (
            '@pytest.mark.mutation("cvx-02", verdict="verified")\ndef test_a(): pass',
            "a mutation marker is",
        ),
        (
            '@pytest.mark.claim("cvx-02", verdict="verified")\ndef check_a(): pass',
            "is not run by pytest",
        ),
        (
            'class Layer:\n    @pytest.mark.mutation("cvx-02")\n    def test_a(self): pass',
            "is not run by pytest",
        ),
        (
            'def test_a(request):\n    request.node.add_marker(pytest.mark.mutation("cvx-02"))',
            "must be a decorator",
        ),
        ('known = pytest.mark.claim("cvx-02", verdict="verified")', "must be a decorator"),
        (
            '@pytest.mark.skip("later")\n@pytest.mark.mutation("cvx-02")\ndef test_a(): pass',
            "evidence must run",
        ),
        (
            '@pytest.mark.xfail(strict=True)\n@pytest.mark.mutation("cvx-02")\ndef test_a(): pass',
            "evidence must run",
        ),
        ("def test_a(:\n    pass", "not valid Python"),
    ],
)
def test_a_marker_that_cannot_be_understood_is_an_error_with_its_line(tree, source, words):
    (tree / "tests" / "test_more.py").write_text("import pytest\n" + source + "\n")
    _fails(tree, "test_more.py:", words)


def test_a_marker_in_a_file_that_pytest_does_not_collect_is_an_error(tree):
    _tests(
        tree,
        '@pytest.mark.claim("lml-1", verdict="verified")\ndef test_a(): pass',
        name="helpers.py",
    )
    _fails(tree, "helpers.py:2:", "is not run by pytest")


def test_two_verdicts_for_one_part_are_an_error_naming_both_places(tree):
    _tests(
        tree,
        '@pytest.mark.claim("cvx-02", verdict="verified")\ndef test_a(): pass',
        name="test_more.py",
    )
    _fails(tree, "test_patterns.py:4:", "test_more.py:3", "'corrected'", "'verified'")


def test_the_same_verdict_may_have_several_tests(tree):
    _tests(
        tree,
        '@pytest.mark.claim("cvx-02", verdict="corrected")\ndef test_a(): pass',
        name="test_more.py",
    )
    row = ledger.read_all(tree)[0]
    assert (row.verdict, len(row.evidence)) == ("corrected", 2)


def test_a_mutation_of_a_claim_without_a_verdict_is_an_error(tree):
    _tests(tree, '@pytest.mark.mutation("lml-1")\ndef test_a(): pass', name="test_more.py")
    _fails(tree, "test_more.py:3:", "a mutation of lml-1")


def test_a_row_leads_with_its_most_severe_part(tree):
    order = ["refuted", "not reproduced", "corrected", "conditional", "empirical", "verified"]
    (tree / "lessons_src" / "convex_02_mlp.md").unlink()
    for first in range(len(order)):
        source = "".join(
            f'@pytest.mark.claim("lml-1/p{i}", verdict="{verdict}")\ndef test_{i}(): pass\n'
            for i, verdict in reversed(list(enumerate(order)))
            if i >= first
        )
        _tests(tree, source)
        assert _verdicts(tree)["lml-1"] == order[first]


# --- lessons ------------------------------------------------------------------------------


def _lesson(tree, text):
    (tree / "lessons_src" / "convex_02_mlp.md").write_text(HEAD + textwrap.dedent(text))


def test_further_statements_belong_to_their_claim(tree):
    _lesson(
        tree,
        """\
        ````{prf:example}
        ---
        label: cvx-02-counterexample
        ---
        Look.

        ```{note}
        Words.
        ```
        ````

        ```{prf:lemma}
        :label: cvx-02-lemma-lift

        Text.
        ```
        """,
    )
    labels = [label.label for label in ledger.read_all(tree)[0].labels]
    assert labels == ["cvx-02-counterexample", "cvx-02-lemma-lift"]


def test_a_statement_without_a_test_is_an_error(tree):
    _lesson(tree, "```{prf:theorem}\n:label: lml-1\n\nText.\n```\n")
    _fails(tree, "convex_02_mlp.md:9:", "states lml-1, but no test covers it")


def test_ids_that_begin_alike_are_kept_apart(tree):
    _lesson(tree, "```{prf:theorem}\n:label: lml-10-repaired\n\nText.\n```\n")
    _fails(tree, "convex_02_mlp.md:9:", "states lml-10,")


@pytest.mark.parametrize("label", ["cvx-99", "lml-2-repaired", "cvx-021"])
def test_a_label_that_looks_like_a_claim_but_is_none_is_an_error(tree, label):
    _lesson(tree, f"```{{prf:theorem}}\n:label: {label}\n\nText.\n```\n")
    _fails(tree, "convex_02_mlp.md:9:", f"label '{label}'", "no claim has that id")


def test_a_label_that_stands_in_two_lessons_is_an_error(tree):
    twice = "```{prf:lemma}\n:label: cvx-02\n\nText.\n```\n"
    (tree / "lessons_src" / "convex_03_more.md").write_text(HEAD + twice)
    _fails(tree, "convex_03_more.md:9:", "convex_02_mlp.md:9:", "'cvx-02' stands here too")


def test_a_lesson_that_cannot_be_read_is_an_error(tree):
    _lesson(tree, "```{theorem}\n:label: cvx-02\n\nText.\n```\n")
    _fails(tree, "convex_02_mlp.md:9:")


def test_what_stands_in_a_code_cell_is_no_statement(tree):
    _lesson(
        tree,
        '````{code-cell} ipython3\ntext = """\n```{prf:theorem}\n:label: lml-1\n```\n"""\n````\n',
    )
    assert ledger.read_all(tree)[0].labels == []


# --- gaps ---------------------------------------------------------------------------------


def _whole(tree):
    """Three rows, each with statement, test and mutation."""
    (tree / "lessons_src" / "projection_01_more.md").write_text(
        HEAD
        + "".join(f"```{{prf:lemma}}\n:label: {i}\n\nText.\n```\n\n" for i in ("lml-1", "lml-10"))
    )
    source = "".join(
        f'@pytest.mark.claim("{i}", verdict="verified")\n@pytest.mark.mutation("{i}")\n'
        f"def test_{i.replace('-', '_')}(): pass\n"
        for i in ("lml-1", "lml-10")
    )
    _tests(tree, source, name="test_projection.py")


def _gaps(tree):
    return ledger.gaps(ledger.read_all(tree))


def test_a_whole_ledger_has_no_gap(tree):
    _whole(tree)
    assert _gaps(tree) == []


def test_a_claim_without_a_test_is_a_gap(tree):
    _whole(tree)
    (tree / "lessons_src" / "projection_01_more.md").unlink()
    (tree / "tests" / "test_projection.py").unlink()
    assert _gaps(tree) == [f"{i}: a claim without a test" for i in ("lml-1", "lml-10")]


def test_a_test_without_a_lesson_is_a_gap(tree):
    _whole(tree)
    (tree / "lessons_src" / "projection_01_more.md").unlink()
    assert [gap.split(";")[0] for gap in _gaps(tree)] == [
        f"{i}: a test without a lesson" for i in ("lml-1", "lml-10")
    ]


def test_a_verdict_without_a_mutation_is_a_gap(tree):
    _whole(tree)
    path = tree / "tests" / "test_projection.py"
    path.write_text(path.read_text().replace('@pytest.mark.mutation("lml-10")\n', ""))
    assert _gaps(tree) == ["lml-10: a verdict without evidence; no mutation of «verified» fails"]


def test_the_command_fails_on_gaps_and_names_them(tree, monkeypatch, capsys):
    rows = ledger.read_all(tree)
    monkeypatch.setattr(ledger, "read_all", lambda: rows)
    assert ledger.main(["check"]) == 1
    assert "lml-1: a claim without a test" in capsys.readouterr().err


# --- the page -----------------------------------------------------------------------------


def test_page_shows_verdicts_tests_and_open_rows(tree):
    _tests(
        tree,
        '@pytest.mark.claim("cvx-02/open-cells", verdict="verified")\ndef test_cells(): pass',
        name="test_more.py",
    )
    path = ledger.write_ledger(tree / "derived", root=tree)
    text = path.read_text()
    assert path == tree / "derived" / "ledger.md"
    assert "cvx-02 · patterns · corrected" in text
    assert "- **Verdict**: corrected" in text
    assert "- **Verdict** (*open cells*): verified" in text
    assert (
        "**Tests** in `tests/test_patterns.py`: {testcode}`count <tests/test_patterns.py#L4>`"
        in text
    )
    assert "**Tests** in `tests/test_more.py`: {testcode}`cells <tests/test_more.py#L3>`" in text
    assert "{prf:ref}`cvx-02`" in text
    assert "**Mutations that fail as they must:** 1" in text
    assert "lml-1 · the layer · open" in text and "lml-10 · exactly k · open" in text
    assert "{cite:t}`amos2019`, Abstract" in text
    assert "**corrected** (1 of 3)" in text and "**open** (2 of 3)" in text
    assert "| Convex duality | 1 | 0 |" in text and "| Projection | 2 | 2 |" in text


def test_page_sorts_statements_by_what_they_are_for(tree):
    blocks = ["", "-counterexample-two", "-repaired", "-lemma-own"]
    _lesson(
        tree, "\n".join(f"```{{prf:lemma}}\n:label: cvx-02{end}\n\nX.\n```\n" for end in blocks)
    )
    text = ledger.write_ledger(tree / "derived", root=tree).read_text()
    for heading, end in zip(
        ("Statement", "Counterexample", "Repaired", "Lemmas"), blocks, strict=True
    ):
        assert f"- **{heading}:** {{prf:ref}}`cvx-02{end}`\n" in text


def test_page_links_the_functions_that_tests_compute_with(tree):
    rows = ledger.read_all(tree)
    text = ledger.render(rows, root=tree, functions={"cvx-02": ["convex.solve"]})
    assert "- **Computed with:** {py:obj}`convex.solve <fourviews.convex.solve>`\n" in text
    # A row without a test says nothing, one whose test uses no function says so.
    assert text.count("**Computed with:**") == 1
    text = ledger.render(rows, root=tree, functions={"cvx-02": []})
    assert "- **Computed with:** nothing but the test itself\n" in text
    assert "Computed with" not in ledger.render(rows, root=tree)


def test_page_is_the_same_on_every_run(tree):
    first = ledger.write_ledger(tree / "a", root=tree).read_bytes()
    assert first == ledger.write_ledger(tree / "b", root=tree).read_bytes()


def test_tests_link_to_the_repository_once_it_has_an_address(tree):
    assert "https://" not in ledger.write_ledger(tree / "derived", root=tree).read_text()
    _settings(tree, repository="https://example.org/book/")
    text = ledger.write_ledger(tree / "derived", root=tree).read_text()
    assert "[count](https://example.org/book/blob/v1.0.0/tests/test_patterns.py#L4)" in text


def test_statements_of_lessons_outside_the_build_are_not_linked(tree):
    text = ledger.write_ledger(
        tree / "derived", root=tree, lessons={"convex_01_toolbox"}
    ).read_text()
    assert "{prf:ref}" not in text and "cvx-02 · patterns · corrected" in text


def test_nothing_is_written_when_something_is_wrong(tree):
    _register(tree, "title: patterns", "titel: patterns")
    with pytest.raises(ledger.LedgerError):
        ledger.write_ledger(tree / "derived", root=tree)
    assert not (tree / "derived").exists()


# --- the checkout itself ------------------------------------------------------------------

# The numbering of the register. A row that is added or dropped has to be added or dropped here.
NUMBERS = {
    "cvx": [f"{i:02d}" for i in range(0, 16)] + ["15b"] + [f"{i:02d}" for i in range(16, 26)],
    "opt": [f"{i:02d}" for i in range(1, 11)] + ["10b"] + [f"{i:02d}" for i in range(11, 25)],
    "lml": [str(i) for i in range(1, 11)],
    "spl": [f"{i:02d}" for i in range(1, 18)],
    "cnv": [f"{i:02d}" for i in range(1, 12)],
}


@pytest.fixture(scope="module")
def claims():
    return ledger.load_register(ROOT / "book" / "claims.yml")


def test_register_is_complete_and_in_order(claims):
    assert [c.id for c in claims] == [
        f"{prefix}-{n}" for prefix, numbers in NUMBERS.items() for n in numbers
    ]


def test_sources_of_the_register_stand_in_the_bibliography(claims):
    keys = set(
        re.findall(r"^@\w+\{([^,\s]+),", (ROOT / "book" / "references.bib").read_text(), re.M)
    )
    assert {c.source for c in claims} <= keys


def test_register_says_nothing_about_truth(claims):
    for claim in claims:
        words = set(re.findall(r"[a-z]+", claim.statement.lower()))
        assert not words & {
            "verified",
            "corrected",
            "refuted",
            "false",
            "wrong",
            "counterexample",
        }, claim.id


def test_formulas_of_the_register_are_closed(claims):
    for claim in claims:
        text = claim.statement
        assert text.count("$") % 2 == 0, claim.id
        for formula in re.findall(r"\$\$(.+?)\$\$|\$([^$]+)\$", text, re.S):
            formula = "".join(formula)
            bare = re.sub(r"\\[{}]", "", formula)
            assert bare.count("{") == bare.count("}"), (claim.id, formula)
        assert not re.search(
            r"[–—«»]", "".join(sum(re.findall(r"\$\$(.+?)\$\$|\$([^$]+)\$", text, re.S), ()))
        ), claim.id


def test_displayed_formulas_stand_apart(claims):
    """Between lines of text, two dollar signs would end up inside the paragraph, as text."""
    for claim in claims:
        lines = ["", *claim.statement.split("\n"), ""]
        borders = [i for i, line in enumerate(lines) if "$$" in line]
        assert len(borders) % 2 == 0, claim.id
        for first, last in zip(borders[::2], borders[1::2], strict=True):
            assert lines[first] == lines[last] == "$$", claim.id
            assert lines[first - 1] == lines[last + 1] == "", claim.id
            assert all(lines[first + 1 : last]), claim.id


def test_the_ledger_has_no_gaps():
    assert ledger.gaps(ledger.read_all(ROOT)) == []
