"""The video view in a real browser, on generated videos: chapters, timeline, answers and edits."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.browser.video_page import (
    boxes,
    click_step,
    open_video,
    screenshot,
    selected,
    set_steps,
    violations,
    wait_steps,
    wait_time,
    wait_until,
)
from tests.serve.conftest import write_scenes
from tools.screenshots import ask

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
TITLES = "[...document.querySelectorAll('#chapters .chapter .name')].map(name => name.textContent)"


@pytest.fixture
def tea(page, server):
    return open_video(page, server)


@pytest.fixture
def sure(monkeypatch):
    """Every answer counts as likely: the small random network is never sure."""
    monkeypatch.setattr("hiero.types.ANSWER_THRESHOLD", 0.0)


def rename(page, name, key="Enter"):
    page.wait_for_selector(".rename input")
    page.fill(".rename input", name)
    page.keyboard.press(key)


def name_step(page, index, name):
    click_step(page, index)
    page.keyboard.press("F2")
    rename(page, name)
    page.wait_for_selector("#saved:has-text('Saved')")


def wait_player(page, is_paused):
    wait_until(page, f"document.getElementById('player').paused === {str(is_paused).lower()}")


def seek(page, time_s):
    page.evaluate(f"document.getElementById('player').currentTime = {time_s}")


def test_a_new_video_is_read_with_a_bar(page, server):
    page.goto(server.url)
    page.click("#videos a:has-text('new')")
    page.wait_for_selector("#reading:has-text('not been processed')")
    assert page.locator("#timeline").is_hidden()
    page.click("#read")
    page.wait_for_selector("#chapters .chapter")
    assert page.locator("#reading").is_hidden()


# Chapters


def test_chapters_are_nested_with_picture_name_and_time(tea):
    set_steps(tea, 8)
    leaves = tea.locator("#chapters .chapter.leaf")
    assert leaves.count() == 8
    assert leaves.first.locator("img").count() == 1
    assert re.search(r"^(Step 1|[a-z, ]+\??)\s*0:00 – 0:0\d", leaves.first.inner_text())
    assert tea.locator("#chapters > li > .chapter.group").count() == 2
    assert "8 steps" not in tea.locator("#chapters > li").first.locator(".chapter").first.inner_text()
    group = tea.locator("#chapters .chapter.group").first
    visible = tea.locator("#chapters .chapter:visible").count()
    tea.locator("#chapters details > summary").first.click()  # closes the first group
    assert tea.locator("#chapters .chapter:visible").count() < visible
    group.click()
    wait_time(tea, 0, 0.2)


def test_the_current_chapter_is_marked_and_scrolled_into_view(tea):
    tea.set_viewport_size({"width": 1280, "height": 640})
    set_steps(tea, 10)
    last = tea.locator("#chapters .chapter.leaf").last
    assert last.get_attribute("aria-current") is None
    seek(tea, 29)
    wait_until(tea, "document.querySelector('#chapters [aria-current]')?.textContent.includes('0:30')")
    assert last.get_attribute("aria-current") == "true"

    def is_visible():
        row, listing = last.bounding_box(), tea.locator("#chapters").bounding_box()
        return row["y"] >= listing["y"] and row["y"] + row["height"] <= listing["y"] + listing["height"]

    wait_until(tea, is_visible)
    assert tea.evaluate("scrollY") == 0  # the list scrolls, not the page


def test_a_colour_means_the_same_activity_on_every_level(tea):
    set_steps(tea, 8)
    script = """() => {
        const { timeline } = document.getElementById("timeline");
        return timeline.hierarchy.levels.map(({ steps }) => steps.map(({ id, start_s, end_s }) =>
            ({ start_s, end_s, activity: timeline.entries.get(id).activity })));
    }"""
    *coarser, finest = tea.evaluate(script)
    assert len({step["activity"] for step in finest}) > 2
    for step in (step for level in coarser for step in level):
        inside = [fine for fine in finest if fine["start_s"] >= step["start_s"] and fine["end_s"] <= step["end_s"]]
        assert step["activity"] in {fine["activity"] for fine in inside}
    drawn = tea.locator("#chapters .chapter.leaf").evaluate_all(
        "rows => rows.map(row => row.style.getPropertyValue('--dot'))"
    )
    assert len(set(drawn)) == len({step["activity"] for step in finest})


def test_the_same_activity_is_a_filter_and_plays(tea):
    set_steps(tea, 5)
    chip = tea.locator("#threads .chip:has-text('2 ×')")
    assert chip.count() == 1  # the first scene comes back
    chip.click()
    assert tea.locator("#chapters .chapter.leaf:visible").count() == 2
    tea.click("#threads .play-all")
    seek(tea, 5.7)
    wait_time(tea, 17.5, 20)  # on to the second moment
    seek(tea, 23.7)
    wait_player(tea, is_paused=True)
    assert tea.locator("#threads [aria-pressed=true]").count() == 0
    assert tea.locator("#chapters .chapter.leaf:visible").count() == 5


# The fold and the timeline


def test_player_timeline_and_search_are_visible_together(tea):
    """At 1280 × 900, without a band around the picture."""
    for selector in ("#query", "#player", "#timeline", "#chapters"):
        box = tea.locator(selector).bounding_box()
        assert box["y"] >= 0, selector
        assert box["y"] + box["height"] <= 900, selector
    wait_until(tea, "document.getElementById('player').videoWidth > 0")
    ratio = "(v => [v.clientWidth / v.clientHeight, v.videoWidth / v.videoHeight])(document.getElementById('player'))"
    shown, real = tea.evaluate(ratio)
    assert shown == pytest.approx(real, abs=0.01)
    assert tea.locator("#header").bounding_box()["width"] == 1280


def test_export_and_its_menu_belong_together(tea):
    tea.click("#export button")
    menu, button = tea.locator("#export .items").bounding_box(), tea.locator("#export button").bounding_box()
    assert 0 <= menu["y"] - button["y"] - button["height"] < 12
    assert menu["x"] + menu["width"] == pytest.approx(button["x"] + button["width"], abs=2)
    with tea.expect_download() as download:
        tea.click("#export [data-format=csv]")
    assert "start_s" in Path(download.value.path()).read_text()
    assert tea.locator("#export .items").is_hidden()


def test_the_timeline(tea):
    """Rows are levels; hover shows a picture and the name, a click seeks and selects."""
    assert tea.locator("#timeline .gutter [data-level]").count() == 3
    counts = [len(boxes(tea, level)) for level in range(3)]
    assert counts == sorted(counts)
    box = boxes(tea)[1]
    tea.mouse.move(box["x"] + box["width"] / 2, box["y"] + 10)
    tip = tea.locator("#tip")
    assert tip.is_visible()
    assert tip.locator("img").is_visible()
    assert box["title"] in tip.inner_text()
    click_step(tea, 1)
    assert selected(tea) == box["id"]
    wait_time(tea, box["start_s"] - 0.2, box["start_s"] + 0.3)
    assert tea.locator("#chapters .chapter.selected").count() == 1
    painted = """(() => {
        const map = document.querySelector(".map canvas"), context = map.getContext("2d");
        const { data } = context.getImageData(0, map.height / 2, map.width, 1);
        return data.filter((value, i) => i % 4 === 3 && value > 0).length / map.width;
    })()"""
    assert tea.evaluate(painted) > 0.99  # the map shows all steps
    widths = sum(step["width"] for step in boxes(tea, 0))
    assert widths == pytest.approx(tea.locator("#timeline .track").bounding_box()["width"], abs=3)
    screenshot(tea, "page-video")


def test_keys(tea):
    """Arrows move by step, up and down between levels; / searches."""
    tea.focus("#timeline .track")
    tea.keyboard.press("Home")
    first, second = boxes(tea)[:2]
    assert selected(tea) == first["id"]
    tea.keyboard.press("ArrowRight")
    assert selected(tea) == second["id"]
    wait_time(tea, second["start_s"] - 0.1, second["end_s"])
    wait_until(tea, lambda: second["title"] in tea.get_attribute("#timeline .track", "aria-valuetext"))
    tea.keyboard.press("ArrowUp")
    assert selected(tea) in [step["id"] for step in boxes(tea, 1)]
    tea.keyboard.press("ArrowDown")
    assert selected(tea) in [step["id"] for step in boxes(tea)]
    tea.keyboard.press("End")
    tea.keyboard.press("ArrowRight")  # nothing beyond
    assert selected(tea) == boxes(tea)[-1]["id"]
    tea.keyboard.press("/")
    assert tea.evaluate("document.activeElement.id") == "query"


def shown_part(page):
    track = page.locator("#timeline .track")
    return float(track.get_attribute("data-from")), float(track.get_attribute("data-to"))


def test_zoom_pan_and_the_map(tea):
    box = tea.locator("#timeline .track").bounding_box()
    tea.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    tea.keyboard.down("Control")
    tea.mouse.wheel(0, -400)
    tea.keyboard.up("Control")
    wait_until(tea, lambda: shown_part(tea)[1] - shown_part(tea)[0] < 15)
    low, high = shown_part(tea)
    assert low < 15 < high  # around the pointer
    tea.mouse.wheel(200, 0)
    wait_until(tea, lambda: shown_part(tea)[0] > low)
    assert shown_part(tea)[1] - shown_part(tea)[0] == pytest.approx(high - low, abs=0.01)
    on_map = tea.locator("#timeline .map").bounding_box()
    tea.mouse.click(on_map["x"] + 2, on_map["y"] + 10)
    wait_until(tea, lambda: shown_part(tea)[0] == 0)
    tea.click("#zoom-fit")
    wait_until(tea, lambda: shown_part(tea) == (0, 30))
    tea.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    tea.mouse.wheel(0, 200)  # without a key, the page scrolls
    wait_until(tea, "scrollY > 0")
    assert shown_part(tea) == (0, 30)


def test_the_truth_is_an_extra_row(tea):
    names = tea.locator("#timeline .gutter-name.extra").all_text_contents()
    assert names == ["Annotated"]
    row, track = tea.locator("#timeline .gutter-name.extra").first.bounding_box(), tea.locator("#timeline .track")
    tea.mouse.click(track.bounding_box()["x"] + track.bounding_box()["width"] * 14 / 30, row["y"] + 10)
    wait_time(tea, 11.8, 12.5)  # where the third annotated step starts


# Asking


def test_a_recipe_names_the_steps_in_its_order(tea):
    tea.click("#recipe")
    tea.fill("#recipe-lines", "pour the tea\nwash a cup\n\ndrink the tea")
    screenshot(tea, "page-recipe")
    tea.click("#recipe-dialog button[type=submit]")
    wait_until(tea, "!document.getElementById('recipe-dialog').open")
    names = ["pour the tea", "wash a cup", "drink the tea"]
    wait_until(tea, lambda: [box["title"] for box in boxes(tea) if not box["title"].startswith("Step ")] == names)
    tea.click("#undo")
    wait_until(tea, lambda: "wash a cup" not in [box["title"] for box in boxes(tea)])


def test_the_best_answer_jumps_and_plays(tea, sure):
    ask(tea, "pour the tea")
    wait_player(tea, is_paused=False)
    first = tea.locator("#answers .answer").first
    assert first.get_attribute("aria-pressed") == "true"
    start = float(re.search(r"[#&]t=([\d.]+)", tea.url)[1])
    wait_time(tea, start, 30)
    assert re.search(r"\d:\d\d – \d:\d\d", first.inner_text())
    assert re.search(r"(very likely|likely|possible|unlikely) · (< 1|\d+) %", first.inner_text())
    assert first.locator("img").count() == 1
    assert "q=pour+the+tea" in tea.url


def test_pointing_at_an_answer_previews_it(tea, sure):
    ask(tea, "pour the tea")
    answer = tea.locator("#answers .answer").first
    assert answer.locator("video").count() == 0
    answer.hover()
    answer.locator("video").wait_for(state="attached")
    assert answer.locator("video").evaluate("video => video.muted && video.src.includes('#t=')")
    tea.mouse.move(5, 5)
    answer.locator("video").wait_for(state="detached")


def test_what_is_not_in_the_video_is_said_plainly(tea, monkeypatch):
    monkeypatch.setattr("hiero.types.ANSWER_THRESHOLD", 2.0)
    seek(tea, 20)
    wait_time(tea, 19.9, 20.1)
    ask(tea, "a horse")
    assert "probably not in this video" in tea.locator("#answers-title").inner_text()
    assert tea.locator("#answers li").count() == 0
    wait_time(tea, 19.9, 20.1)  # it stays where it is
    assert tea.evaluate("document.getElementById('player').paused")
    tea.click("#answers-all")
    assert tea.locator("#answers li").count() > 0


def test_questions_stay_as_rows(tea, sure):
    ask(tea, "pour the tea")
    ask(tea, "wash a cup")
    names = tea.locator("#timeline .question-name")
    assert names.all_text_contents() == ["pour the tea", "wash a cup"]
    tea.reload()
    tea.wait_for_selector("#answers li")
    wait_until(tea, lambda: names.all_text_contents() == ["pour the tea", "wash a cup"])
    names.first.click()
    tea.wait_for_selector("#answers-title:has-text('pour the tea')")
    tea.click("#timeline [aria-label*='wash a cup']")
    wait_until(tea, lambda: names.all_text_contents() == ["pour the tea"])
    tea.fill("#query", "")
    tea.focus("#query")
    tea.keyboard.press("Enter")
    wait_until(tea, lambda: names.count() == 0)


def test_an_answer_never_paints_the_whole_bar(tea):
    """One that is as long as the video is only outlined; a shorter one is filled."""
    outlined, filled = tea.evaluate("""async () => {
        const { timeline } = document.getElementById("timeline"), scale = devicePixelRatio;
        const ask = end_s => ({ text: String(end_s), matches: [{ start_s: 0, end_s, probability: 1 }] });
        timeline.showQuestions([ask(30), ask(5)]);
        await new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)));
        const column = timeline.canvas.getContext("2d").getImageData(40 * scale, 0, 1, timeline.canvas.height).data;
        const rows = timeline.rows.filter(({ kind }) => kind === "question");
        const middles = rows.map(({ y, height }) => 4 * Math.round((y + height / 2) * scale));
        return middles.map(i => [...column.slice(i, i + 3)]);
    }""")
    assert filled[0] > filled[1] + 80  # the red of an answer
    assert abs(outlined[0] - outlined[1]) < 20


def test_suggested_questions_are_the_names_in_the_video(tea, sure):
    name_step(tea, 0, "boil water")
    assert tea.locator("#suggestions option").first.get_attribute("value") == "boil water"
    tea.click("#tab-answers")
    tea.click(".suggestions .chip:has-text('boil water')")
    tea.wait_for_selector("#answers-title:has-text('boil water')")
    tea.click("#revert")
    tea.wait_for_selector("#saved:has-text('discarded')")


def test_deep_links(page, server, sure):
    open_video(page, server, parameters="&t=12.5&q=tea")
    page.wait_for_selector("#answers li")
    wait_time(page, 12.3, 12.8)
    assert page.input_value("#query") == "tea"
    assert page.evaluate("document.getElementById('player').paused")  # the link says where to be


# Editing


def test_editing_in_place(tea, server, world):
    """Rename, split, merge, undo, redo: each is saved beside the video, and exported."""
    set_steps(tea, 4)
    file = world.root / "tea.mp4.hiero.json"

    def saved():
        return json.loads(file.read_text())["levels"][2]["steps"]

    assert tea.locator("#k").is_enabled()
    click_step(tea, 1, button="dblclick")
    rename(tea, "not this", "Escape")
    assert not file.exists()
    click_step(tea, 1, button="dblclick")
    rename(tea, "boil <b>water</b>")
    tea.wait_for_selector("#saved:has-text('Saved')")
    assert "boil <b>water</b>" in tea.evaluate(TITLES)
    assert saved()[1]["label"] == "boil <b>water</b>"
    assert tea.locator("#k").is_disabled()  # or the slider would throw the edits away
    tea.locator("#chapters .chapter.leaf").nth(2).dblclick()
    assert tea.locator("#used-names option").first.get_attribute("value") == "boil <b>water</b>"
    rename(tea, "", "Escape")
    begin, end = saved()[1]["start_s"], saved()[1]["end_s"]
    click_step(tea, 1)
    seek(tea, (begin + end) / 2)
    wait_time(tea, begin + 0.5, end - 0.5)
    for key, number in (("s", 5), ("m", 4), ("Control+z", 5), ("Control+Shift+z", 4)):
        tea.keyboard.press(key)
        wait_steps(tea, number)
        wait_until(tea, lambda number=number: len(saved()) == number)
    for button, number in (("#undo", 5), ("#redo", 4)):
        tea.click(button)
        wait_steps(tea, number)
    tea.click("#export button")
    with tea.expect_download() as download:
        tea.click("#export [data-format=srt]")
    assert "boil <b>water</b>" in Path(download.value.path()).read_text()
    tea.reload()
    tea.wait_for_selector("#chapters .name:has-text('boil')")
    tea.click("#revert")
    tea.wait_for_selector("#saved:has-text('discarded')")
    assert not file.exists()


def test_a_boundary_is_dragged_with_the_frame_shown(tea, world):
    set_steps(tea, 4)
    before = boxes(tea)[1]
    x, y = before["x"], before["y"] + 12
    tea.mouse.move(x, y)
    assert tea.evaluate("document.querySelector('#timeline canvas').style.cursor") == "ew-resize"
    tea.mouse.down()
    tea.mouse.move(x + 30, y)
    assert tea.locator("#tip img").is_visible()
    tea.mouse.move(x + 60, y)
    tea.mouse.up()
    tea.wait_for_selector("#saved:has-text('Saved')")
    after = boxes(tea)
    assert after[1]["x"] == pytest.approx(x + 60, abs=2)
    assert after[0]["end_s"] == after[1]["start_s"]
    assert tea.locator("#tip").is_hidden()
    click_step(tea, 1)
    tea.keyboard.press("Shift+ArrowLeft")
    wait_until(tea, lambda: boxes(tea)[1]["start_s"] == pytest.approx(after[1]["start_s"] - 1, abs=0.01))
    tea.click("#later")
    tea.click("#later")  # at once: each begins with what the other saved
    wait_until(tea, lambda: boxes(tea)[1]["start_s"] == pytest.approx(after[1]["start_s"] + 1, abs=0.01))


def test_the_marked_step_can_be_edited(tea):
    """Without a selection that is the step at the current time."""
    tools = [f"#{name}" for name in ("rename", "split", "merge", "earlier", "later")]
    assert all(tea.locator(tool).is_enabled() for tool in tools)
    assert all(tea.locator(tool).is_disabled() for tool in ("#undo", "#redo"))
    marked = tea.locator("#chapters .chapter.leaf[aria-current]")
    tea.click("#rename")
    rename(tea, "flox the wemble")
    tea.wait_for_selector("#saved:has-text('Saved')")
    assert "flox the wemble" in marked.inner_text()
    click_step(tea, 1)
    assert all(tea.locator(tool).is_enabled() for tool in [*tools, "#undo"])


def test_what_a_person_changed_is_marked_and_filtered(tea):
    set_steps(tea, 4)
    assert tea.locator("#chapters .edited").count() == 0
    name_step(tea, 2, "whisk")
    changed = tea.locator("#chapters .chapter:has(.edited)")
    assert "whisk" in changed.last.inner_text()
    tea.click("#threads .chip:has-text('changed by people')")
    assert tea.locator("#chapters .chapter.leaf:visible").all_inner_texts() == [changed.last.inner_text()]


def test_an_edit_that_is_impossible_says_why(tea):
    click_step(tea, 0)
    tea.click("#earlier")
    tea.wait_for_selector("#error:has-text('starts with the video')")
    click_step(tea, -1)
    tea.click("#merge")
    tea.wait_for_selector("#error:has-text('This is the last step')")


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

    def is_shown(label):
        return lambda: boxes(tea)[1]["title"] == label and saved_label() == label

    name_step(tea, 1, "mine")
    save_theirs("theirs")
    tea.click("#rename")
    rename(tea, "mine again")
    tea.wait_for_selector("#conflict:visible")
    assert saved_label() == "theirs"
    screenshot(tea, "page-conflict")
    tea.click(f"#{choice}")
    wait_until(tea, is_shown("mine again" if choice == "keep-mine" else "theirs"))
    assert tea.locator("#conflict").is_hidden()
    if choice == "take-theirs":
        assert tea.locator("#undo").is_disabled()
    name_step(tea, 1, "on top")  # which begins with the version that was chosen
    wait_until(tea, is_shown("on top"))
    save_theirs("theirs again")
    tea.click("#revert")
    tea.wait_for_selector("#conflict:visible")
    assert saved_label() == "theirs again"
    tea.click("#keep-mine")
    wait_until(tea, lambda: library.edits.read(entry) is None)
    assert [text for text in tea.problems if "412" not in text] == []
    tea.problems.clear()  # the browser's own lines about the refused saves


# The rest of the view


def test_space_the_skip_link_and_leaving(tea):
    click_step(tea, 1)
    tea.keyboard.press("Space")
    wait_player(tea, is_paused=False)
    tea.keyboard.press("Space")
    wait_player(tea, is_paused=True)
    tea.evaluate("document.getElementById('skip').click()")
    assert tea.locator("#one").is_visible()
    assert tea.evaluate("document.activeElement.id") == "main"
    tea.evaluate("document.getElementById('player').play()")
    tea.click("#home")
    tea.wait_for_selector("#videos li")
    wait_player(tea, is_paused=True)


def test_everything_with_keys_only(page, server, sure):
    """From the address bar: skip, ask, choose a chapter, rename it, undo."""
    open_video(page, server)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "skip"
    page.keyboard.press("/")
    page.keyboard.type("tea")
    page.keyboard.press("Enter")
    page.wait_for_selector("#answers li")
    page.focus("#tab-answers")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#panel-chapters").is_visible()
    page.locator("#chapters .chapter.leaf").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert selected(page) is not None
    page.keyboard.press("F2")
    rename(page, "by keys")
    page.wait_for_selector("#chapters .name:has-text('by keys')")
    page.keyboard.press("Control+z")
    wait_until(page, lambda: "by keys" not in page.evaluate(TITLES))


def test_a_phone(browser, server):
    """At 390 px: the player, then the chapters; no hints about keys; the timeline pinches; edits are possible."""
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = context.new_page()
    open_video(page, server)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    player, chapters = page.locator("#player").bounding_box(), page.locator("#chapters").bounding_box()
    assert player["y"] + player["height"] <= chapters["y"] < 700
    assert page.locator("#timeline-keys").is_hidden()
    page.locator("#timeline .track").scroll_into_view_if_needed()
    track = page.locator("#timeline .track").bounding_box()
    assert track["width"] > 320
    touches = context.new_cdp_session(page)
    x, y = track["x"] + track["width"] / 2, track["y"] + 60
    for kind, spread in (("touchStart", 20), ("touchMove", 40), ("touchMove", 80), ("touchMove", 120)):
        points = [{"x": x - spread, "y": y, "id": 0}, {"x": x + spread, "y": y, "id": 1}]
        touches.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    touches.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    wait_until(page, lambda: shown_part(page)[1] - shown_part(page)[0] < 10)
    page.locator("#chapters .chapter.leaf").first.tap()
    page.locator("#rename").tap()
    rename(page, "on the phone")
    page.wait_for_selector("#saved:has-text('Saved')")
    screenshot(page, "page-phone")
    context.close()


def test_dark_and_light(page, server):
    open_video(page, server)
    colour = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(colour)
    page.click("#theme")
    assert page.evaluate(colour) != before
    page.reload()
    page.wait_for_selector("#chapters .chapter")
    assert page.evaluate(colour) != before  # remembered
    screenshot(page, "page-dark")


@pytest.mark.usefixtures("sure")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_accessibility_of_the_video_view(page, server, theme, width):
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": 900})
    open_video(page, server)
    set_steps(page, 5)
    click_step(page, 1)
    assert violations(page) == []
    ask(page, "tea")
    page.click("#export button")
    assert violations(page) == []


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
        assert page.evaluate("document.getElementById('timeline').timeline.files.length") == 3
        click_step(page, 0)
        wait_until(page, f"{source}.endsWith('part=0')")
        assert "in GX010001.MP4 at 0:00" in page.inner_text("#now")
        page.evaluate("document.getElementById('player').muted = true")
        page.keyboard.press("Space")
        wait_player(page, is_paused=False)
        seek(page, 3.6)
        wait_until(page, f"{source}.endsWith('part=1')")
        wait_player(page, is_paused=False)  # it goes on by itself
        wait_until(page, "(t => t > 4 && t < 8)(document.getElementById('timeline').timeline.time)")
        screenshot(page, "chapters")
    finally:
        for path in paths:
            path.unlink()
