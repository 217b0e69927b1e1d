"""One folder holds a server; a backup of it is complete, and is restored completely or not at all."""

from __future__ import annotations

import io
import json
import shutil
import signal
import sqlite3
import tarfile
import threading
import urllib.request
from contextlib import closing, suppress
from pathlib import Path

import pytest

from hiero.corpus.corpus import Corpus
from hiero.errors import InputError
from hiero.serve.app import create_app
from hiero.serve.backup import MANIFEST, back_up, restore, take_over
from hiero.serve.database import FILE_NAME
from hiero.serve.library import open_library
from hiero.serve.settings import ServerSettings
from hiero.serve.state import State
from hiero.serve.users import token_digest
from tests.films import write_video
from tests.processes import run_hiero
from tests.serve.test_server import end, get, start
from tests.waiting import wait_until


@pytest.fixture
def root(tmp_path):
    """A server with an edit, a token and an upload."""
    root = tmp_path / "root"
    state = State(root)
    state.add_token("anna", "admin", token_digest("token"))
    state.add_edit("key", "version", b"content", 1, "anna")
    state.close()
    folder = root / "uploads" / "anna" / "0123456789ab"
    folder.mkdir(parents=True)
    (folder / "kitchen.mp4").write_bytes(b"a film")
    (root / "uploads" / ".0123456789abcdef.part").write_bytes(b"half a film")
    return root


def files_of(folder):
    return {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file()}


def test_a_restored_server_has_everything(root, tmp_path):
    run_hiero("backup", root, tmp_path / "out.tar")
    run_hiero("restore", tmp_path / "out.tar", tmp_path / "new")
    assert files_of(tmp_path / "new") == {FILE_NAME, "uploads/anna/0123456789ab/kitchen.mp4"}
    state = State(tmp_path / "new")
    assert state.find_token(token_digest("token")).role == "admin"
    assert [save.user for save in state.edit_history("key", 9)] == ["anna"]
    state.close()


def test_nothing_is_overwritten(root, tmp_path):
    back_up(root, tmp_path / "out.tar")
    with pytest.raises(InputError, match=r"out\.tar"):
        back_up(root, tmp_path / "out.tar")
    with pytest.raises(InputError, match="root"):
        restore(tmp_path / "out.tar", root)
    with pytest.raises(InputError, match="nothing"):
        back_up(tmp_path / "nothing", tmp_path / "other.tar")


def change(archive, changes):
    """The archive with files changed, removed (None) or added."""
    changed = archive.with_name("changed.tar")
    with tarfile.open(archive) as old, tarfile.open(changed, "w") as new:
        contents = {member.name: old.extractfile(member).read() for member in old}
        for name, content in (contents | changes).items():
            if content is not None:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                new.addfile(info, io.BytesIO(content))
    return changed


UPLOAD = "uploads/anna/0123456789ab/kitchen.mp4"


