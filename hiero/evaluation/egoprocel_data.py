"""EgoProceL's files: annotations of key-steps, features and frame rates of six data sets, 16 tasks.

ANNOTATIONS/CMU-MMAC/Brownie/…/S07_Brownie_7150991-1431.csv    rows: start_s, end_s, "1 name" or "1. name"
FEATURES/…/S07_Brownie_7150991-1431.pt                         anywhere below the folder
VIDEOS/…/S07_Brownie_7150991-1431.mp4                          for the frame rate, or --rates FILE
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hiero.errors import InputError
from hiero.evaluation.parsing import parsing
from hiero.features.files import find_features

EGO_CAMERA = "7150991"  # the head-mounted camera among the five of CMU-MMAC
ADDRESS = "https://github.com/Sid2697/EgoProceL-egocentric-procedure-learning"
MIN_FRAMES = 2  # every second frame is compared
MAX_FPS = 1000
RATE_COLUMNS = ["video", "fps", "frames"]
NO_FEATURES, NO_RATE = "no feature file", "no frame rate"  # what a video may lack


@dataclass(frozen=True)
class Task:
    """A task of EgoProceL."""

    data_set: str
    name: str
    folder: str
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
)
RELEASE_NAMES = {  # names in the tables of the release
    "CMU-MMAC": "CMU",
    "EPIC-Tents": "EPIC-Tent",
    "PC Assembly": "PC-Assembly",
    "PC Disassembly": "PC-Disassembly",
}
DATA_SETS = ("CMU-MMAC", "EGTEA", "MECCANO", "EPIC-Tents", "PC Assembly", "PC Disassembly")

KeyStep = tuple[float, float, int]
"""(start_s, end_s, number), numbers from 1."""
Rate = tuple[float, int]
"""(fps, number of frames) of a video."""


@dataclass(frozen=True)
class EgoProceLVideo:
    """A video with its annotations and its feature file."""

    name: str
    task: Task
    key_steps: tuple[KeyStep, ...]
    features: Path
    fps: float
    num_frames: int

    def labels(self, truncated_rate: bool = False) -> np.ndarray:
        """Key-step of every second frame, (num_frames // 2,), optionally with the frame rate rounded down."""
        return frame_labels(self.key_steps, int(self.fps) if truncated_rate else self.fps, self.num_frames)


def frame_labels(key_steps: Sequence[KeyStep], fps: float, num_frames: int) -> np.ndarray:
    """Key-step of every second frame (1, 3, 5 …), as in the official code."""
    labels = np.zeros(num_frames, dtype=int)
    for start_s, end_s, number in key_steps:
        labels[int(start_s * fps) : int(end_s * fps) + 1] = number
    return labels[1::2]


def read_key_steps(path: Path) -> tuple[KeyStep, ...]:
    """Read the key-steps of a csv file. Each name starts with its number: "1 …" or "1. …"."""
    key_steps = []
    with parsing(f"{path}: not a list of key-steps"), path.open(encoding="utf-8-sig", newline="") as file:
        for line_number, cells in enumerate(csv.reader(file), start=1):
            if not any(cell.strip() for cell in cells):
                continue
            number = re.match(r"\s*(\d+)", cells[2]) if len(cells) > 2 else None
            if number is None:
                raise InputError(f'{path}: line {line_number} has no key-step number; expected start,end,"1 name"')
            start_s, end_s = float(cells[0]), float(cells[1])
            if not (0 <= start_s < math.inf and 0 <= end_s < math.inf):
                raise InputError(f"{path}: line {line_number} has impossible times, {start_s} to {end_s} s")
            key_steps.append((start_s, end_s, int(number.group(1))))
    if not key_steps:
        raise InputError(f"{path}: has no key-steps; download it again from {ADDRESS}")
    return tuple(key_steps)


def find_egoprocel_videos(
    annotations: Path, features: Path, rates: dict[str, Rate], names: Sequence[str] = ()
) -> tuple[list[EgoProceLVideo], dict[str, str], list[str]]:
    """The videos with features and a frame rate, what the others lack, and the tasks without annotations."""
    known = {name for task in TASKS for name in (task.data_set, task.name)}
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"--only {unknown[0]}: not a data set or task of EgoProceL; choose from {', '.join(known)}")
    files: dict[str, list[Path]] = {}
    for file in find_features(features):
        files.setdefault(file.stem, []).append(file)
    videos: list[EgoProceLVideo] = []
    missing: dict[str, str] = {}
    absent_tasks = []
    for task in TASKS:
        if names and task.data_set not in names and task.name not in names:
            continue
        annotation_files = find_annotations(annotations, task)
        if annotation_files is None:
            absent_tasks.append(task.name)
            continue
        for file in annotation_files:
            name = video_name(file)
            feature_file = _feature_file(files.get(name) or files.get(file.stem) or [], task)
            rate = rates.get(name) or rates.get(file.stem)
            if feature_file is None:
                missing[name] = NO_FEATURES
            elif rate is None or rate[1] < MIN_FRAMES:
                missing[name] = NO_RATE
            else:
                videos.append(EgoProceLVideo(name, task, read_key_steps(file), feature_file, *rate))
    if not videos:
        counts = Counter(missing.values())
        reasons = [f"{num} annotated videos have {lack}" for lack, num in counts.items()]
        reasons += [f"{len(absent_tasks)} tasks have no folder in {annotations}"] * bool(absent_tasks)
        raise InputError(f"nothing to score with {features}: {', '.join(reasons)}; see {ADDRESS}")
    return videos, missing, absent_tasks


