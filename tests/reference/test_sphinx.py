"""What the book's extension makes of docstrings, of links to tests and of the glossary's terms."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

CONF = """\
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "reference", "glossary_links"]
source_suffix = {".md": "markdown"}
fourviews_lessons = ["index"]
fourviews_tests = "tests"
exclude_patterns = ["tests"]
napoleon_use_ivar = True
"""
PAGE = """\
# Lesson about attention

Not here: `attention`, [attention](#end), self-attention. But **attention** is here, and attention again.

Queries ask; {term}`ReLU` is linked by its author, so ReLU is not again.

(end)=
## End

{testcode}`what it says <tests/a/test_b.py#L3>`

```{toctree}
:hidden:
glossary
library
```
"""
GLOSSARY = """\
# Glossary

```{glossary}
attention
  Attention is a layer.

query
  Asks.

ReLU
  A function.
```
"""
LIBRARY = """\
# Library

```{eval-rst}
.. automodule:: small
   :members:
```
"""
MODULE = '''\
"""Small."""
import dataclasses
from typing import NamedTuple


class Pair(NamedTuple):
    """A pair.

    Attributes
    ----------
    first
        One.
    """

    first: int


@dataclasses.dataclass
class Run:
    """Steps of :class:`fractions.Fraction`, of :class:`Pair` and of {other}."""

    steps: list = dataclasses.field(default_factory=list)
'''
TEST = 'import pytest\n@pytest.mark.claim("cvx-01", verdict="verified")\ndef test_c(): pass\n'


@pytest.fixture
def build(tmp_path):
    def run(
        other: str = "others", test: str = TEST, page: str = PAGE
    ) -> tuple[subprocess.CompletedProcess, Path]:
        (tmp_path / "tests" / "a").mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / "a" / "test_b.py").write_text(test)
        (tmp_path / "tests" / "a" / "test_other.py").write_text("def test_d(): pass\n")
        (tmp_path / "conf.py").write_text(
            CONF.replace('"tests"\n', f"{str(tmp_path / 'tests')!r}\n", 1)
        )
        for name, text in (("index", page), ("glossary", GLOSSARY), ("library", LIBRARY)):
            (tmp_path / f"{name}.md").write_text(text)
        (tmp_path / "small.py").write_text(MODULE.replace("{other}", other))
        paths = [tmp_path, ROOT / "tools" / "sphinx_ext"]
        command = [
            sys.executable,
            "-m",
            "sphinx",
            "-q",
            "-W",
            "--keep-going",
            tmp_path,
            tmp_path / "html",
        ]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
        result = subprocess.run(
            list(map(str, command)), env=environment, capture_output=True, text=True, check=False
        )
        return result, tmp_path / "html"

    return run


def test_pages_link_terms_names_and_tests(build):
    result, html = build()
    assert result.returncode == 0, result.stderr
    page = (html / "index.html").read_text()
    main = page[page.index("<h1>") : page.index('class="sphinxsidebar"')]
    links = re.findall(r'href="glossary\.html#term-(\w+)"><(.*?)</a>', main)
    assert [term for term, _ in links] == ["attention", "query", "ReLU"]
    assert re.search(r"<strong><a [^>]*term-attention", main)
    assert 'href="code/tests/a/test_b.html#L3">what it says</a>' in main
    shown = (html / "code" / "tests" / "a" / "test_b.html").read_text()
    assert 'id="L3"' in shown and "test_c" in shown
    assert not (html / "code" / "tests" / "a" / "test_other.html").exists()
    library = (html / "library.html").read_text()
    assert 'href="#small.Pair"' in library and "Attributes" in library
    assert 'id="small.Pair.first"' not in library  # its class says what it is
    assert "&lt;factory&gt;" not in library
    # Links on the glossary itself would lead in circles.
    assert (
        "#term-attention"
        not in (html / "glossary.html").read_text().split("Asks.")[0].split("<dl")[0]
    )


def test_the_page_of_a_test_is_written_again_when_it_would_change(build):
    _, html = build()
    shown = html / "code" / "tests" / "a" / "test_b.html"

    def written(**changes: str) -> bool:
        before = shown.stat().st_mtime_ns if shown.exists() else 0
        result, _ = build(**changes)
        assert result.returncode == 0, result.stderr
        return shown.stat().st_mtime_ns != before

    assert not written()
    assert written(test=TEST + "# changed\n")
    assert "# changed" in shown.read_text()
    assert not written(test=TEST + "# changed\n")
    # Each page names its neighbours.
    assert written(test=TEST + "# changed\n", page=PAGE.replace("# Lesson about", "# Page about"))
    shown.unlink()
    assert written(test=TEST + "# changed\n", page=PAGE.replace("# Lesson about", "# Page about"))


def test_a_reference_to_what_is_not_there_stops_the_build(build):
    result, _ = build(":func:`missing`, :class:`fourviews.convex.Nothing`, :func:`fractions.no`")
    assert result.returncode != 0
    for target in ("missing", "fourviews.convex.Nothing", "fractions.no"):
        assert f"{target!r} is not in the reference" in result.stderr
    # Another package's, and it exists.
    assert "'fractions.Fraction'" not in result.stderr
