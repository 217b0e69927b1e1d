"""A real browser before a real server."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tests.optional import program_or_skip
from tests.serve.conftest import library, world  # noqa: F401
from tests.waiting import PATIENCE_S

sync_api = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
    "--disable-component-update",
    "--autoplay-policy=no-user-gesture-required",
]


# while it is open an event loop runs in this thread: tests of other modules could start none
@pytest.fixture(scope="module")
def browser():
    chromium = program_or_skip("chromium-headless-shell")  # others draw a window too, and take twice the time
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def server(library):  # noqa: F811
    from hiero.serve.app import create_app

    with run_server(library, create_app(library)) as server:
        yield server


@contextmanager
def run_server(library, app):  # noqa: F811
    """An application on a free port of this machine."""
    import uvicorn

    config = uvicorn.Config(app, "127.0.0.1", 0, log_level="error", access_log=False)
    server = uvicorn.Server(config)
    listener = config.bind_socket()
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield SimpleNamespace(url=f"http://127.0.0.1:{listener.getsockname()[1]}/", library=library)
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def page(browser, server):
    """A page of 1280 × 900; an error on its console fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(1000 * PATIENCE_S)
    problems = []
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    own_urls = (server.url, "data:", "blob:")
    page.on("request", lambda request: None if request.url.startswith(own_urls) else problems.append(request.url))
    page.problems = problems
    yield page
    context.close()
    assert problems == []
