"""A log of features survives whatever happens to the process that writes it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hiero.backbones.registry import find_backbone
from hiero.errors import InputError
from hiero.extraction.extractor import Thumbnail
from hiero.extraction.feature_log import (
    FORMAT,
    FeatureLog,
    LogHeader,
    LogInUseError,
    is_in_use,
    load_recording,
    read_records,
)
from tests.oracle.recordings import fill_skipped

HEADER = LogHeader.of([find_backbone("i3d-k400"), find_backbone("dinov2-text")], 2, 1.0, "camera", "key")


def rows(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "i3d-k400": torch.randn(1, 400, generator=generator),
        "dinov2-text": torch.randn(2, 2304, generator=generator),
    }


def fill(path, indices, **options):
    with FeatureLog(path, HEADER, **options) as log:
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


def test_half_a_record_is_left_out_and_the_rest_goes_on(tmp_path):
    path = tmp_path / "r.features"
    fill(path, range(3))
    whole = path.read_bytes()
    for num_bytes in (len(whole) - 1, len(whole) - 9000, len(whole) - 30_000):
        path.write_bytes(whole[:num_bytes])  # killed in the middle of a write
        num_left = len(list(read_records(path)))
        assert num_left < 3
        log = fill(path, range(num_left, 4), is_same=lambda header: header.key == "key")
        assert log.num_done == 4
        assert [record.index for record in read_records(path)] == [0, 1, 2, 3]
    damaged = bytearray(whole)
    damaged[-5000] ^= 1
    path.write_bytes(damaged)
    assert [record.index for record in read_records(path)] == [0, 1]


def test_a_log_of_something_else_is_overwritten(tmp_path):
    path = tmp_path / "r.features"
    fill(path, range(3))
    assert fill(path, [0], is_same=lambda _: False).num_done == 1
    path.write_bytes(b"{")  # killed while the header was written
    assert fill(path, [0, 1], is_same=lambda _: True).num_done == 2


def test_two_processes_never_write_the_same_file(tmp_path):
    path = tmp_path / "r.features"
    with FeatureLog(path, HEADER):
        assert is_in_use(path)
        with pytest.raises(LogInUseError, match="another hiero watch"):
            FeatureLog(path, HEADER)
    assert not is_in_use(path)
    assert not is_in_use(tmp_path / "missing.features")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 100,
        b"[]\n",
        b"null\n",
        b"{}\n",
        b"[" * 70_000,
        json.dumps(
            {
                "format": FORMAT,
                "backbones": ["i3d-k400"],
                "widths": [401],
                "num_segments": 2,
                "spacing_s": 1.0,
                "source": "",
                "key": "",
            }
        ).encode()
        + b"\n",
        json.dumps(
            {
                "format": FORMAT,
                "backbones": ["no-such"],
                "widths": [4],
                "num_segments": 2,
                "spacing_s": 1.0,
                "source": "",
                "key": "",
            }
        ).encode()
        + b"\n",
        json.dumps(
            {
                "format": FORMAT,
                "backbones": ["i3d-k400"],
                "widths": [400],
                "num_segments": 2,
                "spacing_s": float("nan"),
                "source": "",
                "key": "",
            }
        ).encode()
        + b"\n",
        HEADER.to_line(),
    ],
)
def test_strange_files_are_one_clear_line(tmp_path, content):
    (tmp_path / "r.features").write_bytes(content)
    with pytest.raises(InputError):
        load_recording(tmp_path / "r.features")


def test_a_number_of_a_window_beyond_reason_allocates_nothing(tmp_path):
    with FeatureLog(tmp_path / "r.features", HEADER) as log:
        log._done.extend(bytes(0))
        log._mark = lambda *_: None  # as another program would write it
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
