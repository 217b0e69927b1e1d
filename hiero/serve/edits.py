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
from typing import Any, ClassVar

from hiero.errors import InputError
from hiero.formats.hiero_json import EDITS_SUFFIX, edits_file, encode_edits, parse_hierarchy
from hiero.serve.entries import Entry
from hiero.serve.state import SavedEdit, State
from hiero.storage.files import parse_json, write_bytes
from hiero.types import Hierarchy

VERSION_LENGTH = 32
MAX_HISTORY = 500  # number of listed saves
NO_HISTORY = "this server keeps no history of edits; start it with --state FOLDER"
PRESENCE_S = 45.0  # time after which a silent page counts as closed; pages send a signal every 15 s
EDITS_PART = re.compile(r"\..+" + re.escape(EDITS_SUFFIX) + r"\.[a-z0-9_]{8}\.part")  # temporary file of `atomic_path`
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


class FileEdits:
    """Edits in a file next to each video."""

    has_history: ClassVar[bool] = False

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held while a version is compared and replaced

    def read(self, entry: Entry) -> Edits | None:
        """The current edits, if there are any."""
        content = self.read_content(entry)
        return None if content is None else _parse_edits(entry, content)

    def save(self, entry: Entry, document: Any, duration_s: float, expected: Versions, user: str = "") -> Edits:
        """Save edited steps. Raises ConflictError if the current edits have another version than expected."""
        hierarchy = parse_hierarchy(document, duration_s)
        content = encode_edits(hierarchy)
        self._replace(entry, content, expected, user)
        return Edits(hierarchy, version_of(content))

    def delete(self, entry: Entry, expected: Versions = None, user: str = "") -> None:
        """Delete the edits."""
        self._replace(entry, None, expected, user)

    def restore(self, entry: Entry, number: int, expected: Versions, user: str = "") -> Edits | None:
        """Restore the edits of an earlier save. This is a new save, so it can be undone."""
        content = self.content_of(entry, number)
        edits = None if content is None else _parse_edits(entry, content)
        self._replace(entry, content, expected, user)
        return edits

    def exists(self, entry: Entry) -> bool:
        return edits_file(entry.path).is_file()

    def history(self, entry: Entry) -> list[SavedEdit]:
        """All saves, newest first. Raises InputError if the server keeps no history."""
        raise InputError(NO_HISTORY)

    def content_of(self, entry: Entry, number: int) -> bytes | None:
        """The content of a save, or None if the edits were deleted."""
        raise InputError(NO_HISTORY)

    def read_content(self, entry: Entry) -> bytes | None:
        file = edits_file(entry.path)
        try:
            return file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"{file}: cannot be read ({error.strerror})") from error

    def write_content(self, entry: Entry, content: bytes | None, user: str) -> None:
        try:
            if content is None:
                edits_file(entry.path).unlink(missing_ok=True)
            else:
                write_bytes(edits_file(entry.path), content)
        except OSError as error:  # for example a read-only folder
            message = f"cannot save the edits next to the video ({error.strerror})"
            raise InputError(f"{message}; start the server with --state FOLDER") from error

    def _replace(self, entry: Entry, content: bytes | None, expected: Versions, user: str) -> None:
        """Replace or delete the edits if their version is expected."""
        with self._lock:
            current = self.read_content(entry)
            if content == current:  # a repeated request whose response was lost
                return
            if expected is None or (not expected if current is None else version_of(current) in expected):
                self.write_content(entry, content, user)
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


class StateEdits(FileEdits):
    """Edits in the state of the server, with their history. A file next to the video is used until the first save."""

    has_history = True

    def __init__(self, state: State, write_files: bool = False) -> None:
        super().__init__()
        self.state, self.write_files = state, write_files

    def exists(self, entry: Entry) -> bool:
        last = self.state.last_edit(entry.id)
        return super().exists(entry) if last is None else last.version is not None

    def history(self, entry: Entry) -> list[SavedEdit]:
        return self.state.edit_history(entry.id, MAX_HISTORY)

    def content_of(self, entry: Entry, number: int) -> bytes | None:
        if number not in {save.id for save in self.history(entry)}:
            raise InputError(f"this video has no saved version {number}")
        return self.state.edit_content(entry.id, number)

    def read_content(self, entry: Entry) -> bytes | None:
        last = self.state.last_edit(entry.id)
        return super().read_content(entry) if last is None else self.state.edit_content(entry.id, last.id)

    def write_content(self, entry: Entry, content: bytes | None, user: str) -> None:
        if self.state.last_edit(entry.id) is None and (earlier := super().read_content(entry)) is not None:
            self._add(entry, earlier, "")  # so that it can be restored
        self._add(entry, content, user)
        if self.write_files:
            with suppress(InputError):  # only a copy
                super().write_content(entry, content, user)

    def _add(self, entry: Entry, content: bytes | None, user: str) -> None:
        version = None if content is None else version_of(content)
        self.state.add_edit(entry.id, version, content, 0 if content is None else _count_steps(content), user)


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


def clear_stale_edits(entries: Iterable[Entry]) -> None:
    """Remove temporary files that a killed server left next to the videos."""
    for folder in {entry.path.parent for entry in entries}:
        clear_stale(folder, EDITS_PART)


def clear_stale(folder: Path, pattern: re.Pattern[str]) -> None:
    """Remove files with matching names that were not changed for hours."""
    try:
        for file in folder.iterdir():
            if pattern.fullmatch(file.name) and time.time() - file.lstat().st_mtime > STALE_S:
                file.unlink(missing_ok=True)
    except OSError:  # a folder without access must not stop the server
        return


def _parse_edits(entry: Entry, content: bytes) -> Edits:
    try:
        document = parse_json(content)
    except ValueError as error:
        raise InputError(f"{entry.path.name}{EDITS_SUFFIX}: not JSON ({error})") from error
    return Edits(parse_hierarchy(document, None), version_of(content))


def _count_steps(content: bytes) -> int:
    """Number of steps of the finest level, 0 for a damaged file."""
    try:
        return len(parse_hierarchy(parse_json(content), None).levels[-1])
    except (InputError, ValueError):
        return 0
