"""Damaged files for `benchmarks.hostile`: a case writes one, and reads it as the program does."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.damage import ODD_TEXTS, damage_bytes, damage_document, damage_json


def read_video(folder: Path, rng: random.Random) -> None:
    """A damaged video is read to its end, or refused."""
    from hiero.decoding.decode import Sampling, probe, read_segments

    container, codec = rng.choice(
        (("mp4", "libx264"), ("mkv", "mpeg4"), ("webm", "libvpx"), ("avi", "mpeg4"), ("ts", "libx264"))
    )
    path = folder / f"v.{container}"
    path.write_bytes(damage_bytes(_made_video(container, codec), rng))
    probe(path)
    total = sum(
        segment.frames.shape[0] for segment in read_segments(path, Sampling(skip_unreferenced=rng.random() < 0.5))
    )
    assert total < 100_000


def read_features(folder: Path, rng: random.Random) -> None:
    """A damaged feature file, or a good one with a damaged sidecar, gives steps or is refused."""
    import hiero

    rows = np.random.default_rng(rng.randrange(2**31)).normal(size=(rng.choice((1, 2, 60)), 16)).astype(np.float32)
    suffix = rng.choice((".npy", ".npz", ".safetensors", ".pt"))
    path = folder / f"f{suffix}"
    _save_rows(path, rows)
    if rng.random() < 0.3:
        sidecar = {
            "version": 1,
            "backbone": "egovlp",
            "width": 16,
            "num_segments": len(rows),
            "fps": 30.0,
            "stride": 16.0,
            "weights": "x",
            "settings": "y",
            "rows": "z",
        }
        path.with_name(path.name + ".json").write_bytes(damage_document(sidecar, rng))
    else:
        path.write_bytes(damage_bytes(path.read_bytes(), rng))
    video = hiero.load("raw").read(path, cache=rng.random() < 0.5)
    assert video.steps().levels


def read_annotations(folder: Path, rng: random.Random) -> None:
    """Damaged annotations are read or refused by each of their readers."""
    from hiero.data.narrations import read_narrations
    from hiero.evaluation import egomcq, egoprocel_data, goalstep, own_videos

    path = folder / "a.json"
    kind = rng.randrange(6)
    step = {"start_s": 1.0, "end_s": 3.0, "text": "boil"}
    clip = {"video_uid": "v", "clip_start": 1.0, "clip_end": 2.0}
    query = {"clip_start_sec": 1.0, "clip_end_sec": 2.0, "query": "boil"}
    if kind == 0:
        path.write_bytes(damage_document({"v": {"task": "t", "duration_s": 9.0, "steps": [step, step]}}, rng))
        own_videos.read_annotations(path)
    elif kind == 1:
        question = {"query": {"clip_text": "x"}, "choices": {str(i): clip for i in range(5)}, "answer": 1, "types": 1}
        path.write_bytes(damage_document({"0": question}, rng))
        egomcq.read_questions(path)
    elif kind == 2:
        part = {
            "clip_uid": "v",
            "video_start_sec": 0.0,
            "video_end_sec": 9.0,
            "annotations": [{"language_queries": [query]}],
        }
        path.write_bytes(damage_document({"videos": [{"video_uid": "v", "clips": [part]}]}, rng))
        goalstep.read_grounding(path)
    elif kind == 3:
        segment = {"start_time": 1.0, "end_time": 2.0, "step_category": "a: b", "step_description": "b", "segments": []}
        video = {"video_uid": "v", "start_time": 0.0, "end_time": 9.0, "segments": [segment]}
        path.write_bytes(damage_document({"videos": [video]}, rng))
        goalstep.read_steps(path)
    elif kind == 4:
        path = folder / "a.csv"
        path.write_bytes(damage_bytes(b"0.5,2.0,1 take the bowl\n3.0,9.0,2. stir\n" * rng.choice((1, 3000)), rng))
        egoprocel_data.read_key_steps(path)
    else:
        path = folder / "n.csv"
        path.write_bytes(damage_bytes(b"video,time_s,text\nv,1.5,opens the drawer\nv,2.5,takes a knife\n", rng))
        read_narrations(path)


def read_model(folder: Path, rng: random.Random) -> None:
    """A model folder with a damaged file loads or is refused."""
    import torch

    from hiero import HiERO, ModelConfig

    HiERO(
        ModelConfig(4, hidden_size=8, embedding_size=8, text_size=8, depth=1, num_layers=1, gate_size=4)
    ).save_pretrained(folder)
    path = folder / rng.choice(("config.json", "model.safetensors"))
    document = json.loads(path.read_text()) if path.suffix == ".json" else None
    path.write_bytes(damage_bytes(path.read_bytes(), rng) if document is None else damage_document(document, rng))
    HiERO.from_pretrained(str(folder)).eval()(torch.zeros(1, 5, 4))


def read_hierarchy(folder: Path, rng: random.Random) -> None:
    """A damaged document of steps is refused, or every export of it can be written."""
    import hiero
    from hiero.formats.registry import exporter_names, write_export

    steps = [
        {
            "id": f"0.{i}",
            "start_s": float(i),
            "end_s": i + 1.0,
            "thread": i,
            "label": rng.choice(ODD_TEXTS) or None,
            "score": 0.5,
            "parent": None,
            "children": [],
            "background": False,
        }
        for i in range(3)
    ]
    document = {"version": 1, "video": "v", "model": "m", "duration_s": 3.0, "levels": [{"level": 0, "steps": steps}]}
    hierarchy = hiero.Hierarchy.from_dict(damage_json(document, rng, 0.05))
    hierarchy.to_dict()
    for name in exporter_names():
        assert write_export(name, hierarchy, folder).stat().st_size > 0


_VIDEOS: dict[str, bytes] = {}


def _made_video(container: str, codec: str) -> bytes:
    """Two seconds of moving noise, made once."""
    if container not in _VIDEOS:
        import av

        noise = np.random.default_rng(0).integers(0, 255, (48, 160, 3), dtype=np.uint8)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"v.{container}"
            with av.open(str(path), "w") as out:
                stream = out.add_stream(codec, rate=10)
                stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
                for i in range(20):
                    for packet in stream.encode(
                        av.VideoFrame.from_ndarray(np.ascontiguousarray(noise[:, i : i + 64]), "rgb24")
                    ):
                        out.mux(packet)
                for packet in stream.encode():
                    out.mux(packet)
            _VIDEOS[container] = path.read_bytes()
    return _VIDEOS[container]


def _save_rows(path: Path, rows: np.ndarray) -> None:
    import torch

    from hiero.storage.files import save_arrays

    if path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".npz":
        np.savez(path, features=rows)
    elif path.suffix == ".pt":
        torch.save(torch.from_numpy(rows), path)
    else:
        save_arrays(path, {"features": rows})


KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "videos": read_video,
    "features": read_features,
    "annotations": read_annotations,
    "models": read_model,
    "hierarchies": read_hierarchy,
}
