"""hiero figure: the paper's figures from one's own videos."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App, Parameter

from hiero.cli.console import log
from hiero.cli.options import FeatureRate, Out, parse_hz

if TYPE_CHECKING:
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
def similarity(features: Path, /, *, options: FigureOptions) -> None:
    """How alike the segments of a video are, in raw features and in HiERO's, with boxes around the true steps.

    **Example**: `hiero figure similarity features/tea.npy --annotations steps.json -o tea.svg`

    Parameters
    ----------
    features
        The feature file of one video.
    """
    from hiero.report.figures import save_figure, similarity_figure

    _log_written(save_figure(similarity_figure(options.read_case(features)), options.out))


@app.command
def timeline(features: Path, /, *, options: FigureOptions) -> None:
    """The true steps of a video, those of raw features, and HiERO's, one under the other.

    **Example**: `hiero figure timeline features/tea.npy --annotations steps.json -o tea`

    Parameters
    ----------
    features
        The feature file of one video.
    """
    from hiero.report.figures import save_figure, timeline_figure

    _log_written(save_figure(timeline_figure(options.read_case(features)), options.out))


@app.command
def narrations(
    texts: Path,
    /,
    *,
    annotations: Path,
    video: str,
    out: Out,
    features: Path | None = None,
    model: str = "hiero-k400",
    hz: FeatureRate = None,
    seed: int = 0,
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
    features
        The feature file of the video, to group narrations by the steps that are found.
    model
        The shipped model by its name, a model folder or a hub id; its words are compared.
    seed
        Of t-SNE.
    """
    from hiero.engine import load
    from hiero.report.figures import save_figure
    from hiero.report.narrated_steps import narrated_steps_figure

    engine = load(model, backbone="default")
    clock = None if features is None else parse_hz(hz)
    figure = narrated_steps_figure(engine, texts, annotations, video, features=features, clock=clock, seed=seed, log=log)
    _log_written(save_figure(figure, out))


def _log_written(paths: list[Path]) -> None:
    for path in paths:
        log(f"{path}: written")
