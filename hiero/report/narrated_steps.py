"""The figure of narrations around steps, from the files that users have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hiero.data.narrations import read_narrations
from hiero.engine import Engine
from hiero.errors import InputError
from hiero.evaluation.own_videos import read_annotations, read_case
from hiero.report.figures import narration_figure
from hiero.types import Clock

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def narrated_steps_figure(
    engine: Engine,
    narrations: Path,
    annotations: Path,
    video: str,
    *,
    features: Path | None = None,
    clock: Clock | None = None,
    seed: int = 0,
    log: Callable[[str], None] = lambda _: None,
) -> Figure:
    """t-SNE of the narrations of a video around the labels of the steps that they fall into."""
    spoken = [narration for narration in read_narrations(narrations) if narration.video == video]
    annotated = [entry for entry in read_annotations(annotations) if entry.video == video]
    if not spoken or not annotated:
        raise InputError(f"{video}: not in {narrations if not spoken else annotations}")
    steps = [(step.start_s, step.end_s, step.text) for step in annotated[0].steps]
    if features is not None:
        case, warning = read_case(engine, features, annotations, video, clock)
        if warning:
            log(warning)
        predicted = case.video.label([text for _, _, text in steps])
        steps = [(step.start_s, step.end_s, step.label or "") for step in predicted]
    names = list(dict.fromkeys(text for _, _, text in steps))
    # Steps may overlap: a narration then counts for each of them.
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
