"""A hostile test of the whole program: damaged files of every kind, odd requests and names, forged
headers of proxies, damaged states of servers, kills, disks that are full, several writers.

python -m benchmarks.hostile [--cases 250]                    this many of each kind that is quick,
and a tenth of the slow ones python -m benchmarks.hostile --kind features --first 17 --cases 1
one case again, as a failure says

A case behaves where it ends within its limit with a result or with a clear message (InputError,
exit code 1 or 2, 4xx); it does not where something else is raised, a process prints a traceback, or
the result differs from an undisturbed run. Every case follows from its kind and number alone. Only
temporary folders and 127.0.0.1 are touched.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hiero.errors import InputError

LIMIT_S = 30.0  # of a case within this process
PROCESS_LIMIT_S = 120.0
KILL_AFTER_S = (0.2, 3.0)  # of a process that starts from nothing
SLOW = ("kills", "disks", "writers")  # a tenth as many of these: each takes seconds
ODD_TEXTS = (
    "",
    " ",
    "=1+1",
    "-->",
    "<b>&amp;",
    '"',
    "\n\n",
    "\x00",
    "\udc80",
    "🍳" * 300,
    "../../x",
    "%s%n",
    "a" * 70_000,
    "NaN",
)
ODD_NUMBERS: tuple[Any, ...] = (
    -1,
    0,
    1e308,
    1e30,
    -1e-300,
    float("nan"),
    float("inf"),
    2**70,
    10**400,
    True,
    "7",
    None,
)


# Damage


def damage_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bytes flipped, cut off, zeroed, repeated or put in, somewhere."""
    if not data:
        return data
    kind = rng.choice(("flip", "cut", "zero", "repeat", "insert", "empty", "head"))
    start = rng.randrange(len(data))
    length = min(len(data) - start, rng.choice((1, 4, 64, 1024)))
    if kind == "flip":
        out = bytearray(data)
        for i in range(start, start + length):
            out[i] ^= 1 << rng.randrange(8)
        return bytes(out)
    if kind == "cut":
        return data[:start]
    if kind == "zero":
        return data[:start] + bytes(length) + data[start + length :]
    if kind == "repeat":
        return data[:start] + data[start : start + length] * 3 + data[start + length :]
    if kind == "insert":
        return data[:start] + rng.randbytes(length) + data[start:]
    return b"" if kind == "empty" else rng.randbytes(length) + data[length:]


def damage_json(value: Any, rng: random.Random, share: float = 0.15) -> Any:
    """The same document with some values replaced, left out, or of another type."""
    if rng.random() < share:
        return rng.choice((rng.choice(ODD_NUMBERS), rng.choice(ODD_TEXTS), [], {}, [value], {"x": value}))
    if isinstance(value, dict):
        return {key: damage_json(item, rng, share) for key, item in value.items() if rng.random() > share / 3}
    if isinstance(value, list):
        items = [damage_json(item, rng, share) for item in value if rng.random() > share / 3]
        return items * rng.choice((1, 1, 1, 2))
    return value


def damage_document(document: Any, rng: random.Random) -> bytes:
    """A JSON file with damage of structure, of bytes, or nested far too deep."""
    kind = rng.random()
    if kind < 0.05:
        return b"[" * 100_000 + b"]" * 100_000
    data = json.dumps(damage_json(document, rng) if kind < 0.75 else document).encode("utf-8", "surrogatepass")
    return data if kind < 0.75 else damage_bytes(data, rng)


# What is damaged: each takes a folder and a generator of chances, and does one case


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


