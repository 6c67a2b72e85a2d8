"""The wheel holds the library and nothing else, and lessons run against it anywhere."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import lesson_source
import settings
import write_notebooks

ROOT = Path(__file__).resolve().parents[2]
LESSONS = [ROOT / "lessons_src" / "convex_02_mlp.md"]


def run(*command, cwd: Path, **environment: str) -> subprocess.CompletedProcess:
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MPLBACKEND")}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**inherited, "MPLBACKEND": "Agg", "FOURVIEWS_BOOK_BUILD": "1", **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy, so that no build folder is left in the checkout."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "lib", copy / "lib", ignore=ignore)
    (copy / "tests").mkdir()
    (copy / "tests" / "secret.py").write_text("ANSWER = 42\n")
    done = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", "dist", cwd=copy)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (copy / "dist").glob("*.whl")
    return path


def fresh_environment(folder: Path) -> Path:
    """A virtual environment that has all dependencies but no `fourviews` of its own.

    A line in a .pth file makes the packages of the test's environment visible without copying two
    gigabytes. Files of the same kind in that folder are not followed, so the checkout that is
    installed there in editable mode stays out of sight.
    """
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    done = run(python, "-c", "import site; print(site.getsitepackages()[0])", cwd=folder)
    packages = Path(done.stdout.strip())
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    missing = run(python, "-c", "import fourviews", cwd=folder)
    assert missing.returncode != 0, "the checkout is visible: the test would prove nothing"
    return python


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    python = fresh_environment(tmp_path_factory.mktemp("clean") / "venv")
    done = run(
        *(python, "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", wheel),
        cwd=wheel.parent,
    )
    assert done.returncode == 0, done.stderr
    return python


def test_the_wheel_holds_the_library_only(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    version = settings.load(ROOT, use_environment=False).tag.removeprefix("v")
    assert tops == {"fourviews", f"fourviews-{version}.dist-info"}
    held = {name for name in names if name.startswith("fourviews/")}
    package = ROOT / "lib" / "fourviews"
    files = {
        f"fourviews/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == files
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_imports_come_from_the_wheel(installed, tmp_path):
    code = (
        "import fourviews, fourviews.attention, fourviews.convex, fourviews.data, fourviews.display;"
        "print(fourviews.convex.__file__)"
    )
    done = run(installed, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(installed.parents[1])


def test_metadata_name_every_extra(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (n for n in archive.namelist() if n.endswith("dist-info/METADATA"))
    text = archive.read(name).decode()
    for extra in ("lessons", "data", "convex-reference", "book", "test", "assignments"):
        assert f"Provides-Extra: {extra}\n" in text


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_runs_against_the_wheel(installed, path, tmp_path):
    cells = [cell.source for cell in lesson_source.read(path).cells(solutions=False)]
    program = tmp_path / "lesson.py"
    program.write_text("\n\n".join(cells), encoding="utf-8")
    done = run(installed, program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]


def test_the_notebooks_install_line_installs_the_release(wheel, tmp_path):
    """The first cell, as Colab would run it, with a repository that lies on this machine."""
    source = wheel.parents[1]
    repository = tmp_path / "origin"
    shutil.copytree(source, repository, ignore=shutil.ignore_patterns("dist", "tests"))
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in (
        ("git", "init", "-q", "."),
        ("git", "add", "-A"),
        (*git, "commit", "-q", "-m", "release"),
        ("git", "tag", "v7.7.7"),
    ):
        done = run(*command, cwd=repository)
        assert done.returncode == 0, done.stderr
    # The newest state is broken: what is installed must be the tag's.
    (repository / "pyproject.toml").write_text("broken")
    run(*git, "commit", "-q", "-a", "-m", "later", cwd=repository)
    where = settings.Settings(repository=f"file://localhost{repository}", tag="v7.7.7", pages="")
    cell = tmp_path / "cell.py"
    cell.write_text(write_notebooks.install_cell(where), encoding="utf-8")
    python = fresh_environment(tmp_path / "venv")
    before = run(python, "-c", "import torch; print(torch.__file__)", cwd=tmp_path).stdout
    done = run(python, cell, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout == "Installed fourviews v7.7.7.\n", done.stderr
    code = "import fourviews, torch; print(fourviews.__file__); print(torch.__file__)"
    ours, torch_after = run(python, "-c", code, cwd=tmp_path).stdout.splitlines()
    assert Path(ours).is_relative_to(tmp_path / "venv")
    assert torch_after == before.strip()
    again = run(python, cell, cwd=tmp_path)
    assert again.stdout == "fourviews is installed.\n"


def test_a_failed_install_is_said_in_one_line(tmp_path):
    where = settings.Settings(repository="https://127.0.0.1:9/nowhere", tag="v7.7.7", pages="")
    code = "import importlib.util; importlib.util.find_spec = lambda name: None\n"
    code += write_notebooks.install_cell(where)
    done = run(sys.executable, "-c", code, cwd=tmp_path, PIP_RETRIES="0", PIP_TIMEOUT="5")
    assert done.returncode == 0
    assert done.stdout.startswith(
        "Could not install fourviews[lessons,data] @ git+https://127.0.0.1"
    )
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_the_plain_notebook_holds_the_same_code(path):
    notebook = json.loads((ROOT / "book" / f"{path.stem}.ipynb").read_text(encoding="utf-8"))
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert code[1:] == [cell.source for cell in lesson_source.read(path).cells(solutions=False)]
