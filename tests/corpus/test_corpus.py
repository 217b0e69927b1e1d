"""A corpus: what goes in comes out, in one piece, whoever else writes."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from filelock import FileLock
from scipy.special import logit

from hiero.cli import app, main
from hiero.cli.corpus import parse_moment
from hiero.corpus import indexing as index_module
from hiero.corpus import table as table_module
from hiero.corpus.corpus import Corpus, Hit, IndexSettings, add_video, corpus_model
from hiero.corpus.indexing import index_files
from hiero.corpus.searching import StepQuery, search_steps, suppress_overlaps
from hiero.corpus.table import CorpusTables
from hiero.engine import load
from hiero.errors import BusyError, InputError
from hiero.steps import calibration
from tests.corpus.conftest import SCENES, session
from tests.optional import skip_without
from tests.processes import run_hiero, start_python

skip_without("lancedb", "needs LanceDB: pip install 'hiero-video[serve]'")
pytestmark = pytest.mark.usefixtures("empty_home")


def probability_of(cosines):
    return calibration.answer(np.array(cosines), np.array(cosines))


def test_the_nearest_steps_are_those_of_the_same_scene(corpus):
    vector = SCENES[1] / np.linalg.norm(SCENES[1])
    first, second, *rest = corpus.search(vector, 5)
    assert {(first.video, round(first.start_s)), (second.video, round(second.start_s))} == {("a", 30), ("b", 30)}
    assert min(first.probability, second.probability) > probability_of(0.9) > rest[0].probability
    assert [hit.video for hit in corpus.search(vector, 3, videos=["it's"])] == ["it's"] * 3
    assert {hit.level for hit in corpus.search(vector, 5, level=0)} == {0}


def test_against_every_step_by_hand(corpus):
    """The same order as cosines that are written out."""
    table = corpus.table.to_arrow().to_pylist()
    query = np.random.default_rng(5).normal(size=32)
    scores = {}
    for row in (row for row in table if row["level"] == 1):
        cosine = np.dot(row["vector"], query) / np.linalg.norm(row["vector"]) / np.linalg.norm(query)
        scores[row["video"], row["step"]] = float(cosine)
    hits = corpus.search(query, len(scores), level=1)
    assert [(hit.video, hit.step) for hit in hits] == sorted(scores, key=lambda key: -scores[key])
    expected = probability_of(sorted(scores.values(), reverse=True))
    np.testing.assert_allclose([hit.probability for hit in hits], expected, atol=1e-3)


def test_the_length_of_a_texts_vector_counts(corpus):
    """Parts of it may have no counterpart in steps without pictures, which makes cosines smaller."""
    vector = SCENES[1] / np.linalg.norm(SCENES[1])
    query = StepQuery(1, by_text=True)
    half, one = (logit(search_steps(corpus.tables, query, length * vector)[0].probability) for length in (0.5, 1.0))
    assert one - calibration.ANSWER[-1] == pytest.approx(2 * (half - calibration.ANSWER[-1]), abs=1e-5)


def test_unchanged_videos_are_skipped_and_changed_ones_replaced(corpus, engine, tmp_path):
    names_read = []

    def read(path):
        names_read.append(path.name)
        return engine.read(path)

    for name in ("a", "b"):
        _, added = add_video(corpus, engine, tmp_path / f"{name}.npy", read)
        assert not added
    assert names_read == []
    session(tmp_path / "a.npy", [3, 3, 5], seed=9)
    record, added = add_video(corpus, engine, tmp_path / "a.npy", read, IndexSettings([3]))
    assert added
    assert record.levels == (len(corpus.steps("a")),)
    assert len(corpus.videos()) == 3
    assert corpus.check() == []
    _, added = add_video(corpus, engine, tmp_path / "b.npy", read, IndexSettings(again=True))
    assert added


def test_removing_and_checking(corpus, tmp_path):
    before = len(corpus)
    corpus.remove(["it's"])
    assert [record.video for record in corpus.videos()] == ["a", "b"]
    assert len(corpus) < before
    for names in ([], ["c"]):
        with pytest.raises(InputError, match="video"):
            corpus.remove(names)
    assert corpus.check() == []
    (tmp_path / "a.npy").unlink()
    session(tmp_path / "b.npy", [1], seed=4)
    corpus.table.delete("video = 'b' AND level = 1")
    problems = corpus.check()
    assert any("a.npy is missing" in line for line in problems)
    assert any(line.startswith("b:") for line in problems)
    assert any("b.npy has changed" in line for line in problems)
    corpus.table.delete("video = 'a' AND level = -1")
    assert any(line.startswith("a:") for line in corpus.check())
    corpus.remove(["a"])  # as it says
    assert not any(line.startswith("a:") for line in corpus.check())


WRITER = """
import contextlib, sys
from pathlib import Path
from hiero.corpus import corpus as module, indexing, table
from hiero.engine import load

