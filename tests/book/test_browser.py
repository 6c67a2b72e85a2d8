"""The built book in headless Chromium: over http and from the disk, wide and narrow, light and dark."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

import find_chromium
import numbering

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
BOOK = numbering.read_book(ROOT)
PAGES = [*BOOK.pages, "genindex", "search"]
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDE, NARROW = 1280, 360
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_chromium.find(), args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def address():
    """The book served on this machine, as a reader's web server would."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    handler = functools.partial(Handler, directory=str(HTML))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


class Visit:
    """A first visit to a page, with what it asked for and complained of."""

    def __init__(self, browser: Browser, url: str, *, width=WIDE, height=900, scheme="light"):
        # A context of its own has neither cache nor memory of an earlier visit.
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme
        )
        self.page: Page = self.context.new_page()
        self.requests: list[str] = []
        self.failures: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("requestfailed", lambda request: self.failures.append(request.url))
        self.page.on(
            "response",
            lambda r: self.failures.append(f"{r.status} {r.url}") if r.status >= 400 else None,
        )
        self.page.on(
            "console",
            lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None,
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(url, wait_until="load")
        # MathJax sets the page in steps: done when it says so, on pages that have it at all.
        self.page.evaluate("window.MathJax && MathJax.startup ? MathJax.startup.promise : null")
        self.page.wait_for_timeout(150)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.context.close()


class Look(NamedTuple):
    name: str
    width: int
    scheme: str

    def __str__(self) -> str:
        return f"{self.name}-{self.width}-{self.scheme}"


@pytest.fixture(scope="module")
def visit(request, browser, address):
    """A page that several tests look at one after the other, and leave as they found it."""
    look: Look = request.param
    height = 900 if look.width == WIDE else 780
    url = f"{address}/{look.name}.html"
    with Visit(browser, url, width=look.width, height=height, scheme=look.scheme) as visit:
        visit.name, visit.scheme = look.name, look.scheme
        yield visit


def looks(names: Iterable[str], *, width: int = WIDE, schemes: Iterable[str] = ("light",)):
    """Parametrize a test; pytest takes all tests of a look together, so that each loads once."""
    every = [Look(name, width, scheme) for name in names for scheme in schemes]
    return pytest.mark.parametrize("visit", every, ids=str, indirect=True, scope="module")


@looks(PAGES)
def test_a_first_visit_is_quiet_and_stays_here(visit, address):
    assert visit.complaints == []
    assert visit.failures == []
    away = [url for url in visit.requests if not url.startswith((address, "data:"))]
    assert away == []


@pytest.mark.parametrize("name", ["index", *BOOK.lessons])
def test_pages_work_from_the_disk(browser, name):
    with Visit(browser, (HTML / f"{name}.html").as_uri()) as visit:
        assert visit.complaints == []
        assert [url for url in visit.requests if not url.startswith(("file:", "data:"))] == []
        assert visit.failures == []
        if name in BOOK.lessons:
            assert visit.page.locator("mjx-container").count() > 0


@looks([*BOOK.lessons, "notation", "ledger", "glossary"])
def test_mathematics_is_set(visit):
    page = visit.page
    written = page.locator("span.math, div.math").count()
    assert written > 0
    assert page.locator("mjx-container").count() >= written
    assert page.locator("mjx-merror, [data-mjx-error]").count() == 0
    # What MathJax did not take up would show its delimiters.
    text = page.locator("article").inner_text()
    assert "\\(" not in text
    assert "\\[" not in text
    widths = page.eval_on_selector_all(
        "mjx-container", "all => all.map(one => one.getBoundingClientRect().width)"
    )
    shown = page.eval_on_selector_all(
        "mjx-container", "all => all.map(one => one.checkVisibility())"
    )
    assert all(width > 0 for width, seen in zip(widths, shown, strict=True) if seen)
    if any(shown):  # formulas that are folded away load no font before somebody looks
        page.evaluate("document.fonts.ready")
        assert page.evaluate("document.fonts.check('12px MJXTEX')")


@looks(PAGES, width=NARROW, schemes=("light", "dark"))
def test_a_telephone_needs_no_sideways_scrolling(visit):
    wide = visit.page.evaluate(
        """() => document.documentElement.scrollWidth > window.innerWidth
            ? [...document.querySelectorAll('article *')]
                .filter(e => e.getBoundingClientRect().right > window.innerWidth + 1)
                .slice(0, 5).map(e => e.outerHTML.slice(0, 200))
            : []"""
    )
    assert wide == []
    inner = visit.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert inner[0] <= inner[1]


CONTRAST = """() => {
  const channel = v => (v /= 255, v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = text => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = '#000'; canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => top.slice(0, 3).map((v, i) => v * top[3] + under[i] * (1 - top[3]));
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ground = element => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      const colour = rgba(getComputedStyle(e).backgroundColor);
      if (colour[3] > 0) layers.unshift(colour);
      if (colour[3] === 1) break;
    }
    return layers.reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  const poor = [];
  for (const element of document.querySelectorAll('article *, .bd-sidebar a, .bd-toc a, h1')) {
    if (element.closest('mjx-container, svg, .headerlink, [aria-hidden=true], .copybtn')) continue;
    const words = [...element.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!words || !element.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
    const style = getComputedStyle(element);
    const under = ground(element);
    const a = light(over(rgba(style.color), under)), b = light(under);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize), bold = parseInt(style.fontWeight) >= 700;
    const needed = size >= 24 || (bold && size >= 18.66) ? 3 : 4.5;
    if (ratio < needed) poor.push(ratio.toFixed(2) + ' ' + element.outerHTML.slice(0, 120));
  }
  return [...new Set(poor)].slice(0, 10);
}"""


@looks(BOOK.pages, schemes=("light", "dark"))
def test_text_stands_out_in_both_themes(visit):
    page = visit.page
    assert page.evaluate("document.documentElement.dataset.theme") == visit.scheme
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    level = sum(map(int, background.split("(")[1].split(")")[0].split(",")[:3])) / 3
    assert level > 200 if visit.scheme == "light" else level < 60
    assert page.evaluate(CONTRAST) == []


@looks(BOOK.lessons, schemes=("dark",))
def test_figures_stay_on_white_in_the_dark(visit):
    grounds = visit.page.eval_on_selector_all(
        "article figure img, article .cell_output img",
        "all => all.map(one => getComputedStyle(one).backgroundColor)",
    )
    assert grounds
    assert set(grounds) == {"rgb(255, 255, 255)"}


def test_the_theme_can_be_switched(browser, address):
    with Visit(browser, f"{address}/index.html") as visit:
        page = visit.page
        seen = {page.evaluate("document.documentElement.dataset.theme")}
        for _ in range(3):
            page.locator("button.theme-switch-button").first.click()
            seen.add(page.evaluate("document.documentElement.dataset.theme"))
        assert seen == {"light", "dark"}
        assert visit.complaints == []


@looks(BOOK.lessons)
def test_solutions_are_folded_until_asked_for(visit):
    page = visit.page
    practice = [e for e in BOOK.lessons[visit.name].exercises() if e.mode == "practice"]
    solutions = page.locator("div.solution")
    assert solutions.count() == len(practice)
    for index in range(solutions.count()):
        content = solutions.nth(index).locator("section").first
        assert not content.is_visible()
    if practice:
        button, content = (
            solutions.first.locator("button.toggle-button"),
            solutions.first.locator("section").first,
        )
        button.click()
        assert content.is_visible()
        button.click()  # the next test finds it as it was
        assert not content.is_visible()


def test_a_term_leads_to_its_entry_in_the_glossary(browser, address):
    lesson = next(iter(BOOK.lessons))
    with Visit(browser, f"{address}/{lesson}.html") as visit:
        link = visit.page.locator("article a[href^='glossary.html#term-']").first
        anchor = link.get_attribute("href").split("#")[1]
        link.click()
        visit.page.wait_for_url("**/glossary.html#*")
        assert visit.page.locator(f"dt#{anchor}").is_visible()


def test_search_finds_a_lesson(browser, address):
    with Visit(browser, f"{address}/search.html?q=attention") as visit:
        visit.page.wait_for_selector("#search-results li a", timeout=10_000)
        assert visit.page.locator("#search-results li a").count() > 0
        assert visit.complaints == []


@looks(BOOK.lessons)
def test_buttons_have_names(visit):
    nameless = visit.page.evaluate(
        """() => [...document.querySelectorAll('button, a[href]')]
            .filter(e => e.checkVisibility() && !e.closest('.headerlink')
                && !(e.getAttribute('aria-label') || e.title || e.dataset.bsTitle
                     || e.getAttribute('data-bs-original-title') || e.textContent.trim()
                     || e.querySelector('img[alt], svg title')))
            .map(e => e.outerHTML.slice(0, 160))"""
    )
    assert nameless == []
    clash = visit.page.evaluate(
        """() => [...document.querySelectorAll('[aria-label]')]
            .filter(e => e.matches('button, a, summary') && e.checkVisibility())
            .map(e => [e.getAttribute('aria-label').toLowerCase(),
                       (e.innerText || '').trim().toLowerCase()])
            .filter(([label, text]) => text && !label.includes(text))"""
    )
    assert clash == []
