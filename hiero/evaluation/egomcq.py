"""EgoMCQ: which of five clips does a narration describe? Inter-video (type 1) and intra-video (type 2) questions.

Clips are under a second, so each is seen with up to Δ more segments on both sides; the node in the middle stands for it, and
threads are off. Windows of all questions go through the network together, sorted by length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hiero.data.stores import FeatureStore
from hiero.data.windows import context_window
from hiero.engine import Engine
from hiero.errors import InputError
from hiero.evaluation.metrics import choice_accuracy
from hiero.evaluation.results import Table, bootstrap_row, weighted_means
from hiero.storage.files import read_json

KINDS = {1: "inter", 2: "intra"}


@dataclass(frozen=True)
class Question:
    text: str
    choices: tuple[tuple[str, float, float], ...]
    """video, start_s, end_s of each."""
    answer: int
    kind: str
    video: str


def read_questions(path: Path) -> list[Question]:
    """The questions of egomcq.json, as EgoVLP publishes it."""
    content = read_json(path, "; EgoVLP's page has egomcq.json")
    try:
        out = []
        for item in content.values():
            ordered = [item["choices"][str(i)] for i in range(len(item["choices"]))]
            choices = tuple((c["video_uid"], float(c["clip_start"]), float(c["clip_end"])) for c in ordered)
            answer = int(item["answer"])
            kind = KINDS[int(item["types"])]
            out.append(Question(item["query"]["clip_text"], choices, answer, kind, choices[answer][0]))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise InputError(f"{path}: not EgoMCQ's questions ({type(error).__name__}: {error})") from error
    if not out:
        raise InputError(f"{path}: holds no questions")
    return out


def evaluate_egomcq(
    engine: Engine,
    store: FeatureStore,
    questions: list[Question],
    context: int = 4,
    batch_size: int = 2048,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[Table, list[str]]:
    """Accuracy of both kinds, and the videos that are not in the store: their questions are left out and counted."""
    missing = sorted({video for q in questions for video, _, _ in q.choices if video not in store})
    gone = set(missing)
    asked = [q for q in questions if not any(video in gone for video, _, _ in q.choices)]
    if not asked:
        raise InputError(f"none of the {len(questions)} questions has all its videos in {store.folder} (missing {missing[:3]} …)")
    clips = list(dict.fromkeys(choice for q in asked for choice in q.choices))
    places = {clip: i for i, clip in enumerate(clips)}
    vectors = embed_clips(engine, store, clips, context, batch_size, progress)
    texts = list(dict.fromkeys(q.text for q in asked))
    words = dict(zip(texts, engine.encode(texts)[1], strict=True))
    videos = {video: i for i, video in enumerate(dict.fromkeys(q.video for q in asked))}
    parts = {}
    for kind in KINDS.values():
        mine = [q for q in asked if q.kind == kind]
        if mine:
            chosen = vectors[np.array([[places[choice] for choice in q.choices] for q in mine])]
            likeness = np.einsum("qce,qe->qc", chosen, np.stack([words[q.text] for q in mine]))
            right = choice_accuracy(likeness, np.array([q.answer for q in mine]))
            parts[kind] = right[:, None], np.array([videos[q.video] for q in mine])

    def values(weights: np.ndarray) -> dict[str, float]:
        return {kind: weighted_means(right, owner, [kind])(weights)[kind] for kind, (right, owner) in parts.items()}

    note = f"{len(asked)} of {len(questions)} questions, Δ = {context}; {len(missing)} videos without features."
    return Table("EgoMCQ, accuracy (%)", [bootstrap_row(engine.name, values, len(videos))], [note]), missing


def embed_clips(
    engine: Engine,
    store: FeatureStore,
    clips: list[tuple[str, float, float]],
    context: int,
    batch_size: int = 2048,
    progress: Callable[[int], None] = lambda _: None,
) -> np.ndarray:
    """The unit vector of each clip's middle node (N, E), in the space shared with text. Clips beyond their video are all zeros."""
    import torch

    model = engine.model
    if model is None:
        raise InputError("EgoMCQ compares with words: raw features have none; give a trained model (--model)")
    device = next(model.parameters()).device
    windows = [context_window(store.num_segments(video), store.clock, a, b, context) for video, a, b in clips]
    lengths = np.array([max(0, window.num_nodes) for window in windows])
    first = np.array([store.first_row(video) + w.start for (video, _, _), w in zip(clips, windows, strict=True)])
    out = np.zeros((len(clips), model.config.embedding_size), dtype=np.float32)
    with torch.inference_mode():
        for length in np.unique(lengths):
            same = np.flatnonzero(lengths == length)
            for start in range(0, len(same), batch_size):
                part = same[start : start + batch_size]
                if length == 0:  # the release puts one zero segment there
                    features = np.zeros((len(part), 1, store.width), dtype=np.float32)
                else:
                    features = store.rows(first[part][:, None] + np.arange(length))
                nodes = model(torch.from_numpy(features).to(device), spacing_s=store.clock.spacing_s, threads=False)[0].features
                out[part] = model.embed_video(nodes[:, nodes.shape[1] // 2]).float().cpu().numpy()
                progress(len(part))
    return out
