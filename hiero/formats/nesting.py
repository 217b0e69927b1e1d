"""From rows to levels: each level covers the video, and steps lie inside those of the coarser level.

Annotations of other tools have gaps and no levels. A gap becomes an unnamed background step, and a
step inside another one goes to a finer level. Other overlaps are an error, or are cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, count

from hiero.formats.hiero_json import DURATION_TOLERANCE_S, MAX_LABEL_LENGTH
from hiero.formats.rows import StepRow
from hiero.types import (
    BOUNDARY_TOLERANCE_S,
    MAX_LEVELS,
    MAX_STEPS,
    MAX_TIME_S,
    Step,
    check_text,
    level_name,
    link_levels,
)


def nest_rows(
    levels: Sequence[Sequence[StepRow]], duration_s: float, *, cut_overlaps: bool = False
) -> list[list[Step]]:
    """Levels of steps that cover a video. Gaps are filled, and steps inside others go to a finer level."""
    split: list[list[StepRow]] = []
    for level in levels:
        rows = sorted((_fit_row(row, duration_s) for row in level), key=lambda row: (row.start_s, -row.end_s))
        split += _split_by_nesting(rows, cut_overlaps)
    covered: list[list[StepRow]] = [[StepRow(0.0, duration_s, background=True)]]
    for i, level in enumerate(split[: MAX_LEVELS + 1]):
        covered.append(_cover(covered[-1], level, copies=i > 0))
    if len(split) > MAX_LEVELS or sum(map(len, covered[1:])) > MAX_STEPS:
        raise ValueError(f"more than {MAX_LEVELS} levels or {MAX_STEPS} steps, including the gaps between them")
    return _to_steps(covered[1:])


def _fit_row(row: StepRow, duration_s: float) -> StepRow:
    """Check a row and fit its end to the length of the video."""
    if not 0 <= row.start_s < row.end_s <= MAX_TIME_S:
        raise ValueError(f"{row.name} must begin at 0 or later and end after it begins")
    if row.end_s > duration_s + DURATION_TOLERANCE_S or row.start_s >= duration_s:
        raise ValueError(f"{row.name} is after the end of the video ({duration_s:.1f} s); is this another video?")
    label = None if row.label is None else check_text(row.label[:MAX_LABEL_LENGTH])
    is_end = abs(row.end_s - duration_s) < BOUNDARY_TOLERANCE_S
    return replace(row, end_s=duration_s if is_end else min(row.end_s, duration_s), label=label)


def _split_by_nesting(rows: Iterable[StepRow], cut_overlaps: bool) -> list[list[StepRow]]:
    """Split rows in time order into levels without overlaps. A row inside another is one level deeper."""
    levels: list[list[StepRow]] = []
    for row in rows:
        for level in levels:
            last = level[-1]
            if row.start_s >= last.end_s - BOUNDARY_TOLERANCE_S:
                gap_s = abs(last.end_s - row.start_s)
                if 0 < gap_s < BOUNDARY_TOLERANCE_S and last.start_s < row.start_s:
                    level[-1] = replace(last, end_s=row.start_s)  # the gap is a rounding error
                level.append(row)
                break
            is_same = (row.start_s, row.end_s) == (last.start_s, last.end_s)
            if row.end_s <= last.end_s + BOUNDARY_TOLERANCE_S and not is_same:
                row = replace(row, end_s=min(row.end_s, last.end_s))
                continue
            if not cut_overlaps or row.start_s <= last.start_s:
                names = f"{last.name} and {row.name}"
                raise ValueError(f"{names} overlap; end one where the other begins, or cut them (--cut-overlaps)")
            level[-1] = replace(last, end_s=row.start_s)
            level.append(row)
            break
        else:
            levels.append([row])
    return levels


def _cover(parents: Sequence[StepRow], rows: Sequence[StepRow], copies: bool) -> list[StepRow]:
    """Rows with filled gaps inside each parent. A parent without rows is copied or becomes background."""
    out: list[StepRow] = []
    start = 0
    for parent in parents:
        end = start
        while end < len(rows) and (rows[end].start_s + rows[end].end_s) / 2 < parent.end_s:
            end += 1
        inside, start = rows[start:end], end
        if inside:
            out += _fill_gaps(parent, inside)
        else:
            out.append(replace(parent, id=None) if copies else StepRow(parent.start_s, parent.end_s, background=True))
    return out


def _fill_gaps(parent: StepRow, rows: Sequence[StepRow]) -> list[StepRow]:
    """Rows that cover their parent, with background steps in the gaps."""
    out: list[StepRow] = []
    time_s = parent.start_s
    for row in rows:
        if row.start_s < parent.start_s - BOUNDARY_TOLERANCE_S or row.end_s > parent.end_s + BOUNDARY_TOLERANCE_S:
            raise ValueError(f"{row.name} crosses the boundary of {parent.name}, a step of a coarser level")
        if row.start_s > time_s + BOUNDARY_TOLERANCE_S:
            out.append(StepRow(time_s, row.start_s, background=True))
        elif row.start_s != time_s:
            row = replace(row, start_s=time_s)
        out.append(row)
        time_s = row.end_s
    if parent.end_s > time_s + BOUNDARY_TOLERANCE_S:
        out.append(StepRow(time_s, parent.end_s, background=True))
    elif parent.end_s != time_s:
        out[-1] = replace(out[-1], end_s=parent.end_s)
    return out


def _to_steps(levels: Sequence[Sequence[StepRow]]) -> list[list[Step]]:
    """Steps with the ids and threads of the rows, or new ones."""
    used = {row.id for level in levels for row in level if row.id is not None}
    taken: set[str] = set()
    out = []
    for number, level in enumerate(levels):
        steps = []
        for i, (row, thread) in enumerate(zip(level, _threads(level), strict=True)):
            id = row.id
            if id is None or id in taken:
                new_id = f"{level_name(number, len(levels))}-{i + 1}"
                new_ids = chain([new_id], (f"{new_id}-{k}" for k in count(1)))
                id = next(id for id in new_ids if id not in used and id not in taken)
            taken.add(id)
            step = Step(id, row.start_s, row.end_s, thread, background=row.background, probability=row.probability)
            steps.append(replace(step, label=row.label or None))
        out.append(steps)
    return link_levels(out)


def _threads(level: Sequence[StepRow]) -> Iterator[int]:
    """The thread of each row: the given one, or one for each label, one for the background, or a new one."""
    free_threads = count(1 + max((row.thread for row in level if row.thread is not None), default=-1))
    threads = {row.label: row.thread for row in level if row.label is not None and row.thread is not None}
    for i, row in enumerate(level):
        if row.thread is not None:
            yield row.thread
            continue
        key = row.label if row.label is not None else ("\0background" if row.background else f"\0{i}")
        if key not in threads:
            threads[key] = next(free_threads)
        yield threads[key]
