"""Commands for a video, or features of one: its steps, answers to questions, labels."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from hiero.cli.console import downloads, late_bars, say
from hiero.errors import InputError
from hiero.files import read_lines

if TYPE_CHECKING:
    from hiero.engine import Engine, Video
    from hiero.records import Answer, Hierarchy, Step


@Parameter(name="*")
@dataclass(frozen=True)
class Source:
    """Options that all commands for a video share.

    Parameters
    ----------
    model
        A shipped model by its name (hiero-k400, hiero-omnivore-b), a model folder, a hub id, or `raw` for features as they are.
    backbone
        For videos. default: what the model was made for; clip, egovlp, lavila-l: without a model, if `hiero weights get`
        brought them; auto: clip where it is here, else the default. See `hiero backbones`.
    hz
        For feature files: rows a second, where it is not the model's own clock.
    stream
        Which video stream of the file.
    device
        auto, cpu, cuda, mps …
    precision
        Of the backbones; auto measures what is faster here.
    batch_size
        Windows that go through the backbones together; by default 1 on a CPU, 16 on a GPU.
    threads
        CPU threads; fewer than there are cores when other work runs beside.
    cache
        Keep and use what was computed before, by the content of the file.
    """

    model: str = "hiero-k400"
    backbone: str = "auto"
    hz: float | None = None
    stream: int = 0
    device: str = "auto"
    precision: Literal["auto", "float32", "float16"] = "auto"
    batch_size: int | None = None
    threads: int | None = None
    cache: bool = True

    def engine(self) -> Engine:
        """The engine that these options name."""
        from hiero.engine import load

        if self.threads is not None:
            if self.threads < 1:
                raise InputError(f"--threads is at least 1, got {self.threads}")
            import torch

            torch.set_num_threads(self.threads)
        if self.hz is not None and not self.hz > 0:
            raise InputError(f"--hz must be positive, got {self.hz}")
        found = load(
            self.model,
            backbone=self.backbone,
            device=self.device,
            precision=self.precision,
            batch_size=self.batch_size,
        )
        if self.backbone == "auto" and found.folder is None and found.backbone.words:
            say(f"backbone: {', '.join(found.backbones)}, which is here; --backbone default for I3D and the shipped model")
        return found

    def read(self, path: Path, engine: Engine | None = None) -> Video:
        """Read with bars on standard error; a broken tail is said, and what could be read is used."""
        from hiero.records import Clock

        engine = engine or self.engine()
        with warnings.catch_warnings(record=True) as caught, _reading() as reading:
            warnings.simplefilter("always", UserWarning)
            clock = None if self.hz is None else Clock(self.hz, 1.0)
            video = engine.read(path, clock=clock, cache=self.cache, stream=self.stream, reading=reading)
            engine.fetch_words(reading.fetch)
        for warning in caught:
            say(f"hiero: {warning.message}")
        return video


UNLIKELY = 0.3  # said below this, a text was in the video in 16 % of the cases (docs/results.md)
DEFAULTS = Source()
Json = Annotated[bool, Parameter(name="--json", negative="")]


def steps(
    video: Path,
    /,
    *,
    k: Annotated[str | None, Parameter(alias="-k")] = None,
    method: Literal["pieces", "spectral"] = "pieces",
    labels: Path | None = None,
    out: Annotated[Path | None, Parameter(alias="-o")] = None,
    export: Annotated[list[str] | None, Parameter(negative="")] = None,
    json_: Json = False,
    source: Source = DEFAULTS,
) -> None:
    """Find the steps of a video: a hierarchy, coarse to fine, each step with a label and a score.

    **Examples**

    `hiero steps kitchen.mp4`

    `hiero steps kitchen.mp4 -k 4,8,16 -o kitchen/ --export vtt --export elan`

    `hiero steps kitchen.mp4 --labels recipe.txt --json > steps.json`

    Parameters
    ----------
    video
        A video file that FFmpeg reads, or a feature file (.pt, .npy, .npz, .safetensors).
    k
        Numbers of steps of each level, separated by commas; by default three levels that follow from the length.
    method
        pieces: contiguous steps; spectral: the paper's threads, which may come back.
    labels
        A file with one label a line, instead of the bundled everyday phrases.
    out
        Folder for steps.json, report.html, the exports and a small picture of each step.
    export
        Also write a file for other tools; may be repeated: vtt, srt, ffmetadata, youtube, otio, edl, elan, csv, parquet,
        activitynet, labelstudio, coco, or all.
    json_
        Print one JSON document instead of a table.
    """
    from hiero.report.exports import FORMATS

    wanted = _formats(export or [], list(FORMATS))
    if wanted and out is None:
        raise InputError("--export needs a folder to write to: -o OUT/")
    numbers = parse_numbers(k)
    words = read_labels(labels) if labels is not None else None
    read = source.read(video)
    found = read.steps(numbers, method=method, labels=words)
    if numbers and method == "pieces" and len(found.levels[-1]) < numbers[-1]:
        say(f"{len(found.levels[-1])} steps are the most that fit into this video; -k asked for {numbers[-1]}")
    if out is not None:
        _write_all(read, found, words, out, wanted)
    if json_:
        _print_json(found.to_dict())
    else:
        _show_steps(found)


def ask(
    video: Path,
    /,
    *queries: str,
    num: Annotated[int, Parameter(alias="-n")] = 5,
    in_order: bool = False,
    json_: Json = False,
    source: Source = DEFAULTS,
) -> None:
    """Find moments in words: for each query the best stretches of the video.

    A score is how likely the query is in the video at all, times how the stretch compares with the best one.

    **Examples**

    `hiero ask kitchen.mp4 "cut the onion" "wash the dishes"`

    `hiero ask kitchen.mp4 --in-order "crack the eggs" "whisk" "pour into the pan"`

    Parameters
    ----------
    video
        A video file, or a feature file.
    queries
        What to look for.
    num
        Matches for each query.
    in_order
        The queries are steps that follow each other: one stretch for each, in that order.
    json_
        Print one JSON document instead of a table.
    """
    if num < 1:
        raise InputError(f"-n is at least 1, got {num}")
    if not queries:
        raise InputError('say what to look for: hiero ask VIDEO "cut the onion"')
    found = source.read(video).ask(queries, num=num, in_order=in_order)
    if json_:
        _print_json({"version": 1, "video": str(video), "queries": [answer.to_dict() for answer in found]})
    else:
        _show_answers(found)


def label(
    video: Path,
    /,
    *,
    labels: Path,
    k: Annotated[str | None, Parameter(alias="-k")] = None,
    json_: Json = False,
    source: Source = DEFAULTS,
) -> None:
    """Name every part of a video from a taxonomy (step localization).

    **Example**: `hiero label kitchen.mp4 --labels taxonomy.txt`

    Parameters
    ----------
    video
        A video file, or a feature file.
    labels
        A file with one label a line.
    k
        Number of parts to begin with; neighbours with the same label are joined.
    json_
        Print one JSON document instead of a table.
    """
    words = read_labels(labels)
    found = source.read(video).label(words, numbers=parse_numbers(k))
    if json_:
        rows = [{name: step.to_dict()[name] for name in ("start_s", "end_s", "label", "score")} for step in found]
        _print_json({"version": 1, "video": str(video), "steps": rows})
    else:
        _show_labels(found)


def _write_all(video: Video, found: Hierarchy, labels: list[str] | None, out: Path, formats: list[str]) -> None:
    """steps.json, report.html, exports, and pictures of the steps in place of those of an earlier run."""
    from hiero.files import write_bytes, write_text
    from hiero.report.exports import write_export
    from hiero.report.page import write_report

    write_text(out / "steps.json", json.dumps(found.to_dict(), indent=1) + "\n")
    write_report(out / "report.html", video, found, labels)
    for name in formats:
        write_export(name, found, out)
    steps = [step for level in found.levels for step in level]
    for old in (out / "pictures").glob("*.jpg"):
        if old.stem not in {step.id for step in steps}:
            old.unlink()
    for step in steps:
        if (picture := video.extract.picture_at((step.start_s + step.end_s) / 2)) is not None:
            write_bytes(out / "pictures" / f"{step.id}.jpg", picture)
    say(f"{out}: {', '.join(sorted(path.name for path in out.iterdir() if not path.name.startswith('.')))}")


def read_labels(path: Path) -> list[str]:
    """Labels of a file, one a line; empty lines and repetitions are left out."""
    labels = read_lines(path)
    if not labels:
        raise InputError(f"{path}: holds no labels; write one a line")
    return labels


def parse_numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        numbers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise InputError(f"-k takes numbers separated by commas, such as 4,8,16; got {text!r}") from None
    if numbers[0] < 1:
        raise InputError(f"-k takes numbers from 1 on, got {numbers[0]}")
    return numbers


def _formats(asked: list[str], known: list[str]) -> list[str]:
    names = [name for part in asked for name in part.split(",")]
    from hiero.report.exports import NO_PARQUET

    parquet = find_spec("pyarrow") is not None
    if "all" in names:
        if not parquet:
            say("parquet is left out; it needs pyarrow: pip install 'hiero[export]'")
        return [name for name in known if name != "parquet" or parquet]
    if "parquet" in names and not parquet:
        raise InputError(NO_PARQUET)
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"--export knows {', '.join(known)} and all, not {', '.join(unknown)}")
    return list(dict.fromkeys(names))


def _print_json(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n")


def _show_steps(found: Hierarchy) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from hiero.records import clock_text

    fine = found.levels[-1]
    depth = {step.id: number for number, level in enumerate(found.levels) for step in level}
    by_id = {step.id: step for level in found.levels for step in level}
    table = Table(box=None, pad_edge=False)
    for column, justify in (("from", "right"), ("to", "right"), ("thread", "right"), ("step", "left"), ("score", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]

    def add(step: Step) -> None:
        level = depth[step.id]
        name = "  " * level + (step.label or f"step {step.id}")
        score = "" if step.score is None else f"{step.score:.2f}"
        style = "bold" if level == 0 and len(found.levels) > 1 else None
        table.add_row(clock_text(step.start_s), clock_text(step.end_s), str(step.thread), Text(name), score, style=style)
        for child in step.children:
            add(by_id[child])

    for step in found.levels[0]:
        add(step)
    numbers = ", ".join(str(len(level)) for level in found.levels)
    console = Console(highlight=False, markup=False)
    console.print(
        f"{Path(found.video).name}: {clock_text(found.duration_s)}, {numbers} steps, {max(s.thread for s in fine) + 1} threads"
    )
    console.print(table)


def _show_answers(found: list[Answer]) -> None:
    from rich.console import Console
    from rich.table import Table

    from hiero.records import clock_text

    console = Console(highlight=False)
    for answer in found:
        note = "" if answer.present >= UNLIKELY else "   probably not in this video"
        console.print(f"{answer.query}{note}", style="bold", markup=False)
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
        for match in answer.matches:
            table.add_row("", f"{clock_text(match.start_s):>7}", f"{clock_text(match.end_s):>7}", f"{match.score:.2f}")
        console.print(table)


def _show_labels(found: list[Step]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from hiero.records import clock_text

    table = Table(box=None, pad_edge=False)
    for column, justify in (("from", "right"), ("to", "right"), ("label", "left"), ("score", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for step in found:
        table.add_row(clock_text(step.start_s), clock_text(step.end_s), Text(step.label or ""), f"{step.score or 0:.2f}")
    Console(highlight=False).print(table)


@contextmanager
def _reading() -> Iterator[Any]:
    """A bar for the video, with its time and how much faster than real time it goes; bars for weights that are fetched first."""
    import time

    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    from hiero.engine import Reading
    from hiero.records import clock_text

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[now]}"), TimeRemainingColumn())
    with downloads() as fetch, late_bars(*columns) as bars:
        state: dict[str, Any] = {}

        def begin(name: str, duration_s: float | None) -> None:
            bars.start()
            state.update(task=bars.add_task(name, total=duration_s, now=""), duration=duration_s)

        def advance(done_s: float) -> None:
            state.setdefault("first", (done_s, time.monotonic()))
            spent = time.monotonic() - state["first"][1]
            speed = f" {(done_s - state['first'][0]) / spent:.1f}x" if spent > 1 else ""
            whole = f" of {clock_text(state['duration'])}" if state["duration"] else ""
            bars.update(state["task"], completed=done_s, now=f"{clock_text(done_s)}{whole}{speed}")

        yield Reading(begin=begin, advance=advance, fetch=fetch, say=say)
