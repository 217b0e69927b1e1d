"""Recordings as they come: steps so far, and in the end the result of the whole file."""

from __future__ import annotations

import io
import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from hiero import plugins
from hiero.backbones import registry
from hiero.engine import load
from hiero.engine.live import LiveReader, LiveSettings, LiveSteps, interrupted_recordings
from hiero.errors import InputError
from hiero.extraction import live_extraction
from hiero.extraction.feature_log import load_recording
from hiero.extraction.video_features import RECORDING_SUFFIX
from hiero.sources import live_source
from hiero.sources.live_source import GrowingFile, LiveSource, Pipe, Stream
from tests.films import import_av
from tests.live import RtspServer, SlowWriter, free_port, install_backbone, write_film
from tests.waiting import PATIENCE_S, wait_until

av = import_av()
# That a connection broke off is a message of the reader.
pytestmark = pytest.mark.filterwarnings("ignore::hiero.decoding.decode.BrokenVideoWarning")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(live_source, "CLOSED_IDLE_S", 0.2)
    monkeypatch.setattr(live_source, "POLL_S", 0.01)
    monkeypatch.setattr(live_extraction, "TICK_S", 0.02)


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """An engine whose backbone needs no weights."""
    (tmp_path / "site").mkdir()
    monkeypatch.syspath_prepend(str(install_backbone(tmp_path / "site")))
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("COLOURS_S", raising=False)
    for cached in (plugins.installed_entry_points, plugins.registered_entry_points, registry.backbones):
        cached.cache_clear()
    yield load("raw", backbone="colours", device="cpu")
    monkeypatch.undo()
    for cached in (plugins.installed_entry_points, plugins.registered_entry_points, registry.backbones):
        cached.cache_clear()


@pytest.fixture(scope="module")
def film(tmp_path_factory) -> Path:
    return write_film(tmp_path_factory.mktemp("film") / "film.ts", seconds=40, scene_s=10, fps=5)


def follow(reader):
    return [update for update in reader.updates() if update is not None]


def whole_file(engine, path, home, monkeypatch):
    """The hierarchy of a file as `hiero steps` finds it, without what was kept before."""
    monkeypatch.setenv("HIERO_HOME", str(home))
    return engine.read(path)


def test_a_file_that_grows_gives_the_result_of_the_whole_file(engine, film, tmp_path, monkeypatch):
    growing, lines = tmp_path / "growing.ts", []
    growing.touch()
    reader = LiveReader(engine, GrowingFile(growing, 5.0), LiveSettings(10.0, 60.0), lines.append)
    with SlowWriter(growing, film.read_bytes(), num_pieces=60):
        updates = follow(reader)
    assert len(updates) >= 5
    closed = [step for update in updates for step in update.closed]
    assert closed
    assert closed == reader.steps.closed
    assert all(a.end_s == b.start_s for a, b in pairwise([*closed, *updates[-1].open_steps]))
    result = reader.finish()
    assert result.differences == ()
    assert result.num_shown == len(closed)
    assert not list((tmp_path / "home" / "cache" / "live").iterdir())
    expected = whole_file(engine, growing, tmp_path / "another", monkeypatch)
    assert result.video.steps() == expected.steps()
    assert np.array_equal(result.video.nodes, expected.nodes)
    assert result.video.source.thumbnails == expected.source.thumbnails
    assert lines == []


def test_what_was_read_live_is_not_read_again(engine, film, monkeypatch):
    reader = LiveReader(engine, GrowingFile(film, 0.3))
    follow(reader)
    reader.finish()
    monkeypatch.setattr("hiero.extraction.extractor.extract_features", lambda *_, **__: pytest.fail("extracted again"))
    assert engine.read(film).duration_s == 40.0


def test_without_a_cache_nothing_stays(engine, film, tmp_path):
    reader = LiveReader(engine, GrowingFile(film, 0.3), LiveSettings(cache=False))
    follow(reader)
    assert reader.finish().video.steps() == engine.read(film, cache=False).steps()
    assert not reader.log.path.exists()
    assert not (tmp_path / "home" / "cache").exists()


