"""Put one version of the built pages beside the others: `python tools/publish.py SITE VERSION`.

SITE is the folder that is served, one folder a version in it, with the list `versions.json` that the
pages' version selector reads, and an `index.html` that leads to the newest release. The workflow in
`.github/workflows/` calls this and pushes SITE.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path

from settings import ROOT

_LEAD = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Four Views of Attention</title>
<meta http-equiv="refresh" content="0; url={version}/index.html">
<link rel="canonical" href="{version}/index.html"></head>
<body><p><a href="{version}/index.html">Four Views of Attention, {version}</a></p></body></html>
"""


def order(version: str) -> tuple:
    """Releases by number, a release before its candidates; whatever is none comes last."""
    found = re.fullmatch(r"v(\d+)\.(\d+)\.(\d+)(?:(a|b|rc)(\d+))?", version)
    if not found:
        return (0, version)
    numbers = tuple(map(int, found.group(1, 2, 3)))
    stage = (1, "", 0) if found.group(4) is None else (0, found.group(4), int(found.group(5)))
    return (1, numbers, stage)


def publish(site: Path, version: str, html: Path) -> list[str]:
    """Copy `html` into `site/version`, whatever stood there; returns all versions, newest first."""
    if not re.fullmatch(r"\w[\w.-]*", version):
        raise ValueError(f"version {version!r}: need the name of a folder, such as v0.1.0 or main")
    if not (html / "index.html").is_file():
        raise ValueError(f"{html} holds no index.html: build the book first (make book)")
    target = site / version
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(html, target, ignore=shutil.ignore_patterns(".*"))
    there = [path.parent.name for path in site.glob("*/index.html")]
    versions = sorted(there, key=order, reverse=True)
    (site / "versions.json").write_text(json.dumps(versions, indent=1) + "\n", encoding="utf-8")
    (site / "index.html").write_text(_LEAD.format(version=versions[0]), encoding="utf-8")
    # Folders whose names begin with an underscore are pages' assets here, and nothing to process.
    (site / ".nojekyll").touch()
    return versions


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("site", type=Path, help="the folder that is served")
    parser.add_argument("version", help="v0.1.0, or the name of a branch")
    parser.add_argument("--html", type=Path, default=ROOT / "_build" / "html")
    arguments = parser.parse_args()
    versions = publish(arguments.site, arguments.version, arguments.html)
    print(f"{arguments.site} holds {', '.join(versions)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
