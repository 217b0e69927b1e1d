"""Points to plug into: backbones, text encoders, clusterings, exporters and parts of the network,
registered as entry points.

A package that is installed beside hiero adds one with a line of its pyproject.toml, as hiero's own
pyproject.toml does:

    [project.entry-points."hiero.clusterings"]
    my-clustering = "my_package:cluster"

A script registers one for its own process with `register`.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
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


@dataclass(frozen=True)
class ScriptPlugin:
    """A plug-in that a script registered; it is used as an entry point is."""

    plugin: Any

    @property
    def value(self) -> str:
        return f"{getattr(self.plugin, '__module__', '')}:{getattr(self.plugin, '__qualname__', self.plugin)}"

    def load(self) -> Any:
        return self.plugin


SCRIPT_PLUGINS: dict[str, dict[str, ScriptPlugin]] = {group: {} for group in GROUPS}


def register(group: str, name: str, plugin: Any) -> None:
    """Register a plug-in for this process. Registering the same name again replaces it.

    Args:
        group: Such as `hiero.operators`; docs/guides/plugins.md lists them.
        name: The name that settings and saved models refer to.
        plugin: What an entry point of the group would name.

    Raises:
        InputError: The group does not exist, or an installed package has the name.
    """
    if group not in GROUPS:
        raise InputError(f"no plug-in group {group}; known are {', '.join(GROUPS)}")
    if (entry := registered_entry_points(group).get(name)) is not None:
        raise InputError(f"{name} is taken by {entry.value}; register yours under another name")
    SCRIPT_PLUGINS[group][name] = ScriptPlugin(plugin)


def registered(group: str) -> dict[str, EntryPoint | ScriptPlugin]:
    """The plug-ins of a group by name, none of them loaded; those of this script come last."""
    return {**registered_entry_points(group), **SCRIPT_PLUGINS.get(group, {})}


@functools.cache
def registered_entry_points(group: str) -> dict[str, EntryPoint]:
    """Entry points of a group by name: hiero's own in the order of pyproject.toml (installed metadata is
    sorted), then those of other packages. A name that is taken stays with the first.
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
        raise InputError(
            f"no {kind} {name}; known are {', '.join(entries)}. Install the package that provides it, or register it "
            f"first: hiero.plugins.register({group!r}, {name!r}, …)"
        )
    try:
        return entries[name].load()
    except Exception as error:  # whatever the import of another package raises
        raise InputError(f"{name} ({entries[name].value}) cannot be loaded: {error}") from error
