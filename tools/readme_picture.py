"""Take the README's picture of the book: a built page in Chromium, scrolled to a label.

python tools/readme_picture.py convex_02_mlp#fig-arrangements
"""

from __future__ import annotations

import sys

from playwright.sync_api import sync_playwright

from find_chromium import find
from settings import ROOT


def take(place: str) -> None:
    page_name, _, label = place.partition("#")
    page_path = ROOT / "_build" / "html" / f"{page_name}.html"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find(), args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        page.goto(page_path.as_uri())
        page.evaluate("window.MathJax && MathJax.startup ? MathJax.startup.promise : null")
        if label:
            page.evaluate(
                "id => window.scrollTo(0, document.getElementById(id)"
                ".getBoundingClientRect().top + window.scrollY - 90)",
                label,
            )
        page.wait_for_timeout(500)
        page.screenshot(path=str(ROOT / "book" / "_assets" / "readme-page.png"))
        browser.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    take(sys.argv[1])
