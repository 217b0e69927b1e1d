"""hiero head: supervised heads on any features, trained and scored."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cyclopts import App, Parameter

from hiero.cli.console import log
from hiero.cli.display import TrainDisplay
from hiero.cli.options import Device, Out, Settings
from hiero.cli.reports import MAX_MISSING, PRINT_ONLY, ReportOptions
from hiero.errors import InputError
from hiero.storage.files import read_lines

if TYPE_CHECKING:
    from hiero.heads.clips import Clips
    from hiero.types import Clock

MAX_WARNINGS = 10  # about names and lengths of videos, that are shown
SPACING_TOLERANCE = 1e-3  # relative, between the clock of a head and that of the features

app = App(
    name="head",
    help="Supervised heads on any features: VSLNet (grounding), ActionFormer (localization), a linear probe.",
)


@Parameter(name="*")
@dataclass(frozen=True)
class ClipOptions:
    """Features, annotations and the clock.

    Parameters
    ----------
    features
        Folder with a feature file for each video or clip: a backbone's, or what `hiero embed` wrote
        (level 0 is taken).
    annotations
        Ego4D's NLQ or step-grounding file, Goal-Step's, or your own (as for `hiero eval own`); told
        apart by what they hold.
    groups
        goalstep_video_groups.tsv: videos that are joined.
    fps
        Frames a second of the videos; by default what a head learned with, 30 for Ego4D's layouts.
    stride
        Frames from one feature to the next; by default what a head learned with, 16 for Ego4D's
        layouts.
    hz
        Rows a second, instead of fps and stride; by default 1 for annotations of your own.
    """

    features: Path
    annotations: Path
    groups: Path | None = None
    fps: float | None = None
    stride: float | None = None
    hz: float | None = None

    def clock(self, head_clock: Clock | None = None) -> Clock | None:
        """The clock of the options, else the one that a head learned with; None leaves it to the
        layout of the annotations.
        """
        from hiero.types import Clock

        if not all(value is None or value > 0 for value in (self.fps, self.stride, self.hz)):
            raise InputError("--fps, --stride and --hz are positive")
        if self.hz is not None:
            clock = Clock(self.hz, 1.0)
        elif self.fps is not None or self.stride is not None:
            clock = Clock(self.fps or 30.0, self.stride or 16.0)
        else:
            return head_clock
        if head_clock is not None and not math.isclose(
            clock.spacing_s, head_clock.spacing_s, rel_tol=SPACING_TOLERANCE
        ):
            raise InputError(
                f"the head learned from features every {head_clock.spacing_s:g} s; these are every "
                f"{clock.spacing_s:g} s"
            )
        return clock

    def read_clips(
        self,
        annotations: Path | None = None,
        only: Path | None = None,
        head_clock: Clock | None = None,
        exclude: Collection[str] = (),
    ) -> Clips:
        """The annotated clips that have features.

        Args:
            annotations: Instead of `--annotations`.
            only: A file with the names of videos, one a line.
            head_clock: Of the head that is scored.
            exclude: Names of clips to leave out.
        """
        from hiero.heads.clips import read_clips

        names = None if only is None else read_lines(only)
        clips = read_clips(
            self.features, annotations or self.annotations, self.clock(head_clock), self.groups, names, exclude
        )
        for warning in clips.warnings[:MAX_WARNINGS]:
            log(warning)
        if clips.missing:
            log(f"{len(clips.missing)} videos have no features here: {', '.join(clips.missing[:MAX_MISSING])} …")
        return clips


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """The settings of a training run.

    Parameters
    ----------
    preset
        By default that of the head; or a .toml file of your own.
    set_
        Change a setting, such as `--set epochs=50` or `--set vslnet.num_positions=256`; may be
        repeated.
    resume
        Go on with the run in OUT.
    save_every_s
        Seconds between two saves.
    """

    preset: str | None = None
    set_: Settings = None
    resume: bool = False
    device: Device = "auto"
    save_every_s: float = 300.0


RUN_DEFAULTS = RunOptions()


@app.command
def train(
    kind: Literal["vslnet", "actionformer"],
    /,
    *,
    options: ClipOptions,
    out: Out,
    validation: Path | None = None,
    validation_only: Path | None = None,
    only: Path | None = None,
    run: RunOptions = RUN_DEFAULTS,
) -> None:
    """Train a head. Ctrl-C saves and stops, `--resume` goes on; TensorBoard's events lie beside it.
    Several processes: torchrun.

    **Examples**

    `hiero head train vslnet --features egovlp/ --annotations nlq_train.json --validation
    nlq_val.json -o heads/nlq-egovlp`

    `hiero head train actionformer --features enriched/ --annotations goalstep_train.json --set
    batch_size=4 -o heads/steps`

    `hiero head train vslnet --features features/ --annotations steps.json --hz 1 --only train.txt -o heads/mine`

    Parameters
    ----------
    kind
        vslnet: where is the answer to a query? actionformer: which steps are where?
    out
        Folder for the head and the state of the run.
    validation
        Annotations to validate on after each epoch; the best head is kept in OUT/best. What is
        trained on is left out of them.
    validation_only
        A file with the names of videos to validate on, of --validation or of the same annotations.
    only
        A file with the names of videos to train on, one a line; by default all.
    """
    from hiero.heads.training import train_head
    from hiero.training import loop

    clips = options.read_clips(only=only)
    validation_clips = None
    if validation is not None or validation_only is not None:
        validation_clips = options.read_clips(validation, validation_only, exclude={clip.name for clip in clips.clips})
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
    only: Path | None = None,
    name: str = "",
    device: Device = "auto",
    report: ReportOptions = PRINT_ONLY,
) -> None:
    """Score heads: R1 and R5 at IoU 0.3 and 0.5 as Ego4D counts, or mAP at tIoU 0.1 to 0.5. Several
    are seeds, and are averaged.

    **Example**: `hiero head eval heads/nlq-0 heads/nlq-1 --features egovlp/ --annotations nlq_val.json`

    Parameters
    ----------
    heads
        Folders of `hiero head train`.
    only
        A file with the names of videos to score, one a line; by default all.
    name
        What the row is called; by default the name of the first folder.
    """
    from hiero.devices import choose_device
    from hiero.evaluation.results import Report
    from hiero.heads.head import load_trained_head
    from hiero.heads.scoring import score_heads

    if not heads:
        raise InputError("name the folder of a head: hiero head eval HEAD --features FOLDER --annotations FILE")
    loaded = [load_trained_head(head, choose_device(device)) for head in heads]
    clips = options.read_clips(only=only, head_clock=loaded[0].clock)
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
    report: ReportOptions = PRINT_ONLY,
) -> None:
    """Key-step classification with known segments: how well can labels be told apart by a plane? Top-1 and top-5.

    **Example**: `hiero head probe --features egovlp/ --train goalstep_train.json --annotations goalstep_val.json`

    Parameters
    ----------
    train
        Annotations to learn from; by default the same file.
    train_only
        A file with the names of videos to learn from.
    only
        A file with the names of videos to score; by default all that were not learned from.
    name
        What the row is called.
    """
    from hiero.evaluation.results import Report
    from hiero.heads.scoring import evaluate_probe

    if train is None and train_only is None:
        raise InputError("say what to learn from: --train FILE, or --train-only LIST and --only LIST")
    train_clips = options.read_clips(train, train_only)
    clips = options.read_clips(only=only, exclude={clip.name for clip in train_clips.clips})
    table = evaluate_probe(train_clips, clips, name)
    report.output(Report("probe", [table], {"clips": len(clips)}, clips.missing))
