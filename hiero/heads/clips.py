"""Annotated clips that heads learn from: parts of videos with their features, and texts or labels with times."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hiero.data.features import features_by_name, read_feature_array
from hiero.errors import InputError
from hiero.evaluation import goalstep, own_videos
from hiero.evaluation.cases import AnnotatedVideo
from hiero.storage.files import read_json
from hiero.types import AnnotatedStep, Clock

NUM_CHECKED = 50  # clips whose lengths are compared with those of the annotations
CACHE_BYTES = 2**30  # of features that stay in memory
EGO4D_CLOCK = Clock(30.0, 16.0)
OWN_CLOCK = Clock(1.0, 1.0)


@dataclass(frozen=True)
class Clip:
    """A part of a video."""

    name: str
    members: tuple[Path, ...]
    start_s: float
    end_s: float | None
    truth: tuple[AnnotatedStep, ...]
    own_file: bool = False


@dataclass
class Clips:
    """Clips that have features, read when they are needed."""

    clips: list[Clip]
    clock: Clock
    missing: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _cache: dict[int, np.ndarray] = field(default_factory=dict)
    _cached_bytes: int = 0
    _width: int | None = None

    def __len__(self) -> int:
        return len(self.clips)

    @property
    def width(self) -> int:
        return int(self.features(0).shape[1])

    def features(self, index: int) -> np.ndarray:
        """Features of a clip, (T, D), rounded to half precision where that can hold them."""
        if index in self._cache:
            return self._cache[index].astype(np.float32)
        clip = self.clips[index]
        x = np.concatenate([read_feature_array(file, self._width) for file in clip.members])
        self._width = x.shape[1]
        if not clip.own_file:
            start = min(len(x) - 1, max(0, self.clock.index(clip.start_s)))
            end = len(x) if clip.end_s is None else max(start + 1, min(len(x), self.clock.index(clip.end_s) + 1))
            x = x[start:end]
        with np.errstate(over="ignore"):
            rounded = x.astype(np.float16)
        if not np.isfinite(rounded).all():
            rounded = x.copy()  # not a view, which would hold the whole video in memory
        if self._cached_bytes < CACHE_BYTES:
            self._cache[index] = rounded
            self._cached_bytes += rounded.nbytes
        return rounded.astype(np.float32)  # rounded on the first read too: every read gives the same numbers

    def first_s(self, index: int) -> float:
        """When the first segment of a clip begins."""
        if self.clips[index].own_file:
            return self.clips[index].start_s
        return self.clock.start_s + max(0, self.clock.index(self.clips[index].start_s)) * self.clock.spacing_s

    def spans(self, index: int) -> np.ndarray:
        """True spans of a clip in segments from its first, with fractions, (N, 2)."""
        spans_s = np.array([[step.start_s, step.end_s] for step in self.clips[index].truth], dtype=np.float64).reshape(
            -1, 2
        )
        return (spans_s - self.first_s(index)) / self.clock.spacing_s

    @property
    def texts(self) -> list[str]:
        """The different texts of all steps, in the order in which they first occur."""
        return list(dict.fromkeys(step.text for clip in self.clips for step in clip.truth))


def read_clips(
    features: Path,
    annotations: Path,
    clock: Clock | None = None,
    groups: Path | None = None,
    only: Sequence[str] | None = None,
    exclude: Collection[str] = (),
) -> Clips:
    """Clips of an annotation file whose videos have features in a folder."""
    files = features_by_name(features)
    group_members = {} if groups is None else goalstep.read_groups(groups)
    annotated, own_layout = _read_annotations(annotations)
    clock = clock or (OWN_CLOCK if own_layout is not None else EGO4D_CLOCK)
    problems = []
    if only is not None and (
        unknown := sorted(set(only) - {text for name, part in annotated for text in (name, part.video)})
    ):
        problems.append(f"{len(unknown)} names are not in {annotations}: {', '.join(unknown[:3])} …")
    clips, missing = [], []
    for name, part in annotated:
        if name in exclude or (only is not None and part.video not in only and name not in only):
            continue
        own_file = name in files and name != part.video
        members = (
            [name] if own_file else [part.video] if part.video in files else group_members.get(part.video, [part.video])
        )
        if absent := [member for member in members if member not in files]:
            missing += absent
        elif part.steps:
            member_files = tuple(files[member] for member in members)
            clips.append(Clip(name, member_files, part.start_s, part.end_s, tuple(part.steps), own_file))
    if not clips:
        reason = (
            f"{len(missing)} have no features there" if missing else "none is named, has steps and was not taken before"
        )
        raise InputError(f"{features}: no clip of {annotations} is left ({reason})")
    out = Clips(clips, clock, missing, problems)
    if own_layout is not None:
        problems += _length_problems(out, own_layout)
    return out


def _read_annotations(path: Path) -> tuple[list[tuple[str, AnnotatedVideo]], dict[str, AnnotatedVideo] | None]:
    """Clips by name; and for one's own layout, the annotations of each video."""
    # The three layouts are told apart by what they hold.
    content = read_json(path)
    videos = content.get("videos") if isinstance(content, dict) else None
    if not isinstance(videos, list):
        annotated = own_videos.read_annotations(path)
        return [(video.video, video) for video in annotated], {video.video: video for video in annotated}
    if videos and isinstance(videos[0], dict) and "clips" in videos[0]:
        return goalstep.read_queries(path), None
    return [(video.video, video) for video in goalstep.read_steps(path)], None


def _length_problems(clips: Clips, annotated: dict[str, AnnotatedVideo]) -> list[str]:
    """Messages about features that are longer or shorter than the annotations say."""
    problems = []
    for i, clip in enumerate(clips.clips[:NUM_CHECKED]):
        covered_s = len(clips.features(i)) * clips.clock.spacing_s
        if message := own_videos.length_warning(annotated[clip.name], covered_s):
            problems.append(message)
        if num_late := sum(step.start_s >= covered_s for step in clip.truth):
            problems.append(f"{clip.name}: {num_late} of {len(clip.truth)} steps begin after its features end")
    return problems
