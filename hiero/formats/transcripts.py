"""Transcripts, what is said in a video and when: SubRip (.srt), WebVTT (.vtt) and the JSON of Whisper's programs.

Files come from anybody and any program, so readers take what is common in the wild: byte order
marks, other line ends, tags, entities, cue settings, hours left out, captions of sounds in
brackets. What has no time, or a time that cannot be, is an error that names the line: a transcript
that is silently shifted or cut would give wrong answers.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hiero.errors import InputError
from hiero.storage.files import decode_text, parse_json, read_bounded
from hiero.types import MAX_TIME_S, Utterance

TRANSCRIPT_SUFFIXES = (".srt", ".vtt", ".json")
MAX_BYTES = 2**26  # of a file; a day of speech takes 2 MB
MAX_UTTERANCES = 200_000
MAX_TEXT_LENGTH = 5000  # characters of an utterance
MAX_SCROLL_GAP_S, MIN_SCROLLED_WORDS = 0.1, 3  # of lines that are shown again above the next one
HIERO_VTT_HEADER = "WEBVTT - steps found by hiero"  # what our own chapters begin with: see `find_transcript`
MIN_EXPORTED_CUES = 2  # that an SRT needs before its times say anything about who wrote it
# of kitchen.en.srt, kitchen.en-US.vtt; texts are English
LANGUAGE = re.compile(r"\.en(g|glish)?([-_.]\w+)?", re.IGNORECASE)
TIME = r"(?:(\d{1,4}):)?(\d{1,3}):(\d{1,2})(?:[.,](\d{1,6}))?"
CUE_TIMES = re.compile(rf"\s*{TIME}\s*-->\s*{TIME}(?:\s.*)?", re.ASCII)
TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<\d[^<>]*>|\{\\[^{}]*\}")  # <i>, <v Anna>, <00:01.000>, {\an8}
SOUND = re.compile(r"\[[^\[\]]*\]|\([^()]*\)|[♪♫]+|^\s*>>")  # [Music], (applause), and >> where the speaker changes
EXPORTED_ID = re.compile(r"\d+\.\d+")  # of steps


@dataclass(frozen=True)
class Transcript:
    """What is said in a video.

    Attributes:
        utterances: In time order.

    Examples:
        >>> transcript = Transcript((Utterance(1.0, 2.0, "Crack the eggs."), Utterance(4.0, 6.0, "Now whisk them.")))
        >>> [utterance.text for utterance in transcript.between(3.0, 9.0)]
        ['Now whisk them.']
    """

    utterances: tuple[Utterance, ...]

    def __len__(self) -> int:
        return len(self.utterances)

    def __iter__(self) -> Iterator[Utterance]:
        return iter(self.utterances)

    def between(self, start_s: float, end_s: float) -> tuple[Utterance, ...]:
        """The utterances whose middle is inside [start_s, end_s)."""
        return tuple(
            utterance for utterance in self.utterances if start_s <= (utterance.start_s + utterance.end_s) / 2 < end_s
        )

    def until(self, end_s: float) -> Transcript:
        """What begins before the end of a video; the last utterance ends with it. Transcripts of a
        longer cut go on.
        """
        return Transcript(
            tuple(Utterance(s.start_s, min(s.end_s, end_s), s.text) for s in self.utterances if s.start_s < end_s)
        )

    def to_srt(self) -> str:
        """SubRip subtitles."""
        cues = []
        for number, utterance in enumerate(self.utterances, start=1):
            text = utterance.text.replace("-->", "→")  # which would be taken for times
            cues.append(f"{number}\n{_format_time(utterance.start_s)} --> {_format_time(utterance.end_s)}\n{text}\n")
        return "\n".join(cues)


def join_transcripts(parts: Sequence[tuple[Transcript | None, float]]) -> Transcript | None:
    """One transcript of several files that follow each other."""
    if all(transcript is None for transcript, _ in parts):
        return None
    return Transcript(
        tuple(
            Utterance(utterance.start_s + begin_s, utterance.end_s + begin_s, utterance.text)
            for transcript, begin_s in parts
            if transcript is not None
            for utterance in transcript
        )
    )


def read_transcript(path: Path | str) -> Transcript:
    """Read a transcript.

    Args:
        path: .srt, .vtt, or .json as openai-whisper, faster-whisper, whisper.cpp and WhisperX write it.

    Raises:
        InputError: The file is missing, of another kind, too large, or has no utterance with a time.
    """
    path = Path(path)
    if path.suffix.lower() not in TRANSCRIPT_SUFFIXES:
        raise InputError(f"{path}: unknown kind of transcript; expected .srt, .vtt, or Whisper's .json")
    content = _read_text(path)
    try:
        if path.suffix.lower() == ".json":
            rows = _parse_whisper(content)
        else:
            rows = [(start_s, end_s, text) for _, start_s, end_s, text in _parse_cues(content)]
        utterances = _to_utterances(rows)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
    if not utterances:
        raise InputError(f"{path}: holds no words with times; is it a transcript?")
    return Transcript(utterances)


def find_transcript(video: Path | str) -> Path | None:
    """The transcript that lies beside a video or feature file: kitchen.srt, .vtt or .json for
    kitchen.mp4, or kitchen.en.srt.

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
        rest, suffix = file.stem[len(video.stem) :], file.suffix.lower()
        if suffix in TRANSCRIPT_SUFFIXES and (not rest or LANGUAGE.fullmatch(rest)) and file.is_file():
            candidates.append((len(rest) > 0, TRANSCRIPT_SUFFIXES.index(suffix), file))
    return next((file for _, _, file in sorted(candidates) if _is_transcript(file)), None)


