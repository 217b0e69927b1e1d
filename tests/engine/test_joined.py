"""Several files as one video: the same as the file that they were cut from, and every moment in its own file."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiero.engine import load
from hiero.engine.joined import place_files, row_origins
from hiero.errors import InputError
from hiero.features import extractor
from hiero.features.files import rows_key, sidecar_path
from hiero.features.video_features import VideoFeatures
from hiero.media.source import VideoSource
from hiero.storage.cache import content_key
from hiero.types import MAX_SLIVER_S, Clock, Hierarchy, Step, VideoFile, file_fields, locate_time, split_by_file
from tests.films import write_video
from tests.oracle import joined as oracle


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def save_parts(folder, rows, cuts):
    """Save rows as files that follow each other."""
    paths = [folder / f"{chr(ord('a') + i)}.npy" for i in range(len(cuts) + 1)]
    for path, part in zip(paths, np.split(rows, cuts), strict=True):
        np.save(path, part)
    return paths


def activities(num_rows=120, width=32, seed=0):
    """Features of six activities."""
    rng = np.random.default_rng(seed)
    return (np.repeat(rng.normal(0, 3, (6, width)), num_rows // 6, 0) + rng.normal(0, 1, (num_rows, width))).astype(
        np.float32
    )


@given(
    st.lists(st.integers(1, 4000), min_size=1, max_size=6),
    st.sampled_from([Fraction(1), Fraction(1, 2), Fraction(16, 30), Fraction(2)]),
)
def test_rows_come_from_the_file_that_is_on(durations_ms, spacing):
    durations = [Fraction(ms, 1000) for ms in durations_ms]
    num_rows = [max(1, round(duration / spacing)) for duration in durations]
    clocks = [Clock(1.0, float(spacing))] * len(durations)
    file, row = row_origins([float(duration) for duration in durations], clocks, num_rows)
    expected = oracle.row_origins(durations, num_rows, spacing)
    # Where the middle of a row is the very moment at which another begins, rounding decides: both are half a row away.
    close = sum(
        pair != other for pair, other in zip(zip(file.tolist(), row.tolist(), strict=True), expected, strict=False)
    )
    assert abs(len(file) - len(expected)) <= 1
    assert close == 0 or spacing == Fraction(16, 30)
    assert all(np.diff(file) >= 0)
    assert all(b >= a for (f, a), (g, b) in pairwise(zip(file, row, strict=True)) if f == g)


def test_no_time_is_lost_over_many_files():
    """A hundred chapters of 10.4 s: 1040 rows, not 1000, and the last begins at its time."""
    file, row = row_origins([10.4] * 100, [Clock(1, 1)] * 100, [10] * 100)
    assert len(file) == 1040
    starts_s = np.searchsorted(file, np.arange(100)) + 0.5
    assert np.abs(starts_s - 10.4 * np.arange(100)).max() <= 1.0
    assert row.max() == 9


@pytest.mark.parametrize("cuts", [[60], [50, 90], [1, 2, 119]])
def test_a_video_that_was_cut_is_the_uncut_one(tmp_path, cuts):
    rows = activities()
    np.save(tmp_path / "whole.npy", rows)
    paths = save_parts(tmp_path, rows, cuts)
    engine = load("raw")
    whole, joined = engine.read(tmp_path / "whole.npy"), engine.read(paths)
    np.testing.assert_array_equal(joined.nodes, whole.nodes)
    assert (joined.duration_s, joined.clock.spacing_s) == (whole.duration_s, whole.clock.spacing_s)
    assert joined.steps([3, 6]).levels == whole.steps([3, 6]).levels
    np.testing.assert_array_equal(joined.sight.spans, whole.sight.spans)
    assert joined.is_joined
    assert not whole.is_joined
    starts_s = [0, *cuts]
    for start_s, path in zip(starts_s, paths, strict=True):
        assert joined.locate(start_s) == (path, 0.0)
        assert joined.locate(start_s + 0.25) == (path, 0.25)
    assert joined.locate(joined.duration_s) == (paths[-1], 120.0 - cuts[-1])
    assert whole.locate(7.5) == (tmp_path / "whole.npy", 7.5)


def test_the_model_sees_one_video(tmp_path):
    """Nodes near a cut listen to those on its other side: not what two videos give."""
    rows = np.random.default_rng(0).normal(0, 1, (60, 400)).astype(np.float32)
    paths = save_parts(tmp_path, rows, [32])
    engine = load("hiero-k400", device="cpu")
    whole = engine.read_array(rows)
    np.testing.assert_allclose(engine.read(paths).nodes, whole.nodes, atol=1e-3)
    assert np.abs(engine.read(paths[0]).nodes - whole.nodes[:32]).max() > 0.01


def test_it_is_cached_by_what_the_files_hold_in_their_order(tmp_path, home):
    rows = activities(60)
    engine = load("raw")
    paths = save_parts(tmp_path, rows, [30])
    first = engine.read(paths)
    num_cached = len(list((home / "cache" / "nodes").iterdir()))
    assert num_cached == 1
    engine.read(paths)
    assert len(list((home / "cache" / "nodes").iterdir())) == num_cached
    other = engine.read(paths[::-1])
    assert len(list((home / "cache" / "nodes").iterdir())) == num_cached + 1
    np.testing.assert_array_equal(other.nodes[30:], first.nodes[:30])
    assert VideoSource.of(paths).key() != VideoSource.of(paths[::-1]).key()
    assert VideoSource.of(paths[0]).key() == content_key(paths[0])
    assert engine.read(paths, cache=False).nodes.tolist() == first.nodes.tolist()


def test_feature_files_begin_where_their_videos_end(tmp_path):
    """Rows of `hiero extract` cover whole segments; the video's own length is in the sidecar."""
    rows = activities(18, 8)
    for name, part, duration_s in (("a", rows[:10], 9.6), ("b", rows[10:], 8.3)):
        np.save(tmp_path / f"{name}.npy", part)
        sidecar = {
            "version": 1,
            "backbone": "mine",
            "weights": "",
            "settings": "",
            "width": 8,
            "fps": 1.0,
            "stride": 1.0,
            "window": 1.0,
            "num_frames": 0,
            "dtype": "float32",
            "num_segments": len(part),
            "duration_s": duration_s,
            "source": f"{name}.mp4",
            "sha256": "",
            "rows": None,
        }
        sidecar["rows"] = rows_key(part)
        sidecar_path(tmp_path / f"{name}.npy").write_text(json.dumps(sidecar))
    video = load("raw").read([tmp_path / "a.npy", tmp_path / "b.npy"])
    assert [(file.start_s, file.duration_s) for file in video.files] == [(0.0, 9.6), (9.6, 8.3)]
    assert video.duration_s == pytest.approx(17.9)
    assert len(video.nodes) == 18


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (np.zeros((9, 8), np.float32), "cannot be joined: their features are 32 and 8 wide"),
        (np.full((9, 32), np.nan, np.float32), "NaN or infinite values in 9 of 9 segments.*leave this file out"),
    ],
)
def test_files_that_cannot_be_joined(tmp_path, other, message):
    np.save(tmp_path / "a.npy", activities())
    np.save(tmp_path / "b.npy", other)
    with pytest.raises(InputError, match=message):
        load("raw").read([tmp_path / "a.npy", tmp_path / "b.npy"])
    with pytest.raises(InputError, match="no such file"):
        load("raw").read([tmp_path / "a.npy", tmp_path / "gone.npy"])
    with pytest.raises(InputError, match="at least one file"):
        load("raw").read([])


