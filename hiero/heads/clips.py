"""Annotated clips that heads learn from: parts of videos with their features, and texts or labels with times.

Three layouts of annotations are told apart by what they hold: Ego4D's natural language queries (and step grounding, which has the
same layout), Goal-Step's hierarchy, and one's own (`hiero eval own`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hiero.data.features import features_by_name, read_feature_array
from hiero.errors import InputError
from hiero.evaluation import goalstep, own_videos
from hiero.evaluation.annotations import AnnotatedVideo
from hiero.storage.files import read_json
from hiero.types import AnnotatedStep, Clock

LOOKED_AT = 50  # clips whose lengths are compared with what the annotations say
KEPT = 2**30  # bytes of features that are kept in memory


@dataclass(frozen=True)
class Clip:
    """A part of a video: `members` are its feature files, in order. Times are seconds of the video.

    own_file: the features are those of the clip alone, which begin where it begins; otherwise they are cut out of the video's.
    """

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
    doubts: list[str] = field(default_factory=list)
    """What seems wrong with names and lengths, in words."""
    _held: dict[int, np.ndarray] = field(default_factory=dict)
    _bytes: int = 0
    _width: int | None = None

    def __len__(self) -> int:
        return len(self.clips)

    @property
    def width(self) -> int:
        return int(self.features(0).shape[1])

    def features(self, index: int) -> np.ndarray:
        """(T, D) of a clip, in half precision where it holds them; those read first stay in memory."""
        if index in self._held:
            return self._held[index].astype(np.float32)
        clip = self.clips[index]
        whole = np.concatenate([read_feature_array(file, self._width) for file in clip.members])
        self._width = whole.shape[1]
        if not clip.own_file:
            start = min(len(whole) - 1, max(0, self.clock.index(clip.start_s)))
            end = len(whole) if clip.end_s is None else max(start + 1, min(len(whole), self.clock.index(clip.end_s) + 1))
            whole = whole[start:end]
        with np.errstate(over="ignore"):
            found = whole.astype(np.float16)
        if not np.isfinite(found).all():
            found = whole.copy()
        if self._bytes < KEPT:
            self._held[index] = found
            self._bytes += found.nbytes
        return found.astype(np.float32)

    def first_s(self, index: int) -> float:
        """When the first segment of a clip begins."""
        if self.clips[index].own_file:
            return self.clips[index].start_s
        return self.clock.start_s + max(0, self.clock.index(self.clips[index].start_s)) * self.clock.spacing_s

    def spans(self, index: int) -> np.ndarray:
        """True spans (n, 2) in segments from the clip's first, as fractions."""
        seconds = np.array([[t.start_s, t.end_s] for t in self.clips[index].truth], dtype=np.float64).reshape(-1, 2)
        return (seconds - self.first_s(index)) / self.clock.spacing_s

    @property
    def texts(self) -> list[str]:
        return list(dict.fromkeys(t.text for clip in self.clips for t in clip.truth))


def read_clips(
    features: Path,
    annotations: Path,
    clock: Clock | None = None,
    groups: Path | None = None,
    only: Sequence[str] | None = None,
    but: Collection[str] = (),
) -> Clips:
    """Clips of an annotation file, in any of the three layouts, whose videos have features in the folder.

    clock: of the features; by default 30 frames a second, 16 to a segment for Ego4D's layouts, and one segment a second for
    one's own. only: names of videos or clips to take; but: names of clips to leave out.
    """
    files = features_by_name(features)
    joined = {} if groups is None else goalstep.read_groups(groups)
    clips, missing = [], []
    annotated, lengths = _annotated(annotations)
    clock = clock or (Clock(1.0, 1.0) if lengths is not None else Clock(30.0, 16.0))
    doubts = []
    if only is not None and (unknown := sorted(set(only) - {text for one in annotated for text in one[:2]})):
        doubts.append(f"{len(unknown)} names are not in {annotations}: {', '.join(unknown[:3])} …")
    for name, video, start_s, end_s, truth in annotated:
        if name in but or (only is not None and video not in only and name not in only):
            continue
        own_file = name in files and name != video
        members = [name] if own_file else [video] if video in files else joined.get(video, [video])
        if gone := [member for member in members if member not in files]:
            missing += gone
        elif truth:
            clips.append(Clip(name, tuple(files[member] for member in members), start_s, end_s, truth, own_file))
    if not clips:
        why = f"{len(missing)} have no features there" if missing else "none is named, has steps and was not taken before"
        raise InputError(f"{features}: no clip of {annotations} is left ({why})")
    out = Clips(clips, clock, missing, doubts)
    for i, clip in enumerate(clips[:LOOKED_AT] if lengths is not None else []):
        covered_s = len(out.features(i)) * clock.spacing_s
        if doubt := own_videos.doubt_length(lengths[clip.name], covered_s) if lengths is not None else None:
            doubts.append(doubt)
        if late := sum(step.start_s >= covered_s for step in clip.truth):
            doubts.append(f"{clip.name}: {late} of {len(clip.truth)} steps begin after its features end")
    return out


def _annotated(
    path: Path,
) -> tuple[list[tuple[str, str, float, float | None, tuple[AnnotatedStep, ...]]], dict[str, AnnotatedVideo] | None]:
    """name, video, start_s, end_s and truth of each clip; and for one's own layout what the annotations say of each video."""
    content = read_json(path)
    videos = content.get("videos") if isinstance(content, dict) else None
    if not isinstance(videos, list):
        mine = own_videos.read_annotations(path)
        return [(one.video, one.video, 0.0, None, tuple(one.steps)) for one in mine], {one.video: one for one in mine}
    if videos and isinstance(videos[0], dict) and "clips" in videos[0]:
        found = goalstep.read_queries(path)
    else:
        found = [(one.video, one) for one in goalstep.read_steps(path)]
    return [(name, one.video, one.start_s, one.end_s, one.steps) for name, one in found], None
