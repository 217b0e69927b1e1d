"""A frozen text tower that is given as a file belongs to the model: it can be scored and asked without the file."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from hiero.evaluation.results import Report
from hiero.features.stores import pack
from hiero.networks.text_encoders import encode_texts
from hiero.types import Clock
from tests.cli.conftest import run  # noqa: F401  a fixture
from tests.evaluation.simulated import write_questions
from tests.networks.released import egovlp_with_words
from tests.optional import weights_or_skip

SMALL = ["--set", "model.hidden_size=16", "--set", "model.embedding_size=8", "--set", "model.gate_size=4"]
ONE_EPOCH = ["--set", "epochs=1", "--set", "warmup_epochs=0", "--set", "batch_size=2", "--validation-share", "0"]
TEXTS = ["#C C cuts the onion", "#C C boils water", "#C C washes a pot"]


@pytest.fixture
def files(tmp_path):
    """EgoVLP's features, packed, with narrations and questions about them, and EgoVLP's checkpoint."""
    weights_or_skip("minilm")  # for its tokenizer
    rng = np.random.default_rng(0)
    (tmp_path / "features").mkdir()
    rows = [(video, time_s, text) for video in "abc" for time_s, text in zip((5.5, 20.0, 40.0), TEXTS, strict=True)]
    for video in "abc":
        np.save(tmp_path / "features" / f"{video}.npy", rng.normal(size=(120, 256)).astype(np.float32))
    lines = [f"{video},{time_s},{text}" for video, time_s, text in rows]
    (tmp_path / "narrations.csv").write_text("\n".join(["video,time_s,text", *lines]) + "\n")
    pack(tmp_path / "features", tmp_path / "store", backbone="egovlp", clock=Clock(30.0, 16.0))
    write_questions(tmp_path / "egomcq.json", num=6)
    return tmp_path, egovlp_with_words(tmp_path / "egovlp.pth", patch=112)[0]


@pytest.mark.slow
def test_a_model_with_the_tower_of_a_file_is_scored_and_asked(files, run):  # noqa: F811
    folder, tower = files
    model = folder / "model"
    preset = ["--preset", "egovlp", "--set", f"text.encoder={tower}", *SMALL, *ONE_EPOCH]
    assert run("train", folder / "store", folder / "narrations.csv", "-o", model, *preset)[0] == 0
    expected = encode_texts(TEXTS, str(tower), cache=folder / "expected")
    tower.unlink()
    questions = ["--store", folder / "store", "--questions", folder / "egomcq.json"]
    code, _, _ = run("eval", "egomcq", *questions, "--model", model, "-o", folder / "report.json")
    asked, printed, _ = run("ask", folder / "features" / "a.npy", "cuts the onion", "--model", model, "--json")
    assert (code, asked) == (0, 0)
    assert set(Report.load(folder / "report.json").tables[0].rows[0].scores) == {"inter", "intra"}
    assert json.loads(printed)["queries"][0]["matches"]
    assert torch.equal(encode_texts(TEXTS, str(model), cache=folder / "again"), expected)
