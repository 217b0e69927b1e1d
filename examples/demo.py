"""The main job, where the truth is known: on a film of real photographs, and on simulated sessions
from training on.

    python -m examples.demo [OUT] [VIDEO]

The film is made of photographs that come with scikit-image: `hiero steps` finds the cuts, `hiero
ask` what they show, and that something is not there. The sessions come from
examples/simulation.py: steps share places, and half of the actions look the same in every step.
With VIDEO, `hiero steps` is run on a video of your own too, with the shipped model. About two
minutes on 2 cores.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.console import Console
from torch import Tensor

from examples.photographs import ABSENT, write_film
from examples.simulation import Session, World, WorldConfig, write_sessions
from hiero.cli import app
from hiero.cli.training import TrainDisplay
from hiero.engine import load
from hiero.evaluation.metrics import procedure_scores
from hiero.features.stores import pack
from hiero.formatting import format_time
from hiero.storage.files import save_tensors, write_text
from hiero.training.from_files import TrainOptions, train_from_files

WORLD = WorldConfig(interleave=0.0, num_places=3, noise=2.0)
SETTINGS = [
    "model.hidden_size=64",
    "model.gate_size=32",
    "model.dropout=0.1",
    "model.centre=false",
    "model.rescale=false",
    "epochs=24",
    "window_s=600.0",
    "lr=0.002",
    "noise=0.5",
    "jitter=0.0",
    "text_noise=0.0",
    "losses.inside=0.0",
]
NUM_TRAINING_SESSIONS = 24  # their seeds begin at 0
NEW_SEEDS = (1000, 1001, 1002)  # sessions that the model has not seen
# actions that look the same in every step: hard to tell where they happen
COMMON_VERBS = ("looks", "washes", "reaches")


def train_model(world: World, out: Path) -> Path:
    """A small model, from narrated sessions; returns its folder."""
    features, narrations = write_sessions([world.session(seed) for seed in range(NUM_TRAINING_SESSIONS)], out)
    pack(features, out / "store", clock=world.config.clock)
    for weights in (out / "model").glob("*.safetensors"):  # of an earlier run, which training refuses to overwrite
        weights.unlink()
    train_from_files(
        out / "store",
        narrations,
        out / "model",
        settings=SETTINGS,
        options=TrainOptions(device="cpu", display=TrainDisplay(), validation_share=0.0),
    )
    return out / "model"


def render_video(session: Session, path: Path, fps: int = 4) -> None:
    """A video of what is done at each moment, for the page: a colour for the step, its name and
    that of the action.
    """
    try:
        import av
        from PIL import Image, ImageDraw
    except ImportError:  # without the extra for video the page shows features only
        return
    narrations = sorted(session.narrations, key=lambda narration: narration.time_s)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=fps)
        stream.width, stream.height, stream.pix_fmt, stream.options = 480, 270, "yuv420p", {"g": str(fps), "crf": "30"}
        for i in range(len(session.steps) * fps):  # the features are at 1 Hz
            step, time_s = int(session.steps[i // fps]), i / fps
            colour = (
                (60, 64, 70) if step < 0 else tuple(int(c) for c in np.random.default_rng(step).integers(40, 170, 3))
            )
            image = Image.new("RGB", (480, 270), colour)
            draw = ImageDraw.Draw(image)
            left = 30 + round(14 * time_s) % 380
            draw.rectangle((left, 150, left + 46, 196), fill=tuple(min(255, c + 70) for c in colour))
            draw.text((24, 24), session.step_texts.get(step, "a pause"), fill="white", font_size=26)
            texts = [narration.text for narration in narrations if narration.time_s <= time_s]
            draw.text((24, 70), texts[-1] if texts else "", fill="white", font_size=16)
            for packet in stream.encode(av.VideoFrame.from_image(image)):
                out.mux(packet)
        for packet in stream.encode():
            out.mux(packet)


def index_sessions(console: Console, world: World, model: Path, out: Path) -> None:
    """New sessions as a corpus, with videos and annotations, for the page."""
    folder = out / "sessions"
    annotations = {}
    for seed in NEW_SEEDS:
        session = world.session(seed)
        name = f"session-{seed}"
        save_tensors(folder / f"{name}.safetensors", {"features": session.features})
        if not (folder / f"{name}.mp4").is_file():
            render_video(session, folder / f"{name}.mp4")
        annotations[name] = {"steps": [asdict(step) for step in session.runs()]}
    write_text(out / "truth.json", json.dumps(annotations))
    shutil.rmtree(out / "corpus", ignore_errors=True)  # of an earlier model, whose steps cannot be compared
    files = [str(folder / f"session-{seed}.safetensors") for seed in NEW_SEEDS]
    run(
        console,
        "index",
        *files,
        "--to",
        str(out / "corpus"),
        "--model",
        str(model),
        "--labels",
        str(out / "labels.txt"),
        "-k",
        "3,10",
    )
    query = next(iter(world.step_texts.values()))
    run(console, "search", str(out / "corpus"), query, "-n", "3")


def score_labels(labels: np.ndarray, steps: Tensor) -> tuple[float, float]:
    """EgoProceL's F1 and IoU of a label for each second, in percent, pauses left out.

    Args:
        labels: Predicted, (T,).
        steps: Annotated, (T,); negative in pauses.
    """
    is_step = (steps >= 0).numpy()
    scores = procedure_scores(labels[is_step], np.unique(steps.numpy()[is_step], return_inverse=True)[1] + 1)
    return 100 * scores.f1, 100 * scores.iou


def narration_times(session: Session, text: str) -> list[float]:
    """When a text was narrated. The new session's narrations are not given to the model."""
    return [narration.time_s for narration in session.narrations if narration.text == text]


