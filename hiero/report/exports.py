"""Steps as files for other tools, one function a format: a hierarchy in, the text of a file out (Parquet: bytes).

Formats with one row of marks take one level. Chapters (vtt, ffmetadata, youtube) take the middle one, subtitles (srt) and editing
lists (edl) the finest; the others hold all levels. Text is escaped as each format wants it: labels may hold anything.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from hiero.errors import InputError
from hiero.plugins import load_plugin, registered
from hiero.storage.files import write_bytes
from hiero.types import Hierarchy, Step, format_time

GROUP = "hiero.exporters"
FRAME_RATE = 25  # of edit lists, which count frames
NO_PARQUET = "Parquet needs pyarrow; run: pip install 'hiero-video[export]'"
SHORTEST_CHAPTER_S = 10.0  # YouTube ignores lists with shorter ones


@dataclass(frozen=True)
class Exporter:
    """A format, registered as an entry point of `hiero.exporters`.

    Attributes:
        file_name: Of what is written.
        convert: A hierarchy to the content of the file.
    """

    file_name: str
    convert: Callable[[Hierarchy], str | bytes]


def exporter_names() -> list[str]:
    """Names that `find_exporter` takes: ours and those of other packages."""
    return list(registered(GROUP))


def find_exporter(name: str) -> Exporter:
    """A format by its name. Raises InputError where there is none."""
    if name not in registered(GROUP):
        raise InputError(f"no export {name}; known are {', '.join(exporter_names())}")
    exporter: Exporter = load_plugin(GROUP, name)
    return exporter


def write_export(name: str, steps: Hierarchy, folder: Path) -> Path:
    """Write a format into a folder, under its usual file name; returns the file."""
    exporter = find_exporter(name)
    content = exporter.convert(steps)
    file = folder / exporter.file_name
    write_bytes(file, content if isinstance(content, bytes) else content.encode("utf-8"))
    return file


def chapters(steps: Hierarchy) -> tuple[Step, ...]:
    return steps.levels[len(steps.levels) // 2]


def title(step: Step) -> str:
    """The label on one line, without control characters, which XML does not allow."""
    label = "".join(c for c in step.label or "" if c.isprintable() or c.isspace())
    return " ".join(label.split()) or f"step {step.id}"


# Chapters and subtitles


def to_vtt(steps: Hierarchy) -> str:
    cues = []
    for step in chapters(steps):
        text = escape(title(step)).replace("-->", "--&gt;")
        cues.append(f"{step.id}\n{_time(step.start_s, '.')} --> {_time(step.end_s, '.')}\n{text}\n")
    return "WEBVTT\n\n" + "\n".join(cues)


def to_srt(steps: Hierarchy) -> str:
    cues = []
    for i, step in enumerate(steps.levels[-1], start=1):
        cues.append(f"{i}\n{_time(step.start_s, ',')} --> {_time(step.end_s, ',')}\n{title(step)}\n")
    return "\n".join(cues)


def to_ffmetadata(steps: Hierarchy) -> str:
    """FFmpeg's own: ffmpeg -i video.mp4 -i chapters.ffmeta -map_chapters 1 -codec copy out.mp4"""
    lines = [";FFMETADATA1"]
    for step in chapters(steps):
        text = "".join("\\" + c if c in "=;#\\\n" else c for c in title(step))
        lines += ["[CHAPTER]", "TIMEBASE=1/1000", f"START={_ms(step.start_s)}", f"END={_ms(step.end_s)}", f"title={text}"]
    return "\n".join(lines) + "\n"


def to_youtube(steps: Hierarchy) -> str:
    """Lines for a video's description. The first is at 0:00; chapters under ten seconds join the one before."""
    lines: list[str] = []
    last = -SHORTEST_CHAPTER_S
    for i, step in enumerate(chapters(steps)):
        start_s = 0.0 if i == 0 else step.start_s
        if start_s - last >= SHORTEST_CHAPTER_S and (i == 0 or steps.duration_s - start_s >= SHORTEST_CHAPTER_S):
            lines.append(f"{format_time(start_s)} {title(step)}")
            last = start_s
    return "\n".join(lines) + "\n"


# Editing


def to_otio(steps: Hierarchy) -> str:
    """OpenTimelineIO: a track a level, a clip a step, all of the same video."""
    tracks = []
    for number, level in enumerate(steps.levels):
        clips = [
            {
                "OTIO_SCHEMA": "Clip.2", "name": title(step), "active_media_reference_key": "DEFAULT_MEDIA", "effects": [],
                "enabled": True, "markers": [],
                "metadata": {"hiero": {"id": step.id, "thread": step.thread, "score": step.score, "parent": step.parent}},
                "source_range": _range(step.start_s, step.end_s),
                "media_references": {
                    "DEFAULT_MEDIA": {
                        "OTIO_SCHEMA": "ExternalReference.1", "target_url": Path(steps.video).name, "name": "",
                        "available_range": _range(0, steps.duration_s), "available_image_bounds": None, "metadata": {},
                    }
                },
            }
            for step in level
        ]  # fmt: skip
        tracks.append({
            "OTIO_SCHEMA": "Track.1", "name": f"level {number}", "kind": "Video", "children": clips, "effects": [],
            "enabled": True, "markers": [], "metadata": {}, "source_range": None,
        })  # fmt: skip
    stack = {
        "OTIO_SCHEMA": "Stack.1", "name": "levels", "children": tracks, "effects": [], "enabled": True, "markers": [],
        "metadata": {}, "source_range": None,
    }  # fmt: skip
    timeline = {
        "OTIO_SCHEMA": "Timeline.1", "name": Path(steps.video).stem, "global_start_time": None, "tracks": stack,
        "metadata": {"hiero": {"model": steps.model}},
    }  # fmt: skip
    return json.dumps(timeline, indent=1) + "\n"


