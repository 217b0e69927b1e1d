"""Wrapped Markdown."""

from __future__ import annotations

import re

WIDTH = 120
LIST_ITEM = re.compile(r"(?P<mark>\s*(?:[*+-]|\d+\.)\s+)\S")
TOKEN = re.compile(r"(?:`[^`]*`|\*\[[^\]]*\]\*|\S)+")


def wrap(text: str, width: int = WIDTH) -> str:
    """Wrap the paragraphs and list items of Markdown, but not its code, tables, headings and pictures."""
    out: list[str] = []
    block: list[str] = []
    fenced = False
    for line in [*text.splitlines(), ""]:
        fence = line.lstrip().startswith("```")
        if fence or fenced or not line.strip() or line.lstrip().startswith(("#", "|", "<", "![", ":::")):
            out += _fill(block, width)
            block = []
            out.append(line.rstrip())
            fenced ^= fence
        elif LIST_ITEM.match(line):
            out += _fill(block, width)
            block = [line]
        else:
            block.append(line)
    return "\n".join(out).rstrip() + "\n"


def _fill(block: list[str], width: int) -> list[str]:
    """Wrap one paragraph or list item, unless all its lines fit. No line may begin with a list marker."""
    if all(len(line.rstrip()) <= width for line in block):
        return [line.rstrip() for line in block]
    item = LIST_ITEM.match(block[0])
    first = item["mark"] if item else re.match(r"\s*", block[0])[0]
    rest = " " * len(first)
    lines: list[list[str]] = [[]]
    for token in TOKEN.findall(" ".join(line.strip() for line in block)[len(first.lstrip()) :]):
        indent = first if len(lines) == 1 else rest
        if lines[-1] and len(indent) + len(" ".join([*lines[-1], token])) > width:
            is_mark = re.fullmatch(r"[*+-]|\d+\.", token)
            lines.append([lines[-1].pop(), token] if is_mark else [token])
        else:
            lines[-1].append(token)
    return [(first if i == 0 else rest) + " ".join(line) for i, line in enumerate(lines)]
