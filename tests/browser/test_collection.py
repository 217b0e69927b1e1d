"""The collection in a real browser: cards, facets, jobs, adding, search across videos, and the folder report."""

from __future__ import annotations

import re
import shutil
import threading
import time

import pytest

from hiero.serve.app import create_app
from hiero.serve.library import Library
from hiero.serve.settings import ServerSettings
from hiero.types import ProgressEvent
from tests.browser.conftest import run_server
from tests.browser.video_page import click_step, screenshot, violations, wait_until
from tests.serve.conftest import write_scenes

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def open_collection(page, server, address=""):
    page.goto(server.url + address)
    page.wait_for_selector("#videos li")
    return page


def leave(page, server):
    """Leave a server that is not the one of the fixture, to which alone the page may send requests."""
    page.goto("about:blank")
    assert [text for text in page.problems if server.url not in text and "Failed to fetch" not in text] == []
    page.problems.clear()


def card(page, name):
    return page.locator(f"#videos li:has(h2:text-is('{name}'))")


@pytest.fixture
def named(library):
    """The small random network is not sure enough to name steps."""
    library.find_by_name("tea").names = ("pour the tea", "wash a cup", "sit down", "read")
    library.find_by_name("bike").names = ("wash a cup",)


def test_cards(page, server, named):
    open_collection(page, server)
    tea = card(page, "tea")
    assert tea.locator(".on-picture").inner_text() == "0:30"
    steps = server.library.find_by_name("tea")
    assert tea.locator(".first-steps").inner_text() == " · ".join(steps.names[:3])
    assert f"{steps.num_steps} steps" in tea.inner_text()
    assert "not processed yet" in card(page, "new").inner_text()
    wait_until(page, "[...document.querySelectorAll('#videos img')].every(({ naturalWidth }) => naturalWidth > 0)")
    assert page.locator("#learn").is_hidden()  # nothing has been corrected
    page.select_option("#sort", "name")
    page.wait_for_selector("#videos li:first-child:has-text('bike')")
    page.select_option("#sort", "length")
    page.wait_for_selector("#videos li:first-child:has-text('tea')")
    page.fill("#filter", "bik")
    page.wait_for_selector("#list-status:has-text('1 of 1 video matching “bik”')")
    page.fill("#filter", "zzz")
    page.wait_for_selector("#no-videos:has-text('No videos match “zzz”')")


def test_facets_narrow_and_stay_in_the_address(page, server, world, named):
    (world.root / "attic").mkdir(exist_ok=True)
    shutil.copy(world.root / "new.mp4", world.root / "attic" / "box.mp4")
    server.library.add(world.root / "attic" / "box.mp4")
    open_collection(page, server)
    page.click("[data-facet=folder][data-value=attic]")
    page.wait_for_selector("#list-status:has-text('1 of 1 video')")
    assert "folder=attic" in page.url
    page.reload()
    page.wait_for_selector("[data-value=attic][aria-pressed=true]")
    assert page.locator("#videos li").count() == 1
    page.click("#chosen button")
    page.wait_for_selector("#list-status:has-text('4 of 4 videos')")
    step = server.library.find_by_name("tea").names[0]
    page.click(f"[data-facet=step][data-value='{step}']")
    page.wait_for_selector("#chosen .chip")
    assert step in page.locator("#chosen").inner_text()


@pytest.fixture
def slow(library, monkeypatch):
    """Videos are read by hand: each report of progress is given by the test."""
    library.reports, library.is_done = [], False
    read = library.engine.read

    def read_by_hand(source, *, progress, **options):
        while "new" in source.name and not library.is_done:
            for done_s in library.reports:
                progress(ProgressEvent("read", source.name, done_s, 60.0))
            time.sleep(0.02)
        return read(source, progress=progress, **options)

    monkeypatch.setattr(library.engine, "read", read_by_hand)
    yield library
    library.is_done = True


