"""The same step elsewhere: a corpus gives what comparing all of its steps would give."""

from __future__ import annotations

import numpy as np
import pytest

from hiero.corpus import searching
from hiero.corpus.corpus import Corpus, IndexSettings, add_video
from hiero.corpus.searching import StepQuery
from hiero.corpus.table import STEPS, VIDEO_LEVEL, CorpusTables
from hiero.engine import load
from hiero.errors import InputError
from hiero.steps import calibration
from hiero.steps.correspondence import JOINED_STEP_WEIGHT, correspondence, join_features
from tests.optional import skip_without

skip_without("lancedb", "needs LanceDB: pip install 'hiero-video[serve]'")
pa = pytest.importorskip("pyarrow")
SCENES = np.random.default_rng(0).normal(size=(9, 32)).astype(np.float32)
# The activity of "a" again in "b" and "c"; the others share a scene with it.
ORDERS = {"a": [0, 3, 1, 2, 3, 4], "b": [5, 0, 3, 1, 3, 4], "c": [0, 3, 2, 1, 3], "d": [6, 7, 3, 8], "e": [8, 3, 6, 5]}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder, engine = tmp_path_factory.mktemp("same_step"), load("raw")
    corpus = Corpus(str(folder / "corpus"), create=True)
    for seed, (name, order) in enumerate(ORDERS.items()):
        rng = np.random.default_rng(seed)
        rows = np.concatenate([SCENES[i] + 0.2 * rng.normal(size=(20, 32)) for i in order])
        np.save(folder / f"{name}.npy", rows.astype(np.float32))
        path, settings = folder / f"{name}.npy", IndexSettings([2, len(order)])
        add_video(corpus, engine, path, lambda source: engine.read(source, cache=False), settings)
    return corpus


def compare_all(corpus, name, index, level=1):
    """(video, start) of the steps of all other videos, most likely first, and their probabilities."""
    rows = sorted(corpus.table.to_arrow().to_pylist(), key=lambda row: (row["video"], row["start_s"]))
    by_video = {}
    for row in rows:
        if row["level"] == level:
            by_video.setdefault(row["video"], []).append(row)
    own, others = by_video.pop(name), list(by_video.values())
    vectors = [np.array([row["vector"] for row in steps]) for steps in (own, *others)]
    scores = np.concatenate([part[index] for part in correspondence(vectors[0], vectors[1:])])
    places = [(row["video"], row["start_s"]) for steps in others for row in steps]
    order = np.argsort(-scores, kind="stable")
    return [places[i] for i in order], calibration.probability(scores[order], calibration.SAME_STEP)


@pytest.mark.parametrize(("name", "index"), [("a", 1), ("a", 4), ("d", 2), ("c", 0)])
@pytest.mark.parametrize("exact", [False, True])
def test_hits_are_those_of_comparing_everything(corpus, name, index, exact):
    step, hits = corpus.like(name, 20 * index + 10, 100, exact=exact)
    assert (step.video, step.start_s, step.level, step.probability) == (name, 20 * index, 1, 1.0)
    places, probabilities = compare_all(corpus, name, index)
    assert [(hit.video, hit.start_s) for hit in hits] == places
    np.testing.assert_allclose([hit.probability for hit in hits], probabilities, atol=1e-4)
    assert [hit.video for hit in corpus.like(name, 20 * index + 10, 2)[1]] == [video for video, _ in places[:2]]


def test_only_in_some_videos_and_levels(corpus):
    assert {hit.video for hit in corpus.like("a", 30.0, videos=["d", "e"])[1]} == {"d", "e"}
    step, hits = corpus.like("a", 30.0, level=0)
    assert step.level == 0
    assert {hit.level for hit in hits} == {0}
    assert corpus.like("a", 30.0, videos=["a"])[1] == []
    for arguments, message in (
        (("a", 30.0, 5, 7), "level 7"),
        (("a", 999.0), "999 s"),
        (("z", 30.0), "no video z"),
        (("a", 30.0, 0), "at least 1"),
    ):
        with pytest.raises(InputError, match=message):
            corpus.like(*arguments)