def to_edl(steps: Hierarchy) -> str:
    """CMX 3600 at 25 frames a second: one cut a step of the finest level, label as a comment."""
    lines = [f"TITLE: {_ascii(Path(steps.video).stem)[:70]}", "FCM: NON-DROP FRAME", ""]
    for number, step in enumerate(steps.levels[-1], start=1):
        start, end = _timecode(step.start_s), _timecode(step.end_s)
        lines += [
            f"{number:03d}  AX       V     C        {start} {end} {start} {end}",
            f"* FROM CLIP NAME: {_ascii(title(step))}",
            f"* SOURCE FILE: {_ascii(Path(steps.video).name)}",
        ]
    return "\n".join(lines) + "\n"


# Annotation


def to_elan(steps: Hierarchy) -> str:
    """ELAN .eaf: a tier a level, each finer one included in the coarser one's annotations."""
    moments = sorted({_ms(time_s) for level in steps.levels for step in level for time_s in (step.start_s, step.end_s)})
    slot = {moment: f"ts{i + 1}" for i, moment in enumerate(moments)}
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<ANNOTATION_DOCUMENT AUTHOR="" DATE="{datetime.now(UTC).isoformat(timespec="seconds")}" FORMAT="3.0" VERSION="3.0" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        'xsi:noNamespaceSchemaLocation="http://www.mpi.nl/tools/elan/EAFv3.0.xsd">',
        '  <HEADER MEDIA_FILE="" TIME_UNITS="milliseconds">',
        f"    <MEDIA_DESCRIPTOR MEDIA_URL={quoteattr(Path(steps.video).name)} MIME_TYPE={quoteattr(_mime(steps.video))} "
        f"RELATIVE_MEDIA_URL={quoteattr('./' + Path(steps.video).name)}/>",
        "  </HEADER>",
        "  <TIME_ORDER>",
        *(f'    <TIME_SLOT TIME_SLOT_ID="{slot[moment]}" TIME_VALUE="{moment}"/>' for moment in moments),
        "  </TIME_ORDER>",
    ]
    for number, level in enumerate(steps.levels):
        parent = f' PARENT_REF="level {number - 1}"' if number else ""
        kind = "inside" if number else "steps"
        lines.append(f'  <TIER LINGUISTIC_TYPE_REF="{kind}" TIER_ID="level {number}"{parent}>')
        for step in level:
            lines += [
                "    <ANNOTATION>",
                f'      <ALIGNABLE_ANNOTATION ANNOTATION_ID="a{step.id.replace(".", "_")}" '
                f'TIME_SLOT_REF1="{slot[_ms(step.start_s)]}" TIME_SLOT_REF2="{slot[_ms(step.end_s)]}">',
                f"        <ANNOTATION_VALUE>{escape(title(step))}</ANNOTATION_VALUE>",
                "      </ALIGNABLE_ANNOTATION>",
                "    </ANNOTATION>",
            ]
        lines.append("  </TIER>")
    lines += [
        '  <LINGUISTIC_TYPE GRAPHIC_REFERENCES="false" LINGUISTIC_TYPE_ID="steps" TIME_ALIGNABLE="true"/>',
        '  <LINGUISTIC_TYPE CONSTRAINTS="Included_In" GRAPHIC_REFERENCES="false" LINGUISTIC_TYPE_ID="inside" '
        'TIME_ALIGNABLE="true"/>',
        '  <CONSTRAINT DESCRIPTION="Time alignable annotations within the parent annotation\'s time interval, gaps are allowed" '
        'STEREOTYPE="Included_In"/>',
        "</ANNOTATION_DOCUMENT>",
    ]
    return "\n".join(lines) + "\n"


COLUMNS = ("level", "id", "start_s", "end_s", "thread", "label", "score", "parent", "background")


def rows(steps: Hierarchy) -> list[dict[str, object]]:
    """A flat table of all levels."""
    return [
        {name: value for name, value in {"level": number, **step.to_dict()}.items() if name in COLUMNS}
        for number, level in enumerate(steps.levels)
        for step in level
    ]


def to_csv(steps: Hierarchy) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS)
    writer.writeheader()
    writer.writerows(rows(steps))
    return out.getvalue()


