"""Learning from the corrections of a library: prototypes of all named steps that people saved, used at once."""

from __future__ import annotations

from typing import Any

from hiero.corpus.adaptation import learn_from_videos, named_steps
from hiero.engine import NO_TEXT
from hiero.errors import InputError
from hiero.serve.entries import Entry
from hiero.serve.library import Library
from hiero.types import Hierarchy, ProgressCallback, ProgressEvent

LEARNING = "learning"  # what the job is of, where others are of a video
MAX_CHANGES = 200  # steps that are listed of a video


class Learning:
    """What the corrected videos of a library teach its main model."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.result: dict[str, Any] | None = None

    def run(self, progress: ProgressCallback) -> None:
        """Learn from all saved steps with names, and name the steps of the other videos anew."""
        library = self.library
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
            raise InputError("nobody has named a step yet: open a video, choose a step, and rename it")
        prototypes = learn_from_videos(corrected)
        library.set_prototypes(prototypes)
        changes = []
        for i, (entry, before) in enumerate(others):
            progress(ProgressEvent("read", entry.name, float(len(entries) + i), 2.0 * len(entries)))
            changes.append(_changes(entry, before, library.steps(library.open_video(entry), None)))
        self.result = {
            "num_names": len(prototypes.labels),
            "num_steps": int(prototypes.num_steps.sum()),
            "num_videos": len(corrected),
            "num_named_anew": sum(change["num_steps"] for change in changes),
            "videos": [change for change in changes if change["num_steps"]],
        }


def _changes(entry: Entry, before: Hierarchy, after: Hierarchy) -> dict[str, Any]:
    """The steps of the finest level that have another name than before."""
    pairs = zip(before.levels[-1], after.levels[-1], strict=True)
    steps = [
        {"start_s": round(new.start_s, 3), "end_s": round(new.end_s, 3), "before": old.label, "after": new.label}
        for old, new in pairs
        if old.label != new.label
    ]
    return {"id": entry.id, "video": entry.name, "num_steps": len(steps), "steps": steps[:MAX_CHANGES]}
