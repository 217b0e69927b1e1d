"""Odd requests, corrections of several clients, damaged states and killed servers."""

from __future__ import annotations

import functools
import http.client
import json
import random
import re
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import hiero
from hiero.engine import load
from hiero.errors import InputError
from hiero.serve.app import create_app
from hiero.serve.database import FILE_NAME, SCHEMA_VERSION
from hiero.serve.library import open_library
from hiero.serve.server import Server, _bind
from hiero.serve.settings import ServerSettings
from hiero.serve.state import State
from tests.fuzz.commands import call, made_corpus, write_features
from tests.fuzz.damage import ODD_NUMBERS, ODD_TEXTS, damage_bytes, damage_document, damage_json
from tests.fuzz.files import FORMATS, made_folder
from tests.fuzz.suite import LIMIT_S, LostEditError, suite
from tests.processes import Program, start_hiero

LOCAL = "127.0.0.1"


@dataclass(frozen=True)
class Client:
    """A client of a server on this machine."""

    port: int

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes, str]:
        """Status, content and version of the answer, which must not be an internal error; the server may be busy."""
        with closing(http.client.HTTPConnection(LOCAL, self.port, timeout=LIMIT_S)) as connection:
            connection.request(method, path, body or None, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            content = answer.read(2**22)
        is_answered = answer.status < 500 or answer.status == 503
        assert is_answered, f"{method} {path}: {answer.status} {content[:300]!r} for {body[:300]!r}"
        return answer.status, content, answer.getheader("ETag", "")

    def get(self, path: str) -> Any:
        status, content, _ = self.request("GET", path)
        assert status == 200, f"GET {path}: {status} {content[:300]!r}"
        return json.loads(content)

    def version(self, id: str) -> str:
        return self.request("GET", f"/api/videos/{id}/edits")[2]

    def save(self, id: str, document: bytes, replaced: str) -> str:
        """Replace a version of the corrections, and return the new version, or an empty text if it was refused."""
        status, _, version = self.request("PUT", f"/api/videos/{id}/edits", document, **{"If-Match": replaced})
        return version if status == 200 else ""


@functools.cache
def made_server() -> tuple[Client, State, list[str]]:
    """A client of a server in a thread of this process, its state, and the ids of its videos."""
    folder = made_folder("server")
    shutil.copytree(made_corpus(), folder / "corpus")
    other = (write_features(folder / "videos", 1) / "v0.npy").rename(folder / "other.npy")
    library = open_library([str(folder / "corpus"), str(other)], load("raw"))
    settings = ServerSettings(host=LOCAL, port=0, state=folder / "state", upload=folder / "uploads")
    state, socket = State(settings.state, lock=True), _bind(LOCAL, 0)
    server = Server(create_app(library, settings, state), settings)
    threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True).start()
    client = Client(socket.getsockname()[1])
    ids = [video["id"] for video in client.get("/api/videos")["videos"]]
    for id in ids:
        client.get(f"/api/videos/{id}/steps")
    return client, state, ids


@functools.cache
def find_routes() -> list[tuple[str, str, list[str], bool]]:
    """Method, path and names of the parameters of each route that ends, and whether it takes a body."""
    found = []
    for path, routes in sorted(made_server()[0].get("/openapi.json")["paths"].items()):
        for method, route in () if path.endswith("/events") else sorted(routes.items()):
            names = [each["name"] for each in route.get("parameters", ()) if each["in"] == "query"]
            found.append((method.upper(), path, names, "requestBody" in route))
    return found