def test_reading_shows_its_progress_and_survives_a_reload(page, server, slow):
    slow.reports = [0.0]
    open_collection(page, server)
    page.click("#read-all")
    page.wait_for_selector("#jobs li:has-text('new')")
    slow.reports = [20.0]
    page.wait_for_selector("#jobs li:has-text('33 %')")
    page.wait_for_selector("#jobs li:has-text('left')")
    assert "33 %" in card(page, "new").locator(".overlay").inner_text()
    assert page.locator("#read-all").is_hidden()
    page.reload()
    page.wait_for_selector("#jobs li:has-text('33 %')")
    assert card(page, "new").locator(".overlay").is_visible()
    assert violations(page) == []
    slow.is_done = True
    page.wait_for_selector("#queue", state="hidden")
    page.wait_for_selector("#videos li:has-text('new'):has-text('steps')")


def name_step(library, name, label):
    """A person names the first of the fine steps of a video."""
    entry = library.find_by_name(name)
    video = library.read(entry)
    document = library.steps(video, None).to_dict()
    document["levels"][-1]["steps"][0]["label"] = label
    library.save_edits(entry, document, video, ())


def test_learning_is_offered_where_corrections_are(page, server, library):
    name_step(library, "tea", "warm the pot")
    open_collection(page, server)
    assert "corrected" in card(page, "tea").inner_text()
    page.click("#learn")
    page.wait_for_selector("#learn-status:has-text('Learned 1 name from 1 step in 1 video')")
    page.reload()
    page.wait_for_selector("#learn-status:has-text('Learned 1 name')")  # it is still known


def test_a_job_that_failed_can_be_tried_again(page, server, library):
    path = library.find_by_name("new").path
    content = path.read_bytes()
    path.write_bytes(b"no video")
    try:
        open_collection(page, server)
        card(page, "new").locator("button.read").click()
        page.wait_for_selector("#jobs li:has-text('new.mp4')")
        page.click("#jobs button:has-text('Try again')")
        page.wait_for_selector("#jobs li:has-text('new.mp4') >> nth=1")
    finally:
        path.write_bytes(content)
    assert [text for text in page.problems if "Failed to load resource" not in text] == []
    page.problems.clear()  # the browser's own line about its picture


DROP = """async url => {
    const bytes = await (await fetch(url)).blob(), dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([bytes, "and more"], "dropped.mp4", { type: "video/mp4" }));
    dataTransfer.items.add(new File(["text"], "notes.txt", { type: "text/plain" }));
    const send = type => document.body.dispatchEvent(
        new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true }));
    send("dragenter"), send("dragover");
    const isShown = !document.getElementById("drop").hidden;
    send("drop");
    return isShown;
}"""


def test_files_are_dropped_or_chosen_and_read(page, library, tmp_path):
    new = library.find_by_name("new")
    with run_server(library, create_app(library, ServerSettings(upload=tmp_path))) as server:
        open_collection(page, server)
        assert page.evaluate(DROP, f"api/videos/{new.id}/file")
        page.wait_for_selector("#one:not([hidden])")
        open_collection(page, server)
        with page.expect_file_chooser() as chooser:
            page.click("#add")
        chosen = {"name": "chosen.mp4", "mimeType": "video/mp4", "buffer": new.path.read_bytes() + b"other"}
        chooser.value.set_files([chosen])
        page.wait_for_selector("#one:not([hidden])")
        for name in ("dropped", "chosen"):
            wait_until(page, lambda name=name: library.find_by_name(name).is_read)
        assert {path.name for path in tmp_path.glob("*/*/*")} == {"dropped.mp4", "chosen.mp4"}
        leave(page, server)