def ask_server(folder: Path, rng: random.Random) -> None:
    """An odd request is answered, and not by 5xx."""
    client, library = _server(folder)
    id = library.find_by_name("v").id
    paths = (
        "/api/videos",
        "/api/videos/{id}",
        "/api/videos/{id}/steps",
        "/api/videos/{id}/ask",
        "/api/videos/{id}/label",
        "/api/videos/{id}/edits",
        "/api/videos/{id}/export/{x}",
        "/api/videos/{id}/picture",
        "/api/search",
        "/api/jobs/{x}",
        "/api/videos/{id}/similarity/{x}/{x}/{x}",
        "/api/upload",
    )

    def odd() -> str:
        return (
            str(rng.choice((*ODD_TEXTS, *ODD_NUMBERS, "vtt", "3", "2,5", "99999")))[:2000]
            .encode("utf-8", "replace")
            .decode()
        )

    from urllib.parse import quote

    path = rng.choice(paths).replace("{id}", id if rng.random() < 0.8 else quote(odd(), safe=""))
    while "{x}" in path:
        path = path.replace("{x}", quote(odd(), safe="") or "0", 1)
    method = rng.choice(("GET", "GET", "GET", "POST", "PUT", "DELETE", "PATCH"))
    parameters = {name: odd() for name in ("q", "n", "k", "t", "model", "level", "name") if rng.random() < 0.4}
    body = damage_document({"labels": ["a"], "levels": [{"level": 0, "steps": []}], "duration_s": 1.0}, rng)
    body = body if method in ("POST", "PUT") else b""
    headers = {
        "Content-Type": "application/json",
        "Range": f"bytes={odd()}".encode("latin-1", "replace").decode("latin-1"),
    }
    headers = {name: value for name, value in headers.items() if value.isprintable()}
    answer = client.request(method, path, params=parameters, content=body, headers=headers)
    assert answer.status_code < 500, f"{method} {path}: {answer.status_code} {answer.text[:200]}"


def pretend_to_be_a_proxy(folder: Path, rng: random.Random) -> None:
    """Only the address of the connection decides whose headers name a user."""
    from starlette.testclient import TestClient

    from hiero.serve.app import create_app
    from hiero.serve.settings import ServerSettings

    _, library = _server(folder)
    addresses = ("127.0.0.1", "10.9.8.7", "10.9.8.8", "::1", "::ffff:10.9.8.7", "2001:db8::7", "testclient")
    trusted, peer = rng.choice(("10.9.8.7", "10.9.8.7/32", "2001:db8::/64")), rng.choice(addresses)
    settings = ServerSettings(trusted_proxy=[trusted], user_header="Remote-User", header_role="admin")
    forged = {
        "X-Forwarded-For": ", ".join(rng.choices(addresses, k=rng.randint(1, 4))),
        "X-Forwarded-Proto": rng.choice(("https", "http", "gopher")),
        "X-Forwarded-Host": rng.choice(("localhost", "evil.example", "10.9.8.7")),
        "X-Real-IP": rng.choice(addresses),
        "Forwarded": f"for={rng.choice(addresses)};proto=https",
    }
    headers = {name: value for name, value in forged.items() if rng.random() < 0.7}
    client = TestClient(create_app(library, settings), base_url="http://localhost", client=(peer, 1))
    answer = client.get("/api/me", headers={**headers, "Remote-User": "boss"})
    is_proxy = peer.endswith("10.9.8.7") if "10.9" in trusted else peer == "2001:db8::7"
    expected = (200, 421) if is_proxy else (401,)
    assert answer.status_code in expected, f"{peer} of {trusted}: {answer.status_code} {headers}"


def list_odd_names(folder: Path, rng: random.Random) -> None:
    """A video with any name is listed in every order, and keeps no other from being listed."""
    from hiero.serve.library import open_library

    _, library = _server(folder)
    digits = "0123456789²³¹①⑨٣५௧Ⅷ〇零½"
    names = ["".join(rng.choices(digits + "ab .-_", k=rng.randint(1, 8))) for _ in range(5)]
    listed = open_library([str(entry.path) for entry in library.entries.values()], library.engines)
    for i, name in enumerate(names):
        shutil.copy(next(iter(library.entries.values())).path, folder / f"{i}.npy")
        listed.add(folder / f"{i}.npy", name)
    for sort in ("added", "name", "length", "steps", "state"):
        assert len(listed.list_entries(sort=sort, descending=rng.random() < 0.5)) == 6


