"""Damaged files of every kind that hiero reads."""

from __future__ import annotations

import functools
import json
import os
import pickle
import random
import re
import sqlite3
import zipfile
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hiero
from hiero import HiERO, ModelConfig
from hiero.evaluation import egomcq, egoprocel_data, goalstep
from hiero.evaluation.heads.clips import read_clips
from hiero.evaluation.heads.head import HeadConfig, load_trained_head
from hiero.features.files import read_feature_array
from hiero.features.stores import FeatureStore, pack
from hiero.formats import annotations, hiero_json
from hiero.formats.registry import find_exporter, read_step_file, write_export
from hiero.formats.transcripts import read_utterances
from hiero.model.released import read_released
from hiero.networks.vector_cache import TextCache
from hiero.storage import weights
from hiero.storage.checkpoints import read_state_dict
from hiero.storage.files import home, read_json, read_lines, save_arrays
from hiero.storage.pickles import read_torch
from hiero.training.narrations import read_narrations
from hiero.types import MAX_TIME_S, Hierarchy, Step, Utterance, VideoFile
from tests.fuzz.damage import ODD_NUMBERS, ODD_TEXTS, damage_bytes, damage_document, damage_json, damage_text
from tests.fuzz.suite import suite

FORMATS = ("vtt", "srt", "ffmetadata", "youtube", "otio", "edl", "elan", "csv", "parquet", "activitynet")
FORMATS += ("labelstudio", "fiftyone")
READ_FORMATS = [name for name in FORMATS if find_exporter(name).reader is not None]
FIXTURES = Path(__file__).parent.parent / "fixtures"


def damage_file(path: Path, rng: random.Random) -> None:
    """Damage a file in a way that fits its format."""
    data, is_json = path.read_bytes(), False
    with suppress(ValueError):
        document, is_json = json.loads(data), True
    if is_json and rng.random() < 0.8:
        data = damage_document(document, rng)
    elif path.suffix in (".npy", ".npz", ".pt", ".pth", ".safetensors", ".parquet", ".bin") or rng.random() < 0.3:
        data = damage_bytes(data, rng)
    else:
        data = damage_text(data, rng)
    path.write_bytes(data)


@suite("features", 2500)
def read_features(folder: Path, rng: random.Random) -> None:
    """A damaged feature file, or a good one with a damaged sidecar, gives rows or is refused."""
    rows = np.random.default_rng(rng.randrange(2**31)).normal(size=(rng.choice((1, 2, 60)), 16)).astype(np.float32)
    path = folder / f"f{rng.choice(('.npy', '.npz', '.safetensors', '.pt'))}"
    save_rows(path, rows, rng)
    if rng.random() < 0.4:
        texts = dict.fromkeys(("backbone", "weights", "settings", "source", "sha256", "rows", "dtype"), "egovlp")
        counts = {"version": 1, "width": 16, "num_segments": len(rows), "num_frames": 16 * len(rows)}
        sidecar = {**texts, **counts, "fps": 30.0, "stride": 16.0, "window": 16.0, "duration_s": 9.0}
        path.with_name(path.name + ".json").write_bytes(damage_document(sidecar, rng))
    else:
        damage_file(path, rng)
    if rng.random() < 0.1:
        assert hiero.load("raw").read(path, cache=rng.random() < 0.5).steps().levels
    else:
        assert np.isfinite(read_feature_array(path)).all()


def save_rows(path: Path, rows: np.ndarray, rng: random.Random) -> None:
    if path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".npz":
        np.savez(path, features=rows)
    elif path.suffix == ".pt":
        torch.save(torch.from_numpy(rows), path, _use_new_zipfile_serialization=rng.random() < 0.5)
    else:
        save_arrays(path, {"features": rows})


@suite("pickles", 2000)
def read_pickle(folder: Path, rng: random.Random) -> None:
    """A torch file with a random program is read or refused."""
    path = folder / "f.pt"
    program = make_program(rng)
    if rng.random() < 0.2:
        program = damage_bytes(program, rng)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("f/data.pkl", program)
        archive.writestr("f/data/0", bytes(rng.choice((0, 4, 400))))
    rng.choice((read_torch, read_state_dict, read_feature_array, read_released))(path)


FRAGMENTS = (  # opcodes, how many objects they take from the stack, and how many they leave
    *((code, 0, 1) for code in (b"N", b"]", b"}", b")", b"K\x07", b"I99999999999999\n", b"X\x01\0\0\0a")),
    *((code, 0, 1) for code in (b"ccollections\nOrderedDict\n)R", b"ctorch\nFloatStorage\n", b"cos\nsystem\n")),
    *((code, 1, 1) for code in (b"\x85", b"\x94", b"]2a", b"Q")),
    *((code, 2, 1) for code in (b"\x86", b"a", b"R", b"b")),
    *((b"2", 1, 2), (b"\x87", 3, 1), (b"s", 3, 1)),
)


