"""The paper's figures from any data: similarity matrices, timelines of steps, and how narrations lie around steps.

Readable in print and in grey: steps are told apart by numbers and hatching as well as by colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from hiero.errors import InputError
from hiero.evaluation.cases import Case
from hiero.steps.clustering import cluster
from hiero.steps.segmentation import label_runs, similarity_matrix
from hiero.storage.files import atomic_path
from hiero.types import format_time

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#1f4e79", "#f2a65a", "#7fb069", "#b23a48", "#a8c5da", "#6a4c93", "#f7d774", "#3d5a45", "#d9a5b3", "#8d99ae")
HATCHES = ("", "////", "....")  # 3 and 10 make 30 looks
MARKERS = "osDv^<>pPX"
MOST_NODES = 600  # of a matrix that is drawn; longer videos are averaged


def similarity_figure(case: Case) -> Figure:
    """Fig. 2: how alike the segments of a video are, in raw features and in HiERO's; boxes are the true steps."""
    numbers = _numbers(case)
    figure, axes = _figure(1, 2, (11, 6.2))
    end_s = float(case.to_seconds(np.array(len(case.video.nodes))))
    start_s = case.video.clock.start_s
    for panel, (title, x) in zip(axes, (("raw features", case.features), ("HiERO", case.video.nodes)), strict=True):
        matrix = similarity_matrix(x, MOST_NODES)
        panel.imshow(matrix, cmap="gray", vmin=-0.3, vmax=1, extent=(start_s, end_s, end_s, start_s), interpolation="nearest")
        for step in case.truth:
            colour = COLOURS[(numbers[step.text] - 1) % len(COLOURS)]
            side = step.end_s - step.start_s
            for line, width in (("white", 2.6), (colour, 1.4)):  # seen on dark and on light
                panel.add_patch(_rectangle(step.start_s, step.start_s, side, side, fill=False, edgecolor=line, linewidth=width))
            panel.text(step.end_s, step.start_s, f" {numbers[step.text]}", va="top", fontsize=7, color="black",
                       bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.85})  # fmt: skip
        panel.set_title(title)
        _minutes(panel.xaxis)
        _minutes(panel.yaxis)
    _legend(figure, numbers)
    return figure


def timeline_figure(case: Case, pieces: bool = True) -> Figure:
    """Fig. 4: the true steps, those of raw features with spectral clustering, and HiERO's; equal numbers were matched."""
    numbers = _numbers(case)
    truth = case.labels()
    num = len(set(truth[truth > 0].tolist()))
    found = {
        "truth": truth,
        "raw, spectral": _matched(cluster(case.features, num, "spectral"), truth),
        "HiERO, spectral": _matched(cluster(case.video.nodes, num, "spectral"), truth),
    }
    if pieces:
        found["HiERO"] = _matched(cluster(case.video.segmentation_features, num, "pieces"), truth)
    figure, axes = _figure(1, 1, (11, 1.0 + 0.55 * len(found) + 0.17 * len(numbers)))
    panel = axes[0]
    for place, labels in enumerate(found.values()):
        for a, b in label_runs(labels):
            number = int(labels[a])
            start_s, end_s = case.to_seconds(np.array([a, b])).tolist()
            style = {"facecolor": "white", "edgecolor": "#999999"} if number == 0 else _style(number)
            panel.add_patch(_rectangle(start_s, place + 0.1, end_s - start_s, 0.8, linewidth=0.4, **style))
            if number and end_s - start_s > 0.02 * case.video.duration_s:
                panel.text((start_s + end_s) / 2, place + 0.5, str(number), ha="center", va="center", fontsize=7,
                           bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.85})  # fmt: skip
    panel.set_xlim(case.video.clock.start_s, case.video.duration_s)
    panel.set_ylim(len(found), 0)
    panel.set_yticks(np.arange(len(found)) + 0.5, list(found))
    panel.tick_params(axis="y", length=0)
    _minutes(panel.xaxis)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
    _legend(figure, numbers)
    return figure


