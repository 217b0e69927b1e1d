"""The page of environment variables, from hiero/assets/environment.toml."""

from __future__ import annotations

import tomllib

from hiero.storage.files import ASSETS

HEAD = """\
# Environment variables

All variables are optional.
"""


def generate() -> str:
    """The page as it should be."""
    lines = [HEAD]
    for title, section in tomllib.loads((ASSETS / "environment.toml").read_text(encoding="utf-8")).items():
        note = section.pop("note", "")
        lines += [f"## {title}\n", "| variable | meaning | default |", "|---|---|---|"]
        for name, variable in section.items():
            lines.append(f"| `{name}` | {variable['meaning']} | {variable.get('default', 'not set')} |")
        lines += ["", f"{note.strip()}\n" if note else ""]
    return "\n".join(lines).rstrip() + "\n"
