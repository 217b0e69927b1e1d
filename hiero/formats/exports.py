"""Steps as files for other tools, one function a format: a hierarchy in, the content of a file out.

Formats that know no levels take one: chapters (vtt, ffmetadata, youtube) the middle one, subtitles
(srt), edit lists (edl) and ActivityNet the finest. The others hold all levels. Labels and ids may
hold anything, so text is escaped as each format demands; where a format has no way to escape, what
it would misread is replaced.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from hiero.errors import InputError
from hiero.formats.reading import FORMULA_STARTS, HIERO_PROPERTY, SPEECH_TIER, frame_span, one_line
from hiero.formats.transcripts import HIERO_VTT_HEADER
from hiero.plugins import load_plugin, registered
from hiero.storage.files import write_bytes
from hiero.types import Hierarchy, Step, Utterance, format_time, split_by_file

GROUP = "hiero.exporters"
FRAME_RATE = 25  # of edit lists and Label Studio, which count frames
EDL_TITLE_LENGTH = 70  # characters
NO_PARQUET = "Parquet needs pyarrow; run: pip install 'hiero-video[export]'"
MIN_CHAPTER_S = 10.0  # YouTube ignores lists with shorter ones


@dataclass(frozen=True)
class Exporter:
    """A format, registered as an entry point of `hiero.exporters`.

    Attributes:
        file_name: That the content is written to; of a format with several files, the one that has the steps.
        convert: From a hierarchy to the content of the file, or to the contents of all files by their names.
        media_folder: Where the tool looks for the video: links to it are made there. Empty where it does not.
        opens_video: It reads the video's frame rate, so the hierarchy should have the path of the
        video and not only its name.
    """

    file_name: str
    convert: Callable[[Hierarchy], str | bytes | Mapping[str, str | bytes]]
    media_folder: str = ""
    opens_video: bool = False


def exporter_names() -> list[str]:
    """Names that `find_exporter` takes: the formats below and those of other packages."""
    return list(registered(GROUP))


def find_exporter(name: str) -> Exporter:
    """A format by its name. Raises InputError where there is none."""
    if name not in registered(GROUP):
        raise InputError(f"no export {name}; known are {', '.join(exporter_names())}")
    exporter: Exporter = load_plugin(GROUP, name)
    return exporter


def write_export(name: str, hierarchy: Hierarchy, folder: Path) -> Path:
    """Write a hierarchy in the format `name` into a folder, under the format's file name; returns the file."""
    exporter = find_exporter(name)
    for file_name, content in convert_files(exporter, hierarchy).items():
        write_bytes(folder / file_name, content)
    for video in hierarchy.media if exporter.media_folder else ():
        _link_video(Path(video.path), folder / exporter.media_folder)
    return folder / exporter.file_name


def convert_files(exporter: Exporter, hierarchy: Hierarchy) -> dict[str, bytes]:
    """The content of each file of a format, by its name."""
    content = exporter.convert(hierarchy)
    files = content if isinstance(content, Mapping) else {exporter.file_name: content}
    # Names of files need not be text: what UTF-8 cannot write becomes a question mark.
    return {name: data if isinstance(data, bytes) else data.encode("utf-8", "replace") for name, data in files.items()}


def pack_export(exporter: Exporter, hierarchy: Hierarchy) -> tuple[str, bytes]:
    """A format as one file to download, with its name: a ZIP archive where it has several."""
    files = convert_files(exporter, hierarchy)
    if list(files) == [exporter.file_name]:
        return exporter.file_name, files[exporter.file_name]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return Path(exporter.file_name).parts[0] + ".zip", out.getvalue()


def _link_video(video: Path, folder: Path) -> None:
    """A link to a video; none where there are only its features, it is not on this disk, or the
    disk knows no links.
    """
    from hiero.data.features import FEATURE_SUFFIXES

    if not video.is_file() or video.suffix.lower() in FEATURE_SUFFIXES:
        return
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        link = folder / video.name
        if link.is_symlink() or not link.exists():
            link.unlink(missing_ok=True)
            link.symlink_to(video.resolve())


