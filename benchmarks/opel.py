"""A trained baseline for procedure learning: frames embedded by optimal transport between videos of a
task, then clustered.

    python -m benchmarks.opel [--source ../shared/captaincook4d] [--steps 300]

In the spirit of OPEL (Chowdhury et al. 2024) on Omnivore features, written from its description:
for each recipe a small network learns, without labels, from pairs of its videos. Frames of one
video are matched with those of the other by entropic optimal transport, whose prior is a mixture of
"at the same share of the video" and "whatever looks alike"; matched frames are pulled together by a
contrastive loss, and within a video frames that are near in time are, those far apart are not
(C-IDM). Then each video is cut into its true number of clusters. Scored on the recordings and by
the measure of docs/results.md (background removed).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.captaincook4d_data import PARTS, read_annotations, read_features, split
from hiero.evaluation.metrics import procedure_scores
from hiero.steps.clustering import cluster

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
    """The plan (N, M) with uniform margins that is cheap and near the prior: Sinkhorn's iterations, in logarithms."""
    log_kernel = prior.clamp_min(1e-9).log() - cost / EPSILON
    num_rows, num_columns = cost.shape
    columns = torch.zeros(num_columns)
    for _ in range(NUM_SINKHORN):
        rows = -np.log(num_rows) - torch.logsumexp(log_kernel + columns, 1)
        columns = -np.log(num_columns) - torch.logsumexp(log_kernel + rows[:, None], 0)
    return (log_kernel + rows[:, None] + columns).exp()


def pair_loss(a: Tensor, b: Tensor, times_a: Tensor, times_b: Tensor) -> Tensor:
    """What a pair of videos teaches: embeddings (N, D), (M, D) and their times in seconds."""
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
    """C-IDM: frames near in time are alike, those far apart differ by a margin."""
    distance = 2 - 2 * x @ x.T
    gap_s = (times[:, None] - times).abs()
    near = gap_s <= NEAR_S
    weight = (gap_s / NEAR_S).square() + 1
    return (near * distance / weight).sum() / near.sum() + (~near * weight.log() * F.relu(MARGIN - distance)).sum() / (
        (~near) * weight.log()
    ).sum().clamp_min(1e-6)


def train(videos: list[Tensor], num_steps: int, seed: int) -> FrameEmbedding:
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


def score_video(x: np.ndarray, steps: list[dict], algorithm: str) -> tuple[float, float]:
    """F1 and IoU of the true number of clusters, background removed."""
    names = {text: i for i, text in enumerate(dict.fromkeys(step["text"] for step in steps), start=1)}
    truth = np.zeros(len(x), dtype=int)
    for step in steps:
        start = min(len(x) - 1, max(0, int(step["start_s"])))
        truth[start : max(start + 1, int(np.ceil(step["end_s"])))] = names[step["text"]]
    inside = truth > 0
    labels = cluster(x[inside], len(set(truth[inside].tolist())), algorithm)
    scores = procedure_scores(labels, truth[inside])
    return 100 * scores.f1, 100 * scores.iou


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=Path("../shared/captaincook4d"))
    parser.add_argument("--steps", type=int, default=300, help="of training, for each recipe")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    annotations, features = read_annotations(args.source), read_features(args.source, "omnivore")
    parts = split(annotations, sorted(features), "test")
    mean = torch.cat(list(features.values())).mean(0)
    features = {name: F.normalize(x - mean, dim=1) * x.shape[1] ** 0.5 / 4 for name, x in features.items()}
    results: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for recipe in sorted({name.split("_")[0] for name in features}, key=int):
        names = [name for name in features if name.split("_")[0] == recipe]
        network = train([features[name] for name in names], args.steps, args.seed)
        for part in PARTS:
            for name in sorted(set(names) & set(parts[part])):
                with torch.inference_mode():
                    embedded = network(features[name]).numpy()
                raw, steps = features[name].numpy(), annotations[name]["steps"]
                for method, x, algorithm in (
                    ("optimal transport, K-Means", embedded, "k-means-cosine"),
                    ("optimal transport, spectral", embedded, "spectral"),
                    ("raw, K-Means (cosine)", raw, "k-means-cosine"),
                    ("raw, spectral", raw, "spectral"),
                    ("equal parts", raw, "equal-parts"),
                ):
                    results.setdefault((method, part), []).append(score_video(x, steps, algorithm))
        print(f"recipe {recipe}: {len(names)} recordings", flush=True)
    print("| | seen F1 | seen IoU | unseen F1 | unseen IoU |\n|---|---|---|---|---|")
    for method in dict.fromkeys(method for method, _ in results):
        cells = [f"{value:.1f}" for part in PARTS for value in np.mean(results[method, part], axis=0)]
        print(f"| {method} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
