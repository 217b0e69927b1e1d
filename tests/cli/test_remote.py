"""hiero steps, ask, extract and index over addresses; in this process, to be fast."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest

from hiero.cli.ask import split_queries
from hiero.cli.inputs import find_inputs
from hiero.cli.options import VideoOptions
from hiero.corpus.corpus import Corpus
from hiero.corpus.table import is_corpus
from hiero.errors import InputError
from hiero.features.collection import ExtractionProgress, extract_all
from hiero.media.decode import probe
from hiero.media.recordings import find_videos, is_collection, names_files
from hiero.media.source import VideoSource
from tests.features.test_collection import egovlp_file, plan_for
from tests.films import write_video
from tests.processes import start_hiero
from tests.remote_server import file_server, isolate_remote

SECRET = "?X-Amz-Signature=sig-nature-1"


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    isolate_remote(tmp_path, monkeypatch)


@pytest.fixture
def server():
    with file_server() as server:
        yield server


@pytest.fixture
def memory():
    """A file system of fsspec, which can list."""
    import fsspec

    files = fsspec.filesystem("memory")
    yield files
    files.rm("/card", recursive=True)


def rows_file(tmp_path, num_rows=40, seed=0):
    """The bytes of a feature file."""
    rng = np.random.default_rng(seed)
    path = tmp_path / "rows.npy"
    np.save(path, np.repeat(rng.normal(0, 3, (4, 16)), num_rows // 4, 0).astype(np.float32))
    return path.read_bytes()


def test_steps_of_an_address(run, server, tmp_path):
    address = server.put("/v/kitchen.npy", rows_file(tmp_path))
    code, out, err = run("steps", address + SECRET, "--model", "raw", "-k", "2,4", "--json", "-o", tmp_path / "out")
    assert code == 0, err
    document = json.loads(out)
    assert document["video"] == address
    assert [len(level["steps"]) for level in document["levels"]] == [2, 4]
    written = "".join(file.read_text(errors="replace") for file in (tmp_path / "out").rglob("*") if file.is_file())
    assert "sig-nature-1" not in out + err + written
    assert "home/cache" not in out + err + written
    # The same results as of the file itself.
    (tmp_path / "kitchen.npy").write_bytes(server.files["/v/kitchen.npy"])
    _, local, _ = run("steps", tmp_path / "kitchen.npy", "--model", "raw", "-k", "2,4", "--json")
    assert json.loads(local)["levels"] == document["levels"]


def test_chapters_below_an_address_are_one_video(run, memory, tmp_path):
    for name in ("GX010001.npy", "GX020001.npy", "sink.npy"):
        memory.pipe(f"/card/{name}", rows_file(tmp_path))
    memory.pipe("/card/broken.npy", b"no array")
    inputs = find_inputs(["memory://card/"], VideoOptions(), "read")
    assert list(inputs.sources) == ["GX010001", "broken", "sink"]
    assert not any(path.exists() for path in inputs.paths)  # a listing brings nothing
    code, out, _ = run("steps", "memory://card/", "--model", "raw", "--hz", 1, "--json")
    videos = {video["name"]: video for video in json.loads(out)["videos"]}
    chapters = ["memory://card/GX010001.npy", "memory://card/GX020001.npy"]
    assert code == 1
    assert [file["path"] for file in videos["GX010001"]["files"]] == chapters
    assert videos["GX010001"]["levels"][-1]["steps"][-1]["file"] == chapters[1]
    assert videos["broken"]["error"].startswith("memory://card/broken.npy: ")


def test_addresses_among_arguments():
    address = "s3://bucket/a.mp4"
    assert split_queries([address, "cut the onion"], []) == ([address], ["cut the onion"])
    assert split_queries([address, "https://h/b.mp4", "cut"], []) == ([address, "https://h/b.mp4"], ["cut"])
    assert split_queries(["cut"], [address]) == ([address], ["cut"])
    names = (address, "s3://bucket/videos/", "s3://bucket/*.mp4")
    assert list(map(is_collection, names)) == [False, True, True]
    assert list(map(names_files, ("https://host/videos", "s3://bucket/a.MP4", "s3://bucket/videos/"))) == [1, 1, 0]


def test_an_address_is_no_corpus_unless_it_holds_one(memory):
    memory.pipe("/card/a.mp4", b"a")
    memory.pipe("/card/corpus/steps.lance/data", b"a")
    names = ("", "/a.mp4", "/corpus", "/none")
    assert [is_corpus(f"memory://card{name}") for name in names] == [False, False, True, True]


@pytest.fixture
def film(tmp_path):
    """A video of some megabytes: noise, whose index is at its end."""
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 255, (240, 320, 3), dtype=np.uint8) for _ in range(60)]
    return write_video(tmp_path / "noise.mp4", [0] * 60, pictures=pictures, fps=30).read_bytes()


def test_a_look_at_a_video_reads_a_part_of_it(server, film):
    source = VideoSource.of(server.put("/noise.mp4", film))
    path = source.path
    assert len(film) > 4 * 2**20
    info = probe(path, file=source.files[0].reader())
    assert (info.duration_s, info.width, info.height) == (pytest.approx(2.0, abs=0.05), 320, 240)
    assert server.num_sent < 3 * 2**20
    assert not path.exists()
    source.fetch()
    assert path.read_bytes() == film
    assert server.num_sent < len(film) + 3 * 2**20


def test_extract_over_http(server, tmp_path, monkeypatch):
    content = write_video(tmp_path / "a.mp4", [40, 90, 200, 30] * 15, fps=30).read_bytes()
    addresses = [server.put(f"/{name}.mp4", content if name != "broken" else b"x" * 5000) for name in ("a", "broken")]
    plan = plan_for(tmp_path, egovlp_file(tmp_path / "egovlp.pth"))
    events = []
    results = extract_all(find_videos(addresses), plan, progress=ExtractionProgress(download=events.append))
    assert [(result.name, result.status) for result in results] == [("a", "done"), ("broken", "failed")]
    assert results[1].message.startswith(addresses[1])
    assert {event.name for event in events} == {"a.mp4", "broken.mp4"}
    VideoSource.of(addresses[0]).path.unlink()  # it made room
    server.num_sent = 0
    (again,) = extract_all(find_videos(addresses[:1]), plan)
    assert again.status == "kept"
    assert server.num_sent < 10  # it was asked about, not read
    assert not VideoSource.of(addresses[0]).path.exists()


def test_index_stores_addresses_and_brings_nothing_twice(run, server, tmp_path):
    pytest.importorskip("lancedb", reason="needs LanceDB: pip install 'hiero-video[serve]'")
    address, to = server.put("/v/kitchen.npy", rows_file(tmp_path)), tmp_path / "corpus"
    command = ("index", address + SECRET, "--to", to, "--model", "raw", "--hz", 1)
    code, out, err = run(*command)
    assert (code, "1 added" in out) == (0, True), err
    corpus = Corpus(str(to))
    (record,) = corpus.videos()
    assert (record.video, record.path) == ("kitchen", address)
    assert corpus.check() == []
    VideoSource.of(address).path.unlink()
    server.num_sent = 0
    assert "1 unchanged" in run(*command)[1]
    assert server.num_sent < 20  # it was asked about, not read
    assert corpus.check() == []
    server.put("/v/kitchen.npy", rows_file(tmp_path, seed=1))
    assert "kitchen.npy" in corpus.check()[0]
    assert "1 added" in run(*command)[1]
    del server.files["/v/kitchen.npy"]
    assert address in corpus.check()[0]


@pytest.mark.slow
def test_watch_indexes_what_arrives_until_it_is_interrupted(tmp_path):
    pytest.importorskip("lancedb", reason="needs LanceDB: pip install 'hiero-video[serve]'")
    folder, to, content = tmp_path / "in", tmp_path / "corpus", rows_file(tmp_path)
    folder.mkdir()
    (folder / "first.npy").write_bytes(content)
    (folder / "broken.npy").write_bytes(b"no array")
    options = ("--to", to, "--model", "raw", "--hz", 1, "--watch", "--every", 0.1)
    with start_hiero("index", folder, *options) as program:
        assert program.stdout.readline().startswith("first: added")
        for size in (100, 200, len(content)):  # somebody copies a file bit by bit
            (folder / "second.npy").write_bytes(content[:size])
        assert program.stdout.readline().startswith("second: added")
        program.send_signal(signal.SIGINT)
        out, err = program.communicate()
        assert (program.returncode, "2 added" in out) == (0, True)
    assert err.count(f"failed: {folder / 'broken.npy'}") >= 1
    assert [record.video for record in Corpus(str(to)).videos()] == ["first", "second"]


def test_watch_needs_something_to_look_at(run, tmp_path):
    for arguments in ([], [tmp_path, "--again"], [tmp_path, "--every", 0]):
        with pytest.raises(InputError, match="--watch"):
            run("index", *arguments, "--to", tmp_path / "corpus", "--watch", "--model", "raw")


@pytest.mark.slow
@pytest.mark.usefixtures("brightness")
def test_a_copy_that_made_room_is_brought_again_to_be_cut(run, server, tmp_path, film):
    address = server.put("/noise.mp4", film)
    command = ("steps", address, "--model", "brightness", "-k", 2)
    code, _, err = run(*command)
    assert code == 0, err
    VideoSource.of(address).path.unlink()
    server.num_sent = 0
    assert run(*command)[0] == 0
    assert server.num_sent < 20  # features are here, so the video need not be
    code, _, err = run("clips", *command[1:], "-o", tmp_path / "clips")
    assert code == 0, err
    assert len(list((tmp_path / "clips").glob("*.mp4"))) == 2
    assert len(film) <= server.num_sent < len(film) + 20
