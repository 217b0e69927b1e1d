"""The benchmark of the same step elsewhere, on recordings whose truth is made."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from benchmarks import same_step
from benchmarks.same_step import (
    METHODS,
    RAW_METHODS,
    SCOPES,
    index_recordings,
    read_cut_steps,
    read_true_steps,
    retrieval_scores,
)
from hiero import load
from tests.optional import skip_without

skip_without("lancedb", "needs LanceDB: pip install 'hiero-video[serve]'")
STEP_S = 20
PARTS = {"train": ["1_1", "2_1"], "seen recipes": ["1_2"], "unseen recipes": ["2_2"]}


@pytest.fixture(scope="module")
def recordings():
    """Two recipes, two recordings each; a step comes twice in the first, in different company."""
    scenes = np.random.default_rng(0).normal(size=(10, 32))
    orders = {"1_1": [0, 3, 1, 2, 3, 4], "1_2": [0, 3, 1, 2, 3, 4], "2_1": [5, 6, 7, 8], "2_2": [5, 6, 7, 9]}
    annotations, features = {}, {}
    for seed, (name, order) in enumerate(orders.items()):
        rng = np.random.default_rng(seed)
        rows = np.concatenate([scenes[i] + 0.2 * rng.normal(size=(STEP_S, 32)) for i in order])
        features[name] = torch.from_numpy(rows).float()
        texts = [f"step {scene} after {before}" for scene, before in zip(order, [None, *order], strict=False)]
        annotations[name] = {
            "recipe": name[0],
            "steps": [{"start_s": STEP_S * i, "end_s": STEP_S * (i + 1), "text": text} for i, text in enumerate(texts)],
        }
    return annotations, features


def test_scores_of_a_ranking():
    assert retrieval_scores(np.array([0.9, 0.1, 0.5]), np.array([True, False, True])) == (1.0, 1.0, 1.0)
    assert retrieval_scores(np.array([0.9, 0.1, 0.5]), np.array([False, False, True])) == (0.0, 1.0, 0.5)
    scores = retrieval_scores(np.arange(10.0), np.arange(10) == 3)  # seventh
    assert scores == (0.0, 0.0, pytest.approx(1 / 7))


def test_order_finds_what_looks_cannot(recordings):
    annotations, features = recordings
    task = read_true_steps(load("raw"), features, annotations, PARTS)
    scores = {
        name: task.score(rank, "seen recipes", "recipe")[0].mean(0) for name, rank in {**METHODS, **RAW_METHODS}.items()
    }
    assert scores["HiERO, in order"].tolist() == [1.0, 1.0, 1.0]
    assert scores["HiERO"][0] < 1  # of the two equal steps it cannot say which
    values, owners = task.score(METHODS["HiERO, in order"], "unseen recipes", "all recipes")
    assert values.shape == (3, 3)  # "step 9" is nowhere else
    assert (owners == 0).all()


def test_cut_steps_and_a_corpus(recordings, tmp_path, monkeypatch, capsys):
    annotations, features = recordings
    corpus = index_recordings(load("raw"), features, PARTS, tmp_path)
    task = read_cut_steps(corpus, annotations, PARTS)
    assert [recording.name for recording in task.recordings] == ["1_1", "1_2", "2_1", "2_2"]
    hits = same_step.CorpusHits(task, corpus, annotations)
    for scope in SCOPES:
        expected, _ = task.score(METHODS["HiERO, in order"], "seen recipes", scope)
        np.testing.assert_array_equal(hits.score("seen recipes", scope)[0], expected[:, :2])
    monkeypatch.setattr(same_step, "METHODS", {"HiERO, in order": METHODS["HiERO, in order"]})
    same_step.print_tables({"HiERO": (task, same_step.METHODS)}, "Cut steps", hits)
    same_step.fit_probability(task)
    monkeypatch.setattr(same_step, "GRID", {"temperature": (0.1,), "step_weight": (2.0, 4.0)})
    same_step.choose([task])
    out = capsys.readouterr().out
    assert "SAME_STEP" in out
    assert out.count("| 0.1 |") == 2
    assert out.count("| HiERO, in order |") == out.count("| `hiero search --like` |") == 2


def test_the_command(recordings, tmp_path, monkeypatch, capsys):
    annotations, features = recordings
    (tmp_path / "annotations.json").write_text(json.dumps(annotations))
    monkeypatch.setattr(same_step, "read_features", lambda source, kind: features)
    monkeypatch.setattr(same_step, "split", lambda annotations, names, part: PARTS)
    monkeypatch.setattr("sys.argv", ["same_step", str(tmp_path)])
    same_step.main()
    assert "| raw, in order |" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["same_step", str(tmp_path), "--choose"])
    with pytest.raises(SystemExit):
        same_step.main()
