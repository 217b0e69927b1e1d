"""A Label Studio project through its API, against a server with the same routes; the token is in no message."""

from __future__ import annotations

import socket

import pytest

from hiero.errors import InputError
from hiero.formats import label_studio_api
from hiero.formats.label_studio_api import LabelStudioProject, extend_interface, label_studio_interface, labels_of_tasks
from tests.formats.label_studio_server import LEGACY_TOKEN, PERSONAL_TOKEN, run_server


@pytest.fixture(scope="module")
def running():
    with run_server() as server:
        yield server


@pytest.fixture
def server(running, monkeypatch):
    monkeypatch.setattr(label_studio_api, "WAIT_S", 0.001)
    running.tasks, running.requests, running.num_failures, running.redirect = [], [], 0, ""
    running.interface = "<View></View>"
    return running


def task(name: str, **labels: str) -> dict:
    value = {"ranges": [{"start": 1, "end": 5}]}
    result = [
        {
            "id": level,
            "type": "timelinelabels",
            "from_name": level,
            "to_name": "video",
            "value": {**value, "timelinelabels": [label]},
        }
        for level, label in labels.items()
    ]
    return {"data": {"video": name}, "predictions": [{"result": result}]}


@pytest.mark.parametrize("token", [LEGACY_TOKEN, PERSONAL_TOKEN])
def test_tasks_go_in_and_come_back(server, token, monkeypatch):
    monkeypatch.setattr(label_studio_api, "PAGE_SIZE", 2)
    project = LabelStudioProject(server.address + "/data?tab=1", token)
    project.write_interface(label_studio_interface({"level0": ["wash"]}))
    for i in range(5):
        assert project.import_tasks([task(f"{i}.mp4", level0="wash")]) == 1
    assert [task["data"]["video"] for task in project.tasks()] == [f"{i}.mp4" for i in range(5)]
    assert sum(target.startswith("/api/tasks/") for _, target, _ in server.requests) == 3
    assert [task["id"] for task in project.export()] == [1, 2, 3, 4, 5]
    assert 'value="wash"' in project.read_interface()
    sent = {authorization for _, _, authorization in server.requests}
    assert sent == ({f"Token {LEGACY_TOKEN}"} if token == LEGACY_TOKEN else {None, "Bearer short-lived"})


def test_what_reads_is_tried_again_and_what_writes_is_not(server):
    project = LabelStudioProject(server.address, LEGACY_TOKEN)
    server.num_failures = 2
    assert project.export() == []
    server.num_failures = 1
    with pytest.raises(InputError, match=r"answers 503 \(busy"):
        project.import_tasks([task("a.mp4")])
    assert server.tasks == []


def test_mistakes_are_one_clear_line(server, monkeypatch):
    project = LabelStudioProject(server.address, LEGACY_TOKEN)
    with pytest.raises(InputError, match="level0 not in config"):
        project.import_tasks([task("a.mp4", level0="x")])
    with pytest.raises(InputError, match="there is no project 4"):
        LabelStudioProject(server.address[:-1] + "4", LEGACY_TOKEN).export()
    for address in (
        "http://localhost:8080/",
        "http://localhost/projects/x",
        "ftp://h/projects/3",
        "http://user:secret@h/projects/3",
    ):
        with pytest.raises(InputError, match="address") as caught:
            LabelStudioProject(address, LEGACY_TOKEN)
        assert "secret" not in str(caught.value)
    for token in ("", "a b", "a\nb"):
        with pytest.raises(InputError, match="set LABEL_STUDIO_API_KEY"):
            LabelStudioProject(server.address, token)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/projects/3"
        with pytest.raises(InputError, match="cannot be reached"):
            LabelStudioProject(address, LEGACY_TOKEN).export()
        with pytest.raises(InputError, match="cannot be reached"):
            LabelStudioProject(address, PERSONAL_TOKEN).export()


@pytest.mark.parametrize("token", ["wrong-token", "wrong.personal.token"])
def test_a_token_is_in_no_message(server, token):
    with pytest.raises(InputError, match="is not accepted") as caught:
        LabelStudioProject(server.address, token).export()
    assert token not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_token_goes_to_no_other_server(server):
    with run_server() as other:
        server.redirect = other.address
        with pytest.raises(InputError, match="redirects to another address"):
            LabelStudioProject(server.address, LEGACY_TOKEN).export()
        assert other.requests == []


def test_labelling_interface():
    labels = labels_of_tasks([task("a", level0="wash & <cut>"), task("b", level1="pour", level0='"x"')])
    assert labels == {"level0": ["wash & <cut>", '"x"'], "level1": ["pour"]}
    made = extend_interface("<View></View>", labels)
    assert made is not None
    assert made.index('name="level0"') < made.index('name="level1"')
    assert "wash &amp; &lt;cut&gt;" in made
    again = extend_interface(made, {"level1": ["pour", "stir"]})
    assert again == made.replace('<Label value="pour"/>', '<Label value="pour"/>\n    <Label value="stir"/>')
    assert extend_interface(again, labels) == again
    upgraded = extend_interface(made, {"fine": ["pour"], "coarse": ["wash"]})  # level0 is of the previous version
    assert [line.split('"')[1] for line in upgraded.splitlines() if "<TimelineLabels" in line] == [
        "coarse",
        "level0",
        "level1",
        "fine",
    ]
    other = '<View><Text name="t" value="$t"/></View>'
    assert extend_interface(other, labels) is None
    mixed = made.replace("<View>", '<View><Header value="Steps"/>', 1)
    assert extend_interface(mixed, labels) == mixed  # a person's own, with the control tags that it takes
    assert extend_interface("<!DOCTYPE x><View/>", labels) is None
