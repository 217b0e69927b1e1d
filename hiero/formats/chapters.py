"""Chapters for FFmpeg and YouTube: the steps of the middle level."""

from __future__ import annotations

from hiero.formats.registry import Exporter
from hiero.formats.rows import title, to_ms
from hiero.types import Hierarchy, Step, format_time

MIN_CHAPTER_S = 10.0  # YouTube ignores lists with shorter ones


def chapters(hierarchy: Hierarchy) -> tuple[Step, ...]:
    """The steps of the middle level."""
    return hierarchy.levels[len(hierarchy.levels) // 2]


def to_ffmetadata(hierarchy: Hierarchy) -> str:
    """FFmpeg's metadata: ffmpeg -i video.mp4 -i chapters.ffmeta -map_chapters 1 -codec copy out.mp4"""
    lines = [";FFMETADATA1"]
    for step in chapters(hierarchy):
        text = "".join("\\" + c if c in "=;#\\\n" else c for c in title(step))
        lines += [
            "[CHAPTER]",
            "TIMEBASE=1/1000",
            f"START={to_ms(step.start_s)}",
            f"END={to_ms(step.end_s)}",
            f"title={text}",
        ]
    return "\n".join(lines) + "\n"


def to_youtube(hierarchy: Hierarchy) -> str:
    """Chapters in a YouTube description. The first is at 0:00; those under ten seconds join the one before."""
    lines: list[str] = []
    previous_s = -MIN_CHAPTER_S
    for i, step in enumerate(chapters(hierarchy)):
        start_s = 0.0 if i == 0 else step.start_s
        if start_s - previous_s >= MIN_CHAPTER_S and (i == 0 or hierarchy.duration_s - start_s >= MIN_CHAPTER_S):
            # YouTube refuses a description with angle brackets.
            lines.append(f"{format_time(start_s)} {title(step).replace('<', '‹').replace('>', '›')}")
            previous_s = start_s
    return "\n".join(lines) + "\n"


FFMETADATA = Exporter("chapters.ffmeta", to_ffmetadata)
YOUTUBE = Exporter("chapters.txt", to_youtube)
