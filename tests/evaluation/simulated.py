"""Small benchmarks in the official layouts, with random features; and small sessions of one's own
with known steps.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from hiero.config import ModelConfig
from hiero.evaluation.cases import EvalOptions
from hiero.model.hiero import HiERO
from hiero.networks.minilm import MINILM_KEY
from hiero.networks.vector_cache import TextCache
from hiero.types import Clock

TEXT_SIZE = 384  # MiniLM's
FEW_DRAWS = EvalOptions(num_threads=7, num_draws=30)


def scores_by_method(table):
    return {row.method: row.scores for row in table.rows}


def know_texts(monkeypatch, folder, encode, texts):
    """A home of its own whose cache has the vectors of texts: no weights are needed, also in other processes."""
    monkeypatch.setenv("HIERO_HOME", str(folder))
    TextCache(MINILM_KEY).encode(texts, encode)


# Official benchmarks

CLOCK = Clock(30.0, 16.0)
WIDTH = 12
TEXTS = [*(f"#C C does {i}" for i in range(9)), "#C C Cook: Boil water", "#C C Cook: Make tea"]
TEXTS += ["Boil water", "Fill the pot", "Fry eggs", "Make tea"]  # labels of Goal-Step


def save_random_model(folder, **sizes):
    sizes = {"input_size": WIDTH, "hidden_size": 16, "embedding_size": 8, "gate_size": 8, **sizes}
    HiERO(ModelConfig(text_size=TEXT_SIZE, **sizes)).save_pretrained(folder)


def encode_letters(texts):
    """Texts as bags of letters."""
    out = np.zeros((len(texts), TEXT_SIZE), dtype=np.float32)
    for i, text in enumerate(texts):
        for j, letter in enumerate(text):
            out[i, (ord(letter) * 7 + j) % TEXT_SIZE] += 1
    return out / np.linalg.norm(out, axis=1, keepdims=True)


def save_features(folder, name, num, seed=0):
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(torch.randn(num, WIDTH, generator=torch.Generator().manual_seed(seed)), folder / f"{name}.pt")


def write_questions(path, num=40, seed=0, missing_videos=()):
    """EgoMCQ's questions about the videos a, b, c, and others that have no features."""
    rng = np.random.default_rng(seed)
    videos = ["a", "b", "c", *missing_videos]
    content = {}
    for i in range(num):
        choices = {}
        for j in range(5):
            start_s, video = rng.uniform(0, 60), videos[rng.integers(len(videos))]
            choices[str(j)] = {"video_uid": video, "clip_start": start_s, "clip_end": start_s + rng.uniform(0.2, 3)}
        content[str(i)] = {
            "answer": int(rng.integers(5)),
            "types": int(rng.integers(1, 3)),
            "choices": choices,
            "query": {"clip_text": f"#C C does {rng.integers(9)}", "video_uid": "a"},
        }
    path.write_text(json.dumps(content))
    return path


