"""Videos that a command is given: files, folders and patterns; one result for each, and a summary at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hiero.cli.console import collection_bars, log, print_json
from hiero.errors import InputError

if TYPE_CHECKING:
    from hiero.cli.options import VideoOptions
    from hiero.engine import Engine, Video
    from hiero.sources.source import VideoSource

Result = TypeVar("Result")


@dataclass(frozen=True)
class Inputs:
    """Videos by name.

    Attributes:
        sources: A file, or several that are one video, by name.
        is_single: One file was given, or files that are one video: the result stands alone, without a name.
    """

    sources: dict[str, VideoSource]
    is_single: bool

    @property
    def paths(self) -> list[Path]:
        """All files that will be read."""
        return [path for source in self.sources.values() for path in source.paths]

    def title_of(self, name: str) -> str | None:
        """What is printed above the result of a video; None where it stands alone."""
        return None if self.is_single else name

    def folder_of(self, name: str, folder: Path) -> Path:
        """Where the files of a video go: each of several videos has a folder of its own."""
        return folder if self.is_single else folder / name


@dataclass
class Results(Generic[Result]):
    """What became of the videos of a command.

    Attributes:
        inputs: The videos.
        done: Results by name.
        failed: What is wrong, by name.
    """

    inputs: Inputs
    done: dict[str, Result] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def finish(self) -> None:
        """Of several videos: say how many were done and what is wrong with the others; the exit code is then 1."""
        if self.inputs.is_single:
            return
        log(f"{len(self.done)} of {len(self.done) + len(self.failed)} videos done, {len(self.failed)} failed")
        for message in self.failed.values():
            log(f"failed: {message}")
        if self.failed:
            sys.exit(1)

    def print_documents(self: Results[dict[str, Any]], **more: Any) -> None:
        """One JSON document: that of the video which stands alone, or `videos`, a list with one for each."""
        if self.inputs.is_single:
            print_json(next(iter(self.done.values())))
            return
        videos = [
            {"name": name, **self.done[name]}
            if name in self.done
            else {"name": name, "video": source.name, "error": self.failed[name]}
            for name, source in self.inputs.sources.items()
        ]
        print_json({"version": 1, "videos": videos, **more})


def find_inputs(paths: Sequence[Path | str], join: bool | None = None) -> Inputs:
    """What a command is to read.

    Args:
        paths: Files, folders and patterns, also addresses of remote ones.
        join: All as one video; by default only chapters of one recording; False for none.

    Raises:
        InputError: There is nothing to read.
    """
    from hiero.decoding.recordings import find_recordings, find_siblings, is_collection

    if not paths:
        raise InputError(
            "say which video: a file, a folder, a pattern such as 'videos/*.mp4', or an address (https://…, s3://…)"
        )
    sources = find_recordings(paths, join, resolve_clashes=True, log=log)
    is_single = len(sources) == 1 and (bool(join) or not any(map(is_collection, paths)))
    source = next(iter(sources.values()))
    first = source.path
    if len(paths) == 1 and is_single and join is None and not source.is_remote and (siblings := find_siblings(first)):
        names = ", ".join(path.name for path in siblings[:3])
        log(f"{first.name} is a part of a longer recording; to read it whole give the other files too: {names}")
    return Inputs(sources, is_single)


def read_all(
    inputs: Inputs, options: VideoOptions, engine: Engine, title: str, work: Callable[[str, Video], Result]
) -> Results[Result]:
    """Read videos one after the other; one that cannot be read does not stop the others, unless it
    is the only one.

    Args:
        inputs: Which.
        options: How they are read.
        engine: Reads them.
        title: Of the bar over all of them.
        work: Called with the name of each video and the video, while no bar is drawn.

    Returns:
        What `work` gave for each, and what is wrong with the others.

    Raises:
        InputError: A video that stands alone cannot be read.
        OSError: The disk is full.
    """
    from hiero.sources.addresses import failure_message
    from hiero.storage.files import is_disk_full

    results: Results[Result] = Results(inputs)
    options.check_single_transcript(len(inputs.sources))
    if inputs.is_single:
        ((name, source),) = inputs.sources.items()
        results.done[name] = work(name, options.read_video(source, engine))
        return results
    with collection_bars(title, len(inputs.sources)) as bars:
        for name, source in inputs.sources.items():
            try:
                results.done[name] = work(name, options.read_video(source, engine, bars))
            except Exception as error:  # whatever it is, the other videos go on
                if is_disk_full(error):
                    raise
                results.failed[name] = failure_message(source.name, error)
                log(f"failed: {results.failed[name]}")
    return results
