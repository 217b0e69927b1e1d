"""Steps out of the files of other tools: the reverse of `hiero.report.exports`, and what people annotate elsewhere.

ELAN (.eaf), Label Studio's JSON, tables (.csv, .tsv), ActivityNet's JSON, WebVTT and SubRip, hiero's own steps.json and the page's
edits. A file that hiero wrote gives back the steps that it was written from, as far as the format holds them: ELAN's and Label
Studio's also hold ids, threads and scores, which are used for every step that nobody changed.

Annotations of others have gaps and know no levels. Here each level covers the video: a gap becomes an unnamed background step, a
step inside another one goes to a finer level, and two that overlap otherwise are an error, or cut where that is wanted.
"""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Any
from xml.parsers import expat

from hiero.data.edits import (
    DURATION_TOLERANCE_S,
    MAX_ID_LENGTH,
    MAX_LABEL_LENGTH,
    MAX_LEVELS,
    MAX_STEPS,
    TOLERANCE_S,
    parse_hierarchy,
)
from hiero.errors import InputError
from hiero.storage.files import decode_text, parse_json, read_bounded
from hiero.types import MAX_TIME_S, Hierarchy, Step, link_levels

STEP_FILE_SUFFIXES = (".eaf", ".json", ".csv", ".tsv", ".vtt", ".srt")
MAX_BYTES = 2**26  # of a file; an hour of steps takes some kilobytes
MAX_DEPTH = 64  # of XML elements in each other; ELAN's files have six
FRAME_RATE = 25.0  # of Label Studio, which counts frames
HIERO_PROPERTY = "hiero"  # of an ELAN header and of a Label Studio task: what the format itself has no place for
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # spreadsheets compute a cell that begins so
MAX_NAMES = 4  # that an error lists
CUE_TIME = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})(?:[.,](\d{1,3}))?"
CUE_TIMES = re.compile(rf"\s*{CUE_TIME}\s*-->\s*{CUE_TIME}(?:\s.*)?", re.ASCII)
TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<\d[^<>]*>")  # <i>, <v Anna>, <00:01.000>
CLOCK_TIME = re.compile(r"(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", re.ASCII)
COLUMNS = {  # of tables, by what other programs call them
    "start_s": ("start_s", "start", "start_time", "begin", "begin_time", "begin time - ss.msec", "onset", "t_start", "from"),
    "end_s": ("end_s", "end", "end_time", "stop", "finish", "end time - ss.msec", "offset", "t_end", "to"),
    "duration_s": ("duration_s", "duration", "duration - ss.msec", "length"),
    "label": ("label", "text", "name", "step", "annotation", "description", "sentence", "action", "value", "caption"),
    "level": ("level",),
    "video": ("video", "video_id", "video_uid", "file", "filename", "recording"),
}


@dataclass(frozen=True)
class StepRow:
    """A step as a file has it: a span with a name, and what else the file holds about it.

    Attributes:
        start_s: When it begins.
        end_s: When it ends.
        label: Its name; None where it has none.
        id: Its id; None for a new one.
        thread: None where the file knows no threads.
        background: Nothing of interest happens.
        score: Probability of the label.
    """

    start_s: float
    end_s: float
    label: str | None = None
    id: str | None = None
    thread: int | None = None
    background: bool = False
    score: float | None = None

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.label or 'a step'} ({self.start_s:.1f}-{self.end_s:.1f} s)"


SPEECH_TIER = "speech"  # of our ELAN files


def one_line(text: str) -> str:
    """A text on one line, without control characters, which XML does not allow."""
    return " ".join("".join(c for c in text if c.isprintable() or c.isspace()).split())


