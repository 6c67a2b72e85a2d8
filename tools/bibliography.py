"""Citations for notebooks: short author-year forms, and a reference list in plain Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pybtex.database import Entry, parse_file
from pybtex.plugin import find_plugin


class Bibliography:
    def __init__(self, path: Path):
        self.path = path
        self.data = parse_file(str(path), bib_format="bibtex")

    def __contains__(self, key: str) -> bool:
        return key in self.data.entries

    def _authors(self, key: str) -> str:
        entry: Entry = self.data.entries[key]
        people = entry.persons.get("author") or entry.persons.get("editor") or []
        names = [_plain(" ".join(person.prelast_names + person.last_names)) for person in people]
        if not names:
            return _plain(entry.fields["title"])
        if len(names) > 2:
            return f"{names[0]} et al."
        return " and ".join(names)

    def textual(self, keys: Sequence[str]) -> str:
        """`Cover (1965)`."""
        forms = [f"{self._authors(key)} ({self.data.entries[key].fields['year']})" for key in keys]
        return ", ".join(forms)

    def parenthetical(self, keys: Sequence[str]) -> str:
        """`(Cover, 1965)`."""
        forms = [f"{self._authors(key)}, {self.data.entries[key].fields['year']}" for key in keys]
        return "(" + "; ".join(forms) + ")"

    # Pybtex looks through all installed packages for each of them.
    @cached_property
    def _style(self) -> Any:
        return find_plugin("pybtex.style.formatting", "plain")()

    @cached_property
    def _backend(self) -> Any:
        return find_plugin("pybtex.backends", "markdown")()

    def reference_list(self, keys: set[str]) -> list[str]:
        """One Markdown item a work, in the order of authors."""
        formatted = self._style.format_bibliography(self.data, sorted(keys))
        items = [re.sub(r"\s+", " ", entry.text.render(self._backend)) for entry in formatted]
        # The backend escapes every sign of punctuation; only these would mean something here.
        items = [re.sub(r"\\([^*_`\[\]<>\\])", r"\1", item) for item in items]
        return [f"- {item.strip()}" for item in items]


def _plain(text: str) -> str:
    from pybtex.richtext import Text

    return str(Text.from_latex(text))
