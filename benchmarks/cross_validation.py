"""Recipes never seen: training on CaptainCook4D with some recipes left out, all turns, and the spread
of what is found on them.

    python -m benchmarks.captaincook4d prepare WORK
    python -m benchmarks.cross_validation texts WORK [--encoder FOLDER] [--others FILE]
        vectors of texts; of mpnet or of bge
    python -m benchmarks.cross_validation train WORK [--kinds k400] [--variants base short …] [--jobs 12]
        [--device cuda]
    python -m benchmarks.cross_validation table WORK [--kinds k400]
    python -m benchmarks.cross_validation number WORK [--kinds k400]          how many steps?
    python -m benchmarks.cross_validation one WORK --kinds k400 --variants small --fold -1       trained on all recipes
    python -m benchmarks.cross_validation join WORK --kinds k400 --variants text-noise-1 small radius-5 -o MODEL

The 19 recipes are dealt into six folds. Each fold's model is trained without its recipes and
without one recording in seven of the others. So every recording is once one of a recipe that its
model never saw ("unseen"); "known" are the others that were left out. A run writes what it found on
both to WORK/folds/KIND/VARIANT/SEED/FOLD.safetensors; several variants joined by + are an ensemble,
whose similarities are averaged, and whose nodes are the networks' side by side.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.captaincook4d_data import CLOCK, KINDS, read_annotations, restrict_input, share, true_spans, unpack
from benchmarks.jobs import run_modules
from benchmarks.training_variants import (
    OTHER_TEXTS,
    KeepNeighbours,
    losses_with_negatives,
    negative_vectors,
    object_of,
    paraphrases,
    rewrite_narrations,
    shorten,
    write_other_texts,
    write_pseudo_narrations,
)
from hiero import HiERO, embed_features, load_model
from hiero.engine.vocabulary import class_names
from hiero.evaluation.metrics import grounding_recall, procedure_scores
from hiero.features.stores import FeatureStore
from hiero.model.ensemble import HieroEnsemble
from hiero.model.hiero import write_model_folder
from hiero.networks.minilm import MINILM_KEY
from hiero.networks.text_encoders import encode_texts
from hiero.networks.vector_cache import TextCache
from hiero.steps.grounding import align_in_order, candidate_spans, rank_spans
from hiero.steps.hierarchy import default_step_counts
from hiero.steps.segmentation import NODE_LENGTH_PRIOR, centre_and_normalise, cut_steps, step_labels
from hiero.storage.checkpoints import INT8_MAX, quantise
from hiero.storage.files import load_tensors, save_tensors
from hiero.training.from_files import TrainOptions, train_from_files
from hiero.vectors import unit_vectors

NUM_FOLDS = 6
KNOWN_SHARE = 1 / 7
PARTS = ("known", "unseen")
EMBEDDING_SIZE = 256  # of an ensemble
RECORDING_STEP, NODE_STEP = 4, 3  # of those that its projection is fitted to
NUM_DIRECTIONS = 64  # of nodes that are kept
PIECE_NODES, MIN_CHANGE = 4, 10.0  # of `count_changes`
# Settings of `hiero train`; "narrations" and "text" (vectors of another encoder in the place of
# MiniLM's) are files of WORK.
VARIANTS: dict[str, dict] = {
    "base": {},
    "mpnet": {"text": "text-mpnet"},
    "short": {"narrations": "narrations-short.csv"},
    "text-noise-1": {"settings": ["text_noise=1.0"]},
    "radius-5": {"settings": ["model.radius_s=5.0"]},
    "inside-1": {"settings": ["losses.inside=1.0"]},
    "small": {"settings": ["model.hidden_size=256", "model.embedding_size=128"]},
    "bge": {"text": "text-bge"},
    "objects": {"narrations": "narrations-objects.csv"},
    "versions": {"settings": ["epochs=20"]},  # of kind `both`, with three versions of each recording
    "paraphrases": {"narrations": "narrations-paraphrases.csv"},
    "negatives": {"negatives": True},
    "neighbours": {"settings": ["text_noise=1.0"], "neighbours": 1.0},
    # A second training, with the recordings that were left out and what the first one says of them
    # in place of their text.
    "self-nearest": {"teacher": "base", "soft": False},
    "self-soft": {"teacher": "base", "soft": True},
}
LONG = ["noise=1.0", "epochs=60"]  # as hiero-omnivore-b is trained
VARIANTS |= {
    ("long" if name == "base" else f"long-{name}"): {
        **VARIANTS[name],
        "settings": [*VARIANTS[name].get("settings", []), *LONG],
    }
    for name in ("base", "text-noise-1", "radius-5", "small", "neighbours")
}


def write_text_vectors(work: Path, encoder: Path | None, others: Path | None) -> None:
    """Vectors of all sentences, in full, in short, and of what they are about; and of texts of other data sets.

    Of MiniLM, into WORK/text; or of a folder: a transformer's into WORK/text-mpnet, one with bge's
    model_quantized.onnx and tokenizer.json into WORK/text-bge.
    """
    full = {step["text"] for entry in read_annotations(work).values() for step in entry["steps"]}
    texts = sorted(full | set(map(shorten, full)) | set(map(object_of, full)))
    if encoder is None:
        encode_texts([*texts, *(write_other_texts(work, others) if others else [])], cache=work / "text")
        return
    if (encoder / "model_quantized.onnx").is_file():
        TextCache(MINILM_KEY, work / "text-bge").encode(texts, bge_encoder(encoder))
        return
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(encoder), AutoModel.from_pretrained(encoder).eval()

    def encode(batch: list[str]) -> np.ndarray:
        tokens = tokenizer(batch, padding=True, truncation=True, return_tensors="pt")
        with torch.inference_mode():
            hidden, mask = model(**tokens).last_hidden_state, tokens["attention_mask"][..., None]
        return F.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1).numpy()

    TextCache(MINILM_KEY, work / "text-mpnet").encode(texts, encode)


def bge_encoder(folder: Path) -> Callable[[list[str]], np.ndarray]:
    """Unit vectors of bge-small: that of the class token."""
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    session = onnxruntime.InferenceSession(folder / "model_quantized.onnx")
    names = {value.name for value in session.get_inputs()}

    def encode(batch: list[str]) -> np.ndarray:
        rows = []
        for text in batch:  # one at a time: a scale of int8 activations depends on all that is beside them
            tokens = tokenizer.encode(text)
            values = {
                "input_ids": tokens.ids,
                "attention_mask": tokens.attention_mask,
                "token_type_ids": tokens.type_ids,
            }
            inputs = {name: np.array([value], dtype=np.int64) for name, value in values.items() if name in names}
            rows.append(session.run(None, inputs)[0][0, 0])
        return unit_vectors(np.array(rows, dtype=np.float32))

    return encode


def deal_folds(annotations: dict) -> dict[str, int]:
    """Fold of each recipe."""
    recipes = sorted({entry["recipe"] for entry in annotations.values()}, key=lambda recipe: share("fold " + recipe))
    return {recipe: i % NUM_FOLDS for i, recipe in enumerate(recipes)}


def split_fold(annotations: dict, recordings: list[str], fold: int) -> dict[str, list[str]]:
    """train, known, unseen; fold −1 leaves nothing out."""
    folds = deal_folds(annotations)
    out: dict[str, list[str]] = {"train": [], "known": [], "unseen": []}
    for recording in sorted(recordings):
        if folds[annotations[recording]["recipe"]] == fold:
            out["unseen"].append(recording)
        else:
            out["known" if fold >= 0 and share("fold " + recording) < KNOWN_SHARE else "train"].append(recording)
    return out


def write_narrations(work: Path, kind: str) -> None:
    """Narrations in other words, for the variants that take them."""
    rewrites: dict[str, Callable[[str], str]] = {"short": shorten, "objects": object_of}
    if (work / OTHER_TEXTS).is_file():
        nearest = paraphrases(work)
        rewrites["paraphrases"] = lambda text: nearest.get(text, text)
    for name, rewrite in rewrites.items():
        rewrite_narrations(work / kind / "narrations.csv", work / kind / f"narrations-{name}.csv", rewrite)


def train_fold(work: Path, kind: str, variant: str, seed: int, fold: int, device: str) -> None:
    """Train without a fold's recipes; write what is found on what was left out."""
    begin = time.perf_counter()
    options = VARIANTS[variant]
    annotations = read_annotations(work)
    store = FeatureStore(work / kind / "store")
    # names with a dot are versions of a recording
    recordings = [recording for recording in store if "." not in recording]
    parts = split_fold(annotations, recordings, fold)
    out = work / "folds" / kind / variant / str(seed)
    out.mkdir(parents=True, exist_ok=True)
    skip = out / f"{fold}.txt"
    skip.write_text("\n".join(r for r in store if r.split(".")[0] not in parts["train"]))
    narrations, text = work / kind / options.get("narrations", "narrations.csv"), work / options.get("text", "text")
    if "teacher" in options:
        teacher = work / "folds" / kind / options["teacher"] / str(seed) / f"model{fold}"
        unlabelled = [recording for part in PARTS for recording in parts[part]]
        pseudo = out / f"narrations{fold}.csv"
        text = write_pseudo_narrations(teacher, store, unlabelled, narrations, text, pseudo, device, options["soft"])
        narrations = pseudo
        skip.write_text("\n".join(r for r in store if r not in [*parts["train"], *unlabelled]))
    settings = [*options.get("settings", []), f"seed={seed}"]
    with ExitStack() as patches:
        if options.get("negatives"):
            losses = losses_with_negatives(negative_vectors(work, text))
            patches.enter_context(patch("hiero.training.step.compute_losses", losses))
        if "neighbours" in options:
            keep = KeepNeighbours(options["neighbours"])
            patches.enter_context(patch("hiero.training.step.compute_losses", keep.losses))
            patches.enter_context(patch.object(HiERO, "forward_unchecked", lambda *a, **k: keep.watch(*a, **k)))
        train_from_files(
            work / kind / "store",
            narrations,
            out / f"model{fold}",
            settings=settings,
            options=TrainOptions(device=device, validation_share=0.0, skip=skip, capture=False, text_cache=text),
        )
    trained_s = time.perf_counter() - begin
    if kind == "omnivore-b":
        file = out / f"model{fold}" / "model.safetensors"
        save_tensors(file, restrict_input(load_tensors(file), load_tensors(work / f"{kind}.safetensors")["basis"]))
    if fold < 0:
        print(f"{kind} {variant} seed {seed}, all recipes: {trained_s:.0f} s", flush=True)
        return
    for version in ("", ".first", ".second") if kind == "both" else ("",):
        described = describe_held_out(work, out / f"model{fold}", store, text, parts, device, version)
        save_tensors(work / "folds" / (kind + version) / variant / str(seed) / f"{fold}.safetensors", described)
    print(
        f"{kind} {variant} seed {seed} fold {fold}: {trained_s:.0f} s, {time.perf_counter() - begin:.0f} s with scores",
        flush=True,
    )


