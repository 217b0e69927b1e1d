"""hiero push-steps, and hiero import-steps from an address, as typed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from hiero.cli import app
from hiero.errors import InputError
from hiero.formats.hiero_json import encode_edits, read_edits
from hiero.formats.registry import write_export
from hiero.types import Hierarchy, Step
from tests.formats.label_studio_server import LEGACY_TOKEN, run_server

STEPS = (Step("0.0", 0.0, 4.013, 3, label="boil", probability=0.5), Step("0.1", 4.013, 9.0, 1))


def run(*arguments):
    app([str(argument) for argument in arguments], result_action="return_value")


def test_steps_go_to_a_project_and_corrections_come_back(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", LEGACY_TOKEN)
    video = tmp_path / "my kitchen.npy"
    np.save(video, np.zeros((9, 4), np.float32))
    hierarchy = Hierarchy(str(video), "m", 9.0, (STEPS,))
    (tmp_path / "steps.json").write_bytes(encode_edits(hierarchy))
    tasks = write_export("labelstudio", replace(hierarchy, video="hall.mp4"), tmp_path)
    with run_server() as server:
        push = [
            "push-steps",
            tmp_path / "steps.json",
            "--to",
            server.address,
            "--media-url",
            "http://127.0.0.1:1/videos",
        ]
        run(*push)
        run(*push[:2], tasks, *push[2:])
        assert "1 task added, 1 existed already" in " ".join(capsys.readouterr().err.split())
        names = [task["data"]["video"] for task in server.tasks]
        assert names == ["http://127.0.0.1:1/videos/my%20kitchen.npy", "http://127.0.0.1:1/videos/hall.mp4"]
        with pytest.raises(InputError, match="neither annotations nor predictions"):
            run("import-steps", server.address, "--video", video)
        result = json.loads(json.dumps(server.tasks[0]["predictions"][0]["result"]))
        result[1]["value"]["timelinelabels"] = ["pour"]
        server.tasks[0]["annotations"] = [{"result": result, "updated_at": "2026"}]
        run("import-steps", server.address, "--video", video)
        (level,) = read_edits(video).hierarchy.levels
        assert level[0] == STEPS[0]
        assert (level[1].id, level[1].start_s, level[1].label) == ("0.1", 4.013, "pour")

        server.interface = '<View><Text name="t" value="$t"/></View>'
        server.tasks.clear()
        with pytest.raises(InputError, match="lacks step; use a new project, or --set-up"):
            run(*push)
        run(*push, "--set-up")
        assert len(server.tasks) == 1
        assert "Text" not in server.interface
        (tmp_path / "other.json").write_text('{"a": 1}')
        with pytest.raises(InputError, match="neither steps of hiero nor tasks"):
            run("push-steps", tmp_path / "other.json", "--to", server.address)
        with pytest.raises(InputError, match="name the files to send"):
            run("push-steps", "--to", server.address)
        monkeypatch.delenv("LABEL_STUDIO_API_KEY")
        with pytest.raises(InputError, match="set LABEL_STUDIO_API_KEY"):
            run("import-steps", server.address, "--video", video, "--replace")
