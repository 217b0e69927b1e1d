"""Recordings while they are written give the frames of the whole file; what cannot be read is said in one line."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

from hiero.decoding.decode import Sampling, read_segments
from hiero.errors import InputError
from hiero.sources import live_source
from hiero.sources.live_source import GrowingFile, Pipe, Stream, open_live_source
from tests.films import import_av
from tests.live import SlowWriter, write_film
from tests.waiting import PATIENCE_S, wait_until

import_av()
FRAGMENTED = {"movflags": "frag_keyframe+empty_moov+default_base_moof"}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(live_source, "CLOSED_IDLE_S", 0.2)
    monkeypatch.setattr(live_source, "POLL_S", 0.01)


def segments(source):
    return list(
        read_segments(
            source, Sampling(spacing_s=2.0, num_frames=8, short_side=32, min_share=0.0, skip_unreferenced=True)
        )
    )


def assert_same(actual, expected):
    assert [segment.index for segment in actual] == [segment.index for segment in expected]
    for one, other in zip(actual, expected, strict=True):
        assert one.times_s == other.times_s
        assert one.end_s == other.end_s
        assert np.array_equal(one.frames, other.frames)


@pytest.mark.parametrize(("name", "options"), [("film.ts", None), ("film.mkv", None), ("film.mp4", FRAGMENTED)])
def test_a_file_that_grows_gives_the_frames_of_the_whole_file(tmp_path, name, options):
    whole = write_film(tmp_path / name, options=options)
    growing = tmp_path / f"growing-{name}"
    growing.touch()
    source = GrowingFile(growing, idle_s=2 * PATIENCE_S)
    begin_s = time.monotonic()
    with SlowWriter(growing, whole.read_bytes()):
        actual = segments(source)
    assert time.monotonic() - begin_s < PATIENCE_S  # the writer was seen to close it; nobody waited for idle_s
    assert source.reached_end
    assert source.position == whole.stat().st_size
    assert_same(actual, segments(whole))


def test_it_waits_for_what_is_not_there_yet(tmp_path):
    data = write_film(tmp_path / "film.ts").read_bytes()
    growing = tmp_path / "growing.ts"
    with growing.open("wb", buffering=0) as file:
        file.write(data[: len(data) // 2])
        source, out = GrowingFile(growing, idle_s=PATIENCE_S), []
        reader = threading.Thread(target=lambda: out.extend(segments(source)), daemon=True)
        reader.start()
        wait_until(lambda: source.position == len(data) // 2)
        time.sleep(0.3)  # it looks who else has the file open
        assert reader.is_alive()
        assert source.unread_s(10.0) == 0.0
        file.write(data[len(data) // 2 :])
    reader.join(PATIENCE_S)
    assert len(out) == 12


def test_without_growth_and_by_stop_it_is_over(tmp_path):
    film = write_film(tmp_path / "film.ts", seconds=4)
    source = GrowingFile(film, idle_s=0.3)
    assert len(segments(source)) == 2
    assert source.reached_end
    with film.open("ab"):  # somebody still writes
        source = GrowingFile(film, idle_s=60.0)
        threading.Timer(0.5, source.stop.set).start()
        assert len(segments(source)) == 2
        assert not source.reached_end


def test_unread_seconds_follow_from_the_bytes(tmp_path):
    film = write_film(tmp_path / "film.ts")
    source = GrowingFile(film, idle_s=1.0)
    source._offset = film.stat().st_size // 2
    assert source.unread_s(decoded_s=12.0) == pytest.approx(12.0, rel=0.3)
    source._offset = 1000  # too little to know
    assert source.unread_s(decoded_s=12.0) == 0.0


def test_a_pipe_gives_the_same(tmp_path):
    whole = write_film(tmp_path / "film.ts")
    read_end, write_end = os.pipe()
    with SlowWriter(os.fdopen(write_end, "wb", buffering=0), whole.read_bytes()):
        assert_same(segments(Pipe("pipe", read_end, None)), segments(whole))
    os.close(read_end)


def test_a_pipe_that_says_nothing_ends(tmp_path):
    read_end, write_end = os.pipe()
    with pytest.raises(InputError, match="pipe: cannot be opened"):
        segments(Pipe("pipe", read_end, 0.2))
    os.close(read_end)
    os.close(write_end)


def test_the_beginning_of_a_pipe_is_remembered_up_to_a_limit(tmp_path, monkeypatch):
    film = write_film(tmp_path / "film.ts", seconds=60)
    monkeypatch.setattr(live_source, "MAX_REPLAY_BYTES", 40_000)
    descriptor = os.open(film, os.O_RDONLY)
    source = Pipe("pipe", descriptor, None)
    assert len(segments(source)) == 30  # less was tried, all was read
    os.close(descriptor)


def test_an_index_at_the_end_is_refused_at_once(tmp_path):
    film = write_film(tmp_path / "film.mp4")
    begin_s = time.monotonic()
    with pytest.raises(InputError, match=r"its index comes at its end.*hiero steps"):
        segments(GrowingFile(film, idle_s=2 * PATIENCE_S))
    assert time.monotonic() - begin_s < PATIENCE_S


def test_what_is_no_video(tmp_path):
    (tmp_path / "noise.ts").write_bytes(os.urandom(20_000))
    with pytest.raises(InputError, match=r"noise.ts: (cannot be opened|has no video stream)"):
        segments(GrowingFile(tmp_path / "noise.ts", idle_s=0.2))


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("rtsp://me:secret@camera.local:554/live?token=secret", "rtsp://camera.local:554/live"),
        ("rtmp://secret@[::1]/app", "rtmp://[::1]/app"),
        ("http://host/a.ts", "http://host/a.ts"),
        ("rtsp://me:secret@host:port/x", "rtsp://host:port/x"),
        ("srt://host:9000?passphrase=secret&latency=1", "srt://host:9000"),
        ("rtsp://host/live?secret", "rtsp://host/live"),
    ],
)
def test_passwords_are_not_shown(address, shown):
    assert str(Stream(address, 1.0)) == shown


def test_an_address_where_nobody_is():
    with pytest.raises(InputError) as caught:
        Stream("rtsp://me:secret@127.0.0.1:1/live", 1.0).open()
    assert "secret" not in str(caught.value)
    assert "rtsp://127.0.0.1:1/live: cannot be opened (Connection refused)" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file:///etc/passwd", "file:// is not supported"),
        ("concat://a|b", "concat:// is not supported"),
        ("/dev/video93", "no such camera. Cameras of this machine: "),
        ("94", "/dev/video94: no such camera"),
        ("missing.ts", "no such file. Start the recording first"),
        (".", "must be a file, a pipe or a camera"),
    ],
)
def test_what_cannot_be_a_source(text, message):
    with pytest.raises(InputError, match=message):
        open_live_source(text)


def test_sources_by_their_names(tmp_path):
    film = write_film(tmp_path / "film.ts", seconds=1)
    assert isinstance(open_live_source(str(film)), GrowingFile)
    assert open_live_source("udp://127.0.0.1:9", 3.0).idle_s == 3.0
    assert isinstance(open_live_source("/dev/null"), Stream)
    with pytest.raises(InputError, match="/dev/null: cannot be opened"):
        open_live_source("/dev/null").open()
    with pytest.raises(InputError, match="must be positive"):
        open_live_source(str(film), 0.0)
