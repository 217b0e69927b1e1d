"""One page over many videos: shared activities, time spent on each, and what is unusual in a video.

videos with steps ─► shared activities ─► usual order, omissions, displacements ─► page.html, page.csv, page.json
"""

from __future__ import annotations

import base64
import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hiero.errors import InputError
from hiero.steps.shared_activities import MIN_NORM, place_agreement, shared_activities
from hiero.steps.usual_order import Displacement, Omission, find_displacements, find_omissions, usual_order
from hiero.storage.files import write_text
from hiero.types import Hierarchy, Step
from hiero.vectors import unit_vectors

if TYPE_CHECKING:
    from hiero.engine import Video

TEMPLATE = Path(__file__).parent / "folder_report.html"
MIN_LABEL_SHARE = 0.3  # minimum share of the steps of an activity with the label that names it
LONG_FACTOR, LONG_S = 2.0, 30.0  # an activity is slow from this multiple of, and this many seconds above, the usual


@dataclass(frozen=True)
class VideoSteps:
    """The steps of one level of a video, with embeddings and pictures."""

    name: str
    duration_s: float
    steps: tuple[Step, ...]
    vectors: np.ndarray
    pictures: tuple[bytes | None, ...]


@dataclass(frozen=True)
class Activity:
    """Similar steps of one or several videos."""

    label: str | None
    num_videos: int
    total_s: float
    usual_s: float
    picture: bytes | None


@dataclass(frozen=True)
class Run:
    """Consecutive steps of one activity."""

    activity: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class VideoSummary:
    """A video compared with the others."""

    name: str
    duration_s: float
    runs: tuple[Run, ...]
    seconds: tuple[float, ...]
    omissions: tuple[Omission, ...]
    displacements: tuple[Displacement, ...]
    took_long: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class FolderReport:
    """The content of the page."""

    title: str
    model: str
    activities: tuple[Activity, ...]
    videos: tuple[VideoSummary, ...]
    agreement: float

    @property
    def num_shared(self) -> int:
        """The number of activities that occur in more than one video."""
        return sum(activity.num_videos > 1 for activity in self.activities)

    def to_dict(self) -> dict[str, Any]:
        """The document of `hiero report --json`; activities count from 1."""
        return {
            "version": 1,
            "title": self.title,
            "model": self.model,
            "agreement": round(self.agreement, 3),
            "activities": [
                {
                    "number": i + 1,
                    "label": a.label,
                    "num_videos": a.num_videos,
                    "total_s": round(a.total_s, 2),
                    "usual_s": round(a.usual_s, 2),
                }
                for i, a in enumerate(self.activities)
            ],
            "videos": [_video_to_dict(video) for video in self.videos],
        }

    def to_csv(self) -> str:
        """A table with a row for each video and activity."""
        rows = [row for video in self.videos for row in self._csv_rows(video)]
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()

    def _csv_rows(self, video: VideoSummary) -> Iterator[dict[str, Any]]:
        omitted = {omission.activity for omission in video.omissions}
        displaced = {displacement.activity for displacement in video.displacements}
        slow = {activity for activity, _ in video.took_long}
        for i, activity in enumerate(self.activities):
            runs = [run for run in video.runs if run.activity == i]
            yield {
                "video": video.name,
                "activity": i + 1,
                "label": activity.label or "",
                "num_times": len(runs),
                "seconds": round(video.seconds[i], 2),
                "share": round(video.seconds[i] / max(video.duration_s, MIN_NORM), 4),
                "first_s": round(runs[0].start_s, 2) if runs else "",
                "num_videos": activity.num_videos,
                "usual_s": round(activity.usual_s, 2),
                "not_seen": int(i in omitted),
                "unusual_place": int(i in displaced),
                "took_long": int(i in slow),
            }


def select_corrected(hierarchy: Hierarchy, level: int | None, duration_s: float) -> tuple[Step, ...]:
    """The corrected steps of one level, without unnamed background."""
    chosen = hierarchy.levels[-1 if level is None else min(level, len(hierarchy.levels) - 1)]
    steps = tuple(
        replace(step, end_s=min(step.end_s, duration_s))
        for step in chosen
        if step.start_s < duration_s and not (step.background and step.label is None)
    )
    if not steps:
        raise InputError(f"{hierarchy.video}: corrected steps have no names; name some, or delete its .hiero.json file")
    return steps