def test_videos_cut_at_half_a_second(tmp_path, monkeypatch):
    """Two films of 3.5 and 2.5 s; a network that gives the grey of each second shows which frames a row is of."""

    def read_greys(path, *arguments, spacing_s=1.0, progress=lambda _: None, **options):
        from hiero.media.decode import Sampling, read_segments

        segments = list(read_segments(path, Sampling(spacing_s=1.0, num_frames=4, short_side=None)))
        num_rows = max(1, round(segments[-1].end_s))
        rows = np.array([[segment.frames.mean(), 1.0] for segment in segments], dtype=np.float32)[:num_rows]
        times_s = [segment.times_s[0] for segment in segments]
        return VideoFeatures(
            {"i3d-k400": np.pad(rows, ((0, 0), (0, 398)))},
            segments[-1].end_s,
            1.0,
            times_s,
            [b"\xff\xd8"] * len(times_s),
        )

    monkeypatch.setattr(extractor, "extract_features", read_greys)
    monkeypatch.setattr("hiero.engine.engine.fetch_weights", lambda *_: tmp_path)
    greys = [20 + 3 * i for i in range(60)]
    whole = write_video(tmp_path / "whole.mp4", greys)
    parts = [write_video(tmp_path / "GX010001.MP4", greys[:35]), write_video(tmp_path / "GX020001.MP4", greys[35:])]
    engine = load("i3d-k400", device="cpu")
    one, joined = engine.read(whole), engine.read(parts)
    assert joined.duration_s == pytest.approx(one.duration_s, abs=0.01) == pytest.approx(6.0, abs=0.01)
    assert [file.duration_s for file in joined.files] == pytest.approx([3.5, 2.5], abs=0.01)
    assert [joined.locate(time_s)[0] for time_s in (3.4, 3.51)] == parts
    assert joined.locate(5.0)[1] == pytest.approx(1.5, abs=0.01)
    level = joined.source.features["i3d-k400"][:, 0].astype(float)
    true = one.source.features["i3d-k400"][:, 0].astype(float)
    assert len(level) == len(true) == 6
    # rows are at most half a second, five frames, beside those of the whole
    assert np.abs(level - true).max() <= 3 * 5 + 2
    assert joined.source.thumbnail_times == sorted(joined.source.thumbnail_times)
    assert joined.source.thumbnail_times[-1] == pytest.approx(5.5, abs=0.2)


