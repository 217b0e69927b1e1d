"""The page in a browser: opening a video, its steps on the timeline, waiting for it, and its accessibility."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

SCREENSHOTS = os.environ.get("HIERO_PICTURES")  # a folder, if they are wanted
BOXES = """level => {
    const { timeline } = document.getElementById("timeline"), { levels } = timeline.hierarchy;
    return levels.at(level).steps.map(({ id, start_s, end_s }) => {
        const entry = timeline.entries.get(id), { x, y, width, height } = timeline.boxOf(entry);
        return { id, start_s, end_s, title: entry.title, x, y, width, height };
    });
}"""


def open_video(page, server, name="tea", parameters=""):
    page.goto(f"{server.url}#v={server.library.find_by_name(name).id}{parameters}")
    page.wait_for_selector("#timeline .track[data-to]")
    page.wait_for_selector("#chapters .chapter", state="attached")
    return page


def boxes(page, level=-1):
    """The steps of a level, as they are drawn on the timeline."""
    return page.evaluate(BOXES, level)


def click_step(page, index, level=-1, button="click"):
    """Click or double-click a step on the timeline; returns what it was."""
    box = boxes(page, level)[index]
    getattr(page.mouse, button)(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    return box


def selected(page):
    return page.evaluate("document.getElementById('timeline').timeline.selectedId")


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


def wait_steps(page, number, level=-1):
    wait_until(page, lambda: len(boxes(page, level)) == number)


def set_steps(page, number):
    """Cut the video again into so many steps."""
    page.locator("#k").fill(str(number))
    wait_steps(page, number)


def violations(page):
    """The rules of axe-core that the page breaks, with what breaks them."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python").Axe()
    rules = axe.run(page).response["violations"]
    return [(rule["id"], [node["html"][:160] for node in rule["nodes"]][:3]) for rule in rules]


def screenshot(page, name):
    if SCREENSHOTS:
        page.screenshot(path=str(Path(SCREENSHOTS) / f"{name}.png"), full_page=True)
