"""Supervised heads on CaptainCook4D: a backbone's features against HiERO's, for all three heads; and how fast they train.

    python -m benchmarks.heads words WORK                                  token vectors, for a machine without the text encoder
    python -m benchmarks.heads train WORK --model MODEL --device cuda      all heads, several seeds; then the tables
    python -m benchmarks.heads tables WORK
    python -m benchmarks.heads speed [--device cuda]                       training steps a second, at the sizes of the papers

WORK as `python -m benchmarks.captaincook4d prepare` leaves it; MODEL was trained without the test recordings. The same split: heads
learn from the training recordings and are scored on unseen recordings of seen recipes and, where words allow it, on unseen recipes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from benchmarks.captaincook4d import CLOCK, PARTS, split, unpack
from hiero import HiERO, embed_features
from hiero.data.stores import FeatureStore
from hiero.evaluation.results import Row, Table, as_markdown, mean_row
from hiero.heads.actionformer import ActionFormer, ActionFormerConfig, ActionFormerInputs
from hiero.heads.clips import Clips, read_clips
from hiero.heads.head import load_head
from hiero.heads.scoring import evaluate_probe, score_heads
from hiero.heads.token_embeddings import TokenEmbeddings
from hiero.heads.training import HeadObjective, train_head
from hiero.heads.vslnet import VSLNet, VSLNetConfig, VSLNetInputs
from hiero.training.step import TrainStep, make_adam

KINDS = {"raw": "Kinetics-400 logits", "hiero": "HiERO on them"}
HEADS = ("vslnet", "actionformer")


def write_features(work: Path, model: Path, device: str) -> None:
    """WORK/heads/raw and WORK/heads/hiero: a file for each recording; and the annotations as one's own."""
    unpack(work, "k400")
    store = FeatureStore(work / "k400" / "store")
    network = HiERO.from_pretrained(model).to(device)
    for kind in KINDS:
        (work / "heads" / kind).mkdir(parents=True, exist_ok=True)
    for name in store:
        raw = store.read(name)
        np.save(work / "heads" / "raw" / f"{name}.npy", raw.half().numpy())
        enriched = embed_features(network, raw, CLOCK, [0])["level0"]
        np.save(work / "heads" / "hiero" / f"{name}.npy", enriched.half().numpy())


def read(work: Path, kind: str, part: str) -> Clips:
    annotations = json.loads((work / "annotations.json").read_text())
    file = work / "heads" / "annotations.json"
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({name: {"task": a["recipe"], "steps": a["steps"]} for name, a in annotations.items()}))
    store = FeatureStore(work / "k400" / "store")
    return read_clips(work / "heads" / kind, file, CLOCK, only=split(annotations, list(store), "test")[part])


def all_words(work: Path, device: str = "cpu") -> TokenEmbeddings:
    annotations = json.loads((work / "annotations.json").read_text())
    return TokenEmbeddings([step["text"] for about in annotations.values() for step in about["steps"]], device)


def one(work: Path, head: str, kind: str, seed: int, device: str, settings: list[str]) -> None:
    begin = time.perf_counter()
    out = work / "heads" / "runs" / f"{head}-{kind}-{seed}"
    words = all_words(work)
    train_head(head, read(work, kind, "train"), out, settings=[*settings, f"seed={seed}"], device=device, words=words)
    trained = [load_head(out, device)]
    parts = PARTS if head == "vslnet" else PARTS[:1]  # labels of other recipes are none that it knows
    tables = {part: score_heads(trained, read(work, kind, part), kind, words) for part in parts}
    scores = {part: [table.rows[0].scores, table.rows[0].intervals] for part, table in tables.items()}
    (out / "scores.json").write_text(json.dumps(scores))
    print(f"{time.perf_counter() - begin:.0f} s", head, kind, seed, {part: s[0] for part, s in scores.items()}, flush=True)