def damage_state(folder: Path, rng: random.Random) -> None:
    """A damaged state is refused, or all of it works; what is acknowledged is there afterwards."""
    import sqlite3
    from contextlib import closing

    from hiero.serve.state import FILE_NAME, State

    state, file = State(folder), folder / FILE_NAME
    state.add_token("anna", "edit", b"digest")
    state.add_edit("video", "1", b"one", 1, "anna")
    damage = rng.choice(("remove", "remove log", "table", "version", "bytes", "none"))
    if damage.startswith("remove"):
        (file if damage == "remove" else file.with_name(f"{FILE_NAME}-wal")).unlink()
        try:
            state.add_edit("video", "2", b"two", 1, "anna")
        except InputError:
            return
        raise AssertionError("a save into a removed file was acknowledged")
    state.close()
    if damage == "bytes":
        file.write_bytes(damage_bytes(file.read_bytes(), rng))
    elif damage != "none":
        change = f"DROP TABLE {rng.choice(('tokens', 'jobs', 'edits', 'audit'))}"
        change = change if damage == "table" else f"PRAGMA user_version = {rng.choice((-1, -(2**31), 2, 99))}"
        with closing(sqlite3.connect(file)) as database:
            database.execute(change)
    try:
        opened = State(folder)
        opened.check_writable()
        opened.add_edit("video", "2", b"two", 1, "anna")
    except InputError:
        assert damage != "none"
        return
    assert damage not in ("table", "version"), f"{damage}: started as if nothing were wrong"
    opened.close()
    again = State(folder)
    assert again.edit_content("video", again.edit_history("video", 1)[0].id) == b"two"
    again.close()


def kill_command(folder: Path, rng: random.Random) -> None:
    """A long command is killed at some moment; run again, its result is that of an undisturbed run."""
    features = folder / "features"
    features.mkdir()
    for i in range(4):
        np.save(features / f"v{i}.npy", np.random.default_rng(i).normal(size=(80, 16)).astype(np.float32))
    commands = {
        "pack": ["pack", str(features), "OUT", "--fps", "1", "--stride", "1"],
        "index": ["index", str(features), "--to", "OUT", "--model", "raw"],
    }
    name = rng.choice(sorted(commands))
    outs = []
    for disturbed in (False, True):
        out = folder / ("disturbed" if disturbed else "whole")
        command = [str(out) if part == "OUT" else part for part in commands[name]]
        if disturbed:
            process = _start(command)
            time.sleep(rng.uniform(*KILL_AFTER_S))
            process.send_signal(rng.choice((signal.SIGKILL, signal.SIGINT, signal.SIGTERM)))
            process.communicate(timeout=PROCESS_LIMIT_S)
        _run(command)
        outs.append(_content(name, out))
    assert outs[0] == outs[1], f"{name}: the result after a kill differs"


def fill_disk(folder: Path, rng: random.Random) -> None:
    """No file can grow beyond a size: a clear message, no traceback, and the old result still there."""
    features = folder / "features"
    features.mkdir()
    np.save(features / "v.npy", np.random.default_rng(0).normal(size=(200, 64)).astype(np.float32))
    out, limit = folder / "out", rng.choice((0, 100, 4096, 20_000))
    command = rng.choice(
        (
            ["pack", str(features), str(out), "--fps", "1", "--stride", "1"],
            ["steps", str(features / "v.npy"), "--model", "raw", "-o", str(out)],
            ["index", str(features), "--to", str(out), "--model", "raw"],
        )
    )
    _run(command, limit_bytes=limit, codes=(0, 1, 2))


def write_at_once(folder: Path, rng: random.Random) -> None:
    """Several processes index the same files: each video once, all steps."""
    features = folder / "features"
    features.mkdir()
    for i in range(6):
        np.save(features / f"v{i}.npy", np.random.default_rng(i).normal(size=(60, 16)).astype(np.float32))
    corpus = str(folder / "corpus")
    processes = [_start(["index", str(features), "--to", corpus, "--model", "raw"]) for _ in range(rng.choice((2, 3)))]
    for process in processes:
        _, errors = process.communicate(timeout=PROCESS_LIMIT_S)
        _check(process.returncode, errors, (0,))
    names = sorted(video["video"] for video in json.loads(_run(["corpus", "list", corpus, "--json"]))["videos"])
    assert names == [f"v{i}" for i in range(6)], names
    _run(["corpus", "check", corpus])


KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "videos": read_video,
    "features": read_features,
    "annotations": read_annotations,
    "models": read_model,
    "hierarchies": read_hierarchy,
    "requests": ask_server,
    "proxies": pretend_to_be_a_proxy,
    "names": list_odd_names,
    "states": damage_state,
    "kills": kill_command,
    "disks": fill_disk,
    "writers": write_at_once,
}


# Running


@dataclass
class Outcome:
    """What became of the cases of a kind: how many there were, and what is wrong with those that did not behave."""

    kind: str
    num_cases: int
    failures: list[str]


