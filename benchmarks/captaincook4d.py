"""How well does a trained HiERO find and cut the steps of 58 hours of first-person cooking (CaptainCook4D)?

    python -m benchmarks.captaincook4d all WORK --source DATA    everything below, from the published files
    python -m benchmarks.captaincook4d prepare WORK [--source DATA]      stores, narrations, splits, text vectors
    python -m benchmarks.captaincook4d train WORK [--jobs 12] [--seeds 3] [--device cuda] [--part dev|test]
    python -m benchmarks.captaincook4d table WORK                        the scores of these models
    python -m benchmarks.captaincook4d export WORK     the files that `hiero eval own` takes, in WORK/own
    python -m benchmarks.captaincook4d own WORK --models MODELS    all tasks and baselines, with MODELS/KIND-SEED
    python -m benchmarks.captaincook4d opel WORK       only the baseline that is trained by optimal transport

The narrations are the texts of the steps, repeated every 4 s. One recipe in six is never trained on
("unseen recipes"), and one recording in seven of the other recipes ("seen recipes"). Each step's text
is searched in its recording. Settings are chosen with `--part dev`, which splits the training
recordings again in the same way; `--part test` is reported.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks import opel
from benchmarks.captaincook4d_data import (
    CLOCK,
    KINDS,
    PARTS,
    export,
    find_source,
    prepare,
    read_annotations,
    restrict_input,
    split,
    true_spans,
    unpack,
)
from benchmarks.jobs import run_modules
from hiero import embed_features, load_model
from hiero.engine.vocabulary import class_names
from hiero.evaluation.metrics import grounding_recall
from hiero.evaluation.results import Report, Row, format_cell, mean_row
from hiero.features.stores import FeatureStore
from hiero.networks.text_encoders import encode_texts
from hiero.steps.grounding import candidate_spans, rank_spans, span_means, thread_runs
from hiero.steps.segmentation import NODE_LENGTH_PRIOR
from hiero.storage.files import load_tensors, save_tensors
from hiero.training.from_files import TrainOptions, train_from_files

VARIANTS = {
    "HiERO": [],
    "per-second MLP": ["model.depth=0"],
}
NUM_THREADS, KAPPA, MIN_NODES = 16, 0.05, 3  # of the paper's grounding
NUM_SPANS = 5  # R5 is the highest recall


# Reports of `hiero eval own`

PROCEDURE = "Procedure learning, true number of steps, background removed"
COLUMNS = {
    PROCEDURE: ("F1", "IoU"),
    "Step grounding": ("R1@.3", "R5@.3", "R1@.5", "R5@.5"),
    "Step localization": ("mean", "mAP@0.3", "mAP@0.5"),
    "Multiple choice of five": ("inter", "intra"),
}


def own(work: Path, models: Path, kinds: list[str], device: str) -> None:
    """Run `hiero eval own` for each model MODELS/KIND-SEED on the recordings that it did not see.

    Baselines are computed with the first seed. The complete reports are in WORK/reports. The main
    columns are printed, with the interval of the first one.
    """
    for kind in kinds:
        reports = {part: _read_or_run_reports(work, models, kind, part.split()[0], device) for part in PARTS}
        for title, columns in COLUMNS.items():
            rows = {part: _mean_rows(part_reports, title) for part, part_reports in reports.items()}
            if title == PROCEDURE:
                for part, row in opel.score(find_source(work, None), kind).items():
                    rows[part][row.method] = row
            print(f"\n{KINDS[kind]}: {title}\n")
            print("| | " + " | ".join(f"{part.split()[0]} {name}" for part in PARTS for name in columns) + " |")
            print("|---" * (1 + len(PARTS) * len(columns)) + "|")
            for method in rows[PARTS[0]]:
                print_row(method, [rows[part][method] for part in PARTS], columns)


def print_row(method: str, rows: list[Row], columns: tuple[str, ...]) -> None:
    """The scores of a method on the parts side by side."""
    cells = [format_cell(row, name, intervals=name == columns[0]) for row in rows for name in columns]
    print(f"| {method} | {' | '.join(cells)} |", flush=True)


def _read_or_run_reports(work: Path, models: Path, kind: str, part: str, device: str) -> list[Report]:
    """A report for each seed."""
    reports: list[Report] = []
    for folder in sorted(models.glob(f"{kind}-[0-9]*")):
        file = work / "reports" / f"{folder.name}-{part}.json"
        command = ["eval", "own", "--model", str(folder), "--device", device, "-o", str(file)]
        command += ["--features", str(work / "own" / kind), "--annotations", str(work / "own" / "annotations.json")]
        command += ["--only", str(work / "own" / f"{kind}-test-{part}.txt")]
        command += ["--no-baselines"] if reports else []
        if not file.is_file():
            subprocess.run([sys.executable, "-m", "hiero", *command, "--json"], check=True, stdout=subprocess.DEVNULL)
        reports.append(Report.load(file))
    return reports


def _mean_rows(reports: list[Report], title: str) -> dict[str, Row]:
    """Rows of a table by method; scores and intervals are means over the seeds that have them."""
    rows: dict[str, list[Row]] = {}
    for report in reports:
        for row in next(table for table in report.tables if table.title == title).rows:
            rows.setdefault(row.method, []).append(row)
    return {method: mean_row(method, seeds) for method, seeds in rows.items()}


def run_all(work: Path, args: argparse.Namespace) -> None:
    """Prepare, train and score: from the published files to the table of the README."""
    prepare(work, find_source(work, args.source))
    train_all(work, args)
    models = work / "models"
    models.mkdir(exist_ok=True)
    name = "-".join(["HiERO", *args.set])  # of the folder of `train_one`
    for model in (work / "runs" / args.part).glob(f"*/{name}/*/model"):
        link = models / f"{model.parts[-4]}-{model.parts[-2]}"
        link.unlink(missing_ok=True)
        link.symlink_to(model.resolve())
    export(work, find_source(work, None), args.kinds, args.part)
    own(work, models, args.kinds, args.device)


# One run


def train_one(work: Path, kind: str, variant: str, seed: int, part: str, device: str, settings: list[str]) -> None:
    """Train a variant with one seed, and write its recall to scores.json."""
    begin = time.perf_counter()
    annotations = read_annotations(work)
    store = FeatureStore(work / kind / "store")
    parts = split(annotations, list(store), part)
    name = "-".join([variant.replace(" ", "-"), *settings])
    out = work / "runs" / part / kind / name / str(seed)
    skip = out / "held_out.txt"
    skip.parent.mkdir(parents=True, exist_ok=True)
    skip.write_text("\n".join(r for r in store if r not in parts["train"]))
    all_settings = [*VARIANTS[variant], *settings, f"seed={seed}"]
    train_from_files(
        work / kind / "store",
        work / kind / "narrations.csv",
        out / "model",
        settings=all_settings,
        options=TrainOptions(device=device, validation_share=0.0, skip=skip, capture=False, text_cache=work / "text"),
    )
    if kind == "omnivore-b":
        file = out / "model" / "model.safetensors"
        save_tensors(file, restrict_input(load_tensors(file), load_tensors(work / f"{kind}.safetensors")["basis"]))
    if part == "all":
        return
    scores = {name: score_model(work, out / "model", store, annotations, parts[name], device) for name in PARTS}
    (out / "scores.json").write_text(json.dumps(scores))
    print(f"{out / 'scores.json'}: written after {time.perf_counter() - begin:.0f} s", flush=True)


def score_model(
    work: Path, folder: Path, store: FeatureStore, annotations: dict, recordings: list[str], device: str
) -> dict[str, list[float]]:
    """R1@.3, R5@.3, R1@.5, R5@.5 with the paper's runs of threads, and with spans as `hiero ask` ranks them."""
    model = load_model(folder).to(device)
    predicted: dict[str, list[np.ndarray]] = {"threads": [], "spans": []}
    truth = []
    for recording in recordings:
        nodes = F.normalize(embed_features(model, store.read(recording), CLOCK, [0])["projected0"], dim=-1)
        texts = [step["text"] for step in annotations[recording]["steps"]]
        with torch.no_grad():
            queries = model.embed_text(encode_texts(texts, cache=work / "text").float().to(device)).cpu()
        runs = thread_runs(nodes.numpy(), NUM_THREADS, kappa=KAPPA, min_nodes=MIN_NODES)
        scores = span_means(queries.numpy() @ nodes.numpy().T, runs)
        predicted["threads"] += [runs[order[:NUM_SPANS]] * CLOCK.spacing_s for order in np.argsort(-scores, axis=1)]
        spans = candidate_spans(nodes.numpy(), CLOCK.spacing_s, NODE_LENGTH_PRIOR)
        ranked = rank_spans((queries @ nodes.mT).numpy(), spans, CLOCK.spacing_s)
        predicted["spans"] += [spans[indices] * CLOCK.spacing_s for indices, _ in ranked]
        truth += true_spans(annotations, recording)
    return {method: grounding_recall(spans, np.array(truth)).flatten().tolist() for method, spans in predicted.items()}


