"""ELAN's .eaf: a level for each tier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hiero.formats.edits import MAX_STEPS
from hiero.formats.rows import HIERO_PROPERTY, MAX_NAMES, RowLevels, StepRow, one_line, parse_steps, restore_row
from hiero.formats.xml_reader import read_xml

SPEECH_TIER = "speech"  # of our ELAN files


@dataclass
class ElanTier:
    """A tier of an ELAN file."""

    name: str
    parent: str | None
    annotations: list[tuple[str, str, str, str]]


class ElanReader:
    """What an ELAN file says, read by `read_xml`."""

    def __init__(self, data: bytes) -> None:
        self.slots_ms: dict[str, int | None] = {}
        self.tiers: list[ElanTier] = []
        self.hiero = ""
        self._property = ""
        self._annotation: tuple[str, str, str] | None = None
        self._num_annotations = 0
        read_xml(data, self._start, self._end)
        if not self.tiers and not self.slots_ms:
            raise ValueError("not an ELAN file: it has no tiers")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "TIME_SLOT":
            value = attributes.get("TIME_VALUE")
            self.slots_ms[attributes["TIME_SLOT_ID"]] = None if value is None else int(value)
        elif name == "TIER":
            self.tiers.append(ElanTier(attributes["TIER_ID"], attributes.get("PARENT_REF"), []))
        elif name == "ALIGNABLE_ANNOTATION":
            self._num_annotations += 1
            if self._num_annotations > MAX_STEPS:
                raise ValueError(f"more than {MAX_STEPS} annotations")
            self._annotation = attributes["ANNOTATION_ID"], attributes["TIME_SLOT_REF1"], attributes["TIME_SLOT_REF2"]
        elif name == "PROPERTY":
            self._property = attributes.get("NAME", "")

    def _end(self, name: str, text: str) -> None:
        if name == "PROPERTY" and self._property == HIERO_PROPERTY:
            self.hiero = text
        elif name == "ANNOTATION_VALUE" and self._annotation is not None:
            self.tiers[-1].annotations.append((*self._annotation, text))
        elif name == "ALIGNABLE_ANNOTATION":
            self._annotation = None

    def times_ms(self, tier: ElanTier) -> dict[str, float]:
        """Times of the slots of a tier; those without one are spread evenly between their neighbours,
        as ELAN shows them.
        """
        order = list(dict.fromkeys(slot for _, start, end, _ in tier.annotations for slot in (start, end)))
        known = [(i, value) for i, slot in enumerate(order) if (value := self.slots_ms[slot]) is not None]
        times = {order[i]: float(value) for i, value in known}
        for (i, start_ms), (j, end_ms) in pairwise(known):
            times |= {order[k]: start_ms + (end_ms - start_ms) * (k - i) / (j - i) for k in range(i + 1, j)}
        if len(times) < len(order):
            raise ValueError(f"tier {tier.name}: it begins or ends with an annotation without a time")
        return times


def read_elan(data: bytes, tiers: Sequence[str] = ()) -> RowLevels:
    """Rows of an ELAN file, a level for each tier, and the length of the video where hiero wrote the file.

    Tiers that depend on others come after these; else longer annotations come before shorter ones.
    """
    document = ElanReader(data)
    by_name = {tier.name: tier for tier in document.tiers}
    if missing := [name for name in tiers if name not in by_name]:
        raise ValueError(f"has no tier {missing[0]}; there are {', '.join(list(by_name)[:MAX_NAMES])}")
    hiero = parse_steps(document.hiero)
    levels: list[tuple[tuple[int, float], list[StepRow]]] = []
    # Speech lies in a tier of its own in our files, and is no step.
    speech_tier = SPEECH_TIER if document.hiero else None
    for tier in [by_name[name] for name in tiers] or [tier for tier in document.tiers if tier.name != speech_tier]:
        times_ms = document.times_ms(tier)
        rows = []
        for id, start, end, text in tier.annotations:
            row = StepRow(times_ms[start] / 1000, times_ms[end] / 1000, one_line(text) or None)
            rows.append(restore_row(row, hiero.get(id)))
        if rows:
            depth = 0
            parent = tier.parent
            while parent in by_name and depth <= len(by_name):
                depth, parent = depth + 1, by_name[parent].parent
            levels.append(((depth, -sum(row.end_s - row.start_s for row in rows) / len(rows)), rows))
    if not tiers:
        levels.sort(key=lambda level: level[0])
    return [rows for _, rows in levels], hiero.get("duration_s")
