"""Value types that all packages share: frozen dataclasses without tensors, which convert to and from JSON."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from hiero.errors import InputError
from hiero.formatting import clean_text, level_names, one_line

if TYPE_CHECKING:
    import pandas as pd

MAX_ID_LENGTH = 128  # characters of a step's id
MAX_THREAD = 10**6
MAX_LEVELS = 16
MAX_STEPS = 100_000  # in all levels
MAX_TIME_S = 1e8  # three years
BOUNDARY_TOLERANCE_S = 0.05  # between boundaries that should be equal
TIME_GRAIN_S = 1e-6  # rounding error of sums of lengths
MAX_OVERHANG_S = 0.6  # a step may begin this much before its file, because segments do not begin where files do
MAX_SLIVER_S = 0.2  # a shorter part of a step in another file than its own is not exported
EDGE_TOLERANCE_S = 0.5e-3 + TIME_GRAIN_S  # rounding error of times in milliseconds
MAX_EDGE_TOLERANCE = 0.1  # nodes, so that very short nodes stay distinct
GROUP_MARK = " … "  # between the names of the first and the last step in a larger one
CONFIDENT_PROBABILITY = 0.8  # probability of a name below which it is shown as a guess
MIN_LABEL_PROBABILITY = 0.5  # of a name, below which a step has none
MAX_EXACT = 2.0**53  # above, whole numbers are not exact
MAX_WORDS, NUM_SHOWN_WORDS = 3, 2  # that a step carries, and of which its title consists
VERSION = 2  # of the JSON documents; documents of version 1 are read too
Origin = Literal["model", "person", "imported"]
ORIGINS: tuple[Origin, ...] = get_args(Origin)
RestsOn = Literal["speech", "pictures", "both", "name"]
STEP_COLUMNS = ("level", "id", "start_s", "end_s", "thread", "label", "probability", "parent", "background", "origin")


@dataclass(frozen=True)
class Clock:
    """When each segment of a video happens: segment i covers `stride` frames at `fps`, starting at `start_s`.

    The time of a node is the middle of its segment, start_s + (i + ½)·stride/fps.

    Attributes:
        fps: Frames per second.
        stride: Frames from one segment to the next.
        start_s: When the first segment begins.

    Raises:
        InputError: fps or stride is not positive, or start_s negative.

    Examples:
        >>> clock = Clock(fps=30, stride=15)
        >>> clock.spacing_s, clock.time_s(2), clock.index(1.3)
        (0.5, 1.25, 2)
    """

    fps: float = 30.0
    stride: float = 16.0
    start_s: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("fps", self.fps), ("stride", self.stride)):
            if not 0 < value < MAX_EXACT:
                raise InputError(f"{name} must be a positive number below 2^53, got {str(value)[:40]}")
        if not 0 <= self.start_s < MAX_EXACT:
            raise InputError(f"start_s must be zero or more seconds, got {str(self.start_s)[:40]}")

    @property
    def spacing_s(self) -> float:
        """Seconds from one segment to the next."""
        return self.stride / self.fps

    def time_s(self, index: int) -> float:
        """The middle of a segment."""
        return self.start_s + (index + 0.5) * self.stride / self.fps

    def index(self, time_s: float) -> int:
        """The segment that contains a time; negative before the start."""
        try:
            index = math.floor((time_s - self.start_s) * self.fps / self.stride)  # rounding moves it by at most one
        except (OverflowError, ValueError):
            raise InputError(f"a time must be a number of seconds, got {time_s}") from None
        return index + (self.edge_s(index + 1) <= time_s) - (self.edge_s(index) > time_s)

    def edge_s(self, index: int) -> float:
        """The time at which a segment begins."""
        return self.start_s + index * self.stride / self.fps

    def span(self, start_s: float, end_s: float, num_nodes: int | None = None) -> tuple[int, int]:
        """Return the nodes [first, last) that a span of seconds touches, at least one.

        A time within a rounded millisecond of the edge between two nodes counts as that edge, because files
        keep times in milliseconds.

        Args:
            start_s: The start, rounded down to the beginning of a node.
            end_s: The end, rounded up to the end of a node.
            num_nodes: The number of nodes of the video; the result then lies within it.

        Examples:
            >>> Clock(fps=1, stride=1).span(3.6, 7.4)
            (3, 8)
            >>> Clock(fps=1, stride=1).span(3.6, 7.4, num_nodes=6)
            (3, 6)
        """
        tolerance_s = min(MAX_EDGE_TOLERANCE * self.spacing_s, EDGE_TOLERANCE_S)
        first, last = self.index(start_s + tolerance_s), self.index(end_s - tolerance_s) + 1
        if num_nodes is not None:
            first = min(max(first, 0), num_nodes - 1)
            last = min(last, num_nodes)
        return first, max(first + 1, last)


@dataclass(frozen=True)
class Window:
    """A run of segments [start, end) cut out of a video, with the clock of its nodes."""

    start: int
    end: int
    clock: Clock

    @property
    def num_nodes(self) -> int:
        return max(0, self.end - self.start)


@dataclass(frozen=True)
class Narration:
    """A text at a time of a video, in seconds."""

    video: str
    time_s: float
    text: str


@dataclass(frozen=True)
class Utterance:
    """Words spoken in a video from one time to another, in seconds."""

    start_s: float
    end_s: float
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", clean_text(self.text))

    def to_dict(self) -> dict[str, Any]:
        return {"start_s": round(self.start_s, 3), "end_s": round(self.end_s, 3), "text": self.text}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Utterance:
        """Read what `to_dict` wrote. Raises InputError if a field is missing or invalid."""
        with _reading("an utterance"):
            start_s, end_s = _parse_time(document["start_s"]), _parse_time(document["end_s"])
            if end_s < start_s:
                raise ValueError("end_s must not be less than start_s")
            return cls(start_s, end_s, _parse_text(document["text"]))


@dataclass(frozen=True)
class AnnotatedStep:
    """A ground-truth step: a text with a span of a video."""

    start_s: float
    end_s: float
    text: str


@dataclass(frozen=True)
class Word:
    """A short name that a step may have, such as "tap".

    Attributes:
        text: The name.
        probability: Probability that it describes the step.
    """

    text: str
    probability: float

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "probability": round(self.probability, 4)}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Word:
        """Read what `to_dict` wrote."""
        return cls(one_line(_parse_text(document["text"])), _parse_number(document["probability"], 0, 1))


@dataclass(frozen=True)
class Step:
    """A contiguous part of a video at one level of a hierarchy.

    Attributes:
        id: Unique in its hierarchy.
        start_s: When it begins.
        end_s: When it ends.
        thread: Steps of a level with the same thread resemble each other.
        parent: The step of the coarser level that contains this one.
        children: The steps of the finer level inside it.
        background: Whether nothing of interest happens.
        label: Its name, or None.
        probability: Probability that the label is right, or None if a person gave it.
        origin: Whether the model found and named the step, a person corrected it, or it was imported.
        words: Up to three short names that it may have, best first.
        namer: The vision-language model that gave the label, or None.

    Examples:
        >>> step = Step("step-1", 0.0, 4.5, thread=0, label="boil water", probability=0.5)
        >>> Step.from_dict(step.to_dict()) == step
        True
    """

    id: str
    start_s: float
    end_s: float
    thread: int
    parent: str | None = None
    children: tuple[str, ...] = ()
    background: bool = False
    label: str | None = None
    probability: float | None = None
    origin: Origin = "model"
    words: tuple[Word, ...] = ()
    namer: str | None = None

    def __post_init__(self) -> None:
        if self.label is not None:
            object.__setattr__(self, "label", clean_text(self.label) or None)

    @property
    def is_named_by_person(self) -> bool:
        """Whether a person gave or imported its name. A step that was only moved keeps the name of the model."""
        return self.label is not None and self.origin != "model" and self.probability is None

    def without_name(self) -> Step:
        """The step without its label and words."""
        return replace(self, label=None, probability=None, words=(), namer=None)

    @property
    def name_probability(self) -> float:
        """Probability of its name, or of its best word without one: 1 for a person's name, 0 for neither."""
        if self.label is not None:
            return 1.0 if self.probability is None else self.probability
        return self.words[0].probability if self.words else 0.0

    @property
    def short_name(self) -> str:
        """Its label or its best word on one line; empty without either."""
        return one_line(self.label or "") or (self.words[0].text if self.words else "")

    @property
    def shown_label(self) -> str | None:
        """Its name as people read it: with a question mark if it is a guess. Without a label, words are its guess."""
        name = self.label or ", ".join(word.text for word in self.words[:NUM_SHOWN_WORDS]) or None
        return f"{name}?" if name and self.name_probability < CONFIDENT_PROBABILITY else name

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON of `hiero steps`; times are rounded to milliseconds."""
        probability = None if self.probability is None else round(self.probability, 4)
        return {
            "id": self.id,
            "start_s": round(self.start_s, 3),
            "end_s": round(self.end_s, 3),
            "thread": self.thread,
            "label": self.label,
            "probability": probability,
            "parent": self.parent,
            "children": list(self.children),
            "background": self.background,
            "origin": self.origin,
            "words": [word.to_dict() for word in self.words],
            **({} if self.namer is None else {"namer": self.namer}),
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Step:
        """Read what `to_dict` wrote. Raises InputError if a field is missing or invalid."""
        with _reading("a step"):
            label, parent = document.get("label"), document.get("parent")
            probability = document.get("probability", document.get("score"))
            # Documents of version 1 have no origin; in them only corrected names lack a score.
            default = "person" if label is not None and probability is None else "model"
            origin = document.get("origin")
            return cls(
                _parse_id(document["id"]),
                _parse_time(document["start_s"]),
                _parse_time(document["end_s"]),
                _parse_thread(document.get("thread", 0)),
                None if parent is None else _parse_id(parent),
                tuple(map(_parse_id, document.get("children", ()))),
                _parse_flag(document.get("background", False)),
                None if label is None else _parse_text(label),
                None if probability is None else _parse_number(probability, 0, 1),
                _parse_origin(default if origin is None else origin),
                tuple(map(Word.from_dict, document.get("words", ())))[:MAX_WORDS],
                None if document.get("namer") is None else _parse_text(document["namer"]),
            )


@contextmanager
def _reading(kind: str) -> Iterator[None]:
    """Turn the errors of an invalid document into an InputError that says what was expected."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        cause = error.__cause__ or error  # of a part, such as a step of a hierarchy
        reason = "a field has the wrong type or value"
        if isinstance(cause, KeyError):
            reason = f"{cause.args[0]} is missing"
        elif isinstance(cause, ValueError):
            reason = str(cause)
        raise InputError(f"not {kind} ({reason})") from cause


