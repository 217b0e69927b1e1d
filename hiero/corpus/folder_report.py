"""One page over many videos: shared activities in their usual order, and the time spent on each.

videos with steps ─► shared activities ─► usual order ─► page.html, page.csv, page.json
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hiero.engine.html_report import encode_picture
from hiero.errors import InputError
from hiero.formats.html_page import write_page
from hiero.formats.rows import to_json
from hiero.formats.tables import format_csv
from hiero.steps.shared_activities import MIN_NORM, place_agreement, shared_activities, usual_order
from hiero.storage.files import write_text
from hiero.types import Hierarchy, Step
from hiero.vectors import unit_vectors

if TYPE_CHECKING:
    from hiero.engine import Video

STYLES = ("style.css", "collection/collection.css", "collection/report.css")
MIN_LABEL_SCORE = 0.5  # minimum score of a built-in label that names an activity
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
class FolderReport:
    """The content of the page.

    Attributes:
        document: The document of `hiero report --json`; activities count from 1.
        rows: A row of the table for each video and activity.
        pictures: A picture of each activity, or None.
    """

    document: dict[str, Any]
    rows: list[dict[str, Any]]
    pictures: list[bytes | None]

    @property
    def num_shared(self) -> int:
        """The number of activities that occur in more than one video."""
        return sum(activity["num_videos"] > 1 for activity in self.document["activities"])

    @property
    def page_data(self) -> dict[str, Any]:
        """What the page shows: the document and the pictures."""
        return {**self.document, "pictures": [encode_picture(picture) for picture in self.pictures]}

    def to_csv(self) -> str:
        return format_csv(list(self.rows[0]), self.rows, "\n")


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
    spans = video.sight.level_spans(steps)
    pictures = tuple(video.source.thumbnail_of(step.start_s, step.end_s) for step in steps)
    return VideoSteps(name, video.duration_s, tuple(steps), video.sight.embed_spans(spans), pictures)


def build_report(
    videos: Sequence[VideoSteps],
    *,
    title: str,
    model: str,
    num: int | None = None,
    by_label: bool = False,
    min_label_score: float = 0.0,
) -> FolderReport:
    """Find the activities that videos share, and how long each video spends on them."""
    if len(videos) < 2:
        raise InputError("a report compares videos; give at least two")
    if len({video.name for video in videos}) < len(videos):
        raise InputError("two videos have the same name; rename one of them")
    steps = [step for video in videos for step in video.steps]
    owners = np.repeat(np.arange(len(videos)), [len(video.steps) for video in videos])
    durations = np.array([max(video.duration_s, MIN_NORM) for video in videos])
    spans_s = np.array([(step.start_s, step.end_s) for step in steps])
    places = spans_s.mean(1) / durations[owners]
    vectors = np.concatenate([video.vectors for video in videos])
    if by_label:
        if unnamed := sum(step.label is None for step in steps):
            raise InputError(f"{unnamed} of {len(steps)} steps have no label; name them, or omit --by-label")
        activity_of = np.unique([step.label or "" for step in steps], return_inverse=True)[1]
    else:
        activity_of = shared_activities(vectors, places, owners, num)
    times, seconds = _activity_times(activity_of, owners, spans_s, durations)
    num_videos = np.isfinite(times).sum(0)
    order = sorted(usual_order(times), key=lambda activity: num_videos[activity] < 2)  # those of a single video last
    activity_of, seconds = np.argsort(order)[activity_of], seconds[:, order]
    members = [np.flatnonzero(activity_of == i) for i in range(seconds.shape[1])]
    activities = _describe_activities([[steps[i] for i in group] for group in members], seconds, min_label_score)
    pictures = [picture for video in videos for picture in video.pictures]
    documents: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for i, video in enumerate(videos):
        document = {
            "name": video.name,
            "duration_s": round(video.duration_s, 2),
            "runs": _merge_runs(video.steps, activity_of[owners == i]),
            "seconds": [round(each, 2) for each in seconds[i].tolist()],
            "took_long": _find_long(seconds, i),
        }
        documents.append(document)
        rows += _table_rows(document, activities, seconds[i] / durations[i])
    head = {"version": 1, "title": title, "model": model}
    agreement = round(place_agreement(vectors, places, owners), 3)
    return FolderReport(
        {**head, "agreement": agreement, "activities": activities, "videos": documents},
        rows,
        _choose_pictures(members, vectors, pictures),
    )


def _table_rows(
    video: dict[str, Any], activities: Sequence[dict[str, Any]], shares: np.ndarray
) -> Iterator[dict[str, Any]]:
    """The rows of a video. `shares` (A,) is the part of the video that each activity takes."""
    long = {note["activity"] for note in video["took_long"]}
    for activity, seconds, share in zip(activities, video["seconds"], shares.tolist(), strict=True):
        number = activity["number"]
        runs = [run for run in video["runs"] if run["activity"] == number]
        yield {
            "video": video["name"],
            "activity": number,
            "label": activity["label"] or "",
            "num_times": len(runs),
            "seconds": seconds,
            "share": round(share, 4),
            "first_s": runs[0]["start_s"] if runs else "",
            "num_videos": activity["num_videos"],
            "usual_s": activity["usual_s"],
            "took_long": int(number in long),
        }


def _activity_times(
    activity_of: np.ndarray, owners: np.ndarray, spans_s: np.ndarray, durations: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Relative time of each activity in each video (NaN if absent) and seconds spent on it, both (V, A)."""
    shape = len(durations), int(activity_of.max()) + 1
    seconds, moments = np.zeros(shape), np.zeros(shape)
    lengths_s = np.maximum(spans_s[:, 1] - spans_s[:, 0], MIN_NORM)
    np.add.at(seconds, (owners, activity_of), lengths_s)
    np.add.at(moments, (owners, activity_of), lengths_s * spans_s.mean(1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return moments / seconds / durations[:, None], seconds


def _describe_activities(
    members: Sequence[list[Step]], seconds: np.ndarray, min_label_score: float
) -> list[dict[str, Any]]:
    """Name and lengths of each activity; `seconds` is (V, A)."""
    labels = [_common_label(steps, min_label_score) for steps in members]
    out = []
    for i, (label, per_video) in enumerate(zip(labels, seconds.T, strict=True)):
        if label is not None and labels.count(label) > 1:
            label = f"{label} ({labels[: i + 1].count(label)})"
        per_video = per_video[per_video > 0]
        total_s, usual_s = round(float(per_video.sum()), 2), round(float(np.median(per_video)), 2)
        lengths = {"num_videos": len(per_video), "total_s": total_s, "usual_s": usual_s}
        out.append({"number": i + 1, "label": label, **lengths})
    return out


def _choose_pictures(
    members: Sequence[np.ndarray], vectors: np.ndarray, pictures: list[bytes | None]
) -> list[bytes | None]:
    """The picture of the most typical step of each activity that has one."""
    units = unit_vectors(vectors)
    out = []
    for group in members:
        typical = group[np.argsort(-(units[group] @ units[group].mean(0)), kind="stable")]
        out.append(next((pictures[i] for i in typical if pictures[i] is not None), None))
    return out


def _common_label(members: list[Step], min_score: float) -> str | None:
    """The label with the highest total score, if enough steps have it."""
    votes: dict[str, float] = defaultdict(float)
    for step in members:
        score = 1.0 if step.probability is None else step.probability
        if step.label and score >= min_score:
            votes[step.label] += score
    if not votes:
        return None
    best = max(votes, key=lambda label: (votes[label], label))
    share = sum(step.label == best for step in members) / len(members)
    return best if share >= MIN_LABEL_SHARE else None


def _merge_runs(steps: Sequence[Step], activity_of: np.ndarray) -> list[dict[str, Any]]:
    """Consecutive steps of one activity as one run."""
    out: list[dict[str, Any]] = []
    for step, activity in zip(steps, activity_of.tolist(), strict=True):
        if not out or out[-1]["activity"] != activity + 1:
            out.append({"activity": activity + 1, "start_s": round(step.start_s, 2)})
        out[-1]["end_s"] = round(step.end_s, 2)
    return out


def _find_long(seconds: np.ndarray, video: int) -> list[dict[str, Any]]:
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
    out.sort(key=lambda pair: -pair[1])
    return [{"activity": activity + 1, "times": round(times, 2)} for activity, times in out]


def write_folder_report(path: Path, report: FolderReport) -> list[Path]:
    """Write the page, and the same numbers as CSV and JSON next to it."""
    files = [path, path.with_suffix(".csv"), path.with_suffix(".json")]
    write_page(files[0], "folder_report.html", STYLES, report.page_data)
    write_text(files[1], report.to_csv())
    write_text(files[2], to_json(report.document))
    return files
