"""ELAN's .eaf files: a tier for each level, and one for speech."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count, pairwise
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from hiero.formats.registry import Exporter, ImportSettings, StepReader
from hiero.formats.rows import (
    HIERO_PROPERTY,
    MAX_NAMES,
    RowLevels,
    StepRow,
    index_steps,
    mean_length,
    one_line,
    parse_object,
    read_xml,
    restore_row,
    title,
    to_ms,
)
from hiero.types import MAX_STEPS, Hierarchy, Utterance

SPEECH_TIER = "speech"  # in files of hiero
ANNOTATION_KEYS = ("ANNOTATION_ID", "TIME_SLOT_REF1", "TIME_SLOT_REF2")
LINGUISTIC_TYPES = (
    '  <LINGUISTIC_TYPE GRAPHIC_REFERENCES="false" LINGUISTIC_TYPE_ID="steps" TIME_ALIGNABLE="true"/>',
    '  <LINGUISTIC_TYPE CONSTRAINTS="Included_In" GRAPHIC_REFERENCES="false" LINGUISTIC_TYPE_ID="inside" '
    'TIME_ALIGNABLE="true"/>',
    "  <CONSTRAINT DESCRIPTION=\"Time alignable annotations within the parent annotation's time interval, "
    'gaps are allowed" STEREOTYPE="Included_In"/>',
)


@dataclass
class Tier:
    """A tier of an ELAN file. Each annotation has an id, two time slots and a text."""

    name: str
    parent: str | None
    annotations: list[tuple[str, str, str, str]]


class ElanDocument:
    """The content of an ELAN file."""

    def __init__(self, data: bytes) -> None:
        root = read_xml(data)
        values = {slot.attrib["TIME_SLOT_ID"]: slot.get("TIME_VALUE") for slot in root.iter("TIME_SLOT")}
        self.slots_ms = {id: None if value is None else int(value) for id, value in values.items()}
        self.tiers: dict[str, Tier] = {}
        for tier in root.iter("TIER"):
            annotations = [
                (*(annotation.attrib[key] for key in ANNOTATION_KEYS), annotation.findtext("ANNOTATION_VALUE") or "")
                for annotation in tier.iter("ALIGNABLE_ANNOTATION")
                if annotation.find("ANNOTATION_VALUE") is not None
            ]
            name = tier.attrib["TIER_ID"]
            self.tiers[name] = Tier(name, tier.get("PARENT_REF"), annotations)
        if not self.tiers and not self.slots_ms:
            raise ValueError("not an ELAN file: it has no tiers")
        if sum(len(tier.annotations) for tier in self.tiers.values()) > MAX_STEPS:
            raise ValueError(f"more than {MAX_STEPS} annotations")
        properties = {element.get("NAME"): element.text or "" for element in root.iter("PROPERTY")}
        self.hiero = properties.get(HIERO_PROPERTY, "")

    def times_ms(self, tier: Tier) -> dict[str, float]:
        """Times of the slots of a tier. Missing ones are spread evenly between their neighbours, as in ELAN."""
        order = list(dict.fromkeys(slot for _, start, end, _ in tier.annotations for slot in (start, end)))
        known = [(i, value) for i, slot in enumerate(order) if (value := self.slots_ms[slot]) is not None]
        times = {order[i]: float(value) for i, value in known}
        for (i, start_ms), (j, end_ms) in pairwise(known):
            times |= {order[k]: start_ms + (end_ms - start_ms) * (k - i) / (j - i) for k in range(i + 1, j)}
        if len(times) < len(order):
            raise ValueError(f"tier {tier.name}: its first or last annotation has no time")
        return times

    def depth(self, tier: Tier) -> int:
        """Number of tiers that a tier depends on."""
        depth = 0
        while tier.parent in self.tiers and depth <= len(self.tiers):
            tier = self.tiers[tier.parent]
            depth += 1
        return depth


def read_elan(data: bytes, settings: ImportSettings) -> RowLevels:
    """Rows of an ELAN file, a level for each tier.

    A tier comes after the tiers that it depends on, and otherwise after tiers with longer annotations.
    """
    document = ElanDocument(data)
    if missing := [name for name in settings.tiers if name not in document.tiers]:
        raise ValueError(f"has no tier {missing[0]}; its tiers are {', '.join(list(document.tiers)[:MAX_NAMES])}")
    steps, duration_s = index_steps(parse_object(document.hiero))
    # Files of hiero have a tier for speech, which has no steps.
    names = [name for name in document.tiers if not (document.hiero and name == SPEECH_TIER)]
    levels: list[tuple[tuple[int, float], list[StepRow]]] = []
    for name in settings.tiers or names:
        tier = document.tiers[name]
        times_ms = document.times_ms(tier)
        rows = []
        for id, start, end, text in tier.annotations:
            row = StepRow(times_ms[start] / 1000, times_ms[end] / 1000, one_line(text) or None)
            rows.append(restore_row(row, steps.get(id)))
        if rows:
            levels.append(((document.depth(tier), -mean_length(rows)), rows))
    if not settings.tiers:
        levels.sort(key=lambda level: level[0])
    return [rows for _, rows in levels], duration_s


def to_elan(hierarchy: Hierarchy) -> str:
    """An ELAN file. The annotations of a tier lie inside those of the coarser tier."""
    tiers = _tiers(hierarchy)
    times_ms = sorted({to_ms(time_s) for _, rows in tiers for *span_s, _ in rows for time_s in span_s})
    slot_ids = {time_ms: f"ts{i}" for i, time_ms in enumerate(times_ms, start=1)}
    file_name = one_line(Path(hierarchy.video).name)
    mime_type = mimetypes.guess_type(hierarchy.video)[0] or "video/mp4"
    date = datetime.now(UTC).isoformat(timespec="seconds")
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<ANNOTATION_DOCUMENT AUTHOR="" DATE="{date}" FORMAT="3.0" VERSION="3.0" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        'xsi:noNamespaceSchemaLocation="http://www.mpi.nl/tools/elan/EAFv3.0.xsd">',
        '  <HEADER MEDIA_FILE="" TIME_UNITS="milliseconds">',
        f"    <MEDIA_DESCRIPTOR MEDIA_URL={quoteattr(file_name)} MIME_TYPE={quoteattr(mime_type)} "
        f"RELATIVE_MEDIA_URL={quoteattr('./' + file_name)}/>",
        f'    <PROPERTY NAME="{HIERO_PROPERTY}">{escape(_hiero_property(hierarchy))}</PROPERTY>',
        "  </HEADER>",
        "  <TIME_ORDER>",
        *(f'    <TIME_SLOT TIME_SLOT_ID="{slot_ids[time_ms]}" TIME_VALUE="{time_ms}"/>' for time_ms in times_ms),
        "  </TIME_ORDER>",
    ]
    numbers = count(1)
    for attributes, rows in tiers:
        lines.append(f"  <TIER {attributes}>")
        for start_s, end_s, text in rows:
            lines += [
                "    <ANNOTATION>",
                f'      <ALIGNABLE_ANNOTATION ANNOTATION_ID="a{next(numbers)}" '
                f'TIME_SLOT_REF1="{slot_ids[to_ms(start_s)]}" TIME_SLOT_REF2="{slot_ids[to_ms(end_s)]}">',
                f"        <ANNOTATION_VALUE>{escape(text)}</ANNOTATION_VALUE>",
                "      </ALIGNABLE_ANNOTATION>",
                "    </ANNOTATION>",
            ]
        lines.append("  </TIER>")
    return "\n".join([*lines, *LINGUISTIC_TYPES, "</ANNOTATION_DOCUMENT>"]) + "\n"


def _tiers(hierarchy: Hierarchy) -> list[tuple[str, list[tuple[float, float, str]]]]:
    """The XML attributes of each tier, and the start, end and text of its annotations."""
    tiers = []
    for i, level in enumerate(hierarchy.levels):
        kind, parent = ("inside", f' PARENT_REF="level {i - 1}"') if i else ("steps", "")
        rows = [(step.start_s, step.end_s, title(step)) for step in level]
        tiers.append((f'LINGUISTIC_TYPE_REF="{kind}" TIER_ID="level {i}"{parent}', rows))
    if speech := _separate(hierarchy.speech):
        tiers.append((f'LINGUISTIC_TYPE_REF="steps" TIER_ID="{SPEECH_TIER}"', speech))
    return tiers


def _separate(speech: Sequence[Utterance]) -> list[tuple[float, float, str]]:
    """Utterances without overlaps, which a tier cannot have, each at least a millisecond long."""
    out: list[tuple[float, float, str]] = []
    for utterance in speech:
        start_s = max(utterance.start_s, out[-1][1] if out else 0.0)
        if to_ms(utterance.end_s) > to_ms(start_s):
            out.append((start_s, utterance.end_s, one_line(utterance.text)))
    return out


def _hiero_property(hierarchy: Hierarchy) -> str:
    """JSON with what ELAN cannot express: each step by the id of its annotation."""
    steps = {f"a{number}": step.to_dict() for number, step in enumerate(hierarchy, start=1)}
    return json.dumps({"duration_s": round(hierarchy.duration_s, 3), "steps": steps})


ELAN = Exporter("steps.eaf", to_elan, reader=StepReader((".eaf",), read_elan, has_tiers=True))
