"""The authors' released files in the layout of their repository: features as wide as the real ones, videos of minutes,
annotations with the structure of the official files. Contents are made up and networks small.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import torch

from tests.conftest import FIXTURES
from tests.evaluation.simulated import goalstep_segment
from tests.films import grey, write_video
from tests.networks.released import egovlp_with_words, hiero_checkpoint, lavila_with_words

EGO4D, GOALSTEP, EGOPROCEL = "data/ego4d/raw", "ego4d_goalstep/annotations", "egoprocel"
WIDTH = 256  # of EgoVLP's features
SPACING_S = 16 / 30
UIDS = {  # an 8-minute video for each purpose, and a group of two
    "mcq": "64b355f3-ef49-4990-8622-9e9eef68b495",
    "nlq_train": "8a933a23-55ff-42f2-8f86-c7746b2e09ac",
    "nlq_val": "5a347110-21e3-47eb-83f8-6e60d07c1b77",
    "goalstep_train": "c2d06df7-5d3a-4116-9edb-f1c81a4f669b",
    "goalstep_val": "e09ffaab-08c0-46ce-b242-ee029a4306be",
    "goalstep_val_2": "565d83f1-0c21-4f4a-a4d1-ffb336c554ef",
}
NUM_ROWS, RUN_ROWS = 900, 45  # 8 minutes, and 24 seconds of one activity
MECCANO_FPS, MECCANO_S = 12, 480
START_S, EDGES = 0.0210286458333333, ("start", "end")
ACTIONS = ["cut the red cup", "press the old stone", "put paper on the wall", "open the green door"]


def write_release(folder: Path) -> Path:
    """Everything that the rows of EgoVLP need, for one video of each benchmark."""
    for part in ("checkpoints", "pretrained", f"{EGO4D}/annotations/v1", f"{EGO4D}/features/egovlp", GOALSTEP):
        (folder / part).mkdir(parents=True)
    shutil.copy(FIXTURES / "protocols/checkpoint/hiero_small.pth", folder / "checkpoints/hiero_egovlp.pth")
    _write_text_tower(folder / "pretrained")
    for seed, (purpose, uid) in enumerate(UIDS.items()):
        num_rows = 60 if purpose == "goalstep_val_2" else NUM_ROWS  # the group continues in a short video
        _write_features(folder / EGO4D / "features/egovlp" / f"{uid}.pt", num_rows, seed)
    _write_json(folder / EGO4D / "annotations/egomcq.json", _egomcq())
    for split in ("train", "val"):
        uid = UIDS[f"nlq_{split}"]
        _write_json(
            folder / EGO4D / f"annotations/v1/nlq_{split}.json", _queries(uid, f"clip-{split}", 0.0, "where did i ")
        )
        uid = UIDS[f"goalstep_{split}"]
        name = uid if split == "train" else f"grp-{uid}"
        _write_json(folder / GOALSTEP / f"{split}.json", _queries(name, name, START_S))
        _write_json(folder / GOALSTEP / f"goalstep_{split}.json", _goalstep(name, split))
    group = [UIDS["goalstep_val"], UIDS["goalstep_val_2"]]
    (folder / GOALSTEP / "goalstep_video_groups.tsv").write_text(f"university\tvideo_group\nutokyo\t{group}\n")
    _write_egoprocel(folder / EGOPROCEL)
    return folder


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content))


def _write_features(path: Path, num_rows: int, seed: int, width: int = WIDTH) -> None:
    """A few kinds of activity that alternate, with noise."""
    rng = np.random.default_rng(seed)
    kinds = rng.normal(size=(8, width))
    rows = kinds[np.arange(num_rows) // RUN_ROWS * 5 % 8] + rng.normal(0, 0.3, (num_rows, width))
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(torch.from_numpy(rows.astype(np.float32)), path)


def _write_text_tower(folder: Path) -> None:
    from transformers import DistilBertConfig, DistilBertModel

    torch.manual_seed(0)
    text = DistilBertModel(DistilBertConfig(dim=64, hidden_dim=128, n_layers=1, n_heads=1))
    torch.save(text.state_dict(), folder / "egovlp_text.pth")
    projection = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(64, WIDTH))
    torch.save(projection.state_dict(), folder / "egovlp_txt_proj.pth")


def _spans_s() -> list[tuple[float, float]]:
    """Every second run of an activity is a step."""
    length_s = RUN_ROWS * SPACING_S
    return [(i * length_s, (i + 1) * length_s) for i in range(0, NUM_ROWS // RUN_ROWS, 2)]


def _egomcq() -> dict[str, object]:
    rng = np.random.default_rng(0)
    questions = {}
    for i in range(20):
        uids = [UIDS["mcq"]] * 5 if i % 2 else list(UIDS.values())[:5]  # intra, inter
        starts_s = rng.uniform(0, 470, 5).tolist()
        questions[str(i)] = {
            "answer": int(rng.integers(5)),
            "types": 1 + i % 2,
            "choices": {
                str(j): {"video_uid": uid, "clip_start": start_s, "clip_end": start_s + 0.8}
                for j, (uid, start_s) in enumerate(zip(uids, starts_s, strict=True))
            },
            "query": {"clip_text": f"#C C {ACTIONS[i % 4]}", "video_uid": uids[0]},
        }
    return questions


def _queries(name: str, clip: str, start_s: float, prefix: str = "") -> dict[str, object]:
    """The layout of both NLQ and the grounding of Goal-Step: one clip of the video `name`."""
    queries = [
        {
            **{
                f"{part}_{edge}_sec": value
                for part in ("clip", "video")
                for edge, value in zip(EDGES, span, strict=True)
            },
            "query": f"{prefix}{ACTIONS[i % 4]}",
        }
        for i, span in enumerate(_spans_s())
    ]
    times = {"video_start_sec": start_s, "video_end_sec": 479.9}
    clip = {"clip_uid": clip, **times, "annotations": [{"language_queries": queries}]}
    return {"version": "1", "videos": [{"video_uid": name, "clips": [clip]}]}


def _goalstep(name: str, split: str) -> dict[str, object]:
    segments = [
        goalstep_segment(*span, f"Make things: {ACTIONS[i % 4]}", ACTIONS[i % 4]) for i, span in enumerate(_spans_s())
    ]
    video = {"video_uid": name, "start_time": START_S, "end_time": 479.9, "segments": segments}
    return {"version": "1.0", "split": split, "videos": [video]}


def _write_egoprocel(folder: Path) -> None:
    """A video of MECCANO, with its true frame rate."""
    for part in ("annotations/MECCANO", "videos/MECCANO"):
        (folder / part).mkdir(parents=True)
    lines = [f"{start_s:.2f},{end_s:.2f},{1 + i % 5} do it" for i, (start_s, end_s) in enumerate(_spans_s())]
    (folder / "annotations/MECCANO/0020.csv").write_text("\n".join(lines) + "\n")
    num_frames = MECCANO_FPS * MECCANO_S
    pictures = [grey(0, 16, 16)] * num_frames
    film = folder / "videos/MECCANO/0020.mp4"
    write_video(film, range(num_frames), fps=MECCANO_FPS, codec="mpeg4", pictures=pictures)
    _write_features(folder / "features/egovlp/MECCANO/0020.pt", num_frames // 16, 9)


def write_other_backbones(folder: Path) -> None:
    """Beside `write_release`: what the rows of Omnivore and LaViLa need, and EgoClip for training."""
    _, _, distilbert = egovlp_with_words(folder / "egovlp.pth")
    _, clip = lavila_with_words(folder / "lavila-l.pth")
    texts = {"omnivore": distilbert.state_dict(), "lavila-l": clip}
    features = {"omnivore": ("omnivore_video_swinl", 1536), "lavila-l": ("LaViLa-L", WIDTH)}
    for name, (family, width) in features.items():
        hiero_checkpoint(folder / f"checkpoints/hiero_{name}.pth", family, width, texts[name])
        for seed, (purpose, uid) in enumerate(UIDS.items()):
            num_rows = 60 if purpose == "goalstep_val_2" else NUM_ROWS
            _write_features(folder / EGO4D / "features" / family / f"{uid}.pt", num_rows, seed, width)
    films = folder / EGOPROCEL / "features/omnivore_video_swinl_window-16/MECCANO/0020.pt"
    _write_features(films, MECCANO_FPS * MECCANO_S // 16, 9, 1536)
    rows = [
        [uid, "pass_1", 480.0, time_s, max(0, time_s - 1), time_s + 1, f"#C C {ACTIONS[int(time_s) % 4]}", "0", "0"]
        for uid in list(UIDS.values())[:5]
        for time_s in np.arange(1.0, 470.0, 4.0)
    ]
    columns = "video_uid narration_source video_dur narration_time clip_start clip_end clip_text tag_verb tag_noun"
    lines = ["\t".join(map(str, row)) for row in [columns.split(), *rows]]
    (folder / EGO4D / "annotations/egoclip.csv").write_text("\n".join(lines) + "\n")
