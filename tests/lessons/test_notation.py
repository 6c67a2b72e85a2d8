"""Sizes have the same letter in all lessons, those of `book/notation.md`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted((ROOT / "lessons_src").glob("*.md"))

# The letter of each size, and letters that it must not have; «$k$ labels» is right, «$n$ tokens» is not.
SIZES = {
    "tokens": "s",
    "samples": "n",
    "features": "d",
    "outputs": "c",
    "classes": "c",
    "neurons": "m",
}
# What else may stand there: all numbers that are predicted, a map of R^n.
ALSO = {"N", "n outputs"}


def misnamed(text: str) -> list[str]:
    """Sizes that stand under another letter than theirs."""
    prose = re.sub(r"```\{code-cell\}.*?^```", "", text, flags=re.S | re.M)
    found = []
    for letter, what in re.findall(r"\$([^$\s]{1,16})\$ (\w+)", prose):
        if what in SIZES and re.fullmatch(r"[a-zN](_(\w|\{[^}]*\}))?", letter):
            if letter != SIZES[what] and not ALSO & {letter, f"{letter} {what}"}:
                found.append(f"${letter}$ {what}")
    return found


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_sizes_have_their_letters(path):
    assert misnamed(path.read_text(encoding="utf-8")) == []


def test_a_wrong_letter_is_noticed():
    assert misnamed("The $n$ tokens of $s$ samples, and $d$ features.") == [
        "$n$ tokens",
        "$s$ samples",
    ]
    assert misnamed("```{code-cell}\n# $n$ tokens\n```\n") == []


def test_the_notation_page_gives_these_letters():
    page = (ROOT / "book" / "notation.md").read_text(encoding="utf-8")
    for what, letter in SIZES.items():
        row = next(line for line in page.split("\n") if line.startswith(f"| ${letter}$ |"))
        assert what in row, (what, row)


def _bars_in_tables(text: str) -> list[str]:
    """Rows of tables with a double bar as LaTeX writes it, which Markdown reads as a single one."""
    return [line for line in text.split("\n") if line.startswith("|") and r"\|" in line]


@pytest.mark.parametrize("folder", ["book", "lessons_src", "instructor"])
def test_norms_in_tables_keep_both_bars(folder):
    for path in sorted((ROOT / folder).glob("*.md")):
        assert _bars_in_tables(path.read_text(encoding="utf-8")) == [], path.name


def test_a_lost_bar_is_noticed():
    assert _bars_in_tables("| $\\|x\\|$ | norm |") and not _bars_in_tables("$\\|x\\|$")