def chapters(hierarchy: Hierarchy) -> tuple[Step, ...]:
    """The steps of the middle level."""
    return hierarchy.levels[len(hierarchy.levels) // 2]


def title(step: Step) -> str:
    """The label on one line, without control characters, which XML does not allow."""
    return one_line(step.label or "") or one_line(f"step {step.id}")


def _plain_id(step: Step) -> str:
    """An id without signs that mean something in a format."""
    return re.sub(r"[^\w.+ -]+", "_", step.id)


# Chapters and subtitles


def to_vtt(hierarchy: Hierarchy) -> str:
    """WebVTT chapters."""
    cues = []
    for step in chapters(hierarchy):
        text = escape(title(step)).replace("-->", "--&gt;")
        cues.append(f"{_plain_id(step)}\n{_timestamp(step.start_s, '.')} --> {_timestamp(step.end_s, '.')}\n{text}\n")
    return f"{HIERO_VTT_HEADER}\n\n" + "\n".join(cues)


def to_srt(hierarchy: Hierarchy) -> str:
    """SubRip subtitles."""
    cues = []
    for i, step in enumerate(hierarchy.levels[-1], start=1):
        text = title(step).replace("-->", "→")  # which would be taken for times
        cues.append(f"{i}\n{_timestamp(step.start_s, ',')} --> {_timestamp(step.end_s, ',')}\n{text}\n")
    return "\n".join(cues)


def to_ffmetadata(hierarchy: Hierarchy) -> str:
    """FFmpeg's metadata: ffmpeg -i video.mp4 -i chapters.ffmeta -map_chapters 1 -codec copy out.mp4"""
    lines = [";FFMETADATA1"]
    for step in chapters(hierarchy):
        text = "".join("\\" + c if c in "=;#\\\n" else c for c in title(step))
        lines += [
            "[CHAPTER]",
            "TIMEBASE=1/1000",
            f"START={_to_ms(step.start_s)}",
            f"END={_to_ms(step.end_s)}",
            f"title={text}",
        ]
    return "\n".join(lines) + "\n"


def to_youtube(hierarchy: Hierarchy) -> str:
    """Chapters in a YouTube description. The first is at 0:00; those under ten seconds join the one before."""
    lines: list[str] = []
    previous_s = -MIN_CHAPTER_S
    for i, step in enumerate(chapters(hierarchy)):
        start_s = 0.0 if i == 0 else step.start_s
        if start_s - previous_s >= MIN_CHAPTER_S and (i == 0 or hierarchy.duration_s - start_s >= MIN_CHAPTER_S):
            # YouTube refuses a description with angle brackets.
            lines.append(f"{format_time(start_s)} {title(step).replace('<', '‹').replace('>', '›')}")
            previous_s = start_s
    return "\n".join(lines) + "\n"


# Editing


def to_otio(hierarchy: Hierarchy) -> str:
    """OpenTimelineIO: a track for each level, a clip for each step; one that goes on in another file
    has a clip in each.
    """
    tracks = []
    for level_index, level in enumerate(hierarchy.levels):
        clips = [
            {
                "OTIO_SCHEMA": "Clip.2",
                "name": title(step),
                "active_media_reference_key": "DEFAULT_MEDIA",
                "effects": [],
                "enabled": True,
                "markers": [],
                "metadata": {
                    "hiero": {"id": step.id, "thread": step.thread, "score": step.score, "parent": step.parent}
                },
                "source_range": _time_range(start_s, end_s),
                "media_references": {
                    "DEFAULT_MEDIA": {
                        "OTIO_SCHEMA": "ExternalReference.1",
                        "target_url": Path(file.path).name,
                        "name": "",
                        "available_range": _time_range(0, file.duration_s),
                        "available_image_bounds": None,
                        "metadata": {},
                    }
                },
            }
            for step in level
            for file, start_s, end_s in split_by_file(hierarchy.media, step.start_s, step.end_s)
        ]
        tracks.append(
            {
                "OTIO_SCHEMA": "Track.1",
                "name": f"level {level_index}",
                "kind": "Video",
                "children": clips,
                "effects": [],
                "enabled": True,
                "markers": [],
                "metadata": {},
                "source_range": None,
            }
        )
    stack = {
        "OTIO_SCHEMA": "Stack.1",
        "name": "levels",
        "children": tracks,
        "effects": [],
        "enabled": True,
        "markers": [],
        "metadata": {},
        "source_range": None,
    }
    timeline = {
        "OTIO_SCHEMA": "Timeline.1",
        "name": Path(hierarchy.video).stem,
        "global_start_time": None,
        "tracks": stack,
        "metadata": {"hiero": {"model": hierarchy.model}},
    }
    return to_json(timeline)


def to_edl(hierarchy: Hierarchy) -> str:
    """CMX 3600 at 25 frames a second: an event for each step of the finest level, its label as a comment."""
    lines = [f"TITLE: {_to_ascii(Path(hierarchy.video).stem)[:EDL_TITLE_LENGTH]}", "FCM: NON-DROP FRAME", ""]
    events = [
        (step, *part)
        for step in hierarchy.levels[-1]
        for part in split_by_file(hierarchy.media, step.start_s, step.end_s)
    ]
    for event, (step, file, start_s, end_s) in enumerate(events, start=1):
        source = f"{_timecode(start_s)} {_timecode(end_s)}"
        record = f"{_timecode(file.start_s + start_s)} {_timecode(file.start_s + end_s)}"
        lines += [
            f"{event:03d}  AX       V     C        {source} {record}",
            f"* FROM CLIP NAME: {_to_ascii(title(step))}",
            f"* SOURCE FILE: {_to_ascii(Path(file.path).name)}",
        ]
    return "\n".join(lines) + "\n"


# Annotation


def to_elan(hierarchy: Hierarchy) -> str:
    """ELAN .eaf: a tier for each level, whose annotations lie inside those of the coarser one; and one for speech."""
    utterances = _separate(hierarchy.speech)
    spans_s = [(step.start_s, step.end_s) for level in hierarchy.levels for step in level]
    spans_s += [(utterance.start_s, utterance.end_s) for utterance in utterances]
    times_ms = sorted({_to_ms(time_s) for span_s in spans_s for time_s in span_s})
    file_name = one_line(Path(hierarchy.video).name)
    numbers = count(1)
    # ids of steps need not be names that XML allows
    annotation_ids = {step.id: f"a{next(numbers)}" for step in hierarchy}
    slot_ids = {time_ms: f"ts{i + 1}" for i, time_ms in enumerate(times_ms)}
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<ANNOTATION_DOCUMENT AUTHOR="" DATE="{datetime.now(UTC).isoformat(timespec="seconds")}" FORMAT="3.0" VERSION="3.0" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        'xsi:noNamespaceSchemaLocation="http://www.mpi.nl/tools/elan/EAFv3.0.xsd">',
        '  <HEADER MEDIA_FILE="" TIME_UNITS="milliseconds">',
        f"    <MEDIA_DESCRIPTOR MEDIA_URL={quoteattr(file_name)} MIME_TYPE={quoteattr(_mime_type(hierarchy.video))} "
        f"RELATIVE_MEDIA_URL={quoteattr('./' + file_name)}/>",
        f'    <PROPERTY NAME="{HIERO_PROPERTY}">{escape(_hiero_property(hierarchy, annotation_ids))}</PROPERTY>',
        "  </HEADER>",
        "  <TIME_ORDER>",
        *(f'    <TIME_SLOT TIME_SLOT_ID="{slot_ids[time_ms]}" TIME_VALUE="{time_ms}"/>' for time_ms in times_ms),
        "  </TIME_ORDER>",
    ]
    for level_index, level in enumerate(hierarchy.levels):
        parent = f' PARENT_REF="level {level_index - 1}"' if level_index else ""
        kind = "inside" if level_index else "steps"
        lines.append(f'  <TIER LINGUISTIC_TYPE_REF="{kind}" TIER_ID="level {level_index}"{parent}>')
        for step in level:
            lines += [
                "    <ANNOTATION>",
                f'      <ALIGNABLE_ANNOTATION ANNOTATION_ID="{annotation_ids[step.id]}" '
                f'TIME_SLOT_REF1="{slot_ids[_to_ms(step.start_s)]}" TIME_SLOT_REF2="{slot_ids[_to_ms(step.end_s)]}">',
                f"        <ANNOTATION_VALUE>{escape(title(step))}</ANNOTATION_VALUE>",
                "      </ALIGNABLE_ANNOTATION>",
                "    </ANNOTATION>",
            ]
        lines.append("  </TIER>")
    if utterances:
        lines.append(f'  <TIER LINGUISTIC_TYPE_REF="steps" TIER_ID="{SPEECH_TIER}">')
        for utterance in utterances:
            lines += [
                "    <ANNOTATION>",
                f'      <ALIGNABLE_ANNOTATION ANNOTATION_ID="a{next(numbers)}" '
                f'TIME_SLOT_REF1="{slot_ids[_to_ms(utterance.start_s)]}" TIME_SLOT_REF2="{slot_ids[_to_ms(utterance.end_s)]}">',
                f"        <ANNOTATION_VALUE>{escape(one_line(utterance.text))}</ANNOTATION_VALUE>",
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


def _separate(speech: Sequence[Utterance]) -> list[Utterance]:
    """Utterances that follow each other, each at least a millisecond long: annotations of a tier may not overlap."""
    out: list[Utterance] = []
    for utterance in speech:
        start_s = max(utterance.start_s, out[-1].end_s if out else 0.0)
        if _to_ms(utterance.end_s) > _to_ms(start_s):
            out.append(Utterance(start_s, utterance.end_s, utterance.text))
    return out


def _hiero_property(hierarchy: Hierarchy, ids: dict[str, str]) -> str:
    """What ELAN has no place for, as JSON that `hiero import-steps` reads back: each step by the id
    of its annotation.
    """
    steps = {ids[step.id]: step.to_dict() for step in hierarchy}
    return json.dumps({"duration_s": round(hierarchy.duration_s, 3), "steps": steps})


def to_csv(hierarchy: Hierarchy) -> str:
    """A table of all steps as comma-separated values. A text that a spreadsheet would compute gets an
    apostrophe before it.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, hierarchy.columns)
    writer.writeheader()
    for row in hierarchy.to_rows():
        writer.writerow({name: _as_cell(value) for name, value in row.items()})
    return out.getvalue()


def _as_cell(value: object) -> object:
    """A value of a table that no spreadsheet takes for a formula."""
    # A text that has the apostrophe by itself gets another one, so that it can be read back.
    return f"'{value}" if isinstance(value, str) and value.lstrip("'").startswith(FORMULA_STARTS) else value


def to_parquet(hierarchy: Hierarchy) -> bytes:
    """A table of all steps as Parquet. Raises InputError where pyarrow is not installed."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise InputError(NO_PARQUET) from None
    types = {
        "level": pa.int32(),
        "id": pa.string(),
        "start_s": pa.float64(),
        "end_s": pa.float64(),
        "thread": pa.int32(),
        "label": pa.string(),
        "score": pa.float64(),
        "parent": pa.string(),
        "background": pa.bool_(),
        "speech": pa.string(),
    }
    schema = pa.schema([(name, types[name]) for name in hierarchy.columns])
    out = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(hierarchy.to_rows(), schema=schema), out)
    return out.getvalue()


