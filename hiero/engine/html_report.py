"""The HTML report of a video: one file that works offline."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hiero.engine import Video
from hiero.engine.transcripts import Transcript
from hiero.formats.html_page import write_page
from hiero.formats.registry import write_export
from hiero.storage.files import path_beside, write_bytes, write_text
from hiero.types import Hierarchy, Step, VideoFile, Word, file_fields

MAX_PICTURES = 400  # more pictures would make the file too large to send
STYLES = ("style.css", "video/video.css")
NUM_QUESTIONS, NUM_ANSWERS = 6, 5  # prepared questions, and matches of each
MIN_QUESTION = 0.3  # minimum probability that a step shows what is asked


def write_report(path: Path, video: Video, hierarchy: Hierarchy, labels: Sequence[str] | None = None) -> None:
    """Write the page: player, chapters, a timeline of all levels and prepared questions."""
    data = {**_page_data(video, hierarchy, labels), "files": [_describe_file(file, path) for file in hierarchy.media]}
    write_page(path, "report.html", STYLES, data)


def encode_picture(picture: bytes | None) -> str | None:
    """A JPEG as text, for the data of a page."""
    return None if picture is None else base64.b64encode(picture).decode()


def _page_data(video: Video, hierarchy: Hierarchy, labels: Sequence[str] | None) -> dict[str, Any]:
    """The data that the script of the page reads."""
    levels = []
    for number, level in enumerate(hierarchy.levels):
        has_pictures = number == len(hierarchy.levels) - 1 and len(level) <= MAX_PICTURES
        rows = []
        for step, likely in zip(level, video.likely_labels(level, labels), strict=True):
            row = {**step.to_dict(), **file_fields(hierarchy.files, step)}
            row["title"] = hierarchy.shown_titles[step.id]
            row["likely"] = [Word(*pair).to_dict() for pair in likely]
            if has_pictures:
                row["picture"] = encode_picture(_thumbnail(video, step))
            rows.append(row)
        levels.append(rows)
    return {
        "name": ", ".join(Path(file.path).name for file in hierarchy.media),
        "model": hierarchy.model,
        "duration_s": hierarchy.duration_s,
        "levels": levels,
        "level_names": hierarchy.level_names,
        "speech": [utterance.to_dict() for utterance in hierarchy.speech],
        "questions": _prepare_questions(video, levels[-1]),
    }


def _prepare_questions(video: Video, steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Answers to questions for what the steps probably show, so that the page needs no model."""
    likely: dict[str, float] = {}
    for step in steps:
        for word in (*step["likely"], *step["words"]):
            likely[word["text"]] = max(word["probability"], likely.get(word["text"], 0.0))
    labels = sorted((label for label in likely if likely[label] >= MIN_QUESTION), key=lambda label: -likely[label])
    if not labels or not video.engine.has_text:
        return []
    return [answer.to_dict() for answer in video.ask(labels[:NUM_QUESTIONS], num=NUM_ANSWERS)]


def _describe_file(file: VideoFile, page: Path) -> dict[str, Any]:
    """A file of the video and where the page looks for it: where it is now, and next to the page."""
    name, places = Path(file.path).name, []
    with suppress(OSError, ValueError):  # on another drive there is no relative path
        if Path(file.path).is_file():
            places.append(quote(os.fsencode(Path(os.path.relpath(file.path, page.parent)).as_posix())))
    places = list(dict.fromkeys([*places, quote(os.fsencode(name))]))
    return {"name": name, "places": places, "start_s": file.start_s, "duration_s": file.duration_s}


def write_results(
    video: Video, hierarchy: Hierarchy, labels: Sequence[str] | None, folder: Path, formats: Sequence[str] = ()
) -> None:
    """Write all files of `hiero steps -o FOLDER`: steps.json, report.html, exports, a thumbnail of each step, and
    speech.srt if there is a transcript.

    If several files were read as one video, exports are also written for each file, in its own time,
    to FOLDER/files/NN-NAME.
    """
    write_text(folder / "steps.json", json.dumps(hierarchy.to_dict(), indent=1) + "\n")
    write_report(folder / "report.html", video, hierarchy, labels)
    if hierarchy.speech:
        write_text(folder / "speech.srt", Transcript(hierarchy.speech).to_srt())
    for name in formats:
        write_export(name, hierarchy, folder)
        for number, file in enumerate(hierarchy.files, start=1):
            own = path_beside(folder / "files" / Path(file.path).stem, "", f"{number:02d}-")
            write_export(name, hierarchy.of_file(file), own)
    ids = {step.id for step in hierarchy}
    for old in (folder / "pictures").glob("*.jpg"):
        if old.stem not in ids:
            old.unlink()
    for step in hierarchy:
        if (thumbnail := _thumbnail(video, step)) is not None:
            write_bytes(folder / "pictures" / f"{step.id}.jpg", thumbnail)


def _thumbnail(video: Video, step: Step) -> bytes | None:
    """A JPEG from the middle of a step."""
    return video.source.thumbnail_of(step.start_s, step.end_s)
