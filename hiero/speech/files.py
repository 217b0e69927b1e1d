"""Which transcript a video has: a given one, those beside its files, or one that is recognised now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hiero.data.features import FEATURE_SUFFIXES
from hiero.errors import InputError
from hiero.formats.transcripts import find_transcript
from hiero.sources.addresses import display_addresses
from hiero.sources.source import SourceFile, VideoSource
from hiero.speech.recognition import recognise_speech
from hiero.speech.transcripts import Transcript, join_transcripts, read_transcript
from hiero.storage import weights
from hiero.types import ProgressCallback, VideoFile, no_progress


@dataclass(frozen=True)
class TranscriptSettings:
    """Where a transcript comes from: a given file, files beside the video, or a recogniser."""

    file: Path | None = None
    find: bool = True
    recognise: bool = False
    cache: bool = True


DEFAULT_SETTINGS = TranscriptSettings()


def load_transcript(
    files: Sequence[VideoFile],
    origin: VideoSource | None = None,
    settings: TranscriptSettings = DEFAULT_SETTINGS,
    progress: ProgressCallback = no_progress,
    log: Callable[[str], None] = lambda _: None,
) -> Transcript | None:
    """What is said in a video, on its timeline, also where this is of several files.

    A file that lies beside a video and cannot be used must not cost the answer: that is said, and
    it is passed over.
    """
    transcript: Transcript | None
    if settings.file is not None:
        end_s = files[-1].end_s
        transcript = read_transcript(settings.file).until(end_s)
        if not transcript:
            name = Path(files[0].path).name
            raise InputError(f"{settings.file}: begins after {name} ends ({end_s:.0f} s); is it another video's?")
    else:
        origin = origin or VideoSource.of([part.path for part in files])
        parts = []
        for part, source in zip(files, origin.files, strict=True):
            own = _of_file(source, settings, progress, log)
            parts.append((None if own is None else own.until(part.duration_s), part.start_s))
        transcript = join_transcripts(parts)
    if transcript:
        weights.get("minilm", progress)  # which texts are searched by; later it would be fetched without a word
    return transcript or None


def _of_file(
    file: SourceFile, settings: TranscriptSettings, progress: ProgressCallback, log: Callable[[str], None]
) -> Transcript | None:
    """The transcript of one file."""
    path = file.path
    beside = find_transcript(path) if settings.find else None
    if beside is not None:
        try:
            transcript = read_transcript(beside)
        except InputError as error:
            log(f"{error}; it is not used as a transcript")
        else:
            again = (
                "; to recognise speech all the same add --no-transcript"
                if settings.recognise
                else "; --no-transcript leaves it out"
            )
            log(f"transcript: {display_addresses(str(beside))} ({len(transcript)} utterances){again}")
            return transcript
    if not settings.recognise:
        return None
    if path.suffix.lower() in FEATURE_SUFFIXES:
        log(f"{path.name}: a feature file has no sound; give a transcript: --transcript FILE.srt")
        return None
    recognised = recognise_speech(file.fetch(progress), cache=settings.cache, progress=progress)
    if recognised is None:
        log(f"{path.name}: has no sound track, so there is nothing to recognise")
    else:
        log(f"{path.name}: {len(recognised)} utterances recognised")
    return recognised
