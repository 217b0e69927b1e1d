"""Take the pictures of the page in the documentation, in Chromium.

    python -m tools.screenshots [TO]       PNG files of the views, by default in docs/

The pictures show films of photographs that come with scikit-image, processed by the shipped model.
Needs Playwright and Chromium.
"""

from __future__ import annotations

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
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from examples.folder_report import write_film

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


def main() -> None:
    with sync_playwright() as playwright:
        program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
        flags = ["--no-sandbox", "--disable-gpu", "--autoplay-policy=no-user-gesture-required"]
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        write_pictures(browser, Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
        browser.close()


if __name__ == "__main__":
    main()
