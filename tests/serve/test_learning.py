"""Learning from corrections on the page: a name that was given in one video is found in the others,
and what changed is said.
"""

from __future__ import annotations

import pytest

from tests.waiting import wait_until


@pytest.fixture
def library(library):
    yield library
    library.engine.prototypes = None


def learn(client):
    job = client.post("/api/learn").json()
    wait_until(lambda: client.get(f"/api/jobs/{job['id']}").json()["state"] in ("done", "failed"))
    return client.get(f"/api/jobs/{job['id']}").json()


def test_names_of_one_video_are_found_in_another(client, library, tea):
    assert client.get("/api/learn").json() == {}
    failed = learn(client)
    assert failed["state"] == "failed"
    assert "no step has been renamed" in failed["message"]
    bike = library.find_by_name("bike").id
    steps = client.get(f"/api/videos/{tea}/steps?k=5").json()
    names = ["zib", "flox the wemble", "gorp", "zib", "quandle"]  # scenes 0, 1, 2, 0, 3
    for step, name in zip(steps["levels"][0]["steps"], names, strict=True):
        step["label"] = name
    assert client.put(f"/api/videos/{tea}/edits", json=steps).status_code == 200
    assert learn(client)["state"] == "done"
    result = client.get("/api/learn").json()
    assert (result["num_names"], result["num_steps"], result["num_videos"]) == (4, 5, 1)
    (changed,) = result["videos"]  # tea is corrected, and new.mp4 was not read
    assert (changed["id"], changed["video"]) == (bike, "bike")
    assert result["num_named_anew"] == changed["num_steps"] == len(changed["steps"])
    after = client.get(f"/api/videos/{bike}/steps?k=4").json()["levels"][0]["steps"]  # scenes 4, 1, 5, 3
    assert after[1]["label"] == "flox the wemble"
    answer = client.get(f"/api/videos/{bike}/ask?q=flox the wemble").json()
    assert 4 <= answer["matches"][0]["start_s"] <= 8