def test_steps_say_their_file_and_documents_are_read_back(tmp_path):
    rows = activities()
    hierarchy = load("raw").read(save_parts(tmp_path, rows, [50])).steps([3, 6])
    document = hierarchy.to_dict()
    assert [file["start_s"] for file in document["files"]] == [0.0, 50.0]
    steps = document["levels"][1]["steps"]
    assert [step["file"].endswith("a.npy") for step in steps] == [step["start_s"] < 50 for step in steps]
    assert all(
        step["file_start_s"] == step["start_s"] - (50 if step["file"].endswith("b.npy") else 0) for step in steps
    )
    assert Hierarchy.from_dict(json.loads(json.dumps(document))) == hierarchy
    own = [hierarchy.of_file(file) for file in hierarchy.files]
    for part, file in zip(own, hierarchy.files, strict=True):
        for level in part.levels:
            assert (level[0].start_s, level[-1].end_s) == (0.0, file.duration_s)
            assert all(a.end_s == b.start_s for a, b in pairwise(level))
        ids = {step.id for step in part}
        assert all(set(step.children) <= ids and (step.parent is None or step.parent in ids) for step in part)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), st.floats(0, 1), st.floats(0, 1))
def test_parts_of_a_span_are_the_span(durations_s, a, b):
    files = place_files([f"{i}.mp4" for i in range(len(durations_s))], durations_s)
    start_s, end_s = sorted((a * files[-1].end_s, b * files[-1].end_s))
    parts = split_by_file(files, start_s, end_s)
    most_s = 2 * MAX_SLIVER_S + 1e-4  # a sliver at either end
    assert sum(end - start for _, start, end in parts) == pytest.approx(end_s - start_s, abs=most_s)
    assert all(-1e-6 <= start <= end <= file.duration_s + 1e-6 for file, start, end in parts)
    file, time_s = locate_time(files, start_s)
    assert file.start_s + time_s == pytest.approx(start_s, abs=1e-5)


def test_a_step_that_begins_just_before_the_end_of_a_file_belongs_to_the_next():
    files = (VideoFile("a", 0.0, 10.13), VideoFile("b", 10.13, 20.0))
    steps = (Step("coarse-1", 0.0, 10.0, 0), Step("coarse-2", 10.0, 10.1, 0), Step("coarse-3", 10.1, 30.13, 0))
    document = Hierarchy("a", "model", 30.13, (steps,), files).to_dict()
    shown = [(step["file"], step["file_start_s"]) for step in document["levels"][0]["steps"]]
    assert shown == [("a", 0.0), ("a", 10.0), ("b", 0.0)]
    assert file_fields(files, Step("", 9.0, 30.0, 0)) == {"file": "a", "file_start_s": 9.0}
    assert file_fields(files, Step("", 10.0, 30.0, 0)) == {"file": "b", "file_start_s": 0.0}


def test_slivers_of_steps_are_not_exported():
    """A step that begins 0.13 s before the end of a file left a step and a clip of 0.13 s there."""
    files = (VideoFile("a", 0.0, 10.13), VideoFile("b", 10.13, 20.0))
    steps = (Step("coarse-1", 0.0, 10.0, 0), Step("coarse-2", 10.0, 30.13, 0))
    hierarchy = Hierarchy("a", "model", 30.13, (steps,), files)
    spans = [[(step.id, step.start_s, step.end_s) for step in hierarchy.of_file(file)] for file in files]
    assert spans == [[("coarse-1", 0.0, 10.13)], [("coarse-2", 0.0, pytest.approx(20.0))]]
    assert split_by_file(files, 10.0, 30.13) == [(files[1], 0.0, pytest.approx(20.0))]
    assert split_by_file(files, 10.1, 10.15) == [(files[0], 10.1, 10.13), (files[1], 0.0, pytest.approx(0.02))]
    assert len(split_by_file(files, 9.0, 12.0)) == 2
