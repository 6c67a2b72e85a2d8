"""Make a release: `make release VERSION=0.2.0 [DRY_RUN=1]`.

All of it happens in a clone of the last commit: the version is set, everything derived is derived
again, the wheel is built, every notebook runs against the wheel in a clean environment, and the
PDF (where LaTeX is installed) and the archive of the pages are made. Only when nothing has failed
does the checkout get the commit and the tag, and `dist/` the files; a dry run stops before that and
leaves the files in `_build/release/`. Nothing is pushed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

import make_pdf
from make_zip import NAME, make_zip
from settings import ROOT

EXTRAS = "lessons,data,convex-reference"
_VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
SHOWN = 4000  # characters of a failed command's output


class ReleaseError(Exception):
    """There is no release; the message says why."""


def run(*command: str | Path, cwd: Path, show: bool = False, **environment: str) -> str:
    """Run a command; its output is shown if `show`, else returned. A failure ends the release."""
    # What belongs to the environment that runs this must not reach the release.
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**inherited, **environment},
        stdout=None if show else subprocess.PIPE,
        stderr=None if show else subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        said = "" if show else f":\n{done.stdout[-SHOWN:]}"
        words = " ".join(str(part) for part in command)
        raise ReleaseError(f"`{words}` failed with status {done.returncode}{said}")
    return "" if show else done.stdout


def check(root: Path, version: str) -> None:
    """Refuse what is no version, a version that there is, and a checkout with open changes."""
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f"VERSION={version}: need MAJOR.MINOR.PATCH, such as 0.2.0 or 0.2.0rc1")
    changed = run("git", "status", "--porcelain", cwd=root).splitlines()
    if changed:
        some = ", ".join(line[3:] for line in changed[:5])
        raise ReleaseError(f"the checkout has changes that are not committed: {some}")
    if run("git", "tag", "--list", f"v{version}", cwd=root).strip():
        raise ReleaseError(f"the tag v{version} exists already")


def set_version(root: Path, version: str, date: str) -> None:
    """Write the version where it is said: library, tag, citation, and the changelog's heading."""
    edits = {
        "lib/fourviews/__init__.py": (r'^__version__ = "[^"]*"', f'__version__ = "{version}"'),
        "pyproject.toml": (r'^tag = "[^"]*"', f'tag = "v{version}"'),
        "CITATION.cff": (r"^version: .*$", f"version: {version}\ndate-released: {date}"),
        "CHANGELOG.md": (r"^## \[Unreleased\].*$", f"## [{version}] - {date}"),
    }
    for name, (pattern, new) in edits.items():
        path = root / name
        text = path.read_text(encoding="utf-8")
        if name == "CITATION.cff":
            text = re.sub(r"^date-released: .*\n", "", text, flags=re.M)
        text, count = re.subn(pattern, new, text, count=1, flags=re.M)
        if count != 1:
            raise ReleaseError(f"{name} has no line that matches {pattern}")
        path.write_text(text, encoding="utf-8")


@contextmanager
def clone(root: Path) -> Iterator[Path]:
    """A clone of the checkout's last commit, in a folder that is removed in the end."""
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        copy = Path(folder) / "fourviews"
        run("git", "clone", "--quiet", "--no-hardlinks", root, copy, cwd=root)
        for key in ("user.name", "user.email"):
            value = subprocess.run(
                ["git", "config", key], cwd=root, capture_output=True, text=True, check=False
            ).stdout.strip()
            if value:
                run("git", "config", key, value, cwd=copy)
        yield copy


def build_wheel(copy: Path, out: Path) -> Path:
    tool = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out)
    run(*tool, cwd=copy)
    (wheel,) = out.glob("*.whl")
    return wheel


