"""The page over many videos in a real browser, from a file, without a network."""

from __future__ import annotations

import pytest

from hiero.corpus.folder_report import build_report, write_folder_report
from tests.corpus.test_folder_report import different_videos, make_videos

pytestmark = pytest.mark.slow


def open_report(page, folder, report):
    write_folder_report(folder / "page.html", report)
    page.goto((folder / "page.html").as_uri())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_shows_and_sorts(offline, tmp_path, scheme):
    offline.emulate_media(color_scheme=scheme)
    open_report(offline, tmp_path, build_report(make_videos(long=("eva", "cut")), title="Fries", model="raw"))
    assert offline.title() == "Fries"
    assert offline.locator(".track").count() == 6
    assert offline.locator("#order li").count() == 6
    assert "3 cut took" in offline.locator("#cards").inner_text()
    offline.click("#order li:nth-child(3) button")
    assert offline.locator(".track button:not(.dim)").count() == 6
    offline.locator("#table thead button").nth(4).focus()
    offline.keyboard.press("Enter")  # longest first
    assert offline.locator("#table thead th").nth(4).get_attribute("aria-sort") == "descending"
    assert offline.locator("#table tbody th").first.inner_text() == "eva"
    offline.check("#same-length")
    assert "100 %" in offline.locator("#axis").inner_text()


def test_videos_without_anything_in_common_show_their_own_activities(offline, tmp_path):
    open_report(offline, tmp_path, build_report(different_videos(), title="Six", model="raw", by_label=True))
    assert offline.locator("#advice").is_visible()
    assert not offline.locator("#differences").is_visible()
    backgrounds = offline.locator(".track button").evaluate_all("blocks => blocks.map(b => b.style.background)")
    assert len(set(backgrounds)) == len(backgrounds) == 18  # nothing is grey
    assert offline.locator("#order li").first.inner_text().split("\n")[-1] == "video 0 · 1:00"
    assert offline.locator("#order img").count() == 18