def make_program(rng: random.Random) -> bytes:
    """A pickle of random opcodes, of a tensor with odd numbers, or of objects that hold each other."""
    kind, out, depth = rng.choice(("opcodes", "opcodes", "tensor", "nested")), [b"\x80\x02"], 0
    if kind == "tensor":
        odd = [pickle.dumps(number, 2)[2:-1] for number in (0, 1, -1, 3, 10**9, 2**40, 2**62, 2**70, "a", (2, 3))]
        return re.sub(rb"K.", lambda match: rng.choice(odd) if rng.random() < 0.3 else match[0], made_program())
    for _ in range(rng.choice((3, 10, 50, 300)) if kind == "opcodes" else 0):
        code, takes, leaves = rng.choice([each for each in FRAGMENTS if each[1] <= depth])
        out.append(code)
        depth += leaves - takes
    if kind == "nested":
        start, around = rng.choice(((b"]", b"2\x86"), (b")", b"2\x86"), (b"N", b"\x85"), (b"N", b"}\x94K\x01h\0s0h\0")))
        out.append(start + around * rng.choice((10, 30, 100, 2000)))
        if rng.random() < 0.5:
            out.append(b"q\1}h\1Ns")  # as a key
    return b"".join(out) + b"."


@functools.cache
def made_program() -> bytes:
    torch.save({"model": {"a": torch.ones(2, 3)}}, made_folder("pickle") / "f.pt")
    with zipfile.ZipFile(made_folder("pickle") / "f.pt") as archive:
        return archive.read("f/data.pkl")


@suite("models", 1000)
def read_model(folder: Path, rng: random.Random) -> None:
    """A folder of a model or a head, or a released checkpoint, with a damaged file loads or is refused."""
    kind = rng.choice(("model", "model", "head", "released"))
    if kind == "released":
        path = folder / "released.pth"
        path.write_bytes(damage_bytes((FIXTURES / "official_small.pth").read_bytes(), rng))
        read_released(path).model()
        return
    for name, data in (made_model() if kind == "model" else made_head()).items():
        (folder / name).write_bytes(data)
    damage_file(folder / rng.choice(("config.json", "config.json", "model.safetensors")), rng)
    if kind == "model":
        HiERO.from_pretrained(str(folder)).eval()(torch.zeros(1, 5, 4))
    else:
        load_trained_head(folder)


@functools.cache
def made_model() -> dict[str, bytes]:
    """The files of a small network."""
    config = ModelConfig(4, hidden_size=8, embedding_size=8, text_size=8, depth=1, num_layers=1, gate_size=4)
    folder = made_folder("model")
    HiERO(config).save_pretrained(folder)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@functools.cache
def made_head() -> dict[str, bytes]:
    """The files of a small head."""
    from hiero.evaluation.heads.vslnet import VSLNetConfig

    config = HeadConfig(vslnet=VSLNetConfig(4, 4, hidden_size=8, num_heads=1))
    save_arrays(made_folder("head") / "w", {n: x.numpy() for n, x in config.build_network().state_dict().items()})
    document = {"head": config.to_dict(), "clock": {"fps": 1.0, "stride": 1.0}, "labels": ["a"], "clips": ["v"]}
    return {"config.json": json.dumps(document).encode(), "model.safetensors": (made_folder("head") / "w").read_bytes()}


def made_folder(name: str) -> Path:
    """A folder for the examples of this process."""
    folder = home() / "made" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@suite("steps", 1500)
def read_steps(folder: Path, rng: random.Random) -> None:
    """A damaged document of steps is refused, or every export of it can be written and hiero's own read again."""
    document = made_hierarchy(rng).to_dict()
    hierarchy = hiero.Hierarchy.from_dict(damage_json(document, rng))
    for step in hierarchy:
        assert 0 <= step.start_s < step.end_s <= MAX_TIME_S
        assert step.probability is None or 0 <= step.probability <= 1
    assert Hierarchy.from_dict(json.loads(json.dumps(hierarchy.to_dict()))).to_dict() == hierarchy.to_dict()
    for name in rng.sample(FORMATS, 3):
        assert write_export(name, hierarchy, folder).stat().st_size > 0