def find_annotations(annotations: Path, task: Task) -> list[Path] | None:
    """The csv files of a task below the official folder; None without a folder."""
    # The two releases name this folder differently.
    names = (task.folder, task.folder.replace("CMU-MMAC", "CMU_Kitchens"))
    folder = next((annotations / name for name in names if (annotations / name).is_dir()), None)
    if folder is None:
        return None
    files = sorted(folder.rglob("*.csv"))
    if task.data_set == "CMU-MMAC":
        files = [file for file in files if EGO_CAMERA in file.stem] or files
    return files


def _feature_file(candidates: Sequence[Path], task: Task) -> Path | None:
    """The feature file of a video. If tasks share its name, the file in the folder of the task."""
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    names = {name.lower() for name in (*task.folder.split("/"), task.name, task.data_set)}
    of_task = [file for file in candidates if names & {part.lower() for part in file.parts}]
    if len(of_task) != 1:
        raise InputError(f"{candidates[0]} and {candidates[1]} have the same name; put each in the folder of its task")
    return of_task[0]


def video_name(annotation: Path) -> str:
    return annotation.stem.removesuffix(".egoprocel.ann")


def read_rates(path: Path) -> dict[str, Rate]:
    """Read the frame rates of a csv file with the columns video, fps, frames."""
    problem = f"{path}: not a list of frame rates, expected video,fps,frames"
    with parsing(problem), path.open(encoding="utf-8-sig", newline="") as file:
        first, *rows = [row for row in csv.reader(file) if row and row[0]] or [RATE_COLUMNS]
        if "video" not in first:
            first, rows = RATE_COLUMNS, [first, *rows]
        video, fps, frames = map(first.index, RATE_COLUMNS)
        rates = {row[video]: (float(row[fps]), int(row[frames])) for row in rows}
    if not rates:
        raise InputError(f"{path}: has no frame rates; expected rows of video,fps,frames")
    if wrong := [name for name, (fps, frames) in rates.items() if not (0 < fps <= MAX_FPS and frames >= 0)]:
        raise InputError(f"{path}: {wrong[0]} has an impossible frame rate or number of frames; correct the row")
    return rates


def probe_rates(folder: Path, names: Sequence[str]) -> dict[str, Rate]:
    """Read the frame rates of the named videos below a folder from the files themselves."""
    from hiero.media.decode import probe

    expected, rates = set(names), {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        if file.stem in expected and file.stem not in rates:
            try:
                info = probe(file)
            except InputError:  # not a video, but annotations or features
                continue
            if info.fps and info.duration_s:
                rates[file.stem] = info.fps, round(info.duration_s * info.fps)
    return rates
