"""Real training: HiERO on 58 hours of egocentric cooking (CaptainCook4D features), held out by recording and by recipe.

    python -m benchmarks.captaincook4d prepare WORK [--source ../shared/captaincook4d]    stores, narrations, splits, text vectors
    python -m benchmarks.captaincook4d train WORK [--jobs 12] [--seeds 3] [--device cuda] [--part dev|test]
    python -m benchmarks.captaincook4d table WORK
    python -m benchmarks.captaincook4d export WORK         feature files, annotations and lists for `hiero eval own`, in WORK/own
    python -m benchmarks.captaincook4d own WORK --models MODELS    all tasks and baselines, MODELS/KIND-SEED, as Markdown
    python -m benchmarks.captaincook4d words WORK --model MODEL --dev-model MODEL   what class names add; "not in this video"

Step texts, spread over their spans every 4 s, are the narrations. One recipe in six is never trained on ("unseen recipes");
of the other recipes one recording in seven is not ("seen recipes"). Zero-shot grounding of each step's text in its recording:
R@k at IoU 0.3 and 0.5. Settings are chosen on `--part dev`, which splits the training recordings once more in the same way;
`--part test` is what is reported.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hiero import Clock, HiERO, embed_features
from hiero.cli.videos import PRESENCE_THRESHOLD
from hiero.data.stores import FeatureStore, pack
from hiero.engine import CLASS_EVIDENCE_WEIGHTS, class_names
from hiero.evaluation.metrics import grounding_recall
from hiero.evaluation.results import Report, Row, format_cell, mean_row
from hiero.steps.grounding import candidate_spans, ground_by_threads, rank_spans
from hiero.steps.ordering import align_in_order
from hiero.steps.similarity import ClassEvidence, NodeEvidence, presence_statistics, text_similarity
from hiero.storage.files import load_tensors, save_tensors
from hiero.text.encoders import encode_texts
from hiero.training.from_files import train_from_files

CLOCK = Clock(1.0, 1.0)
KINDS = {"k400": "Kinetics-400 logits", "omnivore": "Omnivore, 180 components", "omnivore-b": "Omnivore-B, 1024-d"}
COMPONENTS = {"k400": 128, "omnivore": 180}
VARIANTS = {
    "HiERO": [],
    "no L_ft": ["losses.thread_weight=0.0"],
    "no threads": ["model.num_threads=1"],
    "per-second MLP": ["model.depth=0"],
}
NUM_THREADS, KAPPA, MIN_NODES = 16, 0.05, 3
SPREAD_S = 4.0
PARTS = ("seen recipes", "unseen recipes")


def share(text: str) -> float:
    """A number in [0, 1) that belongs to a name."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


def split(annotations: dict, recordings: list[str], part: str) -> dict[str, list[str]]:
    """train, seen recipes, unseen recipes. For `dev` the training recordings of `test` are split again."""

    def once(recordings: list[str], salt: str) -> dict[str, list[str]]:
        recipes = sorted({annotations[r]["recipe"] for r in recordings}, key=lambda recipe: share(salt + recipe))
        unseen = set(recipes[: round(len(recipes) / 6)])
        out: dict[str, list[str]] = {"train": [], PARTS[0]: [], PARTS[1]: []}
        for recording in recordings:
            if annotations[recording]["recipe"] in unseen:
                out[PARTS[1]].append(recording)
            else:
                out[PARTS[0] if share(salt + recording) < 1 / 7 else "train"].append(recording)
        return out

    if part == "all":
        return {"train": sorted(recordings), PARTS[0]: [], PARTS[1]: []}
    found = once(sorted(recordings), "test ")
    return found if part == "test" else once(found["train"], "dev ")


# Data


def read_features(source: Path, kind: str) -> dict[str, Tensor]:
    """Features of each recording at 1 Hz."""
    if kind == "k400":
        raw = load_tensors(source / "kinetics400_logits.safetensors")
        return {name.removeprefix("logits/"): v.float() * raw["scale"] for name, v in raw.items() if name.startswith("logits/")}
    raw = load_tensors(source / "omnivore_pca384.safetensors")
    if kind == "omnivore-b":
        return expand(relabel(raw))
    num = COMPONENTS[kind]
    return {n.removeprefix("pca/"): v[:, :num].float() * raw["scale"][:num] for n, v in raw.items() if n.startswith("pca/")}