def train_all(work: Path, args: argparse.Namespace) -> None:
    write_features(work, args.model, args.device)
    read(work, "raw", "train")
    jobs = [(head, kind, seed) for seed in range(args.seeds) for head in args.heads for kind in KINDS]

    def run(job: tuple[str, str, int]) -> None:
        head, kind, seed = job
        command = [
            sys.executable,
            "-m",
            "benchmarks.heads",
            "one",
            str(work),
            "--heads",
            head,
            "--kind",
            kind,
            "--seeds",
            str(seed),
        ]
        command += ["--seeds", str(seed), "--device", args.device, *(text for setting in args.set for text in ("--set", setting))]
        threads = "1" if args.jobs > 1 else str(os.cpu_count())
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": threads})
        print(done.stdout.strip() or f"{job} failed:\n{done.stderr[-2000:]}", flush=True)

    with ThreadPoolExecutor(args.jobs) as mean_pool:
        list(mean_pool.map(run, jobs))
    tables(work)


def tables(work: Path) -> None:
    for head in HEADS:
        for part in PARTS:
            rows = []
            for kind, title in KINDS.items():
                files = sorted((work / "heads" / "runs").glob(f"{head}-{kind}-*/scores.json"))
                found = [json.loads(file.read_text()) for file in files]
                seeds = [Row("", *scores[part]) for scores in found if part in scores]
                if seeds:
                    rows.append(mean_row(f"{title} ({len(seeds)} seeds)", seeds))
            if rows:
                print("\n" + as_markdown(Table(f"{head}, {part}", rows)))
    rows = [evaluate_probe(read(work, kind, "train"), read(work, kind, PARTS[0]), title).rows[0] for kind, title in KINDS.items()]
    print("\n" + as_markdown(Table(f"linear probe, {PARTS[0]}", rows)))


def speed(device: str, seconds: float = 20.0) -> None:
    """Steps a second: VSLNet at batch 32, 128 positions, 1536-d; ActionFormer at batch 2, 2304 segments, 1536-d, 514 classes."""
    torch.manual_seed(0)
    video = torch.randn(32, 128, 1536)
    ones = torch.ones(32, 128, dtype=torch.bool)
    words = VSLNetInputs(video, ones, torch.randn(32, 12, 384), torch.ones(32, 12, dtype=torch.bool), torch.tensor([[20, 40]] * 32))
    spans = torch.rand(2, 60, 1) * 2200
    clips = ActionFormerInputs(
        torch.randn(2, 2304, 1536), torch.ones(2, 2304, dtype=torch.bool),
        torch.cat([spans, spans + 30], dim=2), torch.randint(0, 514, (2, 60)),
    )  # fmt: skip
    half = torch.bfloat16 if device == "cuda" else None
    for name, network, batch in (
        ("VSLNet, 32 queries", VSLNet(VSLNetConfig(1536)), words),
        ("ActionFormer, 2 × 2304 segments", ActionFormer(ActionFormerConfig(1536, 514)), clips),
    ):
        objective = HeadObjective(network, half).to(device).train()
        step = TrainStep(objective, make_adam(objective, 1e-4, 0.05, "adamw"))
        batch = type(batch)(*(part.to(device) for part in batch))
        for _ in range(3):
            step(batch)  # type: ignore[arg-type]
        if device == "cuda":
            torch.cuda.synchronize()
        begin, done = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            step(batch)  # type: ignore[arg-type]
            done += 1
            if device == "cuda" and done % 20 == 0:
                torch.cuda.synchronize()
        if device == "cuda":
            torch.cuda.synchronize()
        num = sum(p.numel() for p in network.parameters()) / 1e6
        print(f"{name}, {num:.1f} M parameters, {device}: {done / (time.perf_counter() - begin):.2f} steps/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["words", "train", "one", "tables", "speed"])
    parser.add_argument("work", type=Path, nargs="?")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--heads", nargs="+", default=list(HEADS), choices=HEADS)
    parser.add_argument("--kind", choices=list(KINDS))
    parser.add_argument("--seeds", type=int, default=3, help="how many; with `one`, which")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    if args.what == "words":
        print(len(all_words(args.work).vectors), "texts")
    elif args.what == "train":
        train_all(args.work, args)
    elif args.what == "one":
        one(args.work, args.heads[0], args.kind, args.seeds, args.device, args.set)
    elif args.what == "tables":
        tables(args.work)
    else:
        speed(args.device)


if __name__ == "__main__":
    main()
