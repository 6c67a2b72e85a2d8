"""Test the library with other versions of what it stands on: `make newest`.

Two environments, `_build/versions/oldest` and `…/newest`: one with the lower bounds that
pyproject.toml gives for torch, NumPy and CVXPY, one with the newest that the package index has, both
without the lock. The library's tests run in each; what failed is reported by name, with the versions.
Not part of CI: both together take some 5 GB and half an hour.

    python tools/newest.py oldest --keep torch                  # the lock's version of torch
    python tools/newest.py newest --tests tests/projection      # some tests only
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

from packaging.requirements import Requirement

from settings import ROOT

PACKAGES = ("torch", "numpy", "cvxpy")
EXTRAS = "lessons,data,convex-reference,spline"
# What the tests of the library themselves ask for; browser, notebooks and graders stay out.
TESTING = ("beartype", "hypothesis", "pytest", "pytest-timeout", "ipywidgets", "pyyaml")
TESTS = (
    "annotations attention convex convolution course data display projection spline unrolled"
).split()


def requirements(root: Path = ROOT) -> dict[str, Requirement]:
    """Every requirement of pyproject.toml by its name."""
    table = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [*table["optional-dependencies"].values(), table["dependencies"]]
    return {one.name: one for group in groups for one in map(Requirement, group)}


def lowest(requirement: Requirement) -> str:
    """The lowest minor version that a lower bound admits, in its last repair."""
    for one in requirement.specifier:
        if one.operator == ">=":
            numbers = (one.version.split(".") + ["0"])[:2]
            return f"{requirement.name}=={'.'.join(numbers)}.*"
    raise ValueError(f"{requirement} has no lower bound")


def locked(name: str, root: Path = ROOT) -> str:
    for line in (root / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line.partition("==")[0].lower() == name:
            return line
    raise ValueError(f"{name} has no line in constraints.txt")


def wanted(kind: str, keep: list[str], root: Path = ROOT) -> list[str]:
    """What pip is asked for besides the library."""
    known = requirements(root)
    lines = []
    for name in PACKAGES:
        if name in keep:
            lines.append(locked(name, root))
        else:
            lines.append(lowest(known[name]) if kind == "oldest" else name)
    return [*lines, *(str(known[name]) for name in TESTING)]


def set_up(kind: str, keep: list[str], folder: Path) -> Path:
    """Python of the environment, made or brought up to date."""
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    command = [python, "-m", "pip", "install", "-q", "--upgrade", f"{ROOT}[{EXTRAS}]"]
    done = subprocess.run(
        [*map(str, command), *wanted(kind, keep)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-2000:])
    return python


def versions(python: Path) -> str:
    code = (
        "from importlib.metadata import version; "
        f"print(', '.join(n + ' ' + version(n) for n in {PACKAGES}))"
    )
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def failures(output: str) -> list[str]:
    """Names of tests that failed, as pytest lists them at its end."""
    return re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.M)


def test(python: Path, tests: list[str], root: Path = ROOT) -> tuple[int, str]:
    """Run tests; the status and the output."""
    command = [str(python), "-m", "pytest", "-q", "-m", "not browser and not site", *tests]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with subprocess.Popen(
        command,
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        lines = []
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return process.returncode, "".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kinds", nargs="*", metavar="oldest|newest")
    parser.add_argument("--keep", nargs="+", default=[], choices=PACKAGES, metavar="PACKAGE")
    everything = [f"tests/{name}" for name in TESTS]
    parser.add_argument("--tests", nargs="+", default=everything, metavar="PATH")
    arguments = parser.parse_args()
    kinds = arguments.kinds or ["oldest", "newest"]
    if not set(kinds) <= {"oldest", "newest"}:
        parser.error(f"{' '.join(arguments.kinds)}: need oldest, newest, or both")
    report = []
    for kind in kinds:
        print(f"== {kind}: install", flush=True)
        try:
            python = set_up(kind, arguments.keep, ROOT / "_build" / "versions" / kind)
        except RuntimeError as error:
            report.append((kind, "could not be installed", [str(error)]))
            continue
        what = versions(python)
        print(f"== {kind}: test with {what}", flush=True)
        status, output = test(python, arguments.tests)
        failed = failures(output)
        if status and not failed:
            failed = [f"pytest ended with status {status}"]
        report.append((kind, what, failed))
    print()
    for kind, what, failed in report:
        print(f"{kind} ({what}): {f'{len(failed)} failed' if failed else 'all passed'}")
        for name in failed:
            print(f"   {name}")
    return int(any(failed for *_, failed in report))


if __name__ == "__main__":
    sys.exit(main())
