"""Hooks of MkDocs: the reference is generated, and CONTRIBUTING.md is part of the site."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
SOURCE_LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./)*(?:hiero|examples|benchmarks|tools)/[^)]*\)")


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add the generated pages to those in docs/."""
    sys.path.insert(0, str(ROOT))  # MkDocs runs hooks with the folder of its own program on the path
    from tools.reference import PAGES

    for name, generate in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=generate()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Show CONTRIBUTING.md in the place of docs/contributing.md, and names of source files without links."""
    if page.file.src_uri == "contributing.md":
        markdown = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
        markdown = markdown.replace("](docs/", "](")
    return SOURCE_LINK.sub(r"\1", markdown)
