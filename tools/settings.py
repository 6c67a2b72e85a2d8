"""Read `[tool.fourviews]`: where the project is published and which release to open.

The values stand in pyproject.toml and nowhere else. An environment variable overrides each of them
(`FOURVIEWS_REPOSITORY`, `FOURVIEWS_TAG`, `FOURVIEWS_PAGES`), for trying out an address before it
is decided on; committed notebooks are always written from the file alone.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Settings:
    """Addresses of the project; an empty string means «not published»."""

    repository: str
    tag: str
    pages: str

    @property
    def github_path(self) -> str:
        """`OWNER/NAME` for a repository on GitHub, which Colab can open, else an empty string."""
        match = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)", self.repository)
        return match.group(1) if match else ""


def load(root: Path = ROOT, *, use_environment: bool = True) -> Settings:
    """Settings of the checkout at `root`."""
    with open(root / "pyproject.toml", "rb") as handle:
        table = tomllib.load(handle)["tool"]["fourviews"]
    values = {}
    for key in ("repository", "tag", "pages"):
        value = table[key]
        if use_environment:
            value = os.environ.get(f"FOURVIEWS_{key.upper()}", value)
        values[key] = value.strip().rstrip("/")
    for key in ("repository", "pages"):
        if values[key] and not re.fullmatch(r"https?://[^\s/]+(/[^\s]*)?", values[key]):
            raise ValueError(
                f"{key} = {values[key]!r} in [tool.fourviews]: need an http(s) address"
            )
    if not re.fullmatch(r"[\w.-]+", values["tag"]):
        raise ValueError(f"tag = {values['tag']!r} in [tool.fourviews]: need a release tag")
    return Settings(**values)
