"""Annotated clips for training and scoring heads: parts of videos with features, texts and times."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from hiero.errors import InputError
from hiero.evaluation import goalstep
from hiero.evaluation.cases import find_members, length_warning, part_segments
from hiero.features.files import features_by_name, read_feature_array
from hiero.formats.annotations import AnnotatedVideo, read_annotations
from hiero.storage.files import read_json
from hiero.types import AnnotatedStep, Clock, format_count

NUM_CHECKED_CLIPS = 50  # number of clips whose length is compared with the annotations
CACHE_BYTES = 2**30  # features kept in memory
EGO4D_CLOCK = Clock(30.0, 16.0)
OWN_CLOCK = Clock(1.0, 1.0)


@dataclass(frozen=True)
class AnnotatedClip:
    """A part of a video, its feature files and its true steps. With `own_file`, the features begin with the clip."""

    name: str
    files: tuple[Path, ...]
    start_s: float
    end_s: float | None
    truth: tuple[AnnotatedStep, ...]
    own_file: bool = False

    @property
    def spans_s(self) -> np.ndarray:
        """True spans, (N, 2)."""
        return np.array([[step.start_s, step.end_s] for step in self.truth], dtype=np.float64).reshape(-1, 2)


@dataclass
class Clips:
    """Clips with features, which are read when they are needed."""

    clips: list[AnnotatedClip]
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
        """Features of a clip, (T, D), rounded to half precision unless that overflows."""
        if index in self._cache:
            return self._cache[index].astype(np.float32)
        clip = self.clips[index]
        x = np.concatenate([read_feature_array(file, self._width) for file in clip.files])
        self._width = x.shape[1]
        if not clip.own_file:
            x = x[part_segments(len(x), self.clock, clip.start_s, clip.end_s)]
        with np.errstate(over="ignore"):
            rounded = x.astype(np.float16)
        if not np.isfinite(rounded).all():
            rounded = x.copy()  # a view would keep the whole video in memory
        if self._cached_bytes < CACHE_BYTES:
            self._cache[index] = rounded
            self._cached_bytes += rounded.nbytes
        return rounded.astype(np.float32)  # also rounded on the first read, so that every read is the same

    def first_s(self, index: int) -> float:
        """When the first segment of a clip begins."""
        clip = self.clips[index]
        return clip.start_s if clip.own_file else self.clock.edge_s(max(0, self.clock.index(clip.start_s)))

    def spans(self, index: int) -> np.ndarray:
        """True spans of a clip in fractional segments from its start, (N, 2)."""
        return (self.clips[index].spans_s - self.first_s(index)) / self.clock.spacing_s

    @property
    def owners(self) -> np.ndarray:
        """Index of the clip that each step belongs to, (S,)."""
        return np.repeat(np.arange(len(self)), [len(clip.truth) for clip in self.clips])

    @property
    def texts(self) -> list[str]:
        """The distinct texts of all steps in the order of their first occurrence."""
        return list(dict.fromkeys(step.text for clip in self.clips for step in clip.truth))


def read_clips(
    features: Path,
    annotations: Path,
    clock: Clock | None = None,
    groups: Path | None = None,
    only: Sequence[str] | None = None,
    exclude: Collection[str] = (),
    *,
    queries: bool = False,
) -> Clips:
    """Read the clips of an annotation file whose videos have features in a folder.

    `only` and `exclude` select clips by name; `only` also accepts names of videos. The texts of steps in
    goalstep_{train,val}.json are their categories or, with `queries`, their descriptions.
    """
    files = features_by_name(features)
    group_members = {} if groups is None else goalstep.read_groups(groups)
    annotated, is_own = _read_annotations(annotations, queries)
    clips, missing, warnings = [], [], []
    if only is not None:
        unknown = sorted(set(only) - {text for name, part in annotated for text in (name, part.video)})
        if unknown:
            num_unknown = format_count(len(unknown), "name")
            warnings.append(f"{num_unknown} missing from {annotations}: {', '.join(unknown[:3])} …")
        annotated = [(name, part) for name, part in annotated if part.video in only or name in only]
    for name, part in annotated:
        if name in exclude:
            continue
        source = name if name in files else part.video
        members, absent = find_members(files, group_members, source)
        missing += absent
        if part.steps and not absent:
            own_file = source != part.video
            clips.append(AnnotatedClip(name, tuple(members), part.start_s, part.end_s, part.steps, own_file))
    if not clips:
        reason = f"{len(missing)} have no features in {features}" if missing else "all are excluded or have no steps"
        raise InputError(f"{annotations}: no clips left to use ({reason})")
    out = Clips(clips, clock or (OWN_CLOCK if is_own else EGO4D_CLOCK), missing, warnings)
    warnings += _length_warnings(out, dict(annotated))
    return out


def _read_annotations(path: Path, queries: bool) -> tuple[list[tuple[str, AnnotatedVideo]], bool]:
    """Clips with their names, and whether the file has hiero's own layout. The content decides the layout."""
    content = read_json(path)
    videos = content.get("videos") if isinstance(content, dict) else None
    if not isinstance(videos, list):
        return [(video.video, video) for video in read_annotations(path)], True
    if queries or (videos and isinstance(videos[0], dict) and "clips" in videos[0]):
        return goalstep.read_queries(path), False
    return [(video.video, video) for video in goalstep.read_steps(path)], False


def _length_warnings(clips: Clips, annotated: dict[str, AnnotatedVideo]) -> list[str]:
    """Warnings about features that are longer or shorter than the annotations say."""
    warnings = []
    for i, clip in enumerate(clips.clips[:NUM_CHECKED_CLIPS]):
        covered_s = len(clips.features(i)) * clips.clock.spacing_s
        part = annotated[clip.name]
        if part.end_s is not None:  # a part of a video, to which its features were cut
            part = replace(part, duration_s=part.end_s - part.start_s)
        if message := length_warning(part, covered_s, "--hz, or --fps and --stride"):
            warnings.append(message)
        if num_late := sum(step.start_s >= clips.first_s(i) + covered_s for step in clip.truth):
            warnings.append(f"{clip.name}: {num_late} of {len(clip.truth)} steps start after the features end")
    return warnings