def _parse_id(value: Any) -> str:
    """Ids become names of files and of elements in other formats, so only plain characters are allowed."""
    is_name = isinstance(value, str | int) and not isinstance(value, bool)
    if not is_name or not re.fullmatch(rf"[\w.+ -]{{1,{MAX_ID_LENGTH}}}", _parse_text(str(value))):
        allowed = f"1 to {MAX_ID_LENGTH} letters, digits, spaces or any of . + - _"
        raise ValueError(f"an id must consist of {allowed}, got {str(value)[:40]!r}")
    return str(value)


def _parse_number(value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    number = float(value)
    if not (math.isfinite(number) and least <= number <= most):
        raise ValueError(f"a number from {least:g} to {most:g} was expected, got {number}")
    return number


def _parse_time(value: Any) -> float:
    return _parse_number(value, 0, MAX_TIME_S)


def _parse_thread(value: Any) -> int:
    thread = int(value)
    if thread != float(value) or not 0 <= thread <= MAX_THREAD:
        raise ValueError(f"a thread must be a whole number from 0 to {MAX_THREAD}, got {value!r}")
    return thread


def _parse_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"true or false was expected, got {str(value)[:40]!r}")
    return value


def _parse_origin(value: Any) -> Origin:
    if value not in ORIGINS:
        raise ValueError(f"an origin must be one of {', '.join(ORIGINS)}, got {str(value)[:40]!r}")
    return ORIGINS[ORIGINS.index(value)]