def read_step_file(
    path: Path,
    video: Path,
    duration_s: float | None = None,
    *,
    tiers: Sequence[str] = (),
    fps: float = FRAME_RATE,
    cut_overlaps: bool = False,
) -> Hierarchy:
    """The steps of a video out of a file of another tool, or of hiero.

    Args:
        path: .eaf, .json, .csv, .tsv, .vtt or .srt. A JSON file is recognised by its content.
        video: The video that they are of. Of a file with several videos those steps are taken whose name is the video's.
        duration_s: Length of the video; None takes it from the file, or the end of the last step.
        tiers: Of an ELAN file, those to read, coarse to fine; by default all that have annotations.
        fps: Frames a second that Label Studio has counted with.
        cut_overlaps: A step ends where the next one begins, instead of an error where two overlap.

    Raises:
        InputError: The file cannot be read, holds no steps of this video, or steps overlap without one being inside the other.
    """
    suffix = path.suffix.lower()
    if suffix not in STEP_FILE_SUFFIXES:
        raise InputError(f"{path}: unknown kind of step file; known are {', '.join(STEP_FILE_SUFFIXES)}")
    data = read_bounded(path, MAX_BYTES, "a file of steps")
    if tiers and suffix != ".eaf":
        raise InputError(f"{path}: tiers are of ELAN's .eaf files")
    try:
        if suffix == ".eaf":
            levels, length_s = read_elan(data, tiers)
        elif suffix in (".vtt", ".srt"):
            levels, length_s = [read_cues(decode_text(data), is_webvtt=suffix == ".vtt")], None
        elif suffix in (".csv", ".tsv"):
            levels, length_s = read_table(decode_text(data), video), None
        else:
            document = parse_json(data.decode("utf-8-sig"))
            if isinstance(document, dict) and "levels" in document:
                return replace(parse_hierarchy(document, duration_s), video=str(video))
            levels, length_s = read_json_rows(document, video, fps)
        levels = [level for level in levels if level]
        if not levels:
            raise ValueError("holds no steps with times")
        duration_s = duration_s or length_s or max(row.end_s for level in levels for row in level)
        nested = nest_rows(levels, duration_s, cut_overlaps=cut_overlaps)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, IndexError) as error:
        reason = f"{type(error).__name__}: {error}" if isinstance(error, KeyError | TypeError | AttributeError) else str(error)
        raise InputError(f"{path}: {reason}") from error
    return Hierarchy(str(video), "", duration_s, tuple(map(tuple, nested)))


# From rows to levels


def nest_rows(levels: Sequence[Sequence[StepRow]], duration_s: float, *, cut_overlaps: bool = False) -> list[list[Step]]:
    """Levels of steps that cover a video: gaps are filled, steps inside others go to a finer level.

    Args:
        levels: Rows of each level, coarse to fine.
        duration_s: Length of the video.
        cut_overlaps: A step ends where the next one begins, instead of an error.

    Raises:
        ValueError: Steps overlap, cross the boundary of a coarser one, end before they begin, or go on after the video.
    """
    split = [part for level in levels for part in _split_by_nesting(_fit_rows(level, duration_s), cut_overlaps)]
    if len(split) > MAX_LEVELS or sum(map(len, split)) > MAX_STEPS:
        raise ValueError(f"more than {MAX_LEVELS} levels or {MAX_STEPS} steps")
    covered: list[list[StepRow]] = [[StepRow(0.0, duration_s, background=True)]]
    for i, level in enumerate(split):
        covered.append(_cover(covered[-1], level, copies=i > 0))
    return _to_steps(covered[1:])


def _fit_rows(rows: Sequence[StepRow], duration_s: float) -> list[StepRow]:
    """Rows in time order, checked against the video's length; the end of the last may differ from it a little."""
    out = []
    for row in rows:
        if not (math.isfinite(row.start_s) and math.isfinite(row.end_s)) or not 0 <= row.start_s < row.end_s <= MAX_TIME_S:
            raise ValueError(f"{row.name} must last, and begin at 0 or later")
        if row.end_s > duration_s + DURATION_TOLERANCE_S or row.start_s >= duration_s:
            raise ValueError(f"{row.name} is after the end of the video ({duration_s:.1f} s); is the file of another video?")
        label = row.label if row.label is None else row.label[:MAX_LABEL_LENGTH]
        if label is not None:
            label.encode()  # half a character is a UnicodeEncodeError, which is a ValueError
        end_s = duration_s if abs(row.end_s - duration_s) < TOLERANCE_S else min(row.end_s, duration_s)
        out.append(replace(row, end_s=end_s, label=label))
    return sorted(out, key=lambda row: (row.start_s, -row.end_s))


