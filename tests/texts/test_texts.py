"""What README, changelog and plain pages say has to agree with what is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from scipy.interpolate import CubicSpline

from fourviews import unrolled

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted(path.stem for path in (ROOT / "lessons_src").glob("*.md"))


def _read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def _makefile(variable):
    return re.search(rf"^{variable} := (.+)$", _read("Makefile"), re.M).group(1)


def test_commands_without_make_are_those_of_the_makefile():
    readme = _read("README.md")
    assert f'".[{_makefile("EXTRAS")}]"' in readme
    for command in ("build_book.py", '-m pytest -q -m "not browser and not site"'):
        assert command in _read("Makefile")
        assert command in readme
    assert "-m pip install -c constraints.txt -e" in readme


def test_extras_named_in_texts_exist():
    extras = tomllib.loads(_read("pyproject.toml"))["project"]["optional-dependencies"]
    for name in ("README.md", "book/how_to_use.md"):
        for named in re.findall(r"\.\[([\w,-]+)\]", _read(name)):
            assert set(named.split(",")) <= set(extras), (name, named)


@pytest.mark.parametrize("name", ["README.md", "book/index.md"])
def test_lessons_named_are_those_that_exist(name):
    parts = "foundations|convex|projection|unrolled|spline|convolution|closing|quickstart"
    named = sorted(set(re.findall(rf"\b(?:{parts})_\d\d_\w+\b", _read(name))))
    assert named == LESSONS


def test_version_is_the_same_everywhere():
    version = re.search(r'__version__ = "([^"]+)"', _read("lib/fourviews/__init__.py")).group(1)
    assert yaml.safe_load(_read("CITATION.cff"))["version"] == version
    assert (
        re.search(r"^## \[(?:Unreleased\]: )?(\d[\w.]*)", _read("CHANGELOG.md"), re.M)[1] == version
    )


def test_files_that_the_readme_names_exist():
    readme = _read("README.md")
    for name in re.findall(r"`([A-Z][A-Za-z-]*(?:\.md|\.cff)?)`", readme):
        if name != "ReLU":
            assert (ROOT / name).is_file(), name
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", readme):
        assert (ROOT / target).is_file(), target


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "instructor/index.md"]
)
def test_paths_in_texts_exist(name):
    """Paths from the root of the repository; words in capitals stand for a name of one's own."""
    roots = "book|instructor|lessons_src|lib|tests|tools|benchmarks"
    named = re.findall(rf"`((?:{roots})/[\w./-]+)`", _read(name))
    named = [path for path in named if not re.search(r"PART_|LESSON|LABEL", path)]
    for path in named:
        assert (ROOT / path).exists(), path
    assert named


def test_changelog_names_every_view_of_the_library():
    library = ROOT / "lib" / "fourviews"
    for part in library.iterdir():
        if (part / "__init__.py").is_file():
            assert f"`fourviews.{part.name}`" in _read("CHANGELOG.md"), part.name


def test_examples_run_and_certify_their_solution():
    names: dict = {}
    for name in ("book/how_to_use.md", "README.md"):  # the README takes X and Y as given
        code = re.findall(r"```python\n(.*?)```", _read(name), re.S)[0]
        exec(compile(code, name, "exec"), names)
        assert names["solution"].converged and names["solution"].relative_gap <= 1e-6


def test_the_other_example_of_the_readme_does_what_its_comments_say():
    (_, code) = re.findall(r"```python\n(.*?)```", _read("README.md"), re.S)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    conv = torch.nn.Conv2d(3, 4, 3, padding=1, dtype=torch.float64)
    curve = CubicSpline(np.arange(6.0), tokens[:, 0].numpy())
    scores = torch.randn(2, 9, generator=generator, dtype=torch.float64)
    names: dict = {"conv": conv, "curve": curve, "tokens": tokens, "scores": scores}
    exec(compile(code, "README.md", "exec"), names)
    image = torch.randn(1, 3, 8, 7, generator=generator, dtype=torch.float64)
    assert torch.allclose(names["attention"](image), conv(image), atol=1e-12)
    x = torch.linspace(0, 5, 30, dtype=torch.float64)
    assert np.allclose(names["encoder"](x[:, None, None])[:, 0, 0], curve(x), atol=1e-10)
    energy = unrolled.AttentionEnergy(confinement=0.1)
    assert energy(names["tokens"]) < energy(tokens)
    weights = names["weights"]
    assert bool(((weights > 0) & (weights < 1)).all())
    assert torch.allclose(weights.sum(dim=-1), torch.tensor(5.0, dtype=torch.float64))


def test_readme_leaves_no_number_open():
    assert not re.search(r"\b(about|some) N\b", _read("README.md"))


def test_glossary_terms_are_unique_and_its_references_resolve():
    text = _read("book/glossary.md")
    block = text.split("```{glossary}")[1].split("```")[0]
    terms = [line for line in block.split("\n")[2:] if line and not line.startswith((" ", ":"))]
    assert len(terms) == len(set(terms)) > 20
    assert terms == sorted(terms, key=str.casefold)
    used = re.findall(r"\{term\}`([^`]+)`", text.replace("\n  ", " "))
    for name in (re.sub(r".*<(.+)>", r"\1", u) for u in used):
        assert name.casefold() in {t.casefold() for t in terms}, name


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("*.md")) + sorted((ROOT / "book").glob("*.md")), ids=lambda p: p.name
)
def test_pages_name_no_path_of_one_machine(path):
    assert not re.search(r"(?<![\w.])/(work|tmp|home|root)/", path.read_text(encoding="utf-8"))
