"""From rows to levels: each level covers the video, and steps lie inside those of the coarser level.

Annotations of other tools have gaps and no levels. A gap becomes an unnamed background step, and a
step inside another one goes to a finer level. Other overlaps are an error, or are cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, count

from hiero.formats.hiero_json import DURATION_TOLERANCE_S, MAX_LABEL_LENGTH
from hiero.formats.rows import NO_THREAD, describe_step, imported_step
from hiero.formatting import level_names
from hiero.types import BOUNDARY_TOLERANCE_S, MAX_LEVELS, MAX_STEPS, MAX_TIME_S, Step, check_text, link_levels


def nest_rows(levels: Sequence[Sequence[Step]], duration_s: float, *, cut_overlaps: bool = False) -> list[list[Step]]:
    """Levels of steps that cover a video. Gaps are filled, and steps inside others go to a finer level."""
    split: list[list[Step]] = []
    for level in levels:
        rows = sorted((_fit_row(row, duration_s) for row in level), key=lambda row: (row.start_s, -row.end_s))
        split += _split_by_nesting(rows, cut_overlaps)
        if len(split) > MAX_LEVELS:
            raise _too_many()
    covered: list[list[Step]] = [[imported_step(0.0, duration_s, background=True)]]
    for level in split:
        covered.append(_cover(covered[-1], level))
    if sum(map(len, covered[1:])) > MAX_STEPS:
        raise _too_many()
    return _to_steps(covered[1:])


def _too_many() -> ValueError:
    return ValueError(f"more than {MAX_LEVELS} levels or {MAX_STEPS} steps, including the gaps between them")


def _fit_row(row: Step, duration_s: float) -> Step:
    """Check a row and fit its end to the length of the video."""
    if not 0 <= row.start_s < row.end_s <= MAX_TIME_S:
        raise ValueError(f"{describe_step(row)} must begin at 0 or later and end after it begins")
    if row.end_s > duration_s + DURATION_TOLERANCE_S or row.start_s >= duration_s:
        reason = f"is after the end of the video ({duration_s:.1f} s); is this another video?"
        raise ValueError(f"{describe_step(row)} {reason}")
    label = None if row.label is None else check_text(row.label[:MAX_LABEL_LENGTH])
    is_end = abs(row.end_s - duration_s) < BOUNDARY_TOLERANCE_S
    return replace(row, end_s=duration_s if is_end else min(row.end_s, duration_s), label=label)


def _split_by_nesting(rows: Iterable[Step], cut_overlaps: bool) -> list[list[Step]]:
    """Split rows in time order into levels without overlaps. A row inside another is one level deeper."""
    levels: list[list[Step]] = []
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
                names = f"{describe_step(last)} and {describe_step(row)}"
                raise ValueError(f"{names} overlap; end one where the other begins, or cut them (--cut-overlaps)")
            level[-1] = replace(last, end_s=row.start_s)
            level.append(row)
            break
        else:
            if len(levels) == MAX_LEVELS:  # or it would take hours to sort out many
                raise _too_many()
            levels.append([row])
    return levels


def _cover(parents: Sequence[Step], rows: Sequence[Step]) -> list[Step]:
    """Rows with filled gaps inside each parent. A parent without rows is copied."""
    out: list[Step] = []
    start = 0
    for parent in parents:
        end = start
        while end < len(rows) and (rows[end].start_s + rows[end].end_s) / 2 < parent.end_s:
            end += 1
        inside, start = rows[start:end], end
        out += _fill_gaps(parent, inside) if inside else [replace(parent, id="")]
    return out


def _fill_gaps(parent: Step, rows: Sequence[Step]) -> list[Step]:
    """Rows that cover their parent, with background steps in the gaps."""
    out: list[Step] = []
    time_s = parent.start_s
    for row in rows:
        if row.start_s < parent.start_s - BOUNDARY_TOLERANCE_S or row.end_s > parent.end_s + BOUNDARY_TOLERANCE_S:
            names = f"{describe_step(row)} crosses the boundary of {describe_step(parent)}"
            raise ValueError(f"{names}, a step of a coarser level")
        if row.start_s > time_s + BOUNDARY_TOLERANCE_S:
            out.append(imported_step(time_s, row.start_s, background=True))
        elif row.start_s != time_s:
            row = replace(row, start_s=time_s)
        out.append(row)
        time_s = row.end_s
    if parent.end_s > time_s + BOUNDARY_TOLERANCE_S:
        out.append(imported_step(time_s, parent.end_s, background=True))
    elif parent.end_s != time_s:
        out[-1] = replace(out[-1], end_s=parent.end_s)
    return out


def _to_steps(levels: Sequence[Sequence[Step]]) -> list[list[Step]]:
    """Steps with their ids and threads, or new ones."""
    used = {row.id for level in levels for row in level}
    taken: set[str] = {""}
    out = []
    for level_name, level in zip(level_names(len(levels)), levels, strict=True):
        steps = []
        for i, (row, thread) in enumerate(zip(level, _threads(level), strict=True)):
            id = row.id
            if id in taken:
                new_id = f"{level_name}-{i + 1}"
                new_ids = chain([new_id], (f"{new_id}-{k}" for k in count(1)))
                id = next(id for id in new_ids if id not in used and id not in taken)
            taken.add(id)
            steps.append(replace(row, id=id, thread=thread))
        out.append(steps)
    return link_levels(out)


def _threads(level: Sequence[Step]) -> Iterator[int]:
    """The thread of each step: its own, or one for each label, one for the background, or a new one."""
    free_threads = count(1 + max(row.thread for row in level))
    threads = {row.label: row.thread for row in level if row.label is not None and row.thread != NO_THREAD}
    for i, row in enumerate(level):
        if row.thread != NO_THREAD:
            yield row.thread
            continue
        key = row.label if row.label is not None else ("\0background" if row.background else f"\0{i}")
        if key not in threads:
            threads[key] = next(free_threads)
        yield threads[key]
