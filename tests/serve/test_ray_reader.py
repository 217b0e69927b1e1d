"""Jobs on a Ray cluster: a lost worker's video is taken up again."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from hiero.engine.ray_reader import RayReader
from hiero.errors import InputError
from hiero.serve.library import open_library
from tests.serve.conftest import write_scenes

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'hiero-video[ray]'")


def test_a_lost_worker_is_replaced(world, tmp_path, monkeypatch):
    for name in ("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setattr("builtins.print", print)  # Ray puts its own in place of it
    video = write_scenes(tmp_path / "long.mp4", [0, 1, 2, 3], 3)
    (tmp_path / "bad.mp4").write_bytes(b"no video")
    library = open_library([str(video), str(tmp_path / "bad.mp4")], {"raw": world.engine})
    reader = RayReader({"model": "raw", "backbone": "egovlp", "device": "cpu"}, 1)
    try:
        killed = threading.Event()

        def kill_worker_once(_):
            if not killed.is_set():
                killed.set()
                os.kill(ray.get(reader.workers[0].__ray_call__.remote(lambda _: os.getpid())), signal.SIGKILL)

        reader(library.find_by_name("long").source, kill_worker_once)
        assert killed.is_set()
        assert library.read(library.find_by_name("long")).duration_s == pytest.approx(12, abs=0.5)
        with pytest.raises(InputError, match=r"bad\.mp4"):
            reader(library.find_by_name("bad").source, lambda _: None)
    finally:
        ray.shutdown()