def to_activitynet(hierarchy: Hierarchy) -> str:
    """ActivityNet: `database` has the finest level as annotations, `results` the same as a submission."""
    name = Path(hierarchy.video).stem
    finest = hierarchy.levels[-1]
    spans = [[round(step.start_s, 3), round(step.end_s, 3)] for step in finest]
    document = {
        "version": "VERSION 1.3",
        "database": {
            name: {
                "duration": round(hierarchy.duration_s, 3),
                "subset": "validation",
                "url": "",
                "annotations": [
                    {"segment": span, "label": title(step), "id": step.id}
                    for step, span in zip(finest, spans, strict=True)
                ],
            }
        },
        "results": {
            name: [
                {"segment": span, "label": title(step), "score": step.score or 0.0}
                for step, span in zip(finest, spans, strict=True)
            ]
        },
        "external_data": {"used": False, "details": ""},
    }
    return to_json(document)


def to_labelstudio(hierarchy: Hierarchy) -> str:
    """Label Studio: one task with a prediction, which has a timeline label for each step.

    The data of the task also has each step as it is, so that those that nobody changes come back exactly.
    """
    results: list[dict[str, object]] = []
    steps: dict[str, dict[str, object]] = {}
    for level_index, level in enumerate(hierarchy.levels):
        for step in level:
            first, last = frame_span(step.start_s, step.end_s, FRAME_RATE)
            region_id = _plain_id(step).replace(".", "_")
            region_id = f"{region_id}-{len(steps)}" if region_id in steps else region_id
            steps[region_id] = {**step.to_dict(), "frames": [first, last]}
            results.append(
                {
                    "id": region_id,
                    "type": "timelinelabels",
                    "from_name": f"level{level_index}",
                    "to_name": "video",
                    "value": {"ranges": [{"start": first, "end": last}], "timelinelabels": [title(step)]},
                    "score": step.score or 0.0,
                }
            )
    prediction = {"model_version": hierarchy.model, "result": results}
    data = {
        "video": Path(hierarchy.video).name,
        HIERO_PROPERTY: {"duration_s": round(hierarchy.duration_s, 3), "steps": steps},
    }
    return to_json([{"data": data, "predictions": [prediction]}])


