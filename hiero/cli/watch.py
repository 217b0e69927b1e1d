"""hiero watch: the steps of a video while it is being recorded."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from cyclopts import Parameter

from hiero.cli.console import log, print_json, reading_bars
from hiero.cli.options import (
    DEFAULTS,
    Json,
    OptionalOut,
    Repeated,
    StepCounts,
    VideoOptions,
    parse_step_counts,
    read_labels,
)
from hiero.errors import InputError

if TYPE_CHECKING:
    from hiero.engine.live import LiveReader, LiveResult, LiveUpdate
    from hiero.types import Step

WRITE_EVERY_S = 5.0  # how often steps.json is written
MAX_CUT_OFF = 3  # recordings that were killed, which are named


# A plain dash is standard input, not an option.
Source = Annotated[str, Parameter(allow_leading_hyphen=True)]


@Parameter(name="*")
@dataclass(frozen=True)
class RecordingOptions:
    """How a recording is followed, and what is written.

    Parameters
    ----------
    k
        Numbers of steps of each level of the result, separated by commas; by default three levels
        that follow from the length.
    labels
        A file with one label a line, instead of the bundled everyday phrases.
    out
        Folder for steps.json, which is written every few seconds, and report.html, the exports and
        pictures at the end. For what cannot be read again also recording.features, which steps, ask
        and label read like a video.
    export
        Also write a file for other tools at the end; as for `hiero steps`.
    step_s
        Usual length of a step while it runs.
    window_s
        How far back steps are found again while it runs; those before stay as they are.
    idle_s
        Without anything new for so long the recording is over: by default 10 s for a file (or when
        its writer closes it), 120 s for a camera or an address, which is connected again until
        then, and no limit for a pipe.
    max_delay_s
        Where the machine is slower than the recording, parts are skipped so that no more than this
        waits: by default 10 s, and no limit for a pipe, whose writer waits. The skipped parts of a
        file are read when it is finished.
    """

    k: StepCounts = None
    labels: Path | None = None
    out: OptionalOut = None
    export: Repeated = None
    step_s: float = 60.0
    window_s: float = 900.0
    idle_s: float | None = None
    max_delay_s: float | None = None


RECORDING_DEFAULTS = RecordingOptions()


def watch(
    source: Source,
    /,
    *,
    recording: RecordingOptions = RECORDING_DEFAULTS,
    json_: Json = False,
    options: VideoOptions = DEFAULTS,
) -> None:
    """Find steps while a video is being recorded: from a camera, an address, a file that grows, or a pipe.

    A step is printed when it is over; the one that goes on is shown below, a few seconds late.
    Ctrl-C, or the end of the recording, ends it: then the steps of all of it are found as `hiero
    steps` finds them. Memory does not grow with the hours. Features are on the disk: after a crash
    the same command goes on with a file, and `hiero steps OUT/recording.features` reads the rest.

    **Examples**

    `hiero watch recording.ts -o kitchen/`

    `hiero watch /dev/video0 -o kitchen/ --labels recipe.txt`

    `hiero watch rtsp://camera.local/live -o hall/ --json`

    `ffmpeg -i anything -c copy -f mpegts - | hiero watch -`

    Parameters
    ----------
    source
        A file that is being written (.ts, .mkv, fragmented .mp4); `-` for standard input; a camera
        (/dev/video0, or 0); or an address: rtsp://, rtmp://, http://, udp://, rtp://, srt://,
        tcp://. Passwords of an address are never shown.
    json_
        Print a line of JSON for each event: step, update, message; and end, with the document that
        `hiero steps --json` prints.
    """
    from hiero.cli.steps import parse_formats
    from hiero.engine.live import LiveReader, LiveSettings, cut_off_recordings
    from hiero.sources.live_source import GrowingFile, open_live_source

    formats = parse_formats(recording.export, recording.out)
    if options.hz is not None:
        raise InputError("a recording has its own clock; --hz is for feature files")
    num_steps, vocabulary = parse_step_counts(recording.k), read_labels(recording.labels)
    live_source = open_live_source(source, recording.idle_s)
    display = _Display(live_source.name, json_)
    if not isinstance(live_source, GrowingFile) and recording.out is None:
        for path in cut_off_recordings()[-MAX_CUT_OFF:]:
            log(f"a recording that was cut off can still be read: hiero steps {path} (or remove it)")
    engine = options.load_engine()
    with reading_bars() as progress:
        engine.fetch_text_encoder(progress)
        settings = LiveSettings(
            step_s=recording.step_s,
            window_s=recording.window_s,
            labels=vocabulary,
            max_delay_s=recording.max_delay_s,
            stream=options.stream,
            folder=recording.out,
            cache=options.cache,
        )
        reader = LiveReader(engine, live_source, settings, display.message, progress)
    try:
        with (
            _shown_warnings(display.message, is_lossy=live_source.is_lossy),
            _stopped_by_signals(reader, display.message),
        ):
            _follow(reader, display, recording.out)
            with reading_bars() as progress:
                result = reader.finish(progress)
    except KeyboardInterrupt:
        reader.close()
        if not isinstance(live_source, GrowingFile) and reader.log.path.exists():
            log(f"what was read can still be used: hiero steps {reader.log.path}")
        raise
    _write_result(result, display, vocabulary, num_steps, recording.out, formats)


def _follow(reader: LiveReader, display: _Display, out: Path | None) -> None:
    """Show steps until the recording ends, and keep steps.json up to date."""
    written_s = 0.0
    display.wait()
    for update in reader.updates():
        if update is None:
            display.tick()
            continue
        display.update(update)
        if out is not None and time.monotonic() - written_s >= WRITE_EVERY_S:
            try:
                _write_steps(out, reader.steps.hierarchy().to_dict())
            except OSError as error:
                display.message(f"{out / 'steps.json'}: {error.strerror or error}; tried again later")
            written_s = time.monotonic()
    display.end()


def _write_steps(folder: Path, document: dict[str, Any]) -> None:
    from hiero.storage.files import write_text

    write_text(folder / "steps.json", json.dumps(document, indent=1) + "\n")


def _write_result(
    result: LiveResult,
    display: _Display,
    labels: list[str] | None,
    num_steps: list[int] | None,
    out: Path | None,
    formats: list[str],
) -> None:
    """Write and print what came out in the end, and where it is not what the whole file would give."""
    from hiero.cli.steps import print_steps
    from hiero.report.page import write_results

    # Path would make rtsp:/ of rtsp://.
    hierarchy = replace(result.video.steps(num_steps, labels=labels), video=display.name)
    for difference in result.differences:
        display.message(difference)
    if not result.differences:
        display.message("all of it was read: the result is that of the whole recording")
    if result.num_shown:
        display.message(
            f"{result.num_confirmed} of the {result.num_shown} steps that were shown end within 5 s of one of the "
            "result"
        )
    if out is not None:
        write_results(result.video, hierarchy, labels, out, formats)
        display.message(
            f"{out}: {', '.join(sorted(path.name for path in out.iterdir() if not path.name.startswith('.')))}"
        )
    if display.as_json:
        print_json({"event": "end", "differences": list(result.differences), "hierarchy": hierarchy.to_dict()})
    else:
        print_steps(hierarchy)


class _Display:
    """Events as lines: steps on standard output, messages on standard error, or all as JSON; the open
    step on a line of its own.
    """

    def __init__(self, name: str, as_json: bool) -> None:
        self.name, self.as_json = name, as_json
        self._has_line = sys.stderr.isatty() and not as_json
        self._has_header = not sys.stdout.isatty()  # a file or a pipe has steps alone
        self._status = ""
        self._lock = threading.RLock()  # messages come from several threads, and must not tear the line

    def wait(self) -> None:
        """Show that nothing has come yet: the first steps take some seconds."""
        self._status = f"{_printable(self.name)}: waiting for its first seconds"
        self.tick()

    def end(self) -> None:
        """Take the line of the open step away for good."""
        with self._lock:
            self._status = ""
            self.clear()

    def message(self, text: str) -> None:
        """A line for the person at the terminal. Called from several threads."""
        with self._lock:
            self.clear()
            if self.as_json:
                self._print({"event": "message", "text": text})
            else:
                log(f"hiero: {text}")
            self.tick()

    def update(self, update: LiveUpdate) -> None:
        """Steps that were closed, and those that are open."""
        from hiero.types import format_time

        if self.as_json:
            for step in update.closed:
                self._print({"event": "step", "step": step.to_dict()})
            self._print(
                {
                    "event": "update",
                    "end_s": round(update.end_s, 3),
                    "delay_s": round(update.delay_s, 2),
                    "open": [step.to_dict() for step in update.open_steps],
                }
            )
            return
        current = update.open_steps[-1]
        with self._lock:
            if update.closed:
                self.clear()
                if not self._has_header:
                    print(f"{'from':>7}  {'to':>7}  {'thread':>6}  step")
                    self._has_header = True
                for step in update.closed:
                    print(_format_step(step), flush=True)
            self._status = (
                f"{format_time(update.end_s):>7}  {_printable(current.label or 'a step')} since "
                f"{format_time(current.start_s)}, {update.delay_s:.0f} s behind"
            )
            self.tick()

    def tick(self) -> None:
        """Draw the line of the open step, on a terminal."""
        from rich.cells import cell_len, chop_cells

        if not (self._has_line and self._status):
            return
        width = max(1, shutil.get_terminal_size().columns - 1)  # the last column would wrap
        with self._lock:
            # In cells: a Chinese character takes two, and a line that wraps cannot be taken away again.
            line = self._status if cell_len(self._status) <= width else chop_cells(self._status, width)[0]
            sys.stderr.write(f"\r\x1b[2K{line}")
            sys.stderr.flush()

    def clear(self) -> None:
        """Take the line of the open step away."""
        if self._has_line:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()

    def _print(self, document: dict[str, Any]) -> None:
        print_json(document)
        sys.stdout.flush()


def _format_step(step: Step) -> str:
    from hiero.types import format_time

    score = "" if step.score is None else f"  {step.score:.2f}"
    name = _printable(step.label or f"step {step.id}")
    return f"{format_time(step.start_s):>7}  {format_time(step.end_s):>7}  {step.thread:>6}  {name}{score}"


def _printable(text: str) -> str:
    """A label without what a terminal would take for a command."""
    return "".join(character if character.isprintable() else "?" for character in text)


@contextmanager
def _shown_warnings(say: Callable[[str], None], is_lossy: bool) -> Iterator[None]:
    """Warnings of all threads as messages. That a connection broke off is said elsewhere."""
    from hiero.decoding.decode import BrokenVideoWarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        del filename, lineno, file, line
        if not (is_lossy and issubclass(category, BrokenVideoWarning)):
            say(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


@contextmanager
def _stopped_by_signals(reader: LiveReader, message: Callable[[str], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the recording; a second Ctrl-C ends the program."""

    def handle(number: int, _: FrameType | None) -> None:
        if reader.source.stop.is_set():
            raise KeyboardInterrupt
        reader.stop()
        message("the recording ends; its steps are found now (again to leave at once)")

    earlier = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
