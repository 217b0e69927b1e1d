"""Write docs/reference/commands.md from the commands themselves: python docs/_commands.py"""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parent / "reference" / "commands.md"
WIDTH = 120
HEAD = """\
# Commands

<!-- Written by `python docs/_commands.py`; change the docstrings in hiero/cli/ instead. -->

Every command and its options, as `hiero COMMAND --help` shows them. Results go to standard output, messages and
progress to standard error. The exit code is 0 on success, 1 if a part of the work failed or a file could not be
written, 2 for a mistake in the arguments, and 130 after Ctrl-C.
"""
LIST_ITEM = re.compile(r"(?P<mark>\s*(?:[*+-]|\d+\.)\s+)\S")
TOKEN = re.compile(r"(?:`[^`]*`|\*\[[^\]]*\]\*|\S)+")


def generate() -> str:
    """The page as it should be."""
    from hiero.cli import GROUPS, app

    text = app.generate_docs(output_format="markdown", heading_level=1)
    text = text[text.index(f"**{next(iter(GROUPS))}**:") :]
    # cyclopts puts in how Python itself was started
    text = re.sub(r"(?m)^(hiero(?: [a-z][a-z-]*)+) -m \S+", r"\1", text)
    text = re.sub(r" \*\[default: (False|\"\")\]\*", "", text)  # what is off unless said needs no word
    text = re.sub(r"\n    (?=[^\s-])", " ", text)  # lines of a list item that go on
    return re.sub(r"\n{3,}", "\n\n", wrap(f"{HEAD}\n{text}\n"))


def wrap(text: str, width: int = WIDTH) -> str:
    """Markdown with paragraphs and list items wrapped; code, tables, headings and pictures stay as they are."""
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
    """One paragraph or list item; one whose lines all fit stays as it is. No line begins with what
    would be a mark of a list.
    """
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


if __name__ == "__main__":
    PAGE.write_text(generate(), encoding="utf-8")
