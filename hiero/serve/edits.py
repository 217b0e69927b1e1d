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

from hiero.errors import InputError
from hiero.formats import hiero_json
from hiero.serve.entries import Entry
from hiero.serve.state import SavedEdit, State
from hiero.storage.files import parse_json
from hiero.types import Hierarchy

VERSION_LENGTH = 32
MAX_HISTORY = 500  # number of listed saves
# Name of a temporary file of a save or an upload.
PART_NAME = re.compile(rf"\.(.+{re.escape(hiero_json.EDITS_SUFFIX)}\.[a-z0-9_]{{8}}|[0-9a-f]{{16}})\.part")
DAMAGED = "damaged"  # version of edits that cannot be read
STALE_S = 2 * 3600.0  # age of a temporary file that nobody writes any more

Versions = Collection[str] | None  # versions that may be replaced; empty: no edits exist, None: any


class ConflictError(Exception):
    """Someone else has saved edits in the meantime."""

    def __init__(self, message: str, version: str | None, hierarchy: Hierarchy | None) -> None:
        super().__init__(message)
        self.version, self.hierarchy = version, hierarchy


@dataclass(frozen=True)
class SavedSteps:
    """Edited steps and their version."""

    hierarchy: Hierarchy
    version: str


class EditStore:
    """Edits in a persistent state, with their history, or else in files, as the commands read and write them.

    With a state, files are used until the first save. A save also writes the file that belongs to the
    content of the video, so that the commands use the same steps.
    """

    def __init__(self, state: State | None = None, write_files: bool = False) -> None:
        self.state = state or State()
        self.has_history = self.state.is_persistent
        self.write_files = write_files or not self.has_history  # next to the videos
        self._keys: dict[str, str | None] = {}  # contents of entries, as far as they were needed
        self._lock = threading.Lock()  # held while a version is compared and replaced

    def read(self, entry: Entry) -> SavedSteps | None:
        """The current edits, if there are any."""
        last = self.state.last_edit(entry.id)
        if last is not None:
            return None if last.version is None else SavedSteps(self._read_save(entry, last.id), last.version)
        found = hiero_json.read_edits(entry.path, self._find_key(entry) if hiero_json.has_stored_edits() else None)
        return None if found is None else SavedSteps(found.hierarchy, version_of(found.hierarchy))

    def exists(self, entry: Entry) -> bool:
        last = self.state.last_edit(entry.id)
        if last is not None:
            return last.version is not None
        # The key of a video that was read is cached. Hashing the others would take too long for a list.
        if entry.id not in self._keys and entry.is_read and hiero_json.has_stored_edits():
            self._find_key(entry)
        return bool(hiero_json.find_edits(entry.path, self._keys.get(entry.id)))

    def save(self, entry: Entry, hierarchy: Hierarchy, expected: Versions, user: str = "") -> SavedSteps:
        """Save edited steps. Raises ConflictError if the current edits have another version than expected."""
        self._replace(entry, hierarchy, expected, user)
        return SavedSteps(hierarchy, version_of(hierarchy))

    def delete(self, entry: Entry, expected: Versions = None, user: str = "") -> None:
        self._replace(entry, None, expected, user)

    def history(self, entry: Entry) -> list[SavedEdit]:
        """All saves, newest first. Raises InputError if the server keeps no history."""
        if not self.has_history:
            raise InputError("this server keeps no history of edits; start it with --state FOLDER")
        return self.state.edit_history(entry.id, MAX_HISTORY)

    def restore(self, entry: Entry, number: int, expected: Versions, user: str = "") -> SavedSteps | None:
        """Restore the edits of an earlier save. This is a new save, so it can be undone."""
        versions = {save.id: save.version for save in self.history(entry)}
        if number not in versions:
            raise InputError(f"this video has no saved version {number}")
        if versions[number] is None:
            self.delete(entry, expected, user)
            return None
        return self.save(entry, self._read_save(entry, number), expected, user)

    def _replace(self, entry: Entry, hierarchy: Hierarchy | None, expected: Versions, user: str) -> None:
        """Replace or delete the edits if their version is expected."""
        current: SavedSteps | None = None
        with self._lock:
            try:
                current = self.read(entry)
                version = None if current is None else current.version
            except InputError:  # a damaged file can also be replaced
                version = DAMAGED
            if version == (None if hierarchy is None else version_of(hierarchy)):
                return  # a repeated request whose response was lost
            if expected is None or (not expected if version is None else version in expected):
                self._write(entry, current, hierarchy, user)
                return
        if version is None:
            raise ConflictError("someone else has deleted the edits of this video in the meantime", None, None)
        message = "someone else has edited this video in the meantime; send the new ETag as If-Match to replace it"
        raise ConflictError(message, version, None if current is None else current.hierarchy)

    def _write(self, entry: Entry, current: SavedSteps | None, hierarchy: Hierarchy | None, user: str) -> None:
        if self.has_history:
            if self.state.last_edit(entry.id) is None and current is not None:
                self._add(entry, current.hierarchy, "")  # so that the steps in the file can be restored
            self._add(entry, hierarchy, user)
        key = self._find_key(entry)
        try:
            if hierarchy is None:
                hiero_json.delete_edits(entry.path, key, beside=self.write_files)
            else:
                hiero_json.write_edits(entry.path, key, hierarchy, beside=self.write_files)
        except OSError as error:  # for example a read-only folder
            if not self.has_history:  # otherwise the files are only copies
                message = f"cannot save the edits next to the video ({error.strerror})"
                raise InputError(f"{message}; start the server with --state FOLDER") from error

    def _add(self, entry: Entry, hierarchy: Hierarchy | None, user: str) -> None:
        """Add steps, or their deletion, to the history."""
        if hierarchy is None:
            self.state.add_edit(entry.id, None, None, 0, user)
            return
        content = hiero_json.encode_edits(hierarchy)
        self.state.add_edit(entry.id, version_of(hierarchy), content, len(hierarchy.levels[-1]), user)

    def _read_save(self, entry: Entry, number: int) -> Hierarchy:
        try:
            return hiero_json.parse_hierarchy(parse_json(self.state.edit_content(entry.id, number) or b""))
        except ValueError as error:
            raise InputError(f"{entry.name}: save {number} is damaged ({error})") from error

    def _find_key(self, entry: Entry) -> str | None:
        """The key of the content of a video, None if it is missing or not downloaded."""
        try:
            self._keys[entry.id] = entry.source.known_key()
        except OSError:
            self._keys[entry.id] = None
        return self._keys[entry.id]


def version_of(hierarchy: Hierarchy) -> str:
    return hashlib.sha256(hiero_json.encode_edits(hierarchy)).hexdigest()[:VERSION_LENGTH]


def clear_stale(folders: Iterable[Path]) -> None:
    """Remove temporary files of saves and uploads that a killed server left in these folders."""
    for folder in folders:
        with suppress(OSError):  # a folder without access must not stop the server
            for file in folder.iterdir():
                if PART_NAME.fullmatch(file.name) and time.time() - file.lstat().st_mtime > STALE_S:
                    file.unlink(missing_ok=True)
