"""Damaged corpora: one clear line that names the table, and a new index."""

from __future__ import annotations

import random
import shutil

import numpy as np
import pytest

from hiero.cli import app
from hiero.corpus.corpus import Corpus, IndexSettings, add_video
from hiero.corpus.table import DamagedCorpusError
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


def index_all(folder):
    engine, corpus = load("raw"), Corpus(str(folder / "corpus"), create=True)
    for name in ("a", "b", "c"):
        add_video(corpus, engine, folder / f"{name}.npy", engine.read, IndexSettings([2, 4]))
    return corpus


@pytest.fixture
def corpus(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("a", "b", "c"):
        rows = [rng.normal(size=16) + 0.2 * rng.normal(size=(30, 16)) for _ in range(4)]
        np.save(tmp_path / f"{name}.npy", np.concatenate(rows).astype(np.float32))
    return index_all(tmp_path)


def run(*arguments):
    app([str(argument) for argument in arguments], result_action="return_value")


def rows_of(corpus):
    """What is stored about each step; `about` holds the time of indexing."""
    rows = corpus.table.to_arrow().drop_columns(["about"]).to_pylist()
    return sorted(map(str, rows))


# Without its newest version, LanceDB takes the one before.
@pytest.mark.parametrize(
    ("files", "damage"),
    [("data/*.lance", name) for name in DAMAGE] + [("_versions/*.manifest", name) for name in list(DAMAGE)[1:]],
)
def test_damage_is_one_clear_line_and_a_new_index_helps(corpus, files, damage, tmp_path, capsys):
    before = rows_of(corpus)
    DAMAGE[damage](min((tmp_path / "corpus" / "steps.lance").glob(files)))
    for read in (
        lambda: Corpus(corpus.uri).videos(),
        lambda: Corpus(corpus.uri).check(),
        lambda: Corpus(corpus.uri).search(np.ones(16, np.float32), 5),
        lambda: Corpus(corpus.uri).like("a", 10.0),
        lambda: add_video(Corpus(corpus.uri), load("raw"), tmp_path / "a.npy", load("raw").read),
    ):
        with pytest.raises(DamagedCorpusError, match=r"steps\.lance") as caught:
            read()
        assert "\n" not in str(caught.value)
        assert ".rs:" not in str(caught.value)
    with pytest.raises(SystemExit) as exit_:
        run("corpus", "check", corpus.uri)
    assert exit_.value.code == 1
    assert "steps.lance is damaged" in capsys.readouterr().err
    shutil.rmtree(corpus.uri)
    index_all(tmp_path)
    assert rows_of(Corpus(corpus.uri)) == before


def test_a_damaged_record_is_damage(corpus):
    corpus.table.update(where="video = 'b' AND level = -1", values={"about": "{"})
    with pytest.raises(DamagedCorpusError, match=r"steps\.lance"):
        corpus.videos()
    assert [problem.partition(":")[0] for problem in corpus.check()] == ["b"]
