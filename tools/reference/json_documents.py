"""The page of JSON documents, from the schemas in hiero/assets/schemas/."""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any

from hiero.storage.files import ASSETS
from tools.reference.markdown import wrap

SCHEMAS = ASSETS / "schemas"
NAMES = ("steps", "ask", "videos", "annotations", "report", "eval", "extract", "features", "store")
WIDTH = 110
NO_BREAK = "\N{NO-BREAK SPACE}"
HEAD = """\
# JSON

This page describes the documents that hiero prints with `--json` and the JSON files that it reads and writes. Names
that end in `_s` hold seconds. The schemas are JSON Schemas in `hiero/assets/schemas/`. Fields without an explanation
are clear from the example or explained in an earlier section.
"""
FOOT = "[Checkpoints](../guides/checkpoints.md#the-model-folder) describes the `config.json` of a model folder.\n"


def generate() -> str:
    """The page as it should be."""
    lines = [HEAD]
    described: set[tuple[str, str]] = set()
    for name in NAMES:
        schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
        lines += [f"## {schema['title']}\n", f"{schema['description']} Schema: `{name}.json`.\n"]
        lines += ["```json", format_json(schema["examples"][0]), "```\n", *list_fields(schema, described), ""]
    return re.sub(r"\n{3,}", "\n\n", wrap("\n".join([*lines, FOOT])))


def list_fields(schema: dict[str, Any], described: set[tuple[str, str]], indent: str = "") -> list[str]:
    """List items of the fields with a description that is new, and of the fields around them."""
    lines: list[str] = []
    for name, field in find_fields(schema).items():
        text = field.get("description", "")
        is_new = bool(text) and (name, text) not in described
        described.add((name, text))
        inner = list_fields(field, described, f"{indent}    ")
        if is_new or inner:
            lines += [f"{indent}- `{name}`{f': {text}' if is_new else ''}", *inner]
    return lines


def find_fields(schema: dict[str, Any]) -> dict[str, Any]:
    """The fields of an object, of the objects in a list, or of the values of an object with any names."""
    while "properties" not in schema:
        inner = schema.get("items", schema.get("additionalProperties"))
        if not isinstance(inner, dict):
            return {}
        schema = inner
    fields: dict[str, Any] = schema["properties"]
    return fields


def format_json(value: Any, indent: str = "") -> str:
    """JSON with one item per line, except for objects and lists that hold no others or fit into a line."""
    text = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(text) <= WIDTH or not isinstance(value, dict | list):
        return text
    deeper = f"{indent}  "
    names = [f"{json.dumps(name)}: " for name in value] if isinstance(value, dict) else [""] * len(value)
    items = list(value.values()) if isinstance(value, dict) else value
    formatted = [f"{name}{format_json(item, deeper)}" for name, item in zip(names, items, strict=True)]
    start, end = "{}" if isinstance(value, dict) else "[]"
    if any(item and isinstance(item, dict | list) for item in items):
        return "\n".join([start, ",\n".join(f"{deeper}{item}" for item in formatted), f"{indent}{end}"])
    unbroken = [item.replace(" ", NO_BREAK) for item in formatted]
    lines = textwrap.wrap(start + ", ".join(unbroken) + end, WIDTH - len(indent))
    return f"\n{indent} ".join(lines).replace(NO_BREAK, " ")
