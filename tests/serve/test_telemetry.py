"""A server seen from outside: health, metrics and logs."""

from __future__ import annotations

import json
import logging
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient

from hiero.serve.app import create_app
from hiero.serve.database import FILE_NAME
from hiero.serve.edits import FileEdits
from hiero.serve.settings import ServerSettings
from hiero.serve.state import State
from hiero.serve.telemetry import LineFormatter
from tests.serve.conftest import connect
from tests.waiting import PATIENCE_S, wait_until


def parse_metrics(text):
    """{sample with labels: value}, by Prometheus' own parser."""
    parser = pytest.importorskip("prometheus_client.parser", reason="needs prometheus-client")
    samples = [sample for family in parser.text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, *sorted(sample.labels.items())): sample.value for sample in samples}


def test_metrics(library):
    with connect(library) as client:
        entry = library.find_by_name("tea")
        for question in ("a cup", "a bike"):
            assert client.get(f"/api/videos/{entry.id}/ask", params={"q": question}).status_code == 200
        client.get("/api/videos/nothing/steps")
        client.get("/nothing-at-all")
        client.request("BREW", "/")
        job = client.app.guard.app.state.services.jobs.start(entry.id)
        wait_until(lambda: job.ended)
        metrics = parse_metrics(client.get("/metrics").text)
    route = ("route", "/api/videos/{id}/ask")
    assert metrics["hiero_requests_total", ("method", "GET"), route, ("status", "200")] == 2
    assert (
        metrics["hiero_requests_total", ("method", "GET"), ("route", "/api/videos/{id}/steps"), ("status", "404")] == 1
    )
    assert metrics["hiero_questions_total",] == 2
    assert metrics["hiero_request_seconds_count", route] == 2
    assert metrics["hiero_request_seconds_bucket", ("le", "+Inf"), route] == 2
    assert metrics["hiero_videos",] == 3
    assert metrics["hiero_jobs", ("state", "running")] == 0
    assert metrics["hiero_ended_jobs_total", ("state", "done")] == 1
    assert metrics["hiero_queue_oldest_seconds",] == metrics["hiero_edits_total",] == 0
    assert metrics["hiero_cache_bytes",] > 1000
    assert not any("BREW" in str(key) for key in metrics)  # what clients make up is not a label
    buckets = [value for (name, *labels), value in metrics.items() if name.endswith("_bucket") and route in labels]
    assert buckets == sorted(buckets)


def test_logs_name_requests_and_people_but_no_token(library, capsys):
    options = ServerSettings(token="secret", log_format="json")
    with connect(library, options) as client:
        client.get("/?token=secret", follow_redirects=False)
        answer = client.get("/api/me", headers={"X-Request-ID": "from-the-proxy.1"})
        forged = client.get("/api/videos", headers={"X-Request-ID": 'x"\n{}'})
        client.post(f"/api/videos/{library.find_by_name('tea').id}/read")
    assert answer.headers["x-request-id"] == "from-the-proxy.1"
    assert len(forged.headers["x-request-id"]) == 16
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    requests = [line for line in lines if line["kind"] == "request"]
    assert [(line["path"], line["status"]) for line in requests][:2] == [("/", 303), ("/api/me", 200)]
    assert (requests[1]["id"], requests[1]["user"]) == ("from-the-proxy.1", "token")
    assert "secret" not in json.dumps(lines)


def test_text_logs_stay_one_line(library, capsys):
    with connect(library, ServerSettings(log_format="text")) as client:
        client.get("/api/videos/a%0Ab")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert 'path="/api/videos/a\\nb"' in lines[0]


@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_traceback_is_one_line(capsys, kind):
    try:
        raise ZeroDivisionError("a secret\nand more")
    except ZeroDivisionError:
        record = logging.LogRecord("hiero", logging.ERROR, "", 0, "job %s:", ("1",), sys.exc_info())
    line = LineFormatter(kind).format(record)
    assert "\n" not in line
    assert "ZeroDivisionError" in (json.loads(line)["traceback"] if kind == "json" else line)


def test_a_locked_state_does_not_stop_the_server(library, tmp_path):
    state = State(tmp_path)
    with connect(library, state=state) as client:
        other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(2) as pool:
            waiting = [pool.submit(client.get, "/readyz"), pool.submit(client.post, "/api/learn")]
            assert client.get("/healthz").status_code == 200
            assert client.get("/api/videos").status_code == 200
            assert not any(answer.done() for answer in waiting)
            other.execute("COMMIT")
            assert [answer.result(PATIENCE_S).status_code for answer in waiting] == [200, 202]
        other.close()
    library.edits = FileEdits()


def test_the_log_has_the_address_of_the_visitor(library, capsys):
    settings = ServerSettings(token="secret", trusted_proxy=["10.0.0.9"], log_format="json")
    for peer, expected in (("10.0.0.9", "198.51.100.4"), ("10.0.0.8", "10.0.0.8")):
        with connect(library, settings, client=(peer, 1)) as client:
            client.get("/api/me", headers={"X-Forwarded-For": "203.0.113.1, 198.51.100.4"})
        assert json.loads(capsys.readouterr().err)["client"] == expected


def test_health(library, tmp_path):
    state = State(tmp_path / "state")
    app = create_app(library, state=state)
    with TestClient(app, base_url="http://localhost") as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/readyz").json() == {"status": "ready", "disk": "ok", "model": "ok", "corpus": "ok"}
        app.close()
        stopping = client.get("/readyz")
        assert (stopping.status_code, stopping.json()["error"]) == (503, "the server is stopping")
        assert client.get("/healthz").status_code == 200
    removed_state = State(tmp_path / "removed")
    with connect(library, state=removed_state) as client:
        assert client.get("/readyz").status_code == 200
        (tmp_path / "removed" / FILE_NAME).unlink()
        answer = client.get("/readyz")
        assert (answer.status_code, "was removed" in answer.json()["error"]) == (503, True)
        steps = client.get(f"/api/videos/{library.find_by_name('tea').id}/steps").json()
        saved = client.put(f"/api/videos/{library.find_by_name('tea').id}/edits", json=steps)
        assert (saved.status_code, "not saved" in saved.json()["error"]) == (400, True)
    broken_state = State(tmp_path / "other")
    broken = create_app(library, state=broken_state)
    broken_state.close()  # as a disk that is gone
    with TestClient(broken, base_url="http://localhost") as client:
        assert client.get("/readyz").status_code == 503
        assert client.get("/api/videos").status_code == 503
    library.edits = FileEdits()
