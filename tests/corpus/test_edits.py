"""A person's work counts in a corpus: corrected steps are indexed, found by their names, and kept up to date."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from hiero.cli import app
from hiero.corpus.corpus import Corpus, add_video
from hiero.corpus.table import CorpusTables
from hiero.errors import InputError
from hiero.formats.hiero_json import write_edits
from hiero.types import Hierarchy, Step
from tests.optional import skip_without, weights_or_skip

skip_without("lancedb", "needs LanceDB: pip install 'hiero-video[serve]'")


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    weights = weights_or_skip("minilm").parent
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "weights").symlink_to(weights)
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))


@pytest.fixture
def videos(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        rows = [rng.normal(size=16) + 0.2 * rng.normal(size=(30, 16)) for _ in range(3)]
        np.save(tmp_path / f"{name}.npy", np.concatenate(rows).astype(np.float32))
    return tmp_path


@pytest.fixture
def corpus(videos, engine):
    corpus = Corpus(str(videos / "corpus"), create=True)
    for name in ("a", "b"):
        add_video(corpus, engine, videos / f"{name}.npy", engine.read)
    return corpus


def corrected(path, name="rinse the cup"):
    """Two steps, of which a person named the second."""
    steps = (Step("step-1", 0.0, 40.0, 0), Step("step-2", 40.0, 90.0, 1, label=name, origin="person"))
    return Hierarchy(str(path), "raw", 90.0, (steps,))


def test_corrections_are_indexed_and_found_by_their_names(corpus, videos, engine):
    path = videos / "a.npy"
    assert not add_video(corpus, engine, path, engine.read)[1]
    write_edits(path, None, corrected(path))
    record, is_new = add_video(corpus, engine, path, engine.read)
    assert (is_new, record.levels) == (True, (2,))
    assert [(step.start_s, step.label, step.origin) for step in corpus.steps("a")] == [
        (0.0, None, "model"),
        (40.0, "rinse the cup", "person"),
    ]
    best = corpus.search_text(engine, "rinse the cup")[0]
    assert (best.video, best.start_s, best.rests_on) == ("a", 40.0, "name")
    assert best.probability > 0.9
    assert best.to_dict()["origin"] == "person"
    assert corpus.search_text(engine, "rinsing a cup")[0].start_s == 40.0
    assert not add_video(corpus, engine, path, engine.read)[1]
    write_edits(path, None, corrected(path, "dry the cup"))
    assert add_video(corpus, engine, path, engine.read)[1]
    assert corpus.steps("a")[1].label == "dry the cup"
    assert corpus.check() == []


def test_an_edit_updates_the_rows_of_its_video(corpus, videos, engine):
    """As a server does after a save, and after the edits are deleted."""
    path = videos / "a.npy"
    video, record, others = engine.read(path, edits=False), corpus.find("a"), corpus.steps("b")
    corpus.add(video, corrected(path), "a", record.sha256, record.transcripts)
    assert [step.label for step in corpus.steps("a")] == [None, "rinse the cup"]
    assert corpus.steps("b") == others
    write_edits(path, None, corrected(path))
    assert not add_video(corpus, engine, path, engine.read)[1]  # the server's edits are those of the file
    corpus.add(video, video.steps(), "a", record.sha256, record.transcripts)
    assert corpus.find("a") == replace(record, indexed_at=corpus.find("a").indexed_at)


def test_corrections_survive_a_new_index_and_a_new_model(corpus, videos, engine):
    path = videos / "a.npy"
    write_edits(path, None, corrected(path))
    add_video(corpus, engine, path, engine.read)
    shutil.rmtree(corpus.uri)
    corpus = Corpus(corpus.uri, create=True)
    add_video(corpus, engine, path, engine.read)
    assert [step.label for step in corpus.steps("a")] == [None, "rinse the cup"]
    corpus.renew(engine, engine.read)
    assert [step.label for step in corpus.steps("a")] == [None, "rinse the cup"]


def run(capsys, *arguments):
    app([str(argument) for argument in arguments], result_action="return_value")
    return capsys.readouterr().out


def test_search_says_what_is_probably_missing(corpus, videos, engine, capsys):
    path = videos / "a.npy"
    write_edits(path, None, corrected(path))
    add_video(corpus, engine, path, engine.read)
    assert "100 %" in run(capsys, "search", corpus.uri, "rinse the cup")
    assert "probably not" in run(capsys, "search", corpus.uri, "repair a bicycle")
    assert "rinse the cup" not in run(capsys, "search", corpus.uri, "repair a bicycle", "--all")
    for text, is_present in (("repair a bicycle", False), ("rinse the cup", True)):
        document = json.loads(run(capsys, "search", corpus.uri, text, "--json"))
        assert document["queries"][0]["present"] is is_present
    assert document["queries"][0]["matches"][0]["rests_on"] == "name"


def test_index_announces_corrections(corpus, videos, capsys):
    path = videos / "a.npy"
    write_edits(path, None, corrected(path))
    command = ["index", str(path), "--to", corpus.uri, "--model", "raw"]
    assert "0 added, 1 unchanged" in run(capsys, *command, "--no-edits")
    for more, message in (([], "using 1 correction"), (["-k", "2"], "not used")):
        app([*command, *more], result_action="return_value")
        printed = capsys.readouterr()
        assert "1 added, 0 unchanged" in printed.out
        assert message in printed.err
        assert "a.npy.hiero.json" in printed.err


def test_the_same_step_elsewhere_may_not_exist(corpus, capsys):
    assert "closest" in run(capsys, "search", corpus.uri, "--like", "a@0:10")
    assert "closest" not in run(capsys, "search", corpus.uri, "--like", "a@0:10", "--all")


def test_a_failed_first_video_decides_nothing(videos, engine, monkeypatch):
    """The size of the vectors is that of the first video that was added."""
    corpus = Corpus(str(videos / "new"), create=True)
    with monkeypatch.context() as patch:
        patch.setattr(CorpusTables, "create", lambda *_: (_ for _ in ()).throw(InputError("failed")))
        with pytest.raises(InputError, match="failed"):
            add_video(corpus, engine, videos / "a.npy", engine.read)
    np.save(videos / "narrow.npy", np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32))
    assert add_video(corpus, engine, videos / "narrow.npy", engine.read)[1]
