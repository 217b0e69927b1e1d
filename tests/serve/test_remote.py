"""Remote videos in a server, and videos that arrive while it runs."""

from __future__ import annotations

import shutil

import pytest
from fastapi.testclient import TestClient

from hiero.corpus.indexing import ArrivalWatcher
from hiero.corpus.table import is_corpus
from hiero.serve import jobs
from hiero.serve.app import create_app
from hiero.serve.library import open_library
from hiero.serve.state import State
from tests.remote_server import file_server
from tests.serve.conftest import connect
from tests.waiting import wait_until


def test_a_video_of_another_server(world, tmp_path):
    content = world.videos[0].read_bytes()
    with file_server() as origin:
        address = origin.put("/films/tea.mp4", content) + "?signature=secret"
        assert not is_corpus(address)
        library = open_library([address], world.engine)
        (entry,) = library.entries.values()
        assert not entry.path.exists()  # listed, not brought
        with connect(library, state=State(tmp_path)) as client:
            (listed,) = client.get("/api/videos").json()["videos"]
            assert (listed["name"], listed["read"], listed["playable"]) == ("tea", False, True)
            job = client.post(f"/api/videos/{entry.id}/read").json()
            wait_until(lambda: client.get(f"/api/jobs/{job['id']}").json()["state"] in ("done", "failed"))
            assert client.get(f"/api/jobs/{job['id']}").json()["message"] == ""
            assert client.get(f"/api/videos/{entry.id}/steps").json()["duration_s"] == pytest.approx(30, abs=0.2)
            part = client.get(f"/api/videos/{entry.id}/file", headers={"Range": "bytes=100-199"})
            assert (part.status_code, part.content) == (206, content[100:200])
            assert (
                "secret"
                not in client.get("/api/jobs").text + client.get("/api/videos").text + client.get("/api/audit").text
            )


def test_videos_that_arrive(world, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "SCAN_EVERY_S", 0.1)
    folder = tmp_path / "share"
    folder.mkdir()
    library = open_library([str(folder)], world.engine, may_be_empty=True)
    app = create_app(library, watcher=ArrivalWatcher([folder]))
    with TestClient(app, base_url="http://localhost") as client:
        shutil.copy(world.videos[0], folder / "tea.mp4")
        wait_until(lambda: any(video["read"] for video in client.get("/api/videos").json()["videos"]))
        assert [line["user"] for line in client.get("/api/audit").json()] == ["watch"]
        assert client.get("/api/videos").json()["facets"]["person"] == []  # nobody has added it
    app.close()
