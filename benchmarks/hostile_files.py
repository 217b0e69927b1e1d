"""Damaged files for `benchmarks.hostile`: a case writes one, and reads it as the program does."""

from __future__ import annotations

import json
import os
import random
import tempfile
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.damage import ODD_TEXTS, damage_bytes, damage_document, damage_json
from hiero.types import Hierarchy


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


def read_steps(folder: Path, rng: random.Random) -> None:
    """A damaged file of steps, in any format that can be read, is imported or refused."""
    from hiero.formats.registry import exporter_names, find_exporter, read_step_file, write_export

    names = [name for name in exporter_names() if find_exporter(name).reader is not None]
    file = write_export(rng.choice(names), _made_hierarchy(rng), folder)
    data = file.read_bytes()
    kind = rng.choice(("bytes", "document", "encoding", "entities", "cues", "bytes of another format"))
    if kind == "document" and file.suffix == ".json":
        data = damage_document(json.loads(data), rng)
    elif kind == "encoding":
        data = f'<?xml version="1.0" encoding="{rng.choice(ENCODINGS)}"?>'.encode() + data[data.find(b"?>") + 2 :]
    elif kind == "entities":
        entities = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10 if i else "x" * 10}">' for i in range(12))
        data = f"<?xml version='1.0'?><!DOCTYPE a [{entities}]><a>&e11;</a>".encode()
    elif kind == "cues":
        data = b"WEBVTT\n\n" + b"00:00.000 --> 00:01.000\nx\n\n" * rng.choice((1, 1000, 100_000))
    elif kind == "bytes of another format":
        file = file.with_suffix(rng.choice((".json", ".xml", ".eaf", ".vtt", ".srt", ".csv", ".tsv", ".otio")))
    else:
        data = rng.choice((b"", b"\xef\xbb\xbf", b"\xff\xfe")) + damage_bytes(data, rng)
    file.write_bytes(data)
    hierarchy = read_step_file(file, folder / "v.mp4", 30.0, cut_overlaps=rng.random() < 0.5)
    assert hierarchy.to_dict()["levels"]


def read_odd_file(folder: Path, rng: random.Random) -> None:
    """What is not a file of the right kind, or not a file at all, is read or refused by each reader."""
    import hiero
    from hiero.data.features import read_feature_array
    from hiero.data.narrations import read_narrations
    from hiero.evaluation.own_videos import read_annotations
    from hiero.formats.registry import read_step_file
    from hiero.formats.transcripts import read_utterances
    from hiero.storage.files import read_json, read_lines

    readers: dict[str, Callable[[Path], object]] = {
        ".npy .npz .pt .safetensors": read_feature_array,
        ".mp4 .mkv": lambda path: hiero.load("raw").read(path),
        ".csv .jsonl": read_narrations,
        ".json .eaf .xml .vtt .srt .tsv .otio": lambda path: read_step_file(path, folder / "v.mp4", 30.0),
        ".srt .vtt": read_utterances,
        ".txt": read_lines,
        ".json": rng.choice((read_json, read_annotations)),
    }
    suffixes = rng.choice(sorted(readers))
    path = folder / f"{rng.choice(('v', 'ü', 'a b', '-x', '名'))}{rng.choice(suffixes.split())}"
    ODD_FILES[rng.choice(sorted(ODD_FILES))](path, rng)
    readers[suffixes](path)


def _write_bomb(path: Path, rng: random.Random) -> None:
    """An archive that unpacks to a thousand times its size."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("features.npy", "w") as member:
        for _ in range(rng.choice((1, 40, 300))):
            member.write(bytes(2**20))


def _write_huge(path: Path, rng: random.Random) -> None:
    """A file that is far larger than any memory, and takes no space on the disk."""
    path.write_bytes(rng.choice((b"", b"WEBVTT\n", b"[", b"\x93NUMPY\x01\x00v\x00")))
    is_video = path.suffix in (".mp4", ".mkv")  # which may be large, and are hashed
    os.truncate(path, 2**28 if is_video else 2 ** rng.choice((31, 40)))


def _write_shape(path: Path, rng: random.Random) -> None:
    """An array whose header promises more numbers than there are."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({10 ** rng.choice((1, 6, 15))}, 1000), }}"
    data = header.ljust(118).encode() + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(data).to_bytes(2, "little") + data + bytes(400))


ENCODINGS = ("rot13", "zlib", "hex", "base64", "utf-16", "utf-7", "idna", "undefined", "latin-1", "x" * 1000, "")
ODD_FILES: dict[str, Callable[[Path, random.Random], object]] = {
    "missing": lambda path, rng: None,
    "folder": lambda path, rng: path.mkdir(),
    "pipe that nobody writes": lambda path, rng: os.mkfifo(path),
    "link to nothing": lambda path, rng: path.symlink_to("nothing"),
    "link to itself": lambda path, rng: path.symlink_to(path.name),
    "device": lambda path, rng: path.symlink_to(rng.choice(("/dev/null", "/dev/zero", "/dev/urandom"))),
    "empty": lambda path, rng: path.touch(),
    "noise": lambda path, rng: path.write_bytes(rng.randbytes(rng.choice((1, 100, 10_000)))),
    "text": lambda path, rng: path.write_bytes(rng.choice(ODD_TEXTS).encode("utf-8", "surrogatepass")),
    "nested": lambda path, rng: path.write_bytes(rng.choice((b"[", b"<a>", b'{"a":')) * 100_000),
    "one long line": lambda path, rng: path.write_bytes(b"video,time_s,text\n" + b"a" * 3_000_000),
    "archive": _write_bomb,
    "shape": _write_shape,
    "huge": _write_huge,
}


def _made_hierarchy(rng: random.Random) -> Hierarchy:
    """Two levels of steps with odd names, 30 s."""
    edges = [0.0, 4.0, 9.5, 17.0, 30.0]
    levels = []
    for number, level in enumerate(([0.0, 9.5, 30.0], edges)):
        steps = [
            {"id": f"{number}.{i}", "start_s": start_s, "end_s": end_s, "thread": i, "label": rng.choice(STEP_NAMES)}
            for i, (start_s, end_s) in enumerate(pairwise(level))
        ]
        levels.append({"level": number, "steps": steps})
    return Hierarchy.from_dict({"version": 1, "video": "v.mp4", "model": "m", "duration_s": 30.0, "levels": levels})


STEP_NAMES = ("boil", "wash", None, "<b>&amp;", "=1+1", '"', "a --> b", "🍳")


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
    "step-files": read_steps,
    "odd-files": read_odd_file,
}