def list_transcripts(folder: Path) -> list[Path]:
    """The transcripts of a folder, one for each video, by name; of several for one video the first, as
    `find_transcript` has it.
    """
    chosen: dict[str, tuple[tuple[bool, int], Path]] = {}
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() not in TRANSCRIPT_SUFFIXES or not file.is_file():
            continue
        video = transcript_video(file)
        rank = (file.stem != video, TRANSCRIPT_SUFFIXES.index(file.suffix.lower()))
        if (video not in chosen or rank < chosen[video][0]) and _is_transcript(file):
            chosen[video] = rank, file
    return [file for _, (_, file) in sorted(chosen.items())]


def transcript_video(file: Path) -> str:
    """The name of the video that a transcript belongs to: kitchen for kitchen.srt and kitchen.en.srt."""
    match = LANGUAGE.search(file.stem)
    return file.stem[: match.start()] if match is not None and match.end() == len(file.stem) else file.stem


def is_exported_steps(path: Path) -> bool:
    """Whether a subtitle file holds steps that hiero has exported, and not speech.

    Our chapters (.vtt) say so in their first line, or, from earlier versions, have ids of steps.
    SubRip has no place to say it: an .srt is taken for steps if it covers the video from 0 on
    without any gap and no text ends as a sentence does. Speech has pauses or punctuation.
    """
    try:
        content = _read_text(path)
        cues = _parse_cues(content)
    except (InputError, ValueError):
        return False
    if content.startswith(HIERO_VTT_HEADER):
        return True
    if path.suffix.lower() == ".vtt":
        return bool(cues) and all(EXPORTED_ID.fullmatch(id) for id, *_ in cues)
    has_no_gap = bool(cues) and cues[0][1] == 0 and all(before[2] == after[1] for before, after in pairwise(cues))
    return (
        has_no_gap
        and len(cues) >= MIN_EXPORTED_CUES
        and not any(text.endswith((".", "?", "!", ",", "…")) for *_, text in cues)
    )


def _is_transcript(path: Path) -> bool:
    """Whether a file beside a video is taken for its transcript."""
    if path.suffix.lower() != ".json":
        return not is_exported_steps(path)
    try:
        return bool(read_transcript(path))
    except InputError:
        return False


def _read_text(path: Path) -> str:
    """The text of a file of bounded size, without byte order mark, lines ended by newlines."""
    text = decode_text(read_bounded(path, MAX_BYTES, "a transcript"))
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", " ")


def _parse_cues(content: str) -> list[tuple[str, float, float, str]]:
    """Ids, times and texts of the cues of SRT or WebVTT: both are blocks with a line of times. Raises ValueError."""
    cues: list[tuple[str, float, float, list[str]]] = []
    lines = content.split("\n")
    is_open = False  # the last cue takes lines
    for number, line in enumerate(lines, start=1):
        match = CUE_TIMES.fullmatch(line)
        if "-->" in line and (match is not None or not is_open):
            if match is None:
                raise ValueError(
                    f"line {number} is no time: {line.strip()[:60]!r}; expected 00:01:02.345 --> 00:01:04.000"
                )
            if len(cues) == MAX_UTTERANCES:
                raise ValueError(f"more than {MAX_UTTERANCES} cues; is it a transcript?")
            id = lines[number - 2].strip() if number > 1 else ""
            if is_open and cues[-1][3] and id.isdigit():  # no blank line between two cues
                cues[-1][3].pop()
            cues.append((id, _parse_time(match.groups()[:4]), _parse_time(match.groups()[4:]), []))
            is_open = True
        elif is_open:
            is_open = bool(line.strip())
            cues[-1][3].append(line)
    return [(id, start_s, end_s, _clean_text(" ".join(texts))) for id, start_s, end_s, texts in cues]


def _parse_time(groups: Sequence[str | None]) -> float:
    hours, minutes, seconds, fraction = groups
    assert minutes is not None
    assert seconds is not None
    return int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds) + (float(f"0.{fraction}") if fraction else 0.0)


def _format_time(time_s: float) -> str:
    """hh:mm:ss,mmm"""
    seconds, ms = divmod(round(1000 * time_s), 1000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d},{ms:03d}"


def _clean_text(text: str) -> str:
    """The words alone, on one line: no tags, entities, or sounds in brackets."""
    text = html.unescape(TAG.sub("", text)).replace("\u200b", "").replace("\ufeff", "")
    return " ".join(SOUND.sub(" ", text).split())


def _parse_whisper(content: str) -> list[tuple[float, float, str]]:
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
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"segment {number} has no start, end and text ({type(error).__name__}: {error})"
            ) from error
        rows.append((start_s, end_s, _clean_text(text)))
    return rows


def _parse_segment(row: Any, in_ms: bool) -> tuple[float, float, str]:
    """Start, end and text of a segment; the named tuples of faster-whisper become lists in JSON: id,
    seek, start, end, text, …
    """
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


def _scrolls(before: str, text: str) -> bool:
    """Whether a text repeats the whole line before it; of one or two words that may be somebody who
    repeats himself.
    """
    return len(before.split()) >= MIN_SCROLLED_WORDS and f"{text} ".startswith(f"{before} ")


def _to_utterances(rows: Sequence[tuple[float, float, str]]) -> tuple[Utterance, ...]:
    """Utterances in time order, without empty ones. Lines that scroll (as of YouTube) come once.
    Raises ValueError.
    """
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
