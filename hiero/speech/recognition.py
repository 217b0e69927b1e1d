"""`--speech`: the transcript of a video by the recogniser that is installed, cached by content; an
interrupted run goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from hiero.decoding.audio import SAMPLE_RATE, has_audio, read_audio
from hiero.decoding.decode import probe
from hiero.errors import InputError
from hiero.speech.recognisers import Recogniser, cut_at_pauses, load_recogniser
from hiero.speech.transcripts import Transcript
from hiero.storage.cache import cache_folder, content_key, file_state, read_cached, store_cached
from hiero.storage.files import read_json, write_text
from hiero.types import ProgressCallback, ProgressEvent, Utterance, no_progress

SPEECH_VERSION = 1  # of the cached files


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
