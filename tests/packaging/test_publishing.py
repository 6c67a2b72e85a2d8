"""The archive of the pages, the folder of versions, and the workflow that fills it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
import yaml

import make_zip
import newest
import publish

from .environments import ROOT, run


@pytest.fixture
def html(tmp_path) -> Path:
    folder = tmp_path / "html"
    (folder / "_static").mkdir(parents=True)
    (folder / "index.html").write_text("start")
    (folder / "_static" / "a.css").write_text("x")
    (folder / ".buildinfo").write_text("kept by Sphinx")
    return folder


def test_the_archive_holds_one_folder_with_pages_and_licences(html, tmp_path):
    path = make_zip.make_zip(html, tmp_path / "out" / "book-1.zip")
    with zipfile.ZipFile(path) as archive:
        assert sorted(archive.namelist()) == [
            "book-1/LICENSE",
            "book-1/LICENSE-text",
            "book-1/_static/a.css",
            "book-1/index.html",
        ]
        assert archive.read("book-1/index.html") == b"start"
    again = make_zip.make_zip(html, tmp_path / "again" / "book-1.zip")
    assert again.read_bytes() == path.read_bytes()


def test_an_archive_of_nothing_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="make book"):
        make_zip.make_zip(tmp_path, tmp_path / "x.zip")


def test_versions_are_listed_newest_first(html, tmp_path):
    site = tmp_path / "site"
    for version in ("v0.9.0", "v0.10.0", "main", "v0.10.0rc2", "v0.10.0rc10"):
        versions = publish.publish(site, version, html)
    assert versions == ["v0.10.0", "v0.10.0rc10", "v0.10.0rc2", "v0.9.0", "main"]
    assert json.loads((site / "versions.json").read_text()) == versions
    assert "url=v0.10.0/index.html" in (site / "index.html").read_text()
    assert (site / "v0.9.0" / "_static" / "a.css").exists()
    assert not (site / "main" / ".buildinfo").exists()
    (html / "_static" / "a.css").unlink()
    publish.publish(site, "main", html)
    assert not (site / "main" / "_static" / "a.css").exists()


@pytest.mark.parametrize("version", ["../x", "", "a/b", ".git"])
def test_what_is_no_folder_is_no_version(html, tmp_path, version):
    with pytest.raises(ValueError, match="folder"):
        publish.publish(tmp_path / "site", version, html)


def test_the_workflow_calls_commands_that_exist():
    path = ROOT / ".github" / "workflows" / "publish.yml"
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    steps = workflow["jobs"]["publish"]["steps"]
    commands = [line.split() for step in steps for line in step.get("run", "").splitlines()]
    targets = {words[1] for words in commands if words[:1] == ["make"]}
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"book", "pdf", "zip"} == targets
    assert all(f"\n{target}: " in text for target in targets)
    tools = {word for words in commands for word in words if word.startswith("tools/")}
    assert tools == {"tools/publish.py"}
    assert all((ROOT / tool).is_file() for tool in tools)
    assert {"FOURVIEWS_REPOSITORY", "FOURVIEWS_TAG", "FOURVIEWS_PAGES"} == set(workflow["env"])


def test_every_vendored_file_has_its_licence_listed():
    folder = ROOT / "book" / "_assets"
    listed = (folder / "README.md").read_text(encoding="utf-8")
    for path in folder.iterdir():
        name = f"{path.name}/" if path.is_dir() else path.name
        assert name == "README.md" or f"`{name}`" in listed, name
    assert (folder / "mathjax" / "LICENSE").is_file()


def test_packages_fit_together():
    """As `make` installs them; pyscnn comes with `make bench` alone, without what it asks for."""
    done = run(newest.sys.executable, "-m", "pip", "check", cwd=ROOT)
    faults = [line for line in done.stdout.splitlines() if not line.startswith("pyscnn ")]
    assert faults in ([], ["No broken requirements found."])


def test_the_oldest_versions_are_the_lower_bounds():
    lines = newest.wanted("oldest", keep=[])
    known = newest.requirements()
    for name in newest.PACKAGES:
        (line,) = [line for line in lines if line.startswith(name)]
        version = line.removeprefix(f"{name}==").removesuffix(".*")
        assert str(known[name].specifier) == f">={version}"
    assert set(newest.PACKAGES) <= set(newest.wanted("newest", keep=[]))
    assert newest.locked("torch") in newest.wanted("newest", keep=["torch"])
    assert all((ROOT / "tests" / name).is_dir() for name in newest.TESTS)


def test_failures_are_reported_by_name():
    said = "..F\nFAILED tests/a.py::test_b[1] - ValueError\nERROR tests/c.py\n1 failed, 2 passed\n"
    assert newest.failures(said) == ["tests/a.py::test_b[1]", "tests/c.py"]
    assert newest.failures("3 passed") == []
