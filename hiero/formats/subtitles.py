"""Chapters for WebVTT, FFmpeg and YouTube (the steps of the middle level), and SubRip subtitles."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from hiero.formats import rows
from hiero.formats.registry import Exporter, ImportSettings, StepReader
from hiero.formats.rows import HIERO_PROPERTY, RowLevels, plain_id, to_ms
from hiero.formatting import format_time, one_line
from hiero.storage.files import decode_text
from hiero.types import Hierarchy, Step

HIERO_VTT_HEADER = "WEBVTT - steps found by hiero"
MIN_CHAPTER_S = 10.0  # YouTube ignores lists with shorter chapters
MAX_CUES = 200_000
TIME = r"(?:(\d{1,4}):)?(\d{1,3}):(\d{1,2})(?:[.,](\d{1,9}))?"
CUE_TIMES = re.compile(rf"\s*{TIME}\s*-->\s*{TIME}(?:\s.*)?", re.ASCII)
TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<\d[^<>]*>")  # <i>, <v Anna>, <00:01.000>


@dataclass
class Cue:
    """A text with times. The id is the line before the times, and may be empty."""

    id: str
    start_s: float
    end_s: float
    lines: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join(self.lines)


def parse_cues(content: str) -> list[Cue]:
    """The cues of SubRip or WebVTT, which both are blocks with a line of times. Raises ValueError."""
    cues: list[Cue] = []
    is_open = False  # whether lines belong to the last cue
    before = ""
    for number, line in enumerate(content.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        match = CUE_TIMES.fullmatch(line)
        if "-->" in line and (match is not None or not is_open):
            if match is None:
                expected = "expected 00:01:02.345 --> 00:01:04.000"
                raise ValueError(f"line {number} is not a time: {line.strip()[:60]!r}; {expected}")
            if len(cues) == MAX_CUES:
                raise ValueError(f"more than {MAX_CUES} cues; is it a file of subtitles?")
            if is_open:  # no blank line between two cues
                before = cues[-1].lines.pop() if cues[-1].lines and before.isdigit() else ""
            cues.append(Cue(before, _to_seconds(match.groups()[:4]), _to_seconds(match.groups()[4:])))
            is_open = True
        elif is_open:
            is_open = bool(line.strip())
            cues[-1].lines.append(line)
        before = line.strip()
    return cues


def _to_seconds(groups: Sequence[str | None]) -> float:
    hours, minutes, seconds, fraction = groups
    whole_s = 3600 * int(hours or 0) + 60 * int(minutes or 0) + int(seconds or 0)
    return float(f"{whole_s}.{fraction or 0}")  # exactly the written number


def clean_markup(text: str) -> str:
    """The text of a WebVTT cue without its tags and entities."""
    return html.unescape(TAG.sub("", text))


def read_webvtt(data: bytes, _: ImportSettings) -> RowLevels:
    """Steps of WebVTT chapters, with their ids."""
    content = decode_text(data)
    note = re.search(rf"^NOTE {HIERO_PROPERTY} (.*)$", content, re.MULTILINE)
    originals, duration_s = rows.index_steps(rows.parse_object(note and note[1]))
    steps = []
    for cue in parse_cues(content):
        original = originals.get(cue.id)
        steps.append(rows.imported_step(cue.start_s, cue.end_s, clean_markup(cue.text), original, id=cue.id))
    return [steps], duration_s


def read_srt(data: bytes, _: ImportSettings) -> RowLevels:
    """Steps of SubRip subtitles."""
    return [[rows.imported_step(cue.start_s, cue.end_s, cue.text) for cue in parse_cues(decode_text(data))]], None


def chapters(hierarchy: Hierarchy) -> tuple[Step, ...]:
    """The steps of the middle level."""
    return hierarchy.levels[len(hierarchy.levels) // 2]


def to_vtt(hierarchy: Hierarchy) -> str:
    """WebVTT chapters. A comment holds what they cannot express, so that unchanged steps are read back exactly."""
    titles = hierarchy.shown_titles
    steps = {plain_id(step): {**step.to_dict(), "title": titles[step.id]} for step in chapters(hierarchy)}
    note = json.dumps({"duration_s": round(hierarchy.duration_s, 3), "steps": steps}).replace(">", "\\u003e")
    cues = [f"NOTE {HIERO_PROPERTY} {note}\n"]
    for step in chapters(hierarchy):
        text = escape(titles[step.id]).replace("-->", "--&gt;")
        cues.append(f"{plain_id(step)}\n{_timestamp(step.start_s, '.')} --> {_timestamp(step.end_s, '.')}\n{text}\n")
    return f"{HIERO_VTT_HEADER}\n\n" + "\n".join(cues)


def to_srt(hierarchy: Hierarchy) -> str:
    """SubRip subtitles."""
    return format_srt((step.start_s, step.end_s, hierarchy.shown_titles[step.id]) for step in hierarchy.levels[-1])


def format_srt(cues: Iterable[tuple[float, float, str]]) -> str:
    """SubRip subtitles from starts, ends and texts."""
    blocks = []
    for number, (start_s, end_s, text) in enumerate(cues, start=1):
        text = one_line(text).replace("-->", "→")  # an arrow marks times
        blocks.append(f"{number}\n{_timestamp(start_s, ',')} --> {_timestamp(end_s, ',')}\n{text}\n")
    return "\n".join(blocks)


def _timestamp(time_s: float, separator: str) -> str:
    """Format a time as hh:mm:ss.mmm. SubRip uses a comma as separator."""
    seconds, ms = divmod(to_ms(time_s), 1000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{separator}{ms:03d}"


def to_ffmetadata(hierarchy: Hierarchy) -> str:
    """FFmpeg's metadata: ffmpeg -i video.mp4 -i chapters.ffmeta -map_chapters 1 -codec copy out.mp4"""
    lines = [";FFMETADATA1"]
    for step in chapters(hierarchy):
        text = "".join("\\" + c if c in "=;#\\\n" else c for c in hierarchy.shown_titles[step.id])
        lines += ["[CHAPTER]", "TIMEBASE=1/1000", f"START={to_ms(step.start_s)}", f"END={to_ms(step.end_s)}"]
        lines.append(f"title={text}")
    return "\n".join(lines) + "\n"


