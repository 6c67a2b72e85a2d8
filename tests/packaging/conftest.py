"""The release that the tests of this folder install: as a wheel, and as a tagged repository."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import settings

from .environments import ROOT, run

TAG = "v7.7.7"


@pytest.fixture(scope="session")
def source(tmp_path_factory) -> Path:
    """A copy of what a release is made from, so that no build folder is left in the checkout."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "lib", copy / "lib", ignore=ignore)
    (copy / "tests").mkdir()
    (copy / "tests" / "secret.py").write_text("ANSWER = 42\n")
    return copy


@pytest.fixture(scope="session")
def wheel(source) -> Path:
    done = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", "dist", cwd=source)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (source / "dist").glob("*.whl")
    return path


@pytest.fixture(scope="session")
def release(source, tmp_path_factory) -> settings.Settings:
    """A repository on this machine whose tag is the release; what came later there is broken."""
    repository = tmp_path_factory.mktemp("origin") / "fourviews"
    shutil.copytree(source, repository, ignore=shutil.ignore_patterns("dist"))
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")

    def do(*command: str) -> None:
        done = run(*command, cwd=repository)
        assert done.returncode == 0, done.stderr

    do("git", "init", "-q", ".")
    do("git", "add", "-A")
    do(*git, "commit", "-q", "-m", "release")
    do("git", "tag", TAG)
    (repository / "pyproject.toml").write_text("broken")
    do(*git, "commit", "-q", "-a", "-m", "later")
    return settings.Settings(repository=f"file://localhost{repository}", tag=TAG, pages="")
