"""Texts of clips with verbs and nouns, and which of them are true of which clip."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.words_actions import VERBS, Clips, write_text

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
