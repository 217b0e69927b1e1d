"""The API: what it gives, and what it refuses."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from starlette.testclient import TestClient

from hiero.errors import InputError
from hiero.serve.app import create_app
from hiero.serve.edits import parse_hierarchy
from hiero.serve.guard import MAX_BODY_BYTES, is_loopback
from hiero.serve.jobs import JobQueue, job_events
from hiero.serve.library import NotFoundError, open_library
from hiero.serve.tiles import TILE_SIZE, similarity_tile
from hiero.serve.uploads import Uploads
from hiero.types import ProgressEvent

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def client(library):
    with TestClient(create_app(library), base_url="http://localhost") as client:
        yield client


@pytest.fixture
def tea(library):
    return library.find_by_name("tea").id


def test_videos_and_their_steps(client, tea):
    assert {video["name"] for video in client.get("/api/videos").json()} == {"tea", "bike", "new"}
    assert client.get("/api/server").json()["models"] == ["raw", "model"]
    video = client.get(f"/api/videos/{tea}").json()
    assert (video["playable"], video["pictures"], video["truth"]) == (True, True, True)
    assert video["duration_s"] == pytest.approx(30, abs=0.2)
    hierarchy = client.get(f"/api/videos/{tea}/steps").json()
    assert hierarchy["levels"][-1]["steps"][0]["start_s"] == 0
    recut = client.get(f"/api/videos/{tea}/steps?k=2,5").json()
    assert [len(level["steps"]) for level in recut["levels"]] == [2, 5]
    starts = [step["start_s"] for step in recut["levels"][1]["steps"]]
    np.testing.assert_allclose(starts, [0, 6, 12, 18, 24], atol=1.1)
    other = client.get(f"/api/videos/{tea}/steps?k=4&model=model").json()
    assert other["model"] == "model"
    assert client.get(f"/api/videos/{tea}/truth").json()[1]["text"] == "scene 1"
    assert client.get(f"/api/videos/{tea}").json()["read"]


def test_words(client, tea):
    answer = client.get(f"/api/videos/{tea}/ask", params={"q": "pour the tea", "n": 3}).json()
    assert 1 <= len(answer["matches"]) <= 3
    labelled = client.post(f"/api/videos/{tea}/label", json={"labels": ["pour the tea", "wash a cup"]}).json()
    assert {step["label"] for step in labelled} <= {"pour the tea", "wash a cup"}
    hits = client.get("/api/search", params={"q": "wash a cup", "n": 4}).json()
    assert len(hits) == 4
    assert {hit["video"] for hit in hits} <= {"tea", "bike"}
    like = client.get("/api/search/like", params={"video": "tea", "t": 8}).json()
    assert like["step"]["video"] == "tea"
    assert {hit["video"] for hit in like["hits"]} == {"bike"}
    assert 5 < like["hits"][0]["start_s"] < 12  # the scene that both have


def test_pictures_tiles_and_the_file_itself(client, tea, world):
    picture = client.get(f"/api/videos/{tea}/picture", params={"t": 8})
    assert picture.headers["content-type"] == "image/jpeg"
    tile = client.get(f"/api/videos/{tea}/similarity/0/0/0")
    size = int(tile.headers["x-rows"])
    assert len(tile.content) == size * int(tile.headers["x-columns"])
    whole = (world.root / "tea.mp4").read_bytes()
    assert client.get(f"/api/videos/{tea}/file").content == whole
    part = client.get(f"/api/videos/{tea}/file", headers={"Range": "bytes=10-29"})
    assert part.status_code == 206
    assert part.content == whole[10:30]
    assert part.headers["content-range"] == f"bytes 10-29/{len(whole)}"
    assert client.get(f"/api/videos/{tea}/file", headers={"Range": f"bytes={len(whole) + 5}-"}).status_code == 416


def test_tiles_are_the_matrix(world):
    """Tiles of two zooms, put together, against the cosines of means that are written out."""
    video = world.engine.read(world.videos[0])
    video.nodes = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    video.__dict__.pop("segmentation_features", None)
    from hiero.steps.segmentation import MIN_NORM, centre_and_normalise

    x = centre_and_normalise(video.segmentation_features, MIN_NORM)
    for zoom, cells in ((0, 128), (1, 256), (2, 300)):
        edges = np.linspace(0, 300, cells + 1).round().astype(int)
        means = np.stack([x[a:b].sum(0) for a, b in pairwise(edges)])
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        expected = np.clip(255 * (means @ means.T + 0.2) / 1.2, 0, 255)
        num_tiles = -(-cells // TILE_SIZE)
        rows = [np.concatenate([similarity_tile(video, zoom, r, c) for c in range(num_tiles)], 1) for r in range(num_tiles)]
        np.testing.assert_allclose(np.concatenate(rows).astype(float), expected, atol=1.01)
    with pytest.raises(NotFoundError):
        similarity_tile(video, 0, 1, 0)


def test_edits_are_kept_beside_the_video_and_exported(client, tea, library, world):
    steps = client.get(f"/api/videos/{tea}/steps?k=2,4").json()
    steps["levels"][1]["steps"][0]["label"] = "boil <water>"
    assert client.get(f"/api/videos/{tea}/edits").status_code == 404
    assert client.put(f"/api/videos/{tea}/edits", json=steps).status_code == 200
    assert json.loads((world.root / "tea.mp4.hiero.json").read_text())["levels"][1]["steps"][0]["label"] == "boil <water>"
    assert client.get(f"/api/videos/{tea}/edits").json()["levels"][1]["steps"][0]["label"] == "boil <water>"
    srt = client.get(f"/api/videos/{tea}/export/srt")
    assert "boil <water>" in srt.text
    assert "attachment" in srt.headers["content-disposition"]
    assert "boil" in client.get(f"/api/videos/{tea}/export/csv").text
    assert client.get(f"/api/videos/{tea}/export/docx").status_code == 404
    for name in client.get("/api/server").json()["exports"]:
        assert client.get(f"/api/videos/{tea}/export/{name}").status_code == 200
    client.delete(f"/api/videos/{tea}/edits")
    assert "boil" not in client.get(f"/api/videos/{tea}/export/csv").text


def test_edits_that_make_no_sense_are_refused(client, tea):
    good = client.get(f"/api/videos/{tea}/steps?k=2,4").json()

    def assert_refused(change, message):
        bad = json.loads(json.dumps(good))
        change(bad["levels"])
        answer = client.put(f"/api/videos/{tea}/edits", json=bad)
        assert answer.status_code == 400
        assert message in answer.json()["error"]

    assert_refused(lambda levels: levels[1]["steps"][1].update(start_s=levels[1]["steps"][1]["start_s"] + 3), "must begin where")
    assert_refused(lambda levels: levels[1]["steps"].pop(), "ends at")
    assert_refused(lambda levels: levels[1]["steps"][1].update(id=levels[1]["steps"][0]["id"]), "the same id")
    assert_refused(lambda levels: levels[1]["steps"][0].update(parent="9.9"), "inside its parent")
    assert_refused(lambda levels: levels[1]["steps"][0].pop("end_s"), "not a hierarchy")
    assert_refused(lambda levels: levels.clear(), "between 1 and 16 levels")
    assert_refused(lambda levels: levels[1]["steps"][0].update(parent=["x"]), "not a hierarchy")
    assert_refused(lambda levels: levels[1]["steps"][0].update(score="nan"), "not a hierarchy")
    infinite = json.dumps(good).replace('"thread": 0', '"thread": 1e999', 1)
    assert client.put(f"/api/videos/{tea}/edits", content=infinite, headers={"content-type": "application/json"}).status_code in (
        400,
        422,
    )
    assert client.get(f"/api/videos/{tea}/edits").status_code == 404
    with pytest.raises(InputError, match="is 30"):
        parse_hierarchy({**good, "duration_s": 99.0}, 30.0)


def test_long_ids_and_labels_are_cut():
    step = {"id": "i" * 99, "start_s": 0, "end_s": 9, "label": "l" * 999}
    (parsed,) = parse_hierarchy({"duration_s": 9, "levels": [{"steps": [step]}]}, 9.0)
    assert (parsed.id, parsed.label) == ("i" * 64, "l" * 500)
    with pytest.raises(InputError, match=r"^not a hierarchy of steps \(KeyError: 'end_s'\)$"):
        parse_hierarchy({"duration_s": 9, "levels": [{"steps": [{"id": "0", "start_s": 0}]}]}, 9.0)


def test_a_new_video_is_read_with_progress(client, library):
    new = library.find_by_name("new").id
    assert client.get(f"/api/videos/{new}").json()["read"] is False
    job = client.post(f"/api/videos/{new}/read").json()
    with client.stream("GET", f"/api/jobs/{job['id']}/events") as stream:
        updates = [json.loads(line.removeprefix("data: ")) for line in stream.iter_lines() if line.startswith("data: ")]
    assert updates[-1]["state"] == "done"
    assert client.get(f"/api/videos/{new}").json()["read"] is True
    assert library.corpus.find("new").video == "new"  # and it can be searched
    library.corpus.remove(["new"])
    assert client.get("/api/jobs").json()[-1]["state"] == "done"
    assert client.get("/api/jobs/99").status_code == 404


def test_only_a_job_reads_a_video(client, library):
    """Whoever looks at a video that was not read is told so, at once; it is not read by ten clients at a time."""
    new = library.find_by_name("new").id
    for path in ("steps", "ask?q=tea", "picture?t=1", "similarity/0/0/0", "export/csv"):
        assert client.get(f"/api/videos/{new}/{path}").status_code == 409
    assert client.post(f"/api/videos/{new}/label", json={"labels": ["a"]}).status_code == 409


def test_two_files_of_one_name(world, library, tmp_path):
    """A second tea.mp4 does not take the place of the first in the corpus."""
    import shutil

    (tmp_path / "other").mkdir()
    shutil.copyfile(world.root / "new.mp4", tmp_path / "other" / "tea.mp4")
    entry = library.add(tmp_path / "other" / "tea.mp4")
    assert entry.name == "tea (2)"
    assert library.find_by_name("tea").path == world.videos[0].resolve()
    library.entries[entry.id] = replace(entry, name="tea")
    with pytest.raises(InputError, match="another video of that name"):
        library.index(library.entries[entry.id])
    assert library.corpus.find("tea").path == str(world.videos[0].resolve())


def test_a_corpus_of_another_model(world):
    from hiero.engine import load

    with pytest.raises(InputError, match="was made with raw; say where that model is"):
        open_library([str(world.root / "corpus")], {"model": load(world.root / "model", device="cpu")})


def test_jobs_wait_fail_and_are_cancelled():
    gate, begun = threading.Event(), threading.Event()

    def work(video, progress):
        if video == "bad":
            raise InputError("/a folder/of ours/bad.mp4: it is bad")
        if video == "worse":
            raise ZeroDivisionError
        begun.set()
        progress(ProgressEvent("read", "v", 0.0, 10.0))
        while not gate.is_set():
            progress(ProgressEvent("read", "v", 1.0, 10.0))
            time.sleep(0.01)

    jobs = JobQueue(work)
    first, second = jobs.start("slow"), jobs.start("waits")
    assert jobs.start("slow") is first
    begun.wait(5)
    jobs.cancel(second.id)
    jobs.cancel(first.id)
    assert [item["state"] for item in job_events(second) if item][-1] == "cancelled"
    assert [item["state"] for item in job_events(first) if item][-1] == "cancelled"
    assert [item for item in job_events(jobs.start("bad")) if item][-1]["message"] == "bad.mp4: it is bad"
    assert "internal error" in [item for item in job_events(jobs.start("worse")) if item][-1]["message"]
    jobs.close()


# What is refused


def test_other_names_and_other_sites(client, tea):
    assert client.get("/api/videos", headers={"Host": "evil.example"}).status_code == 421  # DNS rebinding
    assert client.get("/api/videos", headers={"Host": "localhost:1234"}).status_code == 200
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://localhost:9"},
    ):
        assert client.delete(f"/api/videos/{tea}/edits", headers=headers).status_code == 403
    assert client.delete(f"/api/videos/{tea}/edits", headers={"Origin": "http://localhost"}).status_code == 200
    assert client.get("/api/videos", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    answer_headers = client.get("/api/videos").headers
    assert answer_headers["x-content-type-options"] == "nosniff"
    assert "default-src 'self'" in answer_headers["content-security-policy"]
    assert "access-control-allow-origin" not in answer_headers


def test_a_token_on_a_network(library):
    app = create_app(library, hosts={"box.local"}, token="secret")
    with TestClient(app, base_url="http://box.local") as client:
        assert client.get("/api/videos").status_code == 401
        assert client.get("/").status_code == 401
        assert client.get("/api/videos", headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert client.get("/api/videos", headers={"Authorization": "Bearer secret"}).status_code == 200
    with TestClient(app, base_url="http://box.local") as client:
        page = client.get("/?token=secret", follow_redirects=False)
        assert (page.status_code, page.headers["location"]) == (303, "/")  # the address in the browser is free of it
        assert "HttpOnly" in page.headers["set-cookie"]
        assert "SameSite=Strict" in page.headers["set-cookie"]
        assert client.get("/").status_code == 200
        assert client.get("/api/videos").status_code == 200  # by the cookie
    assert is_loopback("127.0.0.1")
    assert not is_loopback("0.0.0.0")


@pytest.mark.parametrize(
    "path",
    [
        "/api/videos/..%2f..%2fetc%2fpasswd/file", "/api/videos/%2e%2e/file", "/../../etc/passwd", "/..%2f..%2fetc/passwd",
        "/%2e%2e/app.py",
        "/static/../../app.py", "/api/videos/none/file",
    ],
)  # fmt: skip
def test_no_way_out_of_what_is_shown(client, path):
    answer = client.get(path)
    assert answer.status_code in (404, 405)
    assert "root:" not in answer.text


def test_large_and_malformed_requests(client, tea):
    assert client.put(f"/api/videos/{tea}/edits", content=b"x" * (MAX_BODY_BYTES + 1)).status_code == 413
    assert client.put(f"/api/videos/{tea}/edits", content=b"{not json").status_code == 422
    assert client.put(f"/api/videos/{tea}/edits", headers={"Content-Length": "-5"}, content=b"").status_code == 413
    assert client.get(f"/api/videos/{tea}/ask", params={"q": "x" * 501}).status_code == 422
    assert client.get(f"/api/videos/{tea}/ask").status_code == 422
    assert client.get(f"/api/videos/{tea}/steps?k=0").status_code == 400
    assert client.get(f"/api/videos/{tea}/steps?k=1;drop").status_code == 422
    assert client.get(f"/api/videos/{tea}/similarity/99/0/0").status_code == 400
    assert client.get(f"/api/videos/{tea}/picture?t=nan").status_code == 422
    assert client.post(f"/api/videos/{tea}/label", json={"labels": []}).status_code == 400
    assert client.post(f"/api/videos/{tea}/label", json={"labels": ["x"] * 2001}).status_code == 400
    assert client.get("/api/search/like", params={"video": "'; DROP TABLE steps", "t": 1}).status_code == 400


def test_errors_show_no_insides(library, tea, monkeypatch, capfd):
    def broken(*_, **__):
        raise ZeroDivisionError("a secret in /root/somewhere")

    monkeypatch.setattr(type(library), "open_video", broken)
    with TestClient(create_app(library), base_url="http://localhost", raise_server_exceptions=False) as client:
        answer = client.get(f"/api/videos/{tea}/steps")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert "a secret" in capfd.readouterr().err
    monkeypatch.undo()


def test_uploads(library, world, tmp_path):
    content = (world.root / "new.mp4").read_bytes()
    with TestClient(create_app(library), base_url="http://localhost") as client:
        assert client.post("/api/upload?name=a.mp4", content=b"").status_code in (404, 413)  # off
    uploads = Uploads(tmp_path, 2 * len(content))
    with TestClient(create_app(library, uploads=uploads), base_url="http://localhost") as client:
        answer = client.post("/api/upload", params={"name": "../../up load.mp4"}, content=content)
        assert answer.status_code == 201
        assert (tmp_path / "up load.mp4").read_bytes() == content
        assert answer.json()["id"] in library.entries
        assert client.post("/api/upload", params={"name": "up load.mp4"}, content=content).status_code == 400  # there already
        assert client.post("/api/upload", params={"name": "run.sh"}, content=content).status_code == 400
        assert client.post("/api/upload", params={"name": "fake.mp4"}, content=b"not a video").status_code == 400
        assert client.post("/api/upload", params={"name": "big.mp4"}, content=3 * content).status_code == 413
        assert (
            client.post("/api/upload", params={"name": "x.mp4"}, content=content, headers={"Origin": "http://evil"}).status_code
            == 403
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["up load.mp4"]


def test_many_clients_at_a_time(client, tea):
    """64 at once, re-cutting and asking: all are answered, and alike."""

    def request(i):
        answer = (
            client.get(f"/api/videos/{tea}/steps?k={2 + i % 4}")
            if i % 2
            else client.get(f"/api/videos/{tea}/ask", params={"q": "tea"})
        )
        return i % 2, i % 4, answer.status_code, answer.text

    client.get(f"/api/videos/{tea}/steps")
    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(request, range(64)))
    assert {status for *_, status, _ in answers} == {200}
    assert len({(kind, k, text) for kind, k, _, text in answers if kind}) == 2
    assert len({text for kind, _, _, text in answers if not kind}) == 1


def test_what_can_be_opened(world, tmp_path):
    engines = {"raw": world.engine}
    library = open_library([str(world.root / "corpus"), str(world.root / "new.mp4")], engines)
    assert {entry.name for entry in library.entries.values()} == {"tea", "bike", "new"}
    for source, message in (("nowhere", "no such file, folder or corpus"), (str(tmp_path), "no videos and no feature files")):
        with pytest.raises(InputError, match=message):
            open_library([source], engines)
    np.save(tmp_path / "x.npy", np.zeros((3, 256), dtype=np.float32))
    assert [entry.playable_file for entry in open_library([str(tmp_path)], engines).entries.values()] == [None]


schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis")


def test_the_api_is_what_its_document_says(library):
    """Every operation of the OpenAPI document with generated input: never a server error, always an answer that is documented."""
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.checks import not_a_server_error

    schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(library, hosts={"localhost", "testserver"}))
    paths = set()
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path.endswith("/events"):
            continue
        paths.add(operation.path)

        @settings(
            max_examples=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.generate],
            database=None,
        )
        @given(case=operation.as_strategy())
        def check(case):
            if "id" in (case.path_parameters or {}) and "videos" in case.path:
                case.path_parameters["id"] = library.find_by_name("tea").id
            answer = case.call()
            case.validate_response(answer, checks=[not_a_server_error])

        check()
    assert len(paths) >= 15
