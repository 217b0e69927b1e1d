"""hiero cache: what the cache holds, and removing parts of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from hiero.cli.console import OPTIONS, echo, plain_table, print_json, results_console
from hiero.cli.options import Json, Repeated
from hiero.errors import InputError
from hiero.formatting import format_count
from hiero.storage.cache import REMOTE, CachedFile, cache_folder, cache_limit, cached_files

DAY_S = 86_400.0
Kind = Literal["features", "nodes", "names", "speech", "words", "known", "remote"]

app = App(name="cache", help_format="markdown", group_parameters=OPTIONS)


@app.default
def cache(*, json_: Json = False) -> None:
    """Show what the cache holds: files, size and oldest use of each kind.

    The least recently used files are removed when the cache exceeds HIERO_CACHE_MAX (20GB). Corrected
    steps are not in the cache.

    **Examples**

    * `hiero cache`
    * `hiero cache clear --days 90`
    """
    from rich.filesize import decimal

    kinds: dict[str, list[CachedFile]] = {}
    for file in cached_files():
        kinds.setdefault(file.kind, []).append(file)
    sizes = {kind: sum(file.num_bytes for file in files) for kind, files in kinds.items()}
    total = sum(size for kind, size in sizes.items() if kind != REMOTE)
    if json_:
        rows = [
            {"kind": kind, "files": len(files), "bytes": sizes[kind], "oldest_use": files[0].used_at}
            for kind, files in sorted(kinds.items())
        ]
        print_json({"folder": str(cache_folder("")), "bytes": total, "limit": cache_limit(), "kinds": rows})
        return
    table = plain_table("kind", "files", "size", "oldest use", right=("files", "size"))
    for kind, files in sorted(kinds.items()):
        oldest = time.strftime("%Y-%m-%d %H:%M", time.localtime(files[0].used_at))
        table.add_row(kind, str(len(files)), decimal(sizes[kind]), oldest)
    if kinds:
        results_console().print(table)
    apart = f" and {decimal(sizes[REMOTE])} of copies of remote videos" if REMOTE in sizes else ""
    echo(f"{cache_folder('')}: {decimal(total)} of {decimal(cache_limit())}{apart}")


@app.command
def clear(
    *,
    kind: Annotated[list[Kind] | None, Parameter(negative="")] = None,
    video: Repeated = None,
    days: float | None = None,
    all_: Annotated[bool, Parameter(name="--all", negative="")] = False,
) -> None:
    """Remove files from the cache: those to which all the given options apply.

    hiero computes or downloads them again when they are needed. Files that are being written stay.

    **Examples**

    * `hiero cache clear --kind speech`
    * `hiero cache clear --video kitchen.mp4`
    * `hiero cache clear --days 90`
    * `hiero cache clear --kind remote --days 7`
    * `hiero cache clear --all`

    Parameters
    ----------
    kind
        Kind of files, as shown by `hiero cache`. Repeatable.
    video
        Path or address of a video whose features, nodes and speech are removed. Repeatable.
    days
        Only files that were not used for this many days.
    all_
        Everything.
    """
    from rich.filesize import decimal

    if not (kind or video or days is not None or all_):
        raise InputError("say what to remove: --kind, --video, --days or --all")
    if days is not None and not days >= 0:
        raise InputError(f"--days must be at least 0, got {days}")
    keys, copies = _find_videos(video or [])
    chosen = [
        file
        for file in cached_files()
        if (not kind or file.kind in kind)
        and (not video or file.path in copies or file.path.name.startswith(keys))
        and (days is None or time.time() - file.used_at >= days * DAY_S)
    ]
    removed = [file for file in chosen if file.remove()]
    echo(f"removed {format_count(len(removed), 'file')}, {decimal(sum(file.num_bytes for file in removed))}")


def _find_videos(videos: list[str]) -> tuple[tuple[str, ...], set[Path]]:
    """With what the names of the cached files of videos begin, and the copies of remote videos."""
    from hiero.media.source import VideoSource

    keys, copies = [], set[Path]()
    for source in map(VideoSource.of, videos):
        for path in source.missing_paths:
            raise InputError(f"{path}: no such file; the cache knows videos by their content")
        keys += [f"{key}-"] if (key := source.known_key()) is not None else []
        copies |= set(source.paths)
    return tuple(keys), copies
