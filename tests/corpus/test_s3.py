"""A corpus in an object store: against a real S3-compatible server on this machine."""

from __future__ import annotations

import json
import time
import urllib.request

import numpy as np
import pytest

from hiero.corpus.corpus import Corpus
from hiero.corpus.indexing import index_files
from hiero.engine import load
from hiero.errors import InputError
from tests.optional import skip_without
from tests.processes import start_hiero
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

skip_without("lancedb", "needs LanceDB: pip install 'hiero-video[serve]'")
skip_without("moto.server", "needs moto: pip install 'moto[server]'")
BUCKET = "hiero-test"


@pytest.fixture
def server(monkeypatch):
    """An empty store with one bucket, and the variables by which LanceDB finds it."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    variables = {"ENDPOINT": address, "ALLOW_HTTP": "true", "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "secret-key"}
    variables |= dict.fromkeys(("REGION", "DEFAULT_REGION"), "us-east-1")
    for name, value in variables.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    boto3.client("s3", endpoint_url=address).create_bucket(Bucket=BUCKET)
    yield server
    server.stop()


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    out = {}
    for i in range(4):
        out[f"v{i}"] = tmp_path / f"v{i}.npy"
        np.save(out[f"v{i}"], np.random.default_rng(i).normal(size=(60, 16)).astype(np.float32))
    return out


def test_index_search_and_several_writers(server, files):
    engine, uri = load("raw"), f"s3://{BUCKET}/corpus"
    corpus = Corpus(uri, create=True)
    assert index_files(corpus, engine, dict(list(files.items())[:1]), engine.read).num_added == 1
    writers = [start_hiero("index", *files.values(), "--to", uri, "--model", "raw") for _ in range(2)]
    for writer in writers:
        _, errors = writer.communicate()
        assert writer.returncode == 0, errors
    again = Corpus(uri)
    assert [record.video for record in again.videos()] == sorted(files)
    assert not again.check()
    video = engine.read(files["v2"])
    (best,) = again.search(video.sight.embed_spans(np.array([[0, 60]]))[0], 1, videos=["v2"])
    assert best.video == "v2"


def test_serve(server, files):
    """`hiero serve` on a corpus in the store: the list, the same step elsewhere, and a video that
    is added by a job.
    """
    engine, uri = load("raw"), f"s3://{BUCKET}/served"
    index_files(Corpus(uri, create=True), engine, dict(list(files.items())[:3]), engine.read)
    with start_hiero("serve", uri, files["v3"], "--index", "--model", "raw", "--port", "0") as process:
        line = process.stdout.readline()
        assert "http://" in line, process.stderr.read()
        address = line.split()[-1]

        def get(path, method="GET"):
            request = urllib.request.Request(f"{address}api/{path}", method=method)
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return json.loads(answer.read())

        ids = {video["name"]: video["id"] for video in get("videos")["videos"]}
        assert sorted(ids) == sorted(files)
        assert get("search/like?video=v1&t=5&n=3")["hits"]
        job = get(f"videos/{ids['v3']}/read", "POST")
        while job["state"] not in ("done", "failed"):
            time.sleep(0.1)
            job = get(f"jobs/{job['id']}")
        assert job["state"] == "done", job
        process.terminate()
        process.wait()
    assert [record.video for record in Corpus(uri).videos()] == sorted(files)


def test_a_lost_connection_is_one_clear_line(server, files):
    with pytest.raises(InputError) as caught:
        Corpus(f"s3://{BUCKET}-none/corpus")
    assert "bucket does not exist" in str(caught.value)
    server.stop()
    with pytest.raises(InputError, match="cannot open the corpus") as caught:
        Corpus(f"s3://{BUCKET}/corpus")
    assert len(str(caught.value)) < 300
    assert "secret-key" not in str(caught.value)