@suite("imports", 3000)
def import_steps(folder: Path, rng: random.Random) -> None:
    """A damaged file of steps, in any format that can be read, is imported or refused."""
    if rng.random() < 0.8:
        file = write_export(rng.choice(READ_FORMATS), made_hierarchy(rng), folder)
        if rng.random() < 0.1:
            file = file.rename(file.with_suffix(rng.choice((".json", ".eaf", ".vtt", ".srt", ".csv", ".parquet"))))
        damage_file(file, rng)
    else:
        name, make = rng.choice(ODD_IMPORTS)
        file = folder / name
        file.write_text(make(rng))
    hierarchy = read_step_file(file, folder / "v.mp4", rng.choice((30.0, None)), cut_overlaps=rng.random() < 0.5)
    assert Hierarchy.from_dict(hierarchy.to_dict()).levels


def nest_tiers(rng: random.Random) -> str:
    """An ELAN document with nested tiers, sometimes in a circle."""
    number = rng.choice((1, 2, 20, 3000))
    parents = [i - 1 if rng.random() < 0.9 else rng.randrange(number) for i in range(number)]
    tiers = "".join(f'<TIER TIER_ID="t{i}" PARENT_REF="t{parent}"/>' for i, parent in enumerate(parents))
    return f"<ANNOTATION_DOCUMENT><HEADER/><TIME_ORDER/>{tiers}</ANNOTATION_DOCUMENT>"


ENCODINGS = ("rot13", "zlib", "hex", "base64", "utf-16", "utf-7", "idna", "undefined", "latin-1", "x" * 1000, "")
ENTITIES = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10 if i else "x" * 10}">' for i in range(12))
ODD_IMPORTS: tuple[tuple[str, Callable[[random.Random], str]], ...] = (
    ("a.eaf", nest_tiers),
    ("a.eaf", lambda rng: f'<?xml version="1.0" encoding="{rng.choice(ENCODINGS)}"?><ANNOTATION_DOCUMENT/>'),
    ("a.eaf", lambda _: f"<?xml version='1.0'?><!DOCTYPE a [{ENTITIES}]><a>&e11;</a>"),
    ("a.vtt", lambda rng: "WEBVTT\n\n" + "00:00.000 --> 00:01.000\nx\n\n" * rng.choice((1, 1000, 20_000))),
)


@suite("edits", 1000)
def read_edits(folder: Path, rng: random.Random) -> None:
    """If one of two files with corrections is damaged, one of them is used or an error names a file."""
    video, steps = folder / "v.npy", made_hierarchy(rng)
    hiero_json.write_edits(video, "0" * 32, steps)
    files = hiero_json.find_edits(video, "0" * 32)
    assert len(files) == 2
    damage_file(rng.choice(files), rng)
    for file in files:
        stamp_s = rng.choice((0.0, 1e9, 2e9, 4e9))
        os.utime(file, (stamp_s, stamp_s))
    stored = hiero_json.read_edits(video, rng.choice(("0" * 32, None)))
    assert stored is None or hiero_json.parse_hierarchy(stored.hierarchy.to_dict()).levels


def read_damaged(readers: Sequence[tuple[Callable[[Path], Any], str, Any]], folder: Path, rng: random.Random) -> Any:
    """Read a damaged file with one of the readers."""
    reader, suffix, content = rng.choice(readers)
    path = folder / f"a{suffix}"
    path.write_text(json.dumps(content) if suffix == ".json" else content * rng.choice((1, 1, 100)))
    damage_file(path, rng)
    return reader(path)


@suite("transcripts", 1500)
def read_transcript(folder: Path, rng: random.Random) -> None:
    """A damaged transcript is read or refused; its utterances are in order."""
    utterances = read_damaged(TRANSCRIPTS, folder, rng)
    assert all(a.start_s <= b.start_s for a, b in pairwise(utterances))


CUES = "1\n00:00:01,000 --> 00:00:03,000\nI boil {\\an8}water\n\n2\n00:00:03,000 --> 00:00:05,500\n[Music]\n<i></i>\n\n"
SAID = [{"start": 3.0 * i, "end": 3.0 * i + 2, "text": f"now I boil water &amp; {i}"} for i in range(5)]
TRANSCRIPTS = (
    (read_utterances, ".srt", CUES),
    (read_utterances, ".vtt", "WEBVTT\n\n" + CUES.replace(",", ".").replace("00:00:", "00:")),
    (read_utterances, ".json", {"segments": SAID}),
    (read_utterances, ".json", {"segments": [[i, 0, each["start"], each["end"], "so"] for i, each in enumerate(SAID)]}),
    (read_utterances, ".json", {"chunks": [{"timestamp": [each["start"], None], "text": "so"} for each in SAID]}),
    (read_utterances, ".json", {"transcription": [{"offsets": {"from": 0, "to": 900}, "text": "so"}]}),
)


