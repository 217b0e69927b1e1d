"""hiero watch: find the steps of a video while it is being recorded."""

from __future__ import annotations

import json
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from hiero.cli.console import echo, log, print_json, reading_bars
from hiero.cli.options import LevelOptions, OptionalOut, Repeated, VideoOptions
from hiero.cli.steps import parse_formats, print_steps, write_files
from hiero.errors import InputError
from hiero.storage.files import write_text
from hiero.types import Step, format_percent, format_time, printable

if TYPE_CHECKING:
    from hiero.engine.live import LiveReader, LiveResult, LiveUpdate

WRITE_EVERY_S = 5.0  # interval between two writes of steps.json
MAX_INTERRUPTED = 3  # number of interrupted recordings that are named

Source = Annotated[str, Parameter(allow_leading_hyphen=True)]  # "-" is standard input, not an option
JsonLines = Annotated[bool, Parameter(name="--json", negative="", help="Print a line of JSON for each event.")]


@Parameter(name="*")
@dataclass(frozen=True)
class RecordingOptions:
    """How a recording is followed, and which files are written.

    Parameters
    ----------
    out
        Output folder. steps.json is updated every few seconds; report.html, the exports and pictures
        are written at the end. Sources that cannot be read again also leave recording.features.
    export
        Also write this format at the end, as in `hiero steps`. Repeatable.
    step_s
        Typical length of a step during the recording, in seconds.
    window_s
        Length of the most recent part, whose steps may still change, in seconds.
    idle_s
        Seconds without new data after which the recording is finished. Defaults to 10 for a file and
        120 for a camera or address; a pipe has no limit.
    max_delay_s
        Maximum delay behind the recording, in seconds. A slow machine skips parts; those of a
        file are read at the end. Defaults to 10; a pipe has no limit.
    """

    out: OptionalOut = None
    export: Repeated = None
    step_s: float = 60.0
    window_s: float = 900.0
    idle_s: float | None = None
    max_delay_s: float | None = None


def watch(
    source: Source,
    /,
    *,
    levels: LevelOptions = LevelOptions(),
    recording: RecordingOptions = RecordingOptions(),
    json_: JsonLines = False,
    options: VideoOptions = VideoOptions(),
) -> None:
    """Find steps while a video is being recorded, from a camera, an address, a growing file or a pipe.

    Each step is printed when it is over. When the recording ends, or after Ctrl-C, the steps of the
    whole recording are computed as by `hiero steps`. After a crash, run the same command again for a
    file, or `hiero steps OUT/recording.features` for other sources.

    **Examples**

    * `hiero watch recording.ts -o kitchen/`
    * `hiero watch /dev/video0 -o kitchen/ --labels recipe.txt`
    * `hiero watch rtsp://camera.local/live -o hall/ --json`
    * `ffmpeg -i input.mp4 -c copy -f mpegts - | hiero watch -`

    Parameters
    ----------
    source
        File that is being written (.ts, .mkv, fragmented .mp4), `-` for standard input, camera
        (/dev/video0 or 0), or address (rtsp, rtmp, http, udp, rtp, srt or tcp).
    """
    from hiero.engine.live import LiveReader, LiveSettings, interrupted_recordings
    from hiero.sources.live_source import GrowingFile, open_live_source

    formats = parse_formats(recording.export, recording.out)
    if options.hz is not None:
        raise InputError("--hz is only for feature files, not for recordings")
    num_steps, vocabulary = levels.num_steps, levels.read_labels()
    live_source = open_live_source(source, recording.idle_s)
    display = _Display(live_source.name, json_)
    is_file = isinstance(live_source, GrowingFile)
    if not is_file and recording.out is None:
        for path in interrupted_recordings()[-MAX_INTERRUPTED:]:
            log(f"an interrupted recording can still be read: hiero steps {path} (or delete it)")
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
            _redirect_warnings(display.message, is_lossy=live_source.is_lossy),
            _stop_on_signals(reader, display.message),
        ):
            _follow(reader, display, recording.out)
            with reading_bars() as progress:
                result = reader.finish(progress)
    except KeyboardInterrupt:
        reader.close()
        if not is_file and reader.log.path.exists():
            log(f"the part read so far can still be used: hiero steps {reader.log.path}")
        raise
    _write_result(result, display, vocabulary, num_steps, recording.out, formats)


