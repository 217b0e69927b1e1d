"""WebVTT chapters and SubRip subtitles."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from hiero.formats.rows import StepRow, one_line, parse_id

CUE_TIME = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})(?:[.,](\d{1,3}))?"
CUE_TIMES = re.compile(rf"\s*{CUE_TIME}\s*-->\s*{CUE_TIME}(?:\s.*)?", re.ASCII)
TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<\d[^<>]*>")  # <i>, <v Anna>, <00:01.000>


def read_cues(text: str, is_webvtt: bool = True) -> list[StepRow]:
    """Steps of WebVTT chapters or SubRip subtitles."""
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
        rows.append(StepRow(_cue_time(groups[:4]), _cue_time(groups[4:]), label or None, id=parse_id(id)))
    return rows


def _cue_time(groups: Sequence[str | None]) -> float:
    hours, minutes, seconds, fraction = groups
    whole_s = 3600 * int(hours or 0) + 60 * int(minutes or 0) + int(seconds or 0)
    # the number that is written so, not a sum near it
    return (1000 * whole_s + int((fraction or "").ljust(3, "0"))) / 1000
