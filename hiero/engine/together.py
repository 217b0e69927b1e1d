"""The steps of several videos of one task, with the same number and name for the same step in all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hiero.engine.video import Video
from hiero.errors import InputError
from hiero.steps.correspondence import centre_steps, join_features
from hiero.steps.hierarchy import default_step_counts
from hiero.steps.shared_steps import share_steps
from hiero.types import Hierarchy, Step


def steps_together(
    videos: Sequence[Video], num_steps: int | None = None, labels: Sequence[str] | None = None
) -> list[Hierarchy]:
    """One level of steps for each video. The thread of a step is its number in the usual order of all videos."""
    if len(videos) < 2:
        raise InputError(f"a procedure needs at least two videos of one task, got {len(videos)}")
    counts = [num_steps or default_step_counts(video.duration_s, len(video.nodes))[-1] for video in videos]
    found = [video.steps([num], labels=labels) for video, num in zip(videos, counts, strict=True)]
    levels = [hierarchy.levels[0] for hierarchy in found]
    vectors = _describe(videos, [video.sight.level_spans(level) for video, level in zip(videos, levels, strict=True)])
    places = [
        np.array([(step.start_s + step.end_s) / 2 / video.duration_s for step in level])
        for video, level in zip(videos, levels, strict=True)
    ]
    shared = share_steps(vectors, places)
    numbered = [
        [replace(step, thread=int(number)) for step, number in zip(level, numbers, strict=True)]
        for level, numbers in zip(levels, shared, strict=True)
    ]
    names = _common_names([step for level in numbered for step in level])
    return [
        replace(hierarchy, levels=(tuple(replace(step, **names[step.thread]) for step in level),))
        for hierarchy, level in zip(found, numbered, strict=True)
    ]


def _describe(videos: Sequence[Video], spans: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Centred vectors of the steps of each video, joined with the backbone's features if all videos have them."""
    own = [video.sight.embed_spans(rows) for video, rows in zip(videos, spans, strict=True)]
    features = [video.sight.average_features(rows) for video, rows in zip(videos, spans, strict=True)]
    kept = [rows for rows in features if rows is not None]
    if 0 < len(kept) < len(videos):
        raise InputError("videos cannot be compared with feature files of another network; give one kind only")
    if len({rows.shape[1] for rows in kept}) == 1 and len(kept) == len(videos):
        return [join_features(*pair) for pair in zip(own, kept, strict=True)]
    return [centre_steps(rows) for rows in own]


def _common_names(steps: Sequence[Step]) -> dict[int, dict[str, Any]]:
    """The label of each shared step with the largest sum of probabilities, if one of its steps has a label."""
    out: dict[int, dict[str, Any]] = {}
    for number in {step.thread for step in steps}:
        members = [step for step in steps if step.thread == number]
        sums: defaultdict[str, float] = defaultdict(float)
        for step in members:
            if step.label is not None:
                sums[step.label] += step.probability or 0.0
        label = max(sums, key=lambda name: sums[name], default=None)
        out[number] = {"label": label, "probability": None if label is None else sums[label] / len(members)}
    return out