def _follow(reader: LiveReader, display: _Display, out: Path | None) -> None:
    """Show steps until the recording ends, and keep steps.json up to date."""
    written_s = 0.0
    with display:
        for update in filter(None, reader.updates()):  # None while nothing arrives
            display.update(update)
            if out is not None and time.monotonic() - written_s >= WRITE_EVERY_S:
                try:
                    document = reader.steps.hierarchy().to_dict()
                    write_text(out / "steps.json", json.dumps(document, indent=1) + "\n")
                except OSError as error:
                    display.message(f"{out / 'steps.json'}: {error.strerror or error}; trying again later")
                written_s = time.monotonic()


def _write_result(
    result: LiveResult,
    display: _Display,
    labels: list[str] | None,
    num_steps: list[int] | None,
    out: Path | None,
    formats: list[str],
) -> None:
    """Write and print the result, and how it differs from that of the complete recording."""
    # A path would turn rtsp:// into rtsp:/
    hierarchy = replace(result.video.steps(num_steps, labels=labels), video=display.name)
    for difference in result.differences or ("nothing was skipped: this is the result for the whole recording",):
        display.message(difference)
    if result.num_shown:
        confirmed = f"{result.num_confirmed} of the {result.num_shown} steps shown during the recording"
        display.message(f"{confirmed} are confirmed: a final step ends within 5 s of theirs")
    if out is not None:
        write_files(result.video, hierarchy, labels, out, formats, display.message)
    if display.as_json:
        print_json({"event": "end", "differences": list(result.differences), "hierarchy": hierarchy.to_dict()})
    else:
        print_steps(hierarchy)


class _Display:
    """Prints events: steps on standard output, messages on standard error, or all of them as JSON.

    As a context manager, it shows the current step in the last line of a terminal.
    """

    def __init__(self, name: str, as_json: bool) -> None:
        from rich.console import Console
        from rich.live import Live

        self.name, self.as_json = name, as_json
        self._has_header = not sys.stdout.isatty()  # files and pipes get no header
        # Everything printed meanwhile appears above the line, except what goes to a file or a pipe.
        self._line = Live(
            console=Console(stderr=True), auto_refresh=False, transient=True, redirect_stdout=sys.stdout.isatty()
        )

    def __enter__(self) -> None:
        if self._line.console.is_terminal and not self.as_json:
            self._line.start()
            self._show(f"{self.name}: waiting for its first seconds")

    def __exit__(self, *_: object) -> None:
        self._line.stop()

    def message(self, text: str) -> None:
        """Print a message."""
        if self.as_json:
            self._print({"event": "message", "text": text})
        else:
            log(f"hiero: {text}")

    def update(self, update: LiveUpdate) -> None:
        """Print the finished steps and show the current one."""
        if self.as_json:
            for step in update.closed:
                self._print({"event": "step", "step": step.to_dict()})
            times = {"end_s": round(update.end_s, 3), "delay_s": round(update.delay_s, 2)}
            self._print({"event": "update", **times, "open": [step.to_dict() for step in update.open_steps]})
            return
        if update.closed and not self._has_header:
            echo(f"{'from':>7}  {'to':>7}  {'thread':>6}  step")
            self._has_header = True
        for step in update.closed:
            echo(_format_step(step))
        current = update.open_steps[-1]
        name, since = current.shown_label or "a step", format_time(current.start_s)
        self._show(f"{format_time(update.end_s):>7}  {name} since {since}, {update.delay_s:.0f} s behind")

    def _show(self, line: str) -> None:
        from rich.text import Text

        self._line.update(Text(printable(line), no_wrap=True, overflow="ellipsis"), refresh=self._line.is_started)

    def _print(self, document: dict[str, Any]) -> None:
        print_json(document)
        sys.stdout.flush()


def _format_step(step: Step) -> str:
    sure = "" if step.probability is None else f"  {format_percent(step.probability)}"
    name = printable(step.shown_label or step.id.replace("step-", "Step "))
    return f"{format_time(step.start_s):>7}  {format_time(step.end_s):>7}  {step.thread + 1:>6}  {name}{sure}"


@contextmanager
def _redirect_warnings(say: Callable[[str], None], is_lossy: bool) -> Iterator[None]:
    """Show the warnings of all threads as messages, except for lost connections, which are reported elsewhere."""
    from hiero.decoding.decode import BrokenVideoWarning

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if not (is_lossy and issubclass(category, BrokenVideoWarning)):
            say(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


@contextmanager
def _stop_on_signals(reader: LiveReader, message: Callable[[str], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the recording; a second Ctrl-C ends the program."""

    def handle(number: int, _: FrameType | None) -> None:
        if reader.source.stop.is_set():
            raise KeyboardInterrupt
        reader.stop()
        message("the recording ends; computing its steps (press Ctrl-C again to quit at once)")

    earlier = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
