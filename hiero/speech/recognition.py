"""`--speech`: the transcript of a video by the recogniser that is installed, cached by content; an
interrupted run goes on.

The recogniser is faster-whisper, or pocketsphinx, whose small English model comes with its package.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hiero.decoding.audio import SAMPLE_RATE, has_audio, read_audio
from hiero.decoding.decode import probe
from hiero.errors import InputError
from hiero.speech.transcripts import Transcript
from hiero.storage.cache import cache_folder, content_key, file_state, read_cached, store_cached
from hiero.storage.files import read_json, write_text
from hiero.types import ProgressCallback, ProgressEvent, Utterance, no_progress

SPEECH_VERSION = 1  # of the cached files
NO_RECOGNISER = (
    "--speech needs a speech recogniser: pip install 'hiero-video[speech]' (pocketsphinx: small, English, rough), or "
    "pip install faster-whisper (better; fetches its model once). Or give a transcript: --transcript FILE.srt"
)
# of sound that is recognised at once; it is cut in the quietest moment near its end
CHUNK_S, SEARCHED_S, QUIET_S = 60.0, 15.0, 0.3
PAUSE_S, MAX_UTTERANCE_S = 0.6, 12.0  # where pocketsphinx' words are divided into utterances
FRAMES_PER_S = 100  # of pocketsphinx
WHISPER_VARIABLE = "HIERO_WHISPER_MODEL"  # name or folder of Whisper's model
WHISPER_MODEL = "base.en"


def recognise_speech(
    path: Path, *, cache: bool = True, progress: ProgressCallback = no_progress, recogniser: Recogniser | None = None
) -> Transcript | None:
    """What is said in a video."""
    recogniser = recogniser or load_recogniser()
    if not has_audio(path):
        return None
    state, file = file_state(path), None
    if cache:
        file = cache_folder("speech") / f"{content_key(path)}-{recogniser.key}-{SPEECH_VERSION}.json"
        if (known := read_cached(file, _load)) is not None:
            return Transcript(known[0])
    partial = None if file is None else file.with_suffix(".partial")
    known = None if partial is None else read_cached(partial, _load)
    utterances, num_done = (list(known[0]), known[1]) if known is not None else ([], 0)
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
        if partial is not None and file_state(path) == state:
            store_cached(lambda: _save(partial, utterances, num_done))  # noqa: B023  called at once
    transcript = Transcript(tuple(utterances))
    if file is not None and partial is not None and file_state(path) == state:
        store_cached(lambda: _save(file, utterances, num_done), progress)
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    return transcript


def _skip(blocks: Iterator[np.ndarray], num_samples: int) -> Iterator[np.ndarray]:
    """Blocks without their first samples, which an earlier run has recognised."""
    for block in blocks:
        if num_samples < len(block):
            yield block[num_samples:]
        num_samples = max(0, num_samples - len(block))


def _save(file: Path, utterances: list[Utterance], num_done: int) -> None:
    rows = [utterance.to_dict() for utterance in utterances]
    write_text(file, json.dumps({"num_samples": num_done, "utterances": rows}, ensure_ascii=False))


def _load(file: Path) -> tuple[tuple[Utterance, ...], int]:
    """What was recognised, and how many samples that was. Raises where the file is not what `_save` wrote."""
    document = read_json(file)
    num_samples = document["num_samples"]
    if not isinstance(num_samples, int) or num_samples < 0:
        raise InputError(f"{file}: not what was stored")
    return tuple(Utterance.from_dict(row) for row in document["utterances"]), num_samples


class Recogniser(Protocol):
    """What turns sound into words."""

    @property
    def key(self) -> str:
        """Names program and model: what one recognised is not taken for another's."""

    def recognise(self, samples: np.ndarray) -> list[Utterance]:
        """The words in samples (n,) int16 at 16 kHz, with times from their beginning."""


def recogniser_name() -> str | None:
    """The recogniser that is installed, the better one first; None where none is."""
    return next((name for name in ("faster_whisper", "pocketsphinx") if find_spec(name) is not None), None)


def load_recogniser() -> Recogniser:
    """The recogniser that is installed. Raises InputError where none is, or its model cannot be had."""
    name = recogniser_name()
    if name is None:
        raise InputError(NO_RECOGNISER)
    return Whisper() if name == "faster_whisper" else PocketSphinx()


