"""What the reference pages and the ledger need of Sphinx.

- A docstring that refers to a name which is not in the reference is a warning, so that the build
  fails. Types in signatures need not be: most are those of torch.
- Fields of named tuples are described in their class's docstring, not one by one.
- The role `{testcode}` links to a test, which the book shows at its line: so a claim leads to its test
  even where there is no repository to look into.
"""

from __future__ import annotations

import hashlib
import json
import pydoc
import re
from pathlib import Path
from typing import NamedTuple

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole
from sphinx.util.osutil import relative_uri

logger = logging.getLogger(__name__)


class testcode(nodes.Inline, nodes.TextElement):
    """A link to line `line` of the test file `file`, a path inside the checkout."""


class TestCode(SphinxRole):
    """`{testcode}`tests/test_a.py::test_b <tests/test_a.py#L12>``."""

    def run(self):
        title, _, target = self.text.rstrip(">").rpartition(" <")
        file, _, line = target.partition("#L")
        node = testcode(self.rawtext, "", file=file, line=line)
        node += nodes.Text(title)
        return [node], []


def page_of(file: str) -> str:
    """`tests/convex/test_faces.py` as the name of a page."""
    return f"code/{file.removesuffix('.py')}"


def link_tests(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for node in list(doctree.findall(testcode)):
        if app.builder.format == "html":
            there = app.builder.get_target_uri(page_of(node["file"]))
            uri = relative_uri(app.builder.get_target_uri(docname), there)
            link = nodes.reference("", "", *node.children, refuri=f"{uri}#L{node['line']}")
            link["internal"] = True
            node.replace_self(link)
        else:
            node.replace_self(node.children)


def around_pages(app: Sphinx) -> str:
    """Hash of what stands on a page around its text: settings, looks, and the list of all pages."""
    env = app.env
    titles = {name: title.astext() for name, title in env.titles.items()}
    settings = [app.builder.build_info.config_hash, app.builder.build_info.tags_hash]
    said = [settings, titles, env.toctree_includes, env.toc_secnumbers]
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()


def test_pages(app: Sphinx):
    """A page for each file with a test that a claim rests on; those that would be the same stay."""
    if not app.config.fourviews_tests or app.builder.format != "html":
        return
    folder = Path(app.config.fourviews_tests)
    kept = Path(app.doctreedir) / "test_pages.json"
    written = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    around, current = around_pages(app), {}
    formatter = HtmlFormatter(
        nowrap=False, linenos="inline", linespans="L", cssclass="highlight testcode"
    )
    for path in sorted(folder.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.claim(" not in text:
            continue
        file = f"tests/{path.relative_to(folder).as_posix()}"
        current[file] = hashlib.sha256(f"{around}\0{text}".encode()).hexdigest()
        if (
            written.get(file) == current[file]
            and Path(app.builder.get_outfilename(page_of(file))).exists()
        ):
            continue
        # Pygments writes `L-12`; a repository's pages have `L12`.
        code = highlight(text, PythonLexer(), formatter).replace('id="L-', 'id="L')
        body = (
            f'<section id="test"><h1>{path.name}</h1>\n'
            f"<p>The file <code>{file}</code>, as this book was built with it.</p>\n{code}</section>"
        )
        yield page_of(file), {"title": path.name, "body": body}, "page.html"
    kept.write_text(json.dumps(current, indent=1), encoding="utf-8")


def warn_of_missing(app: Sphinx, env, node: nodes.Element, content: nodes.Node) -> None:
    """Warn of names in docstrings that are neither in the reference nor of another package."""
    written = isinstance(content, nodes.literal) and "xref" in content.get("classes", [])
    target = node.get("reftarget", "")
    if node.get("refdomain") == "py" and written and not _is_foreign(target):
        text = f"{node.get('reftype')} {target!r} is not in the reference"
        logger.warning(text, location=node)


def _is_foreign(target: str) -> bool:
    """Whether a name exists outside of the library, as `torch.nn.Linear` does."""
    return not target.startswith("fourviews") and pydoc.locate(target) is not None


def skip_fields(app: Sphinx, what: str, name: str, obj: object, skip: bool, options) -> bool | None:
    return True if isinstance(obj, _FIELD) else None


def tidy_signature(app: Sphinx, what, name, obj, options, arguments: str | None, returns):
    """A default made by a factory has no source, and what Sphinx shows for it is no Python."""
    if arguments and "<factory>" in arguments:
        return arguments.replace("<factory>", "..."), returns
    return None


class _Pair(NamedTuple):
    first: int


_FIELD = type(_Pair.first)


# Sphinx sets the parameters of a long signature in a list of definitions that defines no term.
_PARAMETERS = re.compile(r'(<span class="sig-paren">[(\[]</span>\s*)<dl>')


def plain_parameters(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Such a list is one for the eye alone, and says so to screen readers."""
    if "body" in context:
        context["body"] = _PARAMETERS.sub(r'\1<dl role="presentation">', context["body"])


def setup(app: Sphinx) -> None:
    app.add_config_value("fourviews_tests", "", "html")
    app.add_node(testcode)
    app.add_role("testcode", TestCode())
    app.connect("doctree-resolved", link_tests)
    app.connect("html-collect-pages", test_pages)
    app.connect("missing-reference", warn_of_missing)
    app.connect("html-page-context", plain_parameters)
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("autodoc-process-signature", tidy_signature)
    for kind in PyObject.doc_field_types:
        if kind.name == "variable":  # what numpydoc calls Attributes
            kind.label = "Attributes"
