"""Training of the head for pictures and words, small: made-up features whose truth is known; phrases
out of sentences; views.
"""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
import torch

from benchmarks import words
from benchmarks.words_data import make_view, phrases, texts_of_picture, unheard_phrases
from hiero.storage.files import load_arrays

NUM_PICTURES, NUM_PATCHES, SIZE = 120, 6, 384


@pytest.fixture
def work(tmp_path):
    """Features as `encode` writes them: a picture is a random direction, its sentence another one
    that belongs to it.
    """
    random = np.random.default_rng(0)
    hidden = random.normal(size=(NUM_PICTURES, 12))
    picture, text = hidden @ random.normal(size=(12, SIZE)), hidden @ random.normal(size=(12, SIZE))
    for view in range(2):
        tokens = picture[:, None] + 0.3 * random.normal(size=(NUM_PICTURES, 1 + NUM_PATCHES, SIZE))
        np.save(tmp_path / f"coco.view{view}.npy", tokens.astype(np.float16))
    np.save(tmp_path / "coco-labels.view0.npy", tokens[:40].astype(np.float16))
    np.save(tmp_path / "texts.npy", text.astype(np.float16))
    document = {
        "pictures": {"coco": [[[i], [i], []] for i in range(NUM_PICTURES)]},
        "prompts": [[0], [1]],
        "labels": [[i % 2] for i in range(40)],
    }
    (tmp_path / "texts.json").write_text(json.dumps(document))
    return tmp_path


def test_a_head_learns_and_is_the_same_again(work):
    recall = [
        words.train(work, work / f"head{i}.safetensors", torch.device("cpu"), epochs=epochs, batch_size=30)["coco"][
            "R@5"
        ]
        for i, epochs in enumerate((0, 4, 4))
    ]
    assert recall[0] < 40, "before training"
    assert recall[1] > 70, recall
    assert recall[1] == recall[2]
    assert (work / "head1.safetensors").read_bytes() == (work / "head2.safetensors").read_bytes()
    arrays = load_arrays(work / "head1.safetensors")
    assert arrays["picture.hidden.weight"].dtype == np.float16
    assert arrays["pooling"].shape == (1,)


def test_a_head_learns_what_teachers_say(work, capsys):
    """What it says of held-out pictures is more like what its teacher says than what it says alone."""
    device = torch.device("cpu")
    pairs = words.Pairs(work, device)
    teacher = words.train_head(pairs, device, 3, 30, seed=1).eval().requires_grad_(False)

    def likeness(head):
        logits = [each.logits(pairs.vectors[:30], pairs.tokens[:30])[2].flatten() for each in (head.eval(), teacher)]
        return float(torch.corrcoef(torch.stack(logits).detach())[0, 1])

    alone, taught = (words.train_head(pairs, device, 2, 30, 0, teachers) for teachers in ([], [teacher]))
    assert likeness(taught) > likeness(alone) + 0.02
    recall = words.train(work, work / "taught.safetensors", device, epochs=1, batch_size=30, num_teachers=2)
    assert set(recall) == {"mean of teachers", "coco"}
    assert capsys.readouterr().out.count("teacher") == 2


def test_phrases_out_of_sentences():
    doings, things = phrases("A man is cutting a loaf of bread while standing near the kitchen sink.")
    assert doings == ["cutting a loaf of bread", "standing near the kitchen sink"]
    assert things == ["loaf", "kitchen sink"]
    assert phrases("A large building in the evening") == ([], ["large building", "evening"])
    assert texts_of_picture("stanford40", ["a person riding a bike"])[1] == ["riding a bike"]


def test_views_are_pictures_of_the_same_size():
    pictures = torch.rand(3, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    for view in range(5):
        made = [make_view(pictures, view, torch.Generator().manual_seed(1)) for _ in range(2)]
        assert made[0].shape == pictures.shape
        assert torch.equal(*made)
        assert torch.isfinite(made[0]).all()


def test_phrases_that_no_text_contains(tmp_path):
    with gzip.open(tmp_path / "texts.tsv.gz", "wt") as file:
        file.write("1.jpg\tA man fills two cups.\n2.jpg\tshe washes the knives and a knife\n")
    files = [tmp_path / "texts.tsv.gz"]
    phrases = ["fill the cup", "fill the knife", "wash the knife", "wash the cup"]
    assert unheard_phrases(phrases, files) == ["fill the knife", "wash the cup"]
