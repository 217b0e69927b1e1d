"""The figures of the paper for any annotated video: similarity, timelines of steps, and t-SNE.

    python -m examples.figures similarity features/tea.npy --annotations steps.json -o tea.svg
    python -m examples.figures timeline features/tea.npy --annotations steps.json --labels -o tea
    python -m examples.figures features features/tea.npy --annotations steps.json -o tea.png
    python -m examples.figures narrations narrations.csv --annotations steps.json --video tea -o tea.png

`annotations` is a JSON file with timed steps, in the format of `hiero eval own`, or an official file:
goalstep_train.json or goalstep_val.json of Goal-Step, or the csv file of a video of EgoProceL. Narrations may be
egoclip.csv. Steps differ in numbers and hatching as well as in colour, so that they can be told apart in grey.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import App, Parameter
from scipy.optimize import linear_sum_assignment

from hiero.engine import Engine, Video, load
from hiero.errors import InputError
from hiero.evaluation.cases import Case, length_warning
from hiero.evaluation.egoprocel_data import read_key_steps
from hiero.evaluation.goalstep import read_steps
from hiero.features.files import read_feature_array
from hiero.formats.annotations import AnnotatedVideo, read_annotations
from hiero.formatting import format_time
from hiero.media.decode import Sampling, read_segments
from hiero.steps import clustering
from hiero.steps.clustering import cluster
from hiero.steps.segmentation import centre_and_normalise, label_runs
from hiero.storage.files import atomic_path, read_json
from hiero.training.narrations import read_narrations
from hiero.types import AnnotatedStep, Clock

try:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch, Rectangle
    from matplotlib.ticker import MaxNLocator
except ImportError:
    raise InputError("figures need matplotlib; run: pip install 'hiero-video[figures]'") from None

COLOURS = ("#1f4e79", "#f2a65a", "#7fb069", "#b23a48", "#a8c5da", "#6a4c93", "#f7d774", "#3d5a45", "#d9a5b3", "#8d99ae")
HATCHES = ("", "////", "....")  # 3 and 10 colours have no common divisor: 30 different styles
MARKERS = "osDv^<>pPX"
MAX_FRAME_SHARE = 0.12  # maximum width of a frame, relative to the figure
MAX_NODES = 600  # maximum size of a drawn matrix; longer videos are averaged
MIN_NUMBERED_SHARE = 0.02  # minimum length of a step with a number, relative to the video
PERPLEXITY = 30.0  # of t-SNE; reduced for few points
MIN_NARRATIONS = 3
LETTERS_PER_INCH = 6.2  # letters in a column of the legend per inch of the figure
NUMBER_BOX = {"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.85}
RESOLUTION = 150  # dots per inch of .png files


def read_any_annotations(path: Path) -> list[AnnotatedVideo]:
    """The annotated videos of a file in any of the layouts above."""
    if path.suffix == ".csv":
        steps = [AnnotatedStep(start_s, end_s, f"key-step {number}") for start_s, end_s, number in read_key_steps(path)]
        return [AnnotatedVideo(path.stem, tuple(steps))]
    content = read_json(path)
    is_official = isinstance(content, dict) and isinstance(content.get("videos"), list)
    return read_steps(path) if is_official else read_annotations(path)


def similarity_figure(case: Case, others: Mapping[str, np.ndarray] | None = None) -> Figure:
    """Fig. 2: similarity of all segments in raw features and in HiERO's, with boxes around the true steps."""
    numbers = _number_steps(case)
    columns = {**(others or {}), "raw features": case.features, "HiERO": case.video.nodes}
    figure, axes = _make_figure(1, len(columns), (5.5 * len(columns), 6.2))
    end_s = float(case.to_seconds(np.array(len(case.video.nodes))))
    start_s = case.video.clock.start_s
    for panel, (title, x) in zip(axes, columns.items(), strict=True):
        matrix = _similarity(x)
        panel.imshow(
            matrix, cmap="gray", vmin=-0.3, vmax=1, extent=(start_s, end_s, end_s, start_s), interpolation="nearest"
        )
        for step in case.truth:
            colour = _colour(numbers[step.text])
            side = step.end_s - step.start_s
            # a white rim makes the box visible on dark and light areas
            for edge, width in (("white", 2.6), (colour, 1.4)):
                corner = step.start_s, step.start_s
                panel.add_patch(Rectangle(corner, side, side, fill=False, edgecolor=edge, linewidth=width))
            number = f" {numbers[step.text]}"
            panel.text(step.end_s, step.start_s, number, va="top", fontsize=7, color="black", bbox=NUMBER_BOX)
        panel.set_title(title)
        _format_time_axes(panel.xaxis, panel.yaxis)
    _add_legend(figure, numbers)
    return figure


