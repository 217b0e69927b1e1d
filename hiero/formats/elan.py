"""ELAN's .eaf files: a tier for each level, and one for speech."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import count, pairwise
from pathlib import Path
from string import Template
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

from hiero.formats import rows
from hiero.formats.registry import Exporter, ImportSettings, StepReader
from hiero.formats.rows import HIERO_PROPERTY, RowLevels
from hiero.storage.files import ASSETS
from hiero.types import MAX_LEVELS, Hierarchy, Step, Utterance, one_line

SPEECH_TIER = "speech"  # in files of hiero


def read_elan(data: bytes, settings: ImportSettings) -> RowLevels:
    """Rows of an ELAN file, a level for each tier.

    A tier comes after the tiers that it depends on, and otherwise after tiers with longer annotations.
    """
    root = rows.read_xml(data)
    values = {slot.attrib["TIME_SLOT_ID"]: slot.get("TIME_VALUE") for slot in root.iter("TIME_SLOT")}
    slots_ms = {id: None if value is None else int(value) for id, value in values.items()}
    tiers = {tier.attrib["TIER_ID"]: tier for tier in root.findall("TIER")}
    if not tiers and not slots_ms:
        raise ValueError("not an ELAN file: it has no tiers")
    if missing := [name for name in settings.tiers if name not in tiers]:
        raise ValueError(f"has no tier {missing[0]}; its tiers are {', '.join(list(tiers)[: rows.MAX_NAMES])}")
    # Annotations that refer to others have no times of their own.
    annotations = {name: tier.findall("ANNOTATION/ALIGNABLE_ANNOTATION") for name, tier in tiers.items()}
    hiero = root.findtext(f".//PROPERTY[@NAME='{HIERO_PROPERTY}']")
    steps, duration_s = rows.index_steps(rows.parse_object(hiero))
    levels: list[tuple[tuple[int, float], list[Step]]] = []
    # Files of hiero have a tier for speech, which has no steps.
    names = [name for name in tiers if annotations[name] and not (hiero and name == SPEECH_TIER)]
    if len(settings.tiers or names) > MAX_LEVELS:
        raise ValueError(f"more than {MAX_LEVELS} tiers with annotations; choose some with --tier")
    for name in settings.tiers or names:
        level = []
        spans_ms = _spans_ms(name, annotations[name], slots_ms)
        for item, (start_ms, end_ms) in zip(annotations[name], spans_ms, strict=True):
            text, original = item.findtext("ANNOTATION_VALUE"), steps.get(item.attrib["ANNOTATION_ID"])
            level.append(rows.imported_step(start_ms / 1000, end_ms / 1000, text, original))
        if level:
            levels.append(((_depth(name, tiers), -rows.mean_length(level)), level))
    if not settings.tiers:
        levels.sort(key=lambda entry: entry[0])
    return [level for _, level in levels], duration_s


def _spans_ms(
    tier: str, annotations: Sequence[Element], slots_ms: Mapping[str, int | None]
) -> list[tuple[float, float]]:
    """Start and end of each annotation. Missing times are spread evenly between their neighbours, as in ELAN."""
    spans = [(item.attrib["TIME_SLOT_REF1"], item.attrib["TIME_SLOT_REF2"]) for item in annotations]
    order = list(dict.fromkeys(slot for span in spans for slot in span))
    known = [(i, value) for i, slot in enumerate(order) if (value := slots_ms[slot]) is not None]
    times = {order[i]: float(value) for i, value in known}
    for (i, start_ms), (j, end_ms) in pairwise(known):
        times |= {order[k]: start_ms + (end_ms - start_ms) * (k - i) / (j - i) for k in range(i + 1, j)}
    if len(times) < len(order):
        raise ValueError(f"tier {tier}: its first or last annotation has no time")
    return [(times[start], times[end]) for start, end in spans]


def _depth(tier: str, tiers: Mapping[str, Element]) -> int:
    """Number of tiers that a tier depends on."""
    depth = 0
    while (parent := tiers[tier].get("PARENT_REF")) in tiers and depth <= len(tiers):
        tier = str(parent)
        depth += 1
    return depth


def to_elan(hierarchy: Hierarchy) -> str:
    """An ELAN file. The annotations of a tier lie inside those of the coarser tier."""
    tiers = _tiers(hierarchy)
    times_ms = sorted({rows.to_ms(time_s) for _, items in tiers for *span_s, _ in items for time_s in span_s})
    slot_ids = {time_ms: f"ts{i}" for i, time_ms in enumerate(times_ms, start=1)}
    slots = [f'    <TIME_SLOT TIME_SLOT_ID="{id}" TIME_VALUE="{time_ms}"/>' for time_ms, id in slot_ids.items()]
    lines = []
    numbers = count(1)
    for attributes, items in tiers:
        lines.append(f"  <TIER {attributes}>")
        for start_s, end_s, text in items:
            lines += [
                "    <ANNOTATION>",
                f'      <ALIGNABLE_ANNOTATION ANNOTATION_ID="a{next(numbers)}" '
                f'TIME_SLOT_REF1="{slot_ids[rows.to_ms(start_s)]}" TIME_SLOT_REF2="{slot_ids[rows.to_ms(end_s)]}">',
                f"        <ANNOTATION_VALUE>{escape(text)}</ANNOTATION_VALUE>",
                "      </ALIGNABLE_ANNOTATION>",
                "    </ANNOTATION>",
            ]
        lines.append("  </TIER>")
    file_name = one_line(Path(hierarchy.video).name)
    # What ELAN cannot express: each step by the id of its annotation
    steps = {f"a{number}": step.to_dict() for number, step in enumerate(hierarchy, start=1)}
    template = Template((ASSETS / "formats" / "elan.eaf").read_text(encoding="utf-8"))
    return template.substitute(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        media_url=quoteattr(file_name),
        mime_type=quoteattr(mimetypes.guess_type(hierarchy.video)[0] or "video/mp4"),
        relative_url=quoteattr(f"./{file_name}"),
        hiero=escape(json.dumps({"duration_s": round(hierarchy.duration_s, 3), "steps": steps})),
        time_slots="\n".join(slots),
        tiers="\n".join(lines),
    )


def _tiers(hierarchy: Hierarchy) -> list[tuple[str, list[tuple[float, float, str]]]]:
    """The XML attributes of each tier, and the start, end and text of its items."""
    tiers = []
    names = hierarchy.level_names
    for i, (name, level) in enumerate(zip(names, hierarchy.levels, strict=True)):
        kind, parent = ("inside", f' PARENT_REF="{names[i - 1]}"') if i else ("steps", "")
        items = [(step.start_s, step.end_s, hierarchy.titles[step.id]) for step in level]
        tiers.append((f'LINGUISTIC_TYPE_REF="{kind}" TIER_ID="{name}"{parent}', items))
    if speech := _remove_overlaps(hierarchy.speech):
        tiers.append((f'LINGUISTIC_TYPE_REF="steps" TIER_ID="{SPEECH_TIER}"', speech))
    return tiers


def _remove_overlaps(speech: Sequence[Utterance]) -> list[tuple[float, float, str]]:
    """Utterances without overlaps, which a tier cannot have, each at least a millisecond long."""
    out: list[tuple[float, float, str]] = []
    for utterance in speech:
        start_s = max(utterance.start_s, out[-1][1] if out else 0.0)
        if rows.to_ms(utterance.end_s) > rows.to_ms(start_s):
            out.append((start_s, utterance.end_s, one_line(utterance.text)))
    return out


ELAN = Exporter("steps.eaf", to_elan, reader=StepReader((".eaf",), read_elan, has_tiers=True))
