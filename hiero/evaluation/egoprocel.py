"""EgoProceL: procedure learning on six data sets, 16 tasks. Do clusters of a video find the key-steps of its task?

    ANNOTATIONS/CMU-MMAC/Brownie/…/S07_Brownie_7150991-1431.csv      rows: start_s, end_s, "1 name of the key-step" or "1. name"
    FEATURES/…/S07_Brownie_7150991-1431.pt                          anywhere below the folder, named as the csv file
    VIDEOS/…/S07_Brownie_7150991-1431.mp4                           for the true frame rate, or --rates FILE (video, fps, frames)

Every second frame of a video is compared, as the official code does. What papers mix up is computed and named: see PROTOCOLS.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hiero.data.features import find_features, read_feature_array
from hiero.engine import Engine
from hiero.errors import InputError
from hiero.evaluation.metrics import harmonic_mean, key_step_scores, matched_accuracy, procedure_scores
from hiero.evaluation.results import Row, Table, bootstrap_row
from hiero.steps.clustering import cluster
from hiero.types import Clock

EGO_CAMERA = "7150991"  # of the five that CMU-MMAC has
NUM_CLUSTERS = 7
KAPPA = 0.5


@dataclass(frozen=True)
class Task:
    data_set: str
    name: str
    folder: str
    """Below the annotations; names of both releases are tried."""
    num_steps: int
    num_videos: int


TASKS = (
    Task("PC Assembly", "PC Assembly", "pc_assembly", 9, 14),
    Task("PC Disassembly", "PC Disassembly", "pc_disassembly", 9, 15),
    Task("MECCANO", "MECCANO", "MECCANO", 17, 17),
    Task("EPIC-Tents", "EPIC-Tents", "EPIC-Tents", 12, 29),
    Task("CMU-MMAC", "Brownie", "CMU-MMAC/Brownie", 9, 34),
    Task("CMU-MMAC", "Eggs", "CMU-MMAC/Eggs", 8, 33),
    Task("CMU-MMAC", "Pepperoni Pizza", "CMU-MMAC/Pizza", 5, 33),
    Task("CMU-MMAC", "Salad", "CMU-MMAC/Salad", 9, 34),
    Task("CMU-MMAC", "Sandwich", "CMU-MMAC/Sandwich", 4, 31),
    Task("EGTEA", "Bacon and Eggs", "EGTEA_Gaze+/BaconAndEggs", 11, 16),
    Task("EGTEA", "Cheese Burger", "EGTEA_Gaze+/Cheeseburger", 10, 10),
    Task("EGTEA", "Continental Breakfast", "EGTEA_Gaze+/ContinentalBreakfast", 10, 12),
    Task("EGTEA", "Greek Salad", "EGTEA_Gaze+/GreekSalad", 4, 10),
    Task("EGTEA", "Pasta Salad", "EGTEA_Gaze+/PastaSalad", 8, 19),
    Task("EGTEA", "Hot Box Pizza", "EGTEA_Gaze+/Pizza", 8, 6),
    Task("EGTEA", "Turkey Sandwich", "EGTEA_Gaze+/TurkeySandwich", 6, 13),
)  # fmt: skip
DATA_SETS = ("CMU-MMAC", "EGTEA", "MECCANO", "EPIC-Tents", "PC Assembly", "PC Disassembly")


@dataclass(frozen=True)
class Protocol:
    """per_step: means over key-steps, or their frames pooled. mean_f1: mean of key-steps' F1, or F1 of a video's means."""

    name: str
    per_step: bool = True
    background: bool = True
    mean_f1: bool = False
    all_frames: bool = False


PROTOCOLS = (
    Protocol("per key-step, with background (the paper's)"),
    Protocol("per key-step, without background", background=False),
    Protocol("per key-step, with background, mean of F1", mean_f1=True),
    Protocol("frames pooled, with background", per_step=False),
    Protocol("frames pooled, without background", per_step=False, background=False),
    Protocol("all frames pooled, accuracy of the matching", all_frames=True),
)


@dataclass(frozen=True)
class EgoProceLVideo:
    name: str
    task: Task
    rows: tuple[tuple[float, float, int], ...]
    features: Path
    fps: float
    num_frames: int


def read_rows(path: Path) -> tuple[tuple[float, float, int], ...]:
    """start_s, end_s and number of each key-step of a csv file; its name begins with the number, as "1 …" or "1. …"."""
    out = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for number, line in enumerate(csv.reader(file), start=1):
                if not any(part.strip() for part in line):
                    continue
                found = re.match(r"\s*(\d+)", line[2]) if len(line) > 2 else None
                if found is None:
                    raise InputError(f'{path}: line {number} has no key-step number: expected start, end, "1 name"')
                out.append((float(line[0]), float(line[1]), int(found.group(1))))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a list of key-steps ({error})") from error
    return tuple(out)


def frame_labels(rows: Sequence[tuple[float, float, int]], fps: float, num_frames: int) -> np.ndarray:
    """Key-step of every second frame (1, 3, 5 …), 0 for none; where two overlap, the later row counts."""
    labels = np.zeros(num_frames, dtype=int)
    for start_s, end_s, number in rows:
        labels[int(start_s * fps) : int(end_s * fps) + 1] = number
    return labels[1::2]


def find_egoprocel_videos(
    annotations: Path, features: Path, rates: dict[str, tuple[float, int]], names: Sequence[str] = ()
) -> tuple[list[EgoProceLVideo], list[str], list[str]]:
    """The videos that can be scored; those without features or frame rate; and tasks whose annotations are not there."""
    files: dict[str, list[Path]] = {}
    for file in find_features(features):
        files.setdefault(file.stem, []).append(file)
    videos, missing, absent = [], [], []
    for task in TASKS:
        if names and task.data_set not in names and task.name not in names:
            continue
        folder = next((path for path in _places(annotations, task) if path.is_dir()), None)
        if folder is None:
            absent.append(task.name)
            continue
        found = sorted(folder.rglob("*.csv"))
        if task.data_set == "CMU-MMAC":
            found = [file for file in found if EGO_CAMERA in file.stem] or found
        for file in found:
            name = video_name(file)
            held = _of_task(files.get(name) or files.get(file.stem) or [], task)
            rate = rates.get(name) or rates.get(file.stem)
            if held is None or rate is None or rate[1] < 2:
                missing.append(name)
            else:
                videos.append(EgoProceLVideo(name, task, read_rows(file), held, *rate))
    if not videos:
        raise InputError(
            f"nothing to score: {len(missing)} annotated videos have no features in {features} or no frame rate, "
            f"{len(absent)} tasks have no folder in {annotations}"
        )
    return videos, missing, absent


def _of_task(found: Sequence[Path], task: Task) -> Path | None:
    """The file of a video; where tasks have videos of the same name, the one in a folder named as the task's."""
    if len(found) < 2:
        return found[0] if found else None
    names = {part.lower() for part in (*task.folder.split("/"), task.name, task.data_set)}
    mine = [file for file in found if names & {part.lower() for part in file.parts}]
    if len(mine) != 1:
        raise InputError(f"{found[0]} and {found[1]} have the same name; put each into a folder named as in the annotations")
    return mine[0]


