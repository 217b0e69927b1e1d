"""The page of one video in a real browser, from a file, without a network."""

from __future__ import annotations

import shutil

import pytest

from hiero.engine.html_report import write_report
from hiero.formats.html_page import STATIC, collect_modules
from tests.browser.video_page import violations, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
LABELS = ["pour the tea", "wash a cup", "mend the tyre"]


@pytest.fixture(scope="module")
def report(world, tmp_path_factory):
    """A folder with the report of a video, whose file stays where it is."""
    folder = tmp_path_factory.mktemp("report")
    video = world.engine.read(world.videos[0])
    write_report(folder / "report.html", video, video.steps([2, 5], labels=LABELS), LABELS)
    return folder


def test_it_plays_the_video_and_shows_its_chapters(offline, report):
    offline.goto((report / "report.html").as_uri())
    assert offline.title() == "tea.mp4"
    assert offline.locator("#chapters .leaf").count() == 5
    assert offline.locator("#chapters img").count() > 0
    wait_until(offline, "document.getElementById('player').readyState >= 1")  # the file is where it was
    offline.locator("#chapters .leaf").nth(2).click()
    wait_until(offline, "document.getElementById('player').currentTime > 0")
    assert offline.locator("#chapters [aria-current]").count() == 1
    assert offline.locator("#missing").is_hidden()


def test_it_answers_prepared_questions(offline, report):
    offline.goto((report / "report.html").as_uri())
    offline.wait_for_selector("#chapters li")
    asked = offline.locator("#questions button")
    if asked.count():  # the small random network may find nothing probable
        asked.first.click()
        offline.wait_for_selector("#answers-title")
        offline.click("#back")
    offline.fill("#query", "washing the cups")
    offline.keyboard.press("Enter")
    offline.wait_for_selector("#answers-title:has-text('washing the cups')")
    assert offline.locator("#chapters").is_hidden()
    offline.fill("#query", "a walrus")
    offline.keyboard.press("Enter")
    offline.wait_for_selector("#answers-title:has-text('probably not in this video')")


def test_a_moved_report_finds_the_video_beside_it(offline, report, world, tmp_path):
    folder = tmp_path / "elsewhere" / "mail"
    folder.mkdir(parents=True)
    shutil.copy(report / "report.html", folder)
    offline.goto((folder / "report.html").as_uri())
    offline.wait_for_selector("#missing:visible")
    assert "tea.mp4" in offline.inner_text("#missing")
    offline.locator("#chapters .leaf").nth(1).click()
    wait_until(offline, "document.getElementById('still').src.startsWith('data:image')")
    shutil.copy(world.videos[0], folder)
    offline.reload()
    wait_until(offline, "document.getElementById('player').readyState >= 1")
    assert offline.locator("#missing").is_hidden()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_accessible_also_on_a_phone(offline, report, theme):
    offline.emulate_media(color_scheme=theme)
    offline.goto((report / "report.html").as_uri())
    offline.wait_for_selector("#chapters li")
    assert violations(offline) == []
    offline.set_viewport_size({"width": 390, "height": 844})
    assert violations(offline) == []
    assert offline.evaluate("document.documentElement.scrollWidth") <= 390


def test_answers_without_a_model(offline, report):
    """Prepared answers come first; otherwise names and speech are searched, whatever the form of the words."""
    offline.goto((report / "report.html").as_uri())
    result = offline.evaluate("""async () => {
        const { answer } = await import("report/video_report.js");
        const likely = (text, probability) => [{ text, probability }];
        const step = (start_s, likely, label) => ({ start_s, end_s: start_s + 10, likely, label, probability: 0.5 });
        const data = {
            questions: [{ query: "Wash a cup", present: true, probability: 0.9, matches: [] }],
            levels: [[
                step(0, likely("cut the onion", 0.8), null), step(10, likely("stir the pan", 0.6), "fry the onion"),
            ]],
            speech: [{ start_s: 12, end_s: 14, text: "now add some salt" }],
        };
        const times = text => answer(data, text).matches.map(match => match.start_s);
        return { prepared: answer(data, " wash A cup").probability, onions: times("cutting onions"),
            salt: answer(data, "salt").matches[0], none: answer(data, "a walrus").present };
    }""")
    assert result["prepared"] == 0.9
    assert result["onions"] == [0]
    assert (result["salt"]["start_s"], result["salt"]["quote"]) == (10, "now add some salt")
    assert result["none"] is False


def test_inlined_modules_are_complete():
    modules = collect_modules('import { a } from "report/video_report.js";')
    assert {"dom.js", "texts.js", "video/chapters.js", "video/timeline.js"} <= set(modules)
    assert all((STATIC / name).is_file() for name in modules)
    assert not any('from "./' in source or 'from "../' in source for source in modules.values())
