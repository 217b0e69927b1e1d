"""Plug-ins: backbones, operators, clusterings and formats.

An installed package adds a plug-in as an entry point in its pyproject.toml, as hiero itself does:

    [project.entry-points."hiero.clusterings"]
    my-clustering = "my_package:cluster"

A script adds one for its own process with `register`.
"""

from __future__ import annotations

import functools
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from hiero.errors import InputError

GROUPS = ("hiero.backbones", "hiero.operators", "hiero.clusterings", "hiero.formats")
SCRIPT_PLUGINS: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}  # registered by scripts, by name

installed_entry_points = functools.cache(entry_points)  # of all packages, read from hundreds of files


def register(group: str, name: str, plugin: Any) -> None:
    """Register a plug-in for this process. Registering the same name again replaces it.

    Args:
        group: Group of the plug-in, such as `hiero.operators`; docs/guides/plugins.md lists them.
        name: Name used in settings and saved models.
        plugin: The object that an entry point of the group would refer to.

    Raises:
        InputError: The group does not exist, or an installed package uses the name.
    """
    if group not in GROUPS:
        raise InputError(f"unknown plug-in group {group}; choose from {', '.join(GROUPS)}")
    if (entry := registered_entry_points(group).get(name)) is not None:
        raise InputError(f"{name} is already used by {entry.value}; choose another name")
    SCRIPT_PLUGINS[group][name] = plugin


def registered(group: str) -> list[str]:
    """The names of the plug-ins of a group; those registered by a script come last."""
    return [*registered_entry_points(group), *SCRIPT_PLUGINS[group]]


@functools.cache
def registered_entry_points(group: str) -> dict[str, EntryPoint]:
    """Entry points of a group by name: hiero's own, then those of other packages. If a name occurs twice,
    the first one is used.
    """
    entries: dict[str, EntryPoint] = {}
    for entry in sorted(
        installed_entry_points().select(group=group), key=lambda entry: not entry.value.startswith("hiero.")
    ):
        entries.setdefault(entry.name, entry)
    return entries


def load_plugin(group: str, name: str) -> Any:
    """Load a plug-in by name; an unknown or broken one is an InputError."""
    if name in SCRIPT_PLUGINS[group]:
        return SCRIPT_PLUGINS[group][name]
    entry = registered_entry_points(group).get(name)
    if entry is None:
        kind = group.removeprefix("hiero.").removesuffix("s")
        raise InputError(
            f"unknown {kind} {name}; choose from {', '.join(registered(group))}, install the package that provides it, "
            f"or register it: hiero.plugins.register({group!r}, {name!r}, …)"
        )
    try:
        return entry.load()
    except Exception as error:  # any error in another package
        raise InputError(f"{name} ({entry.value}) cannot be loaded: {error}") from error
