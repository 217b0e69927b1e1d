"""What hiero does, on simulated sessions: train on a few narrated ones, then find the steps of a new one and ask for a moment.

    python -m examples.demo [OUT] [PICTURE.svg]

The sessions come from hiero/data/simulate.py: steps interleave, share places, and half of the actions look the same in every
step, so that looks alone confuse them. Narrations tell them apart. About a minute on 2 cores.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor
from torch.nn import functional as F

from hiero import HiERO, embed_features, spectral_cut
from hiero.cli import TrainDisplay
from hiero.data.simulate import Session, World, WorldConfig, write_sessions
from hiero.data.store import pack
from hiero.steps.ground import ground
from hiero.text.encoders import encode_texts
from hiero.training.run import train_from_files

NUM_NEW = 10
COLOURS = ["red", "green", "yellow", "blue", "magenta", "cyan", "white", "bright_black"]
WORLD = WorldConfig(interleave=0.2, num_places=3, place=1.0, noise=2.0)  # strong confounders; benchmarks/ablation.py varies them
SETTINGS = [
    "model.hidden_size=64", "model.gate_size=32", "model.dropout=0.1", "model.centre=false",
    "epochs=24", "window_s=600.0", "lr=0.002",
]  # fmt: skip


def match(labels: Tensor, truth: Tensor) -> tuple[Tensor, float]:
    """Labels renamed to the steps that they overlap most (one to one), and the share of seconds that then agree."""
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


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def compare(model: HiERO, session: Session) -> dict[str, tuple[Tensor, float | None]]:
    """Timelines of a session without its pauses: the truth, a cut of the raw features, a cut of the enriched ones."""
    busy = session.steps >= 0
    steps = list(dict.fromkeys(session.steps[busy].tolist()))
    truth = torch.tensor([steps.index(step) for step in session.steps[busy].tolist()])
    enriched = embed_features(model, session.features, session.clock, [0])["projected0"]
    return {
        "ground truth": (truth, None),
        "raw features": match(spectral_cut(session.features[busy], len(steps), kappa=0.5), truth),
        "HiERO": match(spectral_cut(enriched[busy], len(steps), kappa=0.5), truth),
    }


def ask(model: HiERO, session: Session, text: str) -> tuple[float, float]:
    """The span that fits a text best."""
    nodes = F.normalize(embed_features(model, session.features, session.clock, [0])["projected0"], dim=1)
    with torch.no_grad():
        query = model.embed_text(encode_texts([text]).float())
    runs, scores = ground(nodes, query, num_threads=12, kappa=0.05)
    best = int(scores[0].argmax())
    return float(runs.start[best]), float(runs.end[best])


def said(session: Session) -> dict[str, list[float]]:
    """When each text was narrated. New sessions' narrations are not given to the model."""
    out: dict[str, list[float]] = {}
    for narration in session.narrations:
        out.setdefault(narration.text, []).append(narration.time_s)
    return out


def main(out: Path, picture: Path | None = None) -> None:
    begin = time.perf_counter()
    console = Console(width=100, record=True)
    world = World(WORLD)
    features, narrations = write_sessions([world.session(seed) for seed in range(24)], out)
    pack(features, out / "store", clock=world.config.clock)
    for old in (out / "model").glob("*.safetensors"):
        old.unlink()
    train_from_files(
        out / "store", narrations, out / "model", settings=SETTINGS, device="cpu", validation_share=0.0, display=TrainDisplay()
    )
    model = HiERO.from_pretrained(out / "model")

    sessions = [world.session(seed) for seed in range(1000, 1000 + NUM_NEW)]
    found = [compare(model, session) for session in sessions]
    session, rows = sessions[0], found[0]
    table = Table(title="A new session of 10 minutes: which step is each second part of?", box=None)
    table.add_column("")
    table.add_column(f"0:00 {'':─<63} {clock(len(session.steps))}")
    table.add_column("right", justify="right")
    for name, (labels, score) in rows.items():
        table.add_row(name, strip(labels), "" if score is None else f"{100 * score:.0f} %")
    console.print(table)
    means = {name: sum(row[name][1] or 0 for row in found) / len(found) for name in ("raw features", "HiERO")}
    console.print(f"over {NUM_NEW} new sessions: " + ", ".join(f"{name} {100 * mean:.0f} %" for name, mean in means.items()) + "\n")
    asked = [(session, text, *ask(model, session, text)) for session in sessions for text in sorted(said(session))[:5]]
    for _, text, start, end in asked[:3]:
        moments = ", ".join(clock(time_s) for time_s in said(session)[text])
        console.print(f'asked "{text}": {clock(start)} to {clock(end)} (narrated at {moments})')
    right = sum(any(start <= time_s <= end for time_s in said(session)[text]) for session, text, start, end in asked)
    console.print(f"{right} of {len(asked)} such answers hold a moment at which it was narrated\n")
    if picture is not None:
        svg = console.export_svg(title="make demo")
        picture.write_text(re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL))  # no fonts from elsewhere

    torch.save(session.features, out / "session.pt")
    console.print(f"model and session are in {out}/; {time.perf_counter() - begin:.0f} s in all. Try:")
    console.print(
        f"  .venv/bin/hiero embed {out}/session.pt --model {out}/model -o {out}/session.safetensors --threads", soft_wrap=True
    )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/demo"), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
