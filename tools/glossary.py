"""The glossary's terms, and where a text first uses them.

The book links each term at its first use in a lesson. A word that means other things as well stands in
`BY_AUTHOR`, and is linked only where an author wrote `{term}`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

# «the optimal value», «a code cell», «the head of a list», «out of reach», «complex conjugate», …
BY_AUTHOR = frozenset(
    {"cell", "conjugate", "head", "polar", "reach", "recall at $k$", "smooth", "value"}
)


def read(path: Path) -> list[str]:
    """All terms, in the order of the file."""
    text = path.read_text(encoding="utf-8")
    inside = re.search(r"^```\{glossary\}\n(.*?)^```$", text, re.M | re.S)
    if not inside:
        raise ValueError(f"{path} has no glossary in it")
    return re.findall(r"^(?![:\s])(.+?)\s*$", inside.group(1), re.M)


@cache
def pattern(term: str) -> re.Pattern[str]:
    """The term as a word of a sentence: with a capital in front, in the plural, over a line's end."""
    words = [re.escape(word) for word in term.split()]
    first = words[0]
    if first[0].islower():
        words[0] = f"[{first[0]}{first[0].upper()}]{first[1:]}"
    last = words[-1]
    if last.endswith("y"):
        words[-1] = f"{last[:-1]}(?:y|ies)"
    elif last[-1].islower() and not last.endswith("s"):
        words[-1] = f"{last}(?:es|s)?" if last.endswith(("x", "ch")) else f"{last}s?"
    return re.compile(r"(?<![\w-])" + r"\s+".join(words) + r"(?![\w-])")


def first_uses(text: str, terms: Sequence[str], seen: set[str]) -> list[tuple[int, int, str]]:
    """Places in `text` where terms stand that are not in `seen`, which grows by them.

    Within «linear attention», if that is a term, no other term stands.
    """
    places = sorted(
        (
            (found.start(), found.end(), term)
            for term in terms
            if term not in BY_AUTHOR
            for found in pattern(term).finditer(text)
        ),
        key=lambda place: (place[0], -place[1]),
    )
    uses = []
    end = 0
    for start, stop, term in places:
        if start < end:
            continue
        end = stop
        if term.lower() not in seen:
            seen.add(term.lower())
            uses.append((start, stop, term))
    return uses
