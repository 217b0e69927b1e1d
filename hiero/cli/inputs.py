"""The videos a command is given: files, folders and patterns, with one result for each and a summary."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import hiero
from hiero.cli.console import CollectionBars, log, print_json, transient_bars
from hiero.errors import InputError
from hiero.storage.files import is_disk_full
from hiero.types import VERSION

if TYPE_CHECKING:
    from hiero.cli.options import VideoOptions
    from hiero.sources.source import VideoSource

Result = TypeVar("Result")


@dataclass(frozen=True)
class Inputs:
    """Videos by name. A single one is shown without its name."""

    sources: dict[str, VideoSource]
    is_single: bool

    @property
    def paths(self) -> list[Path]:
        """All files that will be read."""
        return [path for source in self.sources.values() for path in source.paths]

    def title_of(self, name: str) -> str | None:
        """The heading above the result of a video; None for a single video."""
        return None if self.is_single else name

    def folder_of(self, name: str, folder: Path) -> Path:
        """The output folder of a video; each of several videos gets a subfolder."""
        return folder if self.is_single else folder / name


@dataclass
class Results(Generic[Result]):
    """Results and error messages by the name of the video."""

    inputs: Inputs
    done: dict[str, Result] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def finish(self: Results[Any], as_json: bool = False) -> None:
        """Print JSON documents, summarise a run over several videos, and exit with code 1 if one failed."""
        if as_json:
            self.print_documents()
        if self.inputs.is_single:
            return
        log(f"{len(self.done)} of {len(self.done) + len(self.failed)} videos done, {len(self.failed)} failed")
        exit_if_failed(self.failed)

    def print_documents(self: Results[dict[str, Any]], **more: Any) -> None:
        """Print the JSON document of a single video, or one document with the list `videos`."""
        if self.inputs.is_single:
            print_json(next(iter(self.done.values())))
            return
        videos = [
            {"name": name, **self.done[name]}
            if name in self.done
            else {"name": name, "video": source.name, "error": self.failed[name]}
            for name, source in self.inputs.sources.items()
        ]
        print_json({"version": VERSION, "videos": videos, **more})


def exit_if_failed(failed: dict[str, str]) -> None:
    """Repeat the messages of videos that failed, and exit with code 1 if there are any."""
    for message in failed.values():
        log(f"failed: {message}")
    if failed:
        sys.exit(1)


def path_exists(argument: str) -> bool:
    """Whether an argument names an existing file. pathlib would raise an error for a text longer than a file name."""
    return os.path.exists(argument)  # noqa: PTH110


def find_inputs(paths: Sequence[Path | str], join: bool | None = None) -> Inputs:
    """The videos named by files, folders, patterns and addresses; `join` is the value of --join."""
    from hiero.decoding.recordings import find_recordings, find_siblings, is_collection

    if not paths:
        raise InputError("name a video: a file, a folder, a pattern such as 'videos/*.mp4', or an https:// address")
    sources = find_recordings(paths, join, resolve_clashes=True, log=log)
    is_single = len(sources) == 1 and (bool(join) or not any(map(is_collection, paths)))
    source = next(iter(sources.values()))
    first = source.path
    if len(paths) == 1 and is_single and join is None and not source.is_remote and (siblings := find_siblings(first)):
        names = ", ".join(path.name for path in siblings[:3])
        log(f"{first.name} is a part of a longer recording; to read all of it, also give the other files: {names}")
    return Inputs(sources, is_single)


def read_all(
    inputs: Inputs, options: VideoOptions, engine: hiero.Engine, title: str, work: Callable[[str, hiero.Video], Result]
) -> Results[Result]:
    """Read videos one after the other and call `work` with the name and the video.

    A video that cannot be read does not stop the others, unless it is the only one or the disk is full.
    """
    from hiero.sources.addresses import failure_message

    results: Results[Result] = Results(inputs)
    options.check_single_transcript(len(inputs.sources))
    if inputs.is_single:
        ((name, source),) = inputs.sources.items()
        results.done[name] = work(name, options.read_video(source, engine))
        return results
    with transient_bars() as bars:
        collection = CollectionBars(title, len(inputs.sources), bars)
        for name, source in inputs.sources.items():
            try:
                results.done[name] = work(name, options.read_video(source, engine, collection))
            except Exception as error:  # any error: the other videos are still read
                if is_disk_full(error):
                    raise
                results.failed[name] = failure_message(source.name, error)
                log(f"failed: {results.failed[name]}")
    return results