def describe_held_out(
    work: Path,
    folder: Path,
    store: FeatureStore,
    text: Path,
    parts: dict[str, list[str]],
    device: str,
    version: str = "",
) -> dict[str, torch.Tensor]:
    """What a model says of each recording (or of a version of it) that was left out, small enough to keep.

    Returns:
        `PART/RECORDING/…`: `similarity` of its steps' texts with its nodes, (Q, T), in 1/127;
        candidate `spans`, (N, 2); F1 and IoU of as many pieces as it has `steps`; and its `nodes`
        on their principal directions, (T, 64), as int8.
    """
    annotations, model = read_annotations(work), load_model(folder).to(device)
    out: dict[str, torch.Tensor] = {}
    for part in PARTS:
        for recording in parts[part]:
            nodes = F.normalize(
                embed_features(model, store.read(recording + version), CLOCK, [0])["projected0"], dim=-1
            )
            steps = annotations[recording]["steps"]
            with torch.no_grad():
                vectors = encode_texts([step["text"] for step in steps], cache=text).float().to(device)
                queries = model.embed_text(vectors).cpu()
            key = f"{part}/{recording}"
            out[f"{key}/similarity"] = (INT8_MAX * queries @ nodes.mT).round().char()
            out[f"{key}/spans"] = torch.from_numpy(
                candidate_spans(nodes.numpy(), CLOCK.spacing_s, NODE_LENGTH_PRIOR)
            ).short()
            out[f"{key}/steps"] = torch.tensor(score_steps(nodes.numpy(), steps))
            centred = F.normalize(nodes - nodes.mean(0), dim=-1)
            directions, scale, _ = torch.pca_lowrank(centred, q=min(NUM_DIRECTIONS, *centred.shape), center=False)
            small = directions * scale
            out[f"{key}/nodes"] = (INT8_MAX * small / small.abs().max()).round().char()
    return out