def to_coco(hierarchy: Hierarchy) -> str:
    """COCO-like: videos, categories, annotations; a segment [start_s, duration_s] stands where an
    image would have a box.
    """
    labels = sorted({title(step) for level in hierarchy.levels for step in level})
    category_ids = {label: i + 1 for i, label in enumerate(labels)}
    annotations: list[dict[str, object]] = []
    for level_index, level in enumerate(hierarchy.levels):
        for step in level:
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "video_id": 1,
                    "category_id": category_ids[title(step)],
                    "level": level_index,
                    "segment": [round(step.start_s, 3), round(step.end_s - step.start_s, 3)],
                    "thread": step.thread,
                    "score": step.score,
                    "iscrowd": 0,
                }
            )
    document = {
        "info": {"description": f"hiero {hierarchy.model}", "version": "1.0"},
        "videos": [{"id": 1, "file_name": Path(hierarchy.video).name, "duration": round(hierarchy.duration_s, 3)}],
        "categories": [{"id": i, "name": label, "supercategory": "step"} for label, i in category_ids.items()],
        "annotations": annotations,
    }
    return to_json(document)


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


def to_json(document: object) -> str:
    """JSON that other tools read: without halves of character pairs, which names of files may hold and
    Python would write.
    """
    return json.dumps(document, indent=1, ensure_ascii=False).encode("utf-8", "replace").decode() + "\n"


