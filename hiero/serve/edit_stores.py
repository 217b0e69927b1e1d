"""Where the edits of people are: beside the videos, as a person at their own machine wants it, or in
the server's state.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from hiero.errors import InputError
from hiero.formats.edits import edits_file, parse_hierarchy
from hiero.serve.state import SavedEdit, State
from hiero.storage.files import parse_json, write_bytes

VERSION_LENGTH = 32
MAX_HISTORY = 500  # saves of a video that are listed
NO_HISTORY = "this server remembers no earlier edits; start it with --state FOLDER"


def version_of(content: bytes) -> str:
    """What tells the content of one save from another."""
    return hashlib.sha256(content).hexdigest()[:VERSION_LENGTH]


class EditStore(ABC):
    """The edits of videos: the JSON of their steps. A video is known by its id, and by the path of its first file."""

    has_history: ClassVar[bool] = False

    @abstractmethod
    def read(self, id: str, path: Path) -> bytes | None:
        """The steps that were saved last; None where there are none. Raises InputError where they cannot be read."""

    @abstractmethod
    def write(self, id: str, path: Path, content: bytes | None, user: str) -> None:
        """Save steps, or forget them (None). Raises InputError where that cannot be."""

    @abstractmethod
    def exists(self, id: str, path: Path) -> bool:
        """Whether there are edits."""

    def history(self, id: str) -> list[SavedEdit]:
        """All saves, newest first. Raises InputError where they are not remembered."""
        raise InputError(NO_HISTORY)

    def content_of(self, id: str, number: int) -> bytes | None:
        """The steps of one save of the history; None where they were forgotten then. Raises InputError
        where there is none.
        """
        raise InputError(NO_HISTORY)


class FileEdits(EditStore):
    """In a file beside each video."""

    def read(self, id: str, path: Path) -> bytes | None:
        file = edits_file(path)
        try:
            return file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"{file}: cannot be read ({error.strerror})") from error

    def write(self, id: str, path: Path, content: bytes | None, user: str) -> None:
        try:
            if content is None:
                edits_file(path).unlink(missing_ok=True)
            else:
                write_bytes(edits_file(path), content)
        except OSError as error:  # such as a folder that may only be read
            raise InputError(
                f"the edits cannot be saved beside the video ({error.strerror}); start the server with --state FOLDER"
            ) from error

    def exists(self, id: str, path: Path) -> bool:
        return edits_file(path).is_file()


class StateEdits(EditStore):
    """In the server's state, with their history. A file beside the video, of earlier days, counts
    until the first save.
    """

    has_history = True

    def __init__(self, state: State, write_files: bool = False) -> None:
        self.state, self.write_files = state, write_files
        self._files = FileEdits()

    def read(self, id: str, path: Path) -> bytes | None:
        last = self.state.last_edit(id)
        return self._files.read(id, path) if last is None else self.state.edit_content(id, last.id)

    def write(self, id: str, path: Path, content: bytes | None, user: str) -> None:
        if self.state.last_edit(id) is None and (earlier := self._files.read(id, path)) is not None:
            self._add(id, earlier, "")  # so that one can come back to it
        self._add(id, content, user)
        if self.write_files:
            with suppress(InputError):  # a copy: what counts is saved
                self._files.write(id, path, content, user)

    def exists(self, id: str, path: Path) -> bool:
        last = self.state.last_edit(id)
        return self._files.exists(id, path) if last is None else last.version is not None

    def history(self, id: str) -> list[SavedEdit]:
        return self.state.edit_history(id, MAX_HISTORY)

    def content_of(self, id: str, number: int) -> bytes | None:
        if number not in {save.id for save in self.history(id)}:
            raise InputError(f"no save {number} of this video")
        return self.state.edit_content(id, number)

    def _add(self, id: str, content: bytes | None, user: str) -> None:
        version = None if content is None else version_of(content)
        self.state.add_edit(id, version, content, 0 if content is None else _count_steps(content), user)


def _count_steps(content: bytes) -> int:
    """Steps of the finest level; 0 of a damaged file of earlier days."""
    try:
        return len(parse_hierarchy(parse_json(content), None).levels[-1])
    except (InputError, ValueError):
        return 0
