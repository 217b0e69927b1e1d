"""Points to plug into: backbones, text encoders, clusterings and exporters, registered as entry points.

A package that is installed beside hiero adds one with a line of its pyproject.toml, as hiero's own
pyproject.toml does:

    [project.entry-points."hiero.clusterings"]
    my-clustering = "my_package:cluster"
"""

from __future__ import annotations

import functools
import tomllib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from hiero.errors import InputError

DISTRIBUTION = "hiero-video"


@functools.cache
def read_project() -> dict[str, Any]:
    """hiero's own pyproject.toml, `project` alone: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).parent
    file = next(file for file in (package / "pyproject.toml", package.parent / "pyproject.toml") if file.is_file())
    project: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    return project


GROUPS: tuple[str, ...] = tuple(read_project()["entry-points"])


@functools.cache
def registered(group: str) -> dict[str, EntryPoint]:
    """Entry points of a group by name, none of them loaded: hiero's own in the order of pyproject.toml
    (installed metadata is sorted), then those of other packages. A name that is taken stays with the first.
    """
    own = read_project()["entry-points"].get(group, {})
    entries = {name: EntryPoint(name, value, group) for name, value in own.items()}
    for entry in installed_entry_points().get(group, ()):
        entries.setdefault(entry.name, entry)
    return entries


@functools.cache
def installed_entry_points() -> dict[str, list[EntryPoint]]:
    """Those of all packages by group. They are read from hundreds of files: once for all of our groups."""
    entries = entry_points()
    return {group: list(entries.select(group=group)) for group in GROUPS}


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
    except Exception as error:  # whatever the import of another package raises
        raise InputError(f"{name} ({entries[name].value}) cannot be loaded: {error}") from error
