"""Two published versions of the small book: the selector leads from one to the other."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import threading
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

import find_chromium
import publish

pytestmark = pytest.mark.browser
_spec = importlib.util.spec_from_file_location(
    "sandbox_book", Path(__file__).with_name("sandbox_book.py")
)
sandbox_book = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sandbox_book)

SELECT = "nav.version-selector select"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    root = sandbox_book.make(tmp_path_factory.mktemp("published"))
    done = sandbox_book.build(root, FOURVIEWS_PAGES="https://example.org/book")
    assert done.returncode == 0, done.stdout + done.stderr
    html, folder = root / "_build" / "html", root / "site"
    publish.publish(folder, "v0.1.0", html)
    (html / "words.html").unlink()
    publish.publish(folder, "v0.2.0", html)
    return folder


@pytest.fixture(scope="module")
def address(site):
    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    handler = functools.partial(Handler, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        flags = ["--headless", "--no-sandbox", "--disable-gpu"]
        chromium = playwright.chromium.launch(executable_path=find_chromium.find(), args=flags)
        yield chromium
        chromium.close()


def test_a_page_leads_to_the_same_page_of_another_version(browser, address):
    page = browser.new_page()
    page.goto(f"{address}/v0.1.0/first_01_everything.html")
    page.wait_for_selector(SELECT)
    assert page.locator(f"{SELECT} option").all_inner_texts() == ["v0.2.0", "v0.1.0"]
    assert page.locator(SELECT).input_value() == "v0.1.0"
    page.get_by_label("Version", exact=True).select_option("v0.2.0")
    page.wait_for_url("**/v0.2.0/first_01_everything.html")
    page.close()


def test_a_page_that_the_other_version_lacks_leads_to_its_start(browser, address):
    page = browser.new_page()
    page.goto(f"{address}/v0.1.0/words.html")
    page.wait_for_selector(SELECT)
    page.locator(SELECT).select_option("v0.2.0")
    page.wait_for_url("**/v0.2.0/index.html")
    page.close()


def test_the_start_leads_to_the_newest_release(browser, address):
    page = browser.new_page()
    page.goto(address)
    page.wait_for_url("**/v0.2.0/index.html")
    page.close()


def test_from_the_disk_nothing_is_asked_for_and_nothing_shown(browser, site):
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "v0.1.0" / "words.html").as_uri())
    page.wait_for_timeout(300)
    assert page.locator("nav.version-selector").count() == 1
    assert not page.locator(SELECT).is_visible()
    assert not any("versions.json" in url for url in asked)
    page.close()
