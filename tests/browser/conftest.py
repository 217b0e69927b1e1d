"""A real browser before a real server."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tests.optional import program_or_skip
from tests.serve.conftest import library, world  # noqa: F401
from tests.waiting import PATIENCE_S, wait_until

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


@pytest.fixture(scope="module")
def listener():
    """The port of all servers of a module: the browser knows the files of the page after the first test."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def server(library, listener):  # noqa: F811
    from hiero.serve.app import create_app

    with run_server(library, create_app(library), listener.dup()) as server:
        yield server


@contextmanager
def run_server(library, app, listener=None):  # noqa: F811
    """An application on a socket, by default on a free port of this machine."""
    import uvicorn

    config = uvicorn.Config(app, "127.0.0.1", 0, log_level="error", access_log=False)
    server = uvicorn.Server(config)
    listener = listener or config.bind_socket()
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    yield SimpleNamespace(url=f"http://127.0.0.1:{listener.getsockname()[1]}/", library=library)
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="module")
def tab(browser):
    """A tab for all tests of a module: a new one takes two seconds to load the page for the first time."""
    context = browser.new_context(accept_downloads=True)
    tab = context.new_page()
    tab.set_default_timeout(1000 * PATIENCE_S)
    tab.problems = problems = []
    tab.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("request", lambda request: None if request.url.startswith(tab.own_urls) else problems.append(request.url))
    yield tab
    context.close()


@pytest.fixture
def page(tab, server):
    """A page of 1280 × 900 that remembers nothing of other tests; an error on its console fails the test."""
    tab.own_urls = (server.url, "data:", "blob:", "about:")
    tab.set_viewport_size({"width": 1280, "height": 900})
    tab.emulate_media(color_scheme="light", reduced_motion="no-preference")
    yield tab
    tab.unroute_all()
    tab.context.clear_cookies()
    stored = {"origin": server.url, "storageTypes": "local_storage"}
    tab.context.new_cdp_session(tab).send("Storage.clearDataForOrigin", stored)
    tab.goto("about:blank")
    problems, tab.problems[:] = [*tab.problems], []
    assert problems == []


@pytest.fixture
def offline(browser):
    """A page without a network, for files; an error of a script or a request fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    page = context.new_page()
    page.set_default_timeout(1000 * PATIENCE_S)
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    schemes = ("file:", "data:", "blob:")
    page.on("request", lambda call: None if call.url.startswith(schemes) else page.problems.append(call.url))
    yield page
    context.close()
    assert page.problems == []