def test_a_slow_machine_skips_and_fills_a_file_in_later(engine, film, tmp_path, monkeypatch):
    growing, lines = tmp_path / "growing.ts", []
    growing.touch()
    for module in (live_extraction, live_source):  # a world in which 40 s take 2 s
        monkeypatch.setattr(module, "monotonic", lambda: 20 * time.monotonic())
    monkeypatch.setenv("COLOURS_S", "0.3")  # and a window of 2 s takes 6
    reader = LiveReader(engine, GrowingFile(growing, 200.0), LiveSettings(max_delay_s=4.0), lines.append)
    with SlowWriter(growing, film.read_bytes(), num_pieces=40, pause_s=0.05):
        updates = follow(reader)
    assert max(update.delay_s for update in updates) < 3.0  # of our world
    assert 5 < reader.extraction.num_skipped < 20
    assert "slower than real time" in lines[0]
    monkeypatch.delenv("COLOURS_S")
    result = reader.finish()
    assert result.differences == ()
    expected = whole_file(engine, growing, tmp_path / "another", monkeypatch)
    assert result.video.steps() == expected.steps()
    assert np.array_equal(result.video.source.features["colours"], expected.source.features["colours"])
    assert result.video.source.thumbnail_times == expected.source.thumbnail_times


def test_what_was_there_before_is_read_without_skipping(engine, film, monkeypatch):
    monkeypatch.setattr(live_extraction, "monotonic", lambda: 4 * time.monotonic())
    monkeypatch.setenv("COLOURS_S", "0.01")
    reader = LiveReader(engine, GrowingFile(film, 0.3), LiveSettings(max_delay_s=10.0))
    follow(reader)
    assert reader.extraction.num_skipped == 0
    assert reader.log.num_done == 20
    reader.finish()


