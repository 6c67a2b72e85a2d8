"""Moving figures on built pages: by keyboard, without scripts, on a telephone, within their bytes."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import re
import shutil
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

import find_chromium

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
LESSONS = sorted(
    path.stem
    for path in (ROOT / "lessons_src").glob("*.md")
    if not path.stem.startswith("quickstart_")  # one cell to copy, and what it prints
)

_spec = importlib.util.spec_from_file_location(
    "sandbox_book", Path(__file__).with_name("sandbox_book.py")
)
sandbox_book = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sandbox_book)

LESSON = r"""---
jupytext:
  text_representation: {extension: .md, format_name: myst}
kernelspec: {display_name: Python 3, language: python, name: python3}
---

# Figures that move

Mathematics before, $a < b$, and after.

```{code-cell} ipython3
:tags: [hide-input]
import matplotlib.pyplot as plt
import numpy as np
import torch
from fourviews import display

display.use_style()
times = np.linspace(0, 6, 200)


def wave(frequency):
    fig, ax = plt.subplots()
    ax.plot(times, np.sin(float(frequency) * times))
    ax.set(xlim=(0, 6), ylim=(-1.1, 1.1), xlabel="time")


display.slider(
    wave,
    torch.linspace(1, 3, 5),
    label="Frequency «ω» & <more>",
    alt=lambda w: f"A sine wave of frequency {float(w):.1f} \"on\" <six> seconds",
    format=lambda w: f"ω = {float(w):.1f}",
    caption=r"The wave $t \mapsto \sin(\omega t)$ & its <frequency>.",
    start=1,
)
```

```{code-cell} ipython3
def bars(count):
    fig, ax = plt.subplots()
    ax.bar(range(count), range(1, count + 1))
    ax.set(xlim=(-1, 6), ylim=(0, 7))
    return fig


display.slider(
    bars, [1, 2, 3, 4], label="Bars", alt=[f"Stairs of {k} bars" for k in (1, 2, 3, 4)]
)
```

$$
x = \begin{pmatrix} 1 \\ 2 \end{pmatrix}
$$ (eq-column)

```{code-cell} ipython3
def point(step):
    plt.plot(0.7**step, 0, "o")
    plt.xlim(-0.1, 1.1)
    plt.ylim(-1, 1)


display.animate(
    point,
    [0, 1, 2, 3],
    label="Steps of descent",
    alt=lambda k: f"A point at {0.7**k:.2f} on its way to zero",
    format=lambda k: f"step {k}",
    interval_ms=400,
)
```
"""
TOC = """\
format: jb-book
root: index
parts:
  - chapters:
      - file: words
  - caption: First part
    numbered: 1
    chapters:
      - file: first_01_moving
