"""CaptainCook4D for benchmarks: features, annotations, splits, and the files that `hiero train` and
`hiero eval own` take.

`--source` is a folder with the files as they are published, anywhere inside it:

- `complete_step_annotations.json` of https://github.com/CaptainCook4D/annotations
- `slowfast/RECORDING_360p.mp4_1s_1s.npz` (T, 400) and `omnivore/…` (T, 1024), the features of the dataset's page

`convert` writes them in a compact form, which is accepted too. It has one row per second of each recording:

- `kinetics400_logits.safetensors`: `logits/RECORDING` (T, 400) int8 and `scale` (400,). The logits
  are int8 · scale, with the classes of Kinetics-400 in alphabetical order.
- `omnivore_pca384.safetensors`: `pca/RECORDING` (T, 384) int8, `scale` (384,), `basis` (1024, 384)
  and `mean` (1024,). A feature is (int8 · scale) @ basis.T + mean.
- `annotations.json`: `recipe`, `seconds` and timed `steps` of each recording.
"""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hiero import Clock
from hiero.engine.vocabulary import class_names
from hiero.features.stores import pack
from hiero.networks.text_encoders import encode_texts
from hiero.storage.checkpoints import INT8_MAX
from hiero.storage.files import load_tensors, save_tensors

DEFAULT_SOURCE = Path("../shared/captaincook4d")
PUBLISHED_STEPS = "complete_step_annotations.json"
NUM_COMPONENTS = 384  # of Omnivore's features, which keep 95 % of the variance
SOURCE_FILE = "source.txt"  # in WORK: the folder that `prepare` read
CLOCK = Clock(1.0, 1.0)
KINDS = {"k400": "Kinetics-400 logits", "omnivore": "Omnivore, 180 components", "omnivore-b": "Omnivore-B, 1024-d"}
COMPONENTS = {"k400": 128, "omnivore": 180}  # principal components of each kind that are compressed
NARRATION_SPACING_S = 4.0  # a step's text is a narration every so often
PARTS = ("seen recipes", "unseen recipes")
UNSEEN_RECIPES = 6  # one in so many is never trained on
HELD_OUT_RECORDINGS = 7  # of the other recipes, one recording in about so many
QUANTILE = 0.9999  # of a component that fills int8; the rest is clipped
MAX_QUANTILE_SIZE = 16_000_000  # numbers that torch.quantile takes


