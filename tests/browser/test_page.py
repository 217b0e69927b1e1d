"""Every interaction of the page, in a real browser, on generated videos."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest

from tests.serve.conftest import write_scenes
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.filterwarnings("ignore")
SCREENSHOTS = os.environ.get("HIERO_PICTURES")  # a folder, if they are wanted


def open_video(page, server, name="tea", parameters=""):
    page.goto(f"{server.url}#v={server.library.find_by_name(name).id}{parameters}")
    page.wait_for_selector("#timeline .row button")
    page.wait_for_selector("#matrix[data-ready]")
    return page


@pytest.fixture
def tea(page, server):
    return open_video(page, server)


def rows(page):
    return page.locator("#timeline .row:not(.extra)")


def wait_until(page, condition, timeout_s=PATIENCE_S):
    """Wait for an expression of the page, or a function, to hold.

    Playwright's own way evaluates strings in the page, which its policy forbids.
    """
    end = time.monotonic() + timeout_s
    while not (condition() if callable(condition) else page.evaluate(condition)):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(30)


def wait_time(page, low, high):
    wait_until(page, f"(t => t >= {low} && t <= {high})(document.getElementById('player').currentTime)")


def wait_for_results(page, id):
    """Wait for answers or hits. Those of the small random network may be improbable, and are then shown by a button."""
    page.wait_for_selector(f"#{id} li, #{id}-all:visible")
    if page.locator(f"#{id}-all").is_visible():
        assert "probably not in" in page.locator("#results-title:visible, #answers-title:visible").text_content()
        page.click(f"#{id}-all")
    page.wait_for_selector(f"#{id} li")
    assert re.search(r"\d %", page.locator(f"#{id} li").first.text_content())


def screenshot(page, name):
    if SCREENSHOTS:
        page.screenshot(path=str(Path(SCREENSHOTS) / f"{name}.png"), full_page=True)


def test_a_new_video_is_read_with_a_bar(page, server):
    page.goto(server.url)
    page.click("#videos a:has-text('new')")
    page.wait_for_selector("#reading:has-text('not been processed')")
    page.click("#read")
    page.wait_for_selector("#timeline .row button")
    assert page.locator("#reading").is_hidden()


def test_the_timeline(tea):
    """Nested rows are levels, colours are threads; hover shows a picture and the label, click seeks."""
    assert rows(tea).count() == 3
    counts = [rows(tea).nth(i).locator("button").count() for i in range(3)]
    assert counts == sorted(counts)
    button = rows(tea).nth(2).locator("button").nth(1)
    button.hover()
    tip = tea.locator("#tip")
    assert tip.is_visible()
    assert tip.locator("img").count() == 1
    label = button.text_content()
    assert label in tip.text_content()
    button.click()
    start = float(re.search(r"t=([\d.]+)", tea.url)[1])
    wait_time(tea, start - 0.2, start + 0.3)
    assert "chosen" in button.get_attribute("class")
    widths = [rows(tea).nth(0).locator("button").nth(i).bounding_box()["width"] for i in range(counts[0])]
    assert sum(widths) == pytest.approx(rows(tea).nth(0).bounding_box()["width"], abs=3)
    screenshot(tea, "page-video")


def test_keys(tea):
    """Arrows move by step, up and down between levels; / searches; a step is always reachable by Tab."""
    rows(tea).nth(2).locator("button").nth(0).focus()
    tea.keyboard.press("ArrowRight")
    assert rows(tea).nth(2).locator("button").nth(1).get_attribute("class") == "chosen"
    assert tea.evaluate("document.activeElement.classList.contains('chosen')")
    wait_time(tea, 0.5, 29)
    tea.keyboard.press("ArrowUp")
    assert rows(tea).nth(1).locator("button.chosen").count() == 1
    tea.keyboard.press("ArrowDown")
    assert rows(tea).nth(2).locator("button.chosen").count() == 1
    tea.keyboard.press("End")
    assert "chosen" in (rows(tea).nth(2).locator("button").last.get_attribute("class") or "")
    tea.keyboard.press("ArrowRight")  # nothing beyond
    assert "chosen" in (rows(tea).nth(2).locator("button").last.get_attribute("class") or "")
    assert tea.locator("#timeline .row:not(.extra) button[tabindex='0']").count() == 1
    tea.keyboard.press("/")
    assert tea.evaluate("document.activeElement.id") == "query"


def test_the_slider_cuts_again(tea):
    for k in (3, 7):
        tea.locator("#k").fill(str(k))
        wait_until(tea, f"document.querySelectorAll('#timeline .row:not(.extra)')[2]?.children.length === {k}")
        assert tea.locator("#k-now").text_content() == str(k)


def test_search_in_a_video(tea):
    tea.fill("#query", "pour the tea")
    tea.uncheck("#everywhere")
    tea.keyboard.press("Enter")
    wait_for_results(tea, "answers")
    assert tea.locator("#timeline .hits i").count() == tea.locator("#answers li").count()
    assert "q=pour+the+tea" in tea.url
    tea.click("#answers li:nth-child(1) button")
    assert tea.locator("#answers button[aria-pressed=true]").count() == 1
    tea.fill("#query", "")
    tea.keyboard.press("Enter")
    wait_until(tea, "document.querySelectorAll('#timeline .hits i').length === 0")


def test_the_matrix_is_linked(tea):
    box = tea.locator("#matrix").bounding_box()
    tea.locator("#matrix").click(position={"x": box["width"] * 0.5, "y": 20})
    wait_time(tea, 14, 16)
    cursor = tea.evaluate("parseFloat(document.querySelector('.cursor').style.left)")
    assert cursor == pytest.approx(50, abs=4)
    size = tea.evaluate("document.getElementById('matrix').width")
    assert size > 40
    tea.locator("#matrix").focus()
    tea.keyboard.press("ArrowRight")
    wait_time(tea, 15, 17)


def test_all_moments_of_a_thread(tea):
    tea.locator("#k").fill("5")
    wait_until(tea, "document.querySelectorAll('#timeline .row:not(.extra)')[2]?.children.length === 5")
    twice = tea.locator("#threads button:has-text('2 ×')")
    assert twice.count() == 1  # the first scene comes back
    twice.click()
    assert rows(tea).nth(2).locator("button.dim").count() == 3
    tea.evaluate("document.getElementById('player').currentTime = 5.7")
    wait_time(tea, 17.5, 20)  # on to the second moment
    tea.evaluate("document.getElementById('player').currentTime = 23.7")
    wait_until(tea, "document.getElementById('player').paused")
    assert tea.locator("#threads button[aria-pressed=true]").count() == 0


def test_other_models_and_the_truth_are_extra_rows(tea):
    names = tea.locator(".row-name").all_text_contents()
    assert names == ["Annotated", "model"]
    assert tea.locator(".row.extra").first.locator("button").count() == 5
    tea.locator(".row.extra").first.locator("button").nth(2).click()
    wait_time(tea, 11.8, 12.5)


def test_editing(tea, server, world):
    """Rename, split, merge, move a boundary, undo: each is saved beside the video, and exported."""
    tea.locator("#k").fill("4")
    wait_until(tea, "document.querySelectorAll('#timeline .row:not(.extra)')[2]?.children.length === 4")
    file = world.root / "tea.mp4.hiero.json"
    fine = rows(tea).nth(2).locator("button")

    def saved():
        return json.loads(file.read_text())["levels"][2]["steps"]

    def wait_for_start(start_s):
        wait_until(tea, lambda: saved()[1]["start_s"] == pytest.approx(start_s, abs=0.01))

    assert tea.locator("#k").is_enabled()
    fine.nth(1).click()
    tea.once("dialog", lambda dialog: dialog.accept("boil <b>water</b>"))
    tea.click("#rename")
    tea.wait_for_selector("#saved:has-text('Saved')")
    assert fine.nth(1).text_content() == "boil <b>water</b>"
    assert saved()[1]["label"] == "boil <b>water</b>"
    assert tea.locator("#k").is_disabled()  # or the slider would throw the edits away
    begin, end = saved()[1]["start_s"], saved()[1]["end_s"]
    tea.evaluate(f"document.getElementById('player').currentTime = {(begin + end) / 2}")
    wait_time(tea, begin + 0.5, end - 0.5)
    tea.click("#split")
    wait_until(tea, "document.querySelectorAll('#timeline .row:not(.extra)')[2]?.children.length === 5")
    assert len(saved()) == 5
    tea.click("#merge")
    wait_until(tea, "document.querySelectorAll('#timeline .row:not(.extra)')[2]?.children.length === 4")
    tea.click("#later")
    tea.click("#later")  # at once: each begins with what the other saved
    wait_for_start(begin + 2)
    tea.click("#undo")
    wait_for_start(begin + 1)
    assert saved()[0]["end_s"] == saved()[1]["start_s"]
    tea.click("#undo")
    wait_for_start(begin)
    with tea.expect_download() as download:
        tea.select_option("#export", "srt")
    assert "boil <b>water</b>" in Path(download.value.path()).read_text()
    tea.reload()
    tea.wait_for_selector("#timeline .row button")
    assert fine.nth(1).text_content() == "boil <b>water</b>"  # it is still there
    tea.click("#revert")
    tea.wait_for_selector("#saved:has-text('discarded')")
    assert not file.exists()


@pytest.mark.parametrize("choice", ["keep-mine", "take-theirs"])
def test_two_people_edit(tea, server, choice):
    """Whoever comes second is told, and chooses."""
    library = server.library
    entry = library.find_by_name("tea")

    def saved_label():
        return library.edits.read(entry).hierarchy.levels[2][1].label

    def save_theirs(label):
        document = library.edits.read(entry).hierarchy.to_dict()
        document["levels"][2]["steps"][1]["label"] = label
        library.save_edits(entry, document, library.read(entry), None)

    def rename(label):
        tea.once("dialog", lambda dialog: dialog.accept(label))
        tea.click("#rename")

    fine = rows(tea).nth(2).locator("button")
    fine.nth(1).click()
    rename("mine")
    tea.wait_for_selector("#saved:has-text('Saved')")
    save_theirs("theirs")
    rename("mine again")
    tea.wait_for_selector("#conflict:has-text('Someone else has edited')")
    assert saved_label() == "theirs"
    screenshot(tea, "page-conflict")
    tea.click(f"#{choice}")
    expected = "mine again" if choice == "keep-mine" else "theirs"
    tea.wait_for_selector(f"#timeline .row button:text-is('{expected}')")
    assert tea.locator("#conflict").is_hidden()
    assert saved_label() == expected
    if choice == "take-theirs":
        assert tea.locator("#undo").is_disabled()
        fine.nth(1).click()
    rename("on top")  # which begins with the version that was chosen
    wait_until(tea, "document.querySelectorAll('#timeline .row:not(.extra)')[2].children[1].textContent === 'on top'")
    assert saved_label() == "on top"
    save_theirs("theirs again")
    tea.click("#revert")
    tea.wait_for_selector("#conflict:has-text('Someone else has edited')")
    assert saved_label() == "theirs again"
    tea.click("#keep-mine")
    tea.wait_for_selector("#saved:has-text('discarded')")
    assert library.edits.read(entry) is None
    assert [text for text in tea.problems if "412" not in text] == []
    tea.problems.clear()  # the browser's own lines about the refused saves


def test_an_edit_that_is_impossible_says_why(tea):
    rows(tea).nth(2).locator("button").first.click()
    tea.click("#earlier")
    tea.wait_for_selector("#error:has-text('starts with the video')")
    rows(tea).nth(2).locator("button").last.click()
    tea.click("#merge")
    tea.wait_for_selector("#error:has-text('This is the last step')")


def test_search_across_videos_and_the_same_step_elsewhere(page, server, monkeypatch):
    monkeypatch.setattr("hiero.serve.video_routes.SEARCH_THRESHOLD", 0.0)  # the small random network is never sure
    page.goto(server.url)
    page.wait_for_selector("#videos li")
    assert page.locator("#videos li").count() == 3
    page.fill("#query", "wash a cup")
    page.keyboard.press("Enter")
    wait_for_results(page, "hits")
    assert re.search("in all videos|probably not in these videos", page.locator("#results-title").text_content())
    screenshot(page, "page-search")
    page.click("#hits li:nth-child(1) a")
    page.wait_for_selector("#timeline .row button")
    wait_for_results(page, "answers")  # the same words, in this video
    rows(page).nth(2).locator("button").nth(1).click()
    page.wait_for_selector("#same li")
    page.click("#same li:nth-child(1) a")
    page.wait_for_selector("#timeline .row button")
    page.click("#home")
    page.wait_for_selector("#videos li")


def test_a_search_stays_where_the_player_is(tea):
    rows(tea).nth(2).locator("button").nth(1).click()
    tea.evaluate("document.getElementById('player').currentTime = 20")
    wait_time(tea, 19.9, 20.1)
    tea.uncheck("#everywhere")
    tea.fill("#query", "tea")
    tea.keyboard.press("Enter")
    wait_for_results(tea, "answers")
    wait_time(tea, 19.9, 20.1)


def test_leaving_a_video_stops_it(tea):
    tea.evaluate("document.getElementById('player').play()")
    tea.click("#home")
    tea.wait_for_selector("#videos li")
    assert tea.evaluate("document.getElementById('player').paused")


def test_space_and_the_skip_link(tea):
    rows(tea).nth(2).locator("button").nth(1).click()
    tea.keyboard.press("Space")
    wait_until(tea, "!document.getElementById('player').paused")
    tea.keyboard.press("Space")
    wait_until(tea, "document.getElementById('player').paused")
    tea.evaluate("document.getElementById('skip').click()")
    assert tea.locator("#one").is_visible()
    assert tea.evaluate("document.activeElement.id") == "main"
    assert tea.locator(".row.extra button[tabindex='0']").count() == 2  # one stop a row


def test_a_coarse_step_is_split_with_what_it_holds(page, server):
    """Near a boundary of a finer level all levels are cut there: they stay nested."""
    page.goto(server.url)
    page.wait_for_selector("#videos li")
    levels = page.evaluate("""async () => {
        const { split } = await import("./video/edit.js");
        const step = (id, start_s, end_s, parent) => ({ id, start_s, end_s, parent, thread: 0, children: [] });
        const steps = { duration_s: 10, levels: [
          { steps: [step("0.0", 0, 10, null)] }, { steps: [step("1.0", 0, 10, "0.0")] },
          { steps: [step("2.0", 0, 5.1, "1.0"), step("2.1", 5.1, 10, "1.0")] }] };
        return split(steps, "0.0", 5.0).levels.map(({ steps }) => steps.map(s => [s.start_s, s.end_s, s.parent]));
    }""")
    assert [[row[:2] for row in level] for level in levels] == [[[0, 5.1], [5.1, 10]]] * 3
    assert levels[2][1][2] != "1.0"


def test_deep_links(page, server):
    open_video(page, server, parameters="&t=12.5&q=tea")
    wait_time(page, 12.3, 12.8)
    wait_for_results(page, "answers")
    assert page.input_value("#query") == "tea"


def test_dark_light_and_a_phone(page, server):
    open_video(page, server)
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.reload()
    page.wait_for_selector("#timeline .row button")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before  # remembered
    screenshot(page, "page-dark")
    page.set_viewport_size({"width": 375, "height": 740})
    page.wait_for_timeout(200)
    assert page.evaluate("document.documentElement.scrollWidth") <= 376
    assert page.locator("#timeline").bounding_box()["width"] > 320
    screenshot(page, "page-phone")


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
    """axe-core's rules on the list, on the results and on a video."""
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
    open_video(page, server, parameters="&q=tea")
    wait_for_results(page, "answers")
    assert violations() == []


