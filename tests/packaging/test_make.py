"""The commands of the README say in one line what they miss."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKE = shutil.which("make")

pytestmark = pytest.mark.skipif(MAKE is None, reason="make is not installed")


# Without what an outer make leaves behind, which would make the inner one talk about folders.
ALONE = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    return subprocess.run(
        [MAKE, *arguments],
        cwd=folder,
        env=ALONE,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def python_that_fails(folder: Path, pattern: str) -> Path:
    """An interpreter that refuses commands with `pattern` in them and is otherwise ours."""
    path = folder / "python"
    path.write_text(
        f'#!/bin/sh\ncase "$*" in *{pattern}*) exit 1;; esac\nexec {sys.executable} "$@"\n',
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


def test_help_lists_every_command(tmp_path):
    done = make(tmp_path)
    assert done.returncode == 0
    listed = set(re.findall(r"^  make ([a-z-]+) ", done.stdout, re.M))
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = set(
        re.search(r"^\.PHONY: ((?:.*\\\n)*.*)$", text, re.M).group(1).replace("\\", " ").split()
    )
    assert listed == commands


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("version_info", "older than Python 3.11"),
        ("ensurepip", "apt-get install python3-venv"),
    ],
)
def test_what_the_machine_lacks_is_said_in_one_line(tmp_path, pattern, words):
    python = python_that_fails(tmp_path, pattern)
    done = make(tmp_path, "book", f"PYTHON={python}")
    assert done.returncode != 0
    assert words in done.stdout
    assert done.stdout.count("\n") == 1
    assert not (tmp_path / ".venv").exists()


def test_no_python_at_all(tmp_path):
    done = make(tmp_path, "book", "PYTHON=")
    assert done.returncode != 0
    assert done.stdout.startswith("Python 3.11 or newer is needed")


def test_the_browser_tests_name_what_is_missing(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "find_chromium.py")],
        env={**os.environ, "PATH": str(tmp_path), "FOURVIEWS_CHROMIUM": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert done.stderr.startswith("Chromium is missing: install it")
    assert done.stderr.count("\n") == 1


def test_a_second_set_up_is_left_out(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    ready = tmp_path / ".venv" / ".ready"
    ready.parent.mkdir()
    ready.touch()
    later = ready.stat().st_mtime + 10
    os.utime(ready, (later, later))
    done = subprocess.run(
        [MAKE, "--dry-run", "book"],
        cwd=tmp_path,
        env=ALONE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "pip install" not in done.stdout
    os.utime(tmp_path / "constraints.txt", (later + 10, later + 10))
    done = subprocess.run(
        [MAKE, "--dry-run", "book"],
        cwd=tmp_path,
        env=ALONE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "pip install" in done.stdout