def export(work: Path, source: Path, kinds: list[str], part: str) -> None:
    """Files as `hiero eval own` takes them: OWN/KIND/RECORDING.npy, OWN/annotations.json, and lists of recordings of each part."""
    annotations = json.loads((source / "annotations.json").read_text())
    own = work / "own"
    for kind in kinds:
        features = read_features(source, kind)
        (own / kind).mkdir(parents=True, exist_ok=True)
        for name, value in features.items():
            np.save(own / kind / f"{name}.npy", value.half().numpy())
        for name, recordings in split(annotations, list(features), part).items():
            (own / f"{kind}-{part}-{name.split()[0]}.txt").write_text("\n".join(recordings) + "\n")
    steps = {
        name: {
            "task": about["recipe"],
            "duration_s": about["seconds"],
            "steps": [{key: step[key] for key in ("start_s", "end_s", "text")} for step in about["steps"]],
        }
        for name, about in annotations.items()
    }
    (own / "annotations.json").write_text(json.dumps(steps))


SHOWN = {
    "Procedure learning, true number of steps, background removed": ("F1", "IoU"),
    "Step grounding": ("R1@.3", "R5@.3", "R1@.5", "R5@.5"),
    "Step localization": ("mean", "mAP@0.3", "mAP@0.5"),
    "Multiple choice of five": ("inter", "intra"),
}


def own(work: Path, models: Path, kinds: list[str], device: str) -> None:
    """`hiero eval own` for each model MODELS/KIND-SEED on the recordings that it did not see; baselines with the first seed.

    The reports in WORK/reports hold everything; printed are the main columns, seen and unseen recipes side by side, the first
    column of each with its interval.
    """
    for kind in kinds:
        reports = {part: _reports(work, models, kind, part.split()[0], device) for part in PARTS}
        for title, columns in SHOWN.items():
            rows = {part: _over_seeds(found, title) for part, found in reports.items()}
            print(f"\n{KINDS[kind]}: {title}\n")
            print("| | " + " | ".join(f"{part.split()[0]} {name}" for part in PARTS for name in columns) + " |")
            print("|---" * (1 + len(PARTS) * len(columns)) + "|")
            for method in rows[PARTS[0]]:
                lines = [rows[part][method] for part in PARTS]
                cells = [format_cell(line, name, intervals=name == columns[0]) for line in lines for name in columns]
                print(f"| {method} | {' | '.join(cells)} |", flush=True)


def _reports(work: Path, models: Path, kind: str, part: str, device: str) -> list[Report]:
    out: list[Report] = []
    for folder in sorted(models.glob(f"{kind}-[0-9]*")):
        file = work / "reports" / f"{folder.name}-{part}.json"
        command = [
            "eval", "own", "--features", str(work / "own" / kind), "--annotations", str(work / "own" / "annotations.json"),
            "--only", str(work / "own" / f"{kind}-test-{part}.txt"), "--model", str(folder), "--device", device, "-o", str(file),
        ]  # fmt: skip
        command += ["--no-baselines"] if out else []
        if not file.is_file():
            subprocess.run([sys.executable, "-m", "hiero", *command, "--json"], check=True, stdout=subprocess.DEVNULL)
        out.append(Report.load(file))
    return out


def _over_seeds(reports: list[Report], title: str) -> dict[str, Row]:
    """Rows of a table by method; scores and intervals are means over the seeds that have them."""
    rows: dict[str, list[Row]] = {}
    for report in reports:
        for line in next(table for table in report.tables if table.title == title).rows:
            rows.setdefault(line.method, []).append(line)
    return {method: mean_row(method, found) for method, found in rows.items()}