@pytest.mark.parametrize(
    "changes",
    [
        {UPLOAD: b"another film"},
        {UPLOAD: None},
        {MANIFEST: None},
        {MANIFEST: b'{"files": [3]}'},
        {"uploads/anna/more.mp4": b"more"},
        {"uploads/../../escaped.mp4": b"x"},
        {"/uploads/escaped.mp4": b"x"},
        {"other/file": b"x"},
        {"uploads": b"x"},
        {FILE_NAME: b"no database" * 100},
    ],
)
def test_a_damaged_or_hostile_backup_leaves_nothing(root, tmp_path, changes):
    back_up(root, tmp_path / "out.tar")
    before = files_of(tmp_path)
    with pytest.raises(InputError, match=r"changed\.tar"):
        restore(change(tmp_path / "out.tar", changes), tmp_path / "new")
    assert files_of(tmp_path) == before | {"changed.tar"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_pipes_are_refused(root, tmp_path, kind):
    back_up(root, tmp_path / "out.tar")
    with tarfile.open(tmp_path / "out.tar", "a") as tar:
        link = tarfile.TarInfo("uploads/link")
        link.type, link.linkname = kind, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(InputError, match="link"):
        restore(tmp_path / "out.tar", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_backup_that_is_cut_short_is_refused(root, tmp_path, share):
    back_up(root, tmp_path / "out.tar")
    content = (tmp_path / "out.tar").read_bytes()
    (tmp_path / "out.tar").write_bytes(content[: int(share * len(content.rstrip(b"\0")))])
    with pytest.raises(InputError, match=r"out\.tar"):
        restore(tmp_path / "out.tar", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_separate_folders_are_taken_over_once(world, tmp_path):
    old, root = tmp_path / "old", tmp_path / "root"
    state = State(old / "state")
    state.add_token("anna", "edit", token_digest("token"))
    state.close()
    (old / "uploads").mkdir()
    shutil.copy(world.root / "tea.mp4", old / "uploads" / "cup.mp4")
    before = open_library([str(old / "uploads")], world.engine)
    lines = []
    for _ in range(2):
        take_over(root, old / "state", old / "uploads", str(world.root / "corpus"), lines.append)
    assert len(lines) == 3
    assert State(root).find_token(token_digest("token")).name == "anna"
    assert {record.video for record in Corpus(str(root / "corpus")).videos()} == {"tea", "bike"}
    after = open_library([], world.engine)
    create_app(after, ServerSettings(root=root, auto=False), State(root))
    assert after.entries.keys() == before.entries.keys()  # links stay valid
    assert [entry.name for entry in after.entries.values()] == ["cup"]
    assert files_of(old / "uploads") == {"cup.mp4"}


class Person(threading.Thread):
    """Uploads films and renames steps until the server is gone, and remembers what was acknowledged."""

    def __init__(self, url, folder, number, video):
        super().__init__()
        self.url, self.folder, self.number, self.video = url, folder, number, video
        self.edits, self.uploads = [], []

    def send(self, path, method, data, **headers):
        headers = {"Authorization": "Bearer token", "Content-Type": "application/json", **headers}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def run(self):
        with suppress(OSError):
            steps = self.send(f"api/videos/{self.video}/steps", "GET", None)
            for i in range(1000):
                label = f"edit {i} of {self.number}"
                steps["levels"][-1]["steps"][0]["label"] = label
                self.send(f"api/videos/{self.video}/edits", "PUT", json.dumps(steps).encode(), **{"If-Match": "*"})
                self.edits.append(label)
                film = write_video(self.folder / f"{self.number}-{i}.mp4", [2 * i + 100 * self.number] * 5)
                self.send(f"api/upload?name={film.name}", "POST", film.read_bytes())
                self.uploads.append(film.name)


def labels_in(root):
    """The names that were ever saved, and the names of uploads."""
    state = State(root)
    with closing(sqlite3.connect(root / FILE_NAME)) as database:
        saves = database.execute("SELECT video, id FROM edits").fetchall()
    contents = [state.edit_content(video, number) for video, number in saves]
    state.close()
    return {json.loads(content)["levels"][-1]["steps"][0]["label"] for content in contents}, {
        path.name for path in (root / "uploads").rglob("*.mp4")
    }


@pytest.mark.slow
def test_a_server_killed_under_load_is_restored_elsewhere(world, tmp_path):
    root = tmp_path / "root"
    State(root).add_token("anna", "admin", token_digest("token"))
    options = ("--model", "egovlp", "--device", "cpu", "--root")
    process, url = start(world.videos[0], *options, root)
    (video,) = json.loads(get(url + "api/videos", Authorization="Bearer token")[1])["videos"]
    people = [Person(url, tmp_path, number, video["id"]) for number in range(2)]
    for person in people:
        person.start()
    wait_until(lambda: all(len(person.uploads) >= 3 for person in people))
    acknowledged = [(list(person.edits), list(person.uploads)) for person in people]
    back_up(root, tmp_path / "out.tar")
    saved = [len(person.edits) for person in people]
    wait_until(lambda: all(len(p.edits) > num + 1 for p, num in zip(people, saved, strict=True)))
    end(process, signal.SIGKILL)
    for person in people:
        person.join()
    edits, uploads = labels_in(root)  # the server itself has lost nothing
    assert all(set(person.edits) <= edits and set(person.uploads) <= uploads for person in people)

    restored = tmp_path / "restored"
    restore(tmp_path / "out.tar", restored)
    edits, uploads = labels_in(restored)
    assert all(set(before) <= edits and set(sent) <= uploads for before, sent in acknowledged)
    assert not {person.edits[-1] for person in people} & edits  # and nothing later is mixed in
    shutil.rmtree(root)
    process, url = start(world.videos[0], *options, restored)
    listed = json.loads(get(url + "api/videos?n=1000", Authorization="Bearer token")[1])["videos"]
    assert {row["name"] for row in listed} == {"tea", *(name.removesuffix(".mp4") for name in uploads)}
    tea = next(row for row in listed if row["name"] == "tea")
    assert (tea["id"], tea["read"], tea["edited"]) == (video["id"], True, True)
    _, found = get(f"{url}api/videos/{video['id']}/edits", Authorization="Bearer token")
    assert json.loads(found)["levels"][-1]["steps"][0]["label"] in edits
    end(process, signal.SIGTERM)
