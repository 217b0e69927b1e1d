"""Transcripts as SubRip (.srt), WebVTT (.vtt) or the JSON of Whisper.

Readers accept what is common in the wild: byte order marks, other line ends, tags, entities, cue
settings, missing hours, captions of sounds in brackets. A missing or impossible time is an error
that names the line, because a shifted or incomplete transcript would give wrong answers.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from hiero.errors import InputError
from hiero.formats.subtitles import HIERO_VTT_HEADER, clean_markup, parse_cues
from hiero.storage.files import decode_text, parse_json, read_bounded
from hiero.types import MAX_TIME_S, Utterance

TRANSCRIPT_SUFFIXES = (".srt", ".vtt", ".json")
MAX_BYTES = 2**26  # size of a file; a day of speech takes 2 MB
MAX_UTTERANCES = 200_000
MAX_BURST, MAX_UTTERANCES_PER_S = 1000, 10  # searching more would take long, and nobody speaks as fast
MAX_TEXT_LENGTH = 5000  # characters of an utterance
MAX_SCROLL_GAP_S, MIN_SCROLLED_WORDS = 0.1, 3  # of a line that is repeated above the next one
MIN_EXPORTED_CUES = 2  # fewer cues do not show whether hiero wrote an SRT
LANGUAGE = re.compile(r"(\.en(g|glish)?([-_.]\w+)?)?", re.IGNORECASE)  # kitchen.en.srt, kitchen.en-US.vtt
POSITION = re.compile(r"\{\\[^{}]*\}")  # {\an8}
SOUND = re.compile(r"\[[^\[\]]*\]|\([^()]*\)|[♪♫]+|^\s*>>")  # [Music], (applause), and >> for a new speaker

Row = tuple[float, float, str]  # start, end and text


def read_utterances(path: Path) -> tuple[Utterance, ...]:
    """The utterances of a transcript. Raises InputError."""
    if path.suffix.lower() not in TRANSCRIPT_SUFFIXES:
        raise InputError(f"{path}: unknown kind of transcript; expected .srt, .vtt, or Whisper's .json")
    content = _read_text(path)
    try:
        if path.suffix.lower() == ".json":
            rows = _parse_whisper(content)
        else:
            rows = [(cue.start_s, cue.end_s, _clean_text(cue.text)) for cue in parse_cues(content)]
        utterances = _to_utterances(rows)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
    if not utterances:
        raise InputError(f"{path}: contains no words with times; is it a transcript?")
    return utterances


# Finding


def find_transcript(video: Path | str) -> Path | None:
    """The English transcript beside a video or feature file: kitchen.srt, .vtt, .json or .en.srt for kitchen.mp4.

    Steps that hiero has exported as subtitles are ignored, and so is JSON that is not Whisper's.
    """
    video = Path(video)
    try:
        beside = [file for file in video.parent.iterdir() if file.name.startswith(video.stem) and file != video]
    except OSError:
        return None
    matching = [file for file in beside if LANGUAGE.fullmatch(file.stem[len(video.stem) :])]
    return _choose_transcript(matching, video.stem)


def list_transcripts(folder: Path) -> list[Path]:
    """The transcripts of a folder, one for each video, sorted by name. `find_transcript` has the same preferences."""
    by_video = defaultdict(list)
    for file in folder.iterdir():
        by_video[transcript_video(file)].append(file)
    chosen = (_choose_transcript(files, video) for video, files in sorted(by_video.items()))
    return [file for file in chosen if file is not None]


def transcript_video(file: Path) -> str:
    """The name of the video that a transcript belongs to: kitchen for kitchen.srt and kitchen.en.srt."""
    match = re.fullmatch(rf"(.+?){LANGUAGE.pattern}", file.stem, re.IGNORECASE)
    return file.stem if match is None else match[1]


def _choose_transcript(files: Iterable[Path], video: str) -> Path | None:
    """The preferred transcript of a video: one without a language in its name, then by suffix."""
    candidates = [file for file in files if file.suffix.lower() in TRANSCRIPT_SUFFIXES and file.is_file()]
    candidates.sort(key=lambda file: (file.stem != video, TRANSCRIPT_SUFFIXES.index(file.suffix.lower()), file))
    return next(filter(_is_transcript, candidates), None)


def _is_transcript(path: Path) -> bool:
    if path.suffix.lower() != ".json":
        return not is_exported_steps(path)
    try:
        return bool(read_utterances(path))
    except InputError:
        return False


def is_exported_steps(path: Path) -> bool:
    """Whether a subtitle file holds steps that hiero has exported rather than speech.

    Exported chapters (.vtt) are recognised by their first line. An .srt counts as steps if it covers
    the video from 0 on without a gap, and no text ends like a sentence.
    """
    try:
        content = _read_text(path)
        cues = parse_cues(content)
    except (InputError, ValueError):
        return False
    if path.suffix.lower() == ".vtt":
        return content.startswith(HIERO_VTT_HEADER)
    if len(cues) < MIN_EXPORTED_CUES or cues[0].start_s != 0:
        return False
    has_gap = any(before.end_s != after.start_s for before, after in pairwise(cues))
    has_sentence = any(_clean_text(cue.text).endswith((".", "?", "!", ",", "…")) for cue in cues)
    return not has_gap and not has_sentence


# Parsing


def _read_text(path: Path) -> str:
    return decode_text(read_bounded(path, MAX_BYTES, "a transcript")).replace("\0", " ")


def _clean_text(text: str) -> str:
    """The words on one line, without tags, entities and sounds in brackets."""
    text = clean_markup(POSITION.sub("", text)).replace("\u200b", "").replace("\ufeff", "")
    return " ".join(SOUND.sub(" ", text).split())


def _parse_whisper(content: str) -> list[Row]:
    """Segments in any of the forms that Whisper programs write. Raises ValueError."""
    try:
        document = parse_json(content)
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from error
    segments, in_ms = document, False
    if isinstance(document, dict):
        segments = document.get("segments", document.get("chunks"))  # transformers writes chunks
        if segments is None and isinstance(document.get("transcription"), list):  # whisper.cpp
            segments, in_ms = document["transcription"], True
    if not isinstance(segments, list) or not all(isinstance(row, dict | list) for row in segments):
        raise ValueError("not a transcript of Whisper: expected `segments` with start, end and text")
    if len(segments) > MAX_UTTERANCES:
        raise ValueError(f"more than {MAX_UTTERANCES} segments; is it a transcript?")
    rows = []
    for number, row in enumerate(segments):
        try:
            start_s, end_s, text = _parse_segment(row, in_ms)
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"segment {number} has no start, end and text ({reason})") from error
        rows.append((start_s, end_s, _clean_text(text)))
    return rows


def _parse_segment(row: Any, in_ms: bool) -> Row:
    """Start, end and text of a segment. A list has the fields of faster-whisper: id, seek, start, end, text, …"""
    if isinstance(row, list):
        start, end, text = row[2], row[3], row[4]
    elif in_ms:
        start, end, text = row["offsets"]["from"] / 1000, row["offsets"]["to"] / 1000, row["text"]
    elif "timestamp" in row:
        (start, end), text = row["timestamp"], row["text"]
    else:
        start, end, text = row["start"], row["end"], row["text"]
    end = start if end is None else end  # the last chunk of a recording that ends within a word
    if not isinstance(text, str) or isinstance(start, bool | str) or isinstance(end, bool | str):
        raise TypeError("times must be numbers of seconds, and the text a string")
    return float(start), float(end), text.encode("utf-8", "replace").decode()  # JSON can hold lone surrogates


def _to_utterances(rows: Sequence[Row]) -> tuple[Utterance, ...]:
    """Utterances in time order, without empty ones and without scrolled lines (as of YouTube). Raises ValueError."""
    utterances: list[Utterance] = []
    for start_s, end_s, text in sorted(rows, key=lambda row: row[:2]):
        if not (0 <= start_s <= end_s <= MAX_TIME_S):  # or if one is NaN
            raise ValueError(f"an utterance has invalid times, {start_s:g} to {end_s:g} s: {text[:40]!r}")
        if len(text) > MAX_TEXT_LENGTH:
            raise ValueError(f"an utterance of {len(text)} characters at {start_s:g} s; is it a transcript?")
        if not any(character.isalnum() for character in text):
            continue
        before = utterances[-1] if utterances else None
        if before is not None and start_s <= before.end_s + MAX_SCROLL_GAP_S and _repeats_line(before.text, text):
            text = text[len(before.text) :].strip()  # the previous line is repeated above the new one
            if not text:
                utterances[-1] = Utterance(before.start_s, max(before.end_s, end_s), before.text)
                continue
        utterances.append(Utterance(start_s, end_s, text))
    covered_s = max((utterance.end_s for utterance in utterances), default=0.0)
    if len(utterances) > MAX_BURST + MAX_UTTERANCES_PER_S * covered_s:
        raise ValueError(f"{len(utterances)} utterances in {covered_s:.0f} s; is it a transcript?")
    return tuple(utterances)


def _repeats_line(before: str, text: str) -> bool:
    """Whether a text repeats the previous line. A line of one or two words may be repeated speech."""
    return len(before.split()) >= MIN_SCROLLED_WORDS and f"{text} ".startswith(f"{before} ")
