"""Versions are said once: bounds in pyproject.toml, exact ones in constraints.txt."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import settings

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# Files that may speak of exact versions: the lock, and what others wrote.
EXEMPT = ("constraints.txt", "book/_assets/")
PIN = re.compile(r"\b([A-Za-z][\w.-]*(?:\[[\w,-]+\])?)\s?(={1,3})\s?v?\d+(\.\d+)+")


def tracked() -> list[str]:
    done = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        return [
            path.relative_to(ROOT).as_posix()
            for path in ROOT.rglob("*")
            if path.is_file() and not {".venv", "_build", ".git"} & set(path.parts)
        ]
    return done.stdout.splitlines()


def requirements() -> list[Requirement]:
    groups = [PROJECT["project"]["dependencies"]]
    groups += PROJECT["project"]["optional-dependencies"].values()
    return [Requirement(text) for group in groups for text in group]


def lock() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins}


def test_no_exact_version_outside_the_lock():
    locked = lock()
    found = []
    for name in tracked():
        if name.startswith(EXEMPT) or not (ROOT / name).is_file():
            continue
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for match in PIN.finditer(text):
            package = re.sub(r"[-_.]+", "-", match.group(1).split("[")[0]).lower()
            if package in locked:
                found.append(f"{name}: {match.group(0)}")
    assert found == []


def test_the_check_above_would_see_a_pin():
    # Put together here, or the check above would find them in this file.
    for text in ("torch=={}", "jupyter-book[x] == {}", "- numpy={}", "'scipy==={}'"):
        assert PIN.search(text.format("1.2.3")), text


def test_the_lock_fits_the_bounds_and_holds_every_package():
    locked = lock()
    for requirement in requirements():
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        assert name in locked, f"{name} has no line in constraints.txt"
        assert requirement.specifier.contains(locked[name]), f"{requirement} and {locked[name]}"
        assert "==" not in str(requirement.specifier)
    assert locked["torch"] == locked["torch"].split("+")[0]


def test_the_next_major_version_of_the_builder_is_kept_out_everywhere():
    lines = [str(r) for r in requirements() if r.name == "jupyter-book"]
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    packages = next(d["pip"] for d in environment["dependencies"] if isinstance(d, dict))
    lines += [line for line in packages if line.startswith("jupyter-book")]
    assert len(lines) == 2
    for line in lines:
        specifier = Requirement(line).specifier
        assert specifier.contains("1.0.4.post1", prereleases=True)
        assert not specifier.contains("2.0.0")
        assert not specifier.contains("2.1.4")


def test_conda_and_binder_read_the_same_lists():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    packages = next(d["pip"] for d in environment["dependencies"] if isinstance(d, dict))
    assert packages[0] == "-c constraints.txt"
    extras = re.fullmatch(r"-e \.\[([\w,-]+)\]", packages[1]).group(1).split(",")
    assert set(extras) <= set(PROJECT["project"]["optional-dependencies"])
    assert {"lessons", "data", "book"} <= set(extras)


def test_make_installs_extras_that_exist():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    extras = re.search(r"^EXTRAS := (.*)$", text, re.M).group(1).split(",")
    assert set(extras) <= set(PROJECT["project"]["optional-dependencies"])


def test_lower_bounds_are_no_higher_than_colab_ships():
    """What Colab has had for long; a higher bound would replace its torch by another build."""
    shipped = {
        "numpy": "2.0.2",
        "scipy": "1.13.1",
        "torch": "2.5.1",
        "tqdm": "4.67.1",
        "matplotlib": "3.8.0",
        "scikit-learn": "1.5.2",
        "pyarrow": "17.0.0",
    }
    wanted = {requirement.name: requirement for requirement in requirements()}
    for name, version in shipped.items():
        assert wanted[name].specifier.contains(version), str(wanted[name])


def test_release_tag_and_version_are_one():
    text = (ROOT / "lib" / "fourviews" / "__init__.py").read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "([^"]+)"', text, re.M).group(1)
    assert settings.load(ROOT, use_environment=False).tag == f"v{version}"


def test_the_address_is_said_once():
    """The example of `OWNER/NAME` apart, no file names a place where the project is published."""
    where = settings.load(ROOT, use_environment=False)
    for address in filter(None, (where.repository, where.pages)):
        for name in tracked():
            if name.startswith("book/") and name.endswith(".ipynb") or name == "CITATION.cff":
                continue
            path = ROOT / name
            if path.suffix in (".md", ".yml", ".toml", ".py", ".cfg") and name != "pyproject.toml":
                assert address not in path.read_text(encoding="utf-8"), name


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("REPOSITORY", "github.com/a/b"),
        ("REPOSITORY", "https://a b"),
        ("TAG", "v1; rm"),
        ("PAGES", "x"),
    ],
)
def test_malformed_settings_are_refused(monkeypatch, variable, value):
    monkeypatch.setenv(f"FOURVIEWS_{variable}", value)
    with pytest.raises(ValueError, match=variable.lower()):
        settings.load(ROOT)


def test_the_environment_overrides_the_file(monkeypatch):
    monkeypatch.setenv("FOURVIEWS_REPOSITORY", "https://github.com/someone/some.where/")
    where = settings.load(ROOT)
    assert where.github_path == "someone/some.where"
    assert where.repository == "https://github.com/someone/some.where"
    assert settings.load(ROOT, use_environment=False).repository != where.repository
