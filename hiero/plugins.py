"""Points to plug into: backbones, text encoders, clusterings and exporters, registered as entry points.

A package that is installed beside hiero adds one with a line of its pyproject.toml, as hiero's own pyproject.toml does:

    [project.entry-points."hiero.clusterings"]
    my-clustering = "my_package:cluster"
"""

from __future__ import annotations

import functools
import tomllib
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from pathlib import Path
from typing import Any

from hiero.errors import InputError

DISTRIBUTION = "hiero-video"
GROUPS = ("hiero.backbones", "hiero.text_encoders", "hiero.clusterings", "hiero.exporters")


@functools.cache
def registered(group: str) -> dict[str, EntryPoint]:
    """Entry points of a group by name, hiero's own first, none of them loaded. A name that is taken stays with the first."""
    entries = {entry.name: entry for entry in _own_entry_points(group)}
    for entry in entry_points(group=group):
        entries.setdefault(entry.name, entry)
    return entries


def load_plugin(group: str, name: str) -> Any:
    """Import what an entry point names.

    Args:
        group: One of GROUPS.
        name: Of the entry point.

    Raises:
        InputError: There is none of that name, or it cannot be imported.
    """
    entries = registered(group)
    if name not in entries:
        kind = group.removeprefix("hiero.").replace("_", " ").removesuffix("s")
        raise InputError(f"no {kind} {name}; known are {', '.join(entries)}")
    try:
        return entries[name].load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"{name} ({entries[name].value}) cannot be loaded: {error}") from error


def _own_entry_points(group: str) -> list[EntryPoint]:
    try:
        return list(distribution(DISTRIBUTION).entry_points.select(group=group))
    except PackageNotFoundError:  # a checkout on the path that was never installed
        project_file = Path(__file__).parent.parent / "pyproject.toml"
        project = tomllib.loads(project_file.read_text(encoding="utf-8"))["project"]
        return [EntryPoint(name, value, group) for name, value in project["entry-points"].get(group, {}).items()]