def write_egoprocel(folder: Path) -> dict[str, tuple[float, int]]:
    """Two tasks of EgoProceL, five cameras of which one is worn; returns the frame rates."""
    rates = {}
    for task_folder, names in (
        ("CMU-MMAC/Brownie/S07_Brownie_Video", ["S07_Brownie_7150991-1431", "S07_Brownie_8421130-2374"]),
        ("MECCANO", ["0003", "0004", "0005"]),
    ):
        (folder / "annotations" / task_folder).mkdir(parents=True)
        for seed, name in enumerate(names):
            lines = ["0.0,5.0,1 take", "7.5,20,2. mix", "20,33.3,3 bake"]
            (folder / "annotations" / task_folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
            save_features(folder / "features" / task_folder.split("/")[0], name, 80, seed)
            rates[name] = (29.97, 1270)
    (folder / "features" / "MECCANO" / "0005.pt").unlink()
    return rates


def goalstep_segment(start_s, end_s, category, description, segments=()):
    times = {"start_time": start_s, "end_time": end_s}
    return {**times, "step_category": category, "step_description": description, "segments": list(segments)}


def write_goalstep(folder):
    """Two videos of Goal-Step, one of them a group of two."""
    substep = goalstep_segment(2.0, 5.0, "Cook: Fill the pot", "fills the pot")
    steps = [
        goalstep_segment(2.0, 12.0, "Cook: Boil water", "boils water", [substep]),
        goalstep_segment(15.0, 30.0, "Cook: Make tea", "makes tea"),
    ]
    videos = [
        {"video_uid": name, "start_time": 0.02, "end_time": end, "segments": steps}
        for name, end in (("u1", 40.0), ("grp-g1", 60.0))
    ]
    (folder / "valid.json").write_text(json.dumps({"version": "1.0", "split": "val", "videos": videos}))
    queries = [
        {"clip_start_sec": s["start_time"], "clip_end_sec": s["end_time"], "query": s["step_category"]} for s in steps
    ]
    grounding = []
    for video in videos:
        times = {"video_start_sec": 0.02, "video_end_sec": video["end_time"]}
        clip = {"clip_uid": video["video_uid"], **times, "annotations": [{"language_queries": queries}]}
        grounding.append({"video_uid": video["video_uid"], "clips": [clip]})
    (folder / "grounding.json").write_text(json.dumps({"videos": grounding}))
    (folder / "groups.tsv").write_text("university\tvideo_group\nx\t['g1', 'g2']\n")
    for seed, (name, num) in enumerate((("u1", 80), ("g1", 60), ("g2", 60))):
        save_features(folder / "features", name, num, seed)


# One's own videos

STEPS = ["boil the water", "grind the beans", "pour the milk", "stir the cup", "wash the pot", "dry the pot"]


def encode_as_own_vector(texts):
    """A text is a unit vector of its own; so is a video that shows nothing but it."""
    out = np.zeros((len(texts), TEXT_SIZE), dtype=np.float32)
    for i, text in enumerate(texts):
        out[i] = np.random.default_rng(sum(text.encode())).normal(size=TEXT_SIZE)
    return out / np.linalg.norm(out, axis=1, keepdims=True)


def save_identity_model(folder, monkeypatch):
    """A network without a graph whose both heads only double their space: what a node shows is what a text says."""
    know_texts(monkeypatch, folder.parent / "home", encode_as_own_vector, STEPS)
    config = ModelConfig(*(TEXT_SIZE, TEXT_SIZE, 2 * TEXT_SIZE, TEXT_SIZE), depth=0, dropout=0.0, clock=Clock(1.0, 1.0))
    model = HiERO(config)
    identity = torch.eye(TEXT_SIZE)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.project.weight.copy_(identity)
        model.video_head[1].weight.fill_(1.0)
        for head in (model.video_head, model.text_head):  # x = relu(x) − relu(−x), and zeros
            head[0].weight.copy_(torch.cat([identity, -identity]))
            head[-1].weight[:TEXT_SIZE].copy_(torch.cat([identity, -identity], dim=1))
    model.save_pretrained(folder)
    torch.manual_seed(0)
    return folder


def write_own_videos(folder, num_videos=3):
    """Videos at 1 Hz, each with its steps in an order of its own, a few seconds of nothing between them."""
    (folder / "features").mkdir()
    annotations, rng = {}, np.random.default_rng(0)
    for number in range(num_videos):
        time_s, rows, steps = 0.0, [], []
        for text in rng.permutation(STEPS):
            length = int(rng.integers(40, 70))
            rows.append(np.repeat(encode_as_own_vector([text]), length, 0) + rng.normal(0, 0.02, (length, TEXT_SIZE)))
            steps.append({"start_s": time_s, "end_s": time_s + length, "text": str(text)})
            rows.append(rng.normal(0, 0.05, (5, TEXT_SIZE)))
            time_s += length + 5
        np.save(folder / "features" / f"v{number}.npy", np.concatenate(rows).astype(np.float32))
        annotations[f"v{number}"] = {"task": "coffee", "duration_s": time_s, "steps": steps}
    (folder / "steps.json").write_text(json.dumps(annotations))
    return folder
