"""Checks for a server: SQLite, its state, its port, and the network for missing weights."""

from __future__ import annotations

import os
import re
import socket
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from hiero.cli.diagnostics import Finding, Machine, first_line, ok, problem, warning
from hiero.cli.diagnostics.networks import DEFAULT_WEIGHTS
from hiero.storage import weights

MIN_SQLITE = (3, 35)  # the first version with RETURNING
NETWORK_TIMEOUT_S = 5.0
# SQLite's write-ahead log needs memory shared by all readers, which these file systems do not provide.
NETWORK_FILE_SYSTEMS = re.compile(r"nfs4?|cifs|smb3|smbfs|9p|fuse\.(?:sshfs|s3fs|rclone)|lustre|beegfs|ceph")


def check_sqlite(machine: Machine) -> Iterator[Finding]:
    """The version of SQLite, and whether its write-ahead log works in the state folder."""
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        advice = "use a Python with a newer SQLite, such as the one in the container image"
        yield problem("sqlite", f"{version} is too old for hiero serve --state", advice)
        return
    folder = machine.state_folder if machine.state_folder is not None and machine.state_folder.is_dir() else None
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".doctor.") as trial:
            mode = _try_wal(Path(trial) / "trial.sqlite")
    except (OSError, sqlite3.Error) as error:
        mode = first_line(error)
    where = str(folder or tempfile.gettempdir())
    file_system = "" if folder is None else file_system_of(folder)
    advice = "put --state on a local disk"
    if mode != "wal":
        yield problem("sqlite", f"no write-ahead log in {where} ({mode})", advice)
    elif NETWORK_FILE_SYSTEMS.fullmatch(file_system):
        message = f"{version}; {where} is on a network file system ({file_system}), which can damage the state"
        yield warning("sqlite", message, advice)
    else:
        yield ok("sqlite", f"{version}, write-ahead log works in {where}")


def _try_wal(path: Path) -> str:
    """Request a write-ahead log, read from a second connection, and return the actual journal mode."""
    with closing(sqlite3.connect(path)) as writer, closing(sqlite3.connect(path)) as reader:
        mode = str(writer.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        writer.execute("CREATE TABLE trial (x)")
        writer.commit()
        reader.execute("SELECT * FROM trial").fetchall()
        return mode


def file_system_of(folder: Path) -> str:
    """The file system of an existing folder, such as ext4 or nfs4; empty if unknown."""
    mounts = Path("/proc/self/mountinfo")
    kinds: dict[Path, str] = {}
    for line in mounts.read_text(errors="surrogateescape").splitlines() if mounts.is_file() else ():
        left, _, right = line.partition(" - ")
        # Special characters are written as octal numbers, such as \040.
        mount = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), left.split(" ")[4])
        kinds[Path(mount)] = right.split(" ")[0]  # a later mount hides an earlier one
    target = folder.resolve()
    return next((kinds[parent] for parent in (target, *target.parents) if parent in kinds), "")


def check_state(machine: Machine) -> Iterator[Finding]:
    """The database of the server: undamaged, of a known version, and not readable by everyone."""
    folder = machine.state_folder
    if folder is None:
        return
    from hiero.serve.state import FILE_NAME, SCHEMA_VERSION, find_damage

    file = folder / FILE_NAME
    if not file.is_file():
        yield ok("state", f"none in {folder} yet; hiero serve --state creates it")
        return
    restore = f"stop the server and restore {file} from a backup (see docs/guides/deploy.md)"
    try:
        # Read-only, so that no files are left that the user of the server cannot write.
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            damages = [str(row[0]) for row in database.execute("PRAGMA integrity_check(3)") if row[0] != "ok"]
            version = int(database.execute("PRAGMA user_version").fetchone()[0])
            damages += filter(None, [find_damage(database)])
    except sqlite3.Error as error:
        yield problem("state", f"{file}: cannot be read ({first_line(error)})", restore)
        return
    if damages:
        yield problem("state", f"{file}: damaged ({'; '.join(' '.join(line.split()) for line in damages)})", restore)
    elif version > SCHEMA_VERSION:
        message = f"{file}: written by a later version of hiero"
        yield problem("state", message, "upgrade hiero, or restore an older backup")
    elif os.name == "posix" and file.stat().st_mode & 0o004 and folder.stat().st_mode & 0o001:
        yield warning("state", f"{file}: every user of this machine can read it", f"chmod 700 {folder}")
    else:
        yield ok("state", f"{file}: undamaged, {file.stat().st_size / 1e6:.1f} MB")


def check_port(machine: Machine) -> Iterator[Finding]:
    """Whether the server could listen on its port."""
    name = f"port {machine.port}"
    family = socket.AF_INET6 if ":" in machine.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((machine.host, machine.port))
        except (OSError, OverflowError) as error:
            message = f"cannot be used on {machine.host}: {getattr(error, 'strerror', None) or error}"
            advice = "a server may be running already; otherwise choose another: hiero serve --port 0 uses a free one"
            yield warning(name, message, advice)
        else:
            yield ok(name, f"free on {machine.host}")


def check_network(machine: Machine) -> Iterator[Finding]:
    """Whether the sources of weights can be reached, if `--online` is given."""
    if not machine.online:
        return
    from urllib.error import HTTPError
    from urllib.parse import urlsplit

    from hiero.storage.weights import DOWNLOAD_ERRORS, open_url, package_indexes

    hubs = [] if os.environ.get("HF_HUB_OFFLINE") == "1" else [os.environ.get("HF_ENDPOINT", "https://huggingface.co")]
    reached = False
    for url in [*hubs, *package_indexes()]:
        if url.startswith("file:"):
            continue
        name = f"network {urlsplit(url).hostname}"  # the whole address may hold a password
        try:
            open_url(url, timeout_s=NETWORK_TIMEOUT_S).close()
        except HTTPError as error:  # any answer is enough
            error.close()
            reached = True
            yield ok(name, f"answers ({error.code})")
        except DOWNLOAD_ERRORS as error:
            advice = "not needed once all weights are installed; the docs list environment variables for other sources"
            reason = getattr(error, "reason", None) or error
            yield warning(name, f"cannot be reached ({first_line(reason)})", advice)
        else:
            reached = True
            yield ok(name, "answers")
    if not reached and any(weights.find(entry) is None for entry in DEFAULT_WEIGHTS):
        advice = "install the files by hand: hiero weights get NAME --source FILE"
        yield problem("network", "some weights are missing, and no source of weights can be reached", advice)