def to_youtube(hierarchy: Hierarchy) -> str:
    """Chapters in a YouTube description. A short chapter joins the neighbour with the weaker name, so that names stay.

    YouTube's rules: the first chapter begins at 0:00, each takes at least ten seconds, titles have no angle brackets.
    """
    kept = [(step.start_s, step.end_s, step) for step in chapters(hierarchy)]
    kept[0] = (0.0, *kept[0][1:])
    while len(kept) > 1 and min(end_s - start_s for start_s, end_s, _ in kept) < MIN_CHAPTER_S:
        i = min(range(len(kept)), key=lambda i: kept[i][1] - kept[i][0])
        beside = [j for j in (i - 1, i + 1) if 0 <= j < len(kept)]
        j = min(beside, key=lambda j: (kept[j][2].name_probability, kept[j][1] - kept[j][0]))
        (start_s, _, first), (_, end_s, last) = kept[min(i, j) : max(i, j) + 1]
        named = last if last.name_probability > first.name_probability else first
        kept[min(i, j) : max(i, j) + 1] = [(start_s, end_s, named)]
    lines = [f"{format_time(start_s)} {hierarchy.shown_titles[step.id]}\n" for start_s, _, step in kept]
    return "".join(lines).replace("<", "‹").replace(">", "›")


VTT = Exporter("chapters.vtt", to_vtt, reader=StepReader((".vtt",), read_webvtt))
SRT = Exporter("steps.srt", to_srt, reader=StepReader((".srt",), read_srt))
FFMETADATA = Exporter("chapters.ffmeta", to_ffmetadata)
YOUTUBE = Exporter("chapters.txt", to_youtube)
