"""Options that several commands have, and what their values mean."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, overload

from cyclopts import Parameter

from hiero.cli.console import log, reading_bars
from hiero.errors import InputError
from hiero.storage.files import read_lines

if TYPE_CHECKING:
    from hiero.cli.console import CollectionBars
    from hiero.engine import Engine, Video
    from hiero.sources.source import VideoSource
    from hiero.speech.transcripts import Transcript
    from hiero.types import Clock, ProgressCallback

# Types of options. A flag that has no --no-FLAG, and a list of which the option is repeated, have `negative=""`.
Flag = Annotated[bool, Parameter(negative="")]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON document instead of a table.")]
Device = Annotated[str, Parameter(help="auto, cpu, cuda, cuda:1, mps …")]
FeatureRate = Annotated[
    float | None, Parameter(help="Rows a second of the features, where it is not the model's own clock.")
]
Join = Annotated[
    bool | None,
    Parameter(
        help="Read all files as one video. By default only the chapters of one recording, where a camera's names "
        "say so (GX010012.MP4, GX020012.MP4 …); --no-join reads each file by itself."
    ),
]
NumResults = Annotated[int, Parameter(alias="-n")]
OptionalOut = Annotated[Path | None, Parameter(alias="-o")]
Out = Annotated[Path, Parameter(alias="-o")]
Repeated = Annotated[list[str] | None, Parameter(negative="")]
Settings = Annotated[list[str] | None, Parameter(name="--set", negative="")]
StepCounts = Annotated[str | None, Parameter(alias="-k")]
StoredPrecision = Literal["float16", "float32"]


@Parameter(name="*")
@dataclass(frozen=True)
class VideoOptions:
    """Options that all commands for a video share.

    Parameters
    ----------
    model
        A shipped model by its name (hiero-k400, hiero-omnivore-b), a model folder, a hub id, or
        `raw` for features as they are.
    backbone
        For videos. default: what the model was made for; clip, egovlp, lavila-l: without a model,
        if `hiero weights get` brought them; auto: clip where it is here, else the default. See
        `hiero backbones`.
    hz
        For feature files: rows a second, where it is not the model's own clock.
    stream
        Which video stream of the file.
    device
        auto, cpu, cuda, mps …
    precision
        Of the backbones; auto measures what is faster here.
    batch_size
        Windows that go through the backbones together; by default 1 on a CPU, 16 on a GPU.
    threads
        CPU threads; fewer than there are cores when other work runs beside.
    cache
        Keep and use what was computed before, by the content of the file.
    transcript
        What is said in the video: .srt, .vtt, or Whisper's .json. Without it one that lies beside
        the video is used: kitchen.srt or kitchen.en.vtt for kitchen.mp4.
    no_transcript
        Do not use a transcript that lies beside the video.
    speech
        Recognise what is said, where the video has no transcript: by faster-whisper or
        pocketsphinx, whichever is installed.
    """

    model: str = "hiero-k400"
    backbone: str = "auto"
    hz: float | None = None
    stream: int = 0
    device: str = "auto"
    precision: Literal["auto", "float32", "float16"] = "auto"
    batch_size: int | None = None
    threads: int | None = None
    cache: bool = True
    transcript: Path | None = None
    no_transcript: Flag = False
    speech: Flag = False

    def load_engine(self) -> Engine:
        """The engine that these options name."""
        from hiero.engine import load

        self._check_speech()
        if self.threads is not None:
            set_threads(self.threads)
        parse_hz(self.hz)  # a mistake is reported before weights are loaded
        engine = load(
            self.model,
            backbone=self.backbone,
            device=self.device,
            precision=self.precision,
            batch_size=self.batch_size,
        )
        if self.backbone == "auto" and engine.folder is None and engine.backbone.has_text:
            log(
                f"backbone: {', '.join(engine.backbones)}, which is here; --backbone default for I3D and the "
                "shipped model"
            )
        return engine

    def read_video(
        self, source: VideoSource, engine: Engine | None = None, bars: CollectionBars | None = None
    ) -> Video:
        """Read a video or feature file, with bars on standard error; what could be read of a broken one is used.

        Args:
            source: The file, or several that are one video.
            engine: Reads it; by default a new one.
            bars: Of a command over several videos.
        """
        from hiero.engine import engine_for

        engine = engine_for(engine or self.load_engine(), source)
        num_files = len(source.files)
        # Lines on standard error would break the bars, so warnings are shown when these are gone.
        with (
            warnings.catch_warnings(record=True) as caught,
            reading_bars() if bars is None else bars.reading(num_files) as progress,
        ):
            warnings.simplefilter("always", UserWarning)
            video = engine.read(
                source, clock=parse_hz(self.hz), cache=self.cache, stream=self.stream, progress=progress
            )
            engine.fetch_text_encoder(progress)
            lines: list[str] = []
            video.transcript = self._load_transcript(video, progress, lines.append)
        for warning in caught:
            log(f"hiero: {warning.message}")
        for line in lines:
            log(line)
        return video

    def _load_transcript(
        self, video: Video, progress: ProgressCallback, log: Callable[[str], None]
    ) -> Transcript | None:
        """`--transcript`, `--no-transcript`, `--speech`."""
        from hiero.speech.recognition import TranscriptSettings, load_transcript

        settings = TranscriptSettings(self.transcript, not self.no_transcript, self.speech, self.cache)
        return load_transcript(video.files, video.origin, settings, progress, log)

    def _check_speech(self) -> None:
        """Report what is wrong with a transcript, or that speech cannot be recognised, before hours
        of video are read.
        """
        if self.transcript is not None:
            from hiero.speech.transcripts import read_transcript

            if self.speech or self.no_transcript:
                raise InputError(
                    f"--transcript and {'--speech' if self.speech else '--no-transcript'} exclude each other"
                )
            read_transcript(self.transcript)
        if self.speech:
            from hiero.speech.recognition import NO_RECOGNISER, recogniser_name

            if recogniser_name() is None:
                raise InputError(NO_RECOGNISER)

    def check_single_transcript(self, num_videos: int) -> None:
        """Refuse one transcript for several videos.

        Args:
            num_videos: That a command reads.
        """
        if self.transcript is not None and num_videos != 1:
            raise InputError(
                f"--transcript is of one video, not of {num_videos}; theirs are found beside them (kitchen.srt "
                "for kitchen.mp4)"
            )


DEFAULTS = VideoOptions()


def parse_hz(hz: float | None) -> Clock | None:
    """`--hz`: the clock of features with that many rows a second; None where it was not given."""
    from hiero.types import Clock

    if hz is None:
        return None
    if not hz > 0:
        raise InputError(f"--hz must be positive, got {hz}")
    return Clock(hz, 1.0)


def set_threads(num_threads: int) -> None:
    """`--threads`: CPU threads of torch."""
    if num_threads < 1:
        raise InputError(f"--threads is at least 1, got {num_threads}")
    import torch

    torch.set_num_threads(num_threads)


def parse_names(text: str) -> list[str]:
    """Names that are separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_step_counts(text: str | None) -> list[int] | None:
    """`-k 4,8,16`: numbers of steps, ascending; None where it was not given."""
    if text is None:
        return None
    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise InputError(f"-k takes numbers separated by commas, such as 4,8,16; got {text!r}") from None
    if counts[0] < 1:
        raise InputError(f"-k takes numbers from 1 on, got {counts[0]}")
    return counts


@overload
def read_labels(path: Path) -> list[str]: ...
@overload
def read_labels(path: None) -> None: ...
def read_labels(path: Path | None) -> list[str] | None:
    """`--labels`: the labels of a file, one a line; empty lines and repetitions are left out."""
    if path is None:
        return None
    labels = read_lines(path)
    if not labels:
        raise InputError(f"{path}: holds no labels; write one a line")
    return labels