def compress(features: dict[str, Tensor], num: int) -> dict[str, Tensor]:
    """Principal components of the standardised channels as int8, so that the set travels light."""
    rows = torch.cat(list(features.values())).double()
    mean, deviation = rows.mean(0), rows.std(0).clamp_min(1e-6)
    rows = (rows - mean) / deviation
    _, basis = torch.linalg.eigh(rows.mT @ rows / len(rows))
    basis = basis.flip(1)[:, :num]
    scale = (rows @ basis).abs().quantile(0.9999, dim=0) if len(rows) < 16_000_000 // num else (rows @ basis).abs().amax(0)
    scale = scale / 127
    out = {f"pc/{n}": (((v - mean) / deviation) @ basis / scale).round().clamp(-127, 127).char() for n, v in features.items()}
    return out | {"basis": (basis * scale).float().mT.contiguous(), "mean": mean.float(), "deviation": deviation.float()}


def relabel(raw: dict[str, Tensor]) -> dict[str, Tensor]:
    """The published components in the layout of `compress`: `expand` gives back the 1024-d features."""
    out = {name.replace("pca/", "pc/"): value for name, value in raw.items() if name.startswith("pca/")}
    basis = raw["basis"].float() * raw["scale"]
    return out | {"basis": basis.mT.contiguous(), "mean": raw["mean"].float(), "deviation": torch.ones(len(basis))}


def keep_inside(state: dict[str, Tensor], basis: Tensor) -> dict[str, Tensor]:
    """The input layer, blind to what lies outside the span of `basis` (n, F).

    The training features hold nothing out there, so the layer keeps what it was made with: noise, for features that do.
    """
    inside = torch.linalg.qr(basis.double().mT).Q
    scale = state["input_scale"].double()
    weight = (state["project.weight"].double() * scale) @ inside @ inside.mT / scale
    return state | {"project.weight": weight.to(state["project.weight"].dtype)}


def expand(small: dict[str, Tensor]) -> dict[str, Tensor]:
    recordings = [name for name in small if name.startswith("pc/")]
    return {n.removeprefix("pc/"): (small[n].float() @ small["basis"]) * small["deviation"] + small["mean"] for n in recordings}


def prepare(work: Path, source: Path) -> None:
    """What can travel to another machine: compressed features, annotations, text vectors."""
    annotations = json.loads((source / "annotations.json").read_text())
    work.mkdir(parents=True, exist_ok=True)
    (work / "annotations.json").write_text(json.dumps(annotations))
    save_tensors(work / "omnivore-b.safetensors", relabel(load_tensors(source / "omnivore_pca384.safetensors")))
    for kind in COMPONENTS:
        features = read_features(source, kind)
        small = compress(features, COMPONENTS[kind])
        restored = expand(small)
        kept = 1 - sum(float((restored[n] - v).square().sum()) for n, v in features.items()) / sum(
            float((v - small["mean"]).square().sum()) for v in features.values()
        )
        save_tensors(work / f"{kind}.safetensors", small)
        print(f"{kind}: {len(features)} recordings, {100 * kept:.1f} % of the variance kept")
    texts = sorted({step["text"] for about in annotations.values() for step in about["steps"]} | set(class_names("kinetics400")))
    encode_texts(texts, cache=work / "text")
    print(f"{len(texts)} texts encoded")


