"""What the collection needs: facets, reading of all videos, time left, the folder report, and adding videos."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing

import pytest

from hiero.formats.hiero_json import edits_file
from hiero.serve.adding import SAMPLE
from hiero.serve.database import FILE_NAME
from hiero.serve.jobs import _progress_callback
from hiero.serve.settings import ServerSettings
from hiero.serve.state import Job, State
from hiero.types import ProgressEvent
from tests.serve.conftest import connect
from tests.waiting import wait_until

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def library(library):
    library.cache = False  # so that a video that a test reads is not read in the next one
    return library


def names(answer):
    return sorted(video["name"] for video in answer.json()["videos"])


def test_facets_count_and_narrow(client, library, world):
    os.utime(world.root / "bike.mp4", (1_000_000_000, 1_000_000_000))
    library.find_by_name("tea").names = ("pour the tea", "wash a cup", "sit down", "read")
    library.find_by_name("bike").names = ("wash a cup",)
    answer = client.get("/api/videos").json()
    assert (answer["total"], answer["unread"]) == (3, 1)
    facets = answer["facets"]
    assert facets["folder"] == [{"value": "world", "num": 3}]
    assert {"value": "2001-09", "num": 1} in facets["month"]
    assert names(client.get("/api/videos", params={"month": "2001-09"})) == ["bike"]
    assert names(client.get("/api/videos", params={"folder": "world"})) == ["bike", "new", "tea"]
    assert names(client.get("/api/videos", params={"folder": str(world.root)})) == []
    steps = {row["value"]: row["num"] for row in facets["step"]}
    assert steps["wash a cup"] == 2
    step = "pour the tea"
    with_step = names(client.get("/api/videos", params={"step": step}))
    assert len(with_step) == steps[step]
    assert names(client.get("/api/videos", params={"q": step.upper()})) == with_step  # the text also finds steps
    tea = next(video for video in answer["videos"] if video["name"] == "tea")
    assert tea["first_steps"] == ["pour the tea", "wash a cup", "sit down"]
    assert str(world.root) not in client.get("/api/videos").text  # the folders above are nobody's business
    shutil.copystat(world.root / "tea.mp4", world.root / "bike.mp4")


@pytest.mark.slow
def test_people_are_those_who_added_read_or_corrected_a_video(client, library):
    tea = library.find_by_name("tea")
    assert client.get("/api/videos").json()["facets"]["person"] == []
    hierarchy = client.get(f"/api/videos/{tea.id}/steps").json()
    hierarchy["levels"][-1]["steps"][0]["label"] = "warm the pot"
    assert client.put(f"/api/videos/{tea.id}/edits", json=hierarchy).status_code == 200
    listed = client.get("/api/videos", params={"person": "local"})
    assert names(listed) == ["tea"]
    assert listed.json()["videos"][0]["first_steps"][0] == "warm the pot"  # a correction is seen at once
    assert client.delete(f"/api/videos/{tea.id}/edits").status_code == 200
    wait_until(lambda: names(client.get("/api/videos", params={"step": "warm the pot"})) == [])


def test_a_page_of_videos_does_not_read_the_audit_log(library, tmp_path):
    state, tea, bike = State(tmp_path), *(library.find_by_name(name).id for name in ("tea", "bike"))
    state.add_audit("anna", "save edits", tea)
    with connect(library, state=state) as client:
        client.get("/api/videos")
        with closing(sqlite3.connect(tmp_path / FILE_NAME)) as database, database:
            database.execute("DELETE FROM audit")
        state.add_audit("ben", "save edits", bike)
        facets = client.get("/api/videos").json()["facets"]
    assert {row["value"] for row in facets["person"]} == {"anna", "ben"}


def test_all_unread_videos_are_read(client, library):
    assert client.post("/api/read", params={"q": "tea"}).json() == {"started": 0}
    assert client.post("/api/read").json() == {"started": 1}
    new = library.find_by_name("new")
    wait_until(lambda: new.is_read)
    assert client.get("/api/videos").json()["unread"] == 0


def test_a_job_says_what_it_does_and_how_long_it_takes(monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr("hiero.serve.jobs.time.monotonic", lambda: now_s[0])
    job = Job("1", "video")
    report = _progress_callback(job)
    report(ProgressEvent("download", "weights", 1e6, 2e6))
    assert job.to_dict()["message"] == "downloading 1 of 2 MB"
    now_s[0] += 50  # which says nothing about the speed of reading
    report(ProgressEvent("read", "video", 0.0, 60.0))
    assert job.to_dict()["left_s"] is None  # nothing is known yet
    now_s[0] += 10
    report(ProgressEvent("read", "video", 20.0, 60.0))
    assert (job.to_dict()["left_s"], job.to_dict()["message"]) == (20.0, "")
    now_s[0] += 10
    report(ProgressEvent("read", "video", 61.0, 60.0))
    assert job.to_dict()["left_s"] == 0.0
    report(ProgressEvent("message", message="adding it to the search"))
    assert (job.to_dict()["left_s"], job.to_dict()["message"]) == (None, "adding it to the search")


@pytest.mark.slow
def test_the_report_compares_what_has_been_read(client, library):
    report = client.get("/api/report").json()
    assert [video["name"] for video in report["videos"]] == ["bike", "tea"]
    assert report["videos"][1]["id"] == library.find_by_name("tea").id
    assert len(report["pictures"]) == len(report["activities"]) > 0
    assert "at least two" in client.get("/api/report", params={"q": "bike"}).json()["error"]


@pytest.mark.slow
def test_one_damaged_file_does_not_break_the_report_of_the_others(client, library):
    library.read(library.find_by_name("new"))
    damaged = edits_file(library.find_by_name("tea").path)
    damaged.write_text('{"duration_s": 30, "levels": [{"steps": []}]}')
    try:
        report = client.get("/api/report").json()
        answer = client.get("/api/report", params={"q": "tea"})
    finally:
        damaged.unlink()
    assert [video["name"] for video in report["videos"]] == ["bike", "new"]
    assert report["videos"][1]["id"] == library.find_by_name("new").id
    assert "tea" in report["errors"][0]
    assert (answer.status_code, damaged.name in answer.json()["error"]) == (400, True)


def test_the_sample(library, tmp_path):
    with connect(library) as client:
        assert client.post("/api/sample").status_code == 404  # nothing can be added to this server
    with connect(library, ServerSettings(upload=tmp_path)) as client:
        first, again = client.post("/api/sample").json(), client.post("/api/sample").json()
        assert first["id"] == again["id"]  # it is added once
        assert client.get(f"/api/videos/{first['id']}").json()["duration_s"] == pytest.approx(48, abs=0.2)
    (file,) = tmp_path.rglob(SAMPLE.name)
    assert file.read_bytes() == SAMPLE.read_bytes()


@pytest.fixture
def home(tmp_path, world, monkeypatch):
    home = tmp_path / "home"
    (home / "clips" / "monday").mkdir(parents=True)
    (home / ".secret").mkdir()
    (tmp_path / "outside").mkdir()
    shutil.copy(world.root / "new.mp4", home / "clips" / "monday" / "walk.mp4")
    shutil.copy(world.root / "new.mp4", tmp_path / "outside" / "private.mp4")
    (home / "link").symlink_to(tmp_path / "outside")
    (home / "clips" / "linked.mp4").symlink_to(tmp_path / "outside" / "private.mp4")
    monkeypatch.setenv("HOME", str(home))
    return home


def test_folders_of_the_home_folder(library, home):
    settings = ServerSettings(choose_folders=True)
    with connect(library, settings) as client:
        rows = client.get("/api/folders").json()["folders"]
        assert [row["name"] for row in rows] == ["clips", "link"]
        monday = client.get("/api/folders", params={"path": "clips"}).json()
        assert monday["folders"] == [{"name": "monday", "videos": 1}]
        assert client.post("/api/folders", json={"path": "clips"}).json() == {"added": 1}  # not the linked video
        assert client.post("/api/folders", json={"path": ".secret"}).status_code == 400  # has none
    assert library.find_by_name("monday/walk") is not None


@pytest.mark.parametrize("path", ["..", "../outside", "link", "/etc", "clips/../../outside", "nowhere", "\0", "~"])
def test_no_path_leaves_the_home_folder(library, home, path):
    settings = ServerSettings(choose_folders=True)
    with connect(library, settings) as client:
        assert client.get("/api/folders", params={"path": path}).status_code == 404
        assert client.post("/api/folders", json={"path": path}).status_code == 404


def test_folders_are_closed_by_default(client, home):
    assert client.get("/api/folders").status_code == 404
    assert client.post("/api/folders", json={"path": "clips"}).status_code == 404
