"""hiero figure: the paper's figures from one's own videos."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App, Parameter

from hiero.cli.console import log
from hiero.cli.options import FeatureRate, Flag, Out, Repeated, parse_hz
from hiero.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from hiero.evaluation.cases import Case

app = App(name="figure", help="Draw the paper's figures from any video with annotated steps: SVG, PNG, or both.")


@Parameter(name="*")
@dataclass(frozen=True)
class FigureOptions:
    """What is drawn, and where to.

    Parameters
    ----------
    annotations
        JSON file with timed steps, as `hiero eval own` takes it.
    out
        Where to; .svg or .png, both without a suffix.
    video
        Its name in the annotations; by default the name of the file.
    model
        The shipped model by its name, a model folder or a hub id.
    """

    annotations: Path
    out: Out
    video: str | None = None
    model: str = "hiero-k400"
    hz: FeatureRate = None

    def read_case(self, features: Path) -> Case:
        """The video with its annotated steps."""
        from hiero.engine import load
        from hiero.evaluation.own_videos import read_case

        clock = parse_hz(self.hz)
        case, warning = read_case(load(self.model, backbone="default"), features, self.annotations, self.video, clock)
        if warning:
            log(warning)
        return case


@app.command
def similarity(features: Path, /, *, options: FigureOptions, also: Repeated = None) -> None:
    """How alike the segments of a video are, in raw features and in HiERO's, with boxes around the true steps.

    **Examples**

    `hiero figure similarity features/tea.npy --annotations steps.json -o tea.svg`

    `hiero figure similarity egovlp/tea.pt --also Omnivore=omnivore/tea.pt --annotations steps.json
    --model m/egovlp -o tea`

    Parameters
    ----------
    features
        The feature file of one video.
    also
        TITLE=FILE: features of the same video by another backbone, for a column before the others;
        may be repeated.
    """
    from hiero.data.features import read_feature_array
    from hiero.report.figures import save_figure, similarity_figure

    others = {}
    for item in also or []:
        title, equals, file = item.partition("=")
        if not equals:
            raise InputError(f"--also takes TITLE=FILE, got {item}")
        others[title] = read_feature_array(Path(file))
    _log_written(save_figure(similarity_figure(options.read_case(features), others), options.out))


@app.command(name="features")
def feature_plot(features: Path, /, *, options: FigureOptions, seed: int = 0) -> None:
    """t-SNE of the segments of a video, in raw features and in HiERO's, marked by their true steps.

    **Example**: `hiero figure features features/tea.npy --annotations steps.json -o tea.png`

    Parameters
    ----------
    features
        The feature file of one video.
    seed
        Of t-SNE.
    """
    from hiero.report.figures import feature_figure, save_figure

    _log_written(save_figure(feature_figure(options.read_case(features), seed), options.out))


@app.command
def timeline(features: Path, /, *, options: FigureOptions, labels: Flag = False, frames: Path | None = None) -> None:
    """The true steps of a video, those of raw features, and HiERO's, one under the other.

    **Examples**

    `hiero figure timeline features/tea.npy --annotations steps.json -o tea`

    `hiero figure timeline features/tea.npy --annotations steps.json --labels --frames tea.mp4 -o tea`

    Parameters
    ----------
    features
        The feature file of one video.
    labels
        Add a row of steps that are labelled without training, with the annotated texts as the
        taxonomy.
    frames
        The video itself: the middle frame of each true step is drawn above.
    """
    from hiero.report.figures import save_figure, timeline_figure

    case = options.read_case(features)
    pictures = [] if frames is None else read_frames(frames, [(step.start_s + step.end_s) / 2 for step in case.truth])
    _log_written(save_figure(timeline_figure(case, labels=labels, frames=pictures), options.out))


@Parameter(name="*")
@dataclass(frozen=True)
class NarrationOptions:
    """What narrations are grouped by, and how they are drawn.

    Parameters
    ----------
    features
        The feature file of the video, to group narrations by the steps that are found.
    model
        The shipped model by its name, a model folder or a hub id; its words are compared.
    seed
        Of t-SNE.
    """

    features: Path | None = None
    model: str = "hiero-k400"
    hz: FeatureRate = None
    seed: int = 0


NARRATION_DEFAULTS = NarrationOptions()


@app.command
def narrations(
    texts: Path,
    /,
    *,
    annotations: Path,
    video: str,
    out: Out,
    options: NarrationOptions = NARRATION_DEFAULTS,
) -> None:
    """t-SNE of the narrations of a video around the labels of the steps that they fall into.

    With `--features` the steps are those that HiERO finds, each labelled with the best of the annotated texts.

    **Example**: `hiero figure narrations narrations.csv --annotations steps.json --video tea -o tea.png`

    Parameters
    ----------
    texts
        Narrations: EgoClip's csv, or your own csv or jsonl (video, time_s, text).
    annotations
        JSON file with timed steps, as `hiero eval own` takes it.
    video
        Its name in both files.
    out
        Where to; .svg or .png, both without a suffix.
    """
    from hiero.engine import load
    from hiero.report.figures import narrated_steps_figure, save_figure

    engine = load(options.model, backbone="default")
    clock = None if options.features is None else parse_hz(options.hz)
    figure = narrated_steps_figure(
        engine, texts, annotations, video, features=options.features, clock=clock, seed=options.seed, log=log
    )
    _log_written(save_figure(figure, out))


def read_frames(video: Path, times_s: Sequence[float], short_side: int = 160) -> list[tuple[float, np.ndarray]]:
    """Pictures of a video at some times, small, (time, (H, W, 3)); times after its end get none."""
    from hiero.decoding.decode import Sampling, read_segments

    wanted, out = sorted(times_s), []
    for segment in read_segments(video, Sampling(num_frames=1, short_side=short_side)):
        while wanted and wanted[0] < segment.end_s:
            out.append((wanted.pop(0), segment.frames[0]))
        if not wanted:
            break
    return out


def _log_written(paths: list[Path]) -> None:
    for path in paths:
        log(f"{path}: written")
