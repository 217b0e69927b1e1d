"""The HTML report of a video: one file that works offline."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hiero.engine import Video
from hiero.formats.registry import write_export
from hiero.speech.transcripts import Transcript
from hiero.steps.segmentation import to_grey
from hiero.storage.files import write_bytes, write_text
from hiero.types import Hierarchy, Step, file_fields

MAX_PICTURES = 400  # more pictures would make the file too large to send


def write_report(path: Path, video: Video, hierarchy: Hierarchy, labels: Sequence[str] | None = None) -> None:
    """Write the page: a timeline of all levels, pictures, the similarity matrix, and a search over likely labels."""
    write_page(path, "report.html", _page_data(video, hierarchy, labels))


def write_page(path: Path, template: str, data: dict[str, Any]) -> None:
    """Write a page of this package with its data."""
    document = json.dumps(data, ensure_ascii=False, allow_nan=False)
    document = document.replace("<", "\\u003c")  # a label must not close the script element
    write_text(path, (Path(__file__).parent / template).read_text(encoding="utf-8").replace("/*DATA*/", document))


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
            row["title"] = hierarchy.titles[step.id]
            row["words"] = [[label, round(score, 3)] for label, score in likely]
            if has_pictures:
                row["picture"] = encode_picture(_thumbnail(video, step))
            rows.append(row)
        levels.append(rows)
    matrix = video.similarity_matrix()
    return {
        "name": ", ".join(Path(file.path).name for file in hierarchy.media),
        "model": hierarchy.model,
        "duration_s": hierarchy.duration_s,
        "levels": levels,
        "level_names": hierarchy.level_names,
        "matrix": {"size": len(matrix), "values": base64.b64encode(to_grey(matrix).tobytes()).decode()},
        "speech": [utterance.to_dict() for utterance in hierarchy.speech],
    }


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
            write_export(name, hierarchy.of_file(file), folder / "files" / f"{number:02d}-{Path(file.path).stem}")
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
