"""Uploads: their places, names and chapters, and how they are processed by themselves."""

from __future__ import annotations

import pytest

from hiero.corpus.corpus import Corpus
from hiero.serve.app import create_app
from hiero.serve.library import Library
from hiero.serve.settings import ServerSettings
from hiero.serve.state import State
from hiero.serve.users import token_digest
from tests.films import write_video
from tests.serve.conftest import connect
from tests.waiting import wait_until


@pytest.fixture
def state(tmp_path):
    state = State(tmp_path / "root")
    for name in ("anna", "ben", "..", "_x"):
        state.add_token(name, "edit", token_digest(f"token-{name}"))
    return state


@pytest.fixture
def root(state):
    return state.folder


def film(folder, seed, fps=10):
    return write_video(folder / f"film{seed}-{fps}.mp4", [40 * seed] * 20, fps=fps).read_bytes()


def upload(client, name, content, user="anna"):
    headers = {"Authorization": f"Bearer token-{user}"}
    return client.post("/api/upload", params={"name": name}, content=content, headers=headers)


def test_only_videos_within_the_limit_are_taken(library, world, tmp_path):
    content = (world.root / "new.mp4").read_bytes()
    with connect(library) as client:
        assert client.post("/api/upload?name=a.mp4", content=b"").status_code in (404, 413)  # off
    library.entries.clear()
    settings = ServerSettings(upload=tmp_path, upload_limit=1, auto=False)
    with connect(library, settings, raise_server_exceptions=False) as client:

        def status(name, content=content, **headers):
            return client.post(f"/api/upload?name={name}", content=content, headers=headers).status_code

        assert status("run.sh") == 400
        assert status("fake.mp4", b"not a video") == 400
        assert status("big.mp4", bytes(2**20 + 1)) == 413
        assert status("x.mp4", Origin="http://evil") == 403
        assert status("\u7530" * 90 + ".mp4") == 400  # too long for file systems
        assert [*tmp_path.iterdir()] == []
        assert status("../../up load.mp4") == 201
        assert status("%00.mp4") in (200, 400)
    (file,) = tmp_path.rglob("*.mp4")
    assert (file.name, file.read_bytes()) == ("up load.mp4", content)
    assert file.parent.name in library.entries
    assert file.parent.parent == tmp_path / "local"  # the user


def test_an_uploaded_playlist_is_refused(library, world, tmp_path):
    """It would show another file of the folder."""
    (tmp_path / "private.mp4").write_bytes((world.root / "new.mp4").read_bytes())
    with connect(library, ServerSettings(upload=tmp_path)) as client:
        content = b"ffconcat version 1.0\nfile private.mp4\n"
        answer = client.post("/api/upload", params={"name": "list.mp4"}, content=content)
    assert (answer.status_code, [path.name for path in tmp_path.iterdir()]) == (400, ["private.mp4"])


def test_people_upload_files_of_the_same_name(world, state, root, tmp_path):
    library = Library(world.engine)
    settings = ServerSettings(root=root, auto=False)
    with connect(library, settings, state) as client:
        added = {
            user: upload(client, "GX010001.MP4", film(tmp_path, seed), user).json()["id"]
            for seed, user in enumerate(("anna", "ben", "..", "_x"))
        }
        listed = client.get("/api/videos", headers={"Authorization": "Bearer token-anna"}).json()["videos"]
    assert {video["id"]: video["folder"] for video in listed} == {id: user for user, id in added.items()}
    assert {video["name"].split()[0] for video in listed} == {"GX010001"}
    assert all(path.is_relative_to(root / "uploads") for path in tmp_path.rglob("GX*"))
    again = Library(world.engine)
    create_app(again, settings, State(root))  # after a restart
    assert {id: entry.name for id, entry in again.entries.items()} == {row["id"]: row["name"] for row in listed}


def test_chapters_of_a_recording_become_one_video(world, state, root, tmp_path):
    library = Library(world.engine)
    with connect(library, ServerSettings(root=root, auto=False), state) as client:
        first = upload(client, "GX010001.MP4", film(tmp_path, 1)).json()
        second = upload(client, "GX020001.MP4", film(tmp_path, 2)).json()
        assert second == first
        assert [path.name for path in library.find(first["id"]).source.paths] == ["GX010001.MP4", "GX020001.MP4"]
        others = [
            upload(client, "GX020001.MP4", film(tmp_path, 3), "ben"),  # of another person
            upload(client, "GX020001.MP4", film(tmp_path, 4)),  # of another recording, since that has one
            upload(client, "GX030001.MP4", film(tmp_path, 5, fps=25)),  # of another camera
        ]
        assert len({first["id"], *(answer.json()["id"] for answer in others)}) == 4
    again = Library(world.engine)
    create_app(again, ServerSettings(root=root, auto=False), State(root))
    assert len(again.find(first["id"]).source.paths) == 2


def test_a_search_before_anything_was_processed_finds_nothing(world, root):
    library = Library(world.engine, corpus=Corpus(str(root / "corpus"), create=True))
    with connect(library) as client:
        assert client.get("/api/search", params={"q": "a cup"}).json() == []


def test_equal_content_is_stored_once(library, world, state, root):
    content = (world.root / "tea.mp4").read_bytes()
    with connect(library, ServerSettings(root=root), state) as client:
        answer = upload(client, "my tea.mp4", content)
    assert (answer.status_code, answer.json()["id"]) == (200, library.find_by_name("tea").id)
    assert answer.json()["existed"]
    assert not [*root.rglob("*.mp4")]


def test_an_upload_is_processed_by_itself_also_after_a_kill(world, state, root):
    library = Library(world.engine)
    with connect(library, ServerSettings(root=root), state) as client:
        id = upload(client, "new.mp4", (world.root / "new.mp4").read_bytes()).json()["id"]
        wait_until(lambda: library.find(id).is_read)
    folder = root / "uploads" / "ben" / "0123456789ab"  # its job was not stored before the kill
    folder.mkdir(parents=True)
    (folder / "late.mp4").write_bytes(film(root, 3))
    again = Library(world.engine)
    app = create_app(again, ServerSettings(root=root), State(root))
    assert again.find(id).is_read
    wait_until(lambda: again.find(folder.name).is_read)
    wait_until(lambda: not app.guard.app.state.services.jobs.count("running"))
    app.close()
