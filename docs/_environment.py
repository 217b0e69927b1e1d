"""Write docs/reference/environment.md from hiero/assets/environment.toml: python docs/_environment.py"""

from __future__ import annotations

import tomllib
from pathlib import Path

PAGE = Path(__file__).parent / "reference" / "environment.md"
TABLE = Path(__file__).parent.parent / "hiero" / "assets" / "environment.toml"
HEAD = """\
# Environment variables

<!-- Written by `python docs/_environment.py`; change hiero/assets/environment.toml instead. -->

All variables are optional.
"""


def generate() -> str:
    """The page as it should be."""
    lines = [HEAD]
    for title, section in tomllib.loads(TABLE.read_text(encoding="utf-8")).items():
        note = section.pop("note", "")
        lines += [f"## {title}\n", "| variable | meaning | default |", "|---|---|---|"]
        for name, variable in section.items():
            lines.append(f"| `{name}` | {variable['meaning']} | {variable.get('default', 'not set')} |")
        lines += ["", f"{note.strip()}\n" if note else ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(generate(), encoding="utf-8")