def unpack(work: Path, kind: str) -> None:
    """The store and the narrations that `hiero train` takes."""
    if (work / kind / "narrations.csv").is_file():
        return
    for name, features in expand(load_tensors(work / f"{kind}.safetensors")).items():
        save_tensors(work / kind / "features" / f"{name}.safetensors", {"features": features})
    pack(work / kind / "features", work / kind / "store", backbone=kind, clock=CLOCK, window=1)
    annotations = json.loads((work / "annotations.json").read_text())
    with (work / kind / "narrations.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["video", "time_s", "text"])
        for name, about in annotations.items():
            for step in about["steps"]:
                num = max(1, round((step["end_s"] - step["start_s"]) / SPREAD_S))
                for i in range(num):
                    time_s = step["start_s"] + (i + 0.5) / num * (step["end_s"] - step["start_s"])
                    writer.writerow([name, f"{time_s:.2f}", step["text"]])


# One run


def train_one(work: Path, kind: str, variant: str, seed: int, part: str, device: str, settings: list[str]) -> None:
    begin = time.perf_counter()
    annotations = json.loads((work / "annotations.json").read_text())
    store = FeatureStore(work / kind / "store")
    parts = split(annotations, list(store), part)
    name = "-".join([variant.replace(" ", "-"), *settings])
    out = work / "runs" / part / kind / name / str(seed)
    skip = out / "held_out.txt"
    skip.parent.mkdir(parents=True, exist_ok=True)
    skip.write_text("\n".join(r for r in store if r not in parts["train"]))
    all_settings = [*VARIANTS[variant], *settings, f"seed={seed}"]
    train_from_files(
        work / kind / "store", work / kind / "narrations.csv", out / "model", settings=all_settings, validation_share=0.0,
        skip=skip, capture=False, text_cache=work / "text", device=device,
    )  # fmt: skip
    if kind == "omnivore-b":
        file = out / "model" / "model.safetensors"
        save_tensors(file, keep_inside(load_tensors(file), load_tensors(work / f"{kind}.safetensors")["basis"]))
    if part == "all":
        return
    scores = {name: score_model(work, out / "model", store, annotations, parts[name], device) for name in PARTS}
    (out / "scores.json").write_text(json.dumps(scores))
    print(
        f"{time.perf_counter() - begin:.0f} s",
        kind,
        variant,
        *settings,
        seed,
        {name: {way: [round(100 * v, 1) for v in row] for way, row in found.items()} for name, found in scores.items()},
        flush=True,
    )


def score_model(
    work: Path, folder: Path, store: FeatureStore, annotations: dict, names: list[str], device: str
) -> dict[str, list[float]]:
    """R1@.3, R5@.3, R1@.5, R5@.5 with the paper's runs of threads, and with spans as `hiero ask` ranks them."""
    model = HiERO.from_pretrained(folder).to(device)
    predicted: dict[str, list[np.ndarray]] = {"threads": [], "spans": []}
    truth = []
    for name in names:
        nodes = F.normalize(embed_features(model, store.read(name), CLOCK, [0])["projected0"], dim=-1)
        texts = [step["text"] for step in annotations[name]["steps"]]
        with torch.no_grad():
            queries = model.embed_text(encode_texts(texts, cache=work / "text").float().to(device)).cpu()
        settings = {"num_threads": NUM_THREADS, "kappa": KAPPA, "min_nodes": MIN_NODES}
        runs, scores = ground_by_threads(nodes.numpy(), queries.numpy(), **settings)
        predicted["threads"] += [runs[order[:5]] * CLOCK.spacing_s for order in np.argsort(-scores, axis=1)]
        spans = candidate_spans(nodes.numpy(), CLOCK.spacing_s)
        ranked = rank_spans((queries @ nodes.mT).numpy(), spans, CLOCK.spacing_s)
        predicted["spans"] += [spans[places] * CLOCK.spacing_s for places, _ in ranked]
        truth += [[step["start_s"], step["end_s"]] for step in annotations[name]["steps"]]
    return {way: grounding_recall(found, np.array(truth)).flatten().tolist() for way, found in predicted.items()}


def score_untrained(work: Path, kind: str, annotations: dict, names: list[str], num_windows: int = 20) -> list[float]:
    """No training: equal windows, ranked by class posteriors × sentence embeddings of the class names; by chance for Omnivore."""
    store = FeatureStore(work / kind / "store")
    classes = encode_texts(class_names("kinetics400"), cache=work / "text").float()
    generator = torch.Generator().manual_seed(0)
    predicted, truth = [], []
    for name in names:
        features = store.read(name)
        edges = torch.linspace(0, len(features), num_windows + 1).round().long()
        texts = [step["text"] for step in annotations[name]["steps"]]
        if kind == "k400":
            nodes = features.softmax(1) @ classes
            windows = torch.stack([nodes[a:b].mean(0) for a, b in pairwise(edges.tolist())])
            windows = F.normalize(windows - windows.mean(0), dim=1)
            scores = encode_texts(texts, cache=work / "text").float() @ windows.mT
        else:
            scores = torch.rand(len(texts), num_windows, generator=generator)
        spans = torch.stack([edges[:-1], edges[1:]], 1).numpy().astype(float)
        predicted += [spans[order[:5]] for order in scores.argsort(1, descending=True).numpy()]
        truth += [[step["start_s"], step["end_s"]] for step in annotations[name]["steps"]]
    return grounding_recall(predicted, np.array(truth)).flatten().tolist()


# All runs


def train_all(work: Path, args: argparse.Namespace) -> None:
    for kind in args.kinds:
        unpack(work, kind)
    jobs = [(kind, variant, seed) for seed in range(args.seeds) for kind in args.kinds for variant in args.variants]

    def run(job: tuple[str, str, int]) -> None:
        kind, variant, seed = job
        command = [sys.executable, "-m", "benchmarks.captaincook4d", "one", str(work), "--kinds", kind, "--variants", variant]
        command += ["--seeds", str(seed), "--device", args.device, "--part", args.part]
        for setting in args.set:
            command += ["--set", setting]
        environment = {**os.environ, "OMP_NUM_THREADS": "1" if args.jobs > 1 else str(os.cpu_count())}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        print(done.stdout.strip() or f"{job} failed:\n{done.stderr[-2000:]}", flush=True)

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(run, jobs))
    table(work, args.part)


