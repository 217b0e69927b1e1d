"""What hiero does, on a simulated cooking session: train on a few narrated sessions, then find the steps of a new one.

    python -m examples.demo [OUT] [PICTURE.svg]

Eight activities alternate. A second of video shows the activity (weight 0.5), the place it happens in (1.0, shared by two
activities) and noise (2.0), so that looks alone confuse them. Narrations, as vectors, tell them apart. Under a minute on 2 cores.
"""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text
from torch import Tensor
from torch.nn import functional as F

from hiero import Clock, HiERO, LossConfig, ModelConfig, embed_features, spectral_cut
from hiero.data.batch import node_times
from hiero.data.narrated import StepInputs
from hiero.training.step import Objective, TrainStep, make_adam

NUM_NEW = 10
CLOCK = Clock(fps=1.0, stride=1.0)
NUM_NODES, NUM_ACTIVITIES, WIDTH, TEXT_WIDTH = 300, 8, 32, 24
COLOURS = ["red", "green", "yellow", "blue", "magenta", "cyan", "white", "bright_black"]
console = Console(width=100, record=True)


@dataclass
class World:
    """Fixed directions: how each activity looks, how each place looks, and what is said of each activity."""

    looks: Tensor
    places: Tensor
    words: Tensor

    @classmethod
    def make(cls, seed: int = 0) -> World:
        generator = torch.Generator().manual_seed(seed)
        return cls(
            looks=F.normalize(torch.randn(NUM_ACTIVITIES, WIDTH, generator=generator), dim=1),
            places=F.normalize(torch.randn(NUM_ACTIVITIES // 2, WIDTH, generator=generator), dim=1),
            words=F.normalize(torch.randn(NUM_ACTIVITIES, TEXT_WIDTH, generator=generator), dim=1),
        )

    def session(self, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features (T, F), the activity of each second (T,), narration vectors (M, E) and their times (M,)."""
        generator = torch.Generator().manual_seed(seed)
        activity: list[int] = []
        while len(activity) < NUM_NODES:
            length = int(torch.randint(12, 40, (), generator=generator))
            activity += [int(torch.randint(NUM_ACTIVITIES, (), generator=generator))] * length
        truth = torch.tensor(activity[:NUM_NODES])
        noise = torch.randn(NUM_NODES, WIDTH, generator=generator) / WIDTH**0.5
        features = 0.5 * self.looks[truth] + self.places[truth // 2] + 2.0 * noise
        times = (torch.rand(60, generator=generator) * NUM_NODES).sort().values
        said = self.words[truth[times.long()]] + 0.3 * torch.randn(60, TEXT_WIDTH, generator=generator) / TEXT_WIDTH**0.5
        return features, truth, said, times


def train(world: World, num_steps: int = 150) -> HiERO:
    torch.manual_seed(0)
    model = HiERO(
        ModelConfig(WIDTH, hidden_size=64, embedding_size=48, text_size=TEXT_WIDTH, radius_s=2.5, gate_size=32, clock=CLOCK)
    ).train()
    step = TrainStep(Objective(model, LossConfig(alpha=0.5), CLOCK.spacing_s), make_adam(model, lr=2e-3))
    sessions = [world.session(seed) for seed in range(16)]
    times = node_times(NUM_NODES, CLOCK).expand(4, -1)
    losses: list[float] = []
    for i in track(range(num_steps), "training on 16 narrated sessions", console=console):
        batch = [sessions[(4 * i + j) % 16] for j in range(4)]
        features, said, said_times = (torch.stack([s[k] for s in batch]) for k in (0, 2, 3))
        full = torch.ones(4, NUM_NODES, dtype=torch.bool)
        losses.append(step(StepInputs(features, full, times, said, said_times, torch.ones(4, 60, dtype=torch.bool))).total.item())
    console.print(f"loss {losses[0]:.2f} → {losses[-1]:.2f}")
    return model.eval()


def match(labels: Tensor, truth: Tensor) -> tuple[Tensor, float]:
    """Labels renamed to the activities that they overlap most (one to one), and the share of seconds that then agree."""
    from scipy.optimize import linear_sum_assignment

    size = max(int(labels.max()), int(truth.max())) + 1
    overlap = torch.zeros(size, size)
    overlap.index_put_((labels, truth), torch.ones(len(labels)), accumulate=True)
    names = torch.as_tensor(linear_sum_assignment(-overlap.numpy())[1])
    return names[labels], float((names[labels] == truth).float().mean())


def strip(labels: Tensor, width: int = 75) -> Text:
    """A timeline in colours (and letters, for those who do not see them)."""
    text = Text()
    for i in torch.linspace(0, len(labels) - 1, width).long().tolist():
        label = int(labels[i])
        text.append(chr(ord("a") + label), style=f"black on {COLOURS[label % len(COLOURS)]}")
    return text


def main(out: Path, picture: Path | None = None) -> None:
    begin = time.perf_counter()
    world = World.make()
    model = train(world)
    sessions = [world.session(seed) for seed in range(1000, 1000 + NUM_NEW)]
    scores: dict[str, list[float]] = {"raw features": [], "HiERO": []}
    for features, truth, _, _ in reversed(sessions):  # the first one is shown
        num = len(truth.unique())
        enriched = embed_features(model, features, CLOCK, threads=True)
        rows: dict[str, tuple[Tensor, float | None]] = {"ground truth": (truth, None)}
        rows["raw features"] = match(spectral_cut(features, num, kappa=0.5), truth)
        rows["HiERO"] = match(spectral_cut(enriched["projected0"], num, kappa=0.5), truth)
        for name, found in scores.items():
            found.append(float(rows[name][1] or 0))

    table = Table(title=f"A new session of {NUM_NODES // 60} minutes, cut into {num} threads", box=None)
    table.add_column("")
    table.add_column(f"0:00 {'':─<64} {NUM_NODES // 60}:00")
    table.add_column("right", justify="right")
    for name, (labels, score) in rows.items():
        table.add_row(name, strip(labels), "" if score is None else f"{100 * score:.0f} %")
    console.print(table)
    means = ", ".join(f"{name} {100 * sum(found) / len(found):.0f} %" for name, found in scores.items())
    console.print(f"over {NUM_NEW} new sessions: {means}\n")
    if picture is not None:
        svg = console.export_svg(title="make demo")
        picture.write_text(re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL))  # no fonts from elsewhere

    model.save_pretrained(out / "model")
    torch.save(features, out / "session.pt")
    console.print(f"model and session are in {out}/; {time.perf_counter() - begin:.0f} s in all. Try:")
    console.print(
        f"  .venv/bin/hiero embed {out}/session.pt --model {out}/model -o {out}/session.safetensors --threads", soft_wrap=True
    )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/demo"), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
