"""Tables of steps: CSV (comma, semicolon or tab separated, with a header) and Parquet."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hiero.errors import InputError
from hiero.formats.registry import NO_PARQUET, Exporter, ImportSettings, StepReader
from hiero.formats.rows import NO_THREAD, RowLevels, choose_video, imported_step, parse_id, parse_time
from hiero.formatting import clean_text
from hiero.storage.files import decode_text
from hiero.types import Hierarchy, Step

# beginnings of cells that spreadsheets compute
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
CLOCK_TIME = re.compile(r"(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", re.ASCII)
COLUMNS = {  # names of columns in other programs
    "start_s": "start_s|start|start_time|begin|begin_time|begin time - ss.msec|onset|t_start|from",
    "end_s": "end_s|end|end_time|stop|finish|end time - ss.msec|offset|t_end|to",
    "duration_s": "duration_s|duration|duration - ss.msec|length",
    "label": "label|text|name|step|annotation|description|sentence|action|value|caption",
    "level": "level",
    "video": "video|video_id|video_uid|file|filename|recording",
}
OWN_COLUMNS = ("id", "thread", "background")  # further columns in tables of hiero
DETAILS = ("thread", "probability", "origin")
MODEL_LABEL = "model_label"  # the name that the model gave: another one in the column `label` comes from a person


def read_table(data: bytes, settings: ImportSettings) -> RowLevels:
    """Rows of a table, a list for each of its levels."""
    text = decode_text(data)
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    try:
        cells = list(csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error as error:  # such as an open quotation mark
        raise ValueError(f"not a table ({error})") from error
    columns = _find_columns(list(cells[0]) if cells else [])
    chosen = None
    if "video" in columns:
        names = {row[columns["video"]] or "" for row in cells}
        chosen = choose_video({name: name for name in names}, settings.video)
    levels: dict[float, list[Step]] = {}
    for number, row in enumerate(cells, start=2):
        by_column = {key: row[name] for key, name in columns.items()}
        if chosen is not None and by_column["video"] != chosen:
            continue
        try:
            step = _parse_row(by_column)
            levels.setdefault(float(by_column.get("level") or 0), []).append(step)
        except (ValueError, TypeError) as error:
            raise ValueError(f"line {number}: {error}") from error
    return [levels[level] for level in sorted(levels)], None


def _find_columns(header: list[str]) -> dict[str, str]:
    """The names of a table's columns by hiero's names."""
    present = {name.strip().lower(): name for name in header if name}
    columns = {}
    for key, names in COLUMNS.items():
        if name := next((name for name in names.split("|") if name in present), None):
            columns[key] = present[name]
    if "start_s" not in columns or not {"end_s", "duration_s"} & set(columns):
        raise ValueError(f"must have columns start_s, end_s and label, found {', '.join(present) or 'none'}")
    if set(OWN_COLUMNS) <= set(present):
        columns |= {name: present[name] for name in (*OWN_COLUMNS, *DETAILS, MODEL_LABEL) if name in present}
    return columns


def _parse_row(cells: dict[str, str]) -> Step:
    start_s = parse_clock_time(cells["start_s"])
    end_s = parse_clock_time(cells["end_s"]) if "end_s" in cells else start_s + parse_clock_time(cells["duration_s"])
    label = _from_cell(cells.get("label") or "")
    if "id" not in cells:
        return imported_step(start_s, end_s, label)
    details = {name: cells[name] for name in DETAILS if cells.get(name)}
    times = {"id": "0", "start_s": start_s, "end_s": end_s, "label": label or None}
    step = Step.from_dict({**details, **times, "background": (cells["background"] or "").lower() == "true"})
    thread = step.thread if cells["thread"] else NO_THREAD
    if step.origin == "model" and _from_cell(cells.get(MODEL_LABEL, cells.get("label")) or "") != label:
        step = replace(step, origin="imported", probability=None)
    return replace(step, id=parse_id(_from_cell(cells["id"] or "")), thread=thread)


def parse_clock_time(text: str | None) -> float:
    """Seconds from a cell such as 61.5, 1:01.5 or 0:01:01,5. Raises ValueError."""
    cell = (text or "").strip().removesuffix("s").strip().replace(",", ".")
    if match := CLOCK_TIME.fullmatch(cell):
        hours, minutes, seconds = match.groups()
        return 3600 * int(hours or 0) + 60 * int(minutes) + float(seconds)
    try:
        return parse_time(cell)
    except ValueError:
        raise ValueError(f"{text!r} is not a time in seconds") from None


def to_csv(hierarchy: Hierarchy) -> str:
    """A table of all steps as comma-separated values."""
    rows = [{**row, MODEL_LABEL: row["label"] if row["origin"] == "model" else None} for row in hierarchy.to_rows()]
    return format_csv([*hierarchy.columns, MODEL_LABEL], rows)


def format_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], line_end: str = "\r\n") -> str:
    """Comma-separated values, without control characters and without cells that a spreadsheet would compute."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator=line_end)
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _to_cell(value) if isinstance(value, str) else value for name, value in row.items()})
    return out.getvalue()


def _to_cell(text: str) -> str:
    """A cell that stays a text: an apostrophe keeps a spreadsheet from computing it."""
    return f"'{clean_text(text)}" if _is_formula(text) else clean_text(text)


def _is_formula(text: str) -> bool:
    """Whether a spreadsheet would compute a text, also after leading apostrophes."""
    return text.lstrip("'").startswith(FORMULA_STARTS)


def _from_cell(text: str) -> str:
    return text[1:] if text.startswith("'") and _is_formula(text) else text


def to_parquet(hierarchy: Hierarchy) -> bytes:
    """A table of all steps as Parquet. Needs pyarrow."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise InputError(NO_PARQUET) from None
    floats, integers = ("start_s", "end_s", "probability"), ("level", "thread")
    types = {**dict.fromkeys(floats, pa.float64()), **dict.fromkeys(integers, pa.int32()), "background": pa.bool_()}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in hierarchy.columns])
    out = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(hierarchy.to_rows(), schema=schema), out)
    return out.getvalue()


CSV = Exporter("steps.csv", to_csv, reader=StepReader((".csv", ".tsv"), read_table))
PARQUET = Exporter("steps.parquet", to_parquet)