@suite("requests", 1000, prepare=made_server)
def send_odd_request(_: Path, rng: random.Random) -> None:
    """An odd request never gets a 5xx answer, and the public pages still work afterwards."""
    client, _, ids = made_server()

    def odd() -> str:
        values = (*ODD_TEXTS, *ODD_NUMBERS, "3", "2,5", "99999", "raw", "name", "1", "0", rng.choice(ids))
        return str(rng.choice(values))[:2000].encode("utf-8", "replace").decode()

    method, path, names, has_body = rng.choice(find_routes())
    path = path.replace("{id}", rng.choice(ids) if rng.random() < 0.8 else quote(odd(), safe=""))
    path = path.replace("{format}", rng.choice(FORMATS))
    path = re.sub(r"{\w+}", lambda _: quote(rng.choice(("0", "1", odd())), safe="") or "0", path)
    query = urlencode({name: odd() for name in names if rng.random() < 0.5})
    body = damage_document({"labels": ["a"], "levels": [{"level": 0, "steps": []}], "duration_s": 1.0}, rng)
    headers = {name: odd() for name in ("Range", "If-Match", "Cookie", "Origin") if rng.random() < 0.1}
    headers = {name: value for name, value in headers.items() if value.isascii() and value.isprintable()}
    method = rng.choice(("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD")) if rng.random() < 0.1 else method
    client.request(method, f"{path}?{query}", body if has_body or rng.random() < 0.1 else b"", **headers)
    id = rng.choice(ids)
    client.get(rng.choice(("/api/videos", "/api/report", f"/api/videos/{id}", f"/api/videos/{id}/steps")))


@suite("saves", 800, prepare=made_server)
def save_odd_steps(_: Path, rng: random.Random) -> None:
    """Odd corrections are refused, or saved and usable by the whole page."""
    client, _, ids = made_server()
    id = rng.choice(ids)
    document = client.get(f"/api/videos/{id}/steps")
    body = json.dumps(damage_json(document, rng)).encode() if rng.random() < 0.8 else damage_document(document, rng)
    version = client.save(id, body, rng.choice(("*", "*", '"x"', "W/*", client.version(id) or "*")))
    if not version:
        raise InputError("refused")
    if (now := client.version(id)) != version:
        raise LostEditError(f"{version} was acknowledged, now there is {now!r}")
    hiero.Hierarchy.from_dict(client.get(f"/api/videos/{id}/edits"))
    for path in ("report", "videos", f"videos/{id}/steps", f"videos/{id}/history", "learn"):
        client.get(f"/api/{path}")
    status, content, _ = client.request("GET", f"/api/videos/{id}/export/{rng.choice(FORMATS)}")
    assert status == 200, f"export: {status} {content[:300]!r}"


@suite("clients", 60, 3 * LIMIT_S, made_server)
def save_at_once(_: Path, rng: random.Random) -> None:
    """Several clients save at once: each acknowledged save replaces what its client has seen, and none is lost."""
    client, state, ids = made_server()
    id = rng.choice(ids)
    steps = client.get(f"/api/videos/{id}/steps")
    first = client.save(id, rename(steps, f"first {rng.random()}"), "*")
    saved: list[tuple[str, str]] = []  # what each acknowledged save has replaced, and its version

    def edit(name: str) -> None:
        for number in range(4):
            seen = client.version(id)
            if version := client.save(id, rename(steps, f"{name} {number} {first}"), seen):
                saved.append((seen, version))

    run_threads(edit, [f"client {i}" for i in range(rng.choice((2, 3, 5)))])
    last, after = first, dict(saved)
    for _ in saved:
        last = after.get(last, "")
    kept = {f'"{save.version}"' for key in state.edited_videos() for save in state.edit_history(key, 10**6)}
    if len(after) < len(saved) or client.version(id) != last or not {version for _, version in saved} <= kept:
        raise LostEditError(f"{len(saved)} saves after {first}: {saved}, current {client.version(id)}")


def run_threads(work: Callable[[str], None], arguments: list[str], meanwhile: Any = lambda: None) -> None:
    """Work in a thread for each argument. Raises the first error."""
    with ThreadPoolExecutor(len(arguments)) as pool:
        futures = [pool.submit(work, argument) for argument in arguments]
        meanwhile()
    for future in futures:
        future.result()


