"""Edits in the server's state: their history, files of earlier days, and two people at once."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hiero.formats.hiero_json import delete_edits, edits_file, read_edits, write_edits
from hiero.serve.database import FILE_NAME
from hiero.serve.library import open_library
from hiero.serve.settings import ServerSettings
from hiero.serve.state import State
from hiero.serve.users import token_digest
from tests.serve.conftest import connect


@pytest.fixture
def state(tmp_path):
    state = State(tmp_path / "state")
    for name in ("anna", "ben"):
        state.add_token(name, "edit", token_digest(f"token-{name}"))
    return state


def connect_with(library, state, **options):
    return connect(library, ServerSettings(**options), state)


def by(name, version=None):
    return {"Authorization": f"Bearer token-{name}"} | ({"If-Match": version} if version else {})


def rename(steps, label):
    levels = [{**level, "steps": [{**step, "label": label} for step in level["steps"]]} for level in steps["levels"]]
    return {**steps, "levels": levels}


def first_label(document):
    return document["levels"][-1]["steps"][0]["label"]


def test_undo_to_any_point(library, state):
    entry = library.find_by_name("tea")
    url = f"/api/videos/{entry.id}"
    with connect_with(library, state) as client:
        steps = client.get(f"{url}/steps", headers=by("anna")).json()
        version = None
        for name, label in (("anna", "one"), ("ben", "two"), ("anna", "three")):
            answer = client.put(f"{url}/edits", json=rename(steps, label), headers=by(name, version))
            version = answer.headers["etag"]
        assert not edits_file(entry.path).exists()  # the folder of the videos may be read-only
        saves = client.get(f"{url}/history", headers=by("anna")).json()
        assert [save["user"] for save in saves] == ["anna", "ben", "anna"]
        stale = client.post(f"{url}/history/{saves[1]['id']}", headers=by("ben", '"another"'))
        assert stale.status_code == 412
        answer = client.post(f"{url}/history/{saves[2]['id']}", headers=by("ben", version))
        assert answer.json() == {"edited": True}
        assert first_label(client.get(f"{url}/edits", headers=by("anna")).json()) == "one"
        assert len(client.get(f"{url}/history", headers=by("anna")).json()) == 4  # going back can be undone too
        client.delete(f"{url}/edits", headers=by("anna"))
        assert client.get(f"{url}/edits", headers=by("anna")).status_code == 404
        assert client.post(f"{url}/history/999", headers=by("anna")).status_code == 400
    with connect_with(library, State(state.folder)) as client:  # after a restart
        saves = client.get(f"{url}/history", headers=by("anna")).json()
        assert saves[0]["version"] is None
        client.post(f"{url}/history/{saves[2]['id']}", headers=by("anna"))
        assert first_label(client.get(f"{url}/edits", headers=by("anna")).json()) == "three"


def test_the_edits_of_a_server_and_those_of_a_person_do_not_meet(library, state):
    """A server with a state neither reads nor writes the files that the commands use."""
    entry = library.find_by_name("tea")
    url = f"/api/videos/{entry.id}"
    with connect(library) as client:  # a server without a state uses those files
        steps = client.get(f"{url}/steps").json()
        client.put(f"{url}/edits", json=rename(steps, "from the file"))
        assert "--root" in client.get(f"{url}/history").json()["error"]
    with connect_with(library, state) as client:
        assert client.get(f"{url}/edits", headers=by("anna")).status_code == 404
        client.put(f"{url}/edits", json=rename(steps, "on the server"), headers=by("anna"))
        assert first_label(client.get(f"{url}/edits", headers=by("anna")).json()) == "on the server"
    found = read_edits(entry.path, entry.source.key())
    assert first_label(found.hierarchy.to_dict()) == "from the file"
    delete_edits(entry.path, entry.source.key())


def test_edits_follow_a_video_that_moves(library, state, world, tmp_path):
    entry = library.find_by_name("tea")
    with connect_with(library, state) as client:
        steps = client.get(f"/api/videos/{entry.id}/steps", headers=by("anna")).json()
        client.put(f"/api/videos/{entry.id}/edits", json=rename(steps, "kept"), headers=by("anna"))
    shutil.copy(entry.path, tmp_path / "moved.mp4")
    other = open_library([str(tmp_path / "moved.mp4")], library.engine)
    (moved,) = other.entries.values()
    with connect_with(other, State(state.folder)) as client:
        assert first_label(client.get(f"/api/videos/{moved.id}/edits", headers=by("ben")).json()) == "kept"
        (row,) = client.get("/api/videos", headers=by("ben")).json()["videos"]
        assert (row["read"], row["edited"], row["first_steps"]) == (True, True, ["kept"])


def test_a_state_of_the_previous_version(library, tmp_path):
    """state_version_1.sql was written before steps had an origin and a probability."""
    entry = library.find_by_name("tea")
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as database:
        database.executescript(Path(__file__).with_name("state_version_1.sql").read_text().replace("VIDEO", entry.id))
    url = f"/api/videos/{entry.id}"
    write_edits(library.find_by_name("bike").path, None, library.current_steps(library.find_by_name("bike")))
    with connect_with(library, State(tmp_path)) as client:
        assert (tmp_path / "state-1.sqlite").is_file()  # a copy from before
        bike = library.find_by_name("bike")
        assert library.edits.read(bike) is not None  # until now, edits in files were used, too
        delete_edits(bike.path, bike.source.key())
        answer = client.get(f"{url}/edits", headers=by("anna"))
        steps = answer.json()["levels"][0]["steps"]
        assert [(step["label"], step["origin"], step["probability"]) for step in steps] == [
            ("flox the wemble", "person", None),
            ("open the fridge", "model", 0.42),
        ]
        assert [save["user"] for save in client.get(f"{url}/history", headers=by("anna")).json()] == ["anna"]
        assert [job["state"] for job in client.get("/api/jobs", headers=by("anna")).json()] == ["done"]
        document = rename(answer.json(), "new")
        version = answer.headers["etag"]
        assert client.put(f"{url}/edits", json=document, headers=by("anna", version)).status_code == 200


def test_names_with_odd_digits_are_sorted(library, world, tmp_path):
    for name in ("cup ²", "cup ①", "cup ٣", "cup 10", "cup 9", "²"):
        (tmp_path / f"{name}.mp4").hardlink_to(world.root / "new.mp4")
        library.add(tmp_path / f"{name}.mp4", name)
    with connect(library) as client:
        answer = client.get("/api/videos", params={"sort": "name"})
        assert answer.status_code == 200
        names = [video["name"] for video in answer.json()["videos"]]
        assert [name for name in names if name in ("cup 9", "cup 10", "²")] == ["cup 9", "cup 10", "²"]


def test_the_list_is_filtered_sorted_and_paged(library):
    with connect(library) as client:

        def names(**params):
            return [video["name"] for video in client.get("/api/videos", params=params).json()["videos"]]

        assert names(sort="name") == ["bike", "new", "tea"]
        assert names(sort="name", descending=True, n=2) == ["tea", "new"]
        assert names(sort="name", offset=1, n=1) == ["new"]
        assert names(q="E", sort="name") == ["bike", "new", "tea"]
        assert names(q="ea") == ["tea"]
        assert names(sort="length", descending=True)[:2] == ["tea", "bike"]  # not read: its length is not known
        assert names(sort="state")[-1] == "new"
        tea = client.get("/api/videos", params={"q": "tea"}).json()
        assert tea["total"] == 1
        assert tea["videos"][0]["duration_s"] == pytest.approx(30, abs=0.2)
        assert tea["videos"][0]["num_steps"] > 1
        assert client.get("/api/videos", params={"sort": "nonsense"}).status_code == 422