def clean_environment(folder: Path, wheel: Path, constraints: Path) -> Path:
    """Python of a new environment that holds the wheel and what it asks for, nothing else."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    install = (python, "-m", "pip", "install", "-q", "-c", constraints, f"{wheel}[{EXTRAS}]")
    run(*install, cwd=folder)
    run(python, "-m", "pip", "check", cwd=folder)
    return python


def run_notebook(path: Path, python: Path, folder: Path) -> str:
    """Run a notebook as a reader would, in an empty folder; returns what failed, or nothing."""
    place = folder / path.stem
    kernel = place / "kernels" / "clean"
    kernel.mkdir(parents=True)
    words = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    description = {"argv": words, "display_name": "Clean", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(description), encoding="utf-8")
    work = place / "work"
    work.mkdir()
    ours = ("PYTHONPATH", "MPLBACKEND", "FOURVIEWS_BOOK_BUILD")
    environment = {key: value for key, value in os.environ.items() if key not in ours}
    environment |= {"IPYTHONDIR": str(place / "ipython"), "OMP_NUM_THREADS": "1"}
    manager = AsyncKernelManager(
        kernel_name="clean",
        kernel_spec_manager=KernelSpecManager(
            kernel_dirs=[str(place / "kernels")], ensure_native_kernel=False
        ),
    )
    client = NotebookClient(
        nbformat.read(path, as_version=4),
        km=manager,
        timeout=1200,
        extra_arguments=["--log-level=40"],
        resources={"metadata": {"path": str(work)}},
    )
    try:
        client.execute(env=environment)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return f"{path.name}: {str(error)[-SHOWN:]}"
    return ""


def check_notebooks(copy: Path, python: Path, folder: Path) -> int:
    """Run all notebooks of the clone against the wheel; returns how many there are."""
    notebooks = sorted((copy / "book").glob("*.ipynb"))
    where = run(python, "-c", "import fourviews; print(fourviews.__file__)", cwd=folder).strip()
    if Path(where).is_relative_to(copy):
        raise ReleaseError(f"the notebooks would run with {where} instead of the wheel")
    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        said = list(pool.map(lambda path: run_notebook(path, python, folder), notebooks))
    failed = list(filter(None, said))
    if failed:
        raise ReleaseError("these notebooks fail against the wheel:\n" + "\n".join(failed))
    return len(notebooks)


def release(
    version: str,
    *,
    root: Path = ROOT,
    dry_run: bool = False,
    python: Path | None = None,
    pdf: bool = True,
) -> Path:
    """Make the release; returns the folder with its files.

    `python` names an interpreter of an environment that exists and holds all but the wheel, which
    is then installed there; without it a clean one is set up.
    """
    check(root, version)
    out = root / ("_build/release" if dry_run else "dist") / version
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with clone(root) as copy, tempfile.TemporaryDirectory(prefix="notebooks-") as folder:
        say("set the version")
        set_version(copy, version, datetime.now(UTC).date().isoformat())
        say("build the wheel")
        wheel = build_wheel(copy, out)
        say("derive pages and notebooks")
        tool = copy / "tools" / "build_book.py"
        # The clone's own library, whatever is installed in this environment.
        run(sys.executable, tool, cwd=copy, show=True, PYTHONPATH=str(copy / "lib"))
        if python is None:
            say("set up a clean environment")
            python = clean_environment(Path(folder) / "venv", wheel, copy / "constraints.txt")
        else:
            command = (python, "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall")
            run(*command, wheel, cwd=Path(folder))
        say("run every notebook against the wheel")
        print(f"   {check_notebooks(copy, python, Path(folder))} notebooks ran")
        lack = make_pdf.missing() if pdf else "not asked for"
        say("set the book on paper")
        if lack:
            print(f"   no PDF: {lack}")
        else:
            tool = copy / "tools" / "make_pdf.py"
            run(sys.executable, tool, cwd=copy, show=True, PYTHONPATH=str(copy / "lib"))
            shutil.copy(copy / "_build" / f"{NAME}.pdf", out / f"{NAME}-{version}.pdf")
        say("pack the pages")
        make_zip(copy / "_build" / "html", out / f"{NAME}-{version}.zip", root=copy)
        if not dry_run:
            say("commit and tag")
            run("git", "add", "--all", cwd=copy)  # a notebook may be new
            run("git", "commit", "--quiet", "-m", f"Release {version}", cwd=copy)
            run("git", "tag", "-a", f"v{version}", "-m", f"Release {version}", cwd=copy)
            run("git", "pull", "--quiet", "--ff-only", "--tags", copy, "HEAD", cwd=root)
    return out


def say(what: str) -> None:
    print(f"== {what}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("version")
    parser.add_argument("--dry-run", action="store_true", help="change nothing in the checkout")
    arguments = parser.parse_args()
    try:
        out = release(arguments.version, dry_run=arguments.dry_run)
    except ReleaseError as error:
        print(f"There is no release: {error}", file=sys.stderr)
        return 1
    for path in sorted(out.iterdir()):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1e6:.1f} MB")
    if not arguments.dry_run:
        print(f"To publish: git push --follow-tags origin HEAD v{arguments.version}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