def video_name(annotation: Path) -> str:
    return annotation.stem.removesuffix(".egoprocel.ann")


def _places(annotations: Path, task: Task) -> Iterator[Path]:
    yield annotations / task.folder
    yield annotations / task.folder.replace("CMU-MMAC", "CMU_Kitchens")


def read_rates(path: Path) -> dict[str, tuple[float, int]]:
    """Frame rates of a csv file: video, fps, frames."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = [line for line in csv.reader(file) if line and line[0] not in ("video", "")]
        return {line[0]: (float(line[1]), int(line[2])) for line in lines}
    except (OSError, ValueError, IndexError) as error:
        raise InputError(f"{path}: not a list of frame rates, expected video,fps,frames ({error})") from error


def probe_rates(folder: Path, names: Sequence[str]) -> dict[str, tuple[float, int]]:
    """True frame rates of the videos below a folder, from the files themselves."""
    from hiero.video.decode import probe

    wanted, out = set(names), {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        if file.stem in wanted and file.stem not in out:
            try:
                info = probe(file)
            except InputError:  # not a video: annotations or features that lie beside it
                continue
            if info.fps and info.duration_s:
                out[file.stem] = info.fps, round(info.duration_s * info.fps)
    return out


def predict(engine: Engine, video: EgoProceLVideo, num: int, algorithm: str, raw: bool, stride: int, seed: int) -> np.ndarray:
    """Cluster of every second frame. HiERO's: level 2 before h_v, each node repeated for the frames that it stands for."""
    features = read_feature_array(video.features, None if engine.folder is None else engine.folder.config.input_size)
    level = 0 if raw else engine.deep_level
    nodes = features if level == 0 else engine.enrich(features, Clock(video.fps, stride), level)
    labels = cluster(nodes, num, algorithm, kappa=KAPPA, random_state=seed)
    return labels[np.minimum(np.arange(video.num_frames // 2) * 2 // (stride * 2**level), len(labels) - 1)]


def score(predicted: np.ndarray, video: EgoProceLVideo, protocol: Protocol, num: int) -> dict[str, float]:
    truth = frame_labels(video.rows, video.fps, video.num_frames)
    sizes = {"num_steps": max(video.task.num_steps, int(truth.max())) + 1, "num_clusters": num}
    if protocol.all_frames:
        same = matched_accuracy(predicted, truth)
        return {"precision": same, "recall": same, "F1": same}
    found = procedure_scores(predicted, truth, per_step=protocol.per_step, skip_background=not protocol.background, **sizes)
    f1 = found.mean_f1 if protocol.mean_f1 else found.f1
    return {"precision": found.precision, "recall": found.recall, "F1": f1, "IoU": found.iou}


CLUSTERING_METHODS: tuple[tuple[str, bool, str], ...] = (
    ("HiERO, spectral", False, "spectral"),
    ("HiERO, K-Means", False, "k-means"),
    ("raw, spectral", True, "spectral"),
    ("raw, K-Means (L2)", True, "k-means"),
    ("raw, K-Means (cosine)", True, "k-means-cosine"),
    ("raw, TW-FINCH", True, "tw-finch"),
    ("equal parts", True, "equal-parts"),
    ("random", True, "random"),
)


def evaluate_egoprocel(
    engine: Engine,
    videos: Sequence[EgoProceLVideo],
    *,
    stride: int = 16,
    baselines: bool = True,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Table]:
    """Main table (F1 and IoU of each data set and their mean), all protocols, and the key-steps of each task."""
    methods = [m for m in (CLUSTERING_METHODS if baselines else CLUSTERING_METHODS[:1]) if engine.folder is not None or m[1]]
    labels: dict[tuple[str, EgoProceLVideo, int], np.ndarray] = {}
    counts = {video: (NUM_CLUSTERS, video.task.num_steps) for video in videos}
    for video in videos:
        for name, raw, algorithm in methods:
            for num in dict.fromkeys(counts[video]):
                labels[name, video, num] = predict(engine, video, num, algorithm, raw, stride, seed)
        progress(video.name)

    def table(protocol: Protocol, true_number: bool, methods: Sequence[tuple[str, bool, str]]) -> list[Row]:
        out = []
        for name, _, _ in methods:
            each = []
            for video in videos:
                num = counts[video][int(true_number)]
                each.append(score(labels[name, video, num], video, protocol, num))
            out.append(bootstrap_row(name, _by_data_set(videos, each), len(videos), 500))
        return out

    paper = PROTOCOLS[0]
    note = "A data set is the mean of its tasks, a task of its videos; the mean is over data sets."
    tables = [Table(f"EgoProceL, K = {NUM_CLUSTERS}, {paper.name}", table(paper, False, methods), [note])]
    for protocol in PROTOCOLS:
        for true_number in (False, True):
            if (protocol, true_number) != (paper, False):
                count = "the true number" if true_number else f"{NUM_CLUSTERS}"
                rows = table(protocol, true_number, methods)
                for one in rows:
                    one.scores = {key: value for key, value in one.scores.items() if key.startswith("mean")}
                    one.intervals = {key: value for key, value in one.intervals.items() if key.startswith("mean")}
                tables.append(Table(f"EgoProceL, K = {count}, {protocol.name}", rows))
    return [*tables, *_details(videos, labels, methods[0][0])]


def _by_data_set(videos: Sequence[EgoProceLVideo], each: Sequence[dict[str, float]]) -> Callable[[np.ndarray], dict[str, float]]:
    """F1 and IoU in percent: mean over videos of a task, tasks of a data set, data sets."""
    measures = [name for name in ("F1", "IoU") if name in each[0]]
    values = np.array([[one[name] for name in measures] for one in each])
    tasks = sorted({video.task for video in videos}, key=TASKS.index)
    member = np.array([[video.task == task for video in videos] for task in tasks], dtype=float)

    def scores(weights: np.ndarray) -> dict[str, float]:
        weight = member * weights
        total = weight.sum(1, keepdims=True)
        by_task = np.divide(weight @ values, total, out=np.full((len(tasks), len(measures)), np.nan), where=total > 0)
        sets = {}
        for name in DATA_SETS:
            mine = by_task[[i for i, task in enumerate(tasks) if task.data_set == name]]
            if len(mine) and not np.isnan(mine).all():
                sets[name] = np.nanmean(mine, axis=0)
        mean = np.mean(list(sets.values()), axis=0)
        out = {f"mean {measure}": float(100 * mean[j]) for j, measure in enumerate(measures)}
        for name in DATA_SETS:
            for j, measure in enumerate(measures):
                if any(task.data_set == name for task in tasks):
                    out[f"{name} {measure}"] = float(100 * sets[name][j]) if name in sets else float("nan")
        return out

    return scores


def _details(
    videos: Sequence[EgoProceLVideo], labels: dict[tuple[str, EgoProceLVideo, int], np.ndarray], method: str
) -> list[Table]:
    """For the first method, by the paper's protocol: each task, each video, each key-step."""
    by_video, by_task, by_step = [], [], []
    for task in dict.fromkeys(video.task for video in videos):
        mine = [video for video in videos if video.task == task]
        found: list[dict[str, float]] = []
        steps: dict[int, list[dict[str, float]]] = {}
        for video in mine:
            predicted = labels[method, video, NUM_CLUSTERS]
            one = score(predicted, video, PROTOCOLS[0], NUM_CLUSTERS)
            found.append(one)
            by_video.append(Row(f"{task.name}: {video.name}", {key: 100 * value for key, value in one.items()}))
            truth = frame_labels(video.rows, video.fps, video.num_frames)
            sizes = {"num_steps": max(task.num_steps, int(truth.max())) + 1, "num_clusters": NUM_CLUSTERS}
            for step, scores in key_step_scores(predicted, truth, **sizes).items():
                steps.setdefault(step, []).append(scores)
        mean = {key: float(100 * np.mean([one[key] for one in found])) for key in found[0]}
        mean["F1 of means"] = 100 * harmonic_mean(mean["precision"] / 100, mean["recall"] / 100)
        by_task.append(Row(f"{task.data_set}: {task.name} ({len(mine)} of {task.num_videos} videos)", mean))
        for step, rows in sorted(steps.items()):
            name = "background" if step == 0 else f"key-step {step}"
            values = {key: float(100 * np.mean([one[key] for one in rows])) for key in ("precision", "recall", "f1", "iou")}
            by_step.append(Row(f"{task.name}: {name}", values))
    tables = {"data sets": _means(by_task), "tasks": by_task, "videos": by_video, "key-steps": by_step}
    return [Table(f"{method}: {name}", rows) for name, rows in tables.items()]


def _means(by_task: Sequence[Row]) -> list[Row]:
    """Data sets as means of their tasks."""
    out = []
    for name in DATA_SETS:
        mine = [one.scores for one in by_task if one.method.startswith(f"{name}: ")]
        if mine:
            out.append(Row(name, {key: float(np.mean([scores[key] for scores in mine])) for key in mine[0]}))
    return out
