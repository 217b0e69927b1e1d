"""How many questions per second does the server answer when many people ask at once?

    python -m benchmarks.load [--clients 64] [--seconds 20] [--videos 45] [--steps 100000]
    python -m benchmarks.load --crash [--clients 64] [--seconds 60] [--videos 45]

A corpus of simulated sessions is indexed and served on 127.0.0.1. Clients request the steps of a video,
an answer about one video, a search in all, and the list of videos, as the page does: first with
repeated questions, then with new ones. The table has answers per second, the median and the 99th
percentile of the time in milliseconds, errors, and the server's memory at the beginning, in the middle
and at the end. With --steps, noisy copies of the sessions enlarge the corpus; they are searched and
listed, but not opened.

With --crash, 8 others upload films and 4 edit the same video while the server processes two uploads at
a time and is killed every minute, first after half a minute. The row has the questions that were
answered, and how many acknowledged edits and uploads are missing at the end.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import numpy as np

import hiero

VERBS = ("cut", "wash", "open", "close", "stir", "pour", "peel", "take", "mix", "clean", "fold", "fill")
THINGS = ("onion", "bowl", "drawer", "pan", "bottle", "board", "cup", "door", "box", "lid", "knife", "cloth")
SESSION_S = 600
SAMPLE = Path(hiero.__file__).with_name("serve") / "sample.mp4"
WORK = {"upload": 8, "edit": 4}  # people
KILL_EVERY_S = 60.0
MAX_ATTEMPTS, MAX_UPLOADS = 10_000, 10  # of each


def make_corpus(folder: Path, num_videos: int) -> None:
    """Write sessions of class scores at 1 Hz and index them with the shipped model."""
    (folder / "features").mkdir()
    rng = np.random.default_rng(0)
    for i in range(num_videos):
        scenes = rng.normal(0, 3, (10, 400))
        rows = np.repeat(scenes, SESSION_S // 10, axis=0) + rng.normal(size=(SESSION_S, 400))
        np.save(folder / "features" / f"session{i:03}.npy", rows.astype(np.float32))
    command = ["index", str(folder / "features"), "--to", str(folder / "corpus")]
    subprocess.run(
        [sys.executable, "-m", "hiero", *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def enlarge_corpus(uri: str, num_steps: int) -> None:
    """Add copies of the videos of a corpus, with noise, until it has that many steps."""
    import pyarrow as pa

    from hiero.corpus.corpus import Corpus
    from hiero.corpus.rows import IndexedVideo

    corpus = Corpus(uri)
    rows, rng, copy = corpus.table.to_arrow(), np.random.default_rng(0), 0
    vectors = np.stack(rows["vector"].to_numpy())
    while len(corpus) < num_steps:
        copy += 1
        records = [IndexedVideo.from_json(text) if text else None for text in rows["about"].to_pylist()]
        paths = {r.video: Path(r.path).with_name(f"{r.video} {copy}.npy") for r in records if r}
        for record in filter(None, records):
            paths[record.video].hardlink_to(record.path)  # a file of its own that takes no space
        abouts = [
            replace(r, video=f"{r.video} {copy}", path=str(paths[r.video])).to_json() if r else "" for r in records
        ]
        names = [f"{name} {copy}" for name in rows["video"].to_pylist()]
        noisy = (vectors + 0.1 * vectors.std() * rng.standard_normal(vectors.shape)).astype(np.float32)
        columns = {
            "video": names,
            "about": abouts,
            "vector": list(noisy),
            "uid": [
                f"{name}\n{uid.split(chr(10), 1)[1]}" for name, uid in zip(names, rows["uid"].to_pylist(), strict=True)
            ],
        }
        arrays = [pa.array(columns[f.name], f.type) if f.name in columns else rows[f.name] for f in rows.schema]
        corpus.table.add(pa.table(arrays, schema=rows.schema))
    corpus.optimize()


class Client(threading.Thread):
    """Asks until it is told to stop, and records the time of each answer and errors."""

    def __init__(self, address: str, videos: list[str], seed: int, new_questions: bool, stop: threading.Event) -> None:
        super().__init__()
        self.connection = http.client.HTTPConnection(address, timeout=60)
        self.videos, self.rng, self.new, self.stop = videos, random.Random(seed), new_questions, stop
        self.spent_s: list[tuple[str, float]] = []  # by kind of request
        self.errors: list[str] = []

    def run(self) -> None:
        while not self.stop.is_set():
            begin = time.perf_counter()
            kind, path = self.choose()
            try:
                self.connection.request("GET", path)
                answer = self.connection.getresponse()
                answer.read()
                if answer.status != 200:
                    self.errors.append(f"{answer.status} {path}")
            except (OSError, http.client.HTTPException) as error:
                self.errors.append(f"{type(error).__name__} {path}")
                self.connection.close()
                time.sleep(0.05)
                continue
            self.spent_s.append((kind, time.perf_counter() - begin))

    def choose(self) -> tuple[str, str]:
        """Kind and path of the next request, as the page mixes them."""
        video, draw = self.rng.choice(self.videos), self.rng.random()
        question = f"{self.rng.choice(VERBS)} the {self.rng.choice(THINGS)}"
        if self.new:
            question += f" {self.rng.randrange(10**9)}"
        if draw < 0.4:
            return "ask", f"/api/videos/{video}/ask?q={quote(question)}"
        if draw < 0.6:
            return "search", f"/api/search?q={quote(question)}"
        if draw < 0.8:
            return "steps", f"/api/videos/{video}/steps"
        return "list", "/api/videos"


class Worker(threading.Thread):
    """Uploads films, or renames a step of a video, until it is told to stop; the server may be gone for a while."""

    def __init__(self, address: str, video: str, name: str, stop: threading.Event, work: str) -> None:
        super().__init__()
        self.address, self.video, self.name, self.stop, self.work = address, video, name, stop, work
        self.acknowledged: list[str] = []

    def run(self) -> None:
        for number in range(MAX_ATTEMPTS):
            if self.stop.wait(0.5):
                return
            with suppress(OSError, http.client.HTTPException, KeyError):  # the server was killed: try again
                self.upload(f"{self.name}-{number}") if self.work == "upload" else self.edit(f"{self.name}-{number}")

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self.address, timeout=60)
        connection.request(method, path, body, {"Content-Type": "application/json", **headers})
        return connection.getresponse()

    def upload(self, name: str) -> None:
        if len(self.acknowledged) >= MAX_UPLOADS:
            return
        answer = self.send("POST", f"/api/upload?name={name}.mp4", SAMPLE.read_bytes() + name.encode())
        if answer.status == 201:
            self.acknowledged.append(json.loads(answer.read())["id"])

    def edit(self, name: str) -> None:
        answer = self.send("GET", f"/api/videos/{self.video}/edits")
        version = answer.headers["ETag"] if answer.status == 200 else None
        if version is None:
            answer = self.send("GET", f"/api/videos/{self.video}/steps")
        document = json.loads(answer.read())
        document["levels"][-1]["steps"][0]["label"] = name
        body = json.dumps(document).encode()
        if (
            self.send(
                "PUT", f"/api/videos/{self.video}/edits", body, **({"If-Match": version} if version else {})
            ).status
            == 200
        ):
            self.acknowledged.append(name)


def measure_crashes(folder: Path, num_clients: int, seconds: float) -> None:
    """Kill a server that is busy, start it again, and count what is missing."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [sys.executable, "-m", "hiero", "serve", str(folder / "features"), "--root", str(folder / "root")]
    command += ["--port", address.rpartition(":")[2], "--jobs", "2"]

    def start() -> subprocess.Popen[str]:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert server.stdout is not None
        server.stdout.readline()
        return server

    def listed() -> list[str]:
        connection = http.client.HTTPConnection(address, timeout=60)
        connection.request("GET", "/api/videos?n=1000")
        return [video["id"] for video in json.loads(connection.getresponse().read())["videos"]]

    server, stop, num_kills = start(), threading.Event(), 0
    videos = listed()
    for video in videos:  # its spans are found once
        connection = http.client.HTTPConnection(address, timeout=600)
        connection.request("GET", f"/api/videos/{video}/ask?q=cup")
        connection.getresponse().read()
    clients = [Client(address, videos, seed, False, stop) for seed in range(num_clients)]
    workers = [Worker(address, videos[0], f"{work}{i}", stop, work) for work, n in WORK.items() for i in range(n)]
    for thread in (*clients, *workers):
        thread.start()
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        time.sleep(min(KILL_EVERY_S / 2 if num_kills == 0 else KILL_EVERY_S, max(0.0, end_s - time.monotonic())))
        server.kill()
        server.wait()
        server, num_kills = start(), num_kills + 1
    stop.set()
    for thread in (*clients, *workers):
        thread.join()
    with closing(sqlite3.connect(folder / "root" / "state.sqlite")) as database:
        saves = [zlib.decompress(row[0]) for row in database.execute("SELECT content FROM edits")]
    kept = {json.loads(save)["levels"][-1]["steps"][0]["label"] for save in saves} | set(listed())
    server.terminate()
    server.wait()
    lost = {work: [a for w in workers if w.work == work for a in w.acknowledged if a not in kept] for work in WORK}
    num = {work: sum(len(w.acknowledged) for w in workers if w.work == work) for work in WORK}
    times_ms = [1000 * spent for client in clients for kind, spent in client.spent_s if kind == "ask"]
    p50, p95 = np.percentile(times_ms, (50, 95))
    print("| kills | questions | p50, ms | p95, ms | edits | lost | uploads | lost |\n" + "|---" * 8 + "|")
    edits, uploads = f"{num['edit']} | {len(lost['edit'])}", f"{num['upload']} | {len(lost['upload'])}"
    print(f"| {num_kills} | {len(times_ms)} | {p50:.0f} | {p95:.0f} | {edits} | {uploads} |", flush=True)


