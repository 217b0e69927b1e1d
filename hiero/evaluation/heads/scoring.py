"""Predictions and scores of trained heads, with bootstrap intervals over clips and means over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from hiero.errors import InputError
from hiero.evaluation.grounding import RECALLS
from hiero.evaluation.heads.actionformer import ActionFormer
from hiero.evaluation.heads.clips import Clips
from hiero.evaluation.heads.head import TrainedHead
from hiero.evaluation.heads.layers import mean_pool
from hiero.evaluation.heads.token_embeddings import TokenEmbeddings
from hiero.evaluation.heads.vslnet import VSLNet, top_spans
from hiero.evaluation.metrics import Detections, first_iou, fit_probe, query_hits, top_hits
from hiero.evaluation.results import Row, Table, bootstrap_row, mean_row, weighted_means
from hiero.evaluation.tasks import localization_row

QUERY_BATCH = 256  # queries per forward pass of VSLNet
NUM_SPANS = 5  # spans that VSLNet predicts for each query
PROBE_TOPS = (1, 5)


@torch.inference_mode()
def predict_spans(
    head: TrainedHead, clips: Clips, embeddings: TokenEmbeddings
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """VSLNet's spans for each query, the true spans, and the index of each query's clip. Times are in seconds."""
    network = head.network
    assert isinstance(network, VSLNet)
    device = network.standardise.mean.device
    predicted: list[np.ndarray] = []
    for i, clip in enumerate(clips.clips):
        features = clips.features(i)
        pooled = torch.from_numpy(mean_pool(features, network.config.num_positions).astype(np.float32)).to(device)
        position_s = len(features) * clips.clock.spacing_s / len(pooled)
        for start in range(0, len(clip.truth), QUERY_BATCH):
            words, word_mask = embeddings.batch([query.text for query in clip.truth[start : start + QUERY_BATCH]])
            video = pooled.expand(len(words), -1, -1)
            mask = torch.ones(video.shape[:2], dtype=torch.bool, device=device)
            start_logits, end_logits, _ = network(video, mask, words.to(device), word_mask.to(device))
            positions, _ = top_spans(start_logits, end_logits, NUM_SPANS)
            spans = positions.cpu().numpy() + np.array([0.0, 1.0])  # a span ends where its last position ends
            predicted += list(clips.first_s(i) + spans * position_s)
    return predicted, np.concatenate([clip.spans_s for clip in clips.clips]), clips.owners


def predict_detections(head: TrainedHead, clips: Clips) -> tuple[list[Detections], list[Detections]]:
    """True steps and ActionFormer's detections of each clip, in seconds.

    Labels that the head was not trained on are numbered after its own. They are part of the truth
    but are never detected.
    """
    network = head.network
    assert isinstance(network, ActionFormer)
    device = network.standardise.mean.device
    label_index = {label: k for k, label in enumerate(dict.fromkeys([*head.labels, *clips.texts]))}
    truth, detected = [], []
    for i, clip in enumerate(clips.clips):
        true_labels = np.array([label_index[step.text] for step in clip.truth])
        truth.append(Detections(clip.spans_s, true_labels, np.zeros(len(true_labels))))
        spans, scores, labels = network.detect(torch.from_numpy(clips.features(i)).to(device))
        detected.append(Detections(clips.first_s(i) + spans * clips.clock.spacing_s, labels, scores))
    return truth, detected


def score_heads(
    heads: Sequence[TrainedHead],
    clips: Clips,
    name: str,
    embeddings: TokenEmbeddings | None = None,
    num_draws: int = 1000,
) -> Table:
    """Score heads that differ only in their seed. The table has one row with the means over the heads."""
    if len({type(head.network) for head in heads}) != 1:
        raise InputError("only heads of the same kind can be scored together")
    for head in heads:
        if head.network.config.input_size != clips.width:
            raise InputError(
                f"the head expects {head.network.config.input_size}-d features, but these are {clips.width}-d"
            )
    if isinstance(heads[0].network, VSLNet):
        embeddings = embeddings or TokenEmbeddings(clips.texts)
        rows = [_grounding_row(head, clips, embeddings, num_draws) for head in heads]
        title = "Grounding (VSLNet)"
    else:
        rows = [localization_row("", *predict_detections(head, clips), num_draws) for head in heads]
        title = "Step localization (ActionFormer)"
    num_steps = sum(len(clip.truth) for clip in clips.clips)
    notes = [f"{len(clips)} clips, {num_steps} steps or queries; mean of {len(heads)} seeds."]
    return Table(title, [mean_row(name, rows)], notes + _caveats(heads, clips))


def _caveats(heads: Sequence[TrainedHead], clips: Clips) -> list[str]:
    notes = []
    configs = [head.config for head in heads if head.config is not None]
    if len({config.seed for config in configs}) < len(configs):
        notes.append("Some of these heads have the same seed.")
    if any(config.replace(seed=0) != configs[0].replace(seed=0) for config in configs[1:]):
        notes.append("These heads differ in more than their seed.")
    if num_seen := sum(any(clip.name in head.trained_on for head in heads) for clip in clips.clips):
        notes.append(f"{num_seen} of the {len(clips)} clips were used for training: this is not a score on new video.")
    if heads[0].labels and (unknown := set(clips.texts) - set(heads[0].labels)):
        notes.append(f"{len(unknown)} labels are not in the training data; their steps count as missed.")
    return notes


def _grounding_row(head: TrainedHead, clips: Clips, embeddings: TokenEmbeddings, num_draws: int) -> Row:
    predicted, truth, owner = predict_spans(head, clips, embeddings)
    hits = query_hits(predicted, truth).reshape(len(truth), -1)
    values = np.column_stack([hits, first_iou(predicted, truth)])
    return bootstrap_row("", weighted_means(values, owner, [*RECALLS, "mIoU"]), len(clips), num_draws)


def evaluate_probe(train: Clips, test: Clips, name: str) -> Table:
    """Key-step classification of known segments: a linear classifier on the mean features of each segment."""
    label_index = {text: i for i, text in enumerate(train.texts)}
    train_labels, labels = (
        np.array([label_index.get(step.text, -1) for clip in clips.clips for step in clip.truth])
        for clips in (train, test)
    )
    is_known = labels >= 0
    if not is_known.any():
        raise InputError("none of the test labels occurs in the training data")
    classify = fit_probe(_step_means(train), train_labels, len(label_index))
    hits = top_hits(classify(_step_means(test)[is_known]), labels[is_known], PROBE_TOPS)
    means = weighted_means(hits, test.owners[is_known], [f"top-{k}" for k in PROBE_TOPS])
    num_known, num_unknown = int(is_known.sum()), int((~is_known).sum())
    note = f"{num_known} segments, {len(label_index)} labels; {num_unknown} segments with unknown labels are left out."
    return Table("Key-step classification (linear probe)", [bootstrap_row(name, means, len(test))], [note])


def _step_means(clips: Clips) -> np.ndarray:
    """Mean features of each step, over at least one segment inside its clip, (S, D)."""
    means = []
    for i in range(len(clips)):
        x = clips.features(i)
        clock = replace(clips.clock, start_s=clips.first_s(i))
        for start_s, end_s in clips.clips[i].spans_s:
            start, end = clock.span(start_s, end_s, len(x))
            means.append(x[start:end].mean(0))
    return np.stack(means)