def _to_ms(time_s: float) -> int:
    return round(1000 * time_s)


def _timestamp(time_s: float, separator: str) -> str:
    """hh:mm:ss.mmm; subtitles have a comma for the point."""
    seconds, ms = divmod(_to_ms(time_s), 1000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{separator}{ms:03d}"


def _timecode(time_s: float) -> str:
    """hh:mm:ss:ff"""
    seconds, frame = divmod(round(time_s * FRAME_RATE), FRAME_RATE)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}:{frame:02d}"


def _time_range(start_s: float, end_s: float) -> dict[str, object]:
    """OpenTimelineIO's range, in milliseconds."""

    def rational_time(time_ms: int) -> dict[str, object]:
        return {"OTIO_SCHEMA": "RationalTime.1", "rate": 1000.0, "value": float(time_ms)}

    start_ms, end_ms = _to_ms(start_s), _to_ms(end_s)
    return {
        "OTIO_SCHEMA": "TimeRange.1",
        "start_time": rational_time(start_ms),
        "duration": rational_time(end_ms - start_ms),
    }


def _to_ascii(text: str) -> str:
    """One line of ASCII, all that edit lists may hold."""
    return " ".join(text.encode("ascii", "replace").decode().split())


def _mime_type(video: str) -> str:
    import mimetypes

    return mimetypes.guess_type(video)[0] or "video/mp4"
