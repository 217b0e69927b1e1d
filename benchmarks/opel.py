"""A baseline of `benchmarks.captaincook4d`: frames embedded by optimal transport between videos of a task.

Written from the description of OPEL (Chowdhury et al. 2024). For each recipe a small network learns
from pairs of its videos, without labels. The frames of two videos are matched by entropic optimal
transport, whose prior prefers frames at the same share of the video and frames that look alike.
Matched frames attract each other by a contrastive loss. Within a video, near frames attract each
other and far frames repel each other (C-IDM). Each video is then cut into its true number of clusters.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.captaincook4d_data import PARTS, read_annotations, read_features, split
from benchmarks.scores import bootstrap
from hiero.evaluation.metrics import procedure_scores
from hiero.evaluation.results import Row
from hiero.steps.clustering import cluster

METHOD = "trained by optimal transport (OPEL), K-Means"
NUM_TRAINING_STEPS = 300  # for each recipe
NUM_FRAMES = 192  # of a video in a step of training, in order
SIZE = 128  # of an embedding
EPSILON, NUM_SINKHORN = 0.1, 20
PRIOR_WIDTH = 0.15  # of the temporal prior, as a share of the video
PRIOR_SHARE = 0.5  # of the temporal part in the prior
TEMPERATURE, MARGIN, NEAR_S, INTRA_WEIGHT = 0.1, 2.0, 15.0, 0.5


class FrameEmbedding(nn.Module):
    """Features (N, F) → unit vectors (N, 128)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(size, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, SIZE))

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(self.layers(x), dim=-1)


def transport(cost: Tensor, prior: Tensor) -> Tensor:
    """A cheap plan (N, M) with uniform margins near the prior, by Sinkhorn's iterations in log space."""
    log_kernel = prior.clamp_min(1e-9).log() - cost / EPSILON
    num_rows, num_columns = cost.shape
    columns = torch.zeros(num_columns)
    for _ in range(NUM_SINKHORN):
        rows = -np.log(num_rows) - torch.logsumexp(log_kernel + columns, 1)
        columns = -np.log(num_columns) - torch.logsumexp(log_kernel + rows[:, None], 0)
    return (log_kernel + rows[:, None] + columns).exp()


def pair_loss(a: Tensor, b: Tensor, times_a: Tensor, times_b: Tensor) -> Tensor:
    """Loss of a pair of videos, from embeddings (N, D) and (M, D) and their times in seconds."""
    cost = 1 - a @ b.T
    shares = [times / times.max() for times in (times_a, times_b)]
    temporal = (-(shares[0][:, None] - shares[1]).abs() / PRIOR_WIDTH).exp()
    alike = (-cost.detach() / EPSILON).softmax(1)
    prior = PRIOR_SHARE * temporal / temporal.sum() + (1 - PRIOR_SHARE) * alike / alike.sum()
    plan = transport(cost.detach(), prior)
    logits = (1 - cost) / TEMPERATURE
    matched = -(plan / plan.sum(1, keepdim=True) * logits.log_softmax(1)).sum(1).mean()
    matched = matched - (plan / plan.sum(0) * logits.log_softmax(0)).sum(0).mean()
    return matched + INTRA_WEIGHT * sum(_intra_loss(x, times) for x, times in ((a, times_a), (b, times_b)))


def _intra_loss(x: Tensor, times: Tensor) -> Tensor:
    """C-IDM: near frames are pulled together, far frames pushed apart up to a margin."""
    distance = 2 - 2 * x @ x.T
    gap_s = (times[:, None] - times).abs()
    near = gap_s <= NEAR_S
    weight = (gap_s / NEAR_S).square() + 1
    return (near * distance / weight).sum() / near.sum() + (~near * weight.log() * F.relu(MARGIN - distance)).sum() / (
        (~near) * weight.log()
    ).sum().clamp_min(1e-6)


def train(videos: list[Tensor], num_steps: int = NUM_TRAINING_STEPS, seed: int = 0) -> FrameEmbedding:
    """Learn from pairs of a recipe's videos."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    network = FrameEmbedding(videos[0].shape[1])
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=1e-4)
    for _ in range(num_steps):
        chosen = rng.choice(len(videos), 2, replace=len(videos) < 2)
        rows = [np.sort(rng.choice(len(videos[i]), min(NUM_FRAMES, len(videos[i])), replace=False)) for i in chosen]
        x = [network(videos[i][r]) for i, r in zip(chosen, rows, strict=True)]
        loss = pair_loss(*x, *(torch.from_numpy(r + 0.5).float() for r in rows))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval()


def score(source: Path, kind: str) -> dict[str, Row]:
    """F1 and IoU of the test recordings of each part, background removed."""
    annotations, features = read_annotations(source), read_features(source, kind)
    parts = split(annotations, sorted(features), "test")
    mean = torch.cat(list(features.values())).mean(0)
    features = {name: F.normalize(x - mean, dim=1) * x.shape[1] ** 0.5 / 4 for name, x in features.items()}
    scores: dict[str, list[tuple[float, float]]] = {part: [] for part in PARTS}
    for recipe in sorted({annotations[name]["recipe"] for name in features}):
        names = [name for name in features if annotations[name]["recipe"] == recipe]
        network = train([features[name] for name in names])
        for part in PARTS:
            for name in sorted(set(names) & set(parts[part])):
                with torch.inference_mode():
                    embedded = network(features[name]).numpy()
                scores[part].append(score_video(embedded, annotations[name]["steps"]))
    rows = {}
    for part, values in scores.items():
        columns = {name: bootstrap(column) for name, column in zip(("F1", "IoU"), np.transpose(values), strict=True)}
        means = {name: mean for name, (mean, _, _) in columns.items()}
        rows[part] = Row(METHOD, means, {name: (low, high) for name, (_, low, high) in columns.items()})
    return rows


def score_video(x: np.ndarray, steps: list[dict]) -> tuple[float, float]:
    """F1 and IoU in percent of as many clusters as there are steps."""
    names = {text: i for i, text in enumerate(dict.fromkeys(step["text"] for step in steps), start=1)}
    truth = np.zeros(len(x), dtype=int)
    for step in steps:
        start = min(len(x) - 1, max(0, int(step["start_s"])))
        truth[start : max(start + 1, int(np.ceil(step["end_s"])))] = names[step["text"]]
    inside = truth > 0
    labels = cluster(x[inside], len(set(truth[inside].tolist())), "k-means-cosine")
    scores = procedure_scores(labels, truth[inside])
    return 100 * scores.f1, 100 * scores.iou
