"""A day of a lab's server in minutes: ten people at work, the server killed again and again, and nothing lost.

    python -m benchmarks.lab_day [--minutes 10] [--videos 45] [--kill-every 45] [--seed 0]

A corpus of simulated sessions is served with a state. Eight people look and ask, two rename steps
of the same videos and have videos read. Every so often the server is killed (SIGKILL) or stopped
(SIGTERM) and started again. Every answer that acknowledges a change is written down; at the end the
state is compared with what was acknowledged: each save is in the history of its video under its
version and person, the last one of each video is what the server shows (unless a later save was
sent whose answer never came), each job is there and has ended or waits, each change has its line.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.load import THINGS, VERBS, make_corpus
from hiero.serve.state import State
from hiero.serve.users import new_token, token_digest

NUM_VIEWERS, NUM_EDITORS = 8, 2
PAUSE_S = 0.2  # of a person between two clicks, at most
LIMIT_S = 60.0  # of a server to begin or to stop


@dataclass
class Log:
    """What the server acknowledged, and what it may or may not have done because no answer came.

    Attributes:
        saves: (video, version, person) of each save, in order.
        unanswered: (video, person) of saves without an answer.
        jobs: Ids of jobs.
        counts: Answers by kind.
        problems: Answers that should not be.
    """

    saves: list[tuple[str, str, str]] = field(default_factory=list)
    unanswered: list[tuple[str, str]] = field(default_factory=list)
    jobs: set[int] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Server:
    """`hiero serve` with a state, which is killed and started again at the same port."""

    def __init__(self, corpus: Path, state: Path) -> None:
        self.arguments = [str(corpus), "--state", str(state), "--jobs", "2"]
        self.port, self.process = 0, None

    def start(self) -> None:
        command = [sys.executable, "-m", "hiero", "serve", *self.arguments, "--port", str(self.port)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        match = re.search(r"http://[^/\s]+:(\d+)", process.stdout.readline())
        if match is None:
            assert process.stderr is not None
            raise RuntimeError(f"the server did not start: {process.stderr.read()}")
        self.port, self.process = int(match[1]), process

    def end(self, kind: signal.Signals) -> str:
        """Ends it; returns what it wrote to standard error."""
        assert self.process is not None
        self.process.send_signal(kind)
        return self.process.communicate(timeout=LIMIT_S)[1]


class Person(threading.Thread):
    """Clicks until the day ends; waits where the server is away."""

    def __init__(
        self, name: str, token: str, server: Server, videos: list[str], log: Log, seed: int, end: threading.Event
    ) -> None:
        super().__init__()
        self.name_, self.token, self.server, self.videos, self.log, self.end = name, token, server, videos, log, end
        self.rng = random.Random(seed)

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, str]:
        """Status, JSON and ETag; status 0 where no answer came."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        try:
            data = None if body is None else json.dumps(body)
            sent = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **headers}
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null"), answer.headers.get("ETag", "")
        except (OSError, http.client.HTTPException, ValueError):
            return 0, None, ""
        finally:
            connection.close()

    def run(self) -> None:
        while not self.end.is_set():
            status, kind = self.click()
            with self.log.lock:
                self.log.counts[f"{kind} {status or 'no answer'}"] += 1
                if status >= 500 or status in (400, 401, 403, 404, 422):
                    self.log.problems.append(f"{kind}: {status}")
            time.sleep(0.5 if not status else self.rng.random() * PAUSE_S)

    def click(self) -> tuple[int, str]:
        video = self.rng.choice(self.videos)
        question = f"{self.rng.choice(VERBS)}%20the%20{self.rng.choice(THINGS)}"
        if self.rng.random() < 0.5:
            return self.request("GET", f"/api/videos/{video}/ask?q={question}")[0], "ask"
        return self.request("GET", f"/api/search?q={question}")[0], "search"