def _parse_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text was expected, got {type(value).__name__}")
    return check_text(value)


def check_text(text: str) -> str:
    """Return the text. Raises InputError if it contains a lone surrogate, which cannot be written to a file."""
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON can contain one of a surrogate pair
        shown = text[:40].encode(errors="replace").decode()
        raise InputError(f"{shown}: not valid text; it contains an incomplete character") from None
    return text


@dataclass(frozen=True)
class VideoFile:
    """One of several files that are read as one video, on their common timeline.

    Attributes:
        path: The file.
        start_s: When it begins.
        duration_s: Its own length.

    Examples:
        >>> files = (VideoFile("GX010012.MP4", 0.0, 531.5), VideoFile("GX020012.MP4", 531.5, 200.0))
        >>> file, time_s = locate_time(files, 600.0)
        >>> file.path, time_s
        ('GX020012.MP4', 68.5)
    """

    path: str
    start_s: float
    duration_s: float

    @property
    def end_s(self) -> float:
        """When it ends on the common timeline."""
        return self.start_s + self.duration_s

    def to_dict(self) -> dict[str, Any]:
        return {"path": self.path, "start_s": round(self.start_s, 3), "duration_s": round(self.duration_s, 3)}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> VideoFile:
        """Read what `to_dict` wrote. Raises InputError if a field is missing or invalid."""
        with _reading("a file of a video"):
            return cls(str(document["path"]), _parse_time(document["start_s"]), _parse_time(document["duration_s"]))

    def clip(self, start_s: float, end_s: float, tolerance_s: float = 0.0) -> tuple[float, float] | None:
        """The part from `start_s` to `end_s` that lies in this file, in the file's own time; None if there is none.

        A start or end within `tolerance_s` of an end of the file is moved there.
        """
        edges = self.start_s, self.end_s
        start_s, end_s = (next((e for e in edges if abs(t - e) <= tolerance_s), t) for t in (start_s, end_s))
        if min(end_s, self.end_s) - max(start_s, self.start_s) <= TIME_GRAIN_S:
            return None
        return max(start_s - self.start_s, 0.0), min(end_s, self.end_s) - self.start_s