def _similarity(x: np.ndarray) -> np.ndarray:
    """Cosine similarity of the centred nodes (T, D), averaged to at most MAX_NODES rows."""
    edges = np.linspace(0, len(x), min(len(x), MAX_NODES) + 1).round().astype(int)
    y = centre_and_normalise(np.add.reduceat(x, edges[:-1], axis=0))
    return y @ y.T


def timeline_figure(case: Case, labels: bool = False, frames: Sequence[tuple[float, np.ndarray]] = ()) -> Figure:
    """Fig. 4: true steps, steps from raw features, and HiERO's steps; matched steps have the same number."""
    numbers = _number_steps(case)
    truth = case.labels()
    num = len(set(truth[truth > 0].tolist()))
    contiguous = clustering.contiguous(
        case.video.sight.segmentation_features, num, length_prior=case.video.sight.length_prior
    )
    rows = {
        "truth": truth,
        "raw, spectral": _match_to_truth(cluster(case.features, num, "spectral"), truth),
        "HiERO, spectral": _match_to_truth(cluster(case.video.nodes, num, "spectral"), truth),
        "HiERO": _match_to_truth(contiguous, truth),
    }
    if labels:
        labelled = np.zeros(len(truth), dtype=int)
        for start_s, end_s, label in _best_labels(case.video, list(numbers)):
            start, end = case.to_nodes((start_s, end_s))
            labelled[start:end] = numbers[label]
        rows["HiERO, labels"] = labelled
    height = 1.0 + 0.55 * len(rows) + 0.17 * len(numbers)
    figure, axes = _make_figure(
        1 + bool(frames), 1, (11, height + bool(frames)), [1.0, height - 0.5] if frames else None
    )
    if frames:
        _draw_frames(axes[0], frames, case.video.clock.start_s, case.video.duration_s)
    panel = axes[-1]
    for row, row_labels in enumerate(rows.values()):
        for start, end in label_runs(row_labels):
            number = int(row_labels[start])
            start_s, end_s = case.to_seconds(np.array([start, end])).tolist()
            style = {"facecolor": "white", "edgecolor": "#999999"} if number == 0 else _step_style(number)
            panel.add_patch(Rectangle((start_s, row + 0.1), end_s - start_s, 0.8, linewidth=0.4, **style))
            if number and end_s - start_s > MIN_NUMBERED_SHARE * case.video.duration_s:
                middle_s = (start_s + end_s) / 2
                panel.text(middle_s, row + 0.5, str(number), ha="center", va="center", fontsize=7, bbox=NUMBER_BOX)
    panel.set(xlim=(case.video.clock.start_s, case.video.duration_s), ylim=(len(rows), 0))
    panel.set_yticks(np.arange(len(rows)) + 0.5, list(rows))
    panel.tick_params(axis="y", length=0)
    _format_time_axes(panel.xaxis)
    panel.spines[["top", "right", "left"]].set_visible(False)
    _add_legend(figure, numbers)
    return figure


def _draw_frames(panel: Any, frames: Sequence[tuple[float, np.ndarray]], start_s: float, end_s: float) -> None:
    """Draw frames side by side in time order, each with a line to its time on the axis below."""
    width = min(1 / len(frames), MAX_FRAME_SHARE) * (end_s - start_s)
    for i, (time_s, picture) in enumerate(sorted(frames, key=lambda frame: frame[0])):
        left = start_s + i * width
        panel.imshow(picture, extent=(left + 0.03 * width, left + 0.97 * width, 0.3, 1.0), aspect="auto")
        panel.plot([left + width / 2, time_s], [0.3, 0.0], color="#777777", linewidth=0.7)
    panel.set(xlim=(start_s, end_s), ylim=(0, 1))
    panel.axis("off")


