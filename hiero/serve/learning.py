"""Learning names of steps from the corrections of a library."""

from __future__ import annotations

from typing import Any

from hiero.corpus.adaptation import learn_from_videos, named_steps
from hiero.engine import NO_TEXT
from hiero.errors import InputError
from hiero.serve.entries import Entry
from hiero.serve.library import Library
from hiero.types import Hierarchy, ProgressCallback, ProgressEvent

LEARNING = "learning"  # stands for the video in the job that learns
MAX_CHANGES = 200  # listed steps per video


def learn_names(library: Library, progress: ProgressCallback) -> None:
    """Learn prototypes of all named steps that users saved, and name the steps of the other videos with them.

    `library.learned` is then a summary of what has changed.
    """
    if not library.main_engine.has_text:
        raise InputError(NO_TEXT)
    entries = [entry for entry in list(library.entries.values()) if library.is_read(entry)]
    corrected, others = [], []
    for i, entry in enumerate(entries):
        progress(ProgressEvent("read", entry.name, float(i), 2.0 * len(entries)))
        edits = library.edits.read(entry)
        steps = () if edits is None else named_steps(edits.hierarchy)
        if steps:
            corrected.append((library.open_video(entry), steps))
        elif edits is None:
            others.append((entry, library.steps(library.open_video(entry), None)))
    if not corrected:
        raise InputError("no step has been renamed yet: open a video, select a step and rename it")
    prototypes = learn_from_videos(corrected)
    library.set_prototypes(prototypes)
    changes = []
    for i, (entry, before) in enumerate(others):
        progress(ProgressEvent("read", entry.name, float(len(entries) + i), 2.0 * len(entries)))
        changes.append(_changes(entry, before, library.steps(library.open_video(entry), None)))
    library.learned = {
        "num_names": len(prototypes.labels),
        "num_steps": int(prototypes.num_steps.sum()),
        "num_videos": len(corrected),
        "num_named_anew": sum(change["num_steps"] for change in changes),
        "videos": [change for change in changes if change["num_steps"]],
    }


def _changes(entry: Entry, before: Hierarchy, after: Hierarchy) -> dict[str, Any]:
    """The steps of the finest level whose names have changed."""
    steps = [
        {"start_s": round(new.start_s, 3), "end_s": round(new.end_s, 3), "before": old.label, "after": new.label}
        for old, new in zip(before.levels[-1], after.levels[-1], strict=True)
        if old.label != new.label
    ]
    return {"id": entry.id, "video": entry.name, "num_steps": len(steps), "steps": steps[:MAX_CHANGES]}