def describe_steps(name: str, video: Video, steps: Sequence[Step]) -> VideoSteps:
    """The steps of a video with their embeddings and pictures."""
    spans = video.level_spans(steps)
    pictures = tuple(video.source.thumbnail_at((step.start_s + step.end_s) / 2) for step in steps)
    return VideoSteps(name, video.duration_s, tuple(steps), video.embed_spans(spans), pictures)


def _video_to_dict(video: VideoSummary) -> dict[str, Any]:
    return {
        "name": video.name,
        "duration_s": round(video.duration_s, 2),
        "runs": [
            {"activity": run.activity + 1, "start_s": round(run.start_s, 2), "end_s": round(run.end_s, 2)}
            for run in video.runs
        ],
        "seconds": [round(seconds, 2) for seconds in video.seconds],
        "not_seen": [{"activity": o.activity + 1, "share": round(o.share, 3)} for o in video.omissions],
        "unusual_place": [
            {
                "activity": d.activity + 1,
                "earlier_than": [a + 1 for a in d.earlier_than],
                "later_than": [a + 1 for a in d.later_than],
            }
            for d in video.displacements
        ],
        "took_long": [{"activity": activity + 1, "times": round(times, 2)} for activity, times in video.took_long],
    }


def build_report(
    videos: Sequence[VideoSteps],
    *,
    title: str,
    model: str,
    num: int | None = None,
    by_label: bool = False,
    min_label_score: float = 0.0,
) -> FolderReport:
    """Find the activities that videos share, and the deviations of each video."""
    if len(videos) < 2:
        raise InputError("a report compares videos; give at least two")
    if len({video.name for video in videos}) < len(videos):
        raise InputError("two videos have the same name; rename one of them")
    steps = [step for video in videos for step in video.steps]
    owners = np.repeat(np.arange(len(videos)), [len(video.steps) for video in videos])
    durations = np.array([max(video.duration_s, MIN_NORM) for video in videos])
    places = np.array([(step.start_s + step.end_s) / 2 for step in steps]) / durations[owners]
    vectors = np.concatenate([video.vectors for video in videos])
    if by_label:
        if unnamed := sum(step.label is None for step in steps):
            raise InputError(f"{unnamed} of {len(steps)} steps have no label; name them, or omit --by-label")
        activity_of = np.unique([step.label or "" for step in steps], return_inverse=True)[1]
    else:
        activity_of = shared_activities(vectors, places, owners, num)
    activity_of = _in_usual_order(activity_of, owners, steps, durations)
    times, seconds = _activity_times(activity_of, owners, steps, durations)
    pictures = [picture for video in videos for picture in video.pictures]
    activities = _describe_activities(activity_of, seconds, steps, vectors, pictures, min_label_score)
    shared = np.array([activity.num_videos > 1 for activity in activities])
    times = np.where(shared, times, np.nan)
    omissions, displacements = find_omissions(times), find_displacements(times)
    summaries = tuple(
        VideoSummary(
            video.name,
            video.duration_s,
            _merge_runs(video.steps, activity_of[owners == i]),
            tuple(seconds[i].tolist()),
            tuple(omission for omission in omissions if omission.video == i),
            tuple(displacement for displacement in displacements if displacement.video == i),
            _find_long(seconds, i),
        )
        for i, video in enumerate(videos)
    )
    return FolderReport(title, model, activities, summaries, place_agreement(vectors, places, owners))


def _in_usual_order(
    activity_of: np.ndarray, owners: np.ndarray, steps: list[Step], durations: np.ndarray
) -> np.ndarray:
    """Number the activities by their usual order, with those of a single video last."""
    times, _ = _activity_times(activity_of, owners, steps, durations)
    num_videos = np.isfinite(times).sum(0)
    order = sorted(usual_order(times), key=lambda activity: num_videos[activity] < 2)
    return np.asarray(np.argsort(order)[activity_of])


