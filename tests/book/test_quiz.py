"""Quizzes of a built book: answered by keyboard and from the disk, and readable without scripts."""

from __future__ import annotations

import importlib.util
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

import find_chromium

_spec = importlib.util.spec_from_file_location(
    "sandbox_book", Path(__file__).with_name("sandbox_book.py")
)
sandbox_book = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sandbox_book)

LESSON, PLAIN = "first_01_everything", "second_01_short_lab"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    root = sandbox_book.make(tmp_path_factory.mktemp("quiz"))
    done = sandbox_book.build(root)
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "_build" / "html"


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_chromium.find(), args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser, html):
    """Open a page from the disk; what it asks for and complains of is judged at the end."""

    @contextmanager
    def opened(name: str = LESSON, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        page = context.new_page()
        requests, complaints = [], []
        page.on("request", lambda request: requests.append(request.url))
        page.on("requestfailed", lambda request: complaints.append(request.url))
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto((html / f"{name}.html").as_uri(), wait_until="load")
        if options.get("java_script_enabled", True):
            page.evaluate("window.MathJax ? MathJax.startup.promise : null")
            yield page
            assert complaints == []
        else:  # the theme's scripts are asked for ahead of time, and then not run
            yield page
        assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
        context.close()

    return opened


def shown(page: Page, quiz: str) -> list[str]:
    """What is said to choices of one quiz, as far as a reader can see it."""
    replies = page.locator(f"#{quiz} .quiz-reply p").all()
    return [reply.inner_text() for reply in replies if reply.is_visible()]


def marks(page: Page, quiz: str) -> list[str]:
    """The marks at the end of the choices, `none` where there is none."""
    return page.eval_on_selector_all(
        f"#{quiz} .quiz-choice > label",
        "all => all.map(one => getComputedStyle(one, '::after').content.split(' /')[0])",
    )


def test_nothing_is_said_before_a_choice(visit):
    with visit() as page:
        assert page.locator("fieldset.quiz").count() == 2
        assert page.locator(".quiz-reply p").count() == 7
        assert shown(page, "quiz-descent") == shown(page, "quiz-pattern") == []
        assert page.locator("fieldset.quiz details").count() == 0
        assert page.locator("fieldset.quiz :checked").count() == 0
        assert marks(page, "quiz-descent") == ["none"] * 3


def test_wrong_then_right_by_keyboard(visit):
    with visit() as page:
        page.locator("#quiz-descent legend a").last.focus()  # the last thing before the choices
        page.keyboard.press("Tab")
        page.keyboard.press("Space")
        (said,) = shown(page, "quiz-descent")
        assert said.startswith("Not quite. That would be a step along")
        assert marks(page, "quiz-descent") == ['"✗"', "none", "none"]
        outline = page.evaluate(
            "getComputedStyle(document.activeElement.closest('label')).outlineStyle"
        )
        assert outline == "solid"
        page.keyboard.press("ArrowDown")
        (said,) = shown(page, "quiz-descent")
        assert said.startswith("Right. Yes:")
        assert said.endswith("which is what the theorem says.")
        assert marks(page, "quiz-descent") == ["none", '"✓"', "none"]
        # Tab leaves the group: the next stop is no choice of this quiz.
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.name || ''") != "quiz-descent"


def test_two_quizzes_do_not_disturb_each_other(visit):
    with visit() as page:
        page.locator("#quiz-descent input").nth(1).check()
        page.locator("#quiz-pattern input").nth(1).check()
        assert [text.split(".")[0] for text in shown(page, "quiz-descent")] == ["Right"]
        assert [text.split(".")[0] for text in shown(page, "quiz-pattern")] == ["Not quite"]
        page.locator("#quiz-pattern input").nth(0).check()
        assert [text.split(".")[0] for text in shown(page, "quiz-pattern")] == ["Right"]
        assert page.locator("#quiz-descent input").nth(1).is_checked()


def test_what_appears_is_announced_and_its_place_is_there_before(visit):
    with visit() as page:
        for choice in page.locator(".quiz-choice").all():
            reply = choice.locator("[aria-live=polite]")
            assert reply.count() == 1
            assert reply.inner_text() == ""
            choice.locator("input").check()
            assert reply.inner_text() != ""
        question = page.get_by_role("group", name="What does the step")
        assert question.get_by_role("radio").count() == 3
        assert page.get_by_role("radio", name="It never raises").count() == 1


def test_mathematics_is_set_in_question_choices_and_explanations(visit):
    with visit() as page:
        text = page.locator("#quiz-pattern").inner_text()
        for place in ("legend", ".quiz-text", ".quiz-reply"):
            assert page.locator(f"#quiz-pattern {place} mjx-container").count() > 0, place
        assert "\\(" not in text
        assert page.locator("#quiz-pattern .quiz-text code").inner_text() == "a $ b"
        page.locator("#quiz-pattern input").nth(2).check()
        formula = page.locator("#quiz-pattern .quiz-reply mjx-container >> visible=true")
        assert formula.first.bounding_box()["width"] > 5


def test_without_scripts_the_answers_unfold(visit):
    with visit(java_script_enabled=False) as page:
        answers = page.locator("#quiz-descent details")
        assert not answers.locator("li").first.is_visible()
        answers.locator("summary").focus()
        page.keyboard.press("Enter")
        said = [item.inner_text().replace("\n", " ") for item in answers.locator("li").all()]
        assert [text[0] for text in said] == ["a", "b", "c"]
        assert [("Right." in text, "Not quite." in text) for text in said] == [
            (False, True),
            (True, False),
            (False, True),
        ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_readable_on_every_screen(visit, width, scheme):
    with visit(viewport={"width": width, "height": 780}, color_scheme=scheme) as page:
        for choice in page.locator(".quiz-choice").all():
            choice.locator("input").check()
            assert choice.locator("label").bounding_box()["height"] >= 44
            least = choice.evaluate(
                """choice => {
                    const numbers = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
                    const light = colour => numbers(colour).map(v => v / 255)
                        .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
                        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
                    const ground = e => {
                        for (; e; e = e.parentElement) {
                            const colour = getComputedStyle(e).backgroundColor;
                            if (!/, 0\\)$/.test(colour)) return light(colour);
                        }
                        return 1;
                    };
                    const words = choice.querySelectorAll(
                        '.quiz-text, .quiz-letter, .quiz-reply p, .quiz-reply strong');
                    return Math.min(...[...words].map(e => {
                        const [a, b] = [light(getComputedStyle(e).color), ground(e)];
                        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
                    }));
                }"""
            )
            assert least >= 4.5
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_script_is_on_pages_with_a_quiz_only(html):
    assert 'src="_static/quiz.js' in (html / f"{LESSON}.html").read_text(encoding="utf-8")
    for path in html.glob("*.html"):
        if path.stem != LESSON:
            assert "quiz.js" not in path.read_text(encoding="utf-8"), path.name


def test_the_mistake_link_ends_every_page(visit, html):
    with visit() as page:
        page.locator("a", has_text="Found a mistake?").last.click()
        page.wait_for_url("**/how_to_use.html#found-a-mistake")
        link = page.locator("p.found-a-mistake a")
        assert link.get_attribute("href") == "#found-a-mistake"
    for path in html.glob("*.html"):
        assert 'class="found-a-mistake' in path.read_text(encoding="utf-8"), path.name
