"""Files of transcripts, what is said in a video and when: SubRip (.srt), WebVTT (.vtt) and the JSON of Whisper.

Files come from anybody and any program, so readers take what is common in the wild: byte order
marks, other line ends, tags, entities, cue settings, hours left out, captions of sounds in
brackets. What has no time, or a time that cannot be, is an error that names the line: a transcript
that is silently shifted or cut would give wrong answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from hiero.errors import InputError
from hiero.formats.subtitles import HIERO_VTT_HEADER, clean_markup, parse_cues
from hiero.storage.files import decode_text, parse_json, read_bounded
from hiero.types import MAX_TIME_S, Utterance

TRANSCRIPT_SUFFIXES = (".srt", ".vtt", ".json")
MAX_BYTES = 2**26  # of a file; a day of speech takes 2 MB
MAX_UTTERANCES = 200_000
MAX_TEXT_LENGTH = 5000  # characters of an utterance
MAX_SCROLL_GAP_S, MIN_SCROLLED_WORDS = 0.1, 3  # of lines that are shown again above the next one
MIN_EXPORTED_CUES = 2  # that an SRT needs before its times say anything about who wrote it
# of kitchen.en.srt, kitchen.en-US.vtt; texts are English
LANGUAGE = re.compile(r"\.en(g|glish)?([-_.]\w+)?", re.IGNORECASE)
POSITION = re.compile(r"\{\\[^{}]*\}")  # {\an8}
SOUND = re.compile(r"\[[^\[\]]*\]|\([^()]*\)|[♪♫]+|^\s*>>")  # [Music], (applause), and >> where the speaker changes
EXPORTED_ID = re.compile(r"\d+\.\d+")  # of steps

# start, end and text
Row = tuple[float, float, str]


def read_utterances(path: Path) -> tuple[Utterance, ...]:
    """The utterances of a file of a transcript. Raises InputError."""
    if path.suffix.lower() not in TRANSCRIPT_SUFFIXES:
        raise InputError(f"{path}: unknown kind of transcript; expected .srt, .vtt, or Whisper's .json")
    content = _read_text(path)
    try:
        rows = _parse_whisper(content) if path.suffix.lower() == ".json" else _parse_subtitles(content)
        utterances = _to_utterances(rows)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
    if not utterances:
        raise InputError(f"{path}: holds no words with times; is it a transcript?")
    return utterances


# Finding


def find_transcript(video: Path | str) -> Path | None:
    """The transcript beside a video or feature file: kitchen.srt, .vtt or .json for kitchen.mp4, or kitchen.en.srt.

    Steps that hiero itself has exported are subtitles too, and no transcript: see
    `is_exported_steps`. A .json counts only where it has Whisper's form, since many other things
    are called so. In English only, as the words that are searched.
    """
    video = Path(video)
    try:
        beside = sorted(file for file in video.parent.iterdir() if file.name.startswith(video.stem) and file != video)
    except OSError:
        return None
    candidates = []
    for file in beside:
        rest = file.stem[len(video.stem) :]
        if (not rest or LANGUAGE.fullmatch(rest)) and _has_transcript_name(file):
            candidates.append((_rank(file, video.stem), file))
    return next((file for _, file in sorted(candidates) if _is_transcript(file)), None)


def list_transcripts(folder: Path) -> list[Path]:
    """The transcripts of a folder, one for each video, by name; of several the one that `find_transcript` prefers."""
    chosen: dict[str, tuple[tuple[bool, int], Path]] = {}
    for file in sorted(filter(_has_transcript_name, folder.iterdir())):
        video = transcript_video(file)
        rank = _rank(file, video)
        if (video not in chosen or rank < chosen[video][0]) and _is_transcript(file):
            chosen[video] = rank, file
    return [file for _, (_, file) in sorted(chosen.items())]


def transcript_video(file: Path) -> str:
    """The name of the video that a transcript belongs to: kitchen for kitchen.srt and kitchen.en.srt."""
    match = LANGUAGE.search(file.stem)
    return file.stem[: match.start()] if match is not None and match.end() == len(file.stem) else file.stem


def _has_transcript_name(file: Path) -> bool:
    return file.suffix.lower() in TRANSCRIPT_SUFFIXES and file.is_file()


def _rank(file: Path, video: str) -> tuple[bool, int]:
    """Which of several transcripts of a video comes first: one without a language, then by suffix."""
    return file.stem != video, TRANSCRIPT_SUFFIXES.index(file.suffix.lower())


def _is_transcript(path: Path) -> bool:
    """Whether a file beside a video is taken for its transcript."""
    if path.suffix.lower() != ".json":
        return not is_exported_steps(path)
    try:
        return bool(read_utterances(path))
    except InputError:
        return False


def is_exported_steps(path: Path) -> bool:
    """Whether a subtitle file holds steps that hiero has exported, and not speech.

    Our chapters (.vtt) say so in their first line, or, from earlier versions, have ids of steps.
    SubRip has no place to say it: an .srt is taken for steps if it covers the video from 0 on
    without any gap and no text ends as a sentence does. Speech has pauses or punctuation.
    """
    try:
        content = _read_text(path)
        cues = parse_cues(content)
    except (InputError, ValueError):
        return False
    if content.startswith(HIERO_VTT_HEADER):
        return True
    if path.suffix.lower() == ".vtt":
        return bool(cues) and all(EXPORTED_ID.fullmatch(cue.id) for cue in cues)
    if len(cues) < MIN_EXPORTED_CUES or cues[0].start_s != 0:
        return False
    has_gap = any(before.end_s != after.start_s for before, after in pairwise(cues))
    has_sentence = any(_clean_text(cue.text).endswith((".", "?", "!", ",", "…")) for cue in cues)
    return not has_gap and not has_sentence


# Parsing


def _read_text(path: Path) -> str:
    return decode_text(read_bounded(path, MAX_BYTES, "a transcript")).replace("\0", " ")


def _clean_text(text: str) -> str:
    """The words alone, on one line: no tags, entities, or sounds in brackets."""
    text = clean_markup(POSITION.sub("", text)).replace("\u200b", "").replace("\ufeff", "")
    return " ".join(SOUND.sub(" ", text).split())


def _parse_subtitles(content: str) -> list[Row]:
    return [(cue.start_s, cue.end_s, _clean_text(cue.text)) for cue in parse_cues(content)]


def _parse_whisper(content: str) -> list[Row]:
    """Segments of any of the forms that Whisper's programs write. Raises ValueError."""
    try:
        document = parse_json(content)
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from error
    segments, in_ms = document, False
    if isinstance(document, dict):
        segments = document.get("segments", document.get("chunks"))  # chunks: of transformers
        if segments is None and isinstance(document.get("transcription"), list):  # of whisper.cpp
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
            raise ValueError(
                f"segment {number} has no start, end and text ({type(error).__name__}: {error})"
            ) from error
        rows.append((start_s, end_s, _clean_text(text)))
    return rows


