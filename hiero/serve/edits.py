"""Edited steps: in the state of a server with their history, or in the files that the commands read and write."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from hiero.errors import InputError
from hiero.formats import hiero_json
from hiero.serve.database import FILE_NAME
from hiero.serve.entries import Entry
from hiero.serve.state import SavedEdit, State
from hiero.storage.cache import KEY_LENGTH
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


class EditStore(ABC):
    """The edits of a server. Subclasses say where they are."""

    has_history = False

    def __init__(self, state: State | None = None) -> None:
        self.state = state or State()
        self._lock = threading.Lock()  # held while a version is compared and replaced

    @abstractmethod
    def read(self, entry: Entry) -> SavedSteps | None:
        """The current edits, if there are any."""

    @abstractmethod
    def exists(self, entry: Entry) -> bool:
        """Whether a listed video has edits."""

    @abstractmethod
    def _write(self, entry: Entry, hierarchy: Hierarchy | None, user: str) -> None:
        """Replace the edits, or delete them."""

    def history(self, entry: Entry) -> list[SavedEdit]:
        """All saves, newest first. Raises InputError if the server keeps no history."""
        raise InputError("this server keeps no history of edits; start it with --root FOLDER")

    def restore(self, entry: Entry, number: int, expected: Versions, user: str = "") -> SavedSteps | None:
        """Restore the edits of an earlier save. This is a new save, so it can be undone."""
        raise InputError("this server keeps no history of edits; start it with --root FOLDER")

    def save(self, entry: Entry, hierarchy: Hierarchy, expected: Versions, user: str = "") -> SavedSteps:
        """Save edited steps. Raises ConflictError if the current edits have another version than expected."""
        self._replace(entry, hierarchy, expected, user)
        return SavedSteps(hierarchy, version_of(hierarchy))

    def delete(self, entry: Entry, expected: Versions = None, user: str = "") -> None:
        self._replace(entry, None, expected, user)

    def _replace(self, entry: Entry, hierarchy: Hierarchy | None, expected: Versions, user: str) -> None:
        """Replace or delete the edits if their version is expected."""
        current: SavedSteps | None = None
        with self._lock:
            try:
                current = self.read(entry)
                version = None if current is None else current.version
            except InputError:  # damaged edits can also be replaced
                version = DAMAGED
            if version == (None if hierarchy is None else version_of(hierarchy)):
                return  # a repeated request whose response was lost
            if expected is None or (not expected if version is None else version in expected):
                self._write(entry, hierarchy, user)
                return
        if version is None:
            raise ConflictError("someone else has deleted the edits of this video in the meantime", None, None)
        message = "someone else has edited this video in the meantime; send the new ETag as If-Match to replace it"
        raise ConflictError(message, version, None if current is None else current.hierarchy)


class FileEdits(EditStore):
    """Edits in files next to the videos and by content, which the commands use, too."""

    def read(self, entry: Entry) -> SavedSteps | None:
        found = hiero_json.read_edits(entry.path, _find_key(entry) if hiero_json.has_stored_edits() else None)
        return None if found is None else SavedSteps(found.hierarchy, version_of(found.hierarchy))

    def exists(self, entry: Entry) -> bool:
        return bool(hiero_json.find_edits(entry.path, entry.key))

    def _write(self, entry: Entry, hierarchy: Hierarchy | None, user: str) -> None:
        key = _find_key(entry)
        try:
            if hierarchy is None:
                hiero_json.delete_edits(entry.path, key)
            else:
                hiero_json.write_edits(entry.path, key, hierarchy)
        except OSError as error:  # for example a read-only folder
            message = f"cannot save the edits next to the video ({error.strerror})"
            raise InputError(f"{message}; start the server with --root FOLDER") from error


class StateEdits(EditStore):
    """Edits in a persistent state, with their history. They belong to this server, and to the content of a video."""

    has_history = True

    def read(self, entry: Entry) -> SavedSteps | None:
        last = self.state.last_edit(_quick_key(entry))
        if last is None or last.version is None:
            return None
        return SavedSteps(_parse_save(self.state, last.video, last.id), last.version)

    def exists(self, entry: Entry) -> bool:
        last = self.state.last_edit(entry.key or "")
        return last is not None and last.version is not None

    def history(self, entry: Entry) -> list[SavedEdit]:
        return self.state.edit_history(_quick_key(entry), MAX_HISTORY)

    def restore(self, entry: Entry, number: int, expected: Versions, user: str = "") -> SavedSteps | None:
        saves = {save.id: save for save in self.history(entry)}
        if number not in saves:
            raise InputError(f"this video has no saved version {number}")
        if saves[number].version is None:
            self.delete(entry, expected, user)
            return None
        return self.save(entry, _parse_save(self.state, saves[number].video, number), expected, user)

    def _write(self, entry: Entry, hierarchy: Hierarchy | None, user: str) -> None:
        if (key := _find_key(entry)) is None:
            raise InputError(f"{entry.name}: its file is missing, so its steps cannot be saved")
        if hierarchy is None:
            self.state.add_edit(key, None, None, 0, user)
        else:
            content, num_steps = hiero_json.encode_edits(hierarchy), len(hierarchy.levels[-1])
            self.state.add_edit(key, version_of(hierarchy), content, num_steps, user)

    def upgrade(self, entries: Iterable[Entry]) -> None:
        """Store the edits of earlier versions by the content of the videos. Their servers also used edits in files."""
        ids = {video for video in self.state.edited_videos() if len(video) < KEY_LENGTH}
        for entry in entries:
            with suppress(OSError, InputError):
                if entry.id in ids:
                    self.state.move_edits(entry.id, entry.source.key())
                elif self.state.upgraded_from == 1 and (found := FileEdits().read(entry)) is not None:
                    self._write(entry, found.hierarchy, "")


def read_server_edits(root: Path, key: str) -> hiero_json.StoredEdits | None:
    """The corrected steps of the video with this content on a server, which may be running."""
    if not (root / FILE_NAME).is_file():
        raise InputError(f"{root}: is not the root of a server; it has no {FILE_NAME}")
    with closing(State(root)) as state:
        last = state.last_edit(key)
        if last is None or last.version is None:
            return None
        return hiero_json.StoredEdits(_parse_save(state, key, last.id), root)


def _parse_save(state: State, video: str, number: int) -> Hierarchy:
    try:
        return hiero_json.parse_hierarchy(parse_json(state.edit_content(video, number) or b""))
    except ValueError as error:
        raise InputError(f"save {number} in {state.folder} is damaged ({error})") from error


def _find_key(entry: Entry) -> str | None:
    """The key of the content of a video, None if it is missing or not downloaded."""
    with suppress(OSError):
        return entry.source.known_key()
    return None


def _quick_key(entry: Entry) -> str:
    """The key of the content of a video that was processed. Others would take long to read, and have no edits."""
    with suppress(OSError):
        return entry.source.quick_key() or entry.key or ""
    return ""


def version_of(hierarchy: Hierarchy) -> str:
    return hashlib.sha256(hiero_json.encode_edits(hierarchy)).hexdigest()[:VERSION_LENGTH]


def clear_stale(folders: Iterable[Path]) -> None:
    """Remove temporary files of saves and uploads that a killed server left in these folders."""
    for folder in folders:
        with suppress(OSError):  # a folder without access must not stop the server
            for file in folder.iterdir():
                if PART_NAME.fullmatch(file.name) and time.time() - file.lstat().st_mtime > STALE_S:
                    file.unlink(missing_ok=True)
