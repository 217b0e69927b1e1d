"""A log of features survives whatever happens to the process that writes it."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hiero.errors import InputError
from hiero.extraction.extractor import Thumbnail
from hiero.extraction.feature_log import (
    FeatureLog,
    LogHeader,
    LogInUseError,
    is_in_use,
    load_recording,
    read_records,
)
from tests.oracle.recordings import fill_skipped
from tests.processes import start_python
from tests.waiting import wait_until

HEADER = LogHeader(("i3d-k400", "dinov2-text"), 2, 1.0, "camera", "key")


def rows(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "i3d-k400": torch.randn(1, 400, generator=generator),
        "dinov2-text": torch.randn(2, 2304, generator=generator),
    }


def fill(path, indices, **options):
    with closing(FeatureLog(path, HEADER, **options)) as log:
        for index in indices:
            log.append(
                index, 2.0 * (index + 1), rows(index), [Thumbnail(2 * index, 2.0 * index, b"\xff\xd8" + bytes(index))]
            )
    return log


def test_what_was_written_is_read(tmp_path):
    log = fill(tmp_path / "r.features", range(5))
    assert (log.num_windows, log.num_done, log.end_s) == (5, 5, 10.0)
    for i, record in enumerate(read_records(tmp_path / "r.features")):
        assert record.index == i
        assert all(torch.equal(record.rows[name], value) for name, value in rows(i).items())
        assert record.thumbnails == [Thumbnail(2 * i, 2.0 * i, b"\xff\xd8" + bytes(i))]
    source, num_skipped = load_recording(tmp_path / "r.features")
    assert num_skipped == 0
    assert source.duration_s == 10.0
    assert {name: value.shape for name, value in source.features.items()} == {
        "i3d-k400": (10, 400),
        "dinov2-text": (10, 2304),
    }
    assert source.thumbnail_times == [0.0, 2.0, 4.0, 6.0, 8.0]


WRITER = """
import sys
from pathlib import Path
from hiero.extraction.feature_log import FeatureLog
from tests.extraction.test_feature_log import HEADER, rows

log = FeatureLog(Path(sys.argv[1]), HEADER)
for index in range(1000):
    log.append(index, 2.0 * (index + 1), rows(index))
    Path(sys.argv[2]).write_text(str(index + 1))