def score_untrained(
    work: Path, kind: str, annotations: dict, recordings: list[str], num_windows: int = 20
) -> list[float]:
    """No training: equal windows, ranked by the similarity of class names for Kinetics-400, else at random."""
    store = FeatureStore(work / kind / "store")
    classes = encode_texts(class_names(), cache=work / "text").float()
    generator = torch.Generator().manual_seed(0)
    predicted, truth = [], []
    for recording in recordings:
        features = store.read(recording)
        edges = torch.linspace(0, len(features), num_windows + 1).round().long()
        texts = [step["text"] for step in annotations[recording]["steps"]]
        if kind == "k400":
            nodes = features.softmax(1) @ classes
            windows = torch.stack([nodes[a:b].mean(0) for a, b in pairwise(edges.tolist())])
            windows = F.normalize(windows - windows.mean(0), dim=1)
            scores = encode_texts(texts, cache=work / "text").float() @ windows.mT
        else:
            scores = torch.rand(len(texts), num_windows, generator=generator)
        spans = torch.stack([edges[:-1], edges[1:]], 1).numpy().astype(float)
        predicted += [spans[order[:NUM_SPANS]] for order in scores.argsort(1, descending=True).numpy()]
        truth += true_spans(annotations, recording)
    return grounding_recall(predicted, np.array(truth)).flatten().tolist()


