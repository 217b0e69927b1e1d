"""Hooks of MkDocs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

SOURCE_LINK = re.compile(r"\[([^\]]+)\]\(\.\./(?:hiero|examples)/[^)]*\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Show CONTRIBUTING.md where docs/contributing.md only links to it, and names of source files without links."""
    if page.file.src_uri == "contributing.md":
        return (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return SOURCE_LINK.sub(r"\1", markdown)
