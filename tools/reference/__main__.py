"""Write the reference pages to a folder."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.reference import PAGES

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for name, generate in PAGES.items():
    (folder / f"{name}.md").write_text(generate(), encoding="utf-8")
