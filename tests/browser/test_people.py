"""Several people and a server with a state, in real browsers: signing in, roles, the queue, the history of edits."""

from __future__ import annotations

import threading

import pytest

from hiero.serve.app import create_app
from hiero.serve.settings import ServerSettings
from hiero.serve.state import State
from hiero.serve.users import ROLES, token_digest
from hiero.types import ProgressEvent
from tests.browser.conftest import run_server
from tests.browser.video_page import boxes, click_step, open_video, screenshot, violations, wait_steps, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def release():
    """The video "new" is read only once this is set."""
    return threading.Event()


@pytest.fixture
def server(library, tmp_path, release, monkeypatch):
    state = State(tmp_path / "state")
    for role in ROLES:
        state.add_token({"view": "vera", "edit": "anna", "admin": "ada"}[role], role, token_digest(f"token-{role}"))

    read = library.engine.read

    def read_once_released(source, *, progress, **options):
        while "new" in source.name and not release.wait(0.05):
            progress(ProgressEvent("read", source.name, 2.0, 6.0))
        return read(source, progress=progress, **options)

    monkeypatch.setattr(library.engine, "read", read_once_released)
    with run_server(library, create_app(library, ServerSettings(root_path="/hiero"), state)) as server:
        server.url += "hiero/"
        server.state = state
        yield server
    release.set()


def sign_in(page, server, role, address="", forget=True):
    page.goto(server.url + address)
    page.wait_for_selector("#sign-in:not([hidden])")
    page.fill("#token", f"token-{role}")
    page.keyboard.press("Enter")
    page.wait_for_selector("#sign-in", state="hidden")
    if forget:  # the browser's own line about 401
        assert [text for text in page.problems if "401" not in text] == []
        page.problems.clear()


def test_sign_in_and_out(page, server):
    page.goto(server.url)
    page.wait_for_selector("#sign-in:not([hidden])")
    assert violations(page) == []
    screenshot(page, "sign-in")
    page.fill("#token", "wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("#sign-in-status:has-text('unknown token')")
    page.fill("#token", "token-edit")
    page.keyboard.press("Enter")
    page.wait_for_selector("#videos li")
    assert page.locator("#user-name").inner_text() == "anna (edit)"
    assert "token-edit" not in page.url
    assert page.evaluate("document.cookie") == ""  # scripts cannot read it
    page.click("#sign-out")
    page.wait_for_selector("#sign-in:not([hidden])")
    assert [text for text in page.problems if "401" not in text] == []
    page.problems.clear()


def test_a_viewer_cannot_edit(page, server):
    sign_in(page, server, "view")
    page.wait_for_selector("#videos li")
    assert page.locator("#read-all").is_hidden()
    assert page.locator("#videos button").count() == 0
    open_video(page, server)
    assert page.locator("#edit-tools").is_hidden()
    page.goto(server.url)
    page.click("#videos a:has-text('new')")
    page.wait_for_selector("#reading:has-text('not been processed')")
    assert page.locator("#read").is_hidden()


def test_a_link_to_a_moment_that_a_colleague_opens(page, server, browser):
    sign_in(page, server, "edit")
    open_video(page, server)
    page.evaluate("document.getElementById('player').currentTime = 12")
    wait_until(page, "document.getElementById('player').currentTime >= 12")
    page.click("#link")
    wait_until(page, "document.getElementById('saved').textContent.length > 0")
    address = page.url.removeprefix(server.url)
    assert "t=12" in address
    colleague = browser.new_context().new_page()
    colleague.problems = []
    sign_in(colleague, server, "view", address, forget=False)
    colleague.wait_for_selector("#timeline .track[data-to]")
    wait_until(colleague, "document.getElementById('player').currentTime >= 11.9")
    colleague.context.close()


def test_the_queue(page, server, release):
    sign_in(page, server, "edit")
    page.click("#videos a:has-text('new')")
    page.click("#read")
    page.wait_for_selector("#reading-text:has-text('Processing: 0:02 of 0:06')")
    page.click("#home")
    page.wait_for_selector("#jobs li:has-text('new')")
    page.wait_for_selector("#videos li:has-text('processing 33 %')")
    assert "anna" in page.locator("#jobs li").inner_text()
    assert violations(page) == []
    screenshot(page, "queue")
    release.set()
    page.wait_for_selector("#queue", state="hidden")
    page.wait_for_selector("#videos li:has-text('new'):has-text('steps')")


def test_an_earlier_version_comes_back_from_the_history(page, server):
    sign_in(page, server, "edit")
    open_video(page, server)
    click_step(page, 0)
    page.click("#rename")
    page.fill(".rename input", "first name")
    page.keyboard.press("Enter")
    page.wait_for_selector("#saved:has-text('Saved.')")
    before = len(boxes(page))
    page.click("#merge")
    wait_steps(page, before - 1)
    page.click("#history summary")
    page.wait_for_selector("#saves li:nth-child(2)")
    assert "anna" in page.locator("#saves li").first.inner_text()
    screenshot(page, "history")
    page.click("#saves li:nth-child(2) button")
    wait_steps(page, before)
    page.wait_for_selector("#saves li:nth-child(3)")
