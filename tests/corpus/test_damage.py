"""Damaged corpora: one clear line that names the table, and a new index."""

from __future__ import annotations

import random
import shutil

import pytest

from hiero.cli import app
from hiero.corpus.corpus import Corpus, add_video
from hiero.corpus.table import DamagedCorpusError
from tests.corpus.conftest import SCENES, index_all
from tests.optional import skip_without

skip_without("lancedb", "needs LanceDB: pip install 'hiero-video[serve]'")

pytestmark = pytest.mark.usefixtures("empty_home")
DAMAGE = {
    "missing": lambda file: file.unlink(),
    "truncated": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "empty": lambda file: file.write_bytes(b""),
    "random": lambda file: file.write_bytes(random.Random(0).randbytes(file.stat().st_size)),
}


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
def test_damage_is_one_clear_line_and_a_new_index_helps(corpus, engine, files, damage, tmp_path, capsys):
    before = rows_of(corpus)
    DAMAGE[damage](min((tmp_path / "corpus" / "steps.lance").glob(files)))
    for read in (
        lambda: Corpus(corpus.uri).videos(),
        lambda: Corpus(corpus.uri).check(),
        lambda: Corpus(corpus.uri).search(SCENES[0], 5),
        lambda: Corpus(corpus.uri).like("a", 10.0),
        lambda: add_video(Corpus(corpus.uri), engine, tmp_path / "a.npy", engine.read),
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
    index_all(tmp_path, engine)
    assert rows_of(Corpus(corpus.uri)) == before


def test_a_damaged_record_is_damage(corpus):
    corpus.table.update(where="video = 'b' AND level = -1", values={"about": "{"})
    with pytest.raises(DamagedCorpusError, match=r"steps\.lance"):
        corpus.videos()
    assert [problem.partition(":")[0] for problem in corpus.check()] == ["b"]
