"""Which sentence encoder suits pictures: a small head for each on the same pairs, and recall on held-out ones.

python -m benchmarks.sentence_encoders PICTURES.npy TEXTS.npz

PICTURES.npy: (N, D), such as class token and mean patch of DINOv2; TEXTS.npz: for each encoder an
array (N, S), the first sentence of each picture. The first 1,000 pairs are held out. See
`benchmarks.words` for where pictures and sentences come from.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

HELD_OUT, EPOCHS, BATCH_SIZE, SCALE = 1000, 25, 500, 20.0


def train_head(pictures: Tensor, texts: Tensor, seed: int = 0) -> dict[str, float]:
    """Recall in percent of a two-layer head on either side, learned from all but the first 1,000 pairs."""
    torch.manual_seed(seed)

    def side(size: int) -> nn.Module:
        return nn.Sequential(nn.Linear(size, 1024), nn.GELU(), nn.Dropout(0.3), nn.Linear(1024, 256))

    sides = nn.ModuleList([side(pictures.shape[1]), side(texts.shape[1])])
    optimizer = torch.optim.AdamW(sides.parameters(), lr=1e-3, weight_decay=0.1)
    num_steps = EPOCHS * -(-(len(pictures) - HELD_OUT) // BATCH_SIZE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=num_steps)

    def similarity(rows: Tensor) -> Tensor:
        embedded = [F.normalize(head(x[rows])) for head, x in zip(sides, (pictures, texts), strict=True)]
        return embedded[1] @ embedded[0].T

    for _ in range(EPOCHS):
        for rows in (HELD_OUT + torch.randperm(len(pictures) - HELD_OUT)).split(BATCH_SIZE):
            logits, target = SCALE * similarity(rows), torch.arange(len(rows))
            loss = F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    sides.eval()
    with torch.inference_mode():
        scores = similarity(torch.arange(HELD_OUT))
    rank = (scores > scores.diagonal()[:, None]).sum(1).float()
    return {f"R@{k}": 100 * float((rank < k).float().mean()) for k in (1, 5)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", type=Path)
    parser.add_argument("texts", type=Path)
    args = parser.parse_args()
    pictures = torch.from_numpy(np.load(args.pictures)).float()
    pictures = (pictures - pictures.mean(0)) / pictures.std(0)
    for name, vectors in np.load(args.texts).items():
        recall = train_head(pictures, torch.from_numpy(vectors).float())
        print(
            name, vectors.shape[1], ", ".join(f"{measure} {value:.1f}" for measure, value in recall.items()), flush=True
        )


if __name__ == "__main__":
    main()
