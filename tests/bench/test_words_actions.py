"""Texts of clips with verbs and nouns, which of them are true of which clip, and how often clips are told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import words_actions, words_data, words_texts
from benchmarks.words_actions import VERBS, Clips, judge, read_clips, write_text
from hiero.steps.similarity import PictureEvidence

LABELS = """Video_index,Video_name,Video_category,Start_times,End_times,Action_labels,Nouns
1,OP01-R01-PastaSalad-1-2,OP01-R01-PastaSalad,1,2,9,"water,faucet,pot"
2,OP06-R07-Pizza-1-2,OP06-R07-Pizza,1,2,2,fridge
3,OP01-R01-PastaSalad-3-4,OP01-R01-PastaSalad,3,4,9,"pot,pasta_container"
"""


@pytest.fixture
def clips():
    names = ["OP01-R01-PastaSalad-1-2-F1-F2.mp4", "OP06-R07-Pizza-1-2-F1-F2.mp4", "OP01-R01-PastaSalad-3-4-F1-F2.mp4"]
    return Clips({"train": LABELS, "valid": LABELS.splitlines()[0] + "\n"}, [*names, "unknown.mp4"])


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


def test_two_frames_of_each_clip_of_a_part_are_read(monkeypatch):
    """Those that the clone lacks are left out, with their labels."""
    names = ["OP01-R01-PastaSalad-1-2-F1-F2.mp4", "OP06-R07-Pizza-1-2-F1-F2.mp4", "OP01-R01-PastaSalad-3-4-F1-F2.mp4"]
    asked = []

    def read_blobs(repository, blobs):
        asked.extend(blobs)
        return [(name, name.encode()) for _, name in blobs if "1-2" not in name]

    monkeypatch.setattr(words_data, "read_egtea_labels", lambda repository: {"train": LABELS})
    monkeypatch.setattr(words_data, "list_egtea_clips", lambda repository: [("x", name) for name in names])
    monkeypatch.setattr(words_data, "read_blobs", read_blobs)
    monkeypatch.setattr(words_data, "read_frames", lambda video, chosen: np.zeros((len(chosen), 30, 40, 3), np.uint8))
    clips, frames = read_clips(Path("clone"), "train")
    assert asked == [("x", names[0]), ("x", names[2])]
    assert clips.nouns == [("pot", "pasta container")]
    assert frames.shape == (2, 3, 224, 224)


def test_a_score_is_the_mean_of_two_frames_and_adds_coco_with_texts(monkeypatch, clips):
    """Pictures whose vectors are those of their texts are all found."""
    kitchen = ["pour the water and faucet and pot", "open the fridge", "pour the pot and pasta container"]
    texts = [*kitchen, "a cat", "a dog"]
    vectors = np.eye(len(texts), dtype=np.float32)

    class Reader:
        def __init__(self, head):
            self.head = head

        def read(self, prepared):
            own = vectors[prepared[:, 0, 0, 0].int().numpy()]
            return PictureEvidence(own, own[:, None], 1.0)

    def encode(asked, head):
        return np.stack([[vectors[texts.index(t)] if t in texts else 0 * vectors[0]] * 2 for t in asked])

    numbers = torch.tensor([0, 0, 1, 1, 2, 2.0])
    monkeypatch.setattr(words_actions, "Reader", Reader)
    monkeypatch.setattr(words_actions, "encode_joint_texts", encode)
    some = Clips({"train": LABELS}, ["OP01-R01-PastaSalad-1-2-", "OP06-R07-Pizza-1-2-", "OP01-R01-PastaSalad-3-4-"])
    frames = numbers[:, None, None, None].expand(-1, 3, 2, 2)
    monkeypatch.setattr(words_actions, "read_clips", lambda repository, part: (some, frames))
    out = words_actions.score(Path("clones"), "dev", Path("work"))
    assert out["first of 3 names"] == [100.0, 100.0, 100.0]
    assert "COCO R@1" not in out
    monkeypatch.setattr(words_actions, "normalise", lambda pictures, mean, deviation: 255 * pictures)
    pictures = np.array([3, 4], np.uint8)[:, None, None, None].repeat(3, axis=3)
    monkeypatch.setattr(words_data, "read_pictures", lambda work, name, num: (["1.jpg", "2.jpg"], pictures))
    monkeypatch.setattr(words_texts, "read_texts", lambda path: {"1.jpg": ["a dog"], "2.jpg": ["a dog", "a cat"]})
    out = words_actions.score(Path("clones"), "dev", Path("work"), Path("pairs"))
    assert out["COCO R@1"][0] == 50.0
    assert out["COCO R@5"][0] == 100.0
