"""Steps out of the files of other tools: the reverse of `hiero.formats.exports`, and what people
annotate elsewhere.

ELAN (.eaf), Label Studio's JSON, CVAT's XML, projects of VIA, datasets of FiftyOne, tables (.csv,
.tsv), ActivityNet's JSON, WebVTT and SubRip, hiero's own steps.json and the page's edits. A file
that hiero wrote gives back the steps that it was written from, as far as the format holds them:
those of the annotation tools also hold ids, threads and scores, which are used for every step that
nobody changed.

Annotations of others have gaps and know no levels. Here each level covers the video: a gap becomes
an unnamed background step, a step inside another one goes to a finer level, and two that overlap
otherwise are an error, or cut where that is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hiero.errors import InputError
from hiero.formats.activitynet import read_annotations
from hiero.formats.cvat import read_cvat
from hiero.formats.edits import parse_hierarchy
from hiero.formats.elan import SPEECH_TIER as SPEECH_TIER
from hiero.formats.elan import read_elan
from hiero.formats.fiftyone import is_fiftyone_dataset, read_fiftyone
from hiero.formats.label_studio import read_label_studio
from hiero.formats.nesting import nest_rows as nest_rows
from hiero.formats.rows import FRAME_RATE, RowLevels
from hiero.formats.rows import HIERO_PROPERTY as HIERO_PROPERTY
from hiero.formats.rows import StepRow as StepRow
from hiero.formats.rows import frame_span as frame_span
from hiero.formats.rows import one_line as one_line
from hiero.formats.subtitles import read_cues
from hiero.formats.tables import FORMULA_STARTS as FORMULA_STARTS
from hiero.formats.tables import read_table
from hiero.formats.via import is_via_project, read_via
from hiero.storage.files import decode_text, parse_json, read_bounded
from hiero.types import Hierarchy

STEP_FILE_SUFFIXES = (".eaf", ".json", ".xml", ".csv", ".tsv", ".vtt", ".srt")
MAX_BYTES = 2**26  # of a file; an hour of steps takes some kilobytes
MAX_XML_BYTES = 2**28  # CVAT writes a box for each frame of a step
PARSE_ERRORS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, IndexError)


def read_step_file(
    path: Path,
    video: Path,
    duration_s: float | None = None,
    *,
    tiers: Sequence[str] = (),
    fps: float | None = None,
    cut_overlaps: bool = False,
) -> Hierarchy:
    """The steps of a video out of a file of another tool, or of hiero."""
    suffix = path.suffix.lower()
    if suffix not in STEP_FILE_SUFFIXES:
        raise InputError(f"{path}: unknown kind of step file; known are {', '.join(STEP_FILE_SUFFIXES)}")
    data = read_bounded(path, MAX_XML_BYTES if suffix == ".xml" else MAX_BYTES, "a file of steps")
    if tiers and suffix != ".eaf":
        raise InputError(f"{path}: tiers are of ELAN's .eaf files")
    try:
        if suffix == ".json":
            document = parse_json(data.decode("utf-8-sig"))
            return read_step_document(document, video, duration_s, fps=fps, cut_overlaps=cut_overlaps)
        return _to_hierarchy(_read_rows(suffix, data, video, tiers, fps), video, duration_s, cut_overlaps)
    except PARSE_ERRORS as error:
        raise InputError(f"{path}: {_describe(error)}") from error


def read_step_document(
    document: Any, video: Path, duration_s: float | None = None, *, fps: float | None = None, cut_overlaps: bool = False
) -> Hierarchy:
    """The steps of a video out of JSON of another tool, or of hiero, that was parsed already."""
    try:
        if isinstance(document, dict) and "levels" in document:
            return replace(parse_hierarchy(document, duration_s), video=str(video))
        return _to_hierarchy(_read_json_rows(document, video, fps), video, duration_s, cut_overlaps)
    except PARSE_ERRORS as error:
        raise InputError(_describe(error)) from error


def _read_rows(suffix: str, data: bytes, video: Path, tiers: Sequence[str], fps: float | None) -> RowLevels:
    if suffix == ".eaf":
        return read_elan(data, tiers)
    if suffix == ".xml":
        return read_cvat(data, _fps_of(video, fps))
    if suffix in (".vtt", ".srt"):
        return [read_cues(decode_text(data), is_webvtt=suffix == ".vtt")], None
    return read_table(decode_text(data), video), None


def _read_json_rows(document: Any, video: Path, fps: float | None) -> RowLevels:
    if isinstance(document, dict) and "data" in document and ("annotations" in document or "predictions" in document):
        document = [document]
    if isinstance(document, list) and document and all(isinstance(task, dict) and "data" in task for task in document):
        return read_label_studio(document, video, FRAME_RATE if fps is None else fps)
    if is_via_project(document):
        return read_via(document, video)
    if is_fiftyone_dataset(document):
        return read_fiftyone(document, video, _fps_of(video, fps))
    levels = read_annotations(document, video) if isinstance(document, dict) else None
    if levels is None:
        raise ValueError(
            "not a JSON of steps: known are hiero's steps.json and edits, Label Studio's JSON (not JSON-MIN), "
            "projects of VIA 3, "
            "FiftyOne's samples.json and labels.json, ActivityNet's, and annotations as hiero eval own takes them"
        )
    return levels


def _to_hierarchy(rows: RowLevels, video: Path, duration_s: float | None, cut_overlaps: bool) -> Hierarchy:
    levels = [level for level in rows[0] if level]
    if not levels:
        raise ValueError("holds no steps with times")
    duration_s = duration_s or rows[1] or max(row.end_s for level in levels for row in level)
    nested = nest_rows(levels, duration_s, cut_overlaps=cut_overlaps)
    return Hierarchy(str(video), "", duration_s, tuple(map(tuple, nested)))


def _fps_of(video: Path, fps: float | None) -> Callable[[], float]:
    """Frames a second: those given, else the video's own, else 25; the video is opened only when they are needed."""

    def find_fps() -> float:
        if fps is not None:
            return fps
        from hiero.decoding.decode import probe

        try:
            return probe(video).fps or FRAME_RATE
        except (InputError, OSError):  # features, or a video that is elsewhere
            return FRAME_RATE

    return find_fps


def _describe(error: Exception) -> str:
    if isinstance(error, KeyError | TypeError | AttributeError):
        return f"{type(error).__name__}: {error}"
    return str(error)