def _split_by_nesting(rows: Sequence[StepRow], cut_overlaps: bool) -> list[list[StepRow]]:
    """Rows in time order as levels without overlaps: one that lies inside another is a level deeper."""
    levels: list[list[StepRow]] = []
    for row in rows:
        for level in levels:
            last = level[-1]
            if row.start_s >= last.end_s - TOLERANCE_S:
                if last.end_s != row.start_s and abs(last.end_s - row.start_s) < TOLERANCE_S and last.start_s < row.start_s:
                    level[-1] = replace(last, end_s=row.start_s)  # the two were meant to touch
                level.append(row)
                break
            if row.end_s <= last.end_s + TOLERANCE_S and (row.start_s, row.end_s) != (last.start_s, last.end_s):
                row = replace(row, end_s=min(row.end_s, last.end_s))
                continue
            if not cut_overlaps or row.start_s <= last.start_s:
                raise ValueError(
                    f"{last.name} and {row.name} overlap; end one where the other begins, or cut them (--cut-overlaps)"
                )
            level[-1] = replace(last, end_s=row.start_s)
            level.append(row)
            break
        else:
            levels.append([row])
    return levels


def _cover(parents: Sequence[StepRow], rows: Sequence[StepRow], copies: bool) -> list[StepRow]:
    """Rows, and what fills the gaps between them inside each parent.

    Args:
        parents: Cover the video.
        rows: In time order, without overlaps; each inside a parent.
        copies: A parent without rows inside has one that is equal to it; else background.
    """
    out: list[StepRow] = []
    rows, start = list(rows), 0
    for parent in parents:
        end = start
        while end < len(rows) and (rows[end].start_s + rows[end].end_s) / 2 < parent.end_s:
            end += 1
        inside, start = rows[start:end], end
        if not inside and copies:
            out.append(replace(parent, id=None))
            continue
        time_s = parent.start_s
        for row in inside:
            if row.start_s < parent.start_s - TOLERANCE_S or row.end_s > parent.end_s + TOLERANCE_S:
                raise ValueError(f"{row.name} crosses the boundary of {parent.name}, a step of a coarser level")
            if row.start_s > time_s + TOLERANCE_S:
                out.append(StepRow(time_s, row.start_s, background=True))
            elif row.start_s != time_s:
                row = replace(row, start_s=time_s)
            out.append(row)
            time_s = row.end_s
        if parent.end_s > time_s + TOLERANCE_S or not inside:
            out.append(StepRow(time_s, parent.end_s, background=True))
        elif parent.end_s != time_s:
            out[-1] = replace(out[-1], end_s=parent.end_s)
    return out


def _to_steps(levels: Sequence[Sequence[StepRow]]) -> list[list[Step]]:
    """Steps with ids and threads: those of the rows; new threads go by label, and each step without one has its own."""
    ids = [row.id for level in levels for row in level if row.id is not None]
    used = set(ids)
    taken: set[str] = set()
    out = []
    for number, level in enumerate(levels):
        free_thread = 1 + max((row.thread for row in level if row.thread is not None), default=-1)
        threads: dict[str, int] = {row.label: row.thread for row in level if row.label is not None and row.thread is not None}
        steps = []
        for i, row in enumerate(level):
            id = row.id
            if id is None or id in taken:
                candidates = chain([f"{number}.{i}"], (f"{number}.{i}-{k}" for k in count(1)))
                id = next(candidate for candidate in candidates if candidate not in used and candidate not in taken)
            taken.add(id)
            thread = row.thread
            if thread is None:
                key = row.label if row.label is not None else ("\0background" if row.background else f"\0{i}")
                if key not in threads:
                    threads[key], free_thread = free_thread, free_thread + 1
                thread = threads[key]
            steps.append(
                Step(id, row.start_s, row.end_s, thread, background=row.background, label=row.label or None, score=row.score)
            )
        out.append(steps)
    return link_levels(out)


# ELAN


@dataclass
class ElanTier:
    """A tier of an ELAN file.

    Attributes:
        name: Its id.
        parent: The id of the tier that it depends on; None for one that depends on no other.
        annotations: id, the slots of begin and end, and the text of each.
    """

    name: str
    parent: str | None
    annotations: list[tuple[str, str, str, str]]