"""


def test_a_killed_process_loses_at_most_the_last_window(tmp_path):
    path = tmp_path / "r.features"
    count = tmp_path / "count"
    process = start_python(WRITER, path, count)
    wait_until(lambda: count.is_file() and int(count.read_text() or 0) > 5)
    process.kill()
    process.wait()
    num_written = int(count.read_text() or 0)
    records = list(read_records(path))
    assert [record.index for record in records] == list(range(len(records)))
    assert len(records) >= max(num_written, 1)
    assert torch.equal(records[-1].rows["dinov2-text"], rows(len(records) - 1)["dinov2-text"])
    log = fill(path, [len(records)], is_same=lambda header: header.key == "key")
    assert log.num_done == len(records) + 1


@pytest.mark.parametrize("num_done", [0, 1, 40])
def test_what_a_process_has_written_is_there_for_others_at_once(tmp_path, num_done):
    """A copy of the files is what is left after a kill: it has each window that `append` came back from."""
    (tmp_path / "copy").mkdir()
    with closing(FeatureLog(tmp_path / "r.features", HEADER)) as log:
        for index in range(num_done):
            log.append(index, 2.0 * (index + 1), rows(index))
        for file in tmp_path.glob("r.features*"):
            shutil.copy(file, tmp_path / "copy")
    assert [record.index for record in read_records(tmp_path / "copy" / "r.features")] == list(range(num_done))


def test_a_closed_recording_is_a_single_file(tmp_path):
    fill(tmp_path / "r.features", range(3))
    assert [file.name for file in tmp_path.iterdir()] == ["r.features"]


@given(st.data())
def test_a_flipped_bit_is_noticed(tmp_path_factory, data):
    """What is read is what was written: a window with a flipped bit is left out, or the file is refused."""
    path = tmp_path_factory.mktemp("log") / "r.features"
    fill(path, range(3))
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    try:
        records = list(read_records(path))
    except InputError:
        return
    for record in records:
        assert record.index in range(3)
        assert record.end_s == 2.0 * (record.index + 1)
        assert all(torch.equal(record.rows[name], value) for name, value in rows(record.index).items())
    with suppress(InputError, OSError):  # it can be resumed, is begun again, or says that it is damaged
        fill(path, [7], is_same=lambda _: True)


def test_a_damaged_window_counts_as_skipped(tmp_path):
    path = tmp_path / "r.features"
    fill(path, range(3))
    content, value = path.read_bytes(), rows(1)["dinov2-text"].numpy().tobytes()[4000:4100]
    path.write_bytes(content.replace(value, bytes(100)))
    assert content != path.read_bytes()
    assert load_recording(path)[1] == 1


def test_a_recording_of_an_earlier_version_is_read_or_begun_again(tmp_path):
    """The header of version 2 had the widths of the features. Version 1 was not an SQLite file."""
    path = tmp_path / "r.features"
    fill(path, range(3))
    change_header(path, widths=[400, 2304])
    assert fill(path, [3], is_same=lambda _: True).num_done == 4
    path.write_bytes(json.dumps({"format": "hiero recording 1", **asdict(HEADER)}).encode() + b"\nwind")
    with pytest.raises(InputError, match="not a recording"):
        load_recording(path)
    assert fill(path, [0], is_same=lambda _: True).num_done == 1


def change_header(path, **changes) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        ((document,),) = connection.execute("SELECT document FROM header")
        connection.execute("UPDATE header SET document = ?", [json.dumps(json.loads(document) | changes)])


def test_a_log_of_something_else_is_overwritten(tmp_path):
    path = tmp_path / "r.features"
    fill(path, range(3))
    assert fill(path, [0], is_same=lambda _: False).num_done == 1
    path.write_bytes(b"{")  # killed while the header was written
    assert fill(path, [0, 1], is_same=lambda _: True).num_done == 2


def test_two_processes_never_write_the_same_file(tmp_path):
    path = tmp_path / "r.features"
    with closing(FeatureLog(path, HEADER)):
        assert is_in_use(path)
        with pytest.raises(LogInUseError, match="another hiero watch"):
            FeatureLog(path, HEADER)
    assert not is_in_use(path)
    assert not is_in_use(tmp_path / "missing.features")


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"[]\n", b"SQLite format 3\0" + bytes(100)])
def test_strange_files_are_one_clear_line(tmp_path, content):
    (tmp_path / "r.features").write_bytes(content)
    with pytest.raises(InputError):
        load_recording(tmp_path / "r.features")


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "another"},
        {"backbones": []},
        {"backbones": ["i3d-k400"]},
        {"backbones": ["no-such"]},
        {"backbones": [["i3d-k400"]]},
        {"backbones": None},
        {"num_segments": 3},
        {"spacing_s": float("nan")},
        {"unknown": 1},
    ],
)
def test_strange_headers_are_one_clear_line(tmp_path, changes):
    fill(tmp_path / "r.features", range(2))
    change_header(tmp_path / "r.features", **changes)
    with pytest.raises(InputError):
        load_recording(tmp_path / "r.features")


def test_a_missing_or_empty_recording_is_one_clear_line(tmp_path):
    with pytest.raises(InputError):
        load_recording(tmp_path / "r.features")
    assert not list(tmp_path.iterdir())
    fill(tmp_path / "r.features", [])
    with pytest.raises(InputError, match="no windows yet"):
        load_recording(tmp_path / "r.features")


def test_a_number_of_a_window_beyond_reason_allocates_nothing(tmp_path):
    with closing(FeatureLog(tmp_path / "r.features", HEADER)) as log:
        log.append(2**30, 2.0, rows(0))
    with pytest.raises(InputError, match="GiB"):
        load_recording(tmp_path / "r.features")


@given(st.lists(st.integers(0, 12), min_size=1, max_size=8, unique=True))
def test_skipped_windows_are_filled_as_slowly(tmp_path_factory, indices):
    path = tmp_path_factory.mktemp("log") / "r.features"
    fill(path, indices)
    source, num_skipped = load_recording(path)
    assert num_skipped == max(indices) + 1 - len(indices)
    expected = np.array(
        fill_skipped({index: rows(index)["dinov2-text"].tolist() for index in indices}), dtype=np.float32
    )
    assert np.array_equal(source.features["dinov2-text"], expected)
