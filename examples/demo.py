"""The main job, on a session whose truth is known: train on narrated sessions, then `hiero steps` and `hiero ask` on a new one.

    python -m examples.demo [OUT] [VIDEO]

The sessions come from hiero/data/simulate.py: steps share places, and half of the actions look the same in every step. With VIDEO,
`hiero steps` is run on a video of your own too, with the shipped model. About a minute on 2 cores.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from torch import Tensor

from hiero.bench.metrics import procedure_scores
from hiero.cli import app
from hiero.cli.models import TrainDisplay
from hiero.data.simulate import Session, World, WorldConfig, write_sessions
from hiero.data.store import pack
from hiero.engine import load
from hiero.files import save_tensors, write_text
from hiero.records import clock_text
from hiero.training.run import train_from_files

WORLD = WorldConfig(interleave=0.0, num_places=3, noise=2.0)
SETTINGS = [
    "model.hidden_size=64", "model.gate_size=32", "model.dropout=0.1", "model.centre=false", "model.rescale=false",
    "epochs=24", "window_s=600.0", "lr=0.002", "noise=0.5", "jitter=0.0", "text_noise=0.0", "losses.inside=0.0",
]  # fmt: skip


def learn(world: World, out: Path) -> Path:
    """A small model, from 24 narrated sessions."""
    features, narrations = write_sessions([world.session(seed) for seed in range(24)], out)
    pack(features, out / "store", clock=world.config.clock)
    for old in (out / "model").glob("*.safetensors"):
        old.unlink()
    train_from_files(
        out / "store", narrations, out / "model", settings=SETTINGS, device="cpu", validation_share=0.0, display=TrainDisplay()
    )
    return out / "model"


def judge(labels: np.ndarray, steps: Tensor) -> tuple[float, float]:
    """EgoProceL's F1 and IoU of a label for each second, pauses left out."""
    busy = (steps >= 0).numpy()
    found = procedure_scores(labels[busy], np.unique(steps.numpy()[busy], return_inverse=True)[1] + 1)
    return 100 * found.f1, 100 * found.iou


def narrated(session: Session, text: str) -> list[float]:
    """When a text was narrated. The new session's narrations are not given to the model."""
    return [narration.time_s for narration in session.narrations if narration.text == text]


def run(console: Console, *arguments: str) -> None:
    """Show a command and run it."""
    line = " ".join(f'"{argument}"' if " " in argument else argument for argument in arguments)
    console.print(f"\n$ hiero {line}", style="bold", highlight=False, soft_wrap=True)
    app(list(arguments), result_action="return_value")


def main(out: Path, video: Path | None = None) -> None:
    begin = time.perf_counter()
    console = Console()
    world = World(WORLD)
    model = learn(world, out)
    session = world.session(1000)
    file = out / "session.safetensors"
    save_tensors(file, {"features": session.features})
    write_text(out / "labels.txt", "\n".join(world.step_texts.values()))

    num = len(session.step_texts)
    run(
        console,
        "steps",
        str(file),
        "--model",
        str(model),
        "-k",
        f"3,{num}",
        "--labels",
        str(out / "labels.txt"),
        "-o",
        str(out / "report"),
    )
    read = load(model).read(file)
    labels = np.zeros(len(session.steps), dtype=int)
    for i, step in enumerate(read.steps([num]).levels[-1]):
        labels[round(step.start_s) : round(step.end_s)] = i
    equal = judge(np.arange(len(labels)) * num // len(labels), session.steps)
    found = judge(labels, session.steps)
    console.print(f"against the truth: F1 {found[0]:.0f}, IoU {found[1]:.0f}; equal parts: F1 {equal[0]:.0f}, IoU {equal[1]:.0f}")

    texts = sorted(
        {narration.text for narration in session.narrations if not narration.text.startswith(("looks", "washes", "reaches"))}
    )
    questions = [texts[0], texts[len(texts) // 2]]
    run(console, "ask", str(file), *questions, "--model", str(model), "-n", "2")
    for question in questions:
        moments = ", ".join(clock_text(time_s) for time_s in narrated(session, question))
        console.print(f'the truth: "{question}" is narrated at {moments}', highlight=False)
    if video is not None:
        run(console, "steps", str(video), "-o", str(out / re.sub(r"\W+", "-", video.stem)))
    console.print(
        f"\n{time.perf_counter() - begin:.0f} s in all. Simulated data: it shows how the parts work together, not how well."
    )
    console.print(
        f"The report: {out / 'report' / 'report.html'} (open it in a browser). Your own: make demo VIDEO=my.mp4", highlight=False
    )


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:] if argument]
    main(given[0] if given else Path("out/demo"), given[1] if len(given) > 1 else None)
