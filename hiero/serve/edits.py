"""Edited steps, saved next to the videos or in the state of the server."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hiero.errors import InputError
from hiero.formats.hiero_json import EDITS_SUFFIX, edits_file, encode_edits, parse_hierarchy
from hiero.serve.entries import Entry
from hiero.serve.state import SavedEdit, State
from hiero.storage.files import parse_json, write_bytes
from hiero.types import Hierarchy

VERSION_LENGTH = 32
MAX_HISTORY = 500  # number of listed saves
PRESENCE_S = 45.0  # time after which a silent page counts as closed; pages send a signal every 15 s
# Name of a temporary file of a save or an upload.
PART_NAME = re.compile(rf"\.(.+{re.escape(EDITS_SUFFIX)}\.[a-z0-9_]{{8}}|[0-9a-f]{{16}})\.part")
STALE_S = 2 * 3600.0  # age of a temporary file that nobody writes any more

Versions = Collection[str] | None  # versions that may be replaced; empty: no edits exist, None: any


class ConflictError(Exception):
    """Someone else has saved edits in the meantime."""

    def __init__(self, message: str, version: str | None, hierarchy: Hierarchy | None) -> None:
        super().__init__(message)
        self.version, self.hierarchy = version, hierarchy


@dataclass(frozen=True)
class Edits:
    """Edited steps and their version."""

    hierarchy: Hierarchy
    version: str


class EditStore:
    """Edits in a persistent state, with their history, or else in a file next to each video.

    With a state, a file next to the video is used until the first save.
    """

    def __init__(self, state: State | None = None, write_files: bool = False) -> None:
        self.state = state or State()
        self.has_history = self.state.is_persistent
        self.write_files = write_files or not self.has_history
        self._lock = threading.Lock()  # held while a version is compared and replaced

    def read(self, entry: Entry) -> Edits | None:
        """The current edits, if there are any."""
        content = self._read_content(entry)
        return None if content is None else _parse_edits(entry, content)

    def exists(self, entry: Entry) -> bool:
        last = self.state.last_edit(entry.id)
        return edits_file(entry.path).is_file() if last is None else last.version is not None

    def save(self, entry: Entry, document: Any, duration_s: float, expected: Versions, user: str = "") -> Edits:
        """Save edited steps. Raises ConflictError if the current edits have another version than expected."""
        hierarchy = parse_hierarchy(document, duration_s)
        content = encode_edits(hierarchy)
        self._replace(entry, content, expected, user)
        return Edits(hierarchy, version_of(content))

    def delete(self, entry: Entry, expected: Versions = None, user: str = "") -> None:
        self._replace(entry, None, expected, user)

    def history(self, entry: Entry) -> list[SavedEdit]:
        """All saves, newest first. Raises InputError if the server keeps no history."""
        if not self.has_history:
            raise InputError("this server keeps no history of edits; start it with --state FOLDER")
        return self.state.edit_history(entry.id, MAX_HISTORY)

    def restore(self, entry: Entry, number: int, expected: Versions, user: str = "") -> Edits | None:
        """Restore the edits of an earlier save. This is a new save, so it can be undone."""
        if number not in {save.id for save in self.history(entry)}:
            raise InputError(f"this video has no saved version {number}")
        content = self.state.edit_content(entry.id, number)
        edits = None if content is None else _parse_edits(entry, content)
        self._replace(entry, content, expected, user)
        return edits

    def _replace(self, entry: Entry, content: bytes | None, expected: Versions, user: str) -> None:
        """Replace or delete the edits if their version is expected."""
        with self._lock:
            current = self._read_content(entry)
            if content == current:  # a repeated request whose response was lost
                return
            if expected is None or (not expected if current is None else version_of(current) in expected):
                self._write_content(entry, content, user)
                return
        if current is None:
            raise ConflictError("someone else has deleted the edits of this video in the meantime", None, None)
        hierarchy = None
        with suppress(InputError):  # a damaged file can also be replaced
            hierarchy = _parse_edits(entry, current).hierarchy
        message = (
            "someone else has edited this video in the meantime; send the new ETag as If-Match to replace the edits"
        )
        raise ConflictError(message, version_of(current), hierarchy)

    def _read_content(self, entry: Entry) -> bytes | None:
        last = self.state.last_edit(entry.id)
        return _read_file(entry) if last is None else self.state.edit_content(entry.id, last.id)

    def _write_content(self, entry: Entry, content: bytes | None, user: str) -> None:
        if self.has_history:
            if self.state.last_edit(entry.id) is None and (earlier := _read_file(entry)) is not None:
                self._add(entry, earlier, "")  # so that it can be restored
            self._add(entry, content, user)
        if self.write_files:
            try:
                _write_file(entry, content)
            except OSError as error:  # for example a read-only folder
                if not self.has_history:  # otherwise the file is only a copy
                    message = f"cannot save the edits next to the video ({error.strerror})"
                    raise InputError(f"{message}; start the server with --state FOLDER") from error

    def _add(self, entry: Entry, content: bytes | None, user: str) -> None:
        """Add content to the history."""
        if content is None:
            self.state.add_edit(entry.id, None, None, 0, user)
            return
        num_steps = 0
        with suppress(InputError):  # a damaged file is kept as well
            num_steps = len(_parse_edits(entry, content).hierarchy.levels[-1])
        self.state.add_edit(entry.id, version_of(content), content, num_steps, user)


def _read_file(entry: Entry) -> bytes | None:
    file = edits_file(entry.path)
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror})") from error


def _write_file(entry: Entry, content: bytes | None) -> None:
    if content is None:
        edits_file(entry.path).unlink(missing_ok=True)
    else:
        write_bytes(edits_file(entry.path), content)


class Presence:
    """Who has which video open for editing."""

    def __init__(self) -> None:
        self._last_seen_s: dict[tuple[str, str], float] = {}  # by video and user

    def touch(self, video: str, user: str) -> None:
        now_s = time.monotonic()
        present = {key: s for key, s in self._last_seen_s.items() if now_s - s <= PRESENCE_S}
        self._last_seen_s = {**present, (video, user): now_s}  # a new dict: other threads may be reading the old one

    def editors(self, video: str) -> list[str]:
        """Sorted names of the users who have a video open."""
        since_s = time.monotonic() - PRESENCE_S
        return sorted(user for (name, user), s in self._last_seen_s.items() if name == video and s >= since_s)


def version_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:VERSION_LENGTH]


def clear_stale(folders: Iterable[Path]) -> None:
    """Remove temporary files of saves and uploads that a killed server left in these folders."""
    for folder in folders:
        with suppress(OSError):  # a folder without access must not stop the server
            for file in folder.iterdir():
                if PART_NAME.fullmatch(file.name) and time.time() - file.lstat().st_mtime > STALE_S:
                    file.unlink(missing_ok=True)


def _parse_edits(entry: Entry, content: bytes) -> Edits:
    try:
        document = parse_json(content)
    except ValueError as error:
        raise InputError(f"{entry.path.name}{EDITS_SUFFIX}: not JSON ({error})") from error
    return Edits(parse_hierarchy(document, None), version_of(content))
