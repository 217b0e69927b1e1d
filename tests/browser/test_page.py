"""The collection and searches across videos, in a real browser, on generated videos."""

from __future__ import annotations

import re

import pytest

from tests.browser.video_page import click_step, screenshot

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def wait_for_results(page, id):
    """Wait for answers or hits. Those of the small random network may be improbable, and are then shown by a button."""
    page.wait_for_selector(f"#{id} li, #{id}-all:visible")
    if page.locator(f"#{id} li").count() == 0:
        assert "probably not in" in page.locator("#results-title:visible, #answers-title:visible").text_content()
        page.click(f"#{id}-all")
    page.wait_for_selector(f"#{id} li")
    assert re.search(r"\d %", page.locator(f"#{id} li").first.text_content())


def test_search_across_videos_and_the_same_step_elsewhere(page, server, monkeypatch):
    monkeypatch.setattr("hiero.serve.video_routes.ANSWER_THRESHOLD", 0.0)  # the small random network is never sure
    page.goto(server.url)
    page.wait_for_selector("#videos li")
    assert page.locator("#videos li").count() == 3
    page.fill("#query", "wash a cup")
    page.keyboard.press("Enter")
    wait_for_results(page, "hits")
    assert re.search("in all videos|probably not in these videos", page.locator("#results-title").text_content())
    screenshot(page, "page-search")
    page.click("#hits li:nth-child(1) a")
    page.wait_for_selector("#timeline .track[data-to]")
    wait_for_results(page, "answers")  # the same words, in this video
    click_step(page, 1)
    page.wait_for_selector("#same li")
    page.click("#side-by-side")
    page.wait_for_selector("#same-players li:nth-child(2)")
    page.go_back()
    click_step(page, 1)
    page.click("#same li:nth-child(1) a")
    page.wait_for_selector("#timeline .track[data-to]")
    page.click("#home")
    page.wait_for_selector("#videos li")


def test_errors_are_shown(page, server):
    page.goto(f"{server.url}")
    page.wait_for_selector("#videos li")
    failed = {"status": 400, "content_type": "application/json", "body": '{"error": "no such luck"}'}
    page.route("**/api/search?*", lambda route: route.fulfill(**failed))
    page.fill("#query", "x")
    with page.expect_response("**/api/search?*"):
        page.keyboard.press("Enter")
    page.wait_for_selector("#error:has-text('no such luck')")
    assert [text for text in page.problems if "400" not in text] == []
    page.problems.clear()  # the browser's own line about the answer


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_accessibility(page, server, theme):
    """axe-core's rules on the list and on the results."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python").Axe()
    page.emulate_media(color_scheme=theme)

    def violations():
        rules = axe.run(page).response["violations"]
        return [(rule["id"], [node["html"][:120] for node in rule["nodes"]][:3]) for rule in rules]

    page.goto(server.url)
    page.wait_for_selector("#videos li")
    assert violations() == []
    page.fill("#query", "wash a cup")
    page.keyboard.press("Enter")
    wait_for_results(page, "hits")
    assert violations() == []