class EditingPerson(Person):
    """Renames steps, and has videos read."""

    def click(self) -> tuple[int, str]:
        video = self.rng.choice(self.videos[:8])  # few, so that two people meet
        if self.rng.random() < 0.15:
            status, job, _ = self.request("POST", f"/api/videos/{video}/read")
            if status == 202:
                with self.log.lock:
                    self.log.jobs.add(int(job["id"]))
            return status, "read"
        status, steps, version = self.request("GET", f"/api/videos/{video}/edits")
        if status == 404:
            status, steps, version = self.request("GET", f"/api/videos/{video}/steps")
        if status != 200:
            return status, "open"
        self.rng.choice(steps["levels"][-1]["steps"])["label"] = f"{self.name_} {self.rng.randrange(10**9)}"
        time.sleep(self.rng.random() * PAUSE_S)
        status, _, saved = self.request(
            "PUT", f"/api/videos/{video}/edits", steps, **({"If-Match": version} if version else {})
        )
        with self.log.lock:
            if status == 200:
                self.log.saves.append((video, saved.strip('"'), self.name_))
            elif not status:
                self.log.unanswered.append((video, self.name_))
        return status, "save"


def compare(state: State, log: Log) -> list[str]:
    """What was acknowledged and is not there."""
    lost = []
    by_video: dict[str, list[tuple[str, str]]] = {}
    for video, version, person in log.saves:
        by_video.setdefault(video, []).append((version, person))
    for video, saves in by_video.items():
        history = state.edit_history(video, 10**6)
        stored = Counter((save.version, save.user) for save in history)
        lost += [f"save {version} of {video} by {person}" for version, person in saves if not stored[version, person]]
        may_be_later = any(other == video for other, _ in log.unanswered)
        if history[0].version not in {version for version, _ in saves} and not may_be_later:
            lost.append(f"what {video} shows was saved by nobody")
        extra = len(history) - len(set(saves))
        if extra > sum(other == video for other, _ in log.unanswered):
            lost.append(f"{video} has {extra} saves that nobody sent")
    known = {job.id: job.state for job in state.jobs(("waiting", "running", "done", "failed", "cancelled"), 10**6)}
    lost += [f"job {id}" for id in log.jobs if known.get(id) not in ("done", "waiting", "running")]
    num_lines = Counter(line["action"] for line in state.audit(10**6))
    if num_lines["save edits"] < len(log.saves):
        lost.append(f"{len(log.saves) - num_lines['save edits']} lines of saves")
    return lost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--videos", type=int, default=45)
    parser.add_argument("--kill-every", type=float, default=45.0, metavar="S")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng, log, end = random.Random(args.seed), Log(), threading.Event()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_corpus(folder, args.videos)
        state = State(folder / "state")
        people = [f"viewer{i}" for i in range(NUM_VIEWERS)] + [f"editor{i}" for i in range(NUM_EDITORS)]
        tokens = {person: new_token() for person in people}
        for person, token in tokens.items():
            state.add_token(person, "edit" if person.startswith("editor") else "view", token_digest(token))
        server = Server(folder / "corpus", folder / "state")
        server.start()
        looker = Person("", tokens["viewer0"], server, [], log, 0, end)
        videos = [row["id"] for row in looker.request("GET", "/api/videos?n=1000")[1]["videos"]]
        threads = [
            (EditingPerson if person.startswith("editor") else Person)(
                person, tokens[person], server, videos, log, i, end
            )
            for i, person in enumerate(people)
        ]
        for thread in threads:
            thread.start()
        num_kills, num_stops, end_s = 0, 0, time.monotonic() + 60 * args.minutes
        while time.monotonic() < end_s:
            time.sleep(min(rng.uniform(0.3, 1.7) * args.kill_every, max(0.0, end_s - time.monotonic())))
            kill = rng.random() < 0.75
            errors = server.end(signal.SIGKILL if kill else signal.SIGTERM)
            num_kills, num_stops = num_kills + kill, num_stops + (not kill)
            if "Traceback" in errors:
                log.problems.append(errors[-500:])
            server.start()
            print(
                f"{'killed' if kill else 'stopped'} and started again: {len(log.saves)} saves, {len(log.jobs)} "
                "jobs so far",
                flush=True,
            )
        end.set()
        for thread in threads:
            thread.join()
        server.end(signal.SIGTERM)
        lost = compare(state, log)
    print(f"{num_kills} kills, {num_stops} stops; {dict(sorted(log.counts.items()))}")
    print(
        f"{len(log.saves)} saves and {len(log.jobs)} jobs acknowledged, {len(log.unanswered)} saves without an answer"
    )
    print(f"problems: {Counter(log.problems) or 'none'}\nlost: {lost or 'nothing'}")
    sys.exit(bool(lost or log.problems))


if __name__ == "__main__":
    main()
