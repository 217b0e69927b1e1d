"""Steps as people changed them: beside the videos, as a person at their own machine wants it, or in
the server's state.
"""

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
MAX_HISTORY = 500  # saves of a video that are listed
NO_HISTORY = "this server remembers no earlier edits; start it with --state FOLDER"
PRESENCE_S = 45.0  # after the last sign of a page someone is taken to have left; pages send one every 15 s
EDITS_PART = re.compile(r"\..+" + re.escape(EDITS_SUFFIX) + r"\.[a-z0-9_]{8}\.part")  # as `atomic_path` names them
STALE_S = 2 * 3600.0  # a file that is being written changes within seconds

Versions = Collection[str] | None  # that edits may have to be replaced: none at all, or None for any


class ConflictError(Exception):
    """Edits were saved by someone else meanwhile."""

    def __init__(self, message: str, version: str | None, hierarchy: Hierarchy | None) -> None:
        super().__init__(message)
        self.version, self.hierarchy = version, hierarchy


@dataclass(frozen=True)
class Edits:
    """Steps as a person changed them, and what tells them from those of another save."""

    hierarchy: Hierarchy
    version: str


class FileEdits:
    """Edits in a file beside each video."""

    has_history: ClassVar[bool] = False

    def __init__(self) -> None:
        self._lock = threading.Lock()  # from the look at a version until it is replaced

    def read(self, entry: Entry) -> Edits | None:
        """The steps that were saved last, if there are any."""
        content = self.read_content(entry)
        return None if content is None else _parse_edits(entry, content)

    def save(self, entry: Entry, document: Any, duration_s: float, expected: Versions, user: str = "") -> Edits:
        """Save steps that a person has changed. Raises ConflictError where others are there than expected."""
        hierarchy = parse_hierarchy(document, duration_s)
        content = encode_edits(hierarchy)
        self._replace(entry, content, expected, user)
        return Edits(hierarchy, version_of(content))

    def delete(self, entry: Entry, expected: Versions = None, user: str = "") -> None:
        """Forget what a person has changed."""
        self._replace(entry, None, expected, user)

    def restore(self, entry: Entry, number: int, expected: Versions, user: str = "") -> Edits | None:
        """Go back to the steps as they were after one save; a save of its own, so that this too can be undone."""
        content = self.content_of(entry, number)
        edits = None if content is None else _parse_edits(entry, content)
        self._replace(entry, content, expected, user)
        return edits

    def exists(self, entry: Entry) -> bool:
        return edits_file(entry.path).is_file()

    def history(self, entry: Entry) -> list[SavedEdit]:
        """All saves, newest first. Raises InputError where they are not remembered."""
        raise InputError(NO_HISTORY)

    def content_of(self, entry: Entry, number: int) -> bytes | None:
        """The steps of one save of the history; None where they were forgotten then."""
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
        except OSError as error:  # such as a folder that may only be read
            raise InputError(
                f"the edits cannot be saved beside the video ({error.strerror}); start the server with --state FOLDER"
            ) from error

    def _replace(self, entry: Entry, content: bytes | None, expected: Versions, user: str) -> None:
        """Put edits, or none, in place of those that are there, if these are of an expected version."""
        with self._lock:
            current = self.read_content(entry)
            if content == current:  # it was done already, and only the answer was lost
                return
            if expected is None or (not expected if current is None else version_of(current) in expected):
                self.write_content(entry, content, user)
                return
        if current is None:
            raise ConflictError("someone has forgotten the edits of this video meanwhile", None, None)
        hierarchy = None
        with suppress(InputError):  # a damaged file can be replaced too, by who knows its version
            hierarchy = _parse_edits(entry, current).hierarchy
        reason = "someone else has saved steps of this video meanwhile"
        advice = "read them, and send their ETag as If-Match to replace them"
        raise ConflictError(f"{reason}; {advice}", version_of(current), hierarchy)


class StateEdits(FileEdits):
    """Edits in the server's state, with their history. A file beside the video, of earlier days,
    counts until the first save.
    """

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
            raise InputError(f"no save {number} of this video")
        return self.state.edit_content(entry.id, number)

    def read_content(self, entry: Entry) -> bytes | None:
        last = self.state.last_edit(entry.id)
        return super().read_content(entry) if last is None else self.state.edit_content(entry.id, last.id)

    def write_content(self, entry: Entry, content: bytes | None, user: str) -> None:
        if self.state.last_edit(entry.id) is None and (earlier := super().read_content(entry)) is not None:
            self._add(entry, earlier, "")  # so that one can come back to it
        self._add(entry, content, user)
        if self.write_files:
            with suppress(InputError):  # a copy: what counts is saved
                super().write_content(entry, content, user)

    def _add(self, entry: Entry, content: bytes | None, user: str) -> None:
        version = None if content is None else version_of(content)
        self.state.add_edit(entry.id, version, content, 0 if content is None else _count_steps(content), user)


class Presence:
    """Who has which video open for editing: as their pages say, for a while."""

    def __init__(self) -> None:
        self._last_seen_s: dict[str, dict[str, float]] = {}
        self._lock = threading.Lock()

    def touch(self, video: str, user: str) -> None:
        """Someone is there."""
        with self._lock:
            self._last_seen_s.setdefault(video, {})[user] = time.monotonic()

    def editors(self, video: str) -> list[str]:
        """Names of those who are there, in order."""
        since_s = time.monotonic() - PRESENCE_S
        with self._lock:
            present = {name: s for name, s in self._last_seen_s.pop(video, {}).items() if s >= since_s}
            if present:
                self._last_seen_s[video] = present
        return sorted(present)


def version_of(content: bytes) -> str:
    """What tells the content of one save from another."""
    return hashlib.sha256(content).hexdigest()[:VERSION_LENGTH]


def clear_stale_edits(entries: Iterable[Entry]) -> None:
    """Remove what a server that was killed left of edits that it was writing, beside the videos."""
    for folder in {entry.path.parent for entry in entries}:
        clear_stale(folder, EDITS_PART)


def clear_stale(folder: Path, pattern: re.Pattern[str]) -> None:
    """Remove files that nobody writes any more: they were not changed for hours."""
    try:
        for file in folder.iterdir():
            if pattern.fullmatch(file.name) and time.time() - file.lstat().st_mtime > STALE_S:
                file.unlink(missing_ok=True)
    except OSError:  # of a folder that cannot be read or written nothing is removed; that is no reason not to start
        return


def _parse_edits(entry: Entry, content: bytes) -> Edits:
    try:
        document = parse_json(content)
    except ValueError as error:
        raise InputError(f"{entry.path.name}{EDITS_SUFFIX}: not JSON ({error})") from error
    return Edits(parse_hierarchy(document, None), version_of(content))


def _count_steps(content: bytes) -> int:
    """Steps of the finest level; 0 of a damaged file of earlier days."""
    try:
        return len(parse_hierarchy(parse_json(content), None).levels[-1])
    except (InputError, ValueError):
        return 0
