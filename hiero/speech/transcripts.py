"""Transcripts: what is said in a video, and when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hiero.formats.subtitles import format_srt
from hiero.formats.transcripts import read_utterances
from hiero.types import Utterance


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
        return format_srt((utterance.start_s, utterance.end_s, utterance.text) for utterance in self.utterances)


def read_transcript(path: Path | str) -> Transcript:
    """Read a transcript.

    Args:
        path: .srt, .vtt, or .json as openai-whisper, faster-whisper, whisper.cpp and WhisperX write it.

    Raises:
        InputError: The file is missing, of another kind, too large, or has no utterance with a time.
    """
    return Transcript(read_utterances(Path(path)))


def join_transcripts(parts: Sequence[tuple[Transcript | None, float]]) -> Transcript | None:
    """One transcript of several files that follow each other, each with the time at which it begins."""
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