@suite("annotations", 2000)
def read_annotations(folder: Path, rng: random.Random) -> None:
    """Damaged annotations and narrations are read or refused by each of their readers."""
    np.save(folder / "v.npy", np.ones((9, 4), np.float32))
    read_damaged(ANNOTATIONS, folder, rng)


STEPS = {"steps": [{"start_s": 1.0, "end_s": 3.0, "text": "boil"}]}
CLIP = {"video_uid": "v", "clip_start": 1.0, "clip_end": 2.0}
QUESTION = {"query": {"clip_text": "x"}, "choices": {str(i): CLIP for i in range(5)}, "answer": 1, "types": 1}
QUERY = {"clip_start_sec": 1.0, "clip_end_sec": 2.0, "query": "boil"}
PART = {"clip_uid": "v", "video_start_sec": 0.0, "video_end_sec": 9.0, "annotations": [{"language_queries": [QUERY]}]}
QUERIES = {"videos": [{"video_uid": "v", "clips": [PART]}]}
SEGMENT = {"start_time": 1.0, "end_time": 2.0, "step_category": "a: b", "step_description": "b", "segments": []}
VIDEO = {"video_uid": "v", "start_time": 0.0, "end_time": 9.0, "segments": [{**SEGMENT, "segments": [SEGMENT]}]}
ANNOTATIONS: tuple[tuple[Callable[[Path], Any], str, Any], ...] = (
    (annotations.read_annotations, ".json", {"v": {"task": "t", "duration_s": 9.0, **STEPS}}),
    (annotations.annotations_to_dicts, ".json", {"v": STEPS, "w": STEPS}),
    (egomcq.read_questions, ".json", {"0": QUESTION, "1": QUESTION}),
    (goalstep.read_grounding, ".json", QUERIES),
    (goalstep.read_queries, ".json", QUERIES),
    (goalstep.read_steps, ".json", {"videos": [VIDEO]}),
    *(
        (lambda path: read_clips(path.parent, path), ".json", each)
        for each in (QUERIES, {"videos": [VIDEO]}, {"v": STEPS})
    ),
    (goalstep.read_groups, ".tsv", "video_group\tn\n['v', 'w']\t2\n['x']\t1\n"),
    (egoprocel_data.read_key_steps, ".csv", "0.5,2.0,1 take the bowl\n3.0,9.0,2. stir\n"),
    (egoprocel_data.read_rates, ".csv", "video,fps,frames\nv,29.97,900\nw,30,100\n"),
    (read_narrations, ".csv", "video,time_s,text\nv,1.5,opens the drawer\nv,2.5,takes a knife\n"),
    (read_narrations, ".tsv", "video_uid\tnarration_time\tclip_text\nv\t1.5\t#C C opens the drawer\n"),
    (read_narrations, ".jsonl", '{"video": "v", "time_s": 1.5, "text": "opens the drawer"}\n'),
    (read_narrations, ".srt", CUES),
)


@suite("stores", 500)
def read_store(folder: Path, rng: random.Random) -> None:
    """A feature store with a damaged index or data is read or refused."""
    for name in "vw":
        np.save(folder / f"{name}.npy", np.ones((5, 4), np.float32))
    pack(folder, folder / "store")
    damage_file(rng.choice(sorted((folder / "store").iterdir())), rng)
    store = FeatureStore(folder / "store")
    for video in store:
        assert store.read(video).shape == (store.num_segments(video), store.width)


@suite("caches", 800)
def read_cache(folder: Path, rng: random.Random) -> None:
    """A damaged cache of vectors gives those of an empty one."""
    texts = [f"text {i}" for i in range(5)]
    expected = TextCache("key", folder).encode(texts, encode_texts)
    file = next(folder.rglob("*.sqlite"))
    if rng.random() < 0.5:
        file.write_bytes(damage_bytes(file.read_bytes(), rng))
    else:
        with closing(sqlite3.connect(file)) as database, database:
            odd = rng.choice((b"", b"\0" * 7, "text", 2**62, None, 1.5))
            database.execute(f"UPDATE vectors SET {rng.choice(('vector', 'checksum'))} = ?", (odd,))
    assert np.array_equal(TextCache("key", folder).encode(texts, encode_texts), expected)


def encode_texts(texts: list[str]) -> np.ndarray:
    return np.array([[len(text), ord(text[-1])] for text in texts], dtype=np.float32)


