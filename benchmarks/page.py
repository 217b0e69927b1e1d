"""The page in Chromium: how smoothly a long video scrolls and zooms, and pictures of its views.

    python -m benchmarks.page                     frames a second on a recording of 8 hours with 500 steps
    python -m benchmarks.page pictures [TO]       PNG files of the views, by default in docs/

The pictures show films of photographs that come with scikit-image, processed by the shipped model.
Needs Playwright and Chromium.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, Route, sync_playwright

import hiero.serve
from examples.folder_report import write_film

STATIC = Path(hiero.serve.__file__).parent / "static"
TYPES = {
    ".js": "text/javascript",
    ".json": "application/json",
    ".css": "text/css",
    ".html": "text/html",
    ".svg": "image/svg+xml",
}
HOURS, NUM_STEPS, NUM_THREADS = 8, 500, 24
NUM_FRAMES = 240  # of each gesture
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}

# What each photograph shows, and films of them: one that is opened, and a collection in two folders.
LABELS = {
    "coffee.png": "a cup of coffee",
    "chelsea.png": "the face of a cat",
    "motorcycle_left.png": "a motorcycle in a garage",
    "astronaut.png": "a smiling woman in an orange suit",
    "rocket.jpg": "a rocket on its launch pad",
    "grass.png": "green grass",
    "brick.png": "a brick wall",
    "moon.png": "craters of the moon",
    "coins.png": "old coins",
    "hubble_deep_field.jpg": "stars in the night sky",
}
COFFEE, CAT, MOTORCYCLE, ASTRONAUT, ROCKET, GRASS, BRICK, MOON, COINS, STARS = LABELS
DAY = (COFFEE, CAT, MOTORCYCLE, COFFEE, ROCKET, ASTRONAUT, MOTORCYCLE, GRASS)
COLLECTION = {
    "home/breakfast": (COFFEE, CAT, COINS, BRICK, GRASS),
    "home/garden": (COFFEE, GRASS, CAT, COINS, BRICK),
    "home/garage": (COFFEE, MOTORCYCLE, CAT, COINS, GRASS),
    "home/shopping": (COFFEE, COINS, CAT, BRICK, GRASS),
    "launch/briefing": (ASTRONAUT, ROCKET, COFFEE),
    "launch/countdown": (ROCKET, MOON, STARS),
}
NEW = "launch/observatory"  # in the collection, but not processed yet
DAY_S = 24 * 3600

# Moves the timeline a little before every frame, as a hand would, and measures the time between frames.
GESTURE = """async ({ wheel, frames }) => {
    const canvas = document.querySelector("#timeline canvas"), box = canvas.getBoundingClientRect(), times = [];
    for (let i = 0; i < frames; i++) {
        const options = { clientX: box.left + box.width / 2, clientY: box.top + 50, bubbles: true, cancelable: true };
        const turn = i < frames / 2 ? 1 : -1, deltaX = turn * wheel.deltaX, deltaY = turn * wheel.deltaY;
        canvas.dispatchEvent(new WheelEvent("wheel", { ...options, ...wheel, deltaX, deltaY }));
        times.push(await new Promise(requestAnimationFrame));
    }
    return times.slice(1).map((time, i) => time - times[i]);
}"""
# Milliseconds that drawing one frame takes.
DRAWING = """async () => {
    const { drawMap, drawTimeline } = await import("/video/timeline_draw.js");
    const { timeline } = document.getElementById("timeline");
    timeline.fit();
    const start = performance.now();
    for (let i = 0; i < 100; i++) { drawTimeline(timeline); drawMap(timeline); }
    return (performance.now() - start) / 100;
}"""
GESTURES = {
    "zooming": {"deltaX": 0, "deltaY": -12, "ctrlKey": True},
    "scrolling": {"deltaX": 40, "deltaY": 0},
}


# Frames a second


def long_hierarchy(seed: int = 0) -> dict[str, Any]:
    """Three levels over eight hours; every third step has a name."""
    random = np.random.default_rng(seed)
    duration_s = HOURS * 3600.0
    times = np.sort(random.choice(np.arange(4, duration_s - 4, 4), NUM_STEPS - 1, replace=False))
    edges = [0.0, *times.tolist(), duration_s]
    levels = []
    for level, stride in enumerate((20, 5, 1)):
        bounds = [*edges[:-1:stride], duration_s]
        steps = [
            {
                "id": f"{level}-{i}",
                "start_s": start_s,
                "end_s": end_s,
                "thread": int(random.integers(NUM_THREADS)),
                "label": f"wash the cup {i}" if i % 3 == 0 else None,
                "probability": 0.5,
                "parent": None if level == 0 else f"{level - 1}-{i // (4 if level == 1 else 5)}",
                "children": [],
                "origin": "model",
            }
            for i, (start_s, end_s) in enumerate(pairwise(bounds))
        ]
        levels.append({"level": level, "steps": steps})
    for coarse, fine in pairwise(levels):
        by_id = {step["id"]: step for step in coarse["steps"]}
        for step in fine["steps"]:
            by_id[step["parent"]]["children"].append(step["id"])
    return {"version": 1, "video": "day", "duration_s": duration_s, "levels": levels}


def answer(route: Route) -> None:
    """The page from its files, and one long video instead of a server."""
    path = route.request.url.removeprefix("http://page.test/").split("?")[0] or "index.html"
    video = {"id": "day", "name": "day", "read": True, "edited": False, "playable": False, "pictures": False}
    documents: dict[str, Any] = {
        "api/me": {"name": "local", "role": "edit", "sign_in": False},
        "api/server": {"model": "raw", "corpus": False, "words": True, "exports": ["csv"], "history": False},
        "api/videos/day": {**video, "truth": False, "indexed": False, "duration_s": HOURS * 3600, "files": []},
        "api/videos/day/steps": long_hierarchy(),
        "api/videos/day/transcript": [],
    }
    if path in documents:
        route.fulfill(content_type="application/json", body=json.dumps(documents[path]))
    elif (STATIC / path).is_file():
        route.fulfill(content_type=TYPES[Path(path).suffix], body=(STATIC / path).read_bytes())
    else:
        route.fulfill(status=404, content_type="application/json", body="{}")


def measure_frames(browser: Browser) -> tuple[dict[str, list[float]], float]:
    """Milliseconds between frames for each gesture, and for drawing all steps once."""
    page = browser.new_page(viewport=DESKTOP)
    page.route("http://page.test/**", answer)
    page.goto("http://page.test/#v=day")
    page.wait_for_selector("#timeline .track[data-to]")
    page.wait_for_timeout(1000)
    frames = {name: page.evaluate(GESTURE, {"wheel": wheel, "frames": NUM_FRAMES}) for name, wheel in GESTURES.items()}
    drawing_ms = page.evaluate(DRAWING)
    page.close()
    return frames, drawing_ms


def print_frames(frames: dict[str, list[float]], drawing_ms: float) -> None:
    print(f"{HOURS} hours, {NUM_STEPS} fine steps, {DESKTOP['width']} × {DESKTOP['height']}")
    print(f"{'gesture':<10} {'frames/s':>9} {'median ms':>10} {'95 % ms':>8} {'slowest ms':>11}")
    for name, times in frames.items():
        median, high = np.percentile(times, [50, 95])
        print(f"{name:<10} {1000 / np.mean(times):>9.1f} {median:>10.1f} {high:>8.1f} {max(times):>11.1f}")
    print(f"drawing all steps once takes {drawing_ms:.1f} ms; a frame lasts 16.7 ms")


# Pictures


def show_chapters(page: Page) -> None:
    page.locator("#chapters .chapter.leaf").nth(1).click()


def ask(page: Page, text: str) -> None:
    """Ask for a text in the video that is shown, and wait for the answer."""
    page.fill("#query", text)
    if page.locator("#everywhere").is_visible():
        page.uncheck("#everywhere")
    page.focus("#query")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"#answers-title:has-text('{text}')")


def show_answers(page: Page) -> None:
    for text in ("a cup of coffee", "a motorbike"):
        ask(page, text)
    page.wait_for_timeout(2500)
    page.evaluate("document.getElementById('player').pause()")


def show_renaming(page: Page) -> None:
    page.locator("#chapters .chapter.leaf").nth(2).dblclick()
    page.fill(".rename input", "repair the motorcycle")


VIDEO_VIEWS: dict[str, tuple[Callable[[Page], None], dict[str, Any]]] = {
    "page": (show_answers, {"viewport": DESKTOP}),
    "page-chapters": (show_chapters, {"viewport": DESKTOP, "color_scheme": "dark"}),
    "page-renaming": (show_renaming, {"viewport": DESKTOP}),
    "page-phone": (show_chapters, {"viewport": PHONE, "has_touch": True, "is_mobile": True}),
}


# Views of the collection: what to wait for, and the address
COLLECTION_VIEWS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "page-collection": ("#videos img", "", {"viewport": DESKTOP}),
    "page-search": ("#hits img", "#q=a+rocket", {"viewport": DESKTOP}),
    "page-report": ("#lanes .track", "#report=1&folder=home", {"viewport": DESKTOP, "color_scheme": "dark"}),
}


def write_pictures(browser: Browser, to: Path) -> None:
    """Write a picture of each view."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        with serve(*make_corpus(root / "day", {"saturday": DAY}, "-k", "3,8")) as address:
            write_video_views(browser, address, to)
        collection = make_corpus(root / "collection", COLLECTION, "-k", "5")
        new = root / "collection" / f"{NEW}.mp4"
        write_film(new, (MOON, STARS), 0)
        with serve(*collection, str(new)) as address:
            write_collection_views(browser, address, to)


