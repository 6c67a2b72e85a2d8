"""Link a term of the glossary where a lesson first uses it.

Authors write `{term}` where a word needs it; nobody keeps track of first uses. So the first time
that a lesson's running text has a term, it becomes a link, unless an earlier place or this one has it
already. Words that mean other things as well, as «value» does, are linked only by their authors.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

# The rules are shared with the tests, which read sources.
sys.path.append(str(Path(__file__).resolve().parents[1]))

import glossary  # noqa: E402

# Text inside of these is no running text, or a link already.
_SKIPPED = (
    nodes.title,
    nodes.rubric,
    nodes.caption,
    nodes.literal,
    nodes.math,
    nodes.reference,
    nodes.raw,
    nodes.literal_block,
    nodes.term,
    nodes.table,
    nodes.footnote,
    addnodes.pending_xref,
)


def link_first_uses(app: Sphinx, doctree: nodes.document) -> None:
    docname = app.env.docname
    path = Path(app.srcdir) / "glossary.md"
    if docname not in app.config.fourviews_lessons or not path.exists():
        return
    terms = glossary.read(path)
    seen: set[str] = set()
    for node in list(doctree.findall(lambda n: isinstance(n, nodes.Text | addnodes.pending_xref))):
        if isinstance(node, addnodes.pending_xref):
            if node.get("reftype") == "term":
                seen.add(node["reftarget"].lower())
        elif _is_running_text(node):
            _link(node, terms, seen, docname)


def _is_running_text(node: nodes.Text) -> bool:
    inside_paragraph = False
    parent = node.parent
    while parent is not None:
        if isinstance(parent, _SKIPPED) or "cell_output" in parent.get("classes", []):
            return False
        inside_paragraph |= isinstance(parent, nodes.paragraph)
        parent = parent.parent
    return inside_paragraph


def _link(node: nodes.Text, terms: Sequence[str], seen: set[str], docname: str) -> None:
    text = node.astext()
    pieces: list[nodes.Node] = []
    end = 0
    for start, stop, term in glossary.first_uses(text, terms, seen):
        link = addnodes.pending_xref(
            "", refdomain="std", reftype="term", reftarget=term.lower(), refdoc=docname
        )
        link["refexplicit"], link["refwarn"] = True, True
        link += nodes.inline("", text[start:stop], classes=["xref", "std", "std-term"])
        link.source, link.line = node.parent.source, node.parent.line
        pieces += [nodes.Text(text[end:start]), link]
        end = stop
    if pieces:
        at = node.parent.index(node)
        node.parent[at : at + 1] = [*pieces, nodes.Text(text[end:])]


def note_glossary(app: Sphinx, config) -> None:
    """A new glossary means new links: every page is read again."""
    path = Path(app.srcdir) / "glossary.md"
    if path.exists():
        config.fourviews_glossary = hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def setup(app: Sphinx) -> None:
    app.add_config_value("fourviews_glossary", "", "env")
    app.add_config_value("fourviews_lessons", [], "env")
    app.connect("config-inited", note_glossary)
    app.connect("doctree-read", link_first_uses)