def test_what_is_compared_is_bounded(corpus, monkeypatch):
    """Fewer videos, and only steps near the nearest one of a long video: a right one stays first."""
    monkeypatch.setattr(searching, "MAX_ALIGNED_VIDEOS", 2)
    hits = corpus.like("a", 30.0)[1]
    assert len({hit.video for hit in hits}) == 2
    assert (hits[0].video, hits[0].start_s) in {("b", 40.0), ("c", 20.0)}
    monkeypatch.setattr(searching, "MAX_READ_STEPS", 7)
    assert len({hit.video for hit in corpus.like("a", 30.0)[1]}) == 1
    monkeypatch.setattr(searching, "CONTEXT_STEPS", 1)
    assert 0 < len(corpus.like("a", 30.0)[1]) <= 3


def test_steps_without_the_row_of_their_video(corpus, tmp_path):
    """A damaged corpus still answers: the step itself stands for its video."""
    rows = corpus.table.to_arrow()
    places = zip(rows["video"].to_pylist(), rows["level"].to_pylist(), strict=True)
    rows = rows.filter([place != ("a", VIDEO_LEVEL) for place in places])
    tables = CorpusTables(str(tmp_path / "damaged"), create=True)
    tables.replace(STEPS, [], rows)
    step, hits = searching.find_same_steps(tables, "a", 1, 30.0, StepQuery(3))
    assert step.start_s == 20.0
    assert [(hit.video, hit.start_s) for hit in hits] == compare_all(corpus, "a", 1)[0][:3]
    assert searching.find_same_steps(tables, "z", 1, 30.0, StepQuery(3)) is None


@pytest.fixture(scope="module")
def modelled(tmp_path_factory):
    """A corpus of class scores that a trained model has read."""
    folder, engine = tmp_path_factory.mktemp("modelled"), load("hiero-k400", device="cpu")
    corpus = Corpus(str(folder / "corpus"), create=True)
    scenes = np.random.default_rng(0).normal(size=(5, 400))
    for seed, (name, order) in enumerate({"a": [0, 1, 2], "b": [0, 1, 2], "c": [3, 1, 4]}.items()):
        rng = np.random.default_rng(seed)
        rows = np.concatenate([3 * scenes[i] + rng.normal(size=(30, 400)) for i in order])
        video = engine.read_array(rows.astype(np.float32), name=name)
        corpus.add(video, video.steps([3], labels=[]), name, f"key {name}")
    return corpus


def test_a_corpus_keeps_what_the_backbone_knew(modelled):
    """The model's vectors and the backbone's features are compared together, in half precision."""
    rows = sorted(modelled.table.to_arrow().to_pylist(), key=lambda row: (row["video"], row["start_s"]))
    steps = {name: [row for row in rows if row["video"] == name and row["level"] == 0] for name in "abc"}
    assert len(rows[0]["features"]) == 2 * 400
    vectors = {}
    for name, found in steps.items():
        features = [np.frombuffer(row["features"], np.float16) for row in found]
        vectors[name] = join_features(np.array([row["vector"] for row in found]), np.array(features, dtype=np.float32))
    scores = correspondence(vectors["a"], [vectors["b"], vectors["c"]], step_weight=JOINED_STEP_WEIGHT)
    ranked = np.sort(np.concatenate([part[1] for part in scores]))[::-1]
    expected = calibration.probability(ranked, calibration.SAME_JOINED_STEP)
    _, hits = modelled.like("a", (steps["a"][1]["start_s"] + steps["a"][1]["end_s"]) / 2)
    np.testing.assert_allclose([hit.probability for hit in hits], expected, atol=1e-4)


def test_videos_without_features_are_compared_by_the_model_alone(modelled, tmp_path):
    rows = modelled.table.to_arrow()
    found = []
    for name, without in (("none", "abc"), ("mixed", "c")):
        tables = CorpusTables(str(tmp_path / name), create=True)
        pairs = zip(rows["video"].to_pylist(), rows["features"].to_pylist(), strict=True)
        kept = [None if video in without else features for video, features in pairs]
        index = rows.schema.get_field_index("features")
        tables.replace(STEPS, [], rows.set_column(index, "features", pa.array(kept, pa.binary())))
        found.append(searching.find_same_steps(tables, "a", 0, 45.0, StepQuery(9))[1])
    assert found[0] == found[1] != modelled.like("a", 45.0, 9)[1]
