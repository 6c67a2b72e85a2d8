"""Cut work into portions whose largest temporary stays within a limit."""

from __future__ import annotations

__all__ = ["portions"]

# Largest temporary of a portion, in entries.
LARGEST = 2**22


def portions(count: int, entries_each: int) -> list[slice]:
    """Slices of ``range(count)``, of items that need ``entries_each`` entries each."""
    size = max(1, LARGEST // max(1, entries_each))
    return [slice(i, min(i + size, count)) for i in range(0, count, size)]
