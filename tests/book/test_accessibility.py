"""Every page under axe-core in Chromium, and what a screen reader is given of a formula.

axe runs with its default rules in both themes, on a wide and on a narrow screen. On the narrow one
all that is folded is opened first. A page has thousands of words of code and signs of formulas in some
fifty looks: of those that look the same at the same kind of place, one is asked for its contrast.
`pytest -s` prints every violation, also those that are no failure.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

import find_chromium
import numbering

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
BOOK = numbering.read_book(ROOT)
PAGES = [*BOOK.pages, "genindex", "search"]
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 360, "height": 780}
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
# Rule to reason: what is known, neither serious nor critical, and left as it is.
REMAINING = {
    "empty-table-header": "the corner above a column of row names has nothing to name",
}
pytestmark = pytest.mark.browser

RUN = """() => axe.run(document, {resultTypes: ['violations']}).then(result =>
  result.violations.map(one => ({
    rule: one.id, impact: one.impact, help: one.help,
    places: one.nodes.map(node => node.target.join(' ') + '  ' + node.html.slice(0, 160)),
  })))"""
# A word's contrast is that of its colours, its size and what it stands on. Of signs of formulas axe
# says in any case that it cannot tell.
LOOKS = """() => {
  const places = new Map(), seen = new Set();
  const place = whole => {
    if (!places.has(whole)) {
      const names = [];
      for (let one = whole; one; one = one.parentElement) names.push(one.tagName, one.className);
      places.set(whole, names.join(' '));
    }
    return places.get(whole);
  };
  for (const word of document.querySelectorAll('pre span, mjx-container math *')) {
    const whole = word.closest('pre, mjx-container'), look = [place(whole)];
    for (let one = word; one !== whole; one = one.parentElement) {
      const style = getComputedStyle(one);
      look.push(style.color, style.backgroundColor, style.backgroundImage, style.opacity,
        style.fontSize, style.fontWeight, style.textShadow, style.display, style.visibility);
    }
    const key = look.join('|');
    word.toggleAttribute('data-look-seen', seen.has(key));
    seen.add(key);
  }
  axe.configure({rules: [{id: 'color-contrast', selector: '*:not([data-look-seen])'}]});
}"""
UNFOLD = """() => {
  document.querySelectorAll('article details').forEach(one => one.open = true);
  document.querySelectorAll('article .toggle-button.toggle-button-hidden').forEach(one => one.click());
}"""


def visit(page: Page, name: str) -> None:
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(WIDE)
    page.goto((HTML / f"{name}.html").as_uri(), wait_until="load")
    page.evaluate("window.MathJax?.startup?.promise?.then(() => null)")


def violations(page: Page, name: str) -> list[dict]:
    """What axe finds on a page in both themes and widths, each with where that was."""
    visit(page, name)
    page.evaluate(AXE + "; null")
    found = []
    for size in (WIDE, NARROW):
        page.set_viewport_size(size)
        if size is NARROW:
            page.evaluate(UNFOLD)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.wait_for_function("s => document.documentElement.dataset.theme === s", arg=scheme)
            page.wait_for_timeout(400)  # the theme looks for what scrolls 0.3 s after a change
            page.evaluate(LOOKS)
            where = {"page": name, "width": size["width"], "theme": scheme}
            found += [{**where, **one} for one in page.evaluate(RUN)]
    return found


AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium.find(), args=FLAGS)
        page = browser.new_page()
        page.set_default_timeout(120_000)  # beside other tests a long page takes its time
        yield page
        browser.close()


def in_words(one: dict) -> str:
    head = f"{one['page']} ({one['theme']}, {one['width']} px): {one['impact']}, {one['rule']}"
    return "\n  ".join([f"{head}: {one['help']}", *one["places"][:10]])


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_that_is_not_listed(page, name):
    found = violations(page, name)
    for one in found:
        print(in_words(one))
    assert [
        in_words(one)
        for one in found
        if one["impact"] in ("serious", "critical") or one["rule"] not in REMAINING
    ] == []


def test_axe_would_find_something(page):
    """The rules above are at work: a picture without text, a grey on grey, a box out of reach."""
    page.set_content(
        "<html lang=en><title>t</title><main><h1>h</h1><img src='x.png'>"
        "<p style='color:#999;background:#aaa'>words</p>"
        "<pre style='width:50px;overflow:auto' tabindex=-1>a long line of words and words</pre>"
        "</main></html>"
    )
    page.evaluate(AXE + "; null")
    rules = {one["rule"] for one in page.evaluate(RUN)}
    assert {"image-alt", "color-contrast", "scrollable-region-focusable"} <= rules


def test_words_of_code_with_a_look_of_their_own_are_asked_for_their_contrast(page):
    """Of five words two are grey on white and look the same, and one stands on dark grey."""
    page.set_content(
        "<html lang=en><title>t</title><style>.key {color: #222} .pale {color: #999}"
        ".dark {background: #333}</style><main><h1>h</h1>"
        "<pre><span class=key id=one>def</span> <span class=pale id=two>total</span> "
        "<span class=key id=three>for</span> <span class=pale id=four>total</span></pre>"
        "<div class=dark><pre><span class=key id=five>def</span></pre></div></main></html>"
    )
    page.evaluate(AXE + "; null")

    def pale() -> list[str]:
        page.evaluate(LOOKS)
        found = [one for one in page.evaluate(RUN) if one["rule"] == "color-contrast"]
        return [place.split()[0] for one in found for place in one["places"]]

    assert pale() == ["#two", "#five"]
    page.evaluate("document.querySelector('#three').style.color = '#aaa'")
    assert pale() == ["#two", "#three", "#five"]


def formulas(page: Page) -> list[str]:
    """Names of the formulas in the tree that screen readers are given."""
    session = page.context.new_cdp_session(page)
    tree = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    return [
        node.get("name", {}).get("value", "")
        for node in tree
        if node["role"]["value"] == "MathMLMath" and not node["ignored"]
    ]


@pytest.mark.parametrize("name", ["notation", next(iter(BOOK.lessons))])
def test_formulas_have_names_for_screen_readers(page, name):
    visit(page, name)
    page.wait_for_function("document.querySelector('mjx-assistive-mml > math[aria-label]')")
    names = formulas(page)
    assert len(names) > 20
    assert all(names)
    if name == "notation":
        assert r"\frac12\sum(f-Y)^2" in names
    page.evaluate("document.querySelectorAll('math').forEach(m => m.removeAttribute('aria-label'))")
    assert not any(formulas(page))  # the names come from there, and the look would miss them


@pytest.mark.parametrize("name", ["convex_02_mlp"])
def test_what_scrolls_is_reached_by_keyboard_and_nothing_else_is(page, name):
    visit(page, name)
    page.set_viewport_size(NARROW)
    page.evaluate(UNFOLD)
    page.wait_for_timeout(500)
    frames = page.evaluate(
        """() => [...document.querySelectorAll(
              "article pre, article div.math, article mjx-container[display='true']")]
            .filter(one => one.checkVisibility())
            .map(one => [one.tagName, one.scrollWidth > one.clientWidth, one.tabIndex >= 0])"""
    )
    assert {(tag, scrolls) for tag, scrolls, _ in frames} >= {
        ("PRE", True),
        ("PRE", False),
        ("MJX-CONTAINER", True),
        ("MJX-CONTAINER", False),
    }
    assert [one for one in frames if one[1] != one[2]] == []
    assert page.locator("mjx-container[tabindex='0']:not([display='true'])").count() == 0
