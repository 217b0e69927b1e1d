"""Transcripts: from a given file, a file next to the video, or a speech recogniser.

The recogniser (`--speech`) is faster-whisper. Results are cached by the content of the
video, and an interrupted run is resumed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hiero.errors import InputError
from hiero.formats.subtitles import format_srt
from hiero.formats.transcripts import find_transcript, read_utterances
from hiero.formatting import format_count
from hiero.media.addresses import display_addresses
from hiero.media.audio import SAMPLE_RATE, has_audio, read_audio
from hiero.media.decode import probe
from hiero.media.source import SourceFile, VideoSource
from hiero.storage import weights
from hiero.storage.cache import cache_folder, content_key, file_state, read_cached, store_cached
from hiero.storage.files import FEATURE_SUFFIXES, read_json, write_text
from hiero.types import ProgressCallback, ProgressEvent, Utterance, VideoFile, no_progress

SPEECH_VERSION = 1  # version of the cached files
NO_RECOGNISER = (
    "--speech needs a speech recogniser: pip install 'hiero-video[speech]' (faster-whisper, which downloads its model "
    "once). Or give a transcript: --transcript FILE.srt"
)
CHUNK_S = 60.0  # length of the parts of the sound that are recognised
SEARCHED_S, QUIET_S = 15.0, 0.3  # a part ends in the quietest moment (of QUIET_S) of its last SEARCHED_S
WHISPER_VARIABLE = "HIERO_WHISPER_MODEL"  # name or folder of Whisper's model
WHISPER_MODEL = "base.en"


@dataclass(frozen=True)
class Transcript:
    """The words spoken in a video, with their times: `utterances` in time order.

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
        return tuple(u for u in self.utterances if start_s <= (u.start_s + u.end_s) / 2 < end_s)

    def until(self, end_s: float) -> Transcript:
        """The utterances that begin before `end_s`, and end there at the latest."""
        utterances = (Utterance(u.start_s, min(u.end_s, end_s), u.text) for u in self.utterances if u.start_s < end_s)
        return Transcript(tuple(utterances))

    def to_srt(self) -> str:
        """SubRip subtitles."""
        return format_srt((utterance.start_s, utterance.end_s, utterance.text) for utterance in self.utterances)


def read_transcript(path: Path | str) -> Transcript:
    """Read a transcript.

    Args:
        path: An .srt or .vtt file, or a .json file of openai-whisper, faster-whisper, whisper.cpp or WhisperX.

    Raises:
        InputError: The file is missing, too large, of another kind, or has no utterance with a time.
    """
    return Transcript(read_utterances(Path(path)))


@dataclass(frozen=True)
class TranscriptSettings:
    """Where a transcript comes from: a given file, files next to the video, or a recogniser."""

    file: Path | None = None
    find: bool = True
    recognise: bool = False
    cache: bool = True


DEFAULT_SETTINGS = TranscriptSettings()


def load_transcript(
    files: Sequence[VideoFile],
    origin: VideoSource,
    settings: TranscriptSettings = DEFAULT_SETTINGS,
    progress: ProgressCallback = no_progress,
    log: Callable[[str], None] = lambda _: None,
) -> Transcript | None:
    """The transcript of a video, which may consist of several files. An unusable file next to it is only logged."""
    utterances: list[Utterance] = []
    if settings.file:
        end_s = files[-1].end_s
        utterances += read_transcript(settings.file).until(end_s)
        if not utterances:
            name = Path(files[0].path).name
            raise InputError(f"{settings.file}: begins after {name} ends ({end_s:.0f} s); is this another video?")
    else:
        for part, source in zip(files, origin.files, strict=True):
            own = _load_file_transcript(source, settings, progress, log).until(part.duration_s)
            utterances += [Utterance(u.start_s + part.start_s, u.end_s + part.start_s, u.text) for u in own]
    if not utterances:
        return None
    weights.get("minilm", progress)  # needed to search the transcript; later it would be downloaded silently
    return Transcript(tuple(utterances))


def _load_file_transcript(
    file: SourceFile, settings: TranscriptSettings, progress: ProgressCallback, log: Callable[[str], None]
) -> Transcript:
    """The transcript of one file, without utterances if there is none."""
    path = file.path
    found = find_transcript(path) if settings.find else None
    if found:
        try:
            transcript = read_transcript(found)
        except InputError as error:
            log(f"{error}; it is not used as a transcript")
        else:
            purpose = "recognise speech instead" if settings.recognise else "ignore it"
            name = display_addresses(str(found))
            log(f"transcript: {name} ({format_count(len(transcript), 'utterance')}); to {purpose}, add --no-transcript")
            return transcript
    if not settings.recognise:
        return Transcript(())
    if path.suffix.lower() in FEATURE_SUFFIXES:
        log(f"{path.name}: a feature file has no sound; give a transcript: --transcript FILE.srt")
        return Transcript(())
    recognised = recognise_speech(file.fetch(progress), cache=settings.cache, progress=progress)
    result = "no sound track" if recognised is None else f"{format_count(len(recognised), 'utterance')} recognised"
    log(f"{path.name}: {result}")
    return recognised or Transcript(())