class Whisper:
    """faster-whisper. Its model is fetched when it is first used; a folder with one is taken from
    `HIERO_WHISPER_MODEL`.
    """

    def __init__(self) -> None:
        self.model_name = os.environ.get(WHISPER_VARIABLE) or WHISPER_MODEL
        self._model: Any = None

    @property
    def key(self) -> str:
        safe = "".join(c if c.isalnum() or c in ".-" else "-" for c in self.model_name)
        return f"whisper-{safe[-60:]}"

    def recognise(self, samples: np.ndarray) -> list[Utterance]:
        """See `Recogniser`."""
        if self._model is None:
            from faster_whisper import WhisperModel

            try:
                self._model = WhisperModel(self.model_name, device="auto", compute_type="default")
            except Exception as error:  # of whichever library fetches or reads it
                raise InputError(
                    f"Whisper's model {self.model_name} cannot be had ({error}); give a folder with one: "
                    f"{WHISPER_VARIABLE}=FOLDER"
                ) from error
        segments, _ = self._model.transcribe(samples.astype(np.float32) / 2**15, vad_filter=True)
        length_s = len(samples) / SAMPLE_RATE
        return [
            Utterance(max(0.0, float(s.start)), min(max(float(s.start), float(s.end)), length_s), text)
            for s in segments
            if (text := " ".join(s.text.split())) and float(s.start) < length_s
        ]


class PocketSphinx:
    """pocketsphinx with the English model of its package."""

    key = "pocketsphinx-en-us"

    def __init__(self) -> None:
        self._decoder: Any = None

    def recognise(self, samples: np.ndarray) -> list[Utterance]:
        """See `Recogniser`."""
        from pocketsphinx import Decoder, Segmenter

        if self._decoder is None:
            self._decoder = Decoder(samprate=SAMPLE_RATE, loglevel="FATAL")
        utterances: list[Utterance] = []
        for speech in Segmenter(sample_rate=SAMPLE_RATE).segment(io.BytesIO(samples.astype("<i2").tobytes())):
            self._decoder.start_utt()
            self._decoder.process_raw(speech.pcm, full_utt=True)
            self._decoder.end_utt()
            words = [
                (
                    speech.start_time + s.start_frame / FRAMES_PER_S,
                    speech.start_time + (s.end_frame + 1) / FRAMES_PER_S,
                    s.word,
                )
                for s in self._decoder.seg() or ()
                if not s.word.startswith(("<", "["))  # silence and noises
            ]
            utterances += group_words(words)
        return utterances


def group_words(words: Sequence[tuple[float, float, str]]) -> list[Utterance]:
    """Words with their times as utterances: divided at pauses, and where one becomes too long."""
    groups: list[list[tuple[float, float, str]]] = []
    for word in words:
        is_new = not groups or word[0] - groups[-1][-1][1] > PAUSE_S or word[1] - groups[-1][0][0] > MAX_UTTERANCE_S
        if is_new:
            groups.append([])
        groups[-1].append(word)
    return [
        Utterance(group[0][0], group[-1][1], " ".join(word.split("(")[0] for _, _, word in group)) for group in groups
    ]


def cut_at_pauses(blocks: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Samples in chunks of about a minute, cut where it is quietest, so that no word is in two of them."""
    parts: list[np.ndarray] = []
    size, limit = 0, round(CHUNK_S * SAMPLE_RATE)
    for block in blocks:
        parts.append(block)
        size += len(block)
        while size >= limit:
            samples = np.concatenate(parts)
            cut = quietest(samples[:limit])
            yield samples[:cut]
            parts, size = [samples[cut:]], len(samples) - cut
    if size:
        yield np.concatenate(parts)


def quietest(samples: np.ndarray) -> int:
    """The sample in the middle of the quietest moment near the end of a chunk."""
    width = round(QUIET_S * SAMPLE_RATE)
    first = max(0, len(samples) - round(SEARCHED_S * SAMPLE_RATE))
    energy = np.concatenate([[0.0], np.cumsum(samples[first:].astype(np.float64) ** 2)])
    if len(energy) <= width:
        return len(samples)
    return first + int(np.argmin(energy[width:] - energy[:-width])) + width // 2
