"""How long EgoMCQ takes: as many questions as the real one, simulated videos, a network of the paper's
size with random weights.

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
from hiero.engine import load
from hiero.evaluation.egomcq import context_window, embed_clips, read_questions
from hiero.features.stores import FeatureStore, pack
from hiero.model.hiero import HiERO
from hiero.types import Clock

CLOCK = Clock(30.0, 16.0)
WIDTH = 256  # EgoVLP's
NUM_CHOICES = 5
CONTEXT = 4  # Δ
NUM_SEGMENTS, VIDEO_S = 1125, 600.0  # of each video
NUM_WARM_UP = 2000  # clips before the clock starts


def make_questions(path: Path, num_questions: int, num_videos: int) -> None:
    """Questions in the official layout: clips of under a second, as there."""
    rng = np.random.default_rng(0)
    content = {}
    for i in range(num_questions):
        starts, videos = rng.uniform(0, VIDEO_S - 3, NUM_CHOICES), rng.integers(0, num_videos, NUM_CHOICES)
        choices = {
            str(j): {"video_uid": f"v{videos[j]}", "clip_start": starts[j], "clip_end": starts[j] + rng.gamma(2, 0.42)}
            for j in range(NUM_CHOICES)
        }
        answer = int(rng.integers(NUM_CHOICES))
        content[str(i)] = {
            "answer": answer,
            "types": 1 + i % 2,
            "choices": choices,
            "query": {"clip_text": f"#C C does {i}"},
        }
    path.write_text(json.dumps(content))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=39_751)
    parser.add_argument("--videos", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--one-at-a-time", type=int, default=100, help="questions for the comparison")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "features").mkdir()
        for i in range(args.videos):
            features = np.random.default_rng(i).normal(size=(NUM_SEGMENTS, WIDTH))
            np.save(folder / "features" / f"v{i}.npy", features.astype(np.float16))
        pack(folder / "features", folder / "store", clock=CLOCK)
        make_questions(folder / "egomcq.json", args.questions, args.videos)
        HiERO(ModelConfig(input_size=WIDTH)).save_pretrained(folder / "model")
        engine, store = load(folder / "model", device=args.device), FeatureStore(folder / "store")
        questions = read_questions(folder / "egomcq.json")
        clips = [choice for question in questions for choice in question.choices]
        embed_clips(engine, store, clips[:NUM_WARM_UP], CONTEXT)
        begin = time.perf_counter()
        embed_clips(engine, store, clips, CONTEXT)
        batched_s = time.perf_counter() - begin
        model = engine.model
        assert model is not None
        device = next(model.parameters()).device
        begin = time.perf_counter()
        with torch.inference_mode():
            for question in questions[: args.one_at_a_time]:
                for video, start_s, end_s in question.choices:
                    window = context_window(store.num_segments(video), CLOCK, start_s, end_s, CONTEXT)
                    x = store.read(video, window.start, window.end).to(device)
                    model.embed_video(
                        model(x[None], spacing_s=CLOCK.spacing_s, threads=False)[0].features[:, len(x) // 2]
                    )
        single_s = (time.perf_counter() - begin) / args.one_at_a_time
    print(f"{len(questions)} questions on {args.device}: {batched_s:.1f} s, {len(questions) / batched_s:.0f} a second")
    speedup = single_s * len(questions) / batched_s
    print(f"one clip at a time: {1 / single_s:.0f} questions a second; together is {speedup:.0f} × as fast")


if __name__ == "__main__":
    main()