def score_steps(
    nodes: np.ndarray,
    steps: list[dict],
    num: int | None = None,
    equal_parts: bool = False,
    length_prior: float = NODE_LENGTH_PRIOR,
) -> tuple[float, float]:
    """F1 and IoU of contiguous pieces with background removed.

    Args:
        nodes: (T, D), one a second.
        steps: The true ones.
        num: Of pieces; by default as many as there are steps.
        equal_parts: Of time, instead of those of the nodes.
        length_prior: Of `cut_steps`.
    """
    labels = np.zeros(len(nodes), dtype=int)
    names = {step["text"]: i + 1 for i, step in enumerate(steps)}
    for step in steps:
        labels[round(step["start_s"]) : round(step["end_s"])] = names[step["text"]]
    used = labels > 0
    truth = labels[used]
    num = num or len(set(truth.tolist()))
    predicted = (
        np.arange(len(truth)) * num // len(truth)
        if equal_parts
        else step_labels(cut_steps(nodes[used], num, length_prior=length_prior))
    )
    scores = procedure_scores(predicted, truth)
    return scores.f1, scores.iou


class Recording(NamedTuple):
    """A recording that a fold's model never saw.

    Attributes:
        fold: That was left out.
        nodes: (T, D), one a second.
        steps: The true ones.
        num_steps: How many of them differ.
        num_changes: How often the nodes change much, see `count_changes`.
    """

    fold: int
    nodes: np.ndarray
    steps: list[dict]
    num_steps: int
    num_changes: int