def rename(steps: dict[str, Any], label: str) -> bytes:
    levels = [{**level, "steps": [{**step, "label": label} for step in level["steps"]]} for level in steps["levels"]]
    return json.dumps({**steps, "levels": levels}).encode()


@suite("killed", 12, 120.0)
def kill_server(folder: Path, rng: random.Random) -> None:
    """Corrections that a killed server acknowledged exist after its next start."""
    videos = write_features(folder / "videos", 2)
    arguments = ["serve", str(videos), "--model", "raw", "--port", "0", "--state", str(folder / "state")]
    acknowledged: dict[str, int] = {}
    with start_hiero(*arguments) as process:
        client, ids = connect(process)
        steps = {id: client.get(f"/api/videos/{id}/steps") for id in ids}

        def edit(id: str) -> None:
            with suppress(OSError, http.client.HTTPException):  # the server was killed
                for number in range(1000):
                    assert client.save(id, rename(steps[id], f"save {number}"), "*")
                    acknowledged[id] = number

        def kill() -> None:
            time.sleep(rng.uniform(0.05, 1.5))
            process.send_signal(rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))

        run_threads(edit, ids, kill)
        process.wait()
    with start_hiero(*arguments) as process:
        client, _ = connect(process)
        for id, number in acknowledged.items():
            label = client.get(f"/api/videos/{id}/edits")["levels"][0]["steps"][0]["label"]
            if label not in (f"save {number}", f"save {number + 1}"):
                raise LostEditError(f"save {number} was acknowledged before the kill, found {label}")


def connect(process: Program) -> tuple[Client, list[str]]:
    """Start a server, and return a client and the ids of its videos."""
    line = process.stdout.readline()
    assert "http" in line, line + process.stderr.read()
    client = Client(int(re.findall(r":(\d+)/", line)[0]))
    return client, [video["id"] for video in client.get("/api/videos")["videos"]]


@suite("states", 250)
def damage_state(folder: Path, rng: random.Random) -> None:
    """A damaged state is refused or works completely, and acknowledged corrections persist."""
    state, file = State(folder), folder / FILE_NAME
    state.add_token("anna", "edit", b"digest")
    state.add_edit("video", "1", b"one", 1, "anna")
    damage = rng.choice(("remove", "remove log", "table", "version", "bytes", "bytes", "values", "values", "none"))
    if damage.startswith("remove"):
        (file if damage == "remove" else file.with_name(f"{FILE_NAME}-wal")).unlink()
        state.add_edit("video", "2", b"two", 1, "anna")
        raise LostEditError("a save into a removed file was acknowledged")
    state.close()
    odd = rng.choice((1e300, -1e18, "x", b"\xff", float("inf"), ""))
    statements: dict[str, tuple[Any, ...]] = {
        "table": (f"DROP TABLE {rng.choice(('tokens', 'jobs', 'edits', 'audit'))}",),
        "version": (f"PRAGMA user_version = {rng.choice((-1, -(2**31), SCHEMA_VERSION + 1, 99))}",),
        "values": (f"UPDATE tokens SET {rng.choice(('created_at', 'role', 'name', 'revoked_at'))} = ?", (odd,)),
    }
    if damage == "bytes":
        file.write_bytes(damage_bytes(file.read_bytes(), rng))
    elif damage != "none":
        with closing(sqlite3.connect(file)) as database, database:
            database.execute(*statements[damage])
    call(["serve", "token", "list", "--state", str(folder)], folder, {})
    opened = State(folder)
    opened.check_writable()
    opened.add_edit("video", "2", b"two", 1, "anna")
    assert damage not in ("table", "version"), f"{damage}: started as if nothing were wrong"
    opened.close()
    again = State(folder)
    if again.edit_content("video", again.edit_history("video", 1)[0].id) != b"two":
        raise LostEditError("a save that was acknowledged")
    again.close()
