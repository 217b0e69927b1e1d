"""Narrations (texts at times of videos) from EgoClip's file, a simple csv or jsonl file, or transcripts.

Every line that cannot be used is counted under its reason.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hiero.errors import InputError
from hiero.formats.transcripts import TRANSCRIPT_SUFFIXES, list_transcripts, read_utterances, transcript_video
from hiero.formatting import format_count
from hiero.storage.files import check_fits, parse_json, read_lines
from hiero.types import Narration

MIN_SPOKEN_WORDS = 3  # shorter utterances ("okay", "right here") do not describe an action
MAX_EXAMPLES = 3  # examples in the summary for each reason
MAX_HEADER = 2**16  # characters
EGOCLIP_COLUMNS = {"video_uid", "narration_time", "clip_text"}


@dataclass
class Narrations:
    """Narrations by video, and the reasons why others were left out."""

    by_video: dict[str, list[Narration]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self.by_video.values()))

    def __iter__(self) -> Iterator[Narration]:
        return itertools.chain.from_iterable(self.by_video.values())

    def leave_out(self, reason: str, example: str, count: int = 1) -> None:
        """Count unused narrations under a reason, with an example."""
        self.left_out[reason] += count
        examples = self.examples.setdefault(reason, [])
        if len(examples) < MAX_EXAMPLES:
            examples.append(example)

    def select_videos(self, videos: Container[str], skip: Container[str] = ()) -> Narrations:
        """Only the narrations of videos that have features and are not on the skip list."""
        out = Narrations(left_out=Counter(self.left_out), examples={k: list(v) for k, v in self.examples.items()})
        for video, narrations in self.by_video.items():
            if video in skip:
                out.leave_out("on the skip list", video, len(narrations))
            elif video not in videos:
                out.leave_out("no features for the video", video, len(narrations))
            else:
                out.by_video[video] = narrations
        return out

    def summary(self) -> str:
        """How many narrations are used, and how many are left out for which reasons."""
        lines = [f"{format_count(len(self), 'narration')} of {format_count(len(self.by_video), 'video')} used"]
        for reason, count in self.left_out.most_common():
            lines.append(f"  {count} left out: {reason} (such as {'; '.join(self.examples[reason])})")
        return "\n".join(lines)


def read_narrations(path: Path | str) -> Narrations:
    """Read a narration file."""
    path = Path(path)
    if is_spoken(path):
        return _read_spoken(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if path.suffix not in (".csv", ".tsv", ".jsonl"):
        expected = "EgoClip's csv, a .csv or .jsonl, a transcript, or a folder of transcripts"
        raise InputError(f"{path}: unknown kind of narration file; expected {expected}")
    check_fits(path.stat().st_size, f"{path}: its text")
    narrations = Narrations()
    rows = _json_rows(path, narrations) if path.suffix == ".jsonl" else _table_rows(path, narrations)
    try:
        for line_number, row in rows:
            narration = _parse(row, f"line {line_number}", narrations)
            if narration is not None:
                narrations.by_video.setdefault(narration.video, []).append(narration)
    except csv.Error as error:
        raise InputError(f"{path}: not a valid table ({error}); is a quotation mark left open?") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    for of_video in narrations.by_video.values():
        of_video.sort(key=lambda narration: narration.time_s)
    if not narrations.by_video:
        reasons = [f"{count} × {reason}" for reason, count in narrations.left_out.most_common()]
        raise InputError(f"{path}: no usable narration ({'; '.join(reasons) or 'it is empty'})")
    return narrations


def is_spoken(path: Path | str) -> bool:
    """Whether narrations are transcripts, which are not exactly timed and not always about actions."""
    path = Path(path)
    return path.is_dir() or path.suffix.lower() in TRANSCRIPT_SUFFIXES


def _read_spoken(path: Path) -> Narrations:
    """Utterances as narrations at their middle."""
    narrations = Narrations()
    files = [path] if path.is_file() else list_transcripts(path)
    if not files:
        raise InputError(f"{path}: no such file, or no transcripts in this folder (.srt, .vtt or Whisper's .json)")
    for file in files:
        video = transcript_video(file)
        try:
            utterances = read_utterances(file)
        except InputError as error:
            if path.is_file():
                raise
            narrations.leave_out("not a transcript", str(error))
            continue
        for utterance in utterances:
            if len(utterance.text.split()) < MIN_SPOKEN_WORDS:
                narrations.leave_out(f"fewer than {MIN_SPOKEN_WORDS} words", f"{file.name}: {utterance.text}")
                continue
            time_s = (utterance.start_s + utterance.end_s) / 2
            narrations.by_video.setdefault(video, []).append(Narration(video, time_s, utterance.text))
    if not narrations.by_video:
        raise InputError(f"{path}: no usable narration\n{narrations.summary()}")
    return narrations


def read_skip_list(path: Path | str) -> frozenset[str]:
    """Video ids to leave out, one per line. # starts a comment."""
    return frozenset(word for line in read_lines(Path(path)) if (word := line.split("#")[0].strip()))


def _table_rows(path: Path, narrations: Narrations) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers and rows of a table. The columns of EgoClip are renamed, and bad lines are counted."""
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        header = file.readline(MAX_HEADER).rstrip("\r\n").removeprefix("\ufeff")
        delimiter = "\t" if "\t" in header else ","
        columns = next(csv.reader([header], delimiter=delimiter), [])
        is_egoclip = set(columns) >= EGOCLIP_COLUMNS
        if not (is_egoclip or {"video", "text"} <= set(columns)):
            raise InputError(
                f"{path}: the first line must name the columns video, text and time_s (or start_s and end_s); "
                f"found {header[:80]!r}"
            )
        # EgoClip never quotes, and its texts contain quotation marks. Other csv files may quote.
        reader = csv.reader(
            file, delimiter=delimiter, quoting=csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
        )
        for values in reader:
            line_number = reader.line_num + 1  # the header was read before
            if not values:
                continue
            if len(values) != len(columns):
                narrations.leave_out(f"not {len(columns)} columns", f"line {line_number} has {len(values)}")
                continue
            row = dict(zip(columns, values, strict=True))
            if is_egoclip:
                row = {"video": row["video_uid"], "time_s": row["narration_time"], "text": row["clip_text"]}
            yield line_number, row


def _json_rows(path: Path, narrations: Narrations) -> Iterator[tuple[int, dict[str, Any]]]:
    for line_number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except ValueError as error:
            narrations.leave_out("not JSON", f"line {line_number}: {error}")
            continue
        if not isinstance(row, dict):
            narrations.leave_out("not a JSON object", f"line {line_number}")
            continue
        yield line_number, row


def _parse(row: dict[str, Any], where: str, narrations: Narrations) -> Narration | None:
    video, text = str(row.get("video") or "").strip(), " ".join(str(row.get("text") or "").split())
    text = text.encode("utf-8", "replace").decode()  # JSON can hold lone surrogates, which no encoder accepts
    if not video or not text:
        narrations.leave_out("no text" if video else "no video id", where)
        return None
    names = ["start_s", "end_s"] if row.get("time_s") in (None, "") else ["time_s"]
    times = [row.get(name) for name in names]
    try:
        values = [float(value) for value in times]  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        narrations.leave_out("no time", f"{where}: {times}")
        return None
    time_s = sum(values) / len(values)
    if not math.isfinite(time_s) or min(values) < 0 or values != sorted(values):
        narrations.leave_out("impossible time", f"{where}: {times}")
        return None
    return Narration(video, time_s, text)