def run_kind(kind: str, first: int, num_cases: int, log: Callable[[str], None] = print) -> Outcome:
    """Run some cases of a kind."""
    failures = []
    for number in range(first, first + num_cases):
        rng = random.Random(f"{kind} {number}")
        with tempfile.TemporaryDirectory(prefix="hostile-") as name:
            problem = _run_case(KINDS[kind], Path(name), rng, PROCESS_LIMIT_S * 3 if kind in SLOW else LIMIT_S)
        if problem:
            failures.append(f"python -m benchmarks.hostile --kind {kind} --first {number} --cases 1    # {problem}")
            log(failures[-1])
    return Outcome(kind, num_cases, failures)


def _run_case(case: Callable[[Path, random.Random], None], folder: Path, rng: random.Random, limit_s: float) -> str:
    """What is wrong, or nothing."""

    def interrupt(*_: object) -> None:
        raise TimeoutError(f"over its limit of {limit_s:.0f} s")

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case(folder, rng)
    except InputError as error:
        return "" if str(error).strip() else "an error without a message"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:160]!r}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return ""


def _start(arguments: list[str], limit_bytes: int | None = None) -> subprocess.Popen[str]:
    def limit() -> None:
        if limit_bytes is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that a write fails as on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    return subprocess.Popen(
        [sys.executable, "-m", "hiero", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
    )


def _run(arguments: list[str], limit_bytes: int | None = None, codes: tuple[int, ...] = (0,)) -> str:
    process = _start(arguments, limit_bytes)
    output, errors = process.communicate(timeout=PROCESS_LIMIT_S)
    _check(process.returncode, errors, codes)
    return output


def _check(code: int, errors: str, codes: tuple[int, ...]) -> None:
    assert "Traceback" not in errors, errors[-300:]
    assert code in codes, f"exit code {code}: {errors[-300:]}"


def _content(name: str, out: Path) -> Any:
    """What a command made, without what differs from run to run."""
    if name == "pack":
        return {path.name: path.read_bytes() for path in sorted(out.iterdir()) if path.is_file()}
    videos = json.loads(_run(["corpus", "list", str(out), "--json"]))["videos"]
    return [(video["video"], video["sha256"], video["levels"]) for video in videos]


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


_SERVERS: list[tuple[Any, Any]] = []


def _server(_: Path) -> tuple[Any, Any]:
    """A client of the application and its library, with one video of features; made once."""
    if not _SERVERS:
        from starlette.testclient import TestClient

        from hiero.engine import load
        from hiero.serve.app import create_app
        from hiero.serve.library import open_library

        folder = Path(tempfile.mkdtemp(prefix="hostile-server-"))
        np.save(folder / "v.npy", np.random.default_rng(0).normal(size=(60, 16)).astype(np.float32))
        library = open_library([str(folder / "v.npy")], {"raw": load("raw")})
        client = TestClient(create_app(library), base_url="http://localhost", raise_server_exceptions=False)
        client.__enter__()
        _SERVERS.append((client, library))
    return _SERVERS[0]


@contextmanager
def own_home() -> Iterator[None]:
    """Caches of the cases in a folder of their own; weights that were fetched stay in reach."""
    from hiero.storage.files import home

    before = os.environ.get("HIERO_HOME")
    weights = home() / "weights"
    folder = tempfile.mkdtemp(prefix="hostile-home-")
    if weights.is_dir():
        (Path(folder) / "weights").symlink_to(weights)
    os.environ["HIERO_HOME"] = folder
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if before is None:
            del os.environ["HIERO_HOME"]
        else:
            os.environ["HIERO_HOME"] = before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=sorted(KINDS), help="only this kind")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=250)
    args = parser.parse_args()
    outcomes = []
    with own_home():
        for kind in [args.kind] if args.kind else KINDS:
            num = args.cases if args.kind or kind not in SLOW else max(1, args.cases // 10)
            outcomes.append(run_kind(kind, args.first, num))
            print(f"{kind}: {num - len(outcomes[-1].failures)} of {num} behaved", flush=True)
    num_failures = sum(len(outcome.failures) for outcome in outcomes)
    print(f"{sum(outcome.num_cases for outcome in outcomes)} cases, {num_failures} did not behave")
    sys.exit(bool(num_failures))


if __name__ == "__main__":
    main()