def _parse_segment(row: Any, in_ms: bool) -> Row:
    """Start, end and text of a segment; faster-whisper's named tuples become lists: id, seek, start, end, text, …"""
    if isinstance(row, list):
        start, end, text = row[2], row[3], row[4]
    elif in_ms:
        start, end, text = row["offsets"]["from"] / 1000, row["offsets"]["to"] / 1000, row["text"]
    elif "timestamp" in row:
        (start, end), text = row["timestamp"], row["text"]
    else:
        start, end, text = row["start"], row["end"], row["text"]
    end = start if end is None else end  # of the last chunk, where the recording ends within a word
    if not isinstance(text, str) or isinstance(start, bool | str) or isinstance(end, bool | str):
        raise TypeError("times are numbers of seconds, the text is a string")
    return float(start), float(end), text.encode("utf-8", "replace").decode()  # JSON can hold half of a character pair


def _to_utterances(rows: Sequence[Row]) -> tuple[Utterance, ...]:
    """Utterances in time order, without empty ones. Lines that scroll (as of YouTube) come once. Raises ValueError."""
    utterances: list[Utterance] = []
    for start_s, end_s, text in sorted(rows, key=lambda row: row[:2]):
        if not (0 <= start_s <= end_s <= MAX_TIME_S):  # also where one is no number
            raise ValueError(f"an utterance from {start_s:g} to {end_s:g} s cannot be: {text[:40]!r}")
        if len(text) > MAX_TEXT_LENGTH:
            raise ValueError(f"an utterance of {len(text)} characters at {start_s:g} s; is it a transcript?")
        if not any(character.isalnum() for character in text):
            continue
        before = utterances[-1] if utterances else None
        if before is not None and start_s <= before.end_s + MAX_SCROLL_GAP_S and _scrolls(before.text, text):
            text = text[len(before.text) :].strip()  # the line before is shown above the new one
            if not text:
                utterances[-1] = Utterance(before.start_s, max(before.end_s, end_s), before.text)
                continue
        utterances.append(Utterance(start_s, end_s, text))
    return tuple(utterances)


def _scrolls(before: str, text: str) -> bool:
    """Whether a text repeats the whole line before it; one or two words may be somebody who repeats himself."""
    return len(before.split()) >= MIN_SCROLLED_WORDS and f"{text} ".startswith(f"{before} ")