def count_changes(nodes: np.ndarray) -> int:
    """Pieces that remain when neighbours are merged by Ward's rule as long as that costs little."""
    x = centre_and_normalise(nodes.astype(np.float64))
    edges = np.arange(0, len(x), PIECE_NODES)
    sums, sizes = np.add.reduceat(x, edges, axis=0), np.diff([*edges, len(x)]).astype(float)
    while len(sums) > 1:
        gap = np.square(sums[1:] / sizes[1:, None] - sums[:-1] / sizes[:-1, None]).sum(1)
        costs = sizes[1:] * sizes[:-1] / (sizes[1:] + sizes[:-1]) * gap
        i = int(costs.argmin())
        if costs[i] > MIN_CHANGE:
            break
        sums[i] += sums[i + 1]
        sizes[i] += sizes[i + 1]
        sums, sizes = np.delete(sums, i + 1, axis=0), np.delete(sizes, i + 1)
    return len(sums)


def read_recordings(work: Path, kind: str, variant: str, part: str) -> list[Recording]:
    """All recordings of a part whose nodes were kept."""
    annotations, out = read_annotations(work), []
    for file in sorted((work / "folds" / kind / variant / "0").glob("[0-9].safetensors")):
        for key, value in load_tensors(file).items():
            if key.startswith(part) and key.endswith("/nodes"):
                steps, nodes = annotations[key.split("/")[1]]["steps"], value.float().numpy()
                num_steps = len({step["text"] for step in steps})
                out.append(Recording(int(file.stem), nodes, steps, num_steps, count_changes(nodes)))
    return out


def number_table(work: Path, kind: str, variant: str) -> None:
    """Print how well rules guess the number of steps, and F1 / IoU of pieces of that number: mean over recordings.

    Rules are fitted to the recordings of the other folds: log number = a + b log of what they look at.
    """
    unseen = read_recordings(work, kind, variant, "unseen")
    looks_at: dict[str, Callable[[Recording], list[float]]] = {
        "length": lambda r: [len(r.nodes)],
        "changes": lambda r: [r.num_changes],
        "length and changes": lambda r: [len(r.nodes), r.num_changes],
    }

    def fitted(name: str, recording: Recording) -> int:
        others = [other for other in unseen if other.fold != recording.fold]
        rows = np.log([[np.e, *looks_at[name](other)] for other in others])
        weights = np.linalg.lstsq(rows, np.log([other.num_steps for other in others]))[0]
        return max(2, round(float(np.exp(np.log([np.e, *looks_at[name](recording)]) @ weights))))

    print("| | | number is off by | F1 | IoU | equal parts: F1 | IoU | recordings |\n" + "|---" * 8 + "|")
    for part in PARTS:
        recordings = unseen if part == "unseen" else read_recordings(work, kind, variant, part)
        numbers = {
            "true number": [r.num_steps for r in recordings],
            "`hiero steps`: one a minute": [default_step_counts(len(r.nodes), len(r.nodes))[-1] for r in recordings],
            **{f"fitted: {name}": [fitted(name, r) for r in recordings] for name in looks_at},
        }
        for name, chosen in numbers.items():
            pairs = list(zip(recordings, chosen, strict=True))
            error = np.mean([abs(np.log(num / r.num_steps)) for r, num in pairs])
            scores = [
                [*score_steps(r.nodes, r.steps, num), *score_steps(r.nodes, r.steps, num, True)] for r, num in pairs
            ]
            cells = " | ".join(f"{100 * value:.1f}" for value in np.mean(scores, axis=0))
            print(f"| {part} | {name} | {100 * np.expm1(error):.0f} % | {cells} | {len(pairs)} |", flush=True)


