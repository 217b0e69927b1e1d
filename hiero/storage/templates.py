"""A weight file made out of another one that holds the same tensors under other names.

A package index and a hub may have the same network in different formats. A template is one file
without its tensors, and which tensors of the other go where; what comes out is the first file byte
for byte, so the same hash verifies both.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from hiero.errors import InputError


@dataclass(frozen=True)
class Slot:
    """A place of a template that numbers of single precision belong to."""

    offset: int
    tensors: list[str]
    transpose: bool = False
    skip: int = 0


@dataclass(frozen=True)
class Template:
    """A file without its tensors."""

    content: bytes
    slots: list[Slot]

    @classmethod
    def load(cls, path: Path) -> Template:
        """Read what `save` wrote."""
        document = json.loads(gzip.decompress(path.read_bytes()))
        return cls(base64.b64decode(document["content"]), [Slot(**slot) for slot in document["slots"]])

    def save(self, path: Path) -> None:
        """Write it, compressed; the same for the same template."""
        document = {"content": base64.b64encode(self.content).decode(), "slots": [asdict(slot) for slot in self.slots]}
        path.write_bytes(gzip.compress(json.dumps(document).encode(), 9, mtime=0))

    def fill(self, tensors: Mapping[str, np.ndarray]) -> bytes:
        """The whole file."""
        out, end = [], 0
        for slot in self.slots:
            try:
                value = np.concatenate([tensors[name] for name in slot.tensors])
            except (KeyError, ValueError) as error:
                raise InputError(f"its tensors are others ({error})") from error
            value = value.T if slot.transpose else value
            out += [self.content[end : slot.offset], value.astype("<f4").tobytes()[4 * slot.skip :]]
            end = slot.offset
        return b"".join([*out, self.content[end:]])