def narration_figure(vectors: np.ndarray, steps: Sequence[int], labels: np.ndarray, names: Sequence[str], seed: int = 0) -> Figure:
    """t-SNE of narrations (N, E), each in step `steps[i]`, and of the steps' own labels (S, E): dots and stars."""
    try:
        from sklearn.manifold import TSNE  # type: ignore[import-untyped]
    except ImportError:
        raise InputError("t-SNE needs scikit-learn; run: pip install 'hiero-video[figures]'") from None
    if len(vectors) < 3:
        raise InputError(f"t-SNE needs a few narrations inside steps, found {len(vectors)}")
    points = np.concatenate([vectors, labels])
    flat = TSNE(perplexity=min(30.0, (len(points) - 1) / 3), random_state=seed, init="pca", metric="cosine").fit_transform(points)
    figure, axes = _figure(1, 1, (8, 6.5 + 0.12 * len(names)))
    panel, owner = axes[0], np.asarray(steps)
    for i in range(len(names)):
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        mine = flat[: len(vectors)][owner == i]
        panel.scatter(*mine.T, s=22, c=colour, marker=marker, edgecolors="black", linewidths=0.3)
        x, y = flat[len(vectors) + i]
        panel.scatter(x, y, s=190, c=colour, marker="*", edgecolors="black", linewidths=0.8, zorder=3)
        panel.annotate(str(i + 1), (x, y), textcoords="offset points", xytext=(6, 5), fontsize=9, weight="bold", zorder=4)
    panel.set_xticks([])
    panel.set_yticks([])
    _legend(figure, {name: i + 1 for i, name in enumerate(names)}, MARKERS)
    return figure


def save_figure(figure: Figure, path: Path) -> list[Path]:
    """Write .svg or .png as the name says; both without a suffix."""
    if path.suffix not in (".svg", ".png", ""):
        raise InputError(f"{path}: figures are .svg or .png, or both without a suffix")
    paths = [path] if path.suffix else [path.with_name(path.name + end) for end in (".svg", ".png")]
    for one in paths:
        with atomic_path(one) as temporary:
            figure.savefig(temporary, format=one.suffix[1:], dpi=150, metadata={"Date": None} if one.suffix == ".svg" else None)
    return paths


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Any]]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("figures need matplotlib; run: pip install 'hiero-video[figures]'") from None
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flatten())


def _rectangle(x: float, y: float, width: float, height: float, **style: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, **style)


def _style(number: int) -> dict[str, Any]:
    return {
        "facecolor": COLOURS[(number - 1) % len(COLOURS)], "hatch": HATCHES[(number - 1) % len(HATCHES)],
        "edgecolor": "black",
    }  # fmt: skip


def _legend(figure: Figure, numbers: dict[str, int], markers: str = "") -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = []
    for number in numbers.values():
        if markers:
            marker, colour = markers[(number - 1) % len(markers)], COLOURS[(number - 1) % len(COLOURS)]
            handles.append(Line2D([], [], color="none", marker=marker, markerfacecolor=colour, markeredgecolor="black"))
        else:
            handles.append(Patch(**_style(number)))
    most = int(6.2 * figure.get_figwidth())  # letters of half a line
    texts = [f"{number} {_short(text, most)}" for text, number in numbers.items()]
    figure.legend(handles, texts, loc="outside lower center", ncols=2 if len(texts) > 3 else 1, fontsize=7, frameon=False)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _minutes(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(6, integer=True))
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_time(max(0.0, value))))
    axis.set_tick_params(labelsize=7)


def _numbers(case: Case) -> dict[str, int]:
    ordered = sorted(case.truth, key=lambda step: step.start_s)
    if not ordered:
        raise InputError("the video has no annotated steps to draw")
    names = dict.fromkeys(step.text for step in ordered)
    case.truth = ordered
    return {text: i for i, text in enumerate(names, start=1)}


def _matched(labels: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Clusters by the number of the true step that is their partner, 0 where they have none."""
    overlap = np.zeros((int(labels.max()) + 1, int(truth.max()) + 1))
    np.add.at(overlap, (labels, truth), 1)
    names = np.zeros(len(overlap), dtype=int)
    found, steps = linear_sum_assignment(-overlap[:, 1:])
    names[found] = np.where(overlap[found, steps + 1] > 0, steps + 1, 0)
    return names[labels]