def read_predictions(
    work: Path, kind: str, variant: str, part: str
) -> Iterator[tuple[str, int, np.ndarray, np.ndarray, np.ndarray]]:
    """Recording, fold, similarity (Q, T), spans and scores of steps, of the ensemble of all seeds and
    variants that are there.
    """
    annotations = read_annotations(work)
    files: dict[int, list[Path]] = {}
    for name in variant.split("+"):
        for file in sorted((work / "folds" / kind / name).glob("*/*.safetensors")):
            files.setdefault(int(file.stem), []).append(file)
    for fold in sorted(files):
        runs = [load_tensors(file) for file in files[fold]]
        for key in runs[0]:
            if key.startswith(part) and key.endswith("/similarity"):
                stem = key.removesuffix("similarity")
                similarity = sum(run[key].float().numpy() for run in runs) / len(runs) / INT8_MAX
                recording = key.split("/")[1]
                # those of earlier runs were not kept
                if len(runs) == 1 or any(stem + "nodes" not in run for run in runs):
                    steps = np.mean([run[stem + "steps"].numpy() for run in runs], axis=0)
                else:
                    nodes = torch.cat([F.normalize(run[stem + "nodes"].float(), dim=1) for run in runs], dim=1)
                    steps = np.array(score_steps(nodes.numpy(), annotations[recording]["steps"]))
                yield recording, fold, similarity, runs[0][stem + "spans"].long().numpy(), steps


def score_recording(annotations: dict, recording: str, similarity: np.ndarray, spans: np.ndarray) -> list[float]:
    """R1@.3, R5@.3, R1@.5, R5@.5, and R1@.3 with all texts placed in their order."""
    truth = np.array(true_spans(annotations, recording))
    predicted = [spans[i] * CLOCK.spacing_s for i, _ in rank_spans(similarity, spans, CLOCK.spacing_s)]
    order = np.argsort(truth[:, 0], kind="stable")
    ordered = np.array(align_in_order(similarity[order]), dtype=float)
    in_order = grounding_recall([ordered[i : i + 1] for i in np.argsort(order)], truth)[0, 0]
    return [*grounding_recall(predicted, truth).flatten(), in_order]


def table(work: Path, kinds: list[str], variants: list[str]) -> None:
    """Print recall, in order and F1: mean over recordings' steps, and the deviation of the folds' means."""
    annotations = read_annotations(work)
    for kind in kinds:
        print(
            f"\n{KINDS[kind]}\n\n| | | R1@.3 | R5@.3 | R1@.5 | R5@.5 | in order R1@.3 | F1 | IoU | recordings |\n"
            + "|---" * 10
            + "|"
        )
        for variant in variants:
            for part in PARTS:
                rows, folds = [], []
                for recording, fold, similarity, spans, steps in read_predictions(work, kind, variant, part):
                    rows.append([*score_recording(annotations, recording, similarity, spans), *steps, len(similarity)])
                    folds.append(fold)
                if not rows:
                    continue
                values, where = np.array(rows), np.array(folds)
                weights = np.where(np.arange(7) < 5, values[:, 7:], 1.0)  # recall is of steps, F1 of recordings
                means = [
                    np.average(values[where == f, :7], axis=0, weights=weights[where == f]) for f in sorted(set(folds))
                ]
                cells = zip(np.average(values[:, :7], axis=0, weights=weights), np.std(means, axis=0), strict=True)
                print(
                    f"| {variant} | {part} | "
                    + " | ".join(f"{100 * m:.1f} ± {100 * d:.1f}" for m, d in cells)
                    + f" | {len(rows)} |"
                )


