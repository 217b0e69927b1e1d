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
from hiero.heads.vslnet import VSLNet, best_spans


@torch.inference_mode()
def predict_spans(
    head: TrainedHead, clips: Clips, embeddings: TokenEmbeddings, num: int = 5
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """VSLNet's best spans in seconds for each query of each clip, the true spans (Q, 2), and the clip of each (Q,)."""
    network = head.network
    assert isinstance(network, VSLNet)
    device = next(network.parameters()).device
    predicted: list[np.ndarray] = []
    truth, owner = [], []
    for i, clip in enumerate(clips.clips):
        features = clips.features(i)
        row = torch.from_numpy(mean_pool(features, network.config.num_positions).astype(np.float32)).to(device)
        step = len(features) * clips.clock.spacing_s / len(row)
        for start in range(0, len(clip.truth), 256):
            part = clip.truth[start : start + 256]
            inputs = embeddings.batch([t.text for t in part])
            video = row.expand(len(part), -1, -1)
            seen = torch.ones(video.shape[:2], dtype=torch.bool, device=device)
            first, last, _ = network(video, seen, *(x.to(device) for x in inputs))
            places, _ = best_spans(first, last, num)
            spans = places.cpu().numpy() + np.array([0.0, 1.0])
            predicted += list(clips.first_s(i) + spans * step)
            truth += [[t.start_s, t.end_s] for t in part]
            owner += [i] * len(part)
    return predicted, np.array(truth), np.array(owner)


def predict_detections(head: TrainedHead, clips: Clips) -> tuple[list[Detections], list[Detections]]:
    """True and found steps of each clip, in seconds. Labels that the head does not know are true all the same."""
    network = head.network
    assert isinstance(network, ActionFormer)
    device = next(network.parameters()).device
    places = {label: k for k, label in enumerate([*head.labels, *(t for t in clips.texts if t not in head.labels)])}
    truth, found = [], []
    for i, clip in enumerate(clips.clips):
        spans = np.array([[t.start_s, t.end_s] for t in clip.truth])
        truth.append(Detections(spans, np.array([places[t.text] for t in clip.truth]), np.zeros(len(spans))))
        boxes, scores, labels = network.detect(torch.from_numpy(clips.features(i)).to(device))
        found.append(Detections(clips.first_s(i) + boxes * clips.clock.spacing_s, labels, scores))
    return truth, found
