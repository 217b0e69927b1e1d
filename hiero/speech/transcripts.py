"""Transcripts: the words spoken in a video, and when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hiero.formats.subtitles import format_srt
from hiero.formats.transcripts import read_utterances
from hiero.types import Utterance


@dataclass(frozen=True)
class Transcript:
    """The words spoken in a video, with their times.

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


def join_transcripts(parts: Sequence[tuple[Transcript | None, float]]) -> Transcript | None:
    """Join the transcripts of consecutive files, each given with the time at which the file begins."""
    found = [(transcript, begin_s) for transcript, begin_s in parts if transcript is not None]
    utterances = (Utterance(u.start_s + begin_s, u.end_s + begin_s, u.text) for part, begin_s in found for u in part)
    return Transcript(tuple(utterances)) if found else None
