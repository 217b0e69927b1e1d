"""The main job, on sessions whose truth is known: train on narrated ones, then `hiero steps`, `hiero ask` and a page on new ones.

    python -m examples.demo [OUT] [VIDEO]

The sessions come from hiero/data/simulation.py: steps share places, and half of the actions look the same in every step.
With VIDEO, `hiero steps` is run on a video of your own too, with the shipped model. About a minute on 2 cores.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from torch import Tensor

from hiero.cli import app
from hiero.cli.display import TrainDisplay
from hiero.data.simulation import Session, World, WorldConfig, write_sessions
from hiero.data.stores import pack
from hiero.engine import load
from hiero.evaluation.metrics import procedure_scores
from hiero.storage.files import save_tensors, write_text
from hiero.training.from_files import train_from_files
from hiero.types import format_time

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


def film(session: Session, path: Path, rate: int = 4) -> None:
    """A picture of what is done, at each moment: a colour for the step, its name and that of the action. For the page."""
    try:
        import av
        from PIL import Image, ImageDraw
    except ImportError:  # without the extra for video the page shows features only
        return
    spoken = sorted(session.narrations, key=lambda narration: narration.time_s)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=rate)
        stream.width, stream.height, stream.pix_fmt, stream.options = 480, 270, "yuv420p", {"g": str(rate), "crf": "30"}
        for i in range(len(session.steps) * rate):
            step, now_s = int(session.steps[i // rate]), i / rate
            colour = (60, 64, 70) if step < 0 else tuple(int(c) for c in np.random.default_rng(step).integers(40, 170, 3))
            image = Image.new("RGB", (480, 270), colour)
            draw = ImageDraw.Draw(image)
            left = 30 + round(14 * now_s) % 380
            draw.rectangle((left, 150, left + 46, 196), fill=tuple(min(255, c + 70) for c in colour))
            draw.text((24, 24), session.step_texts.get(step, "a pause"), fill="white", font_size=26)
            last = [narration.text for narration in spoken if narration.time_s <= now_s][-1:]
            draw.text((24, 70), last[0] if last else "", fill="white", font_size=16)
            for packet in stream.encode(av.VideoFrame.from_image(image)):
                out.mux(packet)
        for packet in stream.encode():
            out.mux(packet)


def collect(console: Console, world: World, model: Path, out: Path) -> None:
    """Three new sessions as a corpus, with pictures of what is done and the truth, for the page."""
    folder = out / "sessions"
    truth = {}
    for seed in (1000, 1001, 1002):
        session = world.session(seed)
        name = f"session-{seed}"
        save_tensors(folder / f"{name}.safetensors", {"features": session.features})
        if not (folder / f"{name}.mp4").is_file():
            film(session, folder / f"{name}.mp4")
        truth[name] = {"steps": [{"start_s": s.start_s, "end_s": s.end_s, "text": s.text} for s in session.runs()]}
    write_text(out / "truth.json", json.dumps(truth))
    shutil.rmtree(out / "corpus", ignore_errors=True)  # of another training
    files = [str(folder / f"session-{seed}.safetensors") for seed in (1000, 1001, 1002)]
    run(
        console, "index", *files, "--to", str(out / "corpus"), "--model", str(model), "--labels", str(out / "labels.txt"),
        "-k", "3,10",
    )  # fmt: skip
    question = next(iter(world.step_texts.values()))
    run(console, "search", str(out / "corpus"), question, "-n", "3")


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
        moments = ", ".join(format_time(time_s) for time_s in narrated(session, question))
        console.print(f'the truth: "{question}" is narrated at {moments}', highlight=False)
    collect(console, world, model, out)
    if video is not None:
        run(console, "steps", str(video), "-o", str(out / re.sub(r"\W+", "-", video.stem)))
    console.print(
        f"\n{time.perf_counter() - begin:.0f} s in all. Simulated data: it shows how the parts work together, not how well."
    )
    console.print(
        f"The report: {out / 'report' / 'report.html'} (open it in a browser). Your own: make demo VIDEO=my.mp4", highlight=False
    )
    command = f"hiero serve {out / 'corpus'} --truth {out / 'truth.json'} --labels {out / 'labels.txt'} --open"
    console.print(
        f"The page, with all of it to play, search and edit:\n\n  .venv/bin/{command}",
        highlight=False,
        soft_wrap=True,
    )


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:] if argument]
    main(given[0] if given else Path("out/demo"), given[1] if len(given) > 1 else None)
