"""Points to plug into: backbones, text encoders, clusterings and exporters, registered as entry points.

A package that is installed beside hiero adds one with a line of its pyproject.toml, as hiero's own
pyproject.toml does:

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
# Names of our own, in the order that lists have; the metadata of an installed package is sorted.
OUR_NAMES = {
    "hiero.backbones": (
        "i3d-k400",
        "dinov2-text",
        "clip-vit-b32",
        "egovlp",
        "egovlp-768",
        "lavila-l",
        "omnivore-l",
        "omnivore-b",
    ),
    "hiero.text_encoders": ("minilm",),
    "hiero.clusterings": ("pieces", "spectral", "k-means", "k-means-cosine", "tw-finch", "equal-parts", "random"),
    "hiero.exporters": (
        "vtt",
        "srt",
        "ffmetadata",
        "youtube",
        "otio",
        "edl",
        "elan",
        "csv",
        "parquet",
        "activitynet",
        "labelstudio",
        "fiftyone",
        "cvat",
        "via",
        "coco",
    ),
}
GROUPS = tuple(OUR_NAMES)


@functools.cache
def registered(group: str) -> dict[str, EntryPoint]:
    """Entry points of a group by name, hiero's own first, none of them loaded. A name that is taken
    stays with the first.
    """
    own = {entry.name: entry for entry in _own_entry_points(group)}
    entries = {name: own[name] for name in OUR_NAMES.get(group, ()) if name in own} | own
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


def _own_entry_points(group: str) -> list[EntryPoint]:
    try:
        return list(distribution(DISTRIBUTION).entry_points.select(group=group))
    except PackageNotFoundError:  # a checkout on the path that was never installed
        project_file = Path(__file__).parent.parent / "pyproject.toml"
        project = tomllib.loads(project_file.read_text(encoding="utf-8"))["project"]
        return [EntryPoint(name, value, group) for name, value in project["entry-points"].get(group, {}).items()]
