"""The page over many videos in a real browser, from a file, without a network."""

from __future__ import annotations

import pytest

from hiero.corpus.folder_report import build_report, write_folder_report
from tests.corpus.test_folder_report import different_videos, make_videos

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_shows_and_sorts(browser, tmp_path, scheme):
    write_folder_report(
        tmp_path / "page.html", build_report(make_videos(long=("eva", "cut")), title="Fries", model="raw")
    )
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme, offline=True)
    page = context.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "request", lambda request: None if request.url.startswith(("file:", "data:")) else problems.append(request.url)
    )
    page.goto((tmp_path / "page.html").as_uri())
    assert page.title() == "Fries"
    assert page.locator(".track").count() == 6
    assert page.locator("#order li").count() == 6
    assert "3 cut took" in page.locator("#cards").inner_text()
    page.click("#order li:nth-child(3) button")
    assert page.locator(".track button:not(.dim)").count() == 6
    page.locator("#table thead button").nth(4).focus()
    page.keyboard.press("Enter")  # longest first
    assert page.locator("#table thead th").nth(4).get_attribute("aria-sort") == "descending"
    assert page.locator("#table tbody th").first.inner_text() == "eva"
    page.check("#same-length")
    assert "100 %" in page.locator("#axis").inner_text()
    context.close()
    assert problems == []


def test_videos_without_anything_in_common_show_their_own_activities(browser, tmp_path):
    write_folder_report(
        tmp_path / "page.html", build_report(different_videos(), title="Six", model="raw", by_label=True)
    )
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    page = context.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto((tmp_path / "page.html").as_uri())
    assert "recordings of the same task" in page.locator("#advice").inner_text()
    assert not page.locator("#differences").is_visible()
    backgrounds = page.locator(".track button").evaluate_all("blocks => blocks.map(b => b.style.background)")
    assert len(set(backgrounds)) == len(backgrounds) == 18  # nothing is grey
    assert page.locator("#order li").first.inner_text().split("\n")[-1] == "video 0 · 1:00"
    assert page.locator("#order img").count() == 18
    context.close()
    assert problems == []
