"""Remote files in an object store: against a real S3-compatible server on this machine."""

from __future__ import annotations

import numpy as np
import pytest

from hiero.errors import InputError
from hiero.media import remote
from hiero.media.remote import RemoteFile, list_remote, remote_exists
from tests.optional import skip_without

skip_without("moto.server", "needs moto: pip install 'moto[server]'")
skip_without("s3fs", "needs s3fs: pip install 'hiero-video[remote]'")
pytestmark = pytest.mark.filterwarnings("ignore")
BUCKET = "videos"


@pytest.fixture
def store(monkeypatch, tmp_path):
    """A client of a store with one empty bucket, and the variables by which it is found."""
    import boto3
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    for name, value in {
        "HIERO_HOME": str(tmp_path),
        "AWS_ENDPOINT": address,
        "AWS_ACCESS_KEY_ID": "key-id",
        "AWS_SECRET_ACCESS_KEY": "secret-key",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setattr(remote, "STAT_AGE_S", -1.0)
    monkeypatch.setattr(remote, "MAX_ATTEMPTS", 2)
    monkeypatch.setattr(remote, "FIRST_DELAY_S", 0.01)
    s3fs.S3FileSystem.clear_instance_cache()
    client = boto3.client("s3", endpoint_url=address)
    client.create_bucket(Bucket=BUCKET)
    client.stop_server = server.stop
    yield client
    server.stop()


def test_a_prefix_is_listed_and_its_files_are_read(store):
    content = np.random.default_rng(0).bytes(9 * 2**20 + 5)  # more than one request
    bodies = {"day/a.mp4": content, "day/a.en.srt": b"1", "day/deep/b.mp4": b"b", "day/c.txt": b"c", "e.mp4": b"e"}
    for key, body in bodies.items():
        store.put_object(Bucket=BUCKET, Key=key, Body=body)
    for path, names in {"day/": ["a.mp4", "deep/b.mp4"], "day": ["a.mp4", "deep/b.mp4"], "none/": []}.items():
        assert [entry.name for entry in list_remote(f"s3://{BUCKET}/{path}", (".mp4",))] == names
    assert [remote_exists(f"s3://{BUCKET}/day{name}") for name in ("", "/steps.lance")] == [True, False]
    file = RemoteFile.from_address(f"s3://{BUCKET}/day/a.mp4")
    assert not file.path.exists()  # looking downloads nothing
    assert file.fetch().read_bytes() == content
    assert file.path.with_name("a.en.srt").read_bytes() == b"1"
    store.put_object(Bucket=BUCKET, Key="day/a.mp4", Body=b"new")
    assert file.known_key() is None
    assert file.fetch().read_bytes() == b"new"


def test_errors_are_one_line_without_secrets(store):
    with pytest.raises(InputError, match=r"s3://videos/none.mp4: no such file") as missing:
        RemoteFile.from_address(f"s3://{BUCKET}/none.mp4").fetch()
    with pytest.raises(InputError) as bucket:
        RemoteFile.from_address("s3://none/none.mp4").fetch()
    store.put_object(Bucket=BUCKET, Key="a.mp4", Body=b"x" * 100)
    store.stop_server()
    with pytest.raises(InputError, match="the connection was lost") as lost:
        RemoteFile.from_address(f"s3://{BUCKET}/a.mp4").fetch()
    for error in (missing, bucket, lost):
        assert "secret-key" not in str(error.value)
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 300