# All runs


def train_all(work: Path, args: argparse.Namespace) -> None:
    """Train all kinds, variants and seeds, each in a process of its own; then print the tables."""
    for kind in args.kinds:
        unpack(work, kind)
    jobs = [(kind, variant, seed) for seed in range(args.seeds) for kind in args.kinds for variant in args.variants]
    settings = [text for setting in args.set for text in ("--set", setting)]
    run = ["benchmarks.captaincook4d", "one", str(work), "--device", args.device, "--part", args.part, *settings]
    commands = [[*run, "--kinds", kind, "--variants", variant, "--seeds", str(seed)] for kind, variant, seed in jobs]
    run_modules(commands, args.jobs)
    table(work, args.part)


def table(work: Path, part: str) -> None:
    """Print the recall of all runs that exist, mean ± deviation over seeds."""
    annotations = read_annotations(work)
    for kind, title in KINDS.items():
        if not (work / kind / "store").is_dir():
            continue
        parts = split(annotations, list(FeatureStore(work / kind / "store")), part)
        print(f"\n{title} ({part}): {len(parts['train'])} training recordings")
        print(
            f"| | {' | '.join(f'{name} ({len(parts[name])}): R1@.3 | R5@.3 | R1@.5 | R5@.5' for name in PARTS)} | "
            "runs |"
        )
        print("|---" * 10 + "|")
        rows = {"no training": [[score_untrained(work, kind, annotations, parts[name]) for name in PARTS]]}
        for variant in VARIANTS:
            files = sorted((work / "runs" / part / kind / variant.replace(" ", "-")).glob("*/scores.json"))
            for method in ("threads", "spans"):
                rows[f"{variant}, {method}"] = [
                    [json.loads(file.read_text())[name][method] for name in PARTS] for file in files
                ]
        for name, runs in rows.items():
            if runs:
                values = 100 * np.array(runs).reshape(len(runs), -1)
                cells = [
                    f"{mean:.1f} ± {deviation:.1f}" if len(runs) > 1 else f"{mean:.1f}"
                    for mean, deviation in zip(values.mean(0), values.std(0), strict=True)
                ]
                print(f"| {name} | {' | '.join(cells)} | {len(runs)} |")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["all", "prepare", "export", "own", "opel", "train", "one", "table"])
    parser.add_argument("work", type=Path)
    parser.add_argument("--source", type=Path, help="by default the one that was prepared")
    parser.add_argument("--kinds", nargs="+", default=["k400", "omnivore", "omnivore-b"], choices=list(KINDS))
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=3, help="how many; with `one`, which")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--part", choices=["dev", "test", "all"], default="test")
    parser.add_argument("--set", action="append", default=[], help="settings of hiero train")
    parser.add_argument(
        "--models", type=Path, help="for `own`: a folder with KIND-SEED, trained without the test recordings"
    )
    args = parser.parse_args(arguments)
    if args.what == "own" and args.models is None:
        parser.error("own needs --models")
    if args.what == "all":
        run_all(args.work, args)
    elif args.what == "prepare":
        prepare(args.work, find_source(args.work, args.source))
    elif args.what == "export":
        export(args.work, find_source(args.work, args.source), args.kinds, args.part)
    elif args.what == "own":
        own(args.work, args.models, args.kinds, args.device)
    elif args.what == "opel":
        for kind in args.kinds:
            rows = opel.score(find_source(args.work, args.source), kind)
            print_row(f"{kind}, {opel.METHOD}", list(rows.values()), COLUMNS[PROCEDURE])
    elif args.what == "train":
        train_all(args.work, args)
    elif args.what == "one":
        train_one(args.work, args.kinds[0], args.variants[0], args.seeds, args.part, args.device, args.set)
    else:
        table(args.work, args.part)


if __name__ == "__main__":
    main()
