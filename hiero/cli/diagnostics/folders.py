"""Folders that hiero writes to: room, and the right to write."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hiero.cli.diagnostics.findings import GIB, Finding, Machine
from hiero.storage.files import home

FULL_DISK_BYTES = 200 * 2**20  # below this nothing sensible can be written


def check_folders(machine: Machine) -> Iterator[Finding]:
    """Room, and the right to write, where hiero writes."""
    folders = {
        "cache": (home(), 5 * GIB, "set HIERO_HOME to a folder of yours"),
        "temp": (Path(tempfile.gettempdir()), GIB // 2, "set TMPDIR to another folder"),
    }
    if machine.state_folder is not None:
        folders["state"] = (machine.state_folder, GIB, "choose another --state")
    for name, (folder, wanted_bytes, advice) in folders.items():
        present = next((parent for parent in (folder, *folder.absolute().parents) if parent.exists()), None)
        if present is None or not present.is_dir():
            yield Finding(f"folder {name}", "problem", f"{folder}: {present or folder} is no folder", advice)
            continue
        yield _check_room(name, folder, present, wanted_bytes, advice)
        try:
            with tempfile.TemporaryFile(dir=present) as file:
                file.write(bytes(4096))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            owner = f"give {_user_name()} the right to write there, or {advice}"
            yield Finding(f"writing {name}", "problem", f"{folder}: {error.strerror or error}", owner)
        else:
            yield Finding(f"writing {name}", "ok", str(folder) + ("" if present == folder else " (made on first use)"))


def _check_room(name: str, folder: Path, present: Path, wanted_bytes: int, advice: str) -> Finding:
    free = shutil.disk_usage(present).free
    message = f"{free / GIB:.1f} GiB free in {folder}"
    # Some file systems do not count files; those say 0 of 0.
    inodes = os.statvfs(present) if hasattr(os, "statvfs") else None
    if inodes is not None and inodes.f_files > 0 and inodes.f_favail == 0:
        return Finding(
            f"disk {name}",
            "problem",
            f"{message}, but no further file can be made (inodes)",
            f"remove files, or {advice}",
        )
    if free < FULL_DISK_BYTES:
        return Finding(f"disk {name}", "problem", f"full: {message}", f"make room, or {advice}")
    if free < wanted_bytes:
        return Finding(
            f"disk {name}", "warning", message, f"{wanted_bytes / GIB:.1f} GiB are better: make room, or {advice}"
        )
    return Finding(f"disk {name}", "ok", message)


def _user_name() -> str:
    return f"user {os.geteuid()}" if hasattr(os, "geteuid") else "this user"