def locate_time(files: Sequence[VideoFile], time_s: float) -> tuple[VideoFile, float]:
    """The file that contains a time of the common timeline, and the time in that file."""
    after = [file for file in files if file.start_s <= time_s + TIME_GRAIN_S]
    file = after[-1] if after else files[0]
    return file, min(max(0.0, time_s - file.start_s), file.duration_s)


class Moment(Protocol):
    """A part of a video, such as a step or a match."""

    @property
    def start_s(self) -> float: ...

    @property
    def end_s(self) -> float: ...


def locate_moment(files: Sequence[VideoFile], moment: Moment) -> tuple[VideoFile, float]:
    """The file that a moment belongs to, and its start there. It may begin a little before the file does."""
    file, _ = locate_time(files, moment.start_s + min(MAX_OVERHANG_S, (moment.end_s - moment.start_s) / 2))
    return file, max(0.0, moment.start_s - file.start_s)


def split_by_file(files: Sequence[VideoFile], start_s: float, end_s: float) -> list[tuple[VideoFile, float, float]]:
    """The parts of a span in each file that it touches."""
    if len(files) == 1:
        return [(files[0], start_s, end_s)]
    for tolerance_s in (MAX_SLIVER_S, 0.0):
        parts = [(file, *part) for file in files if (part := file.clip(start_s, end_s, tolerance_s)) is not None]
        if parts:
            return parts
    file, time_s = locate_time(files, start_s)
    return [(file, time_s, time_s)]


def file_fields(files: Sequence[VideoFile], moment: Moment) -> dict[str, Any]:
    """The fields `file` and `file_start_s` of a JSON document for a moment; empty for a single file."""
    if len(files) < 2:
        return {}
    file, start_s = locate_moment(files, moment)
    return {"file": file.path, "file_start_s": round(start_s, 3)}


