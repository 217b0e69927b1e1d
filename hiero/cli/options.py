"""Options that several commands share."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

import hiero
from hiero.cli.console import CollectionBars, log, reading_bars
from hiero.errors import InputError
from hiero.formatting import format_count
from hiero.storage.files import read_lines
from hiero.types import Clock

if TYPE_CHECKING:
    from hiero.media.source import VideoSource

# `negative=""` means that there is no --no-FLAG, or no --empty-LIST.
Flag = Annotated[bool, Parameter(negative="")]
Repeated = Annotated[list[str] | None, Parameter(negative="")]
Out = Annotated[Path, Parameter(alias="-o")]
Sources = Annotated[
    str,
    Parameter(
        help="Videos, feature files (.pt, .npy, .npz, .safetensors), folders, patterns such as '*.mp4', or addresses "
        "(https://, s3:// and others supported by fsspec)."
    ),
]
CorpusAddress = Annotated[str, Parameter(help="Corpus created by `hiero index`: a folder, or an address (s3://…).")]
Labels = Annotated[
    Path | None,
    Parameter(help="Text file with one label per line. Defaults to a bundled list of everyday phrases."),
]
ShowAll = Annotated[bool, Parameter(name="--all", negative="", help="Also show improbable results.")]
OptionalOut = Annotated[Path | None, Parameter(alias="-o")]
NumResults = Annotated[int, Parameter(alias="-n")]
StoredPrecision = Literal["float16", "float32"]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON instead of a table.")]
Device = Annotated[str, Parameter(help="Device: auto (a GPU if there is one), cpu, cuda, cuda:1 or mps.")]
FeatureRate = Annotated[
    float | None, Parameter(help="Rows per second of a feature file. Defaults to the rate of the model.")
]
BatchSize = Annotated[int | None, Parameter(help="Windows per forward pass. Defaults to 1 on a CPU and 16 on a GPU.")]
Stream = Annotated[int, Parameter(help="Index of the video stream in the file.")]
Threads = Annotated[int | None, Parameter(help="Number of CPU threads. Defaults to all cores.")]
Join = Annotated[
    bool | None,
    Parameter(help="Read all files as one video. By default only the chapters of one camera recording are joined."),
]
StepCounts = Annotated[
    str | None,
    Parameter(
        alias="-k",
        help="Number of steps per level, such as 4,8,16. Defaults to three levels chosen by the length of the video.",
    ),
]
Settings = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        negative="",
        help="Change one setting of the preset, such as lr=1e-4 or model.hidden_size=256. Repeatable.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class LevelOptions:
    """Levels and labels of the steps."""

    k: StepCounts = None
    labels: Labels = None

    @property
    def num_steps(self) -> list[int] | None:
        return parse_numbers("-k", self.k)

    def read_labels(self) -> list[str] | None:
        return read_labels(self.labels)


@Parameter(name="*", group=Group("Video options", sort_key=11))
@dataclass(frozen=True)
class VideoOptions:
    """How videos and feature files are processed."""

    model: str = "hiero-k400"
    """Name from `hiero models`, model folder, or Hugging Face id. The name of a backbone gives its features without a
    model; `raw` takes feature files as they are."""
    hz: FeatureRate = None
    stream: Stream = 0
    device: Device = "auto"
    precision: Literal["auto", "float32", "float16"] = "auto"
    """Precision of the backbone. `auto` chooses the fastest one."""
    batch_size: BatchSize = None
    threads: Threads = None
    cache: bool = True
    """Reuse earlier results for the same content."""
    transcript: Path | None = None
    """Transcript of the video (.srt, .vtt, or JSON from Whisper). Defaults to one next to the video, such as
    kitchen.srt for kitchen.mp4."""
    no_transcript: Flag = False
    """Ignore transcripts next to the videos."""
    speech: Flag = False
    """Transcribe videos that have no transcript, with faster-whisper."""
    no_edits: Flag = False
    """Ignore the corrections that people made to the steps of the videos."""
    edits: str | None = None
    """Use the corrections of a server instead: `server:ROOT`, with the folder of `hiero serve --root`."""

    @property
    def server_root(self) -> Path | None:
        """The folder that `--edits` names."""
        kind, _, root = (self.edits or "").partition(":")
        if self.edits is not None and (kind != "server" or not root or self.no_edits):
            raise InputError(f"--edits must be server:ROOT, without --no-edits, got {self.edits}")
        return Path(root) if root else None

    def load_engine(self) -> hiero.Engine:
        """Check the options, then load the engine that they name."""
        self._check_speech()
        _ = self.server_root  # reports a mistake
        set_threads(self.threads)
        parse_hz(self.hz)  # reports mistakes before weights are loaded
        return open_engine(self.model, device=self.device, precision=self.precision, batch_size=self.batch_size)

    def read_video(self, source: VideoSource, engine: hiero.Engine, bars: CollectionBars | None = None) -> hiero.Video:
        """Read a video or feature file with progress bars. The readable part of a damaged video is used."""
        from hiero.engine.transcripts import TranscriptSettings, load_transcript

        lines: list[str] = []
        # Warnings would garble the bars, so they are shown afterwards.
        with (
            warnings.catch_warnings(record=True) as caught,
            reading_bars() if bars is None else bars.reading(len(source.files)) as progress,
        ):
            warnings.simplefilter("always", UserWarning)
            video = engine.read(
                source,
                clock=parse_hz(self.hz),
                cache=self.cache,
                stream=self.stream,
                edits=not self.no_edits and self.edits is None,
                progress=progress,
            )
            if self.server_root is not None:
                _use_server_edits(video, source, self.server_root)
            engine.fetch_text_encoder(progress)
            settings = TranscriptSettings(self.transcript, not self.no_transcript, self.speech, self.cache)
            video.transcript = load_transcript(video.files, video.origin, settings, progress, lines.append)
        for line in [*(f"hiero: {warning.message}" for warning in caught), *lines]:
            log(line)
        return video

    def _check_speech(self) -> None:
        """Report an unreadable transcript, or a missing speech recogniser, before hours of video are read."""
        if self.transcript is not None:
            if self.speech or self.no_transcript:
                other = "--speech" if self.speech else "--no-transcript"
                raise InputError(f"--transcript cannot be combined with {other}")
            hiero.read_transcript(self.transcript)
        if self.speech:
            from hiero.engine.transcripts import load_recogniser

            load_recogniser()

    def check_single_transcript(self, num_videos: int) -> None:
        """Refuse one transcript for several videos."""
        if self.transcript is not None and num_videos != 1:
            raise InputError(
                f"--transcript is for one video, got {num_videos}; put each transcript next to its video, such as "
                "kitchen.srt for kitchen.mp4"
            )


def open_engine(model: str, **settings: Any) -> hiero.Engine:
    """`hiero.load`, with bars for what it downloads."""
    with reading_bars() as progress:
        return hiero.load(model, progress=progress, **settings)


def _use_server_edits(video: hiero.Video, source: VideoSource, root: Path) -> None:
    from hiero.engine.engine import set_edits
    from hiero.serve.edits import read_server_edits

    if (found := read_server_edits(root, source.key())) is not None:
        set_edits(video, found)


def announce_edits(video: hiero.Video, unused_because: str = "") -> None:
    """Tell that the steps of a video were corrected, and whether that counts."""
    if video.edits is not None:
        corrections = format_count(sum(step.origin != "model" for step in video.edits), "correction")
        if unused_because:
            log(f"{corrections} from {video.edits_name} not used, because {unused_because}")
        else:
            log(f"using {corrections} from {video.edits_name}; --no-edits ignores them")


def check_at_least(option: str, value: float | None, least: int = 1) -> None:
    """Refuse a value of an option that is too small."""
    if value is not None and value < least:
        raise InputError(f"{option} must be at least {least}, got {value}")


def parse_hz(hz: float | None) -> Clock | None:
    """`--hz`: the clock of features with that many rows per second."""
    if hz is None:
        return None
    if not hz > 0:
        raise InputError(f"--hz must be positive, got {hz}")
    return Clock(hz, 1.0)


def parse_frames(fps: float | None, stride: float | None) -> Clock | None:
    """`--fps` and `--stride`: the clock of feature rows, by default 30 and 16; None if neither was given."""
    if fps is None and stride is None:
        return None
    return Clock(30.0 if fps is None else fps, 16.0 if stride is None else stride)


def set_threads(num_threads: int | None) -> None:
    """`--threads`: the number of CPU threads of torch."""
    check_at_least("--threads", num_threads)
    if num_threads is not None:
        import torch

        torch.set_num_threads(num_threads)


def parse_names(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_numbers(option: str, text: str | None, least: int = 1) -> list[int] | None:
    """Numbers separated by commas, ascending and without repetitions; None if the option was not given."""
    if text is None:
        return None
    try:
        numbers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise InputError(f"{option} takes numbers separated by commas, such as 1,2,4; got {text!r}") from None
    check_at_least(option, numbers[0], least)
    return numbers


def read_labels(path: Path | None) -> list[str] | None:
    """`--labels`: the lines of a file, without empty ones and repetitions; None for the built-in labels."""
    labels = None if path is None else list(dict.fromkeys(read_lines(path)))
    if labels == []:
        raise InputError(f"{path}: holds no labels; write one label per line")
    return labels
