"""What trained heads predict on clips: VSLNet's spans and ActionFormer's detections, beside the truth."""

from __future__ import annotations

import numpy as np
import torch

from hiero.evaluation.metrics import Detections
from hiero.heads.actionformer import ActionFormer
from hiero.heads.clips import Clips
from hiero.heads.head import TrainedHead
from hiero.heads.layers import mean_pool
from hiero.heads.token_embeddings import TokenEmbeddings
from hiero.heads.vslnet import VSLNet, top_spans

QUERY_BATCH = 256  # queries of a clip that go through VSLNet together


@torch.inference_mode()
def predict_spans(
    head: TrainedHead, clips: Clips, embeddings: TokenEmbeddings, num_spans: int = 5
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """VSLNet's answers to all queries of all clips."""
    network = head.network
    assert isinstance(network, VSLNet)
    device = next(network.parameters()).device
    predicted: list[np.ndarray] = []
    truth, owner = [], []
    for i, clip in enumerate(clips.clips):
        features = clips.features(i)
        pooled = torch.from_numpy(mean_pool(features, network.config.num_positions).astype(np.float32)).to(device)
        position_s = len(features) * clips.clock.spacing_s / len(pooled)
        for start in range(0, len(clip.truth), QUERY_BATCH):
            queries = clip.truth[start : start + QUERY_BATCH]
            words, word_mask = embeddings.batch([query.text for query in queries])
            video = pooled.expand(len(queries), -1, -1)
            mask = torch.ones(video.shape[:2], dtype=torch.bool, device=device)
            start_logits, end_logits, _ = network(video, mask, words.to(device), word_mask.to(device))
            positions, _ = top_spans(start_logits, end_logits, num_spans)
            spans = positions.cpu().numpy() + np.array([0.0, 1.0])  # a span ends where its last position ends
            predicted += list(clips.first_s(i) + spans * position_s)
            truth += [[query.start_s, query.end_s] for query in queries]
            owner += [i] * len(queries)
    return predicted, np.array(truth), np.array(owner)


def predict_detections(head: TrainedHead, clips: Clips) -> tuple[list[Detections], list[Detections]]:
    """True steps and ActionFormer's steps of each clip, in seconds.

    Labels that the head was not trained on are numbered after its own: they are part of the truth,
    and are never detected.
    """
    network = head.network
    assert isinstance(network, ActionFormer)
    device = next(network.parameters()).device
    all_labels = [*head.labels, *(text for text in clips.texts if text not in head.labels)]
    label_index = {label: k for k, label in enumerate(all_labels)}
    truth, detected = [], []
    for i, clip in enumerate(clips.clips):
        true_spans = np.array([[step.start_s, step.end_s] for step in clip.truth])
        truth.append(
            Detections(true_spans, np.array([label_index[step.text] for step in clip.truth]), np.zeros(len(true_spans)))
        )
        spans, scores, labels = network.detect(torch.from_numpy(clips.features(i)).to(device))
        detected.append(Detections(clips.first_s(i) + spans * clips.clock.spacing_s, labels, scores))
    return truth, detected
