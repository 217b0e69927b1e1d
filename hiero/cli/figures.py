"""hiero figure: the figures of the paper for any video."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Group, Parameter

import hiero
from hiero.cli.console import log
from hiero.cli.options import OPTIONS, FeatureRate, Flag, Out, Repeated, parse_hz
from hiero.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from hiero.evaluation.cases import Case

app = App(name="figure", help="Draw the figures of the paper for any annotated video.", group_parameters=OPTIONS)


@Parameter(name="*", group=Group("Figure options", sort_key=11))
@dataclass(frozen=True)
class FigureOptions:
    """Input and output of a figure.

    Parameters
    ----------
    annotations
        JSON file with timed steps, in the format of `hiero eval own`.
    out
        Output file (.svg or .png). Without a suffix both are written.
    video
        Name of the video in the annotations. Defaults to the name of the feature or narration file.
    model
        Shipped model, model folder, or Hugging Face id.
    """

    annotations: Path
    out: Out
    video: str | None = None
    model: str = "hiero-k400"
    hz: FeatureRate = None

    def load_engine(self) -> hiero.Engine:
        return hiero.load(self.model, backbone="default")

    def read_case(self, features: Path, engine: hiero.Engine | None = None) -> Case:
        """The video with its annotated steps."""
        from hiero.evaluation.own_videos import read_case

        engine = engine or self.load_engine()
        case, warning = read_case(engine, features, self.annotations, self.video, parse_hz(self.hz))
        if warning:
            log(warning)
        return case


FeatureFile = Annotated[Path, Parameter(help="Feature file of the video.")]
Seed = Annotated[int, Parameter(help="Random seed of t-SNE.")]


@app.command
def similarity(features: FeatureFile, /, *, options: FigureOptions, also: Repeated = None) -> None:
    """Draw the similarity of all segments in raw features and in HiERO's, with boxes around the true steps.

    **Examples**

    * `hiero figure similarity features/tea.npy --annotations steps.json -o tea.svg`
    * `hiero figure similarity egovlp/tea.pt --also Omnivore=omnivore/tea.pt --annotations steps.json -o tea`

    Parameters
    ----------
    also
        TITLE=FILE: features of the same video from another backbone, as a further column. Repeatable.
    """
    from hiero.data.features import read_feature_array
    from hiero.report.figures import similarity_figure

    others = {}
    for item in also or []:
        title, equals, file = item.partition("=")
        if not equals:
            raise InputError(f"--also takes TITLE=FILE, got {item}")
        others[title] = read_feature_array(Path(file))
    _save(similarity_figure(options.read_case(features), others), options.out)


@app.command(name="features")
def features_figure(features: FeatureFile, /, *, options: FigureOptions, seed: Seed = 0) -> None:
    """Draw a t-SNE of the segments in raw features and in HiERO's, coloured by their true steps.

    **Example**

    * `hiero figure features features/tea.npy --annotations steps.json -o tea.png`
    """
    from hiero.report.figures import feature_figure

    _save(feature_figure(options.read_case(features), seed), options.out)


@app.command
def timeline(
    features: FeatureFile, /, *, options: FigureOptions, labels: Flag = False, frames: Path | None = None
) -> None:
    """Draw the true steps of a video, the steps from raw features, and HiERO's, below each other.

    **Example**

    * `hiero figure timeline features/tea.npy --annotations steps.json --labels --frames tea.mp4 -o tea`

    Parameters
    ----------
    labels
        Add a row of steps labelled with the annotated texts, without training.
    frames
        The video, to draw the middle frame of each true step.
    """
    from hiero.report.figures import timeline_figure

    case = options.read_case(features)
    pictures = [] if frames is None else read_frames(frames, [(step.start_s + step.end_s) / 2 for step in case.truth])
    _save(timeline_figure(case, labels=labels, frames=pictures), options.out)


@app.command
def narrations(texts: Path, /, *, options: FigureOptions, features: Path | None = None, seed: Seed = 0) -> None:
    """Draw a t-SNE of the narrations of a video, together with the labels of the steps they belong to.

    **Example**

    * `hiero figure narrations narrations.csv --annotations steps.json --video tea -o tea.png`

    Parameters
    ----------
    texts
        Narrations: the csv file of EgoClip, or your own csv or jsonl file (video, time_s, text).
    features
        Feature file of the video. The narrations are then grouped by the steps that HiERO finds,
        labelled with the annotated texts.
    """
    from hiero.report.figures import narrated_steps_figure

    options = replace(options, video=options.video or texts.stem)
    engine = options.load_engine()
    case = None if features is None else options.read_case(features, engine)
    _save(narrated_steps_figure(engine, texts, options.annotations, str(options.video), case, seed), options.out)


def read_frames(video: Path, times_s: Sequence[float], short_side: int = 160) -> list[tuple[float, np.ndarray]]:
    """Small frames (H, W, 3) of a video with their times; times after its end get none."""
    from hiero.decoding.decode import Sampling, read_segments

    wanted, out = sorted(times_s), []
    for segment in read_segments(video, Sampling(num_frames=1, short_side=short_side)):
        while wanted and wanted[0] < segment.end_s:
            out.append((wanted.pop(0), segment.frames[0]))
        if not wanted:
            break
    return out


def _save(figure: Figure, out: Path) -> None:
    from hiero.report.figures import save_figure

    for path in save_figure(figure, out):
        log(f"{path}: written")
