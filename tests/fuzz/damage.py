"""Random damage of bytes, of text and of JSON documents."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

ODD_TEXTS = (
    *("", " ", "=1+1", "-->", "<b>&amp;", '"', "\n\n", "\x00", "\udc80", "🍳" * 300, "../../x", "%s%n", "a" * 70_000),
    *("NaN", "\u202egnp.exe", "e\u0301" * 99, "\x1b[2J", "nul", "½", "٣", "-0", "1_000", "1e999"),
)
ODD_NUMBERS: tuple[Any, ...] = (
    *(-1, 0, 0.0004, 1e308, 1e30, -1e-300, float("nan"), float("inf"), 2**31, 2**63, 2**70, 10**400, True, "7", None),
)


def damage_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut off, zero, repeat, insert or replace some bytes."""
    if not data:
        return data
    start = rng.randrange(len(data))
    length = min(len(data) - start, rng.choice((1, 4, 64, 1024)))
    before, part, after = data[:start], data[start : start + length], data[start + length :]
    flipped, noise = bytes(byte ^ 1 << rng.randrange(8) for byte in part), rng.randbytes(length)
    changed = rng.choice((flipped, bytes(length), part * 3, noise + part))
    return rng.choices((before + changed + after, before, noise + data[length:], b""), (4, 1, 1, 1))[0]


def damage_text(data: bytes, rng: random.Random) -> bytes:
    """Replace some numbers or words of a text by odd ones, or repeat, remove or exchange some lines."""
    text, share = data.decode("utf-8", "surrogateescape"), rng.choice((0.02, 0.1, 0.5))
    if rng.random() < 0.3:
        lines = text.splitlines(keepends=True)
        lines = [line for line in lines for _ in range(rng.choice((0, 2, 5)) if rng.random() < share else 1)]
        if rng.random() < 0.3:
            rng.shuffle(lines)
        text = "".join(lines)
    else:
        pattern, odd = rng.choice(((r"\d+", ODD_NUMBERS), (r"[^\W\d]+", ODD_TEXTS), (r"\W", ODD_TEXTS)))
        text = re.sub(pattern, lambda match: str(rng.choice(odd)) if rng.random() < share else match[0], text)
    return text.encode("utf-8", "surrogatepass")[: 2**22]


def damage_json(document: Any, rng: random.Random) -> Any:
    """Remove, repeat or replace one or a few values of a document, or change their types."""
    document = json.loads(json.dumps(document))
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        places = list(_find_places(document))
        if not places or rng.random() < 0.02:
            return rng.choice((*ODD_NUMBERS, *ODD_TEXTS, [], {}, [document]))
        part, key = rng.choice(places)
        value = part[key]
        kind = rng.choice(("remove", "repeat", "text", "number", "type"))
        if kind == "remove":
            del part[key]
        elif kind == "repeat" and isinstance(part, list):
            part.insert(rng.randrange(len(part) + 1), value)
        elif kind == "text":
            part[key] = rng.choice(ODD_TEXTS)
        elif kind == "number":
            part[key] = rng.choice((*ODD_NUMBERS, _scale(value, rng))) if _is_number(value) else 7
        else:
            part[key] = rng.choice(([], {}, [value], {"x": value}, str(value), None, False))
    return document


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _find_places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each list or object in a document with each of its keys."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield value, key
            yield from _find_places(item)


def _scale(value: float, rng: random.Random) -> float:
    factor = rng.choice((-1, 0.5, 1.001, 2))
    return value * factor if abs(value) < 1e300 else -value  # a whole number may be too large for a float


def damage_document(document: Any, rng: random.Random) -> bytes:
    """A JSON file with damaged values, damaged bytes, an unknown field, or far too deep nesting."""
    kind = rng.choices(("values", "bytes", "text", "field", "deep"), (70, 10, 10, 5, 5))[0]
    if kind == "values":
        document = damage_json(document, rng)
    elif kind == "field" and isinstance(document, dict):
        document = {**document, rng.choice(ODD_TEXTS): rng.choice(ODD_NUMBERS)}
    data = json.dumps(document).encode("utf-8", "surrogatepass")
    if kind == "deep":
        return rng.choice((b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 50_000 + data + b"}" * 50_000))
    damage = {"bytes": damage_bytes, "text": damage_text}.get(kind)
    return data if damage is None else damage(data, rng)