def recognise_speech(
    path: Path, *, cache: bool = True, progress: ProgressCallback = no_progress, recogniser: Recogniser | None = None
) -> Transcript | None:
    """Recognise the speech of a video. Returns None if it has no sound track."""
    recogniser = recogniser or load_recogniser()
    if not has_audio(path):
        return None
    state = file_state(path)
    file = cache_folder("speech") / f"{content_key(path) if cache else ''}-{recogniser.key}-{SPEECH_VERSION}.json"
    unfinished = file.with_suffix(".partial")
    if cache and (known := read_cached(file, _load)) is not None:
        return Transcript(tuple(known[0]))
    utterances, num_done = (read_cached(unfinished, _load) if cache else None) or ([], 0)
    total_s, name = probe(path).duration_s, f"speech of {path.name}"
    progress(ProgressEvent("read", name, 0.0, total_s))
    for chunk in cut_at_pauses(_skip(read_audio(path), num_done)):
        begin_s = num_done / SAMPLE_RATE
        utterances += [
            Utterance(round(begin_s + utterance.start_s, 3), round(begin_s + utterance.end_s, 3), utterance.text)
            for utterance in recogniser.recognise(chunk)
        ]
        num_done += len(chunk)
        progress(ProgressEvent("read", name, num_done / SAMPLE_RATE, total_s))
        if cache and file_state(path) == state:
            store_cached(partial(_save, unfinished, utterances, num_done))
    if cache and file_state(path) == state:
        store_cached(partial(_save, file, utterances, num_done), progress)
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
    return Transcript(tuple(utterances))


def _skip(blocks: Iterator[np.ndarray], num_samples: int) -> Iterator[np.ndarray]:
    """Skip the samples that an earlier run has recognised."""
    for block in blocks:
        if num_samples < len(block):
            yield block[num_samples:]
        num_samples = max(0, num_samples - len(block))


def _save(file: Path, utterances: list[Utterance], num_done: int) -> None:
    rows = [utterance.to_dict() for utterance in utterances]
    write_text(file, json.dumps({"num_samples": num_done, "utterances": rows}, ensure_ascii=False))


def _load(file: Path) -> tuple[list[Utterance], int]:
    """The recognised utterances, and the number of samples that they cover."""
    document = read_json(file)
    num_samples = document["num_samples"]
    if not isinstance(num_samples, int) or num_samples < 0:
        raise InputError(f"{file}: damaged")
    return [Utterance.from_dict(row) for row in document["utterances"]], num_samples


class Recogniser(Protocol):
    """Turns sound into words."""

    key: str  # identifies the program and its model

    def recognise(self, samples: np.ndarray) -> list[Utterance]:
        """Utterances of samples (n,) int16 at 16 kHz, with times from the first sample."""


def load_recogniser() -> Recogniser:
    """The installed recogniser, which loads its model with the first sound. Raises InputError if there is none."""
    if find_spec("faster_whisper") is None:
        raise InputError(NO_RECOGNISER)
    return Whisper()


class Whisper:
    """faster-whisper. `HIERO_WHISPER_MODEL` names its model or a folder; a named one is downloaded on first use."""

    def __init__(self) -> None:
        self.model_name = os.environ.get(WHISPER_VARIABLE) or WHISPER_MODEL
        safe = "".join(c if c.isalnum() or c in ".-" else "-" for c in self.model_name)
        self.key = f"whisper-{safe[-60:]}"

    @cached_property
    def _model(self) -> Any:
        from faster_whisper import WhisperModel

        try:
            return WhisperModel(self.model_name, device="auto", compute_type="default")
        except Exception as error:  # several libraries download and read it
            advice = f"give a folder with one: {WHISPER_VARIABLE}=FOLDER"
            raise InputError(f"Whisper's model {self.model_name} cannot be loaded ({error}); {advice}") from error

    def recognise(self, samples: np.ndarray) -> list[Utterance]:
        segments, _ = self._model.transcribe(samples.astype(np.float32) / 2**15, vad_filter=True)
        length_s = len(samples) / SAMPLE_RATE
        return [
            Utterance(max(0.0, float(s.start)), min(max(float(s.start), float(s.end)), length_s), text)
            for s in segments
            if (text := " ".join(s.text.split())) and float(s.start) < length_s
        ]


def cut_at_pauses(blocks: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Cut samples into parts of about a minute where it is quietest, so that no word is cut."""
    parts: list[np.ndarray] = []
    limit = round(CHUNK_S * SAMPLE_RATE)
    size = 0
    for block in blocks:
        parts.append(block)
        size += len(block)
        while size >= limit:
            samples = np.concatenate(parts)
            cut = quietest_sample(samples[:limit])
            yield samples[:cut]
            parts = [samples[cut:]]
            size -= cut
    if size:
        yield np.concatenate(parts)


def quietest_sample(samples: np.ndarray) -> int:
    """The sample in the middle of the quietest moment near the end of a part."""
    width = round(QUIET_S * SAMPLE_RATE)
    first = max(0, len(samples) - round(SEARCHED_S * SAMPLE_RATE))
    energy = np.concatenate([[0.0], np.cumsum(samples[first:].astype(np.float64) ** 2)])
    if len(energy) <= width:
        return len(samples)
    return first + int(np.argmin(energy[width:] - energy[:-width])) + width // 2