def share(text: str) -> float:
    """A number in [0, 1) that is always the same for a name."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


def find_source(work: Path, source: Path | None) -> Path:
    """The folder of the recordings: as given, as `prepare` was given it, or the default.

    Published files are converted into WORK.
    """
    noted = work / SOURCE_FILE
    source = source or (Path(noted.read_text()) if noted.is_file() else DEFAULT_SOURCE)
    published = next(source.rglob(PUBLISHED_STEPS), None)
    if published is not None:
        if not (work / "source" / "annotations.json").is_file():
            convert(source, published, work / "source")
        return work / "source"
    if not (source / "annotations.json").is_file():
        raise SystemExit(f"{source}: holds no {PUBLISHED_STEPS}; name the folder of CaptainCook4D: --source DATA")
    return source


def convert(release: Path, published: Path, out: Path) -> None:
    """Write the compact form of published annotations and features. annotations.json, written last, marks the end."""
    logits = read_published(release, "slowfast")
    scale = torch.stack([x.abs().amax(0) for x in logits.values()]).amax(0).clamp_min(1e-6) / INT8_MAX
    values = {f"logits/{name}": (x / scale).round().char() for name, x in logits.items()}
    save_tensors(out / "kinetics400_logits.safetensors", {**values, "scale": scale})
    features = read_published(release, "omnivore")
    rows = torch.cat(list(features.values()))
    mean, covariance = rows.mean(0), torch.cov(rows.mT.double(), correction=0)
    basis = torch.linalg.eigh(covariance)[1].flip(1)[:, :NUM_COMPONENTS].float()
    scale = ((rows - mean) @ basis).abs().amax(0).clamp_min(1e-6) / INT8_MAX
    components = {f"pca/{name}": ((x - mean) @ basis / scale).round().char() for name, x in features.items()}
    save_tensors(
        out / "omnivore_pca384.safetensors", {**components, "scale": scale, "basis": basis.contiguous(), "mean": mean}
    )
    entries = {}
    for name, entry in json.loads(published.read_text()).items():
        if name in logits:
            steps = [read_step(step) for step in entry["steps"] if step["start_time"] >= 0]  # -1: it was left out
            about = {"recipe": entry["activity_name"], "person": entry["person_id"], "seconds": len(logits[name])}
            entries[name] = about | {"has_omnivore": name in features, "steps": steps}
    (out / "annotations.json").write_text(json.dumps(entries))


def read_published(release: Path, backbone: str) -> dict[str, Tensor]:
    """The published features of a backbone by recording, (T, F) each."""
    files = sorted(file for file in release.rglob("*.npz") if backbone in file.parent.parts[-2:])
    if not files:
        raise SystemExit(f"{release}: holds no {backbone}/RECORDING_360p.mp4_1s_1s.npz")
    out = {}
    for file in files:
        with np.load(file) as arrays:
            out[file.name.partition("_360p")[0]] = torch.from_numpy(arrays[arrays.files[0]]).float()
    return out


def read_step(step: dict) -> dict:
    """A step of the published annotations, whose description starts with its verb: `Rinse-Rinse a tomato`."""
    text = step["description"].split("-", 1)[-1].strip()
    times = {"start_s": step["start_time"], "end_s": step["end_time"]}
    return {"step_id": step["step_id"], **times, "text": text, "has_errors": step["has_errors"]}


def read_annotations(folder: Path) -> dict:
    """Recipe, seconds and steps of each recording."""
    return json.loads((folder / "annotations.json").read_text())


def true_spans(annotations: dict, recording: str) -> list[list[float]]:
    """start_s and end_s of each step."""
    return [[step["start_s"], step["end_s"]] for step in annotations[recording]["steps"]]


def split(annotations: dict, recordings: list[str], part: str) -> dict[str, list[str]]:
    """train, seen recipes, unseen recipes. For `dev` the training recordings of `test` are split again."""

    def split_once(recordings: list[str], salt: str) -> dict[str, list[str]]:
        recipes = sorted({annotations[r]["recipe"] for r in recordings}, key=lambda recipe: share(salt + recipe))
        unseen = set(recipes[: round(len(recipes) / UNSEEN_RECIPES)])
        out: dict[str, list[str]] = {"train": [], PARTS[0]: [], PARTS[1]: []}
        for recording in recordings:
            if annotations[recording]["recipe"] in unseen:
                out[PARTS[1]].append(recording)
            else:
                out[PARTS[0] if share(salt + recording) < 1 / HELD_OUT_RECORDINGS else "train"].append(recording)
        return out

    if part == "all":
        return {"train": sorted(recordings), PARTS[0]: [], PARTS[1]: []}
    parts = split_once(sorted(recordings), "test ")
    return parts if part == "test" else split_once(parts["train"], "dev ")


def read_features(source: Path, kind: str) -> dict[str, Tensor]:
    """Features of each recording at 1 Hz, from the published files."""
    if kind == "k400":
        raw = load_tensors(source / "kinetics400_logits.safetensors")
        return {
            name.removeprefix("logits/"): v.float() * raw["scale"]
            for name, v in raw.items()
            if name.startswith("logits/")
        }
    raw = load_tensors(source / "omnivore_pca384.safetensors")
    if kind == "omnivore-b":
        return expand(to_compressed(raw))
    num = COMPONENTS[kind]
    return {
        n.removeprefix("pca/"): v[:, :num].float() * raw["scale"][:num] for n, v in raw.items() if n.startswith("pca/")
    }


def compress(features: dict[str, Tensor], num_components: int) -> dict[str, Tensor]:
    """Principal components of the standardised channels as int8, so that the set is small enough to copy."""
    rows = torch.cat(list(features.values())).double()
    mean, deviation = rows.mean(0), rows.std(0).clamp_min(1e-6)
    rows = (rows - mean) / deviation
    _, basis = torch.linalg.eigh(rows.mT @ rows / len(rows))
    basis = basis.flip(1)[:, :num_components]
    magnitude = (rows @ basis).abs()
    fits = len(rows) < MAX_QUANTILE_SIZE // num_components
    scale = (magnitude.quantile(QUANTILE, dim=0) if fits else magnitude.amax(0)) / INT8_MAX
    compressed = {
        f"pc/{name}": (((x - mean) / deviation) @ basis / scale).round().clamp(-INT8_MAX, INT8_MAX).char()
        for name, x in features.items()
    }
    return compressed | {
        "basis": (basis * scale).float().mT.contiguous(),
        "mean": mean.float(),
        "deviation": deviation.float(),
    }


def to_compressed(raw: dict[str, Tensor]) -> dict[str, Tensor]:
    """The published components in the layout of `compress`: `expand` gives back the 1024-d features."""
    components = {name.replace("pca/", "pc/"): value for name, value in raw.items() if name.startswith("pca/")}
    basis = raw["basis"].float() * raw["scale"]
    return components | {
        "basis": basis.mT.contiguous(),
        "mean": raw["mean"].float(),
        "deviation": torch.ones(len(basis)),
    }


def expand(compressed: dict[str, Tensor]) -> dict[str, Tensor]:
    """The reverse of `compress`."""
    basis, mean, deviation = compressed["basis"], compressed["mean"], compressed["deviation"]
    return {
        name.removeprefix("pc/"): (x.float() @ basis) * deviation + mean
        for name, x in compressed.items()
        if name.startswith("pc/")
    }


def restrict_input(state: dict[str, Tensor], basis: Tensor) -> dict[str, Tensor]:
    """The weights of a model with an input layer that is blind to what lies outside the span of `basis` (n, F).

    The training features have nothing outside, so there the layer still has its random initial
    weights: noise, for features that do have something.
    """
    inside = torch.linalg.qr(basis.double().mT).Q
    scale = state["input_scale"].double()
    weight = (state["project.weight"].double() * scale) @ inside @ inside.mT / scale
    return state | {"project.weight": weight.to(state["project.weight"].dtype)}


def prepare(work: Path, source: Path) -> None:
    """Write what can be copied to another machine: compressed features, annotations, text vectors."""
    annotations = read_annotations(source)
    work.mkdir(parents=True, exist_ok=True)
    (work / SOURCE_FILE).write_text(str(source.resolve()))
    (work / "annotations.json").write_text(json.dumps(annotations))
    save_tensors(work / "omnivore-b.safetensors", to_compressed(load_tensors(source / "omnivore_pca384.safetensors")))
    for kind in COMPONENTS:
        features = read_features(source, kind)
        compressed = compress(features, COMPONENTS[kind])
        restored = expand(compressed)
        error = sum(float((restored[n] - v).square().sum()) for n, v in features.items())
        variance = sum(float((v - compressed["mean"]).square().sum()) for v in features.values())
        save_tensors(work / f"{kind}.safetensors", compressed)
        print(f"{kind}: {len(features)} recordings, {100 * (1 - error / variance):.1f} % of the variance kept")
    texts = sorted({step["text"] for entry in annotations.values() for step in entry["steps"]} | set(class_names()))
    encode_texts(texts, cache=work / "text")
    print(f"{len(texts)} texts encoded")


def unpack(work: Path, kind: str) -> None:
    """Write the store and the narrations that `hiero train` takes, if they do not exist."""
    if (work / kind / "narrations.csv").is_file():
        return
    annotations = read_annotations(work)
    features = expand(load_tensors(work / f"{kind}.safetensors"))
    write_training_files(work / kind, features, {name: annotations[name]["steps"] for name in features}, kind)


def write_training_files(
    folder: Path, features: dict[str, Tensor], steps: dict[str, list[dict]], backbone: str
) -> None:
    """FOLDER/store and FOLDER/narrations.csv, with each step's text every few seconds."""
    for name, x in features.items():
        save_tensors(folder / "features" / f"{name}.safetensors", {"features": x.contiguous()})
    pack(folder / "features", folder / "store", backbone=backbone, clock=CLOCK, window=1)
    with (folder / "narrations.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["video", "time_s", "text"])
        for name in features:
            for step in steps[name]:
                writer.writerows(narrate(name, step["start_s"], step["end_s"], step["text"]))


def narrate(name: str, start_s: float, end_s: float, text: str) -> list[list[str]]:
    """Rows of a file of narrations: a text every few seconds of a span."""
    num = max(1, round((end_s - start_s) / NARRATION_SPACING_S))
    return [[name, f"{start_s + (i + 0.5) / num * (end_s - start_s):.2f}", text] for i in range(num)]


def export(work: Path, source: Path, kinds: list[str], part: str) -> None:
    """Write files as `hiero eval own` takes them: OWN/KIND/RECORDING.npy, OWN/annotations.json, and
    lists of each part.
    """
    if unknown := sorted(set(kinds) - {*COMPONENTS, "omnivore-b"}):
        raise SystemExit(f"--kinds {unknown[0]} cannot be exported; choose from {', '.join(COMPONENTS)}, omnivore-b")
    annotations = read_annotations(source)
    own = work / "own"
    for kind in kinds:
        features = read_features(source, kind)
        (own / kind).mkdir(parents=True, exist_ok=True)
        for name, x in features.items():
            np.save(own / kind / f"{name}.npy", x.half().numpy())
        for name, recordings in split(annotations, list(features), part).items():
            (own / f"{kind}-{part}-{name.split()[0]}.txt").write_text("\n".join(recordings) + "\n")
    steps = {
        name: {
            "task": entry["recipe"],
            "duration_s": entry["seconds"],
            "steps": [{key: step[key] for key in ("start_s", "end_s", "text")} for step in entry["steps"]],
        }
        for name, entry in annotations.items()
    }
    (own / "annotations.json").write_text(json.dumps(steps))