def take_picture(page: Page, path: Path) -> None:
    """Write what the page shows, in 256 colours: a third of the bytes."""
    Image.open(BytesIO(page.screenshot())).convert("RGB").quantize(256).save(path, optimize=True)
    print(path)


def write_collection_views(browser: Browser, address: str, to: Path) -> None:
    for name, (ready, part, options) in COLLECTION_VIEWS.items():
        context = browser.new_context(**options)
        page = context.new_page()
        page.goto(address + part)
        page.wait_for_selector(ready)
        page.wait_for_load_state("networkidle")  # the pictures
        take_picture(page, to / f"{name}.png")
        context.close()


def write_video_views(browser: Browser, address: str, to: Path) -> None:
    for name, (show, options) in VIDEO_VIEWS.items():
        context = browser.new_context(**options)
        page = context.new_page()
        page.goto(address)
        id = page.evaluate("fetch('api/videos').then(r => r.json()).then(({ videos }) => videos[0].id)")
        page.goto(f"{address}#v={id}&t=9")
        page.wait_for_selector("#chapters .chapter.leaf", state="attached")
        page.wait_for_timeout(1500)  # the pictures
        show(page)
        page.wait_for_timeout(1000)
        take_picture(page, to / f"{name}.png")
        context.close()


def make_corpus(folder: Path, films: dict[str, tuple[str, ...]], *options: str) -> tuple[str, str, str]:
    """A corpus of films of photographs, each of another month, and the option that names its steps."""
    for number, (name, photographs) in enumerate(films.items()):
        path = folder / f"{name}.mp4"
        write_film(path, photographs, number)
        recorded = time.time() - 20 * number * DAY_S
        os.utime(path, (recorded, recorded))
    labels, corpus = folder / "labels.txt", str(folder / "corpus")
    shown = {LABELS[photograph]: None for photographs in films.values() for photograph in photographs}
    labels.write_text("\n".join(shown) + "\n")
    command = [sys.executable, "-m", "hiero", "index", str(folder), "--to", corpus, "--labels", str(labels)]
    subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)
    return corpus, "--labels", str(labels)


@contextmanager
def serve(corpus: str, *options: str) -> Iterator[str]:
    """Serve a corpus, and other videos or options, and yield the address of its page."""
    command = [sys.executable, "-m", "hiero", "serve", corpus, *options, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        address = re.search(r"http://\S+", server.stdout.readline())
        assert address is not None
        yield address[0]
    finally:
        server.terminate()
        server.wait()


def main(arguments: list[str]) -> None:
    with sync_playwright() as playwright:
        program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
        flags = ["--no-sandbox", "--disable-gpu", "--autoplay-policy=no-user-gesture-required"]
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        if arguments[:1] == ["pictures"]:
            write_pictures(browser, Path(arguments[1] if len(arguments) > 1 else "docs"))
        else:
            print_frames(*measure_frames(browser))
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
