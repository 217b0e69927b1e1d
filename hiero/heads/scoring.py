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
    heads: Sequence[TrainedHead], clips: Clips, name: str, embeddings: TokenEmbeddings | None = None, num_draws: int = 1000
) -> Table:
    """One row for heads of one kind, which differ in their seed: means of scores and of intervals."""
    kinds = {head.kind for head in heads}
    if len(kinds) != 1:
        raise InputError("heads of one kind are scored together; their seeds are averaged")
    (kind,) = kinds
    for head in heads:
        if head.network.config.input_size != clips.width:
            raise InputError(f"the head takes {head.network.config.input_size}-d features, these are {clips.width}-d")
    if kind == "vslnet":
        embeddings = embeddings or TokenEmbeddings(clips.texts)
        rows = [_grounding(head, clips, embeddings, num_draws) for head in heads]
        title = "Grounding (VSLNet)"
    else:
        rows = [localization_row("", *predict_detections(head, clips), num_draws) for head in heads]
        title = "Step localization (ActionFormer)"
    notes = [f"{len(clips)} clips, {sum(len(c.truth) for c in clips.clips)} steps or queries; mean of {len(heads)} seeds."]
    return Table(title, [mean_row(name, rows)], notes + _doubts(heads, clips))


def _doubts(heads: Sequence[TrainedHead], clips: Clips) -> list[str]:
    """What makes a score less than it seems."""
    out = []
    configs = [head.config for head in heads if head.config is not None]
    if len({config.seed for config in configs}) < len(configs):
        out.append("Some of these heads have the same seed.")
    if any(config.replace(seed=0) != configs[0].replace(seed=0) for config in configs[1:]):
        out.append("These heads differ in more than their seed.")
    if seen := sum(any(clip.name in head.trained_on for head in heads) for clip in clips.clips):
        out.append(f"{seen} of the {len(clips)} clips were learned from: this is no score on new video.")
    unknown = {text for text in clips.texts if heads[0].labels and text not in heads[0].labels}
    if unknown:
        out.append(f"{len(unknown)} labels were never learned; they count as missed.")
    return out


def _grounding(head: TrainedHead, clips: Clips, embeddings: TokenEmbeddings, num_draws: int) -> Row:
    predicted, truth, owner = predict_spans(head, clips, embeddings)
    hits = recall_hits(predicted, truth)
    first = interval_iou(np.array([p[0] for p in predicted]), truth)
    return bootstrap_row("", weighted_means(np.column_stack([hits, first]), owner, [*RECALLS, "mIoU"]), len(clips), num_draws)


def evaluate_probe(train: Clips, test: Clips, name: str, tops: Sequence[int] = (1, 5)) -> Table:
    """Key-step classification with known segments: a plane for each label, on the mean of a segment's features."""
    numbers = {text: i for i, text in enumerate(train.texts)}
    known = [[j for j, t in enumerate(clip.truth) if t.text in numbers] for clip in test.clips]
    if not any(known):
        raise InputError("none of the labels to test was trained on")
    fitted = fit_probe(_means(train), np.array([numbers[t.text] for clip in train.clips for t in clip.truth]), len(numbers))
    scores = fitted(_means(test, known))
    truth = np.array([numbers[clip.truth[j].text] for clip, kept in zip(test.clips, known, strict=True) for j in kept])
    owner = np.repeat(np.arange(len(test)), [len(kept) for kept in known])
    hits = top_hits(scores, truth, tops)
    left = sum(len(clip.truth) for clip in test.clips) - len(truth)
    notes = [f"{len(truth)} segments, {len(numbers)} labels; {left} segments with labels that were not trained on are left out."]
    return Table(
        "Key-step classification (linear probe)",
        [bootstrap_row(name, weighted_means(hits, owner, [f"top-{k}" for k in tops]), len(test))],
        notes,
    )


def _means(clips: Clips, kept: Sequence[Sequence[int]] | None = None) -> np.ndarray:
    out = []
    for i in range(len(clips)):
        x, spans = clips.features(i), clips.spans(i)
        for j in range(len(spans)) if kept is None else kept[i]:
            a = min(len(x) - 1, max(0, int(spans[j, 0])))
            b = min(len(x), max(a + 1, int(np.ceil(spans[j, 1]))))
            out.append(x[a:b].mean(0))
    return np.stack(out)
