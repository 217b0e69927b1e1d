"""10,000 videos and a video of ten hours stay quick: no interaction keeps the page busy for long."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from hiero.engine import load
from hiero.serve.app import create_app
from hiero.serve.database import FILE_NAME
from hiero.serve.library import open_library
from hiero.serve.state import State
from hiero.storage.cache import content_key
from tests.browser.conftest import run_server
from tests.browser.test_collection import leave, open_collection
from tests.browser.video_page import boxes, click_step, set_steps, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
NUM_VIDEOS = 10_000
LIMIT_MS = 1000  # the goal is 100 ms on an idle machine; tests run beside others
OBSERVE = """() => {
    window.slow = [];
    new PerformanceObserver(list => {
        for (const { name, processingStart, processingEnd } of list.getEntries()) window.slow.push([name, processingEnd - processingStart]);
    }).observe({ type: "event", durationThreshold: 16, buffered: false });
    new PerformanceObserver(list => {
        for (const { duration } of list.getEntries()) window.slow.push(["task", duration]);
    }).observe({ type: "longtask" });
}"""  # noqa: E501


def slow_tasks(page):
    page.wait_for_timeout(300)
    return [(name, round(ms)) for name, ms in page.evaluate("window.slow") if ms >= LIMIT_MS]


def test_ten_thousand_videos(page, world, tmp_path):
    state = State(tmp_path / "state")
    paths = [tmp_path / f"take {i:05}.mp4" for i in range(NUM_VIDEOS)]
    for i, path in enumerate(paths):
        path.write_bytes(f"video {i}".encode())
    names = [json.dumps([f"step {i % 50}", f"cut {i % 7}"]) for i in range(NUM_VIDEOS)]
    rows = [(content_key(path), world.engine.key, 9, 60.0, 5, steps) for path, steps in zip(paths, names, strict=True)]
    with closing(sqlite3.connect(state.folder / FILE_NAME)) as database, database:
        database.executemany("INSERT INTO videos VALUES (?, ?, ?, ?, ?, ?)", rows)
    library = open_library([str(tmp_path)], world.engine)
    with run_server(library, create_app(library, state=state)) as server:
        page.route("**/picture?*", lambda route: route.fulfill(status=204))
        open_collection(page, server)
        page.evaluate(OBSERVE)
        page.fill("#filter", "take 0123")
        wait_until(page, lambda: page.locator("#videos li").count() == 10)
        page.fill("#filter", "")
        wait_until(page, lambda: page.locator("#videos li").count() == 60)
        page.select_option("#sort", "name")
        page.click("#more")
        wait_until(page, lambda: page.locator("#videos li").count() == 120)
        page.click("#facets .facet:has-text('cut 3')")
        page.wait_for_selector("#list-status:has-text('1429 videos')")
        assert slow_tasks(page) == []
        times = (
            "performance.getEntriesByType('resource').filter(e => e.name.includes('api/videos?')).map(e => e.duration)"
        )
        assert np.median(page.evaluate(times)) < 3 * LIMIT_MS  # a third of it on an idle machine
        leave(page, server)


def test_a_video_of_ten_hours(page, tmp_path):
    rng = np.random.default_rng(0)
    scenes = np.repeat(rng.normal(size=(400, 16)), 90, axis=0) + 0.1 * rng.normal(size=(36_000, 16))
    np.save(tmp_path / "day.npy", scenes.astype(np.float32))
    library = open_library([str(tmp_path / "day.npy")], load("raw"))
    with run_server(library, create_app(library)) as server:
        page.goto(f"{server.url}#v={library.find_by_name('day').id}")
        page.wait_for_selector("#timeline .track[data-to]")
        page.evaluate(OBSERVE)
        set_steps(page, 200)
        for key in ("+", "+", "+", "-", "0"):
            page.locator("#timeline .track").press(key)
        for number in (0, 100, 199):
            click_step(page, number)
            page.keyboard.press("ArrowRight")
        assert len(boxes(page)) == 200
        assert slow_tasks(page) == []
        leave(page, server)