def train_all(work: Path, args: argparse.Namespace) -> None:
    """Every kind, variant, seed and fold that is not done yet, each in a process of its own."""
    for kind in args.kinds:
        unpack(work, kind)
        write_narrations(work, kind)
    jobs = [
        (k, v, s, f) for v in args.variants for s in range(args.seeds) for k in args.kinds for f in range(NUM_FOLDS)
    ]
    commands = [
        [
            "benchmarks.cross_validation",
            "one",
            str(work),
            "--kinds",
            kind,
            "--variants",
            variant,
            "--seeds",
            str(seed),
            "--fold",
            str(fold),
            "--device",
            args.device,
        ]
        for kind, variant, seed, fold in jobs
        if not (work / "folds" / kind / variant / str(seed) / f"{fold}.safetensors").is_file()
    ]
    run_modules(commands, args.jobs, args.limit_s)
    table(work, args.kinds, args.variants)


def join(work: Path, kind: str, variants: list[str], seed: int, out: Path) -> None:
    """The networks of some variants, trained on all recipes, as one model with weights in 8 bits."""
    folders = [work / "folds" / kind / variant / str(seed) / "model-1" for variant in variants]
    networks = [HiERO.from_pretrained(folder) for folder in folders]
    ensemble = HieroEnsemble([network.config for network in networks], EMBEDDING_SIZE)
    for member, network in zip(ensemble.members, networks, strict=True):
        member.load_state_dict(network.state_dict())
    ensemble.eval()
    store, annotations = FeatureStore(work / kind / "store"), read_annotations(work)
    texts = sorted({step["text"] for entry in annotations.values() for step in entry["steps"]} | set(class_names()))
    with torch.inference_mode():
        vectors = encode_texts(texts, cache=work / "text").float()
        rows = [torch.cat([network.embed_text(vectors) for network in networks], dim=1)]
        for recording in list(store)[::RECORDING_STEP]:
            levels = ensemble(store.read(recording)[None], spacing_s=CLOCK.spacing_s)
            parts = levels[0].features[0].split([network.config.hidden_size for network in networks], dim=-1)
            rows.append(
                torch.cat([n.embed_video(part) for n, part in zip(networks, parts, strict=True)], dim=1)[::NODE_STEP]
            )
        ensemble.fit_projection(torch.cat(rows))
    settings = [json.loads((folder / "config.json").read_text()) for folder in folders]
    extra = {"text_encoder": settings[0]["text_encoder"], "training": [values["training"] for values in settings]}
    extra["networks"] = [network.config.to_dict() for network in networks]
    write_model_folder(out, ensemble.config, quantise(ensemble.state_dict()), extra)
    print(f"{out}: {sum(p.numel() for p in ensemble.parameters()) / 1e6:.1f} M parameters, {len(networks)} networks")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["texts", "train", "one", "table", "number", "join"])
    parser.add_argument("work", type=Path)
    parser.add_argument("--kinds", nargs="+", default=["k400"], choices=list(KINDS))
    parser.add_argument("--variants", nargs="+", default=["base"])
    parser.add_argument("--seeds", type=int, default=1, help="how many; with `one`, which")
    parser.add_argument("--fold", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=1e9, help="no run begins after so many seconds")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--encoder", type=Path, help="of `texts`")
    parser.add_argument(
        "--others", type=Path, help="of `texts`: texts of other data sets, a csv.gz with a column `text`"
    )
    parser.add_argument("-o", "--out", type=Path, help="of `join`")
    args = parser.parse_args()
    if args.what == "texts":
        write_text_vectors(args.work, args.encoder, args.others)
    elif args.what == "train":
        train_all(args.work, args)
    elif args.what == "one":
        train_fold(args.work, args.kinds[0], args.variants[0], args.seeds, args.fold, args.device)
    elif args.what == "number":
        number_table(args.work, args.kinds[0], args.variants[0])
    elif args.what == "join":
        unpack(args.work, args.kinds[0])
        join(args.work, args.kinds[0], args.variants, 0, args.out)
    else:
        table(args.work, args.kinds, args.variants)


if __name__ == "__main__":
    main()
