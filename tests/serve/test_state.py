"""What a server remembers: after a restart, after a kill, and with another process beside it."""

from __future__ import annotations

import sqlite3

import pytest

from hiero.errors import InputError
from hiero.serve.state import FILE_NAME, State
from tests.processes import start_python

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
    with pytest.raises(InputError, match="used by another server"):
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
    with pytest.raises(InputError, match="hiero doctor --state"):
        State(tmp_path / "damaged")
    State(tmp_path / "later").close()
    with sqlite3.connect(tmp_path / "later" / FILE_NAME) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(InputError, match="newer version"):
        State(tmp_path / "later")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be used"):
        State(tmp_path / "file")


def test_without_a_folder_it_lives_in_memory():
    state = State()
    assert not state.is_persistent
    assert state.add_job("video", "").id == "1"
    assert State().jobs(["waiting"], 9) == []
