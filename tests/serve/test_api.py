"""The API: what it gives, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from filelock import FileLock

from hiero.engine.evidence import Nodes
from hiero.errors import BusyError, InputError
from hiero.formats.hiero_json import parse_hierarchy
from hiero.serve import video_routes
from hiero.serve.app import create_app
from hiero.serve.edits import STALE_S
from hiero.serve.guard import MAX_BODY_BYTES
from hiero.serve.jobs import JobQueue, job_events
from hiero.serve.library import open_library
from hiero.serve.routing import ANSWERS
from hiero.serve.settings import ServerSettings
from hiero.serve.state import Job
from hiero.serve.video_routes import MAX_STEPS
from hiero.storage.cache import content_key
from hiero.types import ProgressEvent
from tests.serve.conftest import connect
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.filterwarnings("ignore")


def test_videos_and_their_steps(client, tea):
    assert {video["name"] for video in client.get("/api/videos").json()["videos"]} == {"tea", "bike", "new"}
    assert client.get("/api/server").json()["model"] == "egovlp"
    assert 0 < client.get("/api/server").json()["search_threshold"] < 1
    video = client.get(f"/api/videos/{tea}").json()
    assert (video["playable"], video["pictures"], video["truth"]) == (True, True, True)
    assert video["duration_s"] == pytest.approx(30, abs=0.2)
    hierarchy = client.get(f"/api/videos/{tea}/steps").json()
    assert hierarchy["levels"][-1]["steps"][0]["start_s"] == 0
    recut = client.get(f"/api/videos/{tea}/steps?k=2,5").json()
    assert [len(level["steps"]) for level in recut["levels"]] == [2, 5]
    starts = [step["start_s"] for step in recut["levels"][1]["steps"]]
    np.testing.assert_allclose(starts, [0, 6, 12, 18, 24], atol=1.1)
    assert client.get(f"/api/videos/{tea}/truth").json()[1]["text"] == "scene 1"
    assert client.get(f"/api/videos/{tea}/transcript").json() == []
    assert client.get(f"/api/videos/{tea}").json()["read"]


def test_words(client, tea):
    answer = client.get(f"/api/videos/{tea}/ask", params={"q": "pour the tea", "n": 3}).json()
    assert 1 <= len(answer["matches"]) <= 3
    recipe = client.post(f"/api/videos/{tea}/recipe", json={"lines": ["pour the tea", "wash a cup 5 s"]}).json()
    labels = [step["label"] for step in recipe["levels"][0]["steps"] if not step["background"]]
    assert labels == ["pour the tea", "wash a cup"]
    hits = client.get("/api/search", params={"q": "wash a cup", "n": 4}).json()
    assert len(hits) == 4
    assert {hit["video"] for hit in hits} <= {"tea", "bike"}
    like = client.get("/api/search/like", params={"video": "tea", "t": 8}).json()
    assert like["step"]["video"] == "tea"
    assert {hit["video"] for hit in like["hits"]} == {"bike"}
    assert 5 < like["hits"][0]["start_s"] < 12  # the scene that both have


def test_what_is_said(client, tea, world):
    """A transcript beside a video is a row of its own, is searched, and goes into exports."""
    file = world.root / "tea.srt"
    file.write_text("1\n00:00:13,000 --> 00:00:15,000\nMy grandmother gave me this recipe.\n")
    try:
        rows = client.get(f"/api/videos/{tea}/transcript").json()
        assert rows == [{"start_s": 13.0, "end_s": 15.0, "text": "My grandmother gave me this recipe."}]
        answer = client.get(f"/api/videos/{tea}/ask", params={"q": "grandmother's recipe"}).json()
        assert (answer["rests_on"], answer["matches"][0]["quote"]) == ("speech", rows[0]["text"])
        assert 12 < answer["matches"][0]["start_s"] < 15
        hierarchy = client.get(f"/api/videos/{tea}/steps").json()
        assert "speech" not in hierarchy  # edits would carry it about
        assert "grandmother" in client.get(f"/api/videos/{tea}/export/csv").text
        client.put(f"/api/videos/{tea}/edits", json=hierarchy)
        assert "grandmother" in client.get(f"/api/videos/{tea}/export/elan").text
    finally:
        client.delete(f"/api/videos/{tea}/edits")
        file.unlink()


def test_pictures_and_the_file_itself(client, tea, world):
    picture = client.get(f"/api/videos/{tea}/picture", params={"t": 8})
    assert picture.headers["content-type"] == "image/jpeg"
    whole = (world.root / "tea.mp4").read_bytes()
    assert client.get(f"/api/videos/{tea}/file").content == whole
    part = client.get(f"/api/videos/{tea}/file", headers={"Range": "bytes=10-29"})
    assert part.status_code == 206
    assert part.content == whole[10:30]
    assert part.headers["content-range"] == f"bytes 10-29/{len(whole)}"
    assert client.get(f"/api/videos/{tea}/file", headers={"Range": f"bytes={len(whole) + 5}-"}).status_code == 416


def test_edits_are_kept_beside_the_video_and_exported(client, tea, library, world):
    steps = client.get(f"/api/videos/{tea}/steps?k=2,4").json()
    steps["levels"][1]["steps"][0]["label"] = "boil <water>"
    assert client.get(f"/api/videos/{tea}/edits").status_code == 404
    assert client.put(f"/api/videos/{tea}/edits", json=steps).status_code == 200
    document = json.loads((world.root / "tea.mp4.hiero.json").read_text())
    assert document["levels"][1]["steps"][0]["label"] == "boil <water>"
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


def test_two_people_edit(client, tea):
    """The second save does not overwrite the first: it is refused with what is there, unless it
    says that it knows it.
    """
    edits = f"/api/videos/{tea}/edits"
    original = client.get(f"/api/videos/{tea}/steps?k=2,4").json()

    def named(label):
        steps = json.loads(json.dumps(original))
        steps["levels"][1]["steps"][0]["label"] = label
        return steps

    def label(document):
        return document["levels"][1]["steps"][0]["label"]

    first = client.put(edits, json=named("first"))
    assert first.status_code == 200
    assert client.get(edits).headers["etag"] == first.headers["etag"]
    again = client.put(edits, json=named("first"))  # whose answer was lost: nothing is overwritten by it
    assert (again.status_code, again.headers["etag"]) == (200, first.headers["etag"])

    # a client that knows of no versions, when there is something already
    blind = client.put(edits, json=named("blind"))
    assert blind.status_code == 412
    assert "someone else has edited" in blind.json()["error"]
    assert label(blind.json()["current"]) == "first"
    assert blind.headers["etag"] == first.headers["etag"]

    second = client.put(edits, json=named("second"), headers={"If-Match": first.headers["etag"]})
    assert second.status_code == 200
    assert second.headers["etag"] != first.headers["etag"]
    late = client.put(edits, json=named("late"), headers={"If-Match": first.headers["etag"]})
    assert (late.status_code, label(late.json()["current"])) == (412, "second")
    assert client.delete(edits, headers={"If-Match": first.headers["etag"]}).status_code == 412
    assert label(client.get(edits).json()) == "second"
    replaced = client.put(edits, json=named("late"), headers={"If-Match": f'W/{late.headers["etag"]}, "other"'})
    assert (replaced.status_code, label(client.get(edits).json())) == (200, "late")
    assert client.put(edits, json=named("any"), headers={"If-Match": "*"}).status_code == 200

    assert client.delete(edits).status_code == 200
    gone = client.put(edits, json=named("late"), headers={"If-Match": replaced.headers["etag"]})
    assert (gone.status_code, gone.json()["current"]) == (412, None)
    assert "deleted" in gone.json()["error"]
    assert "etag" not in gone.headers


def test_saves_at_the_same_time(client, tea):
    """Of many that replace one version, one does."""
    edits = f"/api/videos/{tea}/edits"
    steps = client.get(f"/api/videos/{tea}/steps?k=2").json()
    etag = client.put(edits, json=steps).headers["etag"]

    def save(i):
        changed = json.loads(json.dumps(steps))
        changed["levels"][0]["steps"][0]["label"] = f"label {i}"
        return client.put(edits, json=changed, headers={"If-Match": etag}).status_code

    with ThreadPoolExecutor(16) as pool:
        assert sorted(pool.map(save, range(16))) == [200, *[412] * 15]


def test_damaged_edits_can_be_replaced(client, tea, world):
    steps = client.get(f"/api/videos/{tea}/steps?k=2").json()
    for content in ("{", "[]", "[" * 100_000, '{"duration_s": 30, "levels": 3}'):
        (world.root / "tea.mp4.hiero.json").write_text(content)
        assert client.get(f"/api/videos/{tea}/edits").status_code == 400
        refused = client.put(f"/api/videos/{tea}/edits", json=steps)
        assert (refused.status_code, refused.json()["current"]) == (412, None)
    etag = refused.headers["etag"]
    assert client.put(f"/api/videos/{tea}/edits", json=steps, headers={"If-Match": etag}).status_code == 200


def test_edits_that_cannot_be_written(client, tea, world, monkeypatch):
    def write_bytes(*_):
        raise PermissionError(13, "Permission denied")

    steps = client.get(f"/api/videos/{tea}/steps?k=2").json()
    monkeypatch.setattr("hiero.formats.hiero_json.write_bytes", write_bytes)
    answer = client.put(f"/api/videos/{tea}/edits", json=steps)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("cannot save the edits next to the video (Permission denied); ")
    monkeypatch.undo()
    (world.root / "tea.mp4.hiero.json").mkdir()
    assert client.put(f"/api/videos/{tea}/edits", json=steps).status_code == 200  # stored by the content of the video
    assert client.get(f"/api/videos/{tea}/edits").status_code == 200
    (world.root / "tea.mp4.hiero.json").rmdir()


def test_who_made_a_step(client, tea):
    """A changed step comes from a person, whatever the client says; the others come from the model."""
    edits = f"/api/videos/{tea}/edits"
    steps = client.get(f"/api/videos/{tea}/steps?k=2,4").json()
    finest = steps["levels"][1]["steps"]
    finest[0]["label"], finest[0]["probability"] = "flox the wemble", 0.9
    assert {step["origin"] for step in finest} == {"model"}
    version = client.put(edits, json=steps).headers["etag"]
    saved = client.get(edits).json()["levels"][1]["steps"]
    assert [step["origin"] for step in saved] == ["person", "model", "model", "model"]
    assert saved[0]["probability"] is None
    boundary_s = finest[1]["end_s"] + 0.5
    finest[1]["end_s"] = finest[2]["start_s"] = boundary_s
    steps["levels"][0]["steps"] = [{**steps["levels"][0]["steps"][0], "id": "all", "end_s": steps["duration_s"]}]
    for step in finest:
        step["parent"] = "all"
    client.put(edits, json=steps, headers={"If-Match": version})
    saved = client.get(edits).json()["levels"][1]["steps"]
    assert [step["origin"] for step in saved] == ["person", "person", "person", "model"]


def test_answers_use_names_that_people_gave(client, tea):
    steps = client.get(f"/api/videos/{tea}/steps?k=2,4").json()
    step = steps["levels"][1]["steps"][2]
    step["label"] = "flox the wemble"

    def best_match():
        return client.get(f"/api/videos/{tea}/ask", params={"q": "flox the wemble"}).json()["matches"][0]

    assert best_match().get("rests_on") != "name"
    client.put(f"/api/videos/{tea}/edits", json=steps)
    match = best_match()
    assert match["rests_on"] == "name"
    assert (match["start_s"], match["end_s"]) == pytest.approx((step["start_s"], step["end_s"]), abs=1.1)


def test_questions_after_an_edit_reuse_what_was_computed_before(client, tea, library):
    entry, searched = library.find(tea), []
    video = library.read(entry)
    sight = Nodes(video.engine, video.clock, video.nodes, video.source, None)
    sight.store_spans = searched.append
    library.videos.add(tea, replace(video, sight=sight))
    steps = client.get(f"/api/videos/{tea}/steps?k=2,4").json()
    for label in ("flox the wemble", "wemble the flox"):
        steps["levels"][1]["steps"][2]["label"] = label
        client.put(f"/api/videos/{tea}/edits", json=steps, headers={"If-Match": "*"})
        client.get(f"/api/videos/{tea}/ask", params={"q": label})
    assert len(searched) == 1  # for candidates of answers, in the whole video


def test_edits_are_in_the_corpus(client, library, tea):
    steps = client.get(f"/api/videos/{tea}/steps?k=2,4").json()
    steps["levels"][1]["steps"][0]["label"] = "flox the wemble"

    def label_in_corpus():
        return client.get("/api/search/like", params={"video": "tea", "t": 1, "level": 1}).json()["step"]["label"]

    assert label_in_corpus() != "flox the wemble"
    client.put(f"/api/videos/{tea}/edits", json=steps)
    wait_until(lambda: label_in_corpus() == "flox the wemble")
    (best, *_) = client.get("/api/search", params={"q": "flox the wemble"}).json()
    assert (best["label"], best["id"]) == ("flox the wemble", tea)
    library.index(library.find(tea))
    assert label_in_corpus() == "flox the wemble"
    client.delete(f"/api/videos/{tea}/edits")
    wait_until(lambda: label_in_corpus() != "flox the wemble")


def test_edits_are_saved_although_the_corpus_cannot_be_written(client, library, tea, monkeypatch, caplog):
    def broken(*_):
        raise InputError("the corpus is damaged")

    steps = client.get(f"/api/videos/{tea}/steps?k=2").json()
    for name in ("add", "lookup"):
        monkeypatch.setattr(type(library.corpus), name, broken)
        steps["levels"][0]["steps"][0]["label"] = name
        assert client.put(f"/api/videos/{tea}/edits", json=steps, headers={"If-Match": "*"}).status_code == 200
        assert client.get(f"/api/videos/{tea}/edits").json()["levels"][0]["steps"][0]["label"] == name
    assert "tea is not up to date in the corpus: the corpus is damaged" in caplog.text


def test_a_busy_corpus_delays_no_request_and_gets_the_edits_later(client, library, tea):
    steps = client.get(f"/api/videos/{tea}/steps?k=2").json()
    steps["levels"][0]["steps"][0]["label"] = "flox the wemble"
    save = partial(client.put, f"/api/videos/{tea}/edits", json=steps, headers={"If-Match": "*"})
    num_saves = ANSWERS.num_threads + 1
    with FileLock(f"{library.corpus.uri}/.lock") as lock, ThreadPoolExecutor(num_saves) as pool:
        saves = [pool.submit(save) for _ in range(num_saves)]
        answer = client.get(f"/api/videos/{tea}/ask", params={"q": "flox the wemble"})
        statuses = [answer.status_code, *(saved.result().status_code for saved in saves)]
        assert lock.is_locked
    wait_until(lambda: "flox the wemble" in library.corpus.step_names()["tea"])
    assert statuses == [200] * (num_saves + 1)


def test_what_is_busy_answers_503(client, library):
    class BusyCorpus:
        def search_text(self, *_, **options):
            raise BusyError("corpus: busy")

    corpus, library.corpus = library.corpus, BusyCorpus()
    answer = client.get("/api/search", params={"q": "a cup"})
    library.corpus = corpus
    assert (answer.status_code, answer.json()) == (503, {"error": "corpus: busy"})
    assert int(answer.headers["retry-after"]) > 0


def test_a_moved_video_keeps_its_edits(client, library, tea, world, tmp_path):
    steps = client.get(f"/api/videos/{tea}/steps?k=2").json()
    steps["levels"][0]["steps"][0]["label"] = "flox the wemble"
    client.put(f"/api/videos/{tea}/edits", json=steps)
    shutil.copy(world.videos[0], tmp_path / "moved.mp4")
    second = open_library([str(tmp_path / "moved.mp4")], library.engine)
    with connect(second) as moved:
        (entry,) = second.entries.values()
        second.index(entry)
        assert moved.get(f"/api/videos/{entry.id}").json()["edited"]  # before anything else has looked for edits
        answer = moved.get(f"/api/videos/{entry.id}/ask", params={"q": "flox the wemble"}).json()
        assert answer["rests_on"] == "name"
        assert moved.get(f"/api/videos/{entry.id}/edits").json()["levels"][0]["steps"][0]["label"] == "flox the wemble"


def test_edits_that_make_no_sense_are_refused(client, tea):
    good = client.get(f"/api/videos/{tea}/steps?k=2,4").json()

    def assert_refused(change, message):
        bad = json.loads(json.dumps(good))
        change(bad["levels"])
        headers = {"content-type": "application/json"}
        answer = client.put(f"/api/videos/{tea}/edits", content=json.dumps(bad), headers=headers)
        assert answer.status_code == 400
        assert message in answer.json()["error"]

    late_s = good["levels"][1]["steps"][1]["start_s"] + 3
    same_id = good["levels"][1]["steps"][0]["id"]
    assert_refused(lambda levels: levels[1]["steps"][1].update(start_s=late_s), "must begin where")
    assert_refused(lambda levels: levels[1]["steps"].pop(), "ends at")
    assert_refused(lambda levels: levels[1]["steps"][1].update(id=same_id), "the same id")
    assert_refused(lambda levels: levels[1]["steps"][0].update(parent="9.9"), "inside its parent")
    assert_refused(lambda levels: levels[1]["steps"][0].pop("end_s"), "not a hierarchy")
    assert_refused(lambda levels: levels.clear(), "1 to 16 levels")
    wrong = [("parent", ["x"]), ("probability", "nan"), ("thread", 1e30), ("thread", -(10**400)), ("start_s", 10**400)]
    for name, value in wrong:
        assert_refused(lambda levels, n=name, v=value: levels[1]["steps"][0].update({n: v}), "not a hierarchy")
    for name in ("label", "id"):
        assert_refused(lambda levels, n=name: levels[1]["steps"][0].update({n: "a \ud800"}), "an incomplete character")
    infinite = json.dumps(good).replace('"thread": 0', '"thread": 1e999', 1)
    headers = {"content-type": "application/json"}
    answer = client.put(f"/api/videos/{tea}/edits", content=infinite, headers=headers)
    assert answer.status_code in (400, 422)
    assert client.get(f"/api/videos/{tea}/edits").status_code == 404
    with pytest.raises(InputError, match="not 99"):
        parse_hierarchy(good, 99.0)


def test_long_labels_are_cut():
    step = {"id": "i" * 99, "start_s": 0, "end_s": 9, "label": "l" * 999}
    (parsed,) = parse_hierarchy({"duration_s": 9, "levels": [{"steps": [step]}]}, 9.0)
    assert (parsed.id, parsed.label) == ("i" * 99, "l" * 500)


def test_a_new_video_is_read_with_progress(client, library):
    library.adds_to_corpus = True  # hiero serve --index
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


def test_a_video_is_added_to_the_corpus_only_on_request(client, library, world):
    library.index(library.find_by_name("new"))
    library.index(library.find_by_name("tea"))  # which is in the corpus, and stays there
    assert {record.video for record in library.corpus.videos()} == {"tea", "bike"}


def test_only_a_job_reads_a_video(client, library):
    """Whoever looks at a video that was not read is told so, at once; it is not read by ten clients at a time."""
    new = library.find_by_name("new").id
    for path in ("steps", "ask?q=tea", "export/csv"):
        assert client.get(f"/api/videos/{new}/{path}").status_code == 409
    assert client.post(f"/api/videos/{new}/recipe", json={"lines": ["a"]}).status_code == 409


def test_a_picture_reads_one_frame(client, library, monkeypatch):
    """Cards show videos that nobody has opened: whether they are processed or not, nothing else of them is read."""
    monkeypatch.setattr(type(library.engine), "read", lambda *_, **__: pytest.fail("the whole video was read"))
    for name in ("new", "tea"):
        picture = client.get(f"/api/videos/{library.find_by_name(name).id}/picture?t=3")
        assert picture.content[:2] == b"\xff\xd8"


def test_a_video_replaced_while_it_is_open_is_processed_again(client, library, world, tmp_path):
    library.adds_to_corpus = True
    path = tmp_path / "own.mp4"
    shutil.copy2(world.root / "tea.mp4", path)
    entry = library.add(path)
    library.index(entry)
    assert client.get(f"/api/videos/{entry.id}/steps").json()["duration_s"] == pytest.approx(30, abs=0.2)
    assert "own" in {hit["video"] for hit in client.get("/api/search?q=tea").json()}
    times = path.stat()
    shutil.copyfile(world.root / "new.mp4", path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert "own" not in {hit["video"] for hit in client.get("/api/search?q=tea").json()}
    assert client.get(f"/api/videos/{entry.id}/steps").status_code == 409
    library.index(entry)
    assert client.get(f"/api/videos/{entry.id}/steps").json()["duration_s"] == pytest.approx(6, abs=0.2)
    record = library.corpus.find("own")
    library.corpus.remove(["own"])
    assert (record.sha256, record.duration_s) == (content_key(path), pytest.approx(6, abs=0.2))


def test_a_video_that_was_only_touched_stays_open(client, library, world, tmp_path):
    path = tmp_path / "own.mp4"
    shutil.copy2(world.root / "tea.mp4", path)
    entry = library.add(path)
    library.index(entry)
    os.utime(path)
    assert client.get(f"/api/videos/{entry.id}/steps").status_code == 200


def test_two_files_of_one_name(world, library, tmp_path):
    """A second tea.mp4 does not take the place of the first in the corpus."""
    import shutil

    (tmp_path / "other").mkdir()
    shutil.copyfile(world.root / "new.mp4", tmp_path / "other" / "tea.mp4")
    entry = library.add(tmp_path / "other" / "tea.mp4")
    assert entry.name == "tea (2)"
    assert library.find_by_name("tea").path == world.videos[0].resolve()
    library.entries[entry.id] = replace(entry, name="tea")
    library.adds_to_corpus = True
    with pytest.raises(InputError, match="another video with this name"):
        library.index(library.entries[entry.id])
    assert library.corpus.find("tea").path == str(world.videos[0].resolve())


def test_a_corpus_of_another_model(world):
    from hiero.engine import load

    with pytest.raises(InputError, match="egovlp"):
        open_library([str(world.root / "corpus")], load(world.root / "model", device="cpu"))


def last_event(jobs, job):
    async def collect():
        return [event async for event in job_events(jobs, job, heartbeat_s=0.1) if event]

    return asyncio.run(asyncio.wait_for(collect(), PATIENCE_S))[-1]


def test_any_number_watches_a_job():
    """Not one of them holds a thread; while nothing happens there are signs of life."""
    job, jobs = Job("1", "v", state="running"), JobQueue(lambda *_: None)

    async def run():
        streams = [job_events(jobs, job, heartbeat_s=0.1) for _ in range(200)]
        assert [event["state"] for event in await asyncio.gather(*map(anext, streams))] == ["running"] * 200
        assert await asyncio.gather(*map(anext, streams)) == [None] * 200
        job.update(state="done")
        assert [event["state"] for event in await asyncio.gather(*map(anext, streams))] == ["done"] * 200

    before = threading.active_count()
    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))
    assert threading.active_count() == before


def test_jobs_wait_fail_and_are_cancelled():
    gate, begun = threading.Event(), threading.Event()

    def work(video, progress):
        if video == "bad":
            raise ZeroDivisionError
        begun.set()
        while not gate.is_set():
            progress(ProgressEvent("read", "v", 1.0, 10.0))
            time.sleep(0.01)

    jobs = JobQueue(work)
    first, second = jobs.start("slow"), jobs.start("waits")
    assert jobs.start("slow") is first
    assert begun.wait(PATIENCE_S)
    for job in (second, first):
        jobs.cancel(job.id)
        assert last_event(jobs, job)["state"] == "cancelled"
    assert "internal error" in last_event(jobs, jobs.start("bad"))["message"]
    jobs.close()


# What is refused


def test_other_names_and_other_sites(client, tea):
    assert client.get("/api/videos", headers={"Host": "evil.example"}).status_code == 421  # DNS rebinding
    assert client.get("/api/videos", headers={"Host": "localhost:1234"}).status_code == 200
    origins = [{"Origin": origin} for origin in ("http://evil.example", "null", "http://localhost:9")]
    for headers in (*origins, {"Sec-Fetch-Site": "cross-site"}):
        assert client.delete(f"/api/videos/{tea}/edits", headers=headers).status_code == 403
    assert client.delete(f"/api/videos/{tea}/edits", headers={"Origin": "http://localhost"}).status_code == 200
    assert client.get("/api/videos", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    answer_headers = client.get("/api/videos").headers
    assert answer_headers["x-content-type-options"] == "nosniff"
    assert "default-src 'self'" in answer_headers["content-security-policy"]
    assert "access-control-allow-origin" not in answer_headers


@pytest.mark.parametrize(
    "path",
    [
        "/api/videos/..%2f..%2fetc%2fpasswd/file",
        "/api/videos/%2e%2e/file",
        "/../../etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/%2e%2e/app.py",
        "/static/../../app.py",
        "/api/videos/none/file",
    ],
)
def test_no_way_out_of_what_is_shown(client, path):
    answer = client.get(path)
    assert answer.status_code in (404, 405)
    assert "root:" not in answer.text


def test_large_and_malformed_requests(client, tea):
    video = f"/api/videos/{tea}"
    for method, path, options, status in (
        ("PUT", f"{video}/edits", {"content": b"x" * (MAX_BODY_BYTES + 1)}, 413),
        ("PUT", f"{video}/edits", {"content": b"{not json"}, 422),
        ("PUT", f"{video}/edits", {"content": b"", "headers": {"Content-Length": "-5"}}, 413),
        ("GET", f"{video}/ask", {"params": {"q": "x" * 501}}, 422),
        ("GET", f"{video}/ask", {}, 422),
        ("GET", f"{video}/steps?k=0", {}, 400),
        ("GET", f"{video}/steps?k=1;drop", {}, 422),
        ("GET", f"{video}/picture?t=nan", {}, 422),
        ("POST", f"{video}/recipe", {"json": {"lines": []}}, 400),
        ("POST", f"{video}/recipe", {"json": {"lines": ["x"] * 301}}, 400),
        ("GET", "/api/search/like", {"params": {"video": "'; DROP TABLE steps", "t": 1}}, 400),
    ):
        assert client.request(method, path, **options).status_code == status, (path, options)


def test_more_steps_than_there_can_be(client, tea, library, world):
    """The number of steps is bounded by the video, and by the server whatever the video."""
    video = library.read(library.find(tea))
    num = len(video.nodes)
    limits = {f"steps?k=2,{num + 1}": num, "steps?k=10,99999": MAX_STEPS, "export/csv?k=99999": MAX_STEPS}
    for path, limit in limits.items():
        answer = client.get(f"/api/videos/{tea}/{path}")
        assert answer.status_code == 400
        assert f"at most {limit} steps" in answer.json()["error"]
    assert client.post(f"/api/videos/{tea}/recipe", json={"lines": ["a"] * (num + 1)}).status_code == 400
    assert client.get(f"/api/videos/{tea}/steps?k={num}").json()["max_steps"] == num
    hours = np.random.default_rng(0).normal(size=(3 * MAX_STEPS, 4)).astype(np.float32)
    library.videos.add(tea, world.engine.read_array(hours, name="tea"))
    assert f"at most {MAX_STEPS} steps" in client.get(f"/api/videos/{tea}/steps?k={MAX_STEPS + 1}").json()["error"]


def test_slow_questions_hold_up_no_quick_ones(library, tea, monkeypatch):
    """More cuts than there are threads, all stuck: answers come all the same."""
    from hiero.engine import Video

    gate, begun = threading.Event(), threading.Semaphore(0)
    steps = Video.steps
    monkeypatch.setattr(video_routes, "LARGE_STEPS", 9)

    def slow_steps(self, num_steps, **options):
        if num_steps != [9]:
            begun.release()
            gate.wait(PATIENCE_S)
        return steps(self, num_steps, **options)

    monkeypatch.setattr(Video, "steps", slow_steps)
    with connect(library) as client, ThreadPoolExecutor(12) as pool:
        slow = [pool.submit(client.get, f"/api/videos/{tea}/steps?k={10 + i % 4}") for i in range(5)]
        assert begun.acquire(timeout=PATIENCE_S)
        assert client.get(f"/api/videos/{tea}/steps?k=9").status_code == 200  # few steps do not wait for many
        slow += [pool.submit(client.get, f"/api/videos/{tea}/steps?k={2 + i % 4}") for i in range(5)]
        assert begun.acquire(timeout=PATIENCE_S)
        for path in ("ask?q=tea", "picture?t=1", "steps?k=9", ""):  # k=9 is in memory
            assert client.get(f"/api/videos/{tea}/{path}".rstrip("/")).status_code == 200
        assert not any(future.done() for future in slow)
        gate.set()
        assert {future.result(PATIENCE_S).status_code for future in slow} == {200}


@pytest.mark.parametrize(
    "body",
    [
        '{"lines": ["\\ud800"]}',
        '{"lines": [NaN]}',
        '{"lines": "\\ud800"}',
        '"\\ud800"',
        "NaN",
        "[" * 50_000,
        '{"duration_s": 30, "levels": ' + "[" * 900 + "]" * 900 + "}",
        '{"duration_s": 30, "levels": [{"steps": ["\\ud800"]}]}',
        "9" * 5000,
    ],
)
def test_bodies_that_are_no_text(library, tea, body):
    with connect(library, raise_server_exceptions=False) as client:
        headers = {"content-type": "application/json"}
        for method, path in (("POST", "recipe"), ("PUT", "edits")):
            answer = client.request(method, f"/api/videos/{tea}/{path}", content=body, headers=headers)
            assert answer.status_code in (400, 422), answer.text
            assert answer.json()["error"]
            assert not re.search(r"Traceback|\w+Error|indices", answer.text), answer.text


@pytest.mark.parametrize("value", ["%ED%A0%80", "a%FF", "%00"])
def test_queries_that_are_no_text(library, tea, value):
    with connect(library, raise_server_exceptions=False) as client:
        for path in (
            f"/api/videos/{tea}/ask?q={value}",
            f"/api/search?q={value}",
            f"/api/search/like?t=1&video={value}",
            f"/api/videos/{value}",
            f"/api/videos/{tea}/export/{value}",
            f"/api/videos/{tea}/steps?k={value}",
            f"/api/jobs/{value}",
            f"/{value}",
        ):
            assert client.get(path).status_code < 500, path
        assert client.get("/api/videos", headers={"Origin": "http://["}).status_code == 200
        assert client.delete(f"/api/videos/{tea}/edits", headers={"Origin": "http://["}).status_code == 403


def test_errors_show_no_insides(library, tea, monkeypatch, caplog):
    def broken(*_, **__):
        raise ZeroDivisionError("a secret in /root/somewhere")

    monkeypatch.setattr(type(library), "find_open", broken)
    with connect(library, raise_server_exceptions=False) as client:
        answer = client.get(f"/api/videos/{tea}/steps")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert "a secret" in caplog.text  # which goes to standard error
    monkeypatch.undo()


def test_what_a_killed_server_left_is_cleared(library, world, tmp_path):
    """Only our own files, and only those that nobody writes any more."""
    ours = [tmp_path / ".0123456789abcdef.part", world.root / ".tea.mp4.hiero.json.a1b2_c3d.part"]
    new = [tmp_path / ".fedcba9876543210.part", world.root / ".tea.mp4.hiero.json.zzzzzzzz.part"]
    others = [tmp_path / "film.part", tmp_path / ".mine.part", world.root / ".download.part"]
    for file in (*ours, *new, *others):
        file.write_bytes(b"x")
    for file in (*ours, *others):
        os.utime(file, (time.time() - STALE_S - 60,) * 2)
    create_app(library, ServerSettings(upload=tmp_path, upload_limit=1))
    assert [file.exists() for file in (*ours, *new, *others)] == [False] * 2 + [True] * 5
    for file in (*new, *others):
        file.unlink()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("3", "expected"),
        ("{", "not JSON"),
        ("{}", "expected at least one"),
        ('{"tea": null}', "tea"),
        ('{"tea": {"steps": [5]}}', "tea"),
        ('{"tea": {"steps": [{"start_s": "x", "end_s": 2, "text": "a"}]}}', "tea"),
        ('{"tea": {"steps": [{"start_s": 1, "end_s": 1e999, "text": "a"}]}}', "tea"),
        ('{"tea": {"steps": [{"start_s": 1, "end_s": 1' + "0" * 400 + ', "text": "a"}]}}', "cannot be read"),
        ('{"tea": {"steps": [{"start_s": 1, "end_s": 2, "text": "\\ud800"}]}}', ""),
        ("[" * 100_000, ""),
    ],
)
def test_odd_annotations_are_refused_at_the_start(world, tmp_path, content, message):
    file = tmp_path / "odd truth.json"
    file.write_text(content)
    with pytest.raises(InputError, match=r"odd truth\.json") as error:
        open_library([str(world.root / "corpus")], world.engine, file)
    assert message in str(error.value)


def test_many_clients_at_a_time(client, tea):
    """64 at once, re-cutting and asking: all are answered, and alike."""

    def request(i):
        answer = client.get(f"/api/videos/{tea}/" + (f"steps?k={2 + i % 4}" if i % 2 else "ask?q=tea"))
        return i % 2, i % 4, answer.status_code, answer.text

    client.get(f"/api/videos/{tea}/steps")
    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(request, range(64)))
    assert {status for *_, status, _ in answers} == {200}
    assert len({(kind, k, text) for kind, k, _, text in answers if kind}) == 2
    assert len({text for kind, _, _, text in answers if not kind}) == 1


def test_what_can_be_opened(world, tmp_path):
    engines = world.engine
    library = open_library([str(world.root / "corpus"), str(world.root / "new.mp4")], engines)
    assert {entry.name for entry in library.entries.values()} == {"tea", "bike", "new"}
    for source, message in (("nowhere", "no such file"), (str(tmp_path), "no videos")):
        with pytest.raises(InputError, match=message):
            open_library([source], engines)
    np.save(tmp_path / "x.npy", np.zeros((3, 256), dtype=np.float32))
    assert [entry.playable_files for entry in open_library([str(tmp_path)], engines).entries.values()] == [[]]


@pytest.mark.slow
def test_files_that_are_one_video(world, tmp_path):
    """Chapters: one entry, whose parts are played one by one; no client learns where they lie."""
    from tests.serve.conftest import write_scenes

    paths = [write_scenes(tmp_path / "GX010001.MP4", [0, 1], 3), write_scenes(tmp_path / "GX020001.MP4", [2], 4)]
    lines = []
    library = open_library([str(tmp_path)], world.engine, log=lines.append)
    assert "read as one video" in lines[0]
    (entry,) = library.entries.values()
    with connect(library) as client:
        listed = client.get("/api/videos").json()["videos"][0]
        assert (listed["name"], listed["num_files"], listed["playable"], listed["read"]) == ("GX010001", 2, True, False)
        unread = client.get(f"/api/videos/{entry.id}").json()
        assert [file["start_s"] for file in unread["files"]] == pytest.approx([0, 6], abs=0.1)
        library.index(entry)
        video = client.get(f"/api/videos/{entry.id}").json()
        assert [file["name"] for file in video["files"]] == ["GX010001.MP4", "GX020001.MP4"]
        assert video["duration_s"] == pytest.approx(10, abs=0.2)
        answer = client.get(f"/api/videos/{entry.id}/steps?k=3")
        assert str(tmp_path) not in answer.text
        assert {step["file"] for step in answer.json()["levels"][0]["steps"]} <= {"GX010001.MP4", "GX020001.MP4"}
        for part, path in enumerate(paths):
            assert client.get(f"/api/videos/{entry.id}/file?part={part}").content == path.read_bytes()
        assert client.get(f"/api/videos/{entry.id}/file").content == paths[0].read_bytes()
        assert client.get(f"/api/videos/{entry.id}/file?part=2").status_code == 404
        assert client.get(f"/api/videos/{entry.id}/file?part=-1").status_code == 422
        assert client.get(f"/api/videos/{entry.id}/picture?t=8").content[:2] == b"\xff\xd8"
        assert "GX020001.MP4" in client.get(f"/api/videos/{entry.id}/export/edl").text
        assert client.get(f"/api/videos/{entry.id}/ask?q=pour the tea").status_code == 200
    assert len(open_library([str(tmp_path)], world.engine, join=False).entries) == 2


@pytest.mark.slow
def test_the_api_is_what_its_document_says(library):
    """Every operation of the OpenAPI document with generated input: never a server error, always an
    answer that is documented.
    """
    schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.checks import not_a_server_error

    schema = schemathesis.openapi.from_asgi(
        "/openapi.json", create_app(library, ServerSettings(allow_host=["testserver"]))
    )
    phases = [Phase.explicit, Phase.generate]
    few_examples = settings(
        max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), phases=phases, database=None
    )
    paths = set()
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path.endswith("/events"):
            continue
        paths.add(operation.path)

        @settings(few_examples)
        @given(case=operation.as_strategy())
        def check(case):
            if "id" in (case.path_parameters or {}) and "videos" in case.path:
                case.path_parameters["id"] = library.find_by_name("tea").id
            answer = case.call()
            case.validate_response(answer, checks=[not_a_server_error])

        check()
    assert len(paths) >= 15