def feature_figure(case: Case, seed: int = 0) -> Figure:
    """t-SNE of the segments in raw features and in HiERO's; markers are true steps, grey is background."""
    numbers, truth = _number_steps(case), case.labels()
    every = max(1, -(-len(truth) // MAX_NODES))
    figure, axes = _make_figure(1, 2, (11, 5.6 + 0.12 * len(numbers)))
    for panel, (title, x) in zip(axes, (("raw features", case.features), ("HiERO", case.video.nodes)), strict=True):
        points, of_points = _tsne(x[::every], seed), truth[::every]
        panel.scatter(*points[of_points == 0].T, s=10, c="#cccccc", marker=".")
        for number in numbers.values():
            _draw_points(panel, points[of_points == number], number)
        panel.set_title(title)
        panel.set(xticks=[], yticks=[])
    _add_legend(figure, numbers, has_markers=True)
    return figure


def _tsne(x: np.ndarray, seed: int) -> np.ndarray:
    """Map vectors (N, D) to points (N, 2)."""
    try:
        from sklearn.manifold import TSNE  # type: ignore[import-untyped]
    except ImportError:
        raise InputError("t-SNE needs scikit-learn; run: pip install 'hiero-video[figures]'") from None
    perplexity = min(PERPLEXITY, (len(x) - 1) / 3)
    return np.asarray(TSNE(perplexity=perplexity, random_state=seed, init="pca", metric="cosine").fit_transform(x))


def narration_figure(
    vectors: np.ndarray, steps: Sequence[int], labels: np.ndarray, names: Sequence[str], seed: int = 0
) -> Figure:
    """t-SNE of narrations (small markers) and of the labels of their steps (stars)."""
    if len(vectors) < MIN_NARRATIONS:
        raise InputError(f"t-SNE needs a few narrations inside steps, found {len(vectors)}")
    points = _tsne(np.concatenate([vectors, labels]), seed)
    narration_points, label_points = points[: len(vectors)], points[len(vectors) :]
    figure, axes = _make_figure(1, 1, (8, 6.5 + 0.12 * len(names)))
    panel, owners = axes[0], np.asarray(steps)
    for i in range(len(names)):
        _draw_points(panel, narration_points[owners == i], i + 1)
        panel.scatter(
            *label_points[i], s=190, c=_colour(i + 1), marker="*", edgecolors="black", linewidths=0.8, zorder=3
        )
        offset = {"textcoords": "offset points", "xytext": (6, 5)}
        panel.annotate(str(i + 1), tuple(label_points[i]), **offset, fontsize=9, weight="bold", zorder=4)
    panel.set(xticks=[], yticks=[])
    _add_legend(figure, {name: i for i, name in enumerate(names, start=1)}, has_markers=True)
    return figure


def narrated_steps_figure(
    engine: Engine, narrations: Path, annotations: Path, video: str, case: Case | None = None, seed: int = 0
) -> Figure:
    """t-SNE of the narrations of a video and of the labels of the steps they fall into.

    The steps are the annotated ones or, if `case` is given, those that HiERO finds.
    """
    spoken = [narration for narration in read_narrations(narrations) if narration.video == video]
    annotated = [entry for entry in read_any_annotations(annotations) if entry.video == video]
    if not spoken or not annotated:
        raise InputError(f"{video}: not in {narrations if not spoken else annotations}")
    steps = [(step.start_s, step.end_s, step.text) for step in annotated[0].steps]
    if case is not None:
        steps = _best_labels(case.video, list(dict.fromkeys(text for _, _, text in steps)))
    names = list(dict.fromkeys(text for _, _, text in steps))
    # Steps may overlap; a narration then counts for each of them.
    inside = [
        (narration.text, names.index(name))
        for narration in spoken
        for start_s, end_s, name in steps
        if start_s <= narration.time_s < end_s
    ]
    if not inside:
        raise InputError(f"{video}: none of its {len(spoken)} narrations falls into a step")
    text_vectors, name_vectors = engine.encode([text for text, _ in inside])[1], np.asarray(engine.encode(names)[1])
    return narration_figure(text_vectors, [step for _, step in inside], name_vectors, names, seed)


def save_figure(figure: Figure, path: Path) -> list[Path]:
    """Write an .svg or .png file, or both if the path has no suffix; returns the files."""
    if path.suffix not in (".svg", ".png", ""):
        raise InputError(f"{path}: must end in .svg or .png, or have no suffix")
    files = [path] if path.suffix else [path.with_name(path.name + suffix) for suffix in (".svg", ".png")]
    for file in files:
        metadata = {"Date": None} if file.suffix == ".svg" else None  # keeps the file reproducible
        with atomic_path(file) as temporary:
            figure.savefig(temporary, format=file.suffix[1:], dpi=RESOLUTION, metadata=metadata)
    return files


def _make_figure(
    num_rows: int, num_columns: int, size: tuple[float, float], heights: Sequence[float] | None = None
) -> tuple[Figure, list[Any]]:
    """A figure with a size in inches and its panels; `heights` are the relative heights of the rows."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(num_rows, num_columns, squeeze=False, height_ratios=heights)
    return figure, list(axes.flatten())


def _colour(number: int) -> str:
    return COLOURS[(number - 1) % len(COLOURS)]


def _marker(number: int) -> str:
    return MARKERS[(number - 1) % len(MARKERS)]


def _step_style(number: int) -> dict[str, Any]:
    return {"facecolor": _colour(number), "hatch": HATCHES[(number - 1) % len(HATCHES)], "edgecolor": "black"}


def _draw_points(panel: Any, points: np.ndarray, number: int) -> None:
    panel.scatter(*points.T, s=22, c=_colour(number), marker=_marker(number), edgecolors="black", linewidths=0.3)


def _add_legend(figure: Figure, numbers: dict[str, int], has_markers: bool = False) -> None:
    handles: list[Any] = [Patch(**_step_style(number)) for number in numbers.values()]
    if has_markers:
        handles = [
            Line2D([], [], color="none", marker=_marker(n), markerfacecolor=_colour(n), markeredgecolor="black")
            for n in numbers.values()
        ]
    width = int(LETTERS_PER_INCH * figure.get_figwidth())
    texts = [f"{n} {text if len(text) <= width else text[: width - 1] + '…'}" for text, n in numbers.items()]
    figure.legend(
        handles, texts, loc="outside lower center", ncols=2 if len(texts) > 3 else 1, fontsize=7, frameon=False
    )


def _format_time_axes(*axes: Any) -> None:
    """Use a few ticks in minutes and seconds."""
    for axis in axes:
        axis.set_major_locator(MaxNLocator(6, integer=True))
        axis.set_major_formatter(lambda value, _: format_time(max(0.0, value)))
        axis.set_tick_params(labelsize=7)


def _number_steps(case: Case) -> dict[str, int]:
    """Number the texts of the true steps from 1 in the order of time, and sort the truth of the case."""
    ordered = sorted(case.truth, key=lambda step: step.start_s)
    if not ordered:
        raise InputError("the video has no annotated steps to draw")
    case.truth = ordered  # `case.labels()` numbers steps in the order of the truth
    texts = dict.fromkeys(step.text for step in ordered)
    return {text: i for i, text in enumerate(texts, start=1)}


def _best_labels(video: Video, labels: list[str]) -> list[tuple[float, float, str]]:
    """The finest steps, each with its best label, however probable it is."""
    finest = video.steps(labels=[]).levels[-1]
    best = video.likely_labels(finest, labels, num=1)
    return [(step.start_s, step.end_s, label) for step, ((label, _),) in zip(finest, best, strict=True)]


def _match_to_truth(labels: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Replace labels (T,) by the number of the true step that their cluster is matched with, or 0."""
    overlap = np.zeros((int(labels.max()) + 1, int(truth.max()) + 1))
    np.add.at(overlap, (labels, truth), 1)
    numbers = np.zeros(len(overlap), dtype=int)
    clusters, steps = linear_sum_assignment(-overlap[:, 1:])
    numbers[clusters] = np.where(overlap[clusters, steps + 1] > 0, steps + 1, 0)
    return numbers[labels]


app = App(name="figures", help="Draw the figures of the paper for any annotated video.")


@Parameter(name="*")
@dataclass(frozen=True)
class FigureOptions:
    """What is drawn, and where it is written.

    Parameters
    ----------
    annotations
        JSON file with timed steps.
    out
        Output file (.svg or .png). Without a suffix both are written.
    video
        Name of the video in the annotations. Defaults to the name of the input file.
    model
        Shipped model, model folder, or Hugging Face id.
    hz
        Rows per second of the feature file.
    """

    annotations: Path
    out: Annotated[Path, Parameter(name=["--out", "-o"])]
    video: str | None = None
    model: str = "hiero-k400"
    hz: float | None = None

    def load_engine(self) -> Engine:
        return load(self.model)

    def read_case(self, features: Path) -> Case:
        """The features of a video with its annotated steps."""
        name = self.video or features.stem
        annotated = {annotation.video: annotation for annotation in read_any_annotations(self.annotations)}
        if name not in annotated:
            names = ", ".join(sorted(annotated)[:3])
            raise InputError(f"{self.annotations}: no video {name}; choose one with --video ({names} …)")
        clock = None if self.hz is None else Clock(self.hz, 1.0)
        video = self.load_engine().read(features, clock=clock, edits=False)
        if warning := length_warning(annotated[name], video.duration_s):
            print(warning)
        return Case(video, read_feature_array(features), list(annotated[name].steps), annotated[name].task)

    def save(self, figure: Figure) -> None:
        for path in save_figure(figure, self.out):
            print(f"{path}: written")


@app.command
def similarity(features: Path, /, *, options: FigureOptions, also: list[str] | None = None) -> None:
    """Similarity of all segments; `--also TITLE=FILE` adds features of another backbone as a column."""
    others = dict(item.split("=", 1) for item in also or [])
    arrays = {title: read_feature_array(Path(file)) for title, file in others.items()}
    options.save(similarity_figure(options.read_case(features), arrays))


@app.command(name="features")
def features_command(features: Path, /, *, options: FigureOptions, seed: int = 0) -> None:
    """A t-SNE of the segments, coloured by their true steps."""
    options.save(feature_figure(options.read_case(features), seed))


@app.command
def timeline(features: Path, /, *, options: FigureOptions, labels: bool = False, frames: Path | None = None) -> None:
    """True steps, steps from raw features, and HiERO's; `--frames VIDEO` draws the middle of each true step."""
    case = options.read_case(features)
    pictures = [] if frames is None else read_frames(frames, [(step.start_s + step.end_s) / 2 for step in case.truth])
    options.save(timeline_figure(case, labels=labels, frames=pictures))


@app.command
def narrations(texts: Path, /, *, options: FigureOptions, features: Path | None = None, seed: int = 0) -> None:
    """A t-SNE of the narrations of a video together with the labels of their steps."""
    options = replace(options, video=options.video or texts.stem)
    case = None if features is None else options.read_case(features)
    engine = options.load_engine()
    options.save(narrated_steps_figure(engine, texts, options.annotations, str(options.video), case, seed))


def read_frames(video: Path, times_s: Sequence[float], short_side: int = 160) -> list[tuple[float, np.ndarray]]:
    """Small frames (H, W, 3) of a video with their times; times after its end get none."""
    wanted, out = sorted(times_s), []
    for segment in read_segments(video, Sampling(num_frames=1, short_side=short_side)):
        while wanted and wanted[0] < segment.end_s:
            out.append((wanted.pop(0), segment.frames[0]))
        if not wanted:
            break
    return out


if __name__ == "__main__":
    app()
