"""Options that several commands have, and what their values mean."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from hiero.cli.console import log, reading_bars
from hiero.errors import InputError
from hiero.storage.files import read_lines

if TYPE_CHECKING:
    from hiero.engine import Engine, Video
    from hiero.types import Clock

# Types of options. A flag that has no --no-FLAG, and a list of which the option is repeated, have `negative=""`.
Flag = Annotated[bool, Parameter(negative="")]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON document instead of a table.")]
Device = Annotated[str, Parameter(help="auto, cpu, cuda, cuda:1, mps …")]
FeatureRate = Annotated[float | None, Parameter(help="Rows a second of the features, where it is not the model's own clock.")]
ReportFile = Annotated[Path | None, Parameter(alias="-o", help="Also write the report to this JSON file.")]
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
        A shipped model by its name (hiero-k400, hiero-omnivore-b), a model folder, a hub id, or `raw` for features as they are.
    backbone
        For videos. default: what the model was made for; clip, egovlp, lavila-l: without a model, if `hiero weights get`
        brought them; auto: clip where it is here, else the default. See `hiero backbones`.
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

    def load_engine(self) -> Engine:
        """The engine that these options name."""
        from hiero.engine import load

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
            log(f"backbone: {', '.join(engine.backbones)}, which is here; --backbone default for I3D and the shipped model")
        return engine

    def read_video(self, path: Path, engine: Engine | None = None) -> Video:
        """Read a video or feature file, with bars on standard error; what could be read of a broken one is used.

        Args:
            path: The file.
            engine: Reads it; by default a new one.
        """
        engine = engine or self.load_engine()
        # Lines on standard error would break the bars, so warnings are shown when these are gone.
        with warnings.catch_warnings(record=True) as caught, reading_bars() as progress:
            warnings.simplefilter("always", UserWarning)
            video = engine.read(path, clock=parse_hz(self.hz), cache=self.cache, stream=self.stream, progress=progress)
            engine.fetch_text_encoder(progress)
        for warning in caught:
            log(f"hiero: {warning.message}")
        return video


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


def read_labels(path: Path) -> list[str]:
    """`--labels`: the labels of a file, one a line; empty lines and repetitions are left out."""
    labels = read_lines(path)
    if not labels:
        raise InputError(f"{path}: holds no labels; write one a line")
    return labels