def table(work: Path, part: str) -> None:
    annotations = json.loads((work / "annotations.json").read_text())
    for kind, title in KINDS.items():
        if not (work / kind / "store").is_dir():
            continue
        parts = split(annotations, list(FeatureStore(work / kind / "store")), part)
        print(f"\n{title} ({part}): {len(parts['train'])} training recordings")
        print(f"| | {' | '.join(f'{name} ({len(parts[name])}): R1@.3 | R5@.3 | R1@.5 | R5@.5' for name in PARTS)} | runs |")
        print("|---" * 10 + "|")
        rows = {"no training": [[score_untrained(work, kind, annotations, parts[name]) for name in PARTS]]}
        for variant in VARIANTS:
            files = sorted((work / "runs" / part / kind / variant.replace(" ", "-")).glob("*/scores.json"))
            for way in ("threads", "spans"):
                rows[f"{variant}, {way}"] = [[json.loads(file.read_text())[name][way] for name in PARTS] for file in files]
        for name, runs in rows.items():
            if runs:
                values = 100 * np.array(runs).reshape(len(runs), -1)
                cells = [
                    f"{m:.1f} ± {s:.1f}" if len(runs) > 1 else f"{m:.1f}"
                    for m, s in zip(values.mean(0), values.std(0), strict=True)
                ]
                print(f"| {name} | {' | '.join(cells)} | {len(runs)} |")


