"""The videos of a corpus in a text file beside its tables, from which damaged tables are rebuilt.

Each line is the JSON of an `IndexedVideo`, or only a name for a removed video. The last line of a name
counts. A corpus at an address has no such file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from hiero.corpus.rows import DAMAGED_RECORD, IndexedVideo
from hiero.sources.addresses import is_address

FILE_NAME = "videos.jsonl"


def has_list(uri: str) -> bool:
    return (Path(uri) / FILE_NAME).is_file()


def append_to_list(uri: str, added: Iterable[IndexedVideo], removed: Iterable[str] = ()) -> None:
    """Note added and removed videos. A disk that cannot be written only costs the note."""
    if not is_address(uri):
        lines = [*(record.to_json() for record in added), *(json.dumps({"video": name}) for name in removed)]
        with suppress(OSError), (Path(uri) / FILE_NAME).open("a", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)


def read_list(uri: str) -> dict[str, IndexedVideo]:
    """The listed videos by name. Damaged lines are ignored."""
    out: dict[str, IndexedVideo] = {}
    if not has_list(uri):
        return out
    for line in (Path(uri) / FILE_NAME).read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(*DAMAGED_RECORD):
            name = json.loads(line)["video"]
            out.pop(name, None)
            out[name] = IndexedVideo.from_json(line)  # raises a KeyError for a removed video
    return out