def test_a_phone_uploads_sees_the_queue_and_searches(page, library, world, tmp_path, monkeypatch):
    monkeypatch.setattr("hiero.serve.video_routes.ANSWER_THRESHOLD", 0.0)
    release = threading.Event()

    def wait(self, entry, progress):
        while not release.wait(0.05):
            progress(ProgressEvent("read", entry.name, 2.0, 6.0))

    monkeypatch.setattr("hiero.serve.library.Library.index", wait)
    films = [write_scenes(tmp_path / f"{name}.mp4", [6, 7], seconds) for name, seconds in (("one", 1), ("two", 2))]
    page.set_viewport_size({"width": 390, "height": 844})
    with run_server(library, create_app(library, ServerSettings(upload=tmp_path / "uploads"))) as server:
        open_collection(page, server)
        for film in films:
            with page.expect_file_chooser() as chooser:
                page.click("#add")
            chooser.value.set_files(film)
            page.wait_for_selector(f"#name:has-text('{film.stem}')")
            page.wait_for_selector("#reading-text")
            if film is films[0]:
                page.wait_for_selector("#reading-text:has-text('Processing')")
                page.click("#home")
                page.wait_for_selector("#list:not([hidden])")
        page.wait_for_selector("#reading-text:has-text('place 1 in the queue')")
        assert violations(page) == []
        screenshot(page, "phone-waiting")
        page.click("#home")
        page.wait_for_selector("#videos li:has-text('place 1 in the queue')")
        assert violations(page) == []
        screenshot(page, "phone-queue")
        page.fill("#query", "wash a cup")
        page.keyboard.press("Enter")
        page.wait_for_selector("#hits li")
        page.wait_for_selector("#unsearched:has-text('3 videos have not been processed')")
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        screenshot(page, "phone-results")
        release.set()
        leave(page, server)


def search(page, text):
    page.fill("#query", text)
    page.keyboard.press("Enter")


def test_results_are_grouped_by_video_and_play_on_hover(page, server, monkeypatch):
    monkeypatch.setattr("hiero.serve.video_routes.ANSWER_THRESHOLD", 0.0)  # the small random network is never sure
    open_collection(page, server)
    search(page, "wash a cup")
    page.wait_for_selector("#hits li")
    screenshot(page, "page-search")
    groups = page.locator("#hits section")
    assert sorted(groups.nth(i).get_attribute("aria-label") for i in range(groups.count())) == ["bike", "tea"]
    moment = page.locator("#hits li").first
    assert re.search(r"\d %", moment.inner_text())
    moment.hover()
    wait_until(page, "document.querySelector('#hits video')?.currentTime > 0")
    page.mouse.move(2, 2)
    wait_until(page, "!document.querySelector('#hits video')")
    page.locator("#hits li a").first.focus()  # also by the keyboard
    wait_until(page, "document.querySelector('#hits video')")
    assert violations(page) == []
    page.click("#hits li:nth-child(1) a")
    page.wait_for_selector("#timeline .track[data-to]")
    page.wait_for_selector("#answers li, #answers-all:visible")  # the same words, in this video
    click_step(page, 1)
    page.click("#same li:nth-child(1) a")
    page.wait_for_selector("#timeline .track[data-to]")


def test_errors_are_shown(page, server):
    open_collection(page, server)
    failed = {"status": 400, "content_type": "application/json", "body": '{"error": "no such luck"}'}
    page.route("**/api/search?*", lambda route: route.fulfill(**failed))
    with page.expect_response("**/api/search?*"):
        search(page, "x")
    page.wait_for_selector("#error:has-text('no such luck')")
    assert [text for text in page.problems if "400" not in text] == []
    page.problems.clear()  # the browser's own line about the answer


def test_nothing_found_is_plain(page, server):
    open_collection(page, server)
    search(page, "a walrus")
    page.wait_for_selector("#results-title:has-text('“a walrus” is probably not in these videos')")
    assert "Nothing found" in page.inner_text("#nothing")
    assert page.locator("#hits li").count() == 0
    page.click("#hits-all")
    page.wait_for_selector("#hits li")


