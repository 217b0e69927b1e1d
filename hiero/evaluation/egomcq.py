"""EgoMCQ: which of five clips does a narration describe? The clips come from several videos or from one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hiero.engine import Engine
from hiero.errors import InputError
from hiero.evaluation.metrics import choice_accuracy
from hiero.evaluation.parsing import parsing
from hiero.evaluation.results import Table, accuracy_by_kind, bootstrap_row
from hiero.features.stores import FeatureStore
from hiero.model.ensemble import HieroEnsemble
from hiero.model.hiero import HiERO
from hiero.storage.files import read_json
from hiero.types import Clock, Window
from hiero.vectors import unit_vectors

NUM_CHOICES = 5
KINDS = {1: "inter", 2: "intra"}
DEFAULT_CONTEXT = 4  # Δ of the paper
Clip = tuple[str, float, float]
"""(video, start_s, end_s)."""


def context_window(num_segments: int, clock: Clock, start_s: float, end_s: float, context: int) -> Window:
    """The window of a clip with the same number of segments before and after it. Its times start at 0.

    A clip that begins at the end of the video or later has no nodes (the release has a zero segment
    for one at the very end). Node num_nodes // 2 represents the clip.
    """
    start = clock.index(start_s)
    end = min(num_segments, max(start + 1, clock.index(end_s)))
    margin = max(0, min(context, start, num_segments - end))
    return Window(start - margin, end + margin, Clock(clock.fps, clock.stride))


@dataclass(frozen=True)
class Question:
    """A narration and five clips, one of which it describes."""

    text: str
    choices: tuple[Clip, ...]
    answer: int
    kind: str
    video: str


def read_questions(path: Path) -> list[Question]:
    """Read egomcq.json as EgoVLP publishes it."""
    content = read_json(path, "; get egomcq.json from https://github.com/showlab/EgoVLP")
    questions = []
    with parsing(f"{path}: not a file with the questions of EgoMCQ"):
        for item in content.values():
            ordered = [item["choices"][str(i)] for i in range(len(item["choices"]))]
            choices = tuple((c["video_uid"], float(c["clip_start"]), float(c["clip_end"])) for c in ordered)
            answer = range(NUM_CHOICES)[int(item["answer"])]
            if len(choices) != NUM_CHOICES or not all(0 <= start_s <= end_s for _, start_s, end_s in choices):
                raise ValueError(f"expected {NUM_CHOICES} clips with times: {item['choices']}")
            kind = KINDS[int(item["types"])]
            questions.append(Question(item["query"]["clip_text"], choices, answer, kind, choices[answer][0]))
    if not questions:
        raise InputError(f"{path}: the file has no questions")
    return questions


def evaluate_egomcq(
    engine: Engine,
    store: FeatureStore,
    questions: list[Question],
    context: int = DEFAULT_CONTEXT,
    batch_size: int = 2048,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[Table, list[str]]:
    """Accuracy on both kinds of question, and the missing videos, whose questions are left out."""
    absent = {video for q in questions for video, _, _ in q.choices if video not in store}
    missing = sorted(absent)
    answerable = [q for q in questions if not any(video in absent for video, _, _ in q.choices)]
    if not answerable:
        raise InputError(f"{store.folder}: no question has features for all its videos (missing {missing[:3]} …)")
    texts = list(dict.fromkeys(q.text for q in answerable))
    text_vectors = dict(zip(texts, engine.encode(texts)[1], strict=True))  # first, since a model may lack its encoder
    clips = list(dict.fromkeys(choice for q in answerable for choice in q.choices))
    num_late = sum(store.clock.index(start_s) >= store.num_segments(video) for video, start_s, _ in clips)
    if 2 * num_late > len(clips):
        raise InputError(
            f"{store.folder}: {num_late} of {len(clips)} clips begin after the features of their video end; pack the "
            "features with their true --fps and --stride"
        )
    clip_index = {clip: i for i, clip in enumerate(clips)}
    clip_vectors = embed_clips(engine, store, clips, context, batch_size, progress)
    video_index = {video: i for i, video in enumerate(dict.fromkeys(q.video for q in answerable))}
    answers = {}
    for kind in KINDS.values():
        group = [q for q in answerable if q.kind == kind]
        if group:
            choices = clip_vectors[np.array([[clip_index[choice] for choice in q.choices] for q in group])]
            similarity = np.einsum("qce,qe->qc", choices, np.stack([text_vectors[q.text] for q in group]))
            correct = choice_accuracy(similarity, np.array([q.answer for q in group]))
            answers[kind] = correct, np.array([video_index[q.video] for q in group])
    row = bootstrap_row(engine.name, accuracy_by_kind(answers), len(video_index))
    note = f"{len(answerable)} of {len(questions)} questions, Δ = {context}; {len(missing)} videos without features."
    note += f" {num_late} clips begin after the features of their video end." if num_late else ""
    return Table("EgoMCQ, accuracy (%)", [row], [note]), missing


def embed_clips(
    engine: Engine,
    store: FeatureStore,
    clips: Sequence[Clip],
    context: int,
    batch_size: int = 2048,
    progress: Callable[[int], None] = lambda _: None,
) -> np.ndarray:
    """Embed each clip as a unit vector in the space shared with text.

    Clips are shorter than a second, so up to `context` more segments are used on both sides. A model gives the
    middle node; without one, the vector is the mean feature.
    """
    model = engine.model
    if model is None and not engine.has_text:
        raise InputError("EgoMCQ needs text, and these features have none; choose --model FOLDER or --model egovlp")
    windows = [
        context_window(store.num_segments(video), store.clock, start_s, end_s, context)
        for video, start_s, end_s in clips
    ]
    lengths = np.array([window.num_nodes for window in windows])
    first_rows = np.array([store.first_row(video) + w.start for (video, _, _), w in zip(clips, windows, strict=True)])
    size = store.width if model is None else model.config.embedding_size
    out = np.zeros((len(clips), size), dtype=np.float32)
    for length in np.unique(lengths):  # a batch of equal lengths needs no padding
        same_length = np.flatnonzero(lengths == length)
        for start in range(0, len(same_length), batch_size):
            batch = same_length[start : start + batch_size]
            if length == 0:  # the clip is beyond the end of the video: the release uses one zero segment
                features = np.zeros((len(batch), 1, store.width), dtype=np.float32)
            else:
                features = store.rows(first_rows[batch][:, None] + np.arange(length))
            if model is None:
                out[batch] = unit_vectors(features.mean(1))
            else:
                out[batch] = _embed_middle(model, features, store.clock.spacing_s)
            progress(len(batch))
    return out


@torch.inference_mode()
def _embed_middle(model: HiERO | HieroEnsemble, features: np.ndarray, spacing_s: float) -> np.ndarray:
    """Embed the middle node of each window, (B, T, D) → (B, E). Threads are off."""
    inputs = torch.from_numpy(features).to(next(model.parameters()).device)
    nodes = model(inputs, spacing_s=spacing_s, threads=False)[0].features
    return model.embed_video(nodes[:, nodes.shape[1] // 2]).float().cpu().numpy()