def to_parquet(steps: Hierarchy) -> bytes:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise InputError(NO_PARQUET) from None
    types = {
        "level": pa.int32(), "id": pa.string(), "start_s": pa.float64(), "end_s": pa.float64(), "thread": pa.int32(),
        "label": pa.string(), "score": pa.float64(), "parent": pa.string(), "background": pa.bool_(),
    }  # fmt: skip
    out = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows(steps), schema=pa.schema(list(types.items()))), out)
    return out.getvalue()


def to_activitynet(steps: Hierarchy) -> str:
    """The annotations' layout of ActivityNet, the finest level; `results` is the same as a submission."""
    name = Path(steps.video).stem
    finest = steps.levels[-1]
    spans = [[round(step.start_s, 3), round(step.end_s, 3)] for step in finest]
    document = {
        "version": "VERSION 1.3",
        "database": {name: {
            "duration": round(steps.duration_s, 3), "subset": "validation", "url": "",
            "annotations": [{"segment": span, "label": title(step)} for step, span in zip(finest, spans, strict=True)],
        }},
        "results": {name: [
            {"segment": span, "label": title(step), "score": step.score or 0.0} for step, span in zip(finest, spans, strict=True)
        ]},
        "external_data": {"used": False, "details": ""},
    }  # fmt: skip
    return json.dumps(document, indent=1) + "\n"


def to_labelstudio(steps: Hierarchy) -> str:
    """Label Studio: one task with a prediction, a timeline label a step."""
    results = [
        {
            "id": step.id.replace(".", "_"), "type": "timelinelabels", "from_name": f"level{number}", "to_name": "video",
            "value": {
                "ranges": [{"start": int(step.start_s * FRAME_RATE) + 1, "end": max(1, int(step.end_s * FRAME_RATE))}],
                "timelinelabels": [title(step)],
            },
            "score": step.score or 0.0,
        }
        for number, level in enumerate(steps.levels)
        for step in level
    ]  # fmt: skip
    return (
        json.dumps(
            [{"data": {"video": Path(steps.video).name}, "predictions": [{"model_version": steps.model, "result": results}]}],
            indent=1,
        )
        + "\n"
    )


def to_coco(steps: Hierarchy) -> str:
    """COCO-like: videos, categories, annotations; a segment [start_s, duration_s] stands where a picture would have a box."""
    labels = sorted({title(step) for level in steps.levels for step in level})
    number_of = {label: i + 1 for i, label in enumerate(labels)}
    annotations: list[dict[str, object]] = []
    for number, level in enumerate(steps.levels):
        for step in level:
            annotations.append({
                "id": len(annotations) + 1, "video_id": 1, "category_id": number_of[title(step)], "level": number,
                "segment": [round(step.start_s, 3), round(step.end_s - step.start_s, 3)], "thread": step.thread,
                "score": step.score, "iscrowd": 0,
            })  # fmt: skip
    document = {
        "info": {"description": f"hiero {steps.model}", "version": "1.0"},
        "videos": [{"id": 1, "file_name": Path(steps.video).name, "duration": round(steps.duration_s, 3)}],
        "categories": [{"id": i, "name": label, "supercategory": "step"} for label, i in number_of.items()],
        "annotations": annotations,
    }
    return json.dumps(document, indent=1) + "\n"


VTT = Exporter("chapters.vtt", to_vtt)
SRT = Exporter("steps.srt", to_srt)
FFMETADATA = Exporter("chapters.ffmeta", to_ffmetadata)
YOUTUBE = Exporter("chapters.txt", to_youtube)
OTIO = Exporter("steps.otio", to_otio)
EDL = Exporter("steps.edl", to_edl)
ELAN = Exporter("steps.eaf", to_elan)
CSV = Exporter("steps.csv", to_csv)
PARQUET = Exporter("steps.parquet", to_parquet)
ACTIVITYNET = Exporter("activitynet.json", to_activitynet)
LABELSTUDIO = Exporter("labelstudio.json", to_labelstudio)
COCO = Exporter("coco.json", to_coco)


def _ms(time_s: float) -> int:
    return round(1000 * time_s)


def _time(time_s: float, mark: str) -> str:
    """hh:mm:ss.mmm"""
    rest, ms = divmod(_ms(time_s), 1000)
    return f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}{mark}{ms:03d}"


def _timecode(time_s: float) -> str:
    """hh:mm:ss:ff"""
    frames = round(time_s * FRAME_RATE)
    rest, frame = divmod(frames, FRAME_RATE)
    return f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}:{frame:02d}"


def _range(start_s: float, end_s: float) -> dict[str, object]:
    def time(value: float) -> dict[str, object]:
        return {"OTIO_SCHEMA": "RationalTime.1", "rate": 1000.0, "value": float(_ms(value))}

    return {
        "OTIO_SCHEMA": "TimeRange.1", "start_time": time(start_s),
        "duration": {"OTIO_SCHEMA": "RationalTime.1", "rate": 1000.0, "value": float(_ms(end_s) - _ms(start_s))},
    }  # fmt: skip


def _ascii(text: str) -> str:
    """Edit lists know ASCII only, one line."""
    return " ".join(text.encode("ascii", "replace").decode().split())


def _mime(video: str) -> str:
    import mimetypes

    return mimetypes.guess_type(video)[0] or "video/mp4"
