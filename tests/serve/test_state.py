"""What a server remembers: after a restart, after a kill, and with another process beside it."""

from __future__ import annotations

import resource
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from hiero.errors import BusyError, InputError
from hiero.serve.database import FILE_NAME
from hiero.serve.state import State
from tests.processes import start_python
from tests.waiting import PATIENCE_S

WRITER = """
import sys
from pathlib import Path
from hiero.serve.state import State
state = State(Path(sys.argv[1]), lock=True)
for i in range(10**6):
    state.add_edit("video", f"v{i}", f"content {i}".encode(), i, "anna")
    print(i, flush=True)  # acknowledged: from here on it must not be lost
"""


def test_all_of_it_is_there_after_a_restart(tmp_path):
    state = State(tmp_path / "new" / "state")
    state.add_token("anna", "edit", b"digest")
    job = state.add_job("video", "anna")
    job.update(state="running", num_attempts=1)
    state.save_job(job)
    for content in (b"one", b"two", None, b"three"):
        state.add_edit("video", content and content.decode(), content, 1, "anna")
    state.add_edit("other", None, None, 0, "ben")
    state.add_audit("anna", "save edits", "video", "detail")
    state.close()
    again = State(tmp_path / "new" / "state")
    assert [(token.name, token.role) for token in again.tokens()] == [("anna", "edit")]
    assert [(job.video, job.state, job.num_attempts) for job in again.jobs(["running"], 9)] == [("video", "running", 1)]
    assert [save.version for save in again.edit_history("video", 9)] == ["three", None, "two", "one"]
    numbers = [save.id for save in again.edit_history("video", 9)]
    assert [again.edit_content("video", number) for number in numbers] == [b"three", None, b"two", b"one"]
    assert again.edit_content("other", numbers[0]) is None  # a save of another video cannot be read by its number
    assert again.audit(9)[0] == {
        **again.audit(9)[0],
        "user": "anna",
        "action": "save edits",
        "subject": "video",
        "detail": "detail",
    }


def test_what_was_acknowledged_survives_a_kill(tmp_path):
    with start_python(WRITER, tmp_path) as process:
        acknowledged = [int(process.stdout.readline()) for _ in range(20)]
        process.kill()
        acknowledged += [int(line) for line in process.stdout.read().split()]
    state = State(tmp_path, lock=True)  # the lock went with the process
    saved = {save.num_steps: save.id for save in state.edit_history("video", 10**6)}
    assert set(acknowledged) <= set(saved)
    assert state.edit_content("video", saved[acknowledged[-1]]) == f"content {acknowledged[-1]}".encode()
    state.close()


def test_one_server_a_folder(tmp_path):
    first = State(tmp_path, lock=True)
    with pytest.raises(BusyError, match=tmp_path.name):
        State(tmp_path, lock=True)
    State(tmp_path).add_token("anna", "view", b"d")  # the command line needs no lock, and the server sees it at once
    token = first.find_token(b"d")
    assert token is not None
    assert token.name == "anna"
    assert State(tmp_path).revoke_token("anna")
    assert first.find_token(b"d") is None
    assert not State(tmp_path).revoke_token("anna")
    first.close()
    State(tmp_path, lock=True).close()


def test_files_that_cannot_be_used(tmp_path):
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / FILE_NAME).write_bytes(b"no database at all" * 100)
    with pytest.raises(InputError, match=FILE_NAME):
        State(tmp_path / "damaged")
    State(tmp_path / "later").close()
    with sqlite3.connect(tmp_path / "later" / FILE_NAME) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(InputError, match="newer version"):
        State(tmp_path / "later")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be used"):
        State(tmp_path / "file")


@pytest.mark.parametrize("name", [FILE_NAME, f"{FILE_NAME}-wal"])
def test_a_removed_file_is_noticed(tmp_path, name):
    """SQLite goes on with the removed file: what it acknowledges would be lost."""
    state = State(tmp_path)
    state.add_token("anna", "edit", b"digest")
    (tmp_path / name).unlink()
    for write in (lambda: state.add_edit("video", "v", b"content", 1, "anna"), state.check_writable):
        with pytest.raises(InputError, match=r"not saved: .* was removed or replaced; restore it and restart"):
            write()
    state.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("DROP TABLE tokens", "missing tables: tokens"),
        ("DROP TABLE edits", "missing tables: edits"),
        ("PRAGMA user_version = -3", "impossible version -3"),
    ],
)
def test_a_state_that_lacks_something_is_refused(tmp_path, change, message):
    State(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE_NAME) as database:
        database.execute(change)
    with pytest.raises(InputError, match=message):
        State(tmp_path)


def test_a_full_disk_is_noticed(tmp_path, monkeypatch):
    state = State(tmp_path)
    state.check_writable()
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(InputError, match="full"):
        state.check_writable()
    monkeypatch.undo()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / f"{FILE_NAME}-wal").stat().st_size, limits[1]))
    try:  # no file can grow, as with a quota
        with pytest.raises(InputError, match="not saved"):
            state.check_writable()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    state.check_writable()
    state.close()


def test_reads_do_not_wait_for_a_writer(tmp_path):
    state = State(tmp_path)
    state.add_token("anna", "edit", b"digest")
    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(1) as pool:
        write = pool.submit(state.add_audit, "anna", "save edits", "video")
        assert [token.name for token in state.tokens()] == ["anna"]
        assert state.find_token(b"digest") is not None
        assert not write.done()
        other.execute("COMMIT")
        write.result(PATIENCE_S)
    other.close()
    state.close()


def test_without_a_folder_it_lives_in_memory():
    state = State()
    assert not state.is_persistent
    assert state.add_job("video", "").id == "1"
    assert State().jobs(["waiting"], 9) == []