def words(work: Path, model_folder: Path, development: Path) -> None:
    """What class names add to the model's own words, and how well "not in this video" is known: fitted on dev, shown on test.

    A text that is not there is one of another recipe's steps, as many as there are steps.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    annotations = json.loads((work / "annotations.json").read_text())
    store = FeatureStore(work / "k400" / "store")
    names = encode_texts(class_names("kinetics400"), cache=work / "text").float().numpy()
    recipes: dict[str, set[str]] = {}
    for about in annotations.values():
        for step in about["steps"]:
            recipes.setdefault(step["text"], set()).add(about["recipe"])
    vectors = dict(zip(recipes, encode_texts(list(recipes), cache=work / "text").float(), strict=True))

    def look(folder: Path, part: str) -> tuple[dict[str, dict[str, list]], list, list]:
        model = HiERO.from_pretrained(folder)
        rng = np.random.default_rng(0)
        found: dict[str, dict[str, list]] = {
            name: {"model": [], "class names": [], "both": [], "both, in order": [], "truth": []} for name in PARTS
        }
        statistics, present = [], []
        for name, recordings in split(annotations, list(store), part).items():
            for recording in recordings if name in PARTS else []:
                scores = store.read(recording)
                nodes = F.normalize(embed_features(model, scores, CLOCK, [0])["projected0"], dim=-1).numpy()
                steps = annotations[recording]["steps"]
                absent = [text for text, where in recipes.items() if annotations[recording]["recipe"] not in where]
                texts = [step["text"] for step in steps] + list(rng.choice(absent, len(steps), replace=False))
                queries = torch.stack([vectors[text] for text in texts])
                with torch.no_grad():
                    own = model.embed_text(queries).numpy()
                seen = ClassEvidence(scores.softmax(1).numpy(), names, *CLASS_EVIDENCE_WEIGHTS["i3d-k400"])
                parts = {"model": [NodeEvidence(nodes, 1.0)], "class names": [seen], "both": [NodeEvidence(nodes, 1.0), seen]}
                spans = candidate_spans(nodes, CLOCK.spacing_s)
                for way, evidence in parts.items():
                    similarity = text_similarity(evidence, queries.numpy(), own)
                    ranked = rank_spans(similarity, spans, CLOCK.spacing_s)
                    found[name][way] += [spans[places].astype(float) for places, _ in ranked[: len(steps)]]
                order = np.argsort([step["start_s"] for step in steps], kind="stable")
                stretches = dict(zip(order.tolist(), align_in_order(similarity[order]), strict=True))
                found[name]["both, in order"] += [np.array([stretches[i]], dtype=float) for i in range(len(steps))]
                statistics += list(presence_statistics(similarity, spans, [places[0] for places, _ in ranked]))
                present += [1] * len(steps) + [0] * len(steps)
                found[name]["truth"] += [[step["start_s"], step["end_s"]] for step in steps]
        return found, statistics, present

    _, x, y = look(development, "dev")
    fitted = LogisticRegression(C=100.0).fit(np.array(x), y)
    print(f"fitted on dev: PRESENCE = {[round(float(v), 1) for v in (*fitted.coef_[0], fitted.intercept_[0])]}")
    found, x, y = look(model_folder, "test")
    print("| | " + " | ".join(f"{name}: R1@.3 | R5@.3 | R1@.5 | R5@.5" for name in PARTS) + " |\n" + "|---" * 9 + "|")
    for way in ("model", "class names", "both", "both, in order"):
        cells = [100 * grounding_recall(found[name][way], np.array(found[name]["truth"])).flatten() for name in PARTS]
        print(f"| {way} | " + " | ".join(f"{v:.1f}" for row in cells for v in row) + " |")
    said, truth = fitted.predict_proba(np.array(x))[:, 1], np.array(y)
    print(f"in the video or not, test: AUC {roc_auc_score(truth, said):.3f}; said → true share (of queries)")
    for low, high in (*((i / 5, (i + 1) / 5) for i in range(5)), (0.0, PRESENCE_THRESHOLD)):
        here = (said >= low) & (said < high)
        if here.any():
            print(f"  {low:.1f}-{high:.1f} → {truth[here].mean():.2f} ({here.sum()})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "export", "own", "train", "one", "table", "words"])
    parser.add_argument("work", type=Path)
    parser.add_argument("--source", type=Path, default=Path("../shared/captaincook4d"))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=3, help="how many; with `one`, which")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--part", choices=["dev", "test", "all"], default="test")
    parser.add_argument("--set", action="append", default=[], help="settings of hiero train")
    parser.add_argument("--model", type=Path, help="for `words`: a folder trained without the test recordings")
    parser.add_argument("--models", type=Path, help="for `own`: a folder with KIND-SEED, trained without the test recordings")
    parser.add_argument("--dev-model", type=Path, help="for `words`: one trained without the development recordings too")
    args = parser.parse_args()
    if args.what == "prepare":
        prepare(args.work, args.source)
    elif args.what == "export":
        export(args.work, args.source, args.kinds, args.part)
    elif args.what == "own":
        own(args.work, args.models, args.kinds, args.device)
    elif args.what == "train":
        train_all(args.work, args)
    elif args.what == "one":
        train_one(args.work, args.kinds[0], args.variants[0], args.seeds, args.part, args.device, args.set)
    elif args.what == "words":
        unpack(args.work, "k400")
        words(args.work, args.model, args.dev_model)
    else:
        table(args.work, args.part)


if __name__ == "__main__":
    main()