def test_files_that_are_one_video(page, server, world):
    """The player opens the file that a moment is in, and goes on with the next one at its end."""
    paths = [write_scenes(world.root / f"GX0{i}0001.MP4", [i], 4) for i in (1, 2, 3)]
    entry = server.library.add(tuple(paths))
    server.library.index(entry)
    try:
        page = open_video(page, server, entry.name, "&t=9.5")
        source = "document.getElementById('player').currentSrc"
        wait_until(page, f"{source}.endsWith('part=2')")
        wait_time(page, 1.4, 1.6)  # 9.5 s of the video are 1.5 s of the third file
        assert page.locator("#timeline .boundary").count() == 2
        rows(page).last.locator("button").first.click()
        wait_until(page, f"{source}.endsWith('part=0')")
        assert "in GX010001.MP4 at 0:00" in page.inner_text("#now")
        page.evaluate("document.getElementById('player').muted = true")
        page.keyboard.press("Space")
        wait_until(page, "!document.getElementById('player').paused")
        page.evaluate("document.getElementById('player').currentTime = 3.6")
        wait_until(page, f"{source}.endsWith('part=1')")
        wait_until(page, "!document.getElementById('player').paused")  # it goes on by itself
        left = "parseFloat(document.querySelector('#timeline .cursor').style.left)"
        wait_until(page, f"{left} > 33 && {left} < 67")
        screenshot(page, "chapters")
    finally:
        for path in paths:
            path.unlink()
