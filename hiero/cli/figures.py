"""Commands that draw: the paper's figures from one's own videos."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App, Parameter

from hiero.cli.console import log
from hiero.cli.options import Out, clock_of
from hiero.errors import InputError

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
    hz
        Rows a second of the features, where it is not the model's own clock.
    """

    annotations: Path
    out: Out
    video: str | None = None
    model: str = "hiero-k400"
    hz: float | None = None

    def case(self, features: Path) -> Case:
        return _read_case(features, self.annotations, self.video, self.model, self.hz)


@app.command
def similarity(features: Path, /, *, drawn: FigureOptions) -> None:
    """How alike the segments of a video are, in raw features and in HiERO's, with boxes around the true steps.

    **Example**: `hiero figure similarity features/tea.npy --annotations steps.json -o tea.svg`

    Parameters
    ----------
    features
        The feature file of one video.
    """
    from hiero.report.figures import save_figure, similarity_figure

    _log_written(save_figure(similarity_figure(drawn.case(features)), drawn.out))


@app.command
def timeline(features: Path, /, *, drawn: FigureOptions) -> None:
    """The true steps of a video, those of raw features, and HiERO's, one under the other.

    **Example**: `hiero figure timeline features/tea.npy --annotations steps.json -o tea`

    Parameters
    ----------
    features
        The feature file of one video.
    """
    from hiero.report.figures import save_figure, timeline_figure

    _log_written(save_figure(timeline_figure(drawn.case(features)), drawn.out))


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
    hz: float | None = None,
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
    hz
        Rows a second of the features, where it is not the model's own clock.
    seed
        Of t-SNE.
    """
    import numpy as np

    from hiero.data.narrations import read_narrations
    from hiero.engine import load
    from hiero.evaluation.own_videos import read_annotations
    from hiero.report.figures import narration_figure, save_figure

    engine = load(model, backbone="default")
    told = [one for one in read_narrations(texts) if one.video == video]
    known = [one for one in read_annotations(annotations) if one.video == video]
    if not told or not known:
        raise InputError(f"{video}: not in {texts if not told else annotations}")
    steps = [(step.start_s, step.end_s, step.text) for step in known[0].steps]
    if features is not None:
        found = _read_case(features, annotations, video, model, hz).video.label([text for _, _, text in steps])
        steps = [(step.start_s, step.end_s, step.label or "") for step in found]
    names = list(dict.fromkeys(text for _, _, text in steps))
    inside = [(one.text, names.index(text)) for one in told for a, b, text in steps if a <= one.time_s < b]
    if not inside:
        raise InputError(f"{video}: none of its {len(told)} narrations falls into a step")
    words = engine.encode([text for text, _ in inside])[1]
    figure = narration_figure(words, [step for _, step in inside], np.asarray(engine.encode(names)[1]), names, seed)
    _log_written(save_figure(figure, out))


def _read_case(features: Path, annotations: Path, video: str | None, model: str, hz: float | None) -> Case:
    from hiero.engine import load
    from hiero.evaluation.own_videos import read_case

    clock = clock_of(hz)
    case, doubt = read_case(load(model, backbone="default"), features, annotations, video, clock)
    if doubt:
        log(doubt)
    return case


def _log_written(paths: list[Path]) -> None:
    for path in paths:
        log(f"{path}: written")
