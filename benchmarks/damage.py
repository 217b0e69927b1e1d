"""Damage for `benchmarks.hostile`: odd texts and numbers, and bytes and documents with random damage."""

from __future__ import annotations

import json
import random
from typing import Any

ODD_TEXTS = (
    "",
    " ",
    "=1+1",
    "-->",
    "<b>&amp;",
    '"',
    "\n\n",
    "\x00",
    "\udc80",
    "🍳" * 300,
    "../../x",
    "%s%n",
    "a" * 70_000,
    "NaN",
)
ODD_NUMBERS: tuple[Any, ...] = (
    -1,
    0,
    1e308,
    1e30,
    -1e-300,
    float("nan"),
    float("inf"),
    2**70,
    10**400,
    True,
    "7",
    None,
)


def damage_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bytes flipped, cut off, zeroed, repeated or put in, somewhere."""
    if not data:
        return data
    kind = rng.choice(("flip", "cut", "zero", "repeat", "insert", "empty", "head"))
    start = rng.randrange(len(data))
    length = min(len(data) - start, rng.choice((1, 4, 64, 1024)))
    if kind == "flip":
        out = bytearray(data)
        for i in range(start, start + length):
            out[i] ^= 1 << rng.randrange(8)
        return bytes(out)
    if kind == "cut":
        return data[:start]
    if kind == "zero":
        return data[:start] + bytes(length) + data[start + length :]
    if kind == "repeat":
        return data[:start] + data[start : start + length] * 3 + data[start + length :]
    if kind == "insert":
        return data[:start] + rng.randbytes(length) + data[start:]
    return b"" if kind == "empty" else rng.randbytes(length) + data[length:]


def damage_json(value: Any, rng: random.Random, share: float = 0.15) -> Any:
    """The same document with some values replaced, left out, or of another type."""
    if rng.random() < share:
        return rng.choice((rng.choice(ODD_NUMBERS), rng.choice(ODD_TEXTS), [], {}, [value], {"x": value}))
    if isinstance(value, dict):
        return {key: damage_json(item, rng, share) for key, item in value.items() if rng.random() > share / 3}
    if isinstance(value, list):
        items = [damage_json(item, rng, share) for item in value if rng.random() > share / 3]
        return items * rng.choice((1, 1, 1, 2))
    return value


def damage_document(document: Any, rng: random.Random) -> bytes:
    """A JSON file with damage of structure, of bytes, or nested far too deep."""
    kind = rng.random()
    if kind < 0.05:
        return b"[" * 100_000 + b"]" * 100_000
    data = json.dumps(damage_json(document, rng) if kind < 0.75 else document).encode("utf-8", "surrogatepass")
    return data if kind < 0.75 else damage_bytes(data, rng)
