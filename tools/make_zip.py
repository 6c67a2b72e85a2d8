"""Pack the built pages for reading without a network: `make zip`, after `make book`.

The archive holds one folder; open `index.html` in it. Pages load nothing from elsewhere, so that it
works from the disk. The same pages give the same bytes.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import settings as project
from settings import ROOT

NAME = "four-views-of-attention"
LICENCES = ("LICENSE", "LICENSE-text")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that the format knows


def make_zip(html: Path, target: Path, *, root: Path = ROOT) -> Path:
    """Write all files of `html` and the licences into `target`, in a folder named like it."""
    if not (html / "index.html").is_file():
        raise FileNotFoundError(f"{html} holds no index.html: build the book first (make book)")
    files = {
        path.relative_to(html).as_posix(): path
        for path in sorted(html.rglob("*"))
        # What Sphinx keeps to see what has changed is of no use to a reader.
        if path.is_file() and not path.relative_to(html).parts[0].startswith(".")
    }
    files |= {name: root / name for name in LICENCES}
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w") as archive:
        for name, path in files.items():
            entry = zipfile.ZipInfo(f"{target.stem}/{name}", _EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return target


def main() -> int:
    tag = project.load(use_environment=False).tag
    build = ROOT / "_build"
    try:
        path = make_zip(build / "html", build / f"{NAME}-{tag.removeprefix('v')}.zip")
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"Wrote {path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