def run(console: Console, *arguments: str) -> None:
    """Show a command and run it."""
    line = " ".join(f'"{argument}"' if " " in argument else argument for argument in arguments)
    console.print(f"\n$ hiero {line}", style="bold", highlight=False, soft_wrap=True)
    app(list(arguments), result_action="return_value")


def segment(console: Console, session: Session, file: Path, model: Path, out: Path) -> None:
    """`hiero steps` on a new session, and how well its steps agree with the truth."""
    num_steps = len(session.step_texts)
    run(
        console,
        "steps",
        str(file),
        "--model",
        str(model),
        "-k",
        f"3,{num_steps}",
        "--labels",
        str(out / "labels.txt"),
        "-o",
        str(out / "report"),
    )
    labels = np.zeros(len(session.steps), dtype=int)
    for i, step in enumerate(load(model).read(file).steps([num_steps]).levels[-1]):
        labels[round(step.start_s) : round(step.end_s)] = i
    f1, iou = score_labels(labels, session.steps)
    baseline_f1, baseline_iou = score_labels(np.arange(len(labels)) * num_steps // len(labels), session.steps)
    console.print(
        f"against the truth: F1 {f1:.0f}, IoU {iou:.0f}; equal parts: F1 {baseline_f1:.0f}, IoU {baseline_iou:.0f}"
    )


def ground(console: Console, session: Session, file: Path, model: Path) -> None:
    """`hiero ask` on a new session, and when the queries were narrated."""
    texts = sorted({narration.text for narration in session.narrations if not narration.text.startswith(COMMON_VERBS)})
    queries = [texts[0], texts[len(texts) // 2]]
    run(console, "ask", str(file), *queries, "--model", str(model), "-n", "2")
    for query in queries:
        times = ", ".join(format_time(time_s) for time_s in narration_times(session, query))
        console.print(f'the truth: "{query}" is narrated at {times}', highlight=False)


def show_photographs(console: Console, out: Path) -> None:
    """The shipped models on real pictures: `hiero steps` and `hiero ask` on a film of photographs,
    beside the truth.
    """
    film = out / "photographs.mp4"
    try:
        truth = write_film(film)
    except ImportError as error:
        console.print(f"no film of photographs: {error}; pip install scikit-image", highlight=False)
        return
    run(console, "steps", str(film), "-k", f"3,{len(truth)}", "-o", str(out / "photographs"))
    run(console, "ask", str(film), truth[0][2], ABSENT[0], "-n", "2")
    console.print(
        "the truth: " + ", ".join(f"{format_time(start)} {text}" for start, _, text in truth), highlight=False
    )
    labels = out / "film-labels.txt"
    write_text(labels, "\n".join([text for _, _, text in truth] + list(ABSENT)))
    corpus = str(out / "film-corpus")
    run(console, "index", str(film), "--to", corpus, "-k", f"3,{len(truth)}", "--labels", str(labels))


def main(out: Path, video: Path | None = None) -> None:
    """Run the demo.

    Args:
        out: Folder of everything that it writes.
        video: One of your own, for the shipped model.
    """
    begin = time.perf_counter()
    console = Console()
    show_photographs(console, out)
    world = World(WORLD)
    model = train_model(world, out)
    session = world.session(NEW_SEEDS[0])
    file = out / "session.safetensors"
    save_tensors(file, {"features": session.features})
    write_text(out / "labels.txt", "\n".join(world.step_texts.values()))
    segment(console, session, file, model, out)
    ground(console, session, file, model)
    index_sessions(console, world, model, out)
    if video is not None:
        run(console, "steps", str(video), "-o", str(out / re.sub(r"\W+", "-", video.stem)))
    console.print(
        f"\n{time.perf_counter() - begin:.0f} s in all. The sessions are simulated: they show how the parts work, "
        "not how well."
    )
    console.print(
        f"The report: {out / 'report' / 'report.html'} (open it in a browser). Your own: make demo VIDEO=my.mp4",
        highlight=False,
    )
    command = f"hiero serve {out / 'corpus'} --truth {out / 'truth.json'} --labels {out / 'labels.txt'} --open"
    console.print(
        f"The page, with all of it to play, search and edit:\n\n  .venv/bin/{command}",
        highlight=False,
        soft_wrap=True,
    )


if __name__ == "__main__":
    paths = [Path(argument) for argument in sys.argv[1:] if argument]
    main(paths[0] if paths else Path("out/demo"), paths[1] if len(paths) > 1 else None)
