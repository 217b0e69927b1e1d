"""Does `hiero adapt` choose well? Its comparison on held-out corrected videos, and both results on other recordings.

    python -m benchmarks.adaptation_choice WORK --kinds k400 --variants text-noise-1 [--recipes NAME …] [--threads 2]

WORK is that of `benchmarks.unseen`. Eight recordings of a recipe that the model never saw are corrected.
Prints what `hiero adapt` says, how long it takes, and names, R1@.3 and F1 of up to six other recordings
without and with fine-tuning. Three trainings for each recipe take minutes each on a CPU.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.captaincook4d_data import CLOCK
from benchmarks.localization import Recipe, score_video
from benchmarks.unseen import MAX_SCORED, Folds
from hiero import load
from hiero.corpus.adaptation import CorrectedSteps, adapt
from hiero.engine import Engine, Video

NUM_CORRECTED = 8


def compare(folds: Folds, name: str) -> None:
    """Print the choice and the scores of both ways for one recipe."""
    recipe = Recipe(folds, name)
    names = recipe.recipes[name]
    order = random.Random(f"{name} 0").sample(names, len(names))
    corrected = [CorrectedSteps(n, n, recipe.steps(n)) for n in order[:NUM_CORRECTED]]  # type: ignore[arg-type]

    def read(engine: Engine, source: object) -> Video:
        return engine.read_array(recipe.features[str(source)], CLOCK, str(source))

    print(f"{name}: {sum(len(video.steps) for video in corrected)} corrected steps", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for tune in (None, False, True):
            out, began = Path(folder) / f"model-{tune}", time.monotonic()
            adapt(
                load(folds.folder(recipe.fold), backbone="default", device="cpu"),
                corrected,
                read,
                out,
                tune=tune,
                log=print,
            )
            if tune is None:
                print(f"  chosen in {time.monotonic() - began:.0f} s", flush=True)
                continue
            engine = load(out, backbone="default", device="cpu")
            scored = order[NUM_CORRECTED:][-MAX_SCORED:]
            rows = [score_video(read(engine, n), recipe.steps(n), recipe.texts(name)) for n in scored]
            how = "with" if tune else "without"
            print(
                f"  {how} fine-tuning: names, R1@.3, F1 {np.round(100 * np.mean(rows, axis=0), 1).tolist()}", flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--kinds", nargs="+", default=["k400"])
    parser.add_argument("--variants", nargs="+", default=["text-noise-1"])
    parser.add_argument("--recipes", nargs="+", help="defaults to all with enough recordings")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for kind, variant in zip(args.kinds, args.variants, strict=True):
        folds = Folds(args.work, kind, variant)
        counted = [folds.annotations[name]["recipe"] for name in folds.recordings]
        for recipe in args.recipes or sorted({r for r in counted if counted.count(r) > NUM_CORRECTED}):
            compare(folds, recipe)


if __name__ == "__main__":
    main()