def test_the_same_step_elsewhere_plays_in_sync(page, server):
    page.goto(f"{server.url}#v={server.library.find_by_name('tea').id}&t=2&same=2")
    page.wait_for_selector("#same-players li:nth-child(2)")
    assert "this step" in page.locator("#same-players li").first.inner_text()
    times = "[...document.querySelectorAll('#same-players video')].map(v => v.currentTime)"
    wait_until(page, "[...document.querySelectorAll('#same-players video')].every(v => v.readyState >= 2)")
    before = page.evaluate(times)
    page.locator("#sync").focus()
    page.keyboard.press("End")
    wait_until(page, f"{times}.every((time, i) => time > {before}[i])")  # all at their ends
    page.keyboard.press("Home")
    page.click("#play-all")
    wait_until(page, f"{times}.every((time, i) => time > {before}[i] + 0.2)")
    assert page.locator("#play-all").inner_text() == "Pause all"
    page.click("#play-all")
    wait_until(page, "[...document.querySelectorAll('#same-players video')].every(v => v.paused)")
    assert violations(page) == []


def test_the_report_is_part_of_the_page(page, server):
    open_collection(page, server)
    page.click("#compare")
    page.wait_for_selector("#lanes .track >> nth=1")
    assert page.locator("#lanes .name").all_inner_texts() == ["bike", "tea"]
    page.locator("#order button").first.click()
    assert page.locator("#order button[aria-pressed=true]").count() == 1
    assert page.locator("#lanes .dim").count() > 0
    page.locator("#table thead button").nth(1).focus()
    page.keyboard.press("Enter")
    assert page.locator("#table tbody th").first.inner_text() == "tea"  # the longer one
    assert violations(page) == []
    page.click("#lanes a:has-text('tea')")
    page.wait_for_selector("#one:not([hidden])")


@pytest.fixture
def empty(world, tmp_path, monkeypatch):
    """A server that was started without videos."""
    home = tmp_path / "home"
    (home / "clips").mkdir(parents=True)
    write_scenes(home / "clips" / "walk.mp4", [1, 2], 2)
    monkeypatch.setenv("HOME", str(home))
    library = Library(world.engine)
    settings = ServerSettings(upload=tmp_path / "videos", choose_folders=True)
    settings.upload.mkdir()
    with run_server(library, create_app(library, settings)) as server:
        yield server


def test_the_first_start_offers_a_folder(page, empty):
    page.goto(empty.url)
    page.wait_for_selector("#welcome")
    assert violations(page) == []
    page.focus("#start-folder")
    page.keyboard.press("Enter")
    page.wait_for_selector("#folders[open] .folder:has-text('clips'):has-text('1 video')")
    assert violations(page) == []
    page.click("#folders .folder:has-text('clips')")
    page.wait_for_selector("#folders:has-text('1 video in this folder')")
    page.click("#use-folder")
    page.wait_for_selector("#videos li:has-text('walk')")
    assert page.locator("#welcome").count() == 0
    leave(page, empty)


def test_the_first_start_offers_the_sample(page, empty):
    page.goto(empty.url)
    page.click("#start-sample")
    page.wait_for_selector("#name:has-text('sample')")
    page.wait_for_selector("#chapters .chapter")
    leave(page, empty)


def test_the_keyboard_alone(page, server):
    """From the search box over filters, sorting and cards to a video, and back."""
    open_collection(page, server)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "query"
    seen = []
    while "card" not in seen and len(seen) < 60:
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.classList[0]"))
    assert [name for name in seen if name in ("filter", "sort", "card")] == ["filter", "sort", "card"]
    page.keyboard.press("Enter")
    page.wait_for_selector("#one:not([hidden])")
    page.go_back()
    page.wait_for_selector("#list:not([hidden])")


@pytest.mark.parametrize(("theme", "width"), [("light", 390), ("dark", 390), ("dark", 1280)])
def test_accessibility_also_on_a_phone(page, server, theme, width):
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 844})
    for address, ready in (("", "#videos li"), ("#q=wash+a+cup", "#results-title"), ("#report=1", "#lanes .track")):
        page.goto("about:blank")
        page.goto(server.url + address)
        page.wait_for_selector(ready)
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
