"""The labels of Goal-Step: those of the annotations that are scored, and of other files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hiero.evaluation.annotations import AnnotatedVideo
from hiero.evaluation.goalstep import read_steps, taxonomy_of
from hiero.storage.files import read_lines


def read_taxonomy(annotated: Sequence[AnnotatedVideo], files: Sequence[Path] = ()) -> list[str]:
    """All labels, sorted."""
    labels = set(taxonomy_of(annotated))
    for file in files:
        labels |= set(taxonomy_of(read_steps(file)) if file.suffix == ".json" else read_lines(file))
    return sorted(labels)
