"""Texts of clips with verbs and nouns, which of them are true of which clip, and the mean of two heads."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.words_actions import VERBS, Clips, Head, judge, mean_of_heads, write_text
from hiero.storage.files import load_arrays
from hiero.text.joint_text import HEAD_FILES

LABELS = """Video_index,Video_name,Video_category,Start_times,End_times,Action_labels,Nouns
1,OP01-R01-PastaSalad-1-2,OP01-R01-PastaSalad,1,2,9,"water,faucet,pot"
2,OP06-R07-Pizza-1-2,OP06-R07-Pizza,1,2,2,fridge
3,OP01-R01-PastaSalad-3-4,OP01-R01-PastaSalad,3,4,9,"pot,pasta_container"
"""


@pytest.fixture
def clips(tmp_path):
    (tmp_path / "egtea_gt_train.csv").write_text(LABELS)
    (tmp_path / "egtea_gt_valid.csv").write_text(LABELS.splitlines()[0] + "\n")
    names = ["OP01-R01-PastaSalad-1-2-F1-F2.mp4", "OP06-R07-Pizza-1-2-F1-F2.mp4", "OP01-R01-PastaSalad-3-4-F1-F2.mp4"]
    return Clips(tmp_path, [*names, "unknown.mp4"])


def test_parts_and_labels_of_clips(clips):
    assert clips.parts.tolist() == ["train", "dev", "train", ""]
    assert clips.verbs.tolist() == [9, 2, 9, -1]
    assert clips.nouns[2] == ("pot", "pasta container")


def test_a_text_is_true_of_clips_that_have_its_verb_and_all_its_nouns(clips):
    texts = [(9, ("pot",)), (9, ("pot", "water")), (0, ("fridge",)), (2, ()), (5, ("pot",))]
    truth = [[1, 0, 1], [1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 0]]
    assert clips.is_true(texts, np.arange(3)).astype(int).tolist() == truth


def test_texts_of_a_verb_and_nouns():
    random = np.random.default_rng(0)
    assert write_text(4, ("onion",)) == "cut the onion"
    assert write_text(0, ("onion", "knife")) == "onion and knife"
    words = {word for pair in VERBS[4] for word in pair}
    for text in (write_text(4, ("onion",), random) for _ in range(30)):
        assert "onion" in text
        assert any(word in text for word in words)


def test_names_verbs_and_opening_are_judged_by_similarity(clips):
    chosen = np.array([0, 1])
    names = {"pour the water and faucet and pot": [0.9, 0.8], "open the fridge": [0.1, 0.7]}
    others = {"pour the something": [1.0, 0.2], "open the something": [0.0, 0.1], "close the fridge": [0.0, 0.8]}
    similarity = {**names, **others}

    def compare(texts):
        return np.array([similarity.get(text, [-1.0, -1.0]) for text in texts])

    right = judge(compare, clips, chosen)
    assert right["first of 2 names"].tolist() == [True, False]
    assert right["among the first five"].tolist() == [True, True]
    assert right["first of ten verbs"].tolist() == [True, False]
    assert right["open above close, or below"].tolist() == [False]


def test_a_mean_of_heads_lies_between_start_and_ends(tmp_path):
    """Weights are a mean; additions of low rank are that of their products, which factors may express in many ways."""
    random = np.random.default_rng(0)
    start = Head(HEAD_FILES["permissive"])
    start.save(tmp_path / "start", {})
    additions = []
    for i, change in enumerate((1.0, 3.0)):
        end = Head(HEAD_FILES["permissive"])
        with torch.no_grad():
            end.text.out.bias += change
        additions.append({"minilm.x.a": random.normal(size=(2, 30)), "minilm.x.b": random.normal(size=(40, 2))})
        end.save(tmp_path / f"end{i}", additions[i])
    mean_of_heads([tmp_path / "end0", tmp_path / "end1"], tmp_path / "start", 0.25, tmp_path / "mean")
    mean, result = Head(tmp_path / "mean"), load_arrays(tmp_path / "mean", "minilm.")
    torch.testing.assert_close(mean.text.out.bias - start.text.out.bias, torch.full((512,), 0.5), atol=2e-3, rtol=0)
    assert mean.pooling == start.pooling
    product = sum(each["minilm.x.b"] @ each["minilm.x.a"] for each in additions) / 2
    np.testing.assert_allclose(result["minilm.x.b"] @ result["minilm.x.a"], 0.25 * product, atol=2e-2)
