"""What do supervised heads gain from HiERO's features over those of the backbone (CaptainCook4D)?

    python -m benchmarks.heads train WORK --model MODEL --device cuda    all heads, several seeds; then the tables
    python -m benchmarks.heads tables WORK

`python -m benchmarks.captaincook4d prepare` makes WORK; MODEL was trained without the test recordings.
Heads learn from the training recordings. They are scored on other recordings of the same recipes and,
if they take texts, on unseen recipes.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from benchmarks.captaincook4d_data import CLOCK, PARTS, split, unpack
from benchmarks.jobs import run_modules
from hiero import embed_features, load_model
from hiero.evaluation.heads.clips import Clips, read_clips
from hiero.evaluation.heads.head import load_trained_head
from hiero.evaluation.heads.scoring import evaluate_probe, score_heads
from hiero.evaluation.heads.token_embeddings import TokenEmbeddings
from hiero.evaluation.heads.training import train_head
from hiero.evaluation.results import Row, Table, as_markdown, mean_row
from hiero.features.stores import FeatureStore
from hiero.training.loop import RunOptions

FEATURE_KINDS = {"raw": "Kinetics-400 logits", "hiero": "HiERO on them"}
HEADS = ("vslnet", "actionformer")


def write_features(work: Path, model: Path, device: str) -> None:
    """WORK/heads/raw and WORK/heads/hiero: a file for each recording; and the annotations as one's own."""
    unpack(work, "k400")
    store = FeatureStore(work / "k400" / "store")
    network = load_model(model).to(device)
    for kind in FEATURE_KINDS:
        (work / "heads" / kind).mkdir(parents=True, exist_ok=True)
    for name in store:
        raw = store.read(name)
        np.save(work / "heads" / "raw" / f"{name}.npy", raw.half().numpy())
        enriched = embed_features(network, raw, CLOCK, [0])["level0"]
        np.save(work / "heads" / "hiero" / f"{name}.npy", enriched.half().numpy())


def read_part(work: Path, kind: str, part: str) -> Clips:
    """Clips of a part of the split, with raw or HiERO's features."""
    annotations = json.loads((work / "annotations.json").read_text())
    file = work / "heads" / "annotations.json"
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            json.dumps(
                {name: {"task": video["recipe"], "steps": video["steps"]} for name, video in annotations.items()}
            )
        )
    store = FeatureStore(work / "k400" / "store")
    return read_clips(work / "heads" / kind, file, CLOCK, only=split(annotations, list(store), "test")[part])


def embed_texts(work: Path, device: str = "cpu") -> TokenEmbeddings:
    """Token vectors of the texts of all steps, cached."""
    annotations = json.loads((work / "annotations.json").read_text())
    return TokenEmbeddings([step["text"] for video in annotations.values() for step in video["steps"]], device)


def train_one(work: Path, head: str, kind: str, seed: int, device: str, settings: list[str]) -> None:
    """Train a head on one kind of features with one seed, and score it."""
    start_s = time.perf_counter()
    out = work / "heads" / "runs" / f"{head}-{kind}-{seed}"
    embeddings = embed_texts(work)
    train_head(
        head,
        read_part(work, kind, "train"),
        out,
        settings=[*settings, f"seed={seed}"],
        embeddings=embeddings,
        options=RunOptions(device=device),
    )
    trained = [load_trained_head(out, device)]
    parts = PARTS if head == "vslnet" else PARTS[:1]  # ActionFormer detects the labels of its training set only
    tables = {part: score_heads(trained, read_part(work, kind, part), kind, embeddings) for part in parts}
    scores = {part: [table.rows[0].scores, table.rows[0].intervals] for part, table in tables.items()}
    (out / "scores.json").write_text(json.dumps(scores))
    print(f"{out / 'scores.json'}: written after {time.perf_counter() - start_s:.0f} s", flush=True)


def train_all(work: Path, args: argparse.Namespace) -> None:
    """Train all heads with all features and seeds, each in a process of its own; then print the tables."""
    write_features(work, args.model, args.device)
    read_part(work, "raw", "train")  # writes the annotations before several processes read them
    jobs = [(head, kind, seed) for seed in range(args.seeds) for head in args.heads for kind in FEATURE_KINDS]
    settings = [text for setting in args.set for text in ("--set", setting)]
    run = ["benchmarks.heads", "one", str(work), "--device", args.device, *settings]
    commands = [[*run, "--heads", head, "--kind", kind, "--seeds", str(seed)] for head, kind, seed in jobs]
    run_modules(commands, args.jobs)
    print_tables(work)


def print_tables(work: Path) -> None:
    """Print means over the seeds that were trained, as Markdown."""
    for head in HEADS:
        for part in PARTS:
            rows = []
            for kind, title in FEATURE_KINDS.items():
                files = sorted((work / "heads" / "runs").glob(f"{head}-{kind}-*/scores.json"))
                runs = [json.loads(file.read_text()) for file in files]
                seeds = [Row("", *scores[part]) for scores in runs if part in scores]
                if seeds:
                    rows.append(mean_row(f"{title} ({len(seeds)} seeds)", seeds))
            if rows:
                print("\n" + as_markdown(Table(f"{head}, {part}", rows)))
    rows = [
        evaluate_probe(read_part(work, kind, "train"), read_part(work, kind, PARTS[0]), title).rows[0]
        for kind, title in FEATURE_KINDS.items()
    ]
    print("\n" + as_markdown(Table(f"linear probe, {PARTS[0]}", rows)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "one", "tables"])
    parser.add_argument("work", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--heads", nargs="+", default=list(HEADS), choices=HEADS)
    parser.add_argument("--kind", choices=list(FEATURE_KINDS))
    parser.add_argument("--seeds", type=int, default=3, help="how many; with `one`, which")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    if args.what == "train":
        train_all(args.work, args)
    elif args.what == "one":
        train_one(args.work, args.heads[0], args.kind, args.seeds, args.device, args.set)
    else:
        print_tables(args.work)


if __name__ == "__main__":
    main()
