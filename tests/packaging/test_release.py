"""A release of the small book: what it refuses, what it makes, and that it changes nothing before."""

from __future__ import annotations

import importlib.util
import shutil
import zipfile
from pathlib import Path

import nbformat
import pytest

import release
import settings

from .environments import ROOT, fresh_environment, run

_spec = importlib.util.spec_from_file_location(
    "sandbox_book", ROOT / "tests" / "book" / "sandbox_book.py"
)
sandbox_book = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sandbox_book)

VERSION = "7.8.9"
FILES = ("README.md", "LICENSE", "LICENSE-text", "CITATION.cff", "CHANGELOG.md", ".gitignore")


def git(root: Path, *command: str) -> str:
    done = run("git", *command, cwd=root)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    root = sandbox_book.make(tmp_path_factory.mktemp("release") / "checkout")
    for name in FILES:
        shutil.copy(ROOT / name, root)
    git(root, "init", "-q", ".")
    git(root, "config", "user.name", "a")
    git(root, "config", "user.email", "a@example.org")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "start")
    return root


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    return fresh_environment(tmp_path_factory.mktemp("clean") / "venv")


@pytest.mark.parametrize("version", ["v1.2.3", "1.2", "1.2.3 ", "next", "1.2.3-rc1"])
def test_what_is_no_version_is_refused(checkout, version):
    with pytest.raises(release.ReleaseError, match="MAJOR.MINOR.PATCH"):
        release.release(version, root=checkout)


def test_open_changes_are_refused_by_name(checkout):
    new = checkout / "new.txt"
    new.write_text("x")
    try:
        with pytest.raises(release.ReleaseError, match="not committed: new.txt"):
            release.release(VERSION, root=checkout)
    finally:
        new.unlink()


def test_a_release_that_exists_is_refused(checkout):
    git(checkout, "tag", "v0.0.1")
    with pytest.raises(release.ReleaseError, match=r"v0\.0\.1 exists"):
        release.release("0.0.1", root=checkout)


def test_a_notebook_that_fails_against_the_wheel_is_named(tmp_path):
    book = tmp_path / "copy" / "book"
    book.mkdir(parents=True)
    for name, code in {"good": "import fourviews", "bad": "raise ValueError('broken')"}.items():
        cells = [nbformat.v4.new_code_cell(code)]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), book / f"{name}.ipynb")
    folder = tmp_path / "run"
    folder.mkdir()
    python = Path(release.sys.executable)
    with pytest.raises(release.ReleaseError, match=r"(?s)bad\.ipynb.*broken") as caught:
        release.check_notebooks(book.parent, python, folder)
    assert "good.ipynb" not in str(caught.value)
    (book / "bad.ipynb").unlink()
    shutil.rmtree(folder)
    folder.mkdir()
    assert release.check_notebooks(book.parent, python, folder) == 1


def test_a_dry_run_makes_all_files_and_changes_nothing_then_a_release_tags(checkout, python):
    head = git(checkout, "rev-parse", "HEAD")
    out = release.release(VERSION, root=checkout, dry_run=True, python=python, pdf=False)
    assert git(checkout, "status", "--porcelain") == ""
    assert git(checkout, "rev-parse", "HEAD") == head
    assert f"v{VERSION}" not in git(checkout, "tag")
    assert not (checkout / "dist").exists()
    wheel, pages = sorted(out.iterdir(), key=lambda path: path.suffix)
    assert wheel.name == f"fourviews-{VERSION}-py3-none-any.whl"
    assert pages.name == f"four-views-of-attention-{VERSION}.zip"
    with zipfile.ZipFile(pages) as archive:
        names = {name.partition("/")[2] for name in archive.namelist()}
    assert {"index.html", "first_01_everything.html", "LICENSE", "LICENSE-text"} <= names

    made = release.release(VERSION, root=checkout, python=python, pdf=False)
    assert made == checkout / "dist" / VERSION
    assert git(checkout, "status", "--porcelain") == ""
    assert git(checkout, "describe", "--exact-match").strip() == f"v{VERSION}"
    assert settings.load(checkout, use_environment=False).tag == f"v{VERSION}"
    assert f'__version__ = "{VERSION}"' in (checkout / "lib/fourviews/__init__.py").read_text()
    assert f"\nversion: {VERSION}\n" in (checkout / "CITATION.cff").read_text()
    assert f"\n## [{VERSION}] - 2" in (checkout / "CHANGELOG.md").read_text(encoding="utf-8")
    # What is derived was committed with it, for this version.
    assert (checkout / "book" / "first_01_everything.ipynb").exists()
