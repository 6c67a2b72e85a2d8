"""Find the Chromium that the browser tests drive; prints one line and fails when there is none."""

from __future__ import annotations

import os
import shutil
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find() -> str | None:
    """Path of a Chromium: `FOURVIEWS_CHROMIUM`, else the first one on PATH."""
    chosen = os.environ.get("FOURVIEWS_CHROMIUM")
    if chosen:
        return chosen if os.access(chosen, os.X_OK) else None
    return next(filter(None, map(shutil.which, NAMES)), None)


if __name__ == "__main__":
    if find() is None:
        sys.exit(
            "Chromium is missing: install it (Debian: apt-get install chromium), "
            "or set FOURVIEWS_CHROMIUM to its path."
        )