class ElanReader:
    """What an ELAN file says, read by expat: documents with a DTD, which could define entities, are refused.

    Attributes:
        slots_ms: Times of slots in milliseconds, None where a slot has none.
        tiers: In the order of the file; only annotations with times of their own.
        hiero: The property that hiero's export has put into the header.
    """

    def __init__(self, data: bytes) -> None:
        self.slots_ms: dict[str, int | None] = {}
        self.tiers: list[ElanTier] = []
        self.hiero = ""
        self._path: list[str] = []
        self._text: list[str] = []
        self._property = ""
        self._annotation: tuple[str, str, str] | None = None
        self._num_annotations = 0
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = self._refuse
        parser.EntityDeclHandler = self._refuse
        try:
            parser.Parse(data, True)
        except expat.ExpatError as error:
            raise ValueError(f"not XML ({error})") from error
        if not self.tiers and not self.slots_ms:
            raise ValueError("not an ELAN file: it has no tiers")

    def _refuse(self, *_: object) -> None:
        raise ValueError("has a document type declaration, which ELAN's files never have; it is not read")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._path.append(name)
        if len(self._path) > MAX_DEPTH:
            raise ValueError("its elements are nested too deep")
        self._text = []
        if name == "TIME_SLOT":
            value = attributes.get("TIME_VALUE")
            self.slots_ms[attributes["TIME_SLOT_ID"]] = None if value is None else int(value)
        elif name == "TIER":
            self.tiers.append(ElanTier(attributes["TIER_ID"], attributes.get("PARENT_REF"), []))
        elif name == "ALIGNABLE_ANNOTATION":
            self._num_annotations += 1
            if self._num_annotations > MAX_STEPS:
                raise ValueError(f"more than {MAX_STEPS} annotations")
            self._annotation = attributes["ANNOTATION_ID"], attributes["TIME_SLOT_REF1"], attributes["TIME_SLOT_REF2"]
        elif name == "PROPERTY":
            self._property = attributes.get("NAME", "")

    def _end(self, name: str) -> None:
        self._path.pop()
        text = "".join(self._text)
        if name == "PROPERTY" and self._property == HIERO_PROPERTY:
            self.hiero = text
        elif name == "ANNOTATION_VALUE" and self._annotation is not None:
            self.tiers[-1].annotations.append((*self._annotation, text))
        elif name == "ALIGNABLE_ANNOTATION":
            self._annotation = None
        self._text = []

    def _characters(self, text: str) -> None:
        self._text.append(text)

    def times_ms(self, tier: ElanTier) -> dict[str, float]:
        """Times of the slots of a tier; those without one are spread evenly between their neighbours, as ELAN shows them."""
        order = list(dict.fromkeys(slot for _, start, end, _ in tier.annotations for slot in (start, end)))
        known = [(i, value) for i, slot in enumerate(order) if (value := self.slots_ms[slot]) is not None]
        times = {order[i]: float(value) for i, value in known}
        for (i, start_ms), (j, end_ms) in pairwise(known):
            times |= {order[k]: start_ms + (end_ms - start_ms) * (k - i) / (j - i) for k in range(i + 1, j)}
        if len(times) < len(order):
            raise ValueError(f"tier {tier.name}: it begins or ends with an annotation without a time")
        return times


def read_elan(data: bytes, tiers: Sequence[str] = ()) -> tuple[list[list[StepRow]], float | None]:
    """Rows of an ELAN file, a level for each tier, and the length of the video where hiero wrote the file.

    Tiers that depend on others come after these; else longer annotations come before shorter ones.

    Args:
        data: Content of the file.
        tiers: Names of tiers to read, coarse to fine; by default all with annotations.

    Raises:
        ValueError: It is not such a file, or has no such tier.
    """
    document = ElanReader(data)
    by_name = {tier.name: tier for tier in document.tiers}
    if missing := [name for name in tiers if name not in by_name]:
        raise ValueError(f"has no tier {missing[0]}; there are {', '.join(list(by_name)[:MAX_NAMES])}")
    hiero = _parse_hiero(document.hiero)
    levels: list[tuple[tuple[int, float], list[StepRow]]] = []
    # What is said lies in a tier of its own in our files, and is no step.
    spoken = SPEECH_TIER if document.hiero else None
    for tier in [by_name[name] for name in tiers] or [tier for tier in document.tiers if tier.name != spoken]:
        times_ms = document.times_ms(tier)
        rows = []
        for id, start, end, text in tier.annotations:
            row = StepRow(times_ms[start] / 1000, times_ms[end] / 1000, one_line(text) or None)
            rows.append(_restore(row, hiero.get(id)))
        if rows:
            depth = 0
            parent = tier.parent
            while parent in by_name and depth <= len(by_name):
                depth, parent = depth + 1, by_name[parent].parent
            levels.append(((depth, -sum(row.end_s - row.start_s for row in rows) / len(rows)), rows))
    if not tiers:
        levels.sort(key=lambda level: level[0])
    return [rows for _, rows in levels], hiero.get("duration_s")


