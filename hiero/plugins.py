"""Plug-ins: backbones, operators, clusterings and formats.

An installed package adds a plug-in as an entry point in its pyproject.toml, as hiero itself does:

    [project.entry-points."hiero.clusterings"]
    my-clustering = "my_package:cluster"

A script adds one for its own process with `register`. Commands take such a script as `--plugin FILE`; the
environment variable HIERO_PLUGINS holds the files, so that the processes which a command starts load them too.
"""

from __future__ import annotations

import functools
import os
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from hiero.errors import InputError

GROUPS = ("hiero.backbones", "hiero.operators", "hiero.clusterings", "hiero.formats")
SCRIPT_PLUGINS: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}  # registered by scripts, by name

FILES_VARIABLE = "HIERO_PLUGINS"
_loaded_files: set[str] = set()

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


def add_plugin_file(path: str) -> None:
    """Load a Python file that registers plug-ins, in this process and those that it starts."""
    known = os.environ.get(FILES_VARIABLE, "").split(os.pathsep)
    os.environ[FILES_VARIABLE] = os.pathsep.join(filter(None, [*known, str(Path(path).absolute())]))
    load_plugin_files()


def load_plugin_files() -> None:
    """Load the files of HIERO_PLUGINS that are not loaded yet."""
    for path in filter(None, os.environ.get(FILES_VARIABLE, "").split(os.pathsep)):
        if path not in _loaded_files:
            _loaded_files.add(path)  # first, since the file may ask for plug-ins itself
            _load_file(path)


def _load_file(path: str) -> None:
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file; --plugin takes a Python file that calls hiero.plugins.register")
    spec = spec_from_file_location(f"hiero_plugin_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file; its name must end in .py")
    try:
        spec.loader.exec_module(module_from_spec(spec))
    except Exception as error:  # any error in the user's file
        raise InputError(f"{path}: cannot be loaded as a plug-in ({type(error).__name__}: {error})") from error


def registered(group: str) -> list[str]:
    """The names of the plug-ins of a group; those registered by a script come last."""
    load_plugin_files()
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
    load_plugin_files()
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
