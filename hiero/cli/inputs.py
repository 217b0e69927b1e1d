"""The videos that a command reads: files, folders and patterns, with one result for each and a summary."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hiero
from hiero.cli.console import CollectionBars, log, print_json, transient_bars
from hiero.errors import InputError
from hiero.storage.files import is_disk_full
from hiero.types import VERSION

if TYPE_CHECKING:
    from hiero.cli.options import VideoOptions
    from hiero.media.source import VideoSource


@dataclass
class Run:
    """Videos that a command reads one after the other, and what became of each.

        run = find_inputs(paths, options, "steps")
        for name, source in run:
            with run.report_errors(name):
                video = run.read(source)
                run.done[name] = …
        run.finish()

    A single video is shown without its name, and its error ends the command.
    """

    sources: dict[str, VideoSource]
    is_single: bool
    options: VideoOptions
    title: str
    done: dict[str, dict[str, Any]] = field(default_factory=dict)  # JSON documents
    failed: dict[str, str] = field(default_factory=dict)  # messages
    _bars: CollectionBars | None = None

    def __iter__(self) -> Iterator[tuple[str, VideoSource]]:
        """The videos with their names, under a bar if there are several."""
        if self.is_single:
            yield from self.sources.items()
            return
        with transient_bars() as bars:
            self._bars = CollectionBars(self.title, len(self.sources), bars)
            yield from self.sources.items()

    @cached_property
    def engine(self) -> hiero.Engine:
        return self.options.load_engine()

    def read(self, source: VideoSource) -> hiero.Video:
        return self.options.read_video(source, self.engine, self._bars)

    @contextmanager
    def report_errors(self, name: str) -> Iterator[None]:
        """A video that cannot be read does not stop the others, unless it is the only one or the disk is full."""
        from hiero.media.addresses import failure_message

        try:
            yield
        except Exception as error:  # any error: the other videos are still read
            if self.is_single or is_disk_full(error):
                raise
            self.failed[name] = failure_message(self.sources[name].name, error)
            log(f"failed: {self.failed[name]}")

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

    def finish(self, as_json: bool = False) -> None:
        """Print JSON documents, summarise a run over several videos, and exit with code 1 if one failed."""
        if as_json and self.is_single:
            print_json(next(iter(self.done.values())))
        elif as_json:
            print_json({"version": VERSION, "videos": [self._describe(name) for name in self.sources]})
        if not self.is_single:
            log(f"{len(self.done)} of {len(self.sources)} videos done, {len(self.failed)} failed")
        exit_if_failed(self.failed)

    def failures(self) -> dict[str, list[dict[str, str]]]:
        """The videos that could not be read, for a document; empty if there are none."""
        failed = [{"video": self.sources[name].name, "error": error} for name, error in self.failed.items()]
        return {"failed": failed} if failed else {}

    def _describe(self, name: str) -> dict[str, Any]:
        """The document of a video, or why there is none."""
        if name in self.done:
            return {"name": name, **self.done[name]}
        return {"name": name, "video": self.sources[name].name, "error": self.failed[name]}


def exit_if_failed(failed: dict[str, str]) -> None:
    """Repeat the messages of videos that failed, and exit with code 1 if there are any."""
    for message in failed.values():
        log(f"failed: {message}")
    if failed:
        sys.exit(1)


def find_inputs(paths: Sequence[Path | str], options: VideoOptions, title: str, join: bool | None = None) -> Run:
    """A run over the videos named by files, folders, patterns and addresses; `join` is the value of --join."""
    from hiero.media.recordings import find_recordings, find_siblings, is_collection

    if not paths:
        raise InputError("name a video: a file, a folder, a pattern such as 'videos/*.mp4', or an https:// address")
    sources = find_recordings(paths, join, resolve_clashes=True, log=log)
    options.check_single_transcript(len(sources))
    is_single = len(sources) == 1 and (bool(join) or not any(map(is_collection, paths)))
    source = next(iter(sources.values()))
    first = source.path
    if len(paths) == 1 and is_single and join is None and not source.is_remote and (siblings := find_siblings(first)):
        names = ", ".join(path.name for path in siblings[:3])
        log(f"{first.name} is a part of a longer recording; to read all of it, also give the other files: {names}")
    return Run(sources, is_single, options, title)