indexing.MAX_VIDEOS = int(sys.argv[2])
table.MIN_FILES = 3  # tidied up all the time
if sys.argv[3] == "without locks":  # as at an address
    table.write_lock = contextlib.contextmanager(lambda uri, wait_s: (yield False))
engine, corpus = load("raw"), module.Corpus(sys.argv[1], create=True)
files = {Path(path).stem: Path(path) for path in sys.argv[4:]}
assert not indexing.index_files(corpus, engine, files, engine.read, module.IndexSettings([2])).problems
"""


@pytest.mark.slow
@pytest.mark.parametrize("locks", ["with locks", "without locks"])
@pytest.mark.parametrize("per_commit", [1, 4])
def test_writers_at_a_time(tmp_path, locks, per_commit):
    """Processes that add the same and different videos to one new corpus: all are there, whole, once."""
    for i in range(8):
        session(tmp_path / f"v{i}.npy", [i % 8, (i + 1) % 8], seed=i)
    processes = [
        start_python(WRITER, tmp_path / "c", per_commit, locks, *(tmp_path / f"v{i}.npy" for i in part))
        for part in (range(8), range(8), range(7, -1, -1))
    ]
    assert [process.wait() for process in processes] == [0, 0, 0]
    corpus = Corpus(str(tmp_path / "c"))
    assert [record.video for record in corpus.videos()] == [f"v{i}" for i in range(8)]
    assert corpus.check() == []
    assert len(corpus) == 16


def test_a_table_that_another_process_makes_just_now(tmp_path, engine):
    """There is a folder before there is a version: also what a process leaves that is killed then."""
    (tmp_path / "c" / "steps.lance" / "data").mkdir(parents=True)
    corpus = Corpus(str(tmp_path / "c"), create=True)
    assert corpus.videos() == []
    assert len(corpus) == 0
    with pytest.raises(InputError, match="not a corpus"):
        Corpus(str(tmp_path / "c"))
    add_video(corpus, engine, session(tmp_path / "d.npy", [1, 2]), engine.read)
    assert corpus.num_videos == 1


@pytest.mark.slow
def test_a_lock_of_a_killed_process_is_gone(corpus, engine, tmp_path):
    code = (
        "import sys, time; from hiero.corpus.table import write_lock\n"
        "with write_lock(sys.argv[1]): print('locked', flush=True); time.sleep(60)"
    )
    with start_python(code, corpus.uri) as process:
        assert process.stdout.readline() == "locked\n"
        process.kill()
    add_video(corpus, engine, session(tmp_path / "d.npy", [1]), engine.read)
    assert corpus.num_videos == 4


def test_a_corpus_that_another_process_holds_is_busy(corpus, engine, tmp_path):
    impatient = Corpus(corpus.uri, wait_s=0.1)
    with FileLock(Path(corpus.uri) / ".lock"), pytest.raises(BusyError, match=re.escape(corpus.uri)):
        add_video(impatient, engine, session(tmp_path / "d.npy", [1]), engine.read)
    add_video(impatient, engine, session(tmp_path / "d.npy", [1]), engine.read)
    assert impatient.num_videos == 4


@pytest.mark.parametrize("lost", ["level = 1 AND start_s > 0", "level = -1"])
def test_repeated_and_missing_rows_are_found_and_indexed_again(corpus, engine, tmp_path, lost):
    before = corpus.table.to_arrow()
    corpus.table.add(before.filter([name == "a" for name in before["video"].to_pylist()]))
    corpus.table.delete(f"video = 'b' AND {lost}")
    assert [problem.partition(":")[0] for problem in corpus.check()] == ["a", "b"]
    files = {name: tmp_path / f"{name}.npy" for name in ("a", "b", "it's")}
    result = index_files(corpus, engine, files, engine.read)
    assert (result.num_added, result.num_unchanged) == (2, 1)
    assert corpus.check() == []
    assert corpus.num_videos == 3


def test_files_are_put_together_while_repetitions_are_dropped(corpus):
    """Rows have other ids then, so that a deletion by the old ones deletes nothing."""
    corpus.table.add(corpus.table.to_arrow())

    class Table:
        """As one that another process tidies up between the query and the deletion."""

        num_deletions = 0

        def __getattr__(self, name):
            return getattr(corpus.table, name)

        def delete(self, where):
            Table.num_deletions += 1
            if Table.num_deletions == 1:
                Corpus(corpus.uri).table.optimize()
            corpus.table.delete(where)

    table_module.drop_repeated(Table())
    assert Table.num_deletions == 2
    assert corpus.num_videos == 3
    assert corpus.check() == []


def test_a_conflict_is_tried_again(corpus, engine, tmp_path, monkeypatch):
    monkeypatch.setattr(table_module.time, "sleep", lambda _: None)
    original, failed = CorpusTables.replace, []

    def conflict_three_times(*arguments):
        if len(failed) < 3:
            failed.append(arguments)
            raise RuntimeError("lance error: Retryable commit conflict for version 7")
        return original(*arguments)

    monkeypatch.setattr(CorpusTables, "replace", conflict_three_times)
    add_video(corpus, engine, session(tmp_path / "d.npy", [1]), engine.read)
    assert len(failed) == 3
    assert corpus.find("d").video == "d"
    monkeypatch.setattr(CorpusTables, "replace", lambda *_: (_ for _ in ()).throw(RuntimeError("another error")))
    with pytest.raises(RuntimeError, match="another error"):
        add_video(corpus, engine, session(tmp_path / "e.npy", [1]), engine.read)


def test_a_full_disk_is_one_clear_line(corpus, engine, tmp_path, monkeypatch, capsys):
    """LanceDB says it by a message; nothing is lost, and the next run goes on."""
    full = RuntimeError("lance error: LanceError(IO): No space left on device (os error 28), structural.rs:258:9")
    session(tmp_path / "d.npy", [1, 2])
    command = ["hiero", "index", str(tmp_path / "d.npy"), "--to", corpus.uri, "--model", "raw"]
    with monkeypatch.context() as patch:
        patch.setattr(CorpusTables, "replace", lambda *_: (_ for _ in ()).throw(full))
        patch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as exit_:
            main()
    assert exit_.value.code == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("hiero:")]
    assert f"{corpus.uri}: no space left on the disk; free some, then run the same command again" in line
    assert corpus.num_videos == 3
    with monkeypatch.context() as patch:  # no space to tidy up: what was committed is in
        patch.setattr(table_module, "MIN_FILES", 1)
        patch.setattr(CorpusTables, "_optimize", lambda *_: (_ for _ in ()).throw(full))
        with pytest.warns(UserWarning, match="no space left to merge its files"):
            app(command[1:], result_action="return_value")
    assert corpus.num_videos == 4
    assert corpus.check() == []


@pytest.mark.slow
@pytest.mark.parametrize("limit_bytes", [0, 1000])
def test_files_that_may_not_grow(limit_bytes, tmp_path):
    """As under a quota: one clear line, wherever in a new corpus it happens."""
    command = ["index", session(tmp_path / "d.npy", [1, 2]), "--to", tmp_path / "c", "--model", "raw"]
    process = run_hiero(*command, check=False, limit_bytes=limit_bytes)
    assert process.returncode == 1
    assert "Traceback" not in process.stderr
    assert f"{tmp_path / 'c'}: no space left on the disk" in process.stderr


def test_a_disk_that_fails_is_one_clear_line(corpus):
    def fail():
        raise RuntimeError("lance error: LanceError(IO): Input/output error (os error 5), /root/src/writer.rs:258:9")

    with pytest.raises(OSError, match="Input/output error") as error:
        table_module.commit(corpus.uri, fail)
    assert error.value.filename == corpus.uri
    assert "writer.rs" not in str(error.value)


def test_many_videos_share_a_commit(tmp_path, engine, monkeypatch):
    monkeypatch.setattr(index_module, "MAX_WAIT_S", 60.0)
    corpus = Corpus(str(tmp_path / "c"), create=True)
    files = {f"v{i}": session(tmp_path / f"v{i}.npy", [i % 8], seed=i) for i in range(30)}
    assert index_files(corpus, engine, files, engine.read, IndexSettings([2])).num_added == 30
    assert corpus.table.version <= 3
    assert corpus.num_videos == 30


@pytest.mark.slow
def test_a_killed_run_is_continued(tmp_path, engine):
    """What was not committed is indexed by the next run; no video is half there."""
    files = {f"v{i}": session(tmp_path / f"v{i}.npy", [i, i + 1], seed=i) for i in range(6)}
    code = WRITER.replace(
        "engine.read,", "lambda path: engine.read(path) if '5' not in path.path.stem else os.kill(os.getpid(), 9),"
    )
    code = code.replace("import contextlib,", "import contextlib, os,")
    assert start_python(code, tmp_path / "c", 2, "with locks", *files.values()).wait() == -9
    corpus = Corpus(str(tmp_path / "c"))
    assert [record.video for record in corpus.videos()] == ["v0", "v1", "v2", "v3"]
    assert corpus.check() == []
    result = index_files(corpus, engine, files, engine.read)
    assert (result.num_added, result.num_unchanged) == (2, 4)
    assert corpus.check() == []


def test_an_interruption_keeps_what_was_read(tmp_path, engine):
    corpus = Corpus(str(tmp_path / "c"), create=True)
    files = {f"v{i}": session(tmp_path / f"v{i}.npy", [i, i + 1], seed=i) for i in range(3)}

    def read(path):
        if path.path.stem == "v2":
            raise KeyboardInterrupt
        return engine.read(path)

    with pytest.raises(KeyboardInterrupt):
        index_files(corpus, engine, files, read)
    assert [record.video for record in corpus.videos()] == ["v0", "v1"]


def test_small_files_are_put_together_and_old_versions_pruned(tmp_path, engine, monkeypatch):
    monkeypatch.setattr(table_module, "MIN_FILES", 4)
    monkeypatch.setattr(table_module, "OLD_VERSION", timedelta(milliseconds=1))
    corpus = Corpus(str(tmp_path / "c"), create=True)
    for i in range(24):
        add_video(corpus, engine, session(tmp_path / f"v{i}.npy", [i % 8, 1], seed=i), engine.read)
    files = corpus.table.stats()["fragment_stats"]
    assert files["num_fragments"] < 12
    assert len(corpus.table.list_versions()) < 16
    assert corpus.check() == []


def test_other_widths_do_not_stop_the_others(tmp_path, engine):
    """Raw features have any width, a corpus has one."""
    files = {f"v{i}": session(tmp_path / f"v{i}.npy", [i, i + 1], seed=i) for i in range(3)}
    np.save(tmp_path / "v1.npy", np.random.default_rng(0).normal(size=(20, 7)).astype(np.float32))
    corpus = Corpus(str(tmp_path / "c"), create=True)
    result = index_files(corpus, engine, files, engine.read)
    assert result.num_added == 2
    (problem,) = result.problems
    assert "v1.npy: its vectors have 7 numbers" in problem


def test_a_file_that_changes_while_it_is_read_is_not_indexed(corpus, engine, tmp_path):
    path = session(tmp_path / "d.npy", [1, 2])

    def read(source):
        video = engine.read(source)
        session(path, [3, 4, 5], seed=5)
        return video

    result = index_files(corpus, engine, {"d": path}, read)
    assert result.num_added == 0
    assert "changed while it was read" in result.problems[0]
    assert index_files(corpus, engine, {"d": path}, engine.read).num_added == 1
    assert corpus.check() == []


def test_a_pruned_version_is_read_again():
    answers = iter([RuntimeError("lance error: Not found: data/1.lance"), 7])

    def query():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert table_module.read_latest(query) == 7


def test_another_model_has_another_space(corpus, engine, tmp_path):
    other = SimpleNamespace(key="other", name="other")
    with pytest.raises(InputError, match="model raw"):
        corpus.check_model(other)
    with pytest.raises(InputError, match="vectors have 32"):
        corpus.search(np.ones(5))


def test_a_corpus_of_another_version_of_the_model_is_indexed_again_as_a_whole(corpus, engine, tmp_path):
    newer = load("raw")
    newer.__dict__["key"] = "raw-2"
    before = [(record.video, record.levels) for record in corpus.videos()]
    with pytest.raises(InputError, match="another version of raw"):
        corpus.check_model(newer)
    (tmp_path / "b.npy").rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"b\.npy is missing"):
        corpus.renew(newer, newer.read)
    assert {record.model_key for record in corpus.videos()} == {engine.key}
    (tmp_path / "elsewhere").rename(tmp_path / "b.npy")
    with pytest.warns(UserWarning, match="another version of raw"):
        result = index_files(corpus, newer, {"d": session(tmp_path / "d.npy", [1, 2])}, newer.read)
    assert result.num_added == 1
    assert [(record.video, record.levels) for record in corpus.videos() if record.video != "d"] == before
    assert {record.model_key for record in Corpus(corpus.uri).videos()} == {"raw-2"}
    assert corpus.search(SCENES[1], 2)[0].probability > probability_of(0.8)


def test_not_a_corpus(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for name, create in (("none", False), ("empty", False), ("file", True)):
        with pytest.raises(InputError, match=name):
            Corpus(str(tmp_path / name), create=create)


def test_a_moment_is_shown_once():
    hit = Hit("v", 0, "0.0", 0, 10, 0, None, 0.9)
    first, second = replace(hit, level=1, step="1.0", end_s=4.0), replace(hit, level=1, step="1.1", start_s=4.0)
    elsewhere = replace(hit, video="w", probability=0.5)
    assert suppress_overlaps([hit, first, second, elsewhere], 10) == [hit, elsewhere]
    assert suppress_overlaps([first, hit, second], 10) == [first, second]


def test_the_index_finds_what_exact_search_finds(tmp_path, monkeypatch):
    """Beyond a number of steps an index is made; it agrees with comparing one by one."""
    from benchmarks.corpus import WIDTH, synthetic_steps
    from hiero.vectors import unit_vectors

    monkeypatch.setattr(table_module, "MIN_INDEXED_ROWS", 2000)
    corpus = Corpus(str(tmp_path / "large"), create=True)
    rng = np.random.default_rng(0)
    centres = unit_vectors(rng.standard_normal((50, WIDTH), dtype=np.float32)) * np.sqrt(WIDTH)
    rows = synthetic_steps(rng, centres, 0, 3000)
    corpus.tables.create("steps", rows.schema)
    corpus.table.add(rows)
    corpus.optimize()
    assert corpus.table.list_indices()
    recalls = []
    for query in unit_vectors(centres[:10] + 0.6 * rng.standard_normal((10, WIDTH))):
        exact = {(hit.video, hit.step) for hit in corpus.search(query, 10, exact=True)}
        recalls.append(len(exact & {(hit.video, hit.step) for hit in corpus.search(query, 10)}) / 10)
    assert np.mean(recalls) > 0.9


def test_the_commands(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    for i in range(2):
        session(tmp_path / "in" / f"v{i}.npy", [i, 2, 3])
    (tmp_path / "in" / "bad.npy").write_bytes(b"nothing")
    folder = str(tmp_path / "c")
    with pytest.raises(SystemExit) as exit_:
        app(["index", str(tmp_path / "in"), "--to", folder, "--model", "raw"])
    assert exit_.value.code == 1
    printed = capsys.readouterr()
    assert "2 added, 0 unchanged, 1 failed; 2 videos" in printed.out
    assert "bad.npy" in printed.err
    app(["search", folder, "--like", "v0@0:45", "--model", "raw"], result_action="return_value")
    assert "v1" in capsys.readouterr().out
    app(["corpus", "list", folder], result_action="return_value")
    assert "v0" in capsys.readouterr().out
    app(["corpus", "remove", folder, "v0"], result_action="return_value")
    assert "1 removed, 1 video left" in capsys.readouterr().out
    app(["corpus", "check", folder], result_action="return_value")
    assert "0 problems" in capsys.readouterr().out
    for words in ([], ["cut", "--model", "raw"]):
        with pytest.raises(InputError):
            app(["search", folder, *words], result_action="return_value")


def test_moments():
    assert parse_moment("kitchen@3:20") == ("kitchen", 200)
    assert parse_moment("a@b.mp4@1:00:05") == ("a@b.mp4", 3605)
    assert parse_moment("k@12.5") == ("k", 12.5)
    with pytest.raises(InputError, match="VIDEO@m:ss"):
        parse_moment("kitchen")


def test_files_that_are_one_video(tmp_path, engine):
    """Chapters are one video of a corpus: found again unchanged, checked and renewed with all their files."""
    session(tmp_path / "whole.npy", [0, 1, 2])
    rows = np.load(tmp_path / "whole.npy")
    paths = (tmp_path / "GX010001.npy", tmp_path / "GX020001.npy")
    for path, part in zip(paths, np.split(rows, [40]), strict=True):
        np.save(path, part)
    corpus = Corpus(str(tmp_path / "corpus"), create=True)
    record, is_new = add_video(corpus, engine, paths, engine.read, IndexSettings([3]))
    assert (record.video, is_new) == ("GX010001", True)
    files = [(file.path, file.start_s, file.duration_s) for file in record.files]
    assert files == [(str(paths[0]), 0, 40), (str(paths[1]), 40, 50)]
    assert corpus.find("GX010001").source.paths == tuple(paths)
    assert add_video(corpus, engine, paths, engine.read) == (record, False)
    add_video(corpus, engine, tmp_path / "whole.npy", engine.read, IndexSettings([3]))
    joined, whole = ([(s.start_s, s.end_s) for s in corpus.steps(name)] for name in ("GX010001", "whole"))
    assert joined == whole
    assert corpus.check() == []
    corpus.table.delete("video = 'GX010001' AND step = '0.1'")
    add_video(corpus, engine, paths, engine.read, IndexSettings([3], again=True))
    assert corpus.check() == []
    assert corpus.find("GX010001").files == record.files
    session(paths[1], [3])
    assert corpus.check() == [f"GX010001: {paths[0]} has changed; index it again"]
    assert add_video(corpus, engine, paths, engine.read)[1]
    paths[1].unlink()
    assert corpus.check() == [f"GX010001: {paths[1]} is missing"]
    with pytest.raises(InputError, match="no such file"):
        add_video(corpus, engine, paths, engine.read)


def test_a_corpus_of_backbone_features_names_its_backbone(tmp_path):
    corpus, engine = Corpus(str(tmp_path / "corpus"), create=True), load("raw")
    engine.name, engine.__dict__["key"] = "egovlp", "raw-egovlp"
    add_video(corpus, engine, session(tmp_path / "d.npy", [1, 2]), engine.read)
    assert corpus_model(corpus) == "egovlp"
