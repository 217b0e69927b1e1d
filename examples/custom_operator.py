"""Another operator in the place of the paper's, trained, saved and loaded: python -m examples.custom_operator [OUT]"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from examples.train_loop import SIZES, WORLD, train
from hiero import HiERO, ModelConfig, load_model
from hiero.model.tdgc import Neighbours
from hiero.plugins import register


class MeanOperator(nn.Module):
    """Each node adds the mean of its neighbours: x'ᵢ = W₁ xᵢ + W₂ meanⱼ xⱼ, (B, T, D) → (B, T, D)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.own = nn.Linear(config.hidden_size, config.hidden_size)
        self.others = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor, neighbours: Neighbours) -> Tensor:
        total = torch.zeros_like(x)
        for offset, linked in enumerate(neighbours.linked, start=1):  # pairs of nodes i and i + offset
            total[:, :-offset] += linked[..., None] * x[:, offset:]
            total[:, offset:] += linked[..., None] * x[:, :-offset]
        return self.own(x) + self.others(total * neighbours.inverse_degree)


register("hiero.operators", "mean-neighbours", MeanOperator)


def main(out: Path, num_steps: int = 40) -> tuple[HiERO, list[float]]:
    model, losses = train(ModelConfig(**SIZES, clock=WORLD.config.clock, operator="mean-neighbours"), num_steps)
    model.save_pretrained(out)  # config.json records the operator's name
    loaded = load_model(out)
    features = WORLD.session(10_000).features[None]
    assert torch.equal(model(features)[0].features, loaded(features)[0].features)
    return model, losses


if __name__ == "__main__":
    _, losses = main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/custom_operator"))
    print(*(f"{loss:.3f}" for loss in losses))