"""
FRAME = re.compile(r'<img [^>]*src="(data:image/png;base64,[^"]+)"[^>]*>')


@pytest.fixture(scope="module")
def html(tmp_path_factory) -> Path:
    """A book with one lesson that moves, made by the same tools and settings as the real one."""
    root = sandbox_book.make(tmp_path_factory.mktemp("moving"))
    for path in (root / "lessons_src").glob("*.md"):
        path.unlink()
    (root / "lessons_src" / "first_01_moving.md").write_text(LESSON, encoding="utf-8")
    (root / "book" / "_toc.yml").write_text(TOC, encoding="utf-8")
    (root / "book" / "index.md").write_text("# A small book\n\nIt moves.\n", encoding="utf-8")
    (root / "book" / "words.md").write_text(
        "# Words\n\n```{glossary}\npattern\n  What repeats.\n```\n", encoding="utf-8"
    )
    library = root / "lib" / "fourviews"
    for name in ("probe_a.py", "probe_b.py"):
        (library / name).unlink()
    shutil.copytree(ROOT / "lib" / "fourviews" / "display", library / "display")
    done = sandbox_book.build(root)
    assert done.returncode == 0, done.stdout + done.stderr  # Sphinx runs with -W
    return root / "_build" / "html"


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=find_chromium.find(),
            args=["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"],
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def address(html):
    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    handler = functools.partial(Handler, directory=str(html))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/first_01_moving.html"
    server.shutdown()


@pytest.fixture
def visit(browser, address):
    """Open the lesson; complaints of the page and requests that leave it fail the test."""

    @contextmanager
    def opened(url=address, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        page = context.new_page()
        away, complaints = [], []
        own = url.rsplit("/", 1)[0]
        page.on("request", lambda r: None if r.url.startswith((own, "data:")) else away.append(r))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        page.goto(url, wait_until="load")
        if options.get("java_script_enabled", True):
            page.evaluate("window.MathJax && MathJax.startup ? MathJax.startup.promise : null")
        yield page
        assert [request.url for request in away] == []
        assert complaints == []
        context.close()

    return opened


def state(figure) -> dict:
    """What a reader perceives of a moving figure."""
    shown = figure.locator("img:visible")
    assert shown.count() == 1
    return {
        "picture": shown.get_attribute("src"),
        "alt": shown.get_attribute("alt"),
        "text": figure.locator("output").inner_text(),
        "spoken": figure.locator("input").get_attribute("aria-valuetext"),
        "value": figure.locator("input").input_value(),
    }


@pytest.mark.browser
@pytest.mark.parametrize("place", ["http", "file"])
def test_keys_move_one_slider_and_no_other(visit, address, html, place):
    url = address if place == "http" else (html / "first_01_moving.html").as_uri()
    with visit(url) as page:
        figures = page.locator("figure.fv-slider")
        assert figures.count() == 3
        others = [state(figures.nth(k)) for k in (1, 2)]
        figure = figures.first
        before = state(figure)
        assert before["alt"] == 'A sine wave of frequency 1.5 "on" <six> seconds'
        assert before["text"] == before["spoken"] == "ω = 1.5"
        assert before["value"] == "1"
        figure.get_by_role("slider", name="Frequency «ω» & <more>").focus()
        seen = [before]
        for key, text in [
            ("ArrowRight", "ω = 2.0"),
            ("End", "ω = 3.0"),
            ("ArrowLeft", "ω = 2.5"),
            ("Home", "ω = 1.0"),
        ]:
            page.keyboard.press(key)
            now = state(figure)
            assert now["text"] == now["spoken"] == text
            assert text.split()[-1] in now["alt"]
            assert now["picture"] not in [one["picture"] for one in seen]
            seen.append(now)
        assert [state(figures.nth(k)) for k in (1, 2)] == others


@pytest.mark.browser
def test_the_first_frame_needs_no_script(visit):
    with visit(java_script_enabled=False) as page:
        for k, first in enumerate(["frequency 1.5", "Stairs of 1", "point at 1.00"]):
            figure = page.locator("figure.fv-slider").nth(k)
            widths = figure.locator("img").evaluate_all(
                "all => all.map(one => [one.alt, one.checkVisibility() ? one.clientWidth : 0])"
            )
            large = max(width for _, width in widths)
            assert [alt for alt, width in widths if width == large and first in alt]
            assert large >= 500
            assert all(0 < width < large / 2 for alt, width in widths if first not in alt)
            assert not figure.locator("input").is_visible()  # it would do nothing
            assert not figure.locator("button").is_visible()


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_telephone_shows_all_of_it(visit, scheme):
    with visit(viewport={"width": 360, "height": 780}, color_scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        for control in page.locator("figure.fv-slider").locator("input, button").all():
            box = control.bounding_box()
            assert box["height"] >= 44
            assert box["width"] >= 44
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 360
        for picture in page.locator("figure.fv-slider img:visible").all():
            box = picture.bounding_box()
            assert box["width"] >= 280
            assert box["x"] + box["width"] <= 360
            ground = picture.evaluate("one => getComputedStyle(one).backgroundColor")
            assert ground == "rgb(255, 255, 255)"


@pytest.mark.browser
@pytest.mark.parametrize("scheme, lowest, highest", [("light", 200, 255), ("dark", 0, 60)])
def test_controls_stand_on_the_ground_of_the_page(visit, scheme, lowest, highest):
    """The theme puts outputs on a light ground in the dark, on which its own colours vanish."""
    with visit(color_scheme=scheme) as page:
        for name in ("figcaption", ".fv-slider-label", "output", "button"):
            element = page.locator(f"figure.fv-slider {name}").first
            ground = element.evaluate(
                """one => {
                    const clear = "rgba(0, 0, 0, 0)";
                    while (getComputedStyle(one).backgroundColor === clear) one = one.parentElement;
                    return getComputedStyle(one).backgroundColor;
                }"""
            )
            colour = element.evaluate("one => getComputedStyle(one).color")
            under, over = ([int(n) for n in re.findall(r"\d+", c)[:3]] for c in (ground, colour))
            assert lowest <= sum(under) / 3 <= highest, (name, ground)
            assert abs(sum(under) - sum(over)) / 3 > 80, (name, ground, colour)


@pytest.mark.browser
def test_an_animation_waits_plays_pauses_and_stops_at_the_end(visit):
    with visit() as page:
        figure = page.locator("figure.fv-slider").nth(2)
        output = figure.locator("output")
        page.wait_for_timeout(900)  # two frames' time: nothing moves by itself
        assert output.inner_text() == "step 0"
        button = figure.get_by_role("button")
        assert button.inner_text().strip() == "Play"
        button.focus()
        page.keyboard.press("Enter")
        assert button.inner_text().strip() == "Pause"
        page.wait_for_function("o => o.textContent === 'step 1'", arg=output.element_handle())
        page.keyboard.press("Space")
        assert button.inner_text().strip() == "Play"
        page.wait_for_timeout(900)
        assert output.inner_text() == "step 1"
        page.keyboard.press("Enter")
        page.wait_for_function("o => o.textContent === 'step 3'", arg=output.element_handle())
        assert button.inner_text().strip() == "Replay"
        page.wait_for_timeout(900)
        assert output.inner_text() == "step 3"
        assert state(figure)["alt"] == "A point at 0.34 on its way to zero"
        page.keyboard.press("Enter")
        assert output.inner_text() == "step 0"
        # Whoever takes the slider takes over.
        figure.locator("input").press("End")
        assert button.inner_text().strip() == "Replay"


@pytest.mark.browser
def test_reduced_motion_goes_frame_by_frame(visit):
    with visit(reduced_motion="reduce") as page:
        figure = page.locator("figure.fv-slider").nth(2)
        button, output = figure.get_by_role("button"), figure.locator("output")
        for text, name in [("step 1", "Step"), ("step 2", "Step"), ("step 3", "Step")]:
            assert button.inner_text().strip() == name
            button.press("Enter")
            assert output.inner_text() == text
        assert button.inner_text().strip() == "Replay"
        button.press("Enter")
        assert output.inner_text() == "step 0"
        page.wait_for_timeout(900)
        assert output.inner_text() == "step 0"


@pytest.mark.browser
def test_scripts_leave_no_name_and_mathematics_is_set(visit):
    with visit() as page:
        figure = page.locator("figure.fv-slider").first
        caption = figure.locator("figcaption")
        assert caption.locator("mjx-container").count() == 1
        assert caption.inner_text().endswith("& its <frequency>.")
        assert figure.locator(".fv-slider-label").inner_text() == "Frequency «ω» & <more>"
        assert page.locator("article mjx-container").count() == 3
        assert page.locator("mjx-merror, [data-mjx-error]").count() == 0
        script = figure.evaluate("one => one.nextElementSibling.textContent")
        created = page.evaluate(
            """script => {
                const before = new Set(Object.getOwnPropertyNames(window));
                const one = document.createElement("script");
                one.textContent = script;
                document.body.append(one);
                return Object.getOwnPropertyNames(window).filter(name => !before.has(name));
            }""",
            script,
        )
        assert created == []
        # Run once more, it leaves alone what works already: one press is one step.
        figure.locator("input").press("ArrowRight")
        assert state(figure)["text"] == "ω = 2.0"
        assert figure.locator("[id]").count() == 0


@pytest.mark.browser
def test_frames_take_the_same_place(visit):
    with visit() as page:
        figure = page.locator("figure.fv-slider").first
        boxes = []
        for key in ("Home", *["ArrowRight"] * 4):
            figure.locator("input").press(key)
            boxes.append((figure.bounding_box(), figure.locator("img:visible").bounding_box()))
        assert all(box == boxes[0] for box in boxes)


def figures_of(page: str) -> list[str]:
    return re.findall(r'<figure class="fv-slider".*?</figure>', page, re.DOTALL)


@pytest.mark.site
@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_moves_within_its_bytes(name):
    figures = figures_of((HTML / f"{name}.html").read_text(encoding="utf-8"))
    assert len(figures) >= 2, "a lesson holds two moving figures or more"
    total = 0
    for figure in figures:
        frames = [match for match in FRAME.finditer(figure)]
        assert len(frames) >= 2
        assert len(frames) == figure.count("<img ") == figure.count(' data-text="')
        alts = [re.search(r' alt="([^"]*)"', match.group(0)).group(1) for match in frames]
        assert all(len(alt.split()) >= 3 for alt in alts), alts
        assert len(set(alts)) > 1
        size = sum(len(match.group(1)) for match in frames)
        assert size <= 1.2e6
        total += size
    assert total <= 3e6, f"{name}: {total / 1e6:.2f} MB of frames"
