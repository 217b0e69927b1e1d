"""Scores of trained heads, with intervals over clips and means over seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hiero.errors import InputError
from hiero.evaluation.grounding import RECALLS, recall_hits
from hiero.evaluation.linear_probe import fit_probe
from hiero.evaluation.localization import localization_row
from hiero.evaluation.metrics import interval_iou, top_hits
from hiero.evaluation.results import Row, Table, bootstrap_row, mean_row, weighted_means
from hiero.heads.clips import Clips
from hiero.heads.head import TrainedHead
from hiero.heads.prediction import predict_detections, predict_spans
from hiero.heads.token_embeddings import TokenEmbeddings


def score_heads(
    heads: Sequence[TrainedHead],
    clips: Clips,
    name: str,
    embeddings: TokenEmbeddings | None = None,
    num_draws: int = 1000,
) -> Table:
    """Score heads that differ in their seed, as one row: means of scores and of intervals."""
    kinds = {head.kind for head in heads}
    if len(kinds) != 1:
        raise InputError("heads of one kind are scored together; their seeds are averaged")
    (kind,) = kinds
    for head in heads:
        if head.network.config.input_size != clips.width:
            raise InputError(f"the head takes {head.network.config.input_size}-d features, these are {clips.width}-d")
    if kind == "vslnet":
        embeddings = embeddings or TokenEmbeddings(clips.texts)
        rows = [_grounding_row(head, clips, embeddings, num_draws) for head in heads]
        title = "Grounding (VSLNet)"
    else:
        rows = [localization_row("", *predict_detections(head, clips), num_draws) for head in heads]
        title = "Step localization (ActionFormer)"
    num_steps = sum(len(clip.truth) for clip in clips.clips)
    notes = [f"{len(clips)} clips, {num_steps} steps or queries; mean of {len(heads)} seeds."]
    return Table(title, [mean_row(name, rows)], notes + _warnings(heads, clips))


def _warnings(heads: Sequence[TrainedHead], clips: Clips) -> list[str]:
    """Notes on what makes a score less than it seems."""
    warnings = []
    configs = [head.config for head in heads if head.config is not None]
    if len({config.seed for config in configs}) < len(configs):
        warnings.append("Some of these heads have the same seed.")
    if any(config.replace(seed=0) != configs[0].replace(seed=0) for config in configs[1:]):
        warnings.append("These heads differ in more than their seed.")
    if num_seen := sum(any(clip.name in head.trained_on for head in heads) for clip in clips.clips):
        warnings.append(f"{num_seen} of the {len(clips)} clips were learned from: this is no score on new video.")
    unknown = {text for text in clips.texts if heads[0].labels and text not in heads[0].labels}
    if unknown:
        warnings.append(f"{len(unknown)} labels were never learned; they count as missed.")
    return warnings


def _grounding_row(head: TrainedHead, clips: Clips, embeddings: TokenEmbeddings, num_draws: int) -> Row:
    predicted, truth, owner = predict_spans(head, clips, embeddings)
    hits = recall_hits(predicted, truth)
    best_iou = interval_iou(np.array([spans[0] for spans in predicted]), truth)
    return bootstrap_row(
        "", weighted_means(np.column_stack([hits, best_iou]), owner, [*RECALLS, "mIoU"]), len(clips), num_draws
    )


def evaluate_probe(train: Clips, test: Clips, name: str, tops: Sequence[int] = (1, 5)) -> Table:
    """Key-step classification with known segments: a linear classifier on the mean of a segment's features."""
    label_index = {text: i for i, text in enumerate(train.texts)}
    known_steps = [[j for j, step in enumerate(clip.truth) if step.text in label_index] for clip in test.clips]
    if not any(known_steps):
        raise InputError("none of the labels to test was trained on")
    train_labels = np.array([label_index[step.text] for clip in train.clips for step in clip.truth])
    classify = fit_probe(_step_means(train), train_labels, len(label_index))
    scores = classify(_step_means(test, known_steps))
    truth = np.array(
        [label_index[clip.truth[j].text] for clip, steps in zip(test.clips, known_steps, strict=True) for j in steps]
    )
    owner = np.repeat(np.arange(len(test)), [len(steps) for steps in known_steps])
    hits = top_hits(scores, truth, tops)
    num_left = sum(len(clip.truth) for clip in test.clips) - len(truth)
    notes = [
        f"{len(truth)} segments, {len(label_index)} labels; {num_left} segments with labels that were not trained "
        "on are left out."
    ]
    return Table(
        "Key-step classification (linear probe)",
        [bootstrap_row(name, weighted_means(hits, owner, [f"top-{k}" for k in tops]), len(test))],
        notes,
    )


def _step_means(clips: Clips, steps: Sequence[Sequence[int]] | None = None) -> np.ndarray:
    """Mean features of all steps, or of those with these indices in each clip: (N, D)."""
    out = []
    for i in range(len(clips)):
        x, spans = clips.features(i), clips.spans(i)
        for j in range(len(spans)) if steps is None else steps[i]:
            # At least one segment, and inside the clip.
            start = min(len(x) - 1, max(0, int(spans[j, 0])))
            end = min(len(x), max(start + 1, int(np.ceil(spans[j, 1]))))
            out.append(x[start:end].mean(0))
    return np.stack(out)
