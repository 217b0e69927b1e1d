"""Hooks of MkDocs."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Show CONTRIBUTING.md on the site, where docs/contributing.md only links to it."""
    if page.file.src_uri != "contributing.md":
        return markdown
    return (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
