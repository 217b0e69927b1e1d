"""From rows to levels: each level covers the video, and steps lie inside those of the coarser one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, count

from hiero.formats.edits import DURATION_TOLERANCE_S, MAX_LABEL_LENGTH, MAX_LEVELS, MAX_STEPS, TOLERANCE_S
from hiero.formats.rows import StepRow
from hiero.types import MAX_TIME_S, Step, link_levels


def nest_rows(
    levels: Sequence[Sequence[StepRow]], duration_s: float, *, cut_overlaps: bool = False
) -> list[list[Step]]:
    """Levels of steps that cover a video: gaps are filled, steps inside others go to a finer level."""
    split = [part for level in levels for part in _split_by_nesting(_fit_rows(level, duration_s), cut_overlaps)]
    if len(split) > MAX_LEVELS or sum(map(len, split)) > MAX_STEPS:
        raise ValueError(f"more than {MAX_LEVELS} levels or {MAX_STEPS} steps")
    covered: list[list[StepRow]] = [[StepRow(0.0, duration_s, background=True)]]
    for i, level in enumerate(split):
        covered.append(_cover(covered[-1], level, copies=i > 0))
    return _to_steps(covered[1:])


def _fit_rows(rows: Sequence[StepRow], duration_s: float) -> list[StepRow]:
    """Rows in time order, checked against the video's length; the end of the last may differ from it a little."""
    out = []
    for row in rows:
        if (
            not (math.isfinite(row.start_s) and math.isfinite(row.end_s))
            or not 0 <= row.start_s < row.end_s <= MAX_TIME_S
        ):
            raise ValueError(f"{row.name} must last, and begin at 0 or later")
        if row.end_s > duration_s + DURATION_TOLERANCE_S or row.start_s >= duration_s:
            raise ValueError(
                f"{row.name} is after the end of the video ({duration_s:.1f} s); is the file of another video?"
            )
        label = row.label if row.label is None else row.label[:MAX_LABEL_LENGTH]
        if label is not None:
            label.encode()  # half a character is a UnicodeEncodeError, which is a ValueError
        end_s = duration_s if abs(row.end_s - duration_s) < TOLERANCE_S else min(row.end_s, duration_s)
        out.append(replace(row, end_s=end_s, label=label))
    return sorted(out, key=lambda row: (row.start_s, -row.end_s))


def _split_by_nesting(rows: Sequence[StepRow], cut_overlaps: bool) -> list[list[StepRow]]:
    """Rows in time order as levels without overlaps: one that lies inside another is a level deeper."""
    levels: list[list[StepRow]] = []
    for row in rows:
        for level in levels:
            last = level[-1]
            if row.start_s >= last.end_s - TOLERANCE_S:
                if (
                    last.end_s != row.start_s
                    and abs(last.end_s - row.start_s) < TOLERANCE_S
                    and last.start_s < row.start_s
                ):
                    level[-1] = replace(last, end_s=row.start_s)  # the two were meant to touch
                level.append(row)
                break
            if row.end_s <= last.end_s + TOLERANCE_S and (row.start_s, row.end_s) != (last.start_s, last.end_s):
                row = replace(row, end_s=min(row.end_s, last.end_s))
                continue
            if not cut_overlaps or row.start_s <= last.start_s:
                raise ValueError(
                    f"{last.name} and {row.name} overlap; end one where the other begins, or cut them (--cut-overlaps)"
                )
            level[-1] = replace(last, end_s=row.start_s)
            level.append(row)
            break
        else:
            levels.append([row])
    return levels


def _cover(parents: Sequence[StepRow], rows: Sequence[StepRow], copies: bool) -> list[StepRow]:
    """Rows, and what fills the gaps between them inside each parent."""
    out: list[StepRow] = []
    rows, start = list(rows), 0
    for parent in parents:
        end = start
        while end < len(rows) and (rows[end].start_s + rows[end].end_s) / 2 < parent.end_s:
            end += 1
        inside, start = rows[start:end], end
        if not inside and copies:
            out.append(replace(parent, id=None))
            continue
        time_s = parent.start_s
        for row in inside:
            if row.start_s < parent.start_s - TOLERANCE_S or row.end_s > parent.end_s + TOLERANCE_S:
                raise ValueError(f"{row.name} crosses the boundary of {parent.name}, a step of a coarser level")
            if row.start_s > time_s + TOLERANCE_S:
                out.append(StepRow(time_s, row.start_s, background=True))
            elif row.start_s != time_s:
                row = replace(row, start_s=time_s)
            out.append(row)
            time_s = row.end_s
        if parent.end_s > time_s + TOLERANCE_S or not inside:
            out.append(StepRow(time_s, parent.end_s, background=True))
        elif parent.end_s != time_s:
            out[-1] = replace(out[-1], end_s=parent.end_s)
    return out


def _to_steps(levels: Sequence[Sequence[StepRow]]) -> list[list[Step]]:
    """Steps with ids and threads: those of the rows; new threads go by label, and each step without
    one has its own.
    """
    ids = [row.id for level in levels for row in level if row.id is not None]
    used = set(ids)
    taken: set[str] = set()
    out = []
    for number, level in enumerate(levels):
        free_thread = 1 + max((row.thread for row in level if row.thread is not None), default=-1)
        threads: dict[str, int] = {
            row.label: row.thread for row in level if row.label is not None and row.thread is not None
        }
        steps = []
        for i, row in enumerate(level):
            id = row.id
            if id is None or id in taken:
                candidates = chain([f"{number}.{i}"], (f"{number}.{i}-{k}" for k in count(1)))
                id = next(candidate for candidate in candidates if candidate not in used and candidate not in taken)
            taken.add(id)
            thread = row.thread
            if thread is None:
                key = row.label if row.label is not None else ("\0background" if row.background else f"\0{i}")
                if key not in threads:
                    threads[key], free_thread = free_thread, free_thread + 1
                thread = threads[key]
            steps.append(
                Step(
                    id,
                    row.start_s,
                    row.end_s,
                    thread,
                    background=row.background,
                    label=row.label or None,
                    score=row.score,
                )
            )
        out.append(steps)
    return link_levels(out)
