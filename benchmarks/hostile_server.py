"""Odd requests and names, forged headers of proxies and damaged states of servers for `benchmarks.hostile`."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.damage import ODD_NUMBERS, ODD_TEXTS, damage_bytes, damage_document
from hiero.errors import InputError


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
    listed = open_library([str(entry.path) for entry in library.entries.values()], library.engine)
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
        library = open_library([str(folder / "v.npy")], load("raw"))
        client = TestClient(create_app(library), base_url="http://localhost", raise_server_exceptions=False)
        client.__enter__()
        _SERVERS.append((client, library))
    return _SERVERS[0]


KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "requests": ask_server,
    "proxies": pretend_to_be_a_proxy,
    "names": list_odd_names,
    "states": damage_state,
}