def _parse_hiero(text: str) -> dict[str, Any]:
    """Steps by the id of their annotation, and `duration_s`: what our exports of other formats hold. Empty for other files."""
    try:
        document = parse_json(text) if text else {}
    except ValueError:  # what another program made of it is not worth an error
        return {}
    return _index_hiero(document)


def _index_hiero(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict) or not isinstance(document.get("steps"), dict):
        return {}
    rows: dict[str, Any] = dict(document["steps"])
    duration_s = document.get("duration_s")
    if isinstance(duration_s, int | float) and 0 < duration_s <= MAX_TIME_S:
        rows["duration_s"] = float(duration_s)
    return rows


def _restore(row: StepRow, original: Any, is_moved: bool = True) -> StepRow:
    """A row with what hiero's export says about the same step, as far as nobody has changed it.

    Args:
        row: As the format has it; unnamed steps have the title that exports give them.
        original: The step that was exported, as `Step.to_dict` has it; None where there is none.
        is_moved: Its times were changed, or the format holds them exactly.
    """
    if original is None:
        return row
    try:
        step = Step.from_dict(original)
    except InputError:
        return row
    row = replace(row, id=step.id[:MAX_ID_LENGTH])
    if not is_moved:
        row = replace(row, start_s=step.start_s, end_s=step.end_s)
    if row.label != (one_line(step.label or "") or one_line(f"step {step.id}")):
        return row  # a person named it
    return replace(row, label=step.label, thread=step.thread, background=step.background, score=step.score)


# Label Studio, ActivityNet, and annotations as `hiero eval own` takes them


def read_json_rows(document: Any, video: Path, fps: float = FRAME_RATE) -> tuple[list[list[StepRow]], float | None]:
    """Rows of a JSON document of another tool, a list for each level, and the length of the video where it says so.

    Args:
        document: As parsed.
        video: Whose steps are wanted.
        fps: Frames a second that Label Studio has counted with.

    Raises:
        ValueError: It is of no known kind, or has no steps of this video.
    """
    if isinstance(document, dict) and "data" in document and ("annotations" in document or "predictions" in document):
        document = [document]
    if isinstance(document, list) and document and all(isinstance(task, dict) and "data" in task for task in document):
        return _read_label_studio(document, video, fps)
    if isinstance(document, dict):
        for key in ("database", "results"):
            if isinstance(document.get(key), dict) and document[key]:
                entry = _choose_video(document[key], video)
                if isinstance(entry, dict):
                    return [[_activitynet_row(row) for row in entry["annotations"]]], entry.get("duration")
                return [[_activitynet_row(row) for row in entry]], None
        if document and all(isinstance(entry, dict) and ("steps" in entry or "timestamps" in entry) for entry in document.values()):
            entry = _choose_video(document, video)
            if "steps" in entry:
                rows = [StepRow(_seconds(row["start_s"]), _seconds(row["end_s"]), _label(row["text"])) for row in entry["steps"]]
                return [rows], entry.get("duration_s")
            spans = zip(entry["timestamps"], entry["sentences"], strict=True)
            return [[StepRow(_seconds(a), _seconds(b), _label(text)) for (a, b), text in spans]], entry.get("duration")
    raise ValueError(
        "not a JSON of steps: known are hiero's steps.json and edits, Label Studio's JSON (not JSON-MIN), ActivityNet's, and "
        "annotations as hiero eval own takes them"
    )


def _activitynet_row(row: dict[str, Any]) -> StepRow:
    start_s, end_s = row["segment"]
    label = _label(row.get("label"))
    id = row.get("id")
    if isinstance(id, str) and label == one_line(f"step {id}"):
        label = None  # as our export names a step without a name
    return StepRow(_seconds(start_s), _seconds(end_s), label, id=_valid_id(id))