class FakeTime(threading.Event):
    """The time of a world without waiting: it goes on when a camera films, and when somebody waits for `stop`."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def wait(self, timeout=None):
        self.now_s += timeout or 0.0
        return self.is_set()


class Camera(LiveSource):
    """Films one after the other in real time; between them it cannot be opened a few times."""

    is_lossy = True

    def __init__(self, film: Path, time: FakeTime, num_films: int = 1, num_failures: int = 0) -> None:
        super().__init__("camera", idle_s=100.0)
        self.film, self.stop = film, time
        self.num_left, self.num_failures, self.failures = num_films, num_failures, 0

    def open(self):
        if not self.num_left or self.failures:
            self.failures = max(0, self.failures - 1)
            raise InputError("camera: cannot be opened (unplugged)")
        self.num_left, self.failures = self.num_left - 1, self.num_failures
        film, rate = io.BytesIO(self.film.read_bytes()), self.film.stat().st_size / 40

        class Reader:
            def read(_, size):  # noqa: N805
                data = film.read(min(size, 4096))
                self.stop.now_s += len(data) / rate
                return data

        return av.open(Reader())


@pytest.fixture
def fake_time(monkeypatch):
    time = FakeTime()
    monkeypatch.setattr(live_extraction, "monotonic", time)
    return time


@pytest.fixture
def _patient_queue(monkeypatch):
    """Nothing is skipped, however slow the machine is."""
    monkeypatch.setattr(live_extraction, "MAX_QUEUE_WINDOWS", 1000)


PATIENT = LiveSettings(max_delay_s=2000.0)


def test_windows_of_a_camera_that_a_slow_machine_drops_are_counted(engine, film, fake_time, monkeypatch):
    lines = []
    reader = LiveReader(engine, Camera(film, fake_time), LiveSettings(max_delay_s=4.0), lines.append)
    run, extraction = reader.extraction.networks.run, reader.extraction

    def run_at_the_end(batch):  # slower than the camera
        wait_until(lambda: not extraction._thread.is_alive())
        return run(batch)

    monkeypatch.setattr(extraction.networks, "run", run_at_the_end)
    follow(reader)
    assert reader.log.num_done in (2, 3)  # the queue has two windows, the network one at most: nothing can pile up
    assert extraction.num_skipped == 20 - reader.log.num_done  # windows of 2 s: each was read, or skipped
    result = reader.finish()
    # also those after the last window that was read
    assert result.differences[0].startswith(f"{extraction.num_skipped} of 20 windows")
    assert "were skipped or lost" in result.differences[0]
    assert result.video.duration_s == reader.log.end_s <= 6.0
    assert any("slower than real time" in line for line in lines)


@pytest.mark.usefixtures("_patient_queue")
def test_a_lost_connection_is_taken_up_again_and_time_goes_on(engine, film, fake_time, monkeypatch):
    monkeypatch.setattr(live_extraction, "FIRST_BACKOFF_S", 10.0)  # so that it is away for 30 s
    lines, camera = [], Camera(film, fake_time, num_films=2, num_failures=1)
    reader = LiveReader(engine, camera, PATIENT, lines.append)
    follow(reader)
    lost = [line for line in lines if "connection lost" in line]
    back = [line for line in lines if "reconnected after" in line]
    assert (len(lost), len(back)) == (2, 1)
    assert "could not be reconnected within 100 s; the recording ends" in lines[-1]
    assert reader.log.num_done == 40
    # The second film comes after the first and the time between, in whole windows; decoding is a few frames late.
    assert reader.log.end_s == pytest.approx(110.0, abs=4.0)
    result = reader.finish()
    assert result.differences[0].startswith(f"{reader.log.num_windows - 40} of {reader.log.num_windows} windows")


@pytest.mark.usefixtures("_patient_queue")
def test_more_than_an_hour_without_a_connection_is_left_out(engine, film, fake_time, monkeypatch):
    monkeypatch.setattr(live_extraction, "FIRST_BACKOFF_S", 1500.0)
    monkeypatch.setattr(live_extraction, "MAX_BACKOFF_S", 3000.0)
    lines, camera = [], Camera(film, fake_time, num_films=2, num_failures=1)
    camera.idle_s = 5000.0
    reader = LiveReader(engine, camera, PATIENT, lines.append)
    follow(reader)
    assert any("left out of the times" in line for line in lines)
    assert (reader.log.num_done, reader.log.end_s) == (40, pytest.approx(80.0, abs=1.0))
    assert reader.finish().differences == ()


def test_a_pipe_waits_and_its_recording_can_be_read_later(engine, film, tmp_path, monkeypatch):
    monkeypatch.setenv("COLOURS_S", "0.02")
    read_end, write_end = os.pipe()
    reader = LiveReader(engine, Pipe("pipe", read_end, None), LiveSettings(folder=tmp_path / "out"))
    with SlowWriter(os.fdopen(write_end, "wb", buffering=0), film.read_bytes(), num_pieces=5, pause_s=0.0):
        follow(reader)
    os.close(read_end)
    assert reader.extraction.num_skipped == 0
    result = reader.finish()
    recording = tmp_path / "out" / f"recording{RECORDING_SUFFIX}"
    expected = whole_file(engine, film, tmp_path / "another", monkeypatch)
    for video in (result.video, engine.read(recording)):
        assert [[(s.start_s, s.end_s, s.thread) for s in level] for level in video.steps().levels] == [
            [(s.start_s, s.end_s, s.thread) for s in level] for level in expected.steps().levels
        ]
    with pytest.raises(InputError, match="earlier recording"):
        LiveReader(engine, Pipe("pipe", 0, None), LiveSettings(folder=tmp_path / "out"))


def test_a_run_that_was_killed_is_resumed(engine, film, tmp_path, monkeypatch):
    """A process that dies leaves the log as it is; here it is left by abandoning the reader."""
    first = LiveReader(engine, GrowingFile(film, 0.3))
    updates = first.updates()
    while first.log.num_done < 7:
        next(updates)
    updates.close()
    num_done = first.log.num_done  # an update may find several windows where the machine is slow
    first.log.close()
    lines, computed = [], []
    second = LiveReader(engine, GrowingFile(film, 0.3), LiveSettings(10.0, 60.0), lines.append)
    run = second.extraction.networks.run
    monkeypatch.setattr(
        second.extraction.networks, "run", lambda batch: computed.extend(w.index for w in batch) or run(batch)
    )
    follow(second)
    assert computed == list(range(num_done, 20))
    assert lines[0] == f"resuming after 0:{2 * num_done}"
    result = second.finish()
    assert result.video.steps() == whole_file(engine, film, tmp_path / "another", monkeypatch).steps()


def test_another_file_of_the_same_name_is_not_taken_for_it(engine, tmp_path):
    path = write_film(tmp_path / "a.ts", seconds=8)
    first = LiveReader(engine, GrowingFile(path, 0.3))
    follow(first)
    first.log.close()
    path.write_bytes(write_film(tmp_path / "b.ts", seconds=12, scene_s=2).read_bytes())
    second = LiveReader(engine, GrowingFile(path, 0.3))
    assert second.log.num_done == 0
    second.close()


def test_a_full_disk_ends_the_recording_and_loses_nothing(engine, film):
    lines = []
    reader = LiveReader(engine, GrowingFile(film, 0.3), message=lines.append)
    append = reader.log.append

    def fail(index, *arguments):
        if index == 5:
            raise OSError(28, "No space left on device")
        append(index, *arguments)

    reader.log.append = fail
    follow(reader)
    assert "No space left on device; the recording ends" in lines[0]
    assert reader.finish().video.duration_s == 10.0


def test_stop_ends_it_and_the_difference_is_said(engine, film, tmp_path):
    growing = tmp_path / "growing.ts"
    growing.write_bytes(film.read_bytes()[: film.stat().st_size // 2 // 188 * 188])
    with growing.open("ab"):  # somebody still writes
        reader = LiveReader(engine, GrowingFile(growing, 60.0))
        for _ in reader.updates():
            if reader.log.num_done >= 6:
                reader.stop()
        result = reader.finish()
    assert 12 <= result.video.duration_s <= 22
    assert "the file may be longer" in result.differences[0]


def test_a_file_that_grows_after_its_end_is_not_taken_for_whole(engine, film, tmp_path):
    growing = tmp_path / "growing.ts"
    growing.write_bytes(film.read_bytes())
    reader = LiveReader(engine, GrowingFile(growing, 0.3))
    follow(reader)
    with growing.open("ab") as file:
        file.write(film.read_bytes())
    assert "the file may be longer" in reader.finish().differences[0]


def test_nothing_at_all(engine, tmp_path):
    (tmp_path / "empty.ts").touch()
    reader = LiveReader(engine, GrowingFile(tmp_path / "empty.ts", 0.2))
    with pytest.raises(InputError, match=r"empty.ts: cannot be opened"):
        follow(reader)
    with pytest.raises(InputError, match="ended before a window was complete"):
        reader.finish()
    assert not reader.log.path.exists()


def test_udp(engine, tmp_path):
    stream = write_film(tmp_path / "film.ts", seconds=12, bf=0).read_bytes()
    port, lines = free_port(socket.SOCK_DGRAM), []
    stopped = threading.Event()

    def send():
        wait_until(lambda: f":{port:04X} " in Path("/proc/net/udp").read_text())  # the reader listens
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for start in range(0, len(stream), 7 * 188):
                sender.sendto(stream[start : start + 7 * 188], ("127.0.0.1", port))
                if stopped.wait(7 * 188 * 2.5 / len(stream)):
                    return

    reader = LiveReader(engine, Stream(f"udp://127.0.0.1:{port}", 1.0), message=lines.append)
    sender = threading.Thread(target=send)
    sender.start()
    follow(reader)
    stopped.set()
    sender.join()
    assert 8.0 <= reader.finish().video.duration_s <= 13.0
    assert any("connection lost" in line for line in lines)


def test_an_http_answer_that_grows(engine, tmp_path, monkeypatch):
    """A server that sends what it records, without saying how long that will be: the whole of it is read, once."""
    film = write_film(tmp_path / "film.ts", seconds=16, scene_s=4, bf=0)
    stream, requests, lines = film.read_bytes(), [], []

    class Recorder(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            if len(requests) > 1:
                self.send_error(404)  # the recording is over
                return
            self.send_response(200)
            self.send_header("Content-Type", "video/mp2t")
            self.end_headers()
            size = len(stream) // 30 // 188 * 188
            for start in range(0, len(stream), size):
                self.wfile.write(stream[start : start + size])
                self.wfile.flush()
                time.sleep(0.03)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Recorder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/live.ts?token=secret"
        reader = LiveReader(engine, Stream(address, 1.0), LiveSettings(4.0, 60.0), lines.append)
        updates = follow(reader)
        server.shutdown()
    assert requests[0] == "/live.ts?token=secret"
    assert len(updates) >= 3
    result = reader.finish()
    assert not any("secret" in line for line in lines)
    expected = whole_file(engine, film, tmp_path / "another", monkeypatch)
    assert result.video.duration_s == pytest.approx(expected.duration_s, abs=0.3)
    ends, true_ends = ([step.end_s for step in video.steps([4]).levels[0]] for video in (result.video, expected))
    assert ends == pytest.approx(true_ends, abs=0.3)


def test_rtsp(engine, tmp_path):
    stream = write_film(tmp_path / "film.ts", seconds=16, scene_s=4, bf=0).read_bytes()
    server, lines = RtspServer(stream, seconds=16, speed=10.0), []
    source = Stream(f"rtsp://me:secret@127.0.0.1:{server.port}/live?token=secret", 1.0)
    reader = LiveReader(engine, source, message=lines.append)
    threading.Thread(target=lambda: server.played.wait(PATIENCE_S) and server.close(), daemon=True).start()
    follow(reader)
    assert server.num_played >= 1
    assert "Basic " in server.requests[-1]
    assert any("connection lost" in line for line in lines)
    assert not any("secret" in line for line in lines)
    result = reader.finish()
    assert result.video.duration_s >= 14.0
    assert "secret" not in str(result.video.path)


def test_a_recording_without_a_folder_that_was_cut_off_is_named(engine, film):
    read_end, write_end = os.pipe()
    reader = LiveReader(engine, Pipe("pipe", read_end, None))
    with SlowWriter(os.fdopen(write_end, "wb", buffering=0), film.read_bytes(), pause_s=0.0):
        follow(reader)
    os.close(read_end)
    assert interrupted_recordings() == []  # it is being written
    reader.log.close()
    assert interrupted_recordings() == [reader.log.path]
    assert load_recording(reader.log.path)[0].duration_s == 40.0


def made_rows(index: int) -> dict[str, torch.Tensor]:
    """A world with an activity every 40 s, which come back."""
    rng = np.random.default_rng(index)
    activity = np.random.default_rng((index // 20) % 3).normal(0, 1, 12)
    return {"colours": torch.from_numpy((activity + rng.normal(0, 0.2, (2, 12))).astype(np.float32))}


def test_hours_in_bounded_memory(engine):
    """Closed steps cover the time without gaps and never change; what is remembered does not grow."""
    steps = LiveSteps(engine, LiveSettings(40.0, 200.0, labels=[]))
    seen, sizes = [], set()
    for index in range(3600):  # two hours
        steps.add(index, 2.0 * (index + 1), made_rows(index))
        if index % 10 == 9:
            update = steps.update()
            seen += update.closed
            sizes.add(len(steps._windows))
            assert update.open_steps[-1].end_s == update.end_s
            assert update.end_s - update.open_steps[0].start_s < 150.0
    assert max(sizes) == 100
    assert seen == steps.closed
    assert seen[0].start_s == 0.0
    assert all(a.end_s == b.start_s for a, b in pairwise(seen))
    assert 120 <= len(seen) <= 240
    ends = np.array([step.end_s for step in seen])
    truth = np.arange(40.0, ends[-1], 40.0)
    assert np.mean([np.abs(ends - true_s).min() <= 2.0 for true_s in truth]) > 0.95
    # Two minutes later an activity is still in the window of 200 s, so it is the same thread again and again.
    assert max(step.thread for step in seen) < len(seen) / 3
    document = steps.hierarchy()
    assert document.levels[0][-1].end_s == document.duration_s == 7200.0


def test_skipped_windows_keep_the_clock(engine):
    steps = LiveSteps(engine, LiveSettings(20.0, 60.0, labels=[]))
    for index in (3, 4, 5, 40, 10_000):
        steps.add(index, 2.0 * (index + 1), made_rows(index))
        assert steps.update().open_steps[-1].end_s == 2.0 * (index + 1)
    assert len(steps._windows) == 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": ["cut"]}, "raw features cannot be compared with texts"),
        ({"step_s": 0.0}, "at most half of --window-s"),
        ({"step_s": 600.0}, "at most half of --window-s"),
        ({"max_delay_s": 0.0}, "must be positive"),
    ],
)
def test_settings_that_make_no_sense(engine, film, options, message):
    with pytest.raises(InputError, match=message):
        LiveReader(engine, GrowingFile(film, 1.0), LiveSettings(**options))