def memory_mb(pid: int) -> float:
    """Resident memory of a process."""
    match = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) / 1024 if match else float("nan")


def measure(address: str, pid: int, videos: list[str], num_clients: int, seconds: float, new_questions: bool) -> None:
    """Run all clients once, and print a row."""
    stop, before = threading.Event(), memory_mb(pid)
    clients = [Client(address, videos, seed, new_questions, stop) for seed in range(num_clients)]
    begin = time.perf_counter()
    for client in clients:
        client.start()
    time.sleep(seconds / 2)
    middle = memory_mb(pid)
    time.sleep(seconds / 2)
    stop.set()
    for client in clients:
        client.join()
    spent_s = time.perf_counter() - begin
    spent = [pair for client in clients for pair in client.spent_s]
    times_ms = 1000 * np.array([t for _, t in spent])
    errors = [error for client in clients for error in client.errors]
    name = "all new" if new_questions else "repeated"
    p50, p99 = np.percentile(times_ms, (50, 99))
    memory = f"{before:.0f} → {middle:.0f} → {memory_mb(pid):.0f}"
    print(f"| {name} | {len(times_ms) / spent_s:.0f} | {p50:.0f} | {p99:.0f} | {len(errors)} | {memory} |", flush=True)
    medians = {k: 1000 * np.median([t for kind, t in spent if kind == k]) for k in sorted({kind for kind, _ in spent})}
    print("  medians, ms: " + ", ".join(f"{kind} {ms:.0f}" for kind, ms in medians.items()), flush=True)
    if errors:
        print(f"  such as {errors[0][:200]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, help="defaults to 20, with --crash to 60")
    parser.add_argument("--crash", action="store_true")
    parser.add_argument("--videos", type=int, default=45)
    parser.add_argument("--steps", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        make_corpus(Path(name), args.videos)
        if args.crash:
            measure_crashes(Path(name), args.clients, args.seconds or KILL_EVERY_S)
            return
        if args.steps:
            enlarge_corpus(f"{name}/corpus", args.steps)
        begin = time.perf_counter()
        command = [sys.executable, "-m", "hiero", "serve", f"{name}/corpus", "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert server.stdout is not None
        try:
            match = re.search(r"http://([^/\s]+)", server.stdout.readline())
            assert match is not None
            connection = http.client.HTTPConnection(match[1], timeout=60)
            connection.request("GET", "/api/videos")
            listed = json.loads(connection.getresponse().read())
            videos = [video["id"] for video in listed["videos"]][: args.videos]
            print(f"{listed['total']} videos, ready after {time.perf_counter() - begin:.0f} s")
            for video in videos:  # read once, as a visit of the page does
                connection.request("GET", f"/api/videos/{video}/steps")
                connection.getresponse().read()
            print("| questions | answers per second | p50, ms | p99, ms | errors | memory, MB |\n" + "|---" * 6 + "|")
            for new_questions in (False, True):
                measure(match[1], server.pid, videos, args.clients, args.seconds or 20.0, new_questions)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