def _read_label_studio(tasks: list[dict[str, Any]], video: Path, fps: float) -> tuple[list[list[StepRow]], float | None]:
    """A level for each control tag (`from_name`); annotations of people before predictions, the newest of several."""
    if not fps > 0:
        raise ValueError(f"frames a second must be positive, got {fps}")
    by_video: dict[str, dict[str, Any]] = {}
    for task in tasks:
        values = [value for key, value in task["data"].items() if isinstance(value, str) and key != HIERO_PROPERTY]
        for value in values or [""]:
            by_video[value] = task
    task = _choose_video(by_video, video) if len(tasks) > 1 else tasks[0]
    done = [annotation for annotation in task.get("annotations") or [] if not annotation.get("was_cancelled")]
    done = done or list(task.get("predictions") or [])
    if not done:
        raise ValueError("the task has neither annotations nor predictions")
    newest = max(enumerate(done), key=lambda pair: (str(pair[1].get("updated_at") or ""), pair[0]))[1]
    hiero = _index_hiero(task["data"].get(HIERO_PROPERTY))
    levels: dict[str, list[StepRow]] = {}
    for result in newest["result"]:
        value = result.get("value", {})
        labels = value.get(result.get("type", "")) or value.get("labels") or value.get("timelinelabels") or []
        label = _label(labels[0]) if labels else None
        level = levels.setdefault(str(result.get("from_name", "")), [])
        if "ranges" in value:
            for span in value["ranges"]:
                first, last = int(span["start"]), int(span["end"])
                row = StepRow((first - 1) / fps, max(last, first) / fps, label)
                original = hiero.get(str(result.get("id"))) if len(value["ranges"]) == 1 else None
                is_moved = not isinstance(original, dict) or original.get("frames") != [first, last]
                level.append(_restore(row, original, is_moved))
        elif "start" in value and "end" in value:  # labels of Audio and of AudioPlus, in seconds
            level.append(StepRow(_seconds(value["start"]), _seconds(value["end"]), label))
    found = {name: rows for name, rows in levels.items() if rows}
    if not found:
        raise ValueError("its regions have no times; steps are timelinelabels of a Video, or labels of an Audio")
    is_ours = all(re.fullmatch(r"level\d+", name) for name in found)
    names = sorted(found, key=(lambda name: int(name[5:])) if is_ours else (lambda name: -_mean_length(found[name])))
    return [found[name] for name in names], hiero.get("duration_s")


def _mean_length(rows: Sequence[StepRow]) -> float:
    return sum(row.end_s - row.start_s for row in rows) / len(rows)


def _choose_video(by_name: dict[str, Any], video: Path) -> Any:
    """The entry of a video: by its name with or without suffix; the only one, whatever its name."""
    for name, entry in by_name.items():
        file_name = re.split(r"[/\\?=]", name)[-1]  # Label Studio has addresses
        if video.name in (name, file_name) or video.stem in (name, file_name, file_name.rsplit(".", 1)[0]):
            return entry
    if len(by_name) == 1:
        return next(iter(by_name.values()))
    names = ", ".join(list(by_name)[:MAX_NAMES])
    raise ValueError(f"holds {len(by_name)} videos but none called {video.stem}; there are {names} …")


# Tables and subtitles


def read_table(text: str, video: Path) -> list[list[StepRow]]:
    """Rows of a table, a list for each of its levels.

    Args:
        text: Comma, semicolon or tab separated, with a header.
        video: Whose steps are wanted, where the table has a column of videos.

    Raises:
        ValueError: A column is missing, or a cell cannot be read.
    """
    first_line = text.partition("\n")[0]
    delimiter = max(",;\t", key=first_line.count)
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error as error:  # such as a cell beyond the limit, where a quotation mark was left open
        raise ValueError(f"not a table ({error})") from error
    if len(rows) > MAX_STEPS:
        raise ValueError(f"more than {MAX_STEPS} rows")
    present = {(name or "").strip().lower(): name for name in (rows[0] if rows else {}) if name}
    columns = {key: present[name] for key, names in COLUMNS.items() if (name := next((n for n in names if n in present), None))}
    if "start_s" not in columns or not {"end_s", "duration_s"} & set(columns):
        raise ValueError(f"a table of steps has columns start_s, end_s and label; this one has {', '.join(present) or 'none'}")
    is_ours = {"id", "thread", "background", "score"} <= set(present)
    names = {row[columns["video"]] or "" for row in rows} if "video" in columns else set()
    chosen = _choose_video({name: name for name in names}, video) if names else None
    levels: dict[float, list[StepRow]] = {}
    for number, row in enumerate(rows, start=2):
        if chosen is not None and row[columns["video"]] != chosen:
            continue
        try:
            start_s = parse_seconds(row[columns["start_s"]])
            end_s = (
                parse_seconds(row[columns["end_s"]]) if "end_s" in columns else start_s + parse_seconds(row[columns["duration_s"]])
            )
            label = _uncell(row[columns["label"]] or "") if "label" in columns else ""
            step = StepRow(start_s, end_s, (label if is_ours else one_line(label)) or None)
            if is_ours:
                score, thread = row[present["score"]], row[present["thread"]]
                step = replace(
                    step, id=_valid_id(_uncell(row[present["id"]] or "")), thread=int(thread) if thread else None,
                    background=row[present["background"]] == "True", score=float(score) if score else None,
                )  # fmt: skip
            level = float(row[columns["level"]] or 0) if "level" in columns else 0.0
        except (ValueError, TypeError) as error:
            raise ValueError(f"line {number}: {error}") from error
        levels.setdefault(level, []).append(step)
    return [levels[level] for level in sorted(levels)]


