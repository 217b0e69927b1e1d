"""hiero head: train and score supervised heads."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Group, Parameter

from hiero.cli.console import OPTIONS, log
from hiero.cli.evaluation import ReportOptions, log_missing
from hiero.cli.options import Device, Out, Settings, parse_frames, parse_hz
from hiero.cli.training import TrainDisplay
from hiero.devices import choose_device
from hiero.errors import InputError
from hiero.storage.files import read_lines
from hiero.types import Clock

if TYPE_CHECKING:
    from hiero.evaluation.heads.clips import Clips

MAX_WARNINGS = 10  # number of warnings about names and lengths of videos that are shown
SPACING_TOLERANCE = 1e-3  # relative difference between the spacing of a head and of the features

OnlyFile = Annotated[
    Path | None, Parameter(help="Text file with the names of the videos to use, one per line. Defaults to all.")
]
RowName = Annotated[str, Parameter(help="Name of the row in the table. Defaults to the name of the first folder.")]

app = App(name="head", help="Train and score VSLNet, ActionFormer and linear probes.", group_parameters=OPTIONS)


@Parameter(name="*", group=Group("Clip options", sort_key=11))
@dataclass(frozen=True)
class ClipOptions:
    """Features, annotations and the clock."""

    features: Path
    """Folder with a feature file for each video or clip, from a backbone or from `hiero embed` (level 0 is used)."""
    annotations: Path
    """Annotations of Ego4D NLQ, Ego4D step grounding or Goal-Step, or your own (as in `hiero eval own`). The format is
    detected."""
    groups: Path | None = None
    """goalstep_video_groups.tsv, which lists videos to join."""
    fps: float | None = None
    """Frame rate of the videos. Defaults to that of the trained head, or 30 for Ego4D."""
    stride: float | None = None
    """Frames between two feature rows. Defaults to that of the trained head, or 16 for Ego4D."""
    hz: float | None = None
    """Feature rows per second, instead of fps and stride. Defaults to 1 for your own annotations."""

    def clock(self, head_clock: Clock | None = None) -> Clock | None:
        """The clock of the options or of the head; None for the default of the annotation format."""
        clock = parse_hz(self.hz) or parse_frames(self.fps, self.stride)
        if clock is None:
            return head_clock
        spacing_s = clock.spacing_s
        if head_clock is not None and not math.isclose(spacing_s, head_clock.spacing_s, rel_tol=SPACING_TOLERANCE):
            trained = f"{head_clock.spacing_s:g} s"
            raise InputError(f"the head was trained on a row every {trained}, but these rows are every {spacing_s:g} s")
        return clock

    def read_clips(
        self,
        annotations: Path | None = None,
        only: Path | None = None,
        head_clock: Clock | None = None,
        exclude: Collection[str] = (),
        *,
        queries: bool = False,
    ) -> Clips:
        """The annotated clips that have features; `annotations` takes precedence over the option."""
        from hiero.evaluation.heads.clips import read_clips

        names = None if only is None else list(dict.fromkeys(read_lines(only)))
        file, clock = annotations or self.annotations, self.clock(head_clock)
        clips = read_clips(self.features, file, clock, self.groups, names, exclude, queries=queries)
        for warning in clips.warnings[:MAX_WARNINGS]:
            log(warning)
        log_missing(clips.missing)
        return clips


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """Settings of a training run."""

    preset: str | None = None
    """Your own .toml file. Defaults to the preset of the head."""
    set_: Settings = None
    resume: bool = False
    """Continue the run in the output folder."""
    device: Device = "auto"
    save_every_s: float = 300.0
    """Seconds between two saves."""


@app.command
def train(
    kind: Literal["vslnet", "actionformer"],
    /,
    *,
    options: ClipOptions,
    out: Out,
    validation: Path | None = None,
    validation_only: Path | None = None,
    only: OnlyFile = None,
    run: RunOptions = RunOptions(),
) -> None:
    """Train a head. Ctrl-C saves and stops; `--resume` continues.

    **Examples**

    * `hiero head train vslnet --features egovlp/ --annotations nlq_train.json -o heads/nlq-egovlp`
    * `hiero head train actionformer --features enriched/ --annotations goalstep_train.json -o heads/steps`
    * `hiero head train vslnet --features features/ --annotations steps.json --only train.txt -o heads/mine`

    Parameters
    ----------
    kind
        `vslnet` finds the moment that answers a query, `actionformer` finds and classifies steps.
    out
        Output folder for the head, the training state and TensorBoard events.
    validation
        Annotations to validate on after each epoch. Training videos are left out. The best head is
        kept in OUT/best.
    validation_only
        Text file with the names of the videos to validate on, from `--validation` or the same
        annotations.
    """
    from hiero.evaluation.heads.training import train_head
    from hiero.training import loop

    queries = kind == "vslnet"
    clips = options.read_clips(only=only, queries=queries)
    validation_clips = None
    if validation is not None or validation_only is not None:
        exclude = {clip.name for clip in clips.clips}
        validation_clips = options.read_clips(validation, validation_only, exclude=exclude, queries=queries)
    train_head(
        kind,
        clips,
        out,
        validation=validation_clips,
        preset=run.preset,
        settings=run.set_ or [],
        options=loop.RunOptions(run.resume, run.device, run.save_every_s, TrainDisplay()),
    )


@app.command(name="eval")
def evaluate_heads(
    *heads: Path,
    options: ClipOptions,
    only: OnlyFile = None,
    name: RowName = "",
    device: Device = "auto",
    report: ReportOptions = ReportOptions(),
) -> None:
    """Score heads: R1 and R5 at IoU 0.3 and 0.5 as in Ego4D, or mAP at tIoU 0.1 to 0.5.

    The scores of several heads, such as seeds of one training, are averaged.

    **Example**

    * `hiero head eval heads/nlq-0 heads/nlq-1 --features egovlp/ --annotations nlq_val.json`

    Parameters
    ----------
    heads
        Folders created by `hiero head train`.
    """
    from hiero.evaluation.heads.head import load_trained_head
    from hiero.evaluation.heads.scoring import score_heads
    from hiero.evaluation.results import Report

    if not heads:
        raise InputError("name the folder of a head: hiero head eval HEAD --features FOLDER --annotations FILE")
    loaded = [load_trained_head(head, choose_device(device)) for head in heads]
    clips = options.read_clips(only=only, head_clock=loaded[0].clock, queries=loaded[0].takes_queries)
    table = score_heads(loaded, clips, name or heads[0].name)
    settings = {"heads": [str(head) for head in heads], "clips": len(clips)}
    report.output(Report("head", [table], settings, clips.missing))


@app.command
def probe(
    *,
    options: ClipOptions,
    train: Path | None = None,
    train_only: Path | None = None,
    only: Path | None = None,
    name: str = "linear probe",
    report: ReportOptions = ReportOptions(),
) -> None:
    """Train and score a linear probe that classifies known segments (top-1 and top-5).

    **Example**

    * `hiero head probe --features egovlp/ --train goalstep_train.json --annotations goalstep_val.json`

    Parameters
    ----------
    train
        Annotations to train on. Defaults to `--annotations`.
    train_only
        Text file with the names of the videos to train on.
    only
        Text file with the names of the videos to score. Defaults to all except the training videos.
    name
        Name of the row in the table.
    """
    from hiero.evaluation.heads.scoring import evaluate_probe
    from hiero.evaluation.results import Report

    if train is None and train_only is None:
        raise InputError("name the videos to train on: --train FILE, or --train-only LIST and --only LIST")
    train_clips = options.read_clips(train, train_only)
    clips = options.read_clips(only=only, exclude={clip.name for clip in train_clips.clips})
    table = evaluate_probe(train_clips, clips, name)
    report.output(Report("probe", [table], {"clips": len(clips)}, clips.missing))
