"""Folds over recipes, and the tables of the cross-validation on made recordings."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from benchmarks.captaincook4d_data import unpack, write_training_files
from benchmarks.cross_validation import NUM_FOLDS, PARTS, deal_folds, main, score_steps, split_fold
from hiero.config import ModelConfig
from hiero.features.stores import FeatureStore
from hiero.model.hiero import HiERO
from hiero.types import AnnotatedStep
from tests.optional import weights_or_skip

ANNOTATIONS = {f"{recipe}_{i}": {"recipe": f"recipe {recipe}"} for recipe in range(19) for i in range(12)}
STEP_S = 12


def test_every_recording_is_once_of_a_recipe_that_was_never_seen():
    unseen = []
    for fold in range(NUM_FOLDS):
        parts = split_fold(ANNOTATIONS, list(ANNOTATIONS), fold)
        recipes = {name: {ANNOTATIONS[r]["recipe"] for r in parts[name]} for name in parts}
        assert not recipes["unseen"] & (recipes["train"] | recipes["known"])
        assert recipes["known"] <= recipes["train"]
        assert sum(map(len, parts.values())) == len(ANNOTATIONS)
        unseen += parts["unseen"]
    assert sorted(unseen) == sorted(ANNOTATIONS)
    assert set(deal_folds(ANNOTATIONS).values()) == set(range(NUM_FOLDS))
    everything = split_fold(ANNOTATIONS, list(ANNOTATIONS), -1)
    assert len(everything["train"]) == len(ANNOTATIONS)
    assert not any(everything[part] for part in PARTS)


def test_clear_steps_have_a_perfect_score_and_a_wrong_number_has_not():
    nodes = np.repeat(np.eye(5), 40, axis=0) + 0.01 * np.random.default_rng(0).normal(size=(200, 5))
    steps = [AnnotatedStep(40.0 * i, 40.0 * i + 40, str(i)) for i in range(5)]
    assert score_steps(nodes, steps) == pytest.approx((1, 1))
    assert score_steps(nodes, steps, 5, equal_parts=True) == pytest.approx((1, 1))
    assert score_steps(nodes, steps, 2)[0] < 0.7


@pytest.fixture
def work(tmp_path):
    """Twelve recipes of three steps with three recordings each, and an untrained model for each fold."""
    weights_or_skip("minilm")
    rng = np.random.default_rng(0)
    scenes = rng.normal(size=(36, 32))
    annotations, features = {}, {}
    for recipe in range(12):
        for number in range(3):
            name, order = f"{recipe}_{number}", 3 * recipe + np.arange(3)
            rows = np.concatenate([scenes[i] + 0.1 * rng.normal(size=(STEP_S, 32)) for i in order])
            features[name] = torch.from_numpy(rows).float()
            steps = [
                {"start_s": STEP_S * i, "end_s": STEP_S * (i + 1), "text": f"step {k}"} for i, k in enumerate(order)
            ]
            annotations[name] = {"recipe": f"recipe {recipe}", "seconds": 3 * STEP_S, "steps": steps}
    (tmp_path / "annotations.json").write_text(json.dumps(annotations))
    write_training_files(tmp_path / "k400", features, {name: annotations[name]["steps"] for name in features}, "k400")
    torch.manual_seed(0)
    config = ModelConfig(input_size=32, hidden_size=16, embedding_size=16, text_size=384, gate_size=8)
    for fold in range(NUM_FOLDS):
        HiERO(config).save_pretrained(tmp_path / "folds" / "k400" / "base" / "0" / f"model{fold}")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("table", ["| base+base | known |", "| base+base | unseen |"]),
        ("number", ["| known | true |", "| unseen | one per minute"]),
        ("labels", ["| best spans of each label |", "| TW-FINCH on the nodes |"]),
        ("corrected", ["| 1 | no adaptation |", "| 1 | prototypes"]),
        ("same-step", ["| the model's vectors |", "| both, in order", "SAME_JOINED_STEP = ("]),
    ],
)
def test_the_tables_of_made_recordings(work, capsys, table, rows):
    assert len(FeatureStore(work / "k400" / "store")) == 36
    unpack(work, "k400")  # does nothing: the store exists
    main([table, str(work), "--variants", "base+base" if table == "table" else "base", "--draws", "1"])
    printed = capsys.readouterr().out
    assert [row for row in rows if row not in printed] == []
    if table == "same-step":
        found = float(printed.split("| features of the backbone | ")[1].split(" ")[0])
        assert found > 95  # steps whose features are nearly equal