def _uncell(text: str) -> str:
    """The text of a cell: without the apostrophe that keeps a spreadsheet from computing it."""
    return text[1:] if text.startswith("'") and text.lstrip("'").startswith(FORMULA_STARTS) else text


def read_cues(text: str, is_webvtt: bool = True) -> list[StepRow]:
    """Steps of WebVTT chapters or SubRip subtitles.

    Args:
        text: Content of the file.
        is_webvtt: Cues have ids and escaped texts; those of SubRip have numbers.

    Raises:
        ValueError: A cue has no times.
    """
    rows = []
    for block in re.split(r"\n[ \t]*\n", text.replace("\r\n", "\n").replace("\r", "\n")):
        lines = block.strip("\n").split("\n")
        at = next((i for i, line in enumerate(lines[:2]) if "-->" in line), None)
        if at is None:
            if not is_webvtt and any("-->" in line for line in lines):
                raise ValueError(f"a cue without times: {lines[0][:40]}")
            continue  # the header, a comment, a style
        times = CUE_TIMES.fullmatch(lines[at])
        if times is None:
            raise ValueError(f"cannot be read as times: {lines[at][:40]}")
        groups = times.groups()
        label = " ".join(lines[at + 1 :])
        label = one_line(html.unescape(TAG.sub("", label)) if is_webvtt else label)
        id = lines[0].strip() if at == 1 and is_webvtt else None
        if id is not None and label == one_line(f"step {id}"):
            label = ""  # as our export names a step without a name
        rows.append(StepRow(_cue_time(groups[:4]), _cue_time(groups[4:]), label or None, id=_valid_id(id)))
    return rows


def parse_seconds(text: str | None) -> float:
    """Seconds out of a cell: 61.5, 1:01.5 or 0:01:01,5. Raises ValueError."""
    cell = (text or "").strip().removesuffix("s").strip().replace(",", ".")
    if match := CLOCK_TIME.fullmatch(cell):
        hours, minutes, seconds = match.groups()
        return 3600 * int(hours or 0) + 60 * int(minutes) + float(seconds)
    try:
        return _seconds(cell)
    except ValueError:
        raise ValueError(f"{text!r} is no time in seconds") from None


def _cue_time(groups: Sequence[str | None]) -> float:
    hours, minutes, seconds, fraction = groups
    whole_s = 3600 * int(hours or 0) + 60 * int(minutes or 0) + int(seconds or 0)
    return (1000 * whole_s + int((fraction or "").ljust(3, "0"))) / 1000  # the number that is written so, not a sum near it


def _seconds(value: Any) -> float:
    time_s = float(value)
    if isinstance(value, bool) or not math.isfinite(time_s):
        raise ValueError(f"{value} is no time in seconds")
    return time_s


def _label(value: Any) -> str | None:
    return one_line(str(value)) or None if value is not None else None


def _valid_id(value: Any) -> str | None:
    """An id that steps may have; None for others, which get a new one."""
    return value if isinstance(value, str) and re.fullmatch(rf"[\w.+ -]{{1,{MAX_ID_LENGTH}}}", value) else None