def _activity_times(
    activity_of: np.ndarray, owners: np.ndarray, steps: list[Step], durations: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Relative time of each activity in each video (NaN if absent) and seconds spent on it, both (V, A)."""
    shape = len(durations), int(activity_of.max()) + 1
    seconds, moments = np.zeros(shape), np.zeros(shape)
    for step, activity, owner in zip(steps, activity_of, owners, strict=True):
        length_s = max(step.end_s - step.start_s, MIN_NORM)
        seconds[owner, activity] += length_s
        moments[owner, activity] += length_s * (step.start_s + step.end_s) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        return moments / seconds / durations[:, None], seconds


def _describe_activities(
    activity_of: np.ndarray,
    seconds: np.ndarray,
    steps: list[Step],
    vectors: np.ndarray,
    pictures: list[bytes | None],
    min_label_score: float,
) -> tuple[Activity, ...]:
    """Choose a name and a picture for each activity; `seconds` is (V, A)."""
    units = unit_vectors(vectors)
    out = []
    for activity, per_video in enumerate(seconds.T):
        members = np.flatnonzero(activity_of == activity)
        typical = members[np.argsort(-(units[members] @ units[members].mean(0)), kind="stable")]
        per_video = per_video[per_video > 0]
        label = _common_label([steps[i] for i in members], min_label_score)
        picture = next((pictures[i] for i in typical if pictures[i] is not None), None)
        out.append(Activity(label, len(per_video), float(per_video.sum()), float(np.median(per_video)), picture))
    return _number_labels(out)


def _common_label(members: list[Step], min_score: float) -> str | None:
    """The label with the highest total score, if enough steps have it."""
    votes: dict[str, float] = defaultdict(float)
    for step in members:
        score = 1.0 if step.score is None else step.score
        if step.label and score >= min_score:
            votes[step.label] += score
    if not votes:
        return None
    best = max(votes, key=lambda label: (votes[label], label))
    share = sum(step.label == best for step in members) / len(members)
    return best if share >= MIN_LABEL_SHARE else None


def _number_labels(activities: list[Activity]) -> tuple[Activity, ...]:
    """Number labels that several activities share."""
    labels = [activity.label for activity in activities]
    out = []
    for i, activity in enumerate(activities):
        if activity.label is not None and labels.count(activity.label) > 1:
            activity = replace(activity, label=f"{activity.label} ({labels[: i + 1].count(activity.label)})")
        out.append(activity)
    return tuple(out)


def _merge_runs(steps: Sequence[Step], activity_of: np.ndarray) -> tuple[Run, ...]:
    out: list[Run] = []
    for step, activity in zip(steps, activity_of.tolist(), strict=True):
        if out and out[-1].activity == activity:
            out[-1] = replace(out[-1], end_s=step.end_s)
        else:
            out.append(Run(activity, step.start_s, step.end_s))
    return tuple(out)


def _find_long(seconds: np.ndarray, video: int) -> tuple[tuple[int, float], ...]:
    """Activities that took much longer than in the other videos, slowest first."""
    out = []
    for activity, here_s in enumerate(seconds[video].tolist()):
        others = np.delete(seconds[:, activity], video)
        others = others[others > 0]
        if len(others) < 2:
            continue
        usual_s = float(np.median(others))
        if here_s >= max(LONG_FACTOR * usual_s, usual_s + LONG_S):
            out.append((activity, here_s / max(usual_s, MIN_NORM)))
    return tuple(sorted(out, key=lambda pair: -pair[1]))


def write_folder_report(path: Path, report: FolderReport) -> list[Path]:
    """Write the page, and the same numbers as CSV and JSON next to it."""
    document = report.to_dict()
    pictures = [None if a.picture is None else base64.b64encode(a.picture).decode() for a in report.activities]
    data = json.dumps({**document, "pictures": pictures}, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    files = [path, path.with_suffix(".csv"), path.with_suffix(".json")]
    write_text(files[0], TEMPLATE.read_text(encoding="utf-8").replace("/*DATA*/", data))
    write_text(files[1], report.to_csv())
    write_text(files[2], json.dumps(document, ensure_ascii=False, indent=1) + "\n")
    return files
