"""What a server needs: SQLite, its state, a port, and for weights that are missing a network."""

from __future__ import annotations

import os
import re
import socket
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from hiero.cli.diagnostics.findings import Finding, Machine, first_line, ok, problem, warning
from hiero.cli.diagnostics.networks import DEFAULT_WEIGHTS
from hiero.storage import weights

MIN_SQLITE = (3, 35)  # which has RETURNING
NETWORK_TIMEOUT_S = 5.0
# Of file systems on other machines: SQLite's write-ahead log needs memory that all its readers share.
NETWORK_FILE_SYSTEMS = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "fuse.sshfs",
    "fuse.s3fs",
    "fuse.rclone",
    "lustre",
    "beegfs",
    "ceph",
)


def check_sqlite(machine: Machine) -> Iterator[Finding]:
    """The library of the server's state, and whether its write-ahead log works where the state is."""
    advice = "use a Python with a newer SQLite; that of the image has one"
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        yield problem("sqlite", f"{sqlite3.sqlite_version} is too old for hiero serve --state", advice)
        return
    folder = machine.state_folder if machine.state_folder is not None and machine.state_folder.is_dir() else None
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".doctor.") as trial:
            mode = _try_wal(Path(trial) / "trial.sqlite")
    except (OSError, sqlite3.Error) as error:
        mode = first_line(error)
    where = str(folder or tempfile.gettempdir())
    file_system = "" if folder is None else file_system_of(folder)
    if mode != "wal":
        yield problem("sqlite", f"no write-ahead log in {where} ({mode})", "put --state on a disk of this machine")
    elif file_system in NETWORK_FILE_SYSTEMS:
        message = (
            f"{sqlite3.sqlite_version}; {where} is on another machine ({file_system}), where a state can be damaged"
        )
        yield warning("sqlite", message, "put --state on a disk of this machine")
    else:
        yield ok("sqlite", f"{sqlite3.sqlite_version}, write-ahead log works in {where}")


def _try_wal(path: Path) -> str:
    """The journal that a database gets which asks for a write-ahead log, after a second reader saw
    what was written.
    """
    with closing(sqlite3.connect(path)) as writer, closing(sqlite3.connect(path)) as reader:
        mode = str(writer.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        writer.execute("CREATE TABLE trial (x)")
        writer.commit()
        reader.execute("SELECT * FROM trial").fetchall()
        return mode


def file_system_of(folder: Path) -> str:
    """The kind of file system that a folder is on, such as ext4 or nfs4; empty where the system does not say.

    Args:
        folder: Which is there.
    """
    mounts = Path("/proc/self/mountinfo")
    if not mounts.is_file():
        return ""
    best, kind, target = -1, "", folder.resolve()
    for line in mounts.read_text(errors="surrogateescape").splitlines():
        left, _, right = line.partition(" - ")
        # Spaces and such in a path are written as \040.
        mount = Path(re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), left.split(" ")[4]))
        # a later mount hides an earlier one at the same place
        if len(mount.parts) >= best and target.is_relative_to(mount):
            best, kind = len(mount.parts), right.split(" ")[0]
    return kind


def check_state(machine: Machine) -> Iterator[Finding]:
    """The server's state, if there is one: whole, of a known version, and not for everybody's eyes."""
    folder = machine.state_folder
    if folder is None:
        return
    from hiero.serve.state import FILE_NAME, SCHEMA_VERSION

    file = folder / FILE_NAME
    if not file.is_file():
        yield ok("state", f"none in {folder} yet: hiero serve --state makes it")
        return
    restore = f"stop the server and put back a copy of {file} (docs/guides/deploy.md: backups)"
    try:
        # Read-only: looking must not change anything, nor leave files that another user's server cannot write.
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            damages = [str(row[0]) for row in database.execute("PRAGMA integrity_check(3)")]
            version = int(database.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error as error:
        yield problem("state", f"{file}: cannot be read ({first_line(error)})", restore)
        return
    if damages != ["ok"]:
        yield problem("state", f"{file}: damaged ({'; '.join(' '.join(line.split()) for line in damages)})", restore)
    elif version > SCHEMA_VERSION:
        yield problem(
            "state",
            f"{file}: written by a later version of hiero",
            "upgrade hiero, or restore an older copy",
        )
    elif os.name == "posix" and file.stat().st_mode & 0o004 and folder.stat().st_mode & 0o001:
        yield warning("state", f"{file}: everybody on this machine can read it", f"chmod 700 {folder}")
    else:
        yield ok("state", f"{file}: whole, {file.stat().st_size / 1e6:.1f} MB")


def check_port(machine: Machine) -> Iterator[Finding]:
    """Whether a server could listen."""
    name = f"port {machine.port}"
    family = socket.AF_INET6 if ":" in machine.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((machine.host, machine.port))
        except (OSError, OverflowError) as error:
            message = f"cannot be used on {machine.host}: {getattr(error, 'strerror', None) or error}"
            yield warning(
                name,
                message,
                "a server may run already; else choose another: hiero serve --port 0 takes a free one",
            )
        else:
            yield ok(name, f"free on {machine.host}")


def check_network(machine: Machine) -> Iterator[Finding]:
    """Sources of weights can be reached; only where the user asks for it."""
    if not machine.online:
        return
    from urllib.error import HTTPError
    from urllib.parse import urlsplit

    from hiero.storage.weights import DOWNLOAD_ERRORS, open_url, package_indexes

    hubs = [] if os.environ.get("HF_HUB_OFFLINE") == "1" else [os.environ.get("HF_ENDPOINT", "https://huggingface.co")]
    reached = False
    for url in [*hubs, *package_indexes()]:
        # An address may hold a password: only the host is shown.
        name = f"network {urlsplit(url).hostname or 'local folder'}"
        if url.startswith("file:"):
            continue
        try:
            open_url(url, timeout_s=NETWORK_TIMEOUT_S).close()
        except HTTPError as error:  # it answers: that is enough
            error.close()
            reached = True
            yield ok(name, f"answers ({error.code})")
        except DOWNLOAD_ERRORS as error:
            advice = "not needed once all weights are here; see Environment variables in the docs for other sources"
            reason = getattr(error, "reason", None) or error
            yield warning(name, f"cannot be reached ({first_line(reason)})", advice)
        else:
            reached = True
            yield ok(name, "answers")
    if not reached and any(weights.find(entry) is None for entry in DEFAULT_WEIGHTS):
        advice = "bring the files by hand: hiero weights get NAME --source FILE"
        yield problem("network", "no source of weights can be reached, and some are missing", advice)
