"""How long EgoMCQ takes: as many questions as the real one, simulated videos, a network of the paper's size with random weights.

python -m benchmarks.egomcq [--questions 39751] [--device cuda]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from hiero.config import ModelConfig
from hiero.data.stores import FeatureStore, pack
from hiero.data.windows import context_window
from hiero.engine import load
from hiero.evaluation.egomcq import embed_clips, read_questions
from hiero.model.hiero import HiERO
from hiero.types import Clock

CLOCK = Clock(30.0, 16.0)
WIDTH = 256  # EgoVLP's


def make_questions(path: Path, num: int, num_videos: int, length_s: float) -> None:
    """Questions in the official layout: clips of under a second, as there."""
    rng = np.random.default_rng(0)
    content = {}
    for i in range(num):
        starts, videos = rng.uniform(0, length_s - 3, 5), rng.integers(0, num_videos, 5)
        choices = {
            str(j): {"video_uid": f"v{videos[j]}", "clip_start": starts[j], "clip_end": starts[j] + rng.gamma(2, 0.42)}
            for j in range(5)
        }
        answer = int(rng.integers(5))
        content[str(i)] = {"answer": answer, "types": 1 + i % 2, "choices": choices, "query": {"clip_text": f"#C C does {i}"}}
    path.write_text(json.dumps(content))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=39_751)
    parser.add_argument("--videos", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--one-at-a-time", type=int, default=100, help="questions for the comparison")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "features").mkdir()
        for i in range(args.videos):
            np.save(folder / "features" / f"v{i}.npy", np.random.default_rng(i).normal(size=(1125, WIDTH)).astype(np.float16))
        pack(folder / "features", folder / "store", clock=CLOCK)
        make_questions(folder / "egomcq.json", args.questions, args.videos, 600.0)
        HiERO(ModelConfig(input_size=WIDTH)).save_pretrained(folder / "model")
        engine, store = load(folder / "model", device=args.device), FeatureStore(folder / "store")
        questions = read_questions(folder / "egomcq.json")
        clips = [choice for question in questions for choice in question.choices]
        embed_clips(engine, store, clips[:2000], 4)  # warm up
        begin = time.perf_counter()
        embed_clips(engine, store, clips, 4)
        together = time.perf_counter() - begin
        model = engine.model
        assert model is not None
        device = next(model.parameters()).device
        begin = time.perf_counter()
        with torch.inference_mode():
            for question in questions[: args.one_at_a_time]:
                for video, start_s, end_s in question.choices:
                    window = context_window(store.num_segments(video), CLOCK, start_s, end_s, 4)
                    x = store.read(video, window.start, window.end).to(device)
                    model.embed_video(model(x[None], spacing_s=CLOCK.spacing_s, threads=False)[0].features[:, len(x) // 2])
        alone = (time.perf_counter() - begin) / args.one_at_a_time
    print(f"{len(questions)} questions on {args.device}: {together:.1f} s, {len(questions) / together:.0f} a second")
    print(f"one clip at a time: {1 / alone:.0f} questions a second; together is {alone * len(questions) / together:.0f} × as fast")


if __name__ == "__main__":
    main()
