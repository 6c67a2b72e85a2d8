"""The words for what was corrected, and how they are joined with verdicts and lessons."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import corrections
import ledger
from ledger import Claim, Evidence, Label, LedgerError, Row

ROOT = Path(__file__).resolve().parents[2]
WORDS = """\
cvx-02:
  printed: $P=2$.
  wrong: Not for one row.
  counterexample: One row.
  holds: $P\\le3$.
"""


def _row(id_, verdict, *ends):
    claim = Claim(id_, "patterns", "There are $P$.", "sahiner2022", "Eq. (3)", 1, "Convex duality")
    evidence = [Evidence(id_, None, verdict, Path("tests/test_a.py"), 3, "test_count")]
    labels = [Label(id_, id_ + end, "example", Path("lessons_src/a.md"), 9) for end in ends]
    return Row(claim, evidence, labels=labels)


@pytest.fixture
def rows():
    return [
        _row("cvx-02", "corrected", "", "-counterexample", "-repaired", "-lemma-x"),
        _row("cvx-03", "verified", ""),
    ]


def _read(tmp_path, rows, words=WORDS):
    (tmp_path / "book").mkdir(exist_ok=True)
    (tmp_path / "book" / "corrections.yml").write_text(words)
    return corrections.read(rows, tmp_path)


def _fails(tmp_path, rows, words, *parts):
    with pytest.raises(LedgerError) as caught:
        _read(tmp_path, rows, words)
    assert any(all(part in line for part in parts) for line in caught.value.problems), caught.value


def test_words_verdict_and_statements_are_joined(tmp_path, rows):
    (found,) = _read(tmp_path, rows)
    assert found.row is rows[0] and found.wrong == "Not for one row."
    assert [label.label for label in found.shown] == ["cvx-02-counterexample"]
    assert [label.label for label in found.proved] == ["cvx-02-repaired"]


def test_without_a_repaired_statement_the_row_s_own_is_the_proof(tmp_path):
    (found,) = _read(tmp_path, [_row("cvx-02", "refuted", "", "-counterexample-b")])
    assert [label.label for label in found.proved] == ["cvx-02"]
    assert [label.label for label in found.shown] == ["cvx-02-counterexample-b"]


def test_statements_can_be_named(tmp_path, rows):
    words = WORDS + "  shown: [cvx-03]\n  proved: [cvx-02-lemma-x, cvx-02]\n"
    (found,) = _read(tmp_path, rows, words)
    assert [label.label for label in found.shown] == ["cvx-03"]
    assert [label.label for label in found.proved] == ["cvx-02-lemma-x", "cvx-02"]


def test_a_corrected_row_without_words_is_an_error(tmp_path, rows):
    rows.append(_row("cvx-04", "refuted", "", "-counterexample"))
    _fails(tmp_path, rows, WORDS, "cvx-04 is refuted", "nothing here says")


@pytest.mark.parametrize("id_", ["cvx-03", "cvx-99"])
def test_words_for_a_row_that_is_not_corrected_are_an_error(tmp_path, rows, id_):
    words = WORDS + WORDS.replace("cvx-02", id_)
    _fails(tmp_path, rows, words, "corrections.yml:7:", f"{id_} is no row")


def test_a_verdict_without_a_counterexample_is_an_error(tmp_path):
    rows = [_row("cvx-02", "corrected", "", "-repaired")]
    _fails(tmp_path, rows, WORDS, "cvx-02: a verdict without evidence", "counterexample")


def test_a_verdict_without_a_proof_is_an_error(tmp_path):
    rows = [_row("cvx-02", "corrected", "-counterexample")]
    _fails(tmp_path, rows, WORDS, "cvx-02: a verdict without evidence", "proof of what holds")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("  wrong: Not for one row.\n", "", "'wrong' is missing"),
        ("  wrong: Not for one row.", "  wrong: ''", "wrong must be a text"),
        ("  wrong:", "  worng:", "unknown key 'worng'"),
        ("  holds: $P\\le3$.", "  holds: a\n  shown: [cvx-02-no]", "label 'cvx-02-no'"),
        ("  holds: $P\\le3$.", "  holds: a\n  shown: cvx-02", "must be a list"),
        ("  holds: $P\\le3$.", "  holds: [", "not valid YAML"),
    ],
)
def test_what_cannot_be_understood_is_an_error(tmp_path, rows, old, new, words):
    assert old in WORDS
    _fails(tmp_path, rows, WORDS.replace(old, new), "corrections.yml:", words)


def test_the_page_leads_to_ledger_counterexample_and_proof(tmp_path, rows):
    text = corrections.page(_read(tmp_path, rows), 2)
    assert "2 statements of five papers" in text and "1 of them are false" in text
    assert "{ref}`the ledger <claim-cvx-02>`" in text
    assert "**Counterexample** ({prf:ref}`cvx-02-counterexample`): One row." in text
    assert "**Holds** ({prf:ref}`cvx-02-repaired`): $P\\le3$." in text
    apart = corrections.page(_read(tmp_path, rows), 2, lessons=["other"])
    assert "{prf:ref}" not in apart


# --- the checkout itself ------------------------------------------------------------------


def test_the_words_of_this_book_are_whole():
    rows = ledger.read_all(ROOT)
    found = corrections.read(rows, ROOT)
    assert [item.row for item in found] == [row for row in rows if corrections.is_corrected(row)]


def test_formulas_are_closed():
    words = yaml.safe_load((ROOT / "book" / "corrections.yml").read_text(encoding="utf-8"))
    for id_, entry in words.items():
        for text in entry.values():
            if isinstance(text, str):
                assert text.count("$") % 2 == 0, (id_, text)
                for formula in re.findall(r"\$([^$]+)\$", text):
                    bare = re.sub(r"\\[{}]", "", formula)
                    assert bare.count("{") == bare.count("}"), (id_, formula)
