"""Which transcript a video has: a given one, those beside its files, or one that is recognised now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hiero.data.features import FEATURE_SUFFIXES
from hiero.engine.video import Video
from hiero.errors import InputError
from hiero.formats.transcripts import Transcript, find_transcript, join_transcripts, read_transcript
from hiero.sources.source import SourceFile, VideoSource, display_addresses
from hiero.speech.recognition import recognise_speech
from hiero.storage import weights
from hiero.types import ProgressCallback, no_progress


def load_transcript(
    video: Video,
    *,
    file: Path | None = None,
    find: bool = True,
    recognise: bool = False,
    cache: bool = True,
    progress: ProgressCallback = no_progress,
    log: Callable[[str], None] = lambda _: None,
) -> Transcript | None:
    """What is said in a video, on its timeline, also where this is of several files.

    A file that lies beside a video and cannot be used must not cost the answer: that is said, and
    it is passed over.
    """
    transcript: Transcript | None
    if file is not None:
        transcript = read_transcript(file).until(video.duration_s)
        if not transcript:
            raise InputError(
                f"{file}: begins after {video.path.name} ends ({video.duration_s:.0f} s); is it another video's?"
            )
    else:
        origin = video.origin or VideoSource.of([part.path for part in video.files])
        transcript = join_transcripts(
            [
                (
                    None
                    if (part := _of_file(file, find, recognise, cache, progress, log)) is None
                    else part.until(f.duration_s),
                    f.start_s,
                )
                for f, file in zip(video.files, origin.files, strict=True)
            ]
        )
    if transcript:
        weights.get("minilm", progress)  # which texts are searched by; later it would be fetched without a word
    return transcript or None


def _of_file(
    file: SourceFile, find: bool, recognise: bool, cache: bool, progress: ProgressCallback, log: Callable[[str], None]
) -> Transcript | None:
    """The transcript of one file."""
    path = file.path
    beside = find_transcript(path) if find else None
    if beside is not None:
        try:
            transcript = read_transcript(beside)
        except InputError as error:
            log(f"{error}; it is not used as a transcript")
        else:
            again = (
                "; to recognise speech all the same add --no-transcript"
                if recognise
                else "; --no-transcript leaves it out"
            )
            log(f"transcript: {display_addresses(str(beside))} ({len(transcript)} utterances){again}")
            return transcript
    if not recognise:
        return None
    if path.suffix.lower() in FEATURE_SUFFIXES:
        log(f"{path.name}: a feature file has no sound; give a transcript: --transcript FILE.srt")
        return None
    recognised = recognise_speech(file.fetch(progress), cache=cache, progress=progress)
    if recognised is None:
        log(f"{path.name}: has no sound track, so there is nothing to recognise")
    else:
        log(f"{path.name}: {len(recognised)} utterances recognised")
    return recognised
