"""Tables of steps: comma, semicolon or tab separated, with a header."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

from hiero.formats.edits import MAX_STEPS
from hiero.formats.rows import StepRow, choose_video, one_line, parse_id, parse_time

# spreadsheets compute a cell that begins so
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
CLOCK_TIME = re.compile(r"(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", re.ASCII)
COLUMNS = {  # of tables, by what other programs call them
    "start_s": (
        "start_s",
        "start",
        "start_time",
        "begin",
        "begin_time",
        "begin time - ss.msec",
        "onset",
        "t_start",
        "from",
    ),
    "end_s": ("end_s", "end", "end_time", "stop", "finish", "end time - ss.msec", "offset", "t_end", "to"),
    "duration_s": ("duration_s", "duration", "duration - ss.msec", "length"),
    "label": ("label", "text", "name", "step", "annotation", "description", "sentence", "action", "value", "caption"),
    "level": ("level",),
    "video": ("video", "video_id", "video_uid", "file", "filename", "recording"),
}


def read_table(text: str, video: Path) -> list[list[StepRow]]:
    """Rows of a table, a list for each of its levels."""
    first_line = text.partition("\n")[0]
    delimiter = max(",;\t", key=first_line.count)
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error as error:  # such as a cell beyond the limit, where a quotation mark was left open
        raise ValueError(f"not a table ({error})") from error
    if len(rows) > MAX_STEPS:
        raise ValueError(f"more than {MAX_STEPS} rows")
    present = {(name or "").strip().lower(): name for name in (rows[0] if rows else {}) if name}
    columns = {
        key: present[name] for key, names in COLUMNS.items() if (name := next((n for n in names if n in present), None))
    }
    if "start_s" not in columns or not {"end_s", "duration_s"} & set(columns):
        raise ValueError(
            f"a table of steps has columns start_s, end_s and label; this one has {', '.join(present) or 'none'}"
        )
    is_ours = {"id", "thread", "background", "score"} <= set(present)
    names = {row[columns["video"]] or "" for row in rows} if "video" in columns else set()
    chosen = choose_video({name: name for name in names}, video) if names else None
    levels: dict[float, list[StepRow]] = {}
    for number, row in enumerate(rows, start=2):
        if chosen is not None and row[columns["video"]] != chosen:
            continue
        try:
            start_s = parse_clock_time(row[columns["start_s"]])
            end_s = (
                parse_clock_time(row[columns["end_s"]])
                if "end_s" in columns
                else start_s + parse_clock_time(row[columns["duration_s"]])
            )
            label = _uncell(row[columns["label"]] or "") if "label" in columns else ""
            step = StepRow(start_s, end_s, (label if is_ours else one_line(label)) or None)
            if is_ours:
                score, thread = row[present["score"]], row[present["thread"]]
                step = replace(
                    step,
                    id=parse_id(_uncell(row[present["id"]] or "")),
                    thread=int(thread) if thread else None,
                    background=row[present["background"]] == "True",
                    score=float(score) if score else None,
                )
            level = float(row[columns["level"]] or 0) if "level" in columns else 0.0
        except (ValueError, TypeError) as error:
            raise ValueError(f"line {number}: {error}") from error
        levels.setdefault(level, []).append(step)
    return [levels[level] for level in sorted(levels)]


def _uncell(text: str) -> str:
    """The text of a cell: without the apostrophe that keeps a spreadsheet from computing it."""
    return text[1:] if text.startswith("'") and text.lstrip("'").startswith(FORMULA_STARTS) else text


def parse_clock_time(text: str | None) -> float:
    """Seconds out of a cell: 61.5, 1:01.5 or 0:01:01,5. Raises ValueError."""
    cell = (text or "").strip().removesuffix("s").strip().replace(",", ".")
    if match := CLOCK_TIME.fullmatch(cell):
        hours, minutes, seconds = match.groups()
        return 3600 * int(hours or 0) + 60 * int(minutes) + float(seconds)
    try:
        return parse_time(cell)
    except ValueError:
        raise ValueError(f"{text!r} is no time in seconds") from None