@suite("weights", 300)
def copy_weights(folder: Path, rng: random.Random) -> None:
    """Weights with a wrong hash are refused and removed."""
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr(rng.choice(("model.onnx", "../x", "a/b")), bytes(100))
    damage_file(folder / "a.zip", rng)
    known = [each.name for each in weights.REGISTRY.values() if all(checksum for _, checksum in each.files.values())]
    weights.get(rng.choice(known), source=folder / "a.zip")
    raise AssertionError("weights that are not genuine were used")


@suite("odd-files", 800)
def read_odd_file(folder: Path, rng: random.Random) -> None:
    """Each reader reads or refuses files of other kinds, folders and special files."""
    suffixes = rng.choice(sorted(READERS))
    path = folder / f"{rng.choice(('v', 'ü', 'a b', '-x', '名', 'n' * 240))}{rng.choice(suffixes.split())}"
    ODD_FILES[rng.choice(sorted(ODD_FILES))](path, rng)
    rng.choice(READERS[suffixes])(path)


READERS: dict[str, tuple[Callable[[Path], object], ...]] = {
    ".npy .npz .pt .safetensors": (read_feature_array, lambda path: hiero.load("raw").read(path)),
    ".pt .pth": (read_torch, read_released, read_state_dict),
    ".mp4 .mkv": (lambda path: hiero.load("raw").read(path),),
    ".csv .jsonl": (read_narrations,),
    ".json .eaf .vtt .srt .csv .otio .parquet": (lambda path: read_step_file(path, path.with_name("v.mp4"), 30.0),),
    ".srt .vtt .json": (read_utterances,),
    ".txt .json": (read_lines, read_json, annotations.read_annotations, goalstep.read_steps),
    ".onnx": (lambda path: weights.get("minilm", source=path),),
}


def write_bomb(path: Path, rng: random.Random) -> None:
    """An archive that unpacks to a thousand times its size."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("features.npy", "w") as member:
        for _ in range(rng.choice((1, 40, 300))):
            member.write(bytes(2**20))


def write_huge(path: Path, rng: random.Random) -> None:
    """A sparse file that is far larger than the memory."""
    path.write_bytes(rng.choice((b"", b"WEBVTT\n", b"[", b"\x93NUMPY\x01\x00v\x00")))
    is_hashed = path.suffix in (".mp4", ".mkv", ".onnx")
    os.truncate(path, 2**28 if is_hashed else 2**40)


def write_shape(path: Path, rng: random.Random) -> None:
    """An array whose header claims more numbers than the file has."""
    shape = rng.choice(((10, 1000), (10**6, 1000), (10**15, 1000), (2**62, 2**62), (-1, 4), (0, 0), (), (1,) * 40))
    header = (
        f"{{'descr': '{rng.choice(('<f4', '>f8', '|O', '|S9', '<M8'))}', 'fortran_order': False, 'shape': {shape}, }}"
    )
    data = header.ljust(118).encode() + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(data).to_bytes(2, "little") + data + bytes(400))


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
    "numbers": lambda path, rng: path.write_text(json.dumps(rng.choice(ODD_NUMBERS[:-4]))),
    "nested": lambda path, rng: path.write_bytes(rng.choice((b"[", b"<a>", b'{"a":')) * 100_000),
    "one long line": lambda path, rng: path.write_bytes(b"video,time_s,text\n" + b"a" * 3_000_000),
    "archive": write_bomb,
    "shape": write_shape,
    "huge": write_huge,
}


def made_hierarchy(rng: random.Random) -> Hierarchy:
    """Two levels of steps with odd names, 30 s."""
    spans = (((0.0, 9.5), (9.5, 30.0)), ((0.0, 4.0), (4.0, 9.5), (9.5, 17.0), (17.0, 30.0)))
    levels = []
    for number, level in enumerate(spans):
        parents = [f"0.{int(start_s >= 9.5)}" if number else None for start_s, _ in level]
        steps = [
            Step(f"{number}.{i}", *span, i, parents[i], (), False, rng.choice(STEP_NAMES), rng.choice((None, 0.5)))
            for i, span in enumerate(level)
        ]
        levels.append(tuple(steps))
    if rng.random() < 0.7:
        return Hierarchy("v.mp4", "m", 30.0, tuple(levels))
    files = VideoFile("0.mp4", 0.0, 15.0), VideoFile("1.mp4", 15.0, 15.0)
    return Hierarchy("v.mp4", "m", 30.0, tuple(levels), files, (Utterance(1.0, 2.0, "now I boil water"),))


STEP_NAMES = ("boil", "wash", None, "<b>&amp;", "=1+1", '"', "a --> b", "🍳", "a;b\nc", "]]>", "{\\an8}")