@dataclass(frozen=True)
class Hierarchy:
    """All levels of a video's steps, coarse to fine. Each level covers the video; a step lies inside its parent.

    Attributes:
        video: The file.
        model: Name of the model that found the steps.
        duration_s: Length of the video.
        levels: The steps of each level, in time order.
        files: The files in time order if several were read as one video, else empty.
        speech: The transcript in time order, if there is one.

    Examples:
        >>> step = Step("step-1", 0.0, 9.5, thread=0, label="boil water", origin="person")
        >>> hierarchy = Hierarchy("tea.mp4", "hiero-k400", 9.5, ((step,),))
        >>> Hierarchy.from_dict(hierarchy.to_dict()) == hierarchy
        True
        >>> [step.label for step in hierarchy]
        ['boil water']
    """

    video: str
    model: str
    duration_s: float
    levels: tuple[tuple[Step, ...], ...]
    files: tuple[VideoFile, ...] = ()
    speech: tuple[Utterance, ...] = ()

    def __iter__(self) -> Iterator[Step]:
        """All steps, level by level."""
        for level in self.levels:
            yield from level

    @property
    def start_s(self) -> float:
        """When the steps begin; above 0 for features that begin later than their video."""
        return next((step.start_s for step in self), 0.0)

    def to_dict(self) -> dict[str, Any]:
        """The document that `hiero steps --json` prints (schema: hiero/assets/schemas/steps.json).

        Raises:
            InputError: A step is too short to be read back.
        """
        if empty := next(filter(_is_empty, self), None):
            raise InputError(f"step {empty.id} is shorter than a millisecond, which files cannot hold; use fewer steps")
        levels = [
            {"level": i, "steps": [{**step.to_dict(), **file_fields(self.files, step)} for step in level]}
            for i, level in enumerate(self.levels)
        ]
        files = {"files": [file.to_dict() for file in self.files]} if self.files else {}
        speech = {"speech": [utterance.to_dict() for utterance in self.speech]} if self.speech else {}
        start = {"start_s": round(self.start_s, 3)} if self.start_s >= BOUNDARY_TOLERANCE_S else {}
        head = {"version": VERSION, "video": self.video, "model": self.model, "duration_s": round(self.duration_s, 3)}
        return {**head, **start, **files, "levels": levels, **speech}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Hierarchy:
        """Read what `to_dict` wrote. Parents and children are computed again from the times.

        Raises:
            InputError: A field is missing or invalid, two steps have the same id, a level does not
                cover the video, or a step lies outside its parent.
        """
        with _reading("a hierarchy of steps"):
            duration_s, start_s = _parse_time(document["duration_s"]), _parse_time(document.get("start_s", 0))
            levels = [[Step.from_dict(step) for step in level["steps"]] for level in document["levels"]]
            video = str(document.get("video", ""))  # file names need not be UTF-8
            model = check_text(str(document.get("model", "")))
            files = tuple(VideoFile.from_dict(file) for file in document.get("files", ()))
            speech = tuple(Utterance.from_dict(utterance) for utterance in document.get("speech", ()))
        _check_levels(levels, start_s, duration_s)
        linked = link_levels([[replace(step, parent=None, children=()) for step in level] for level in levels])
        return cls(video, model, duration_s, tuple(map(tuple, linked)), files, speech)

    @cached_property
    def titles(self) -> dict[str, str]:
        """The name of each step on one line, by its id, for other programs: its label, or its number in its level."""
        return {
            step.id: one_line(step.label or "") or f"{'Part' if step.children else 'Step'} {number}"
            for level in self.levels
            for number, step in enumerate(level, start=1)
        }

    @cached_property
    def shown_titles(self) -> dict[str, str]:
        """`titles` as people read them: guesses have a question mark.

        A step of others without a name has those of the first and the last of them ("tap … egg").
        """
        titles: dict[str, str] = {}
        inside: dict[str, list[Step]] = {}  # the finest named steps in each
        for level in reversed(self.levels):
            for step in level:
                named = [each for child in step.children for each in inside.get(child, ())]
                inside[step.id] = named or [step] * bool(step.short_name)
                name = one_line(step.shown_label or "")
                if not name and named:
                    ends = named[0], named[-1]
                    is_guess = min(each.name_probability for each in ends) < CONFIDENT_PROBABILITY
                    name = GROUP_MARK.join(dict.fromkeys(each.short_name for each in ends)) + "?" * is_guess
                titles[step.id] = name or self.titles[step.id]
        return titles

    @property
    def level_names(self) -> list[str]:
        """The names of the levels: coarse, medium and fine, or as many as there are."""
        return level_names(len(self.levels))

    @property
    def media(self) -> tuple[VideoFile, ...]:
        """The files that a player would open: `files`, or the video itself."""
        return self.files or (VideoFile(self.video, 0.0, self.duration_s),)

    def of_file(self, file: VideoFile) -> Hierarchy:
        """The steps of one of `files` in its own time; steps that continue in another file are cut."""
        parts = {s.id: part for s in self if (part := file.clip(s.start_s, s.end_s, MAX_SLIVER_S)) is not None}

        def cut(step: Step) -> Step:
            start_s, end_s = parts[step.id]
            children = tuple(child for child in step.children if child in parts)
            return replace(step, start_s=start_s, end_s=end_s, children=children)

        levels = tuple(tuple(cut(step) for step in level if step.id in parts) for level in self.levels)
        speech = tuple(
            Utterance(*part, utterance.text)
            for utterance in self.speech
            if (part := file.clip(utterance.start_s, utterance.end_s)) is not None
        )
        return Hierarchy(file.path, self.model, file.duration_s, levels, speech=speech)

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each step of all levels, with the columns of `columns`."""
        rows = [
            {name: value for name, value in {"level": i, **step.to_dict()}.items() if name in STEP_COLUMNS}
            for i, level in enumerate(self.levels)
            for step in level
        ]
        if self.speech:
            starts_s = [utterance.start_s for utterance in self.speech]
            for row in rows:
                inside = self.speech[bisect_left(starts_s, row["start_s"]) : bisect_left(starts_s, row["end_s"])]
                row["speech"] = " ".join(utterance.text for utterance in inside)
        return rows

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of `to_rows`; with a transcript also `speech`, the utterances that begin inside a step."""
        return (*STEP_COLUMNS, "speech") if self.speech else STEP_COLUMNS

    def to_dataframe(self) -> pd.DataFrame:
        """`to_rows` as a pandas table with the columns of `columns`.

        Raises:
            InputError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise InputError("data frames need pandas. Run: pip install pandas") from None
        return pd.DataFrame(self.to_rows(), columns=list(self.columns))


def _is_empty(step: Step) -> bool:
    """Whether a step has no length in milliseconds, as files keep times."""
    return round(step.end_s, 3) <= round(step.start_s, 3)


def _check_levels(levels: Sequence[Sequence[Step]], start_s: float, duration_s: float) -> None:
    """Check that each level covers the video, ids are unique, and steps lie inside their parents."""
    num_steps = sum(map(len, levels))
    if not levels or not all(levels) or len(levels) > MAX_LEVELS or num_steps > MAX_STEPS:
        limits = f"1 to {MAX_LEVELS} levels, each with steps, and at most {MAX_STEPS} steps"
        raise InputError(f"a hierarchy must have {limits}")
    if len({step.id for level in levels for step in level}) < num_steps:
        raise InputError("two steps have the same id")
    for number, level in enumerate(levels):
        time_s = start_s
        for step in level:
            if not abs(step.start_s - time_s) < BOUNDARY_TOLERANCE_S or _is_empty(step):
                raise InputError(
                    f"level {number}: step {step.id} must begin where the step before it ends, and not be empty"
                )
            time_s = step.end_s
        if abs(time_s - duration_s) > BOUNDARY_TOLERANCE_S:
            raise InputError(f"level {number} ends at {time_s:.1f} s, the video at {duration_s:.1f}")
    for coarse, fine in pairwise(levels):
        parents: dict[str | None, tuple[float, float]] = {step.id: (step.start_s, step.end_s) for step in coarse}
        for step in fine:
            start_s, end_s = parents.get(step.parent, (math.inf, -math.inf))
            if step.start_s < start_s - BOUNDARY_TOLERANCE_S or step.end_s > end_s + BOUNDARY_TOLERANCE_S:
                raise InputError(f"step {step.id} must lie inside its parent")


def link_levels(levels: Sequence[Sequence[Step]]) -> list[list[Step]]:
    """Set the parent and the children of each step."""
    out = [list(level) for level in levels]
    for coarse, fine in pairwise(out):
        starts_s = [step.start_s for step in coarse]
        children: list[list[str]] = [[] for _ in coarse]
        for i, step in enumerate(fine):
            parent = max(0, bisect_right(starts_s, (step.start_s + step.end_s) / 2) - 1)
            fine[i] = replace(step, parent=coarse[parent].id)
            children[parent].append(step.id)
        coarse[:] = [replace(step, children=(*step.children, *ids)) for step, ids in zip(coarse, children, strict=True)]
    return out


@dataclass(frozen=True)
class Match:
    """A span of a video that may show what a text says.

    Attributes:
        start_s: When it begins.
        end_s: When it ends.
        probability: Probability that the span shows what the text says.
        rests_on: The evidence: speech, pictures, both, or the name that a person gave. None if there
            are only pictures.
        quote: The words spoken in the span, if the match was found by speech.

    Examples:
        >>> Match(61.0, 75.5, 0.8, "speech", "Now I pour the water.").to_dict()["rests_on"]
        'speech'
    """

    start_s: float
    end_s: float
    probability: float
    rests_on: RestsOn | None = None
    quote: str | None = None

    def to_dict(self) -> dict[str, Any]:
        times = {"start_s": round(self.start_s, 3), "end_s": round(self.end_s, 3)}
        evidence = {} if self.rests_on is None else {"rests_on": self.rests_on, "quote": self.quote}
        return {**times, "probability": round(self.probability, 4), **evidence}


# Less probable answers are hidden: "probably not in this video". Chosen with benchmarks.calibration.
ANSWER_THRESHOLD = 0.1


@dataclass(frozen=True)
class Answer:
    """Where a query happens.

    Attributes:
        query: The text.
        probability: Probability that the best match is right.
        matches: Matches, best first.
    """

    query: str
    probability: float
    matches: tuple[Match, ...]

    @property
    def present(self) -> bool:
        """Whether the text is probably in the video."""
        return self.probability >= ANSWER_THRESHOLD

    @property
    def rests_on(self) -> RestsOn | None:
        """The evidence for the best match; None without a transcript."""
        return self.matches[0].rests_on if self.matches else None

    def to_dict(self) -> dict[str, Any]:
        head = {"query": self.query, "present": self.present, "probability": round(self.probability, 4)}
        evidence = {} if self.rests_on is None else {"rests_on": self.rests_on}
        return {**head, "matches": [match.to_dict() for match in self.matches], **evidence}


@dataclass(frozen=True)
class ProgressEvent:
    """The progress of long work, as progress callbacks receive it.

    Attributes:
        stage: `download` counts bytes, `read` counts seconds of a video, and `message` is a line to show.
        name: Name of the weights or the file.
        done: Bytes or seconds so far. An event with 0 begins the work.
        total: Bytes or seconds in total, or None if unknown.
        message: The line to show, for the stage `message`.

    Examples:
        >>> def show(event):
        ...     print(f"{event.name}: {event.done:.0f} of {event.total:.0f} s")
        >>> show(ProgressEvent("read", "tea.mp4", 30.0, 120.0))
        tea.mp4: 30 of 120 s
    """

    stage: Literal["download", "read", "message"]
    name: str = ""
    done: float = 0.0
    total: float | None = None
    message: str = ""


ProgressCallback = Callable[[ProgressEvent], None]


def no_progress(_: ProgressEvent) -> None:
    """A callback that shows nothing."""
