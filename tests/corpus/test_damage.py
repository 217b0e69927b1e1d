"""Damaged corpora: one clear line that names the table, and a repair from the videos."""

from __future__ import annotations

import random
import shutil

import numpy as np
import pytest

from hiero.cli import app
from hiero.corpus.corpus import Corpus, IndexSettings, add_video
from hiero.corpus.table import DamagedCorpusError
from hiero.corpus.video_list import FILE_NAME, read_list
from hiero.engine import load
from tests.optional import skip_without

skip_without("lancedb", "needs LanceDB: pip install 'hiero-video[serve]'")

DAMAGE = {
    "missing": lambda file: file.unlink(),
    "truncated": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "empty": lambda file: file.write_bytes(b""),
    "random": lambda file: file.write_bytes(random.Random(0).randbytes(file.stat().st_size)),
}


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))


@pytest.fixture
def corpus(tmp_path):
    engine, rng = load("raw"), np.random.default_rng(0)
    corpus = Corpus(str(tmp_path / "corpus"), create=True)
    for name in ("a", "b", "c"):
        rows = [rng.normal(size=16) + 0.2 * rng.normal(size=(30, 16)) for _ in range(4)]
        np.save(tmp_path / f"{name}.npy", np.concatenate(rows).astype(np.float32))
        add_video(corpus, engine, tmp_path / f"{name}.npy", engine.read, IndexSettings([2, 4]))
    return corpus


def run(*arguments):
    app([str(argument) for argument in arguments], result_action="return_value")


def rows_of(corpus):
    """What is stored about each step; `about` holds the time of indexing."""
    rows = corpus.table.to_arrow().drop_columns(["about"]).to_pylist()
    return sorted(map(str, rows))


# Without its newest version, LanceDB takes the one before.
@pytest.mark.parametrize(
    ("part", "damage"),
    [
        (part, damage)
        for part in ("data", "_versions")
        for damage in DAMAGE
        if (part, damage) != ("_versions", "missing")
    ],
)
def test_damage_is_one_clear_line_and_is_repaired(corpus, part, damage, tmp_path, capsys):
    folder = tmp_path / "corpus" / "steps.lance" / part
    before = rows_of(corpus)
    DAMAGE[damage](min(folder.glob("*.manifest" if part == "_versions" else "*.lance")))
    for read in (
        lambda: Corpus(corpus.uri).videos(),
        lambda: Corpus(corpus.uri).check(),
        lambda: Corpus(corpus.uri).search(np.ones(16, np.float32), 5),
        lambda: Corpus(corpus.uri).like("a", 10.0),
        lambda: add_video(Corpus(corpus.uri), load("raw"), tmp_path / "a.npy", load("raw").read),
    ):
        with pytest.raises(
            DamagedCorpusError, match=r"steps\.lance is damaged \(.*\); to rebuild it, run: hiero corpus"
        ) as caught:
            read()
        assert "\n" not in str(caught.value)
        assert ".rs:" not in str(caught.value)
    with pytest.raises(SystemExit) as exit_:
        run("corpus", "check", corpus.uri)
    assert exit_.value.code == 1
    assert "steps.lance is damaged" in capsys.readouterr().err
    run("corpus", "repair", corpus.uri)
    assert "3 videos, 18 steps, 0 problems" in capsys.readouterr().out
    assert rows_of(Corpus(corpus.uri)) == before


def test_a_damaged_record_is_damage(corpus, tmp_path):
    corpus.table.update(where="video = 'b' AND level = -1", values={"about": "{"})
    with pytest.raises(DamagedCorpusError, match=r"steps\.lance is damaged"):
        corpus.videos()
    assert any(line.startswith("b: has steps but no video") for line in corpus.check())
    run("corpus", "repair", corpus.uri)
    assert corpus.check() == []
    assert corpus.num_videos == 3


def test_videos_that_are_missing_stay_a_problem(corpus, tmp_path, capsys):
    (tmp_path / "b.npy").unlink()
    shutil.rmtree(tmp_path / "corpus" / "steps.lance" / "data")
    with pytest.raises(SystemExit):
        run("corpus", "repair", corpus.uri)
    printed = capsys.readouterr()
    assert "b: its steps are lost" in printed.err
    assert "2 videos" in printed.out


def test_the_list_follows_the_corpus(corpus, tmp_path):
    assert list(read_list(corpus.uri)) == ["a", "b", "c"]
    assert read_list(corpus.uri)["b"] == corpus.find("b")
    corpus.remove(["b"])
    assert list(read_list(corpus.uri)) == ["a", "c"]
    file = tmp_path / "corpus" / FILE_NAME
    file.write_text(file.read_text() + '{"video": "d", "pa')  # a process that was killed
    assert list(read_list(corpus.uri)) == ["a", "c"]
    file.unlink()  # as in a corpus of an earlier version
    engine = load("raw")
    add_video(corpus, engine, tmp_path / "b.npy", engine.read)
    assert list(read_list(corpus.uri)) == ["a", "b", "c"]
