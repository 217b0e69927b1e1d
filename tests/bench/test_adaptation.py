"""Scores of the adaptation benchmark on hand-made steps."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from benchmarks.adaptation import main, summarise, train_model
from benchmarks.captaincook4d_data import split
from benchmarks.scores import segmental_f1
from hiero.model.hiero import HiERO
from hiero.storage.files import save_tensors
from hiero.types import AnnotatedStep
from tests.optional import weights_or_skip

STEPS = [AnnotatedStep(0.0, 10.0, "a"), AnnotatedStep(10.0, 20.0, "b"), AnnotatedStep(20.0, 30.0, "a")]


def test_segmental_f1():
    assert segmental_f1([(0, 10, "a"), (10, 20, "b"), (20, 30, "a")], STEPS) == 1
    assert segmental_f1([(0, 10, "b"), (10, 20, "a"), (20, 30, "b")], STEPS) == 0
    assert segmental_f1([(0, 30, "a")], STEPS) == pytest.approx(2 * 1 / 4)  # IoU 1/3, and each true step is used once
    assert segmental_f1([(0, 5, "a"), (5, 10, "a")], STEPS) == pytest.approx(2 * 1 / 5)


def test_summary_compares_the_same_draws():
    cells = [
        {"method": method, "recipe": recipe, "num": 1, "draw": draw, "scores": [score, score, score]}
        for method, draws in (("none", (0, 1)), ("actionformer", (0,)))
        for draw in draws
        for recipe, score in (("tea", 0.2 + draw), ("egg", 0.4 + draw))
    ]
    summary = summarise(cells)
    np.testing.assert_allclose(summary["none"][1], [[30, 30, 30], [10, 10, 10]])


@pytest.fixture
def dataset(tmp_path):
    """Six made recipes of two steps with four recordings each, as the published files have them."""
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(12, 400))
    annotations, tensors = {}, {"scale": torch.full((400,), 0.05)}
    for recipe in range(6):
        for number in range(4):
            name = f"{recipe}_{number}"
            order = [2 * recipe, 2 * recipe + 1][:: 1 if number % 2 else -1]
            rows = np.concatenate([3 * directions[k] + rng.normal(size=(16, 400)) for k in order])
            tensors[f"logits/{name}"] = torch.from_numpy((rows / 0.05).clip(-127, 127)).char()
            steps = [
                {"start_s": 16.0 * i, "end_s": 16.0 * i + 16, "text": f'step "{k}", made'} for i, k in enumerate(order)
            ]
            annotations[name] = {"recipe": f"recipe {recipe}", "seconds": 32, "steps": steps}
    save_tensors(tmp_path / "kinetics400_logits.safetensors", tensors)
    (tmp_path / "annotations.json").write_text(json.dumps(annotations))
    return tmp_path


@pytest.mark.slow
def test_a_run_trains_its_model_and_scores_the_cells_that_are_missing(dataset, tmp_path, capsys):
    weights_or_skip("minilm")
    work = tmp_path / "work"
    small = ["seed=0", "epochs=2", "model.hidden_size=16", "model.embedding_size=16", "model.gate_size=8"]
    train_model(dataset, work, "test", "cpu", small)
    annotations = json.loads((dataset / "annotations.json").read_text())
    trained = split(annotations, list(annotations), "test")["train"]
    assert f"on {len(trained)} recordings" in capsys.readouterr().out
    folder = work / "models" / "test-0"
    assert HiERO.from_pretrained(folder).config.hidden_size == 16
    before = (folder / "model.safetensors").stat().st_mtime_ns
    command = f"{dataset} --work {work} --methods none prototypes --draws 1 --jobs 0".split()
    main(command)
    assert (folder / "model.safetensors").stat().st_mtime_ns == before  # trained once
    cells = [json.loads(line) for line in (work / "cells-test.jsonl").read_text().splitlines()]
    assert {(cell["method"], cell["num"]) for cell in cells} == {(m, n) for m in ("none", "prototypes") for n in (1, 2)}
    scores = {
        method: [cell["scores"][0] for cell in cells if cell["method"] == method] for method in ("none", "prototypes")
    }
    assert min(scores["prototypes"]) == 1.0 > np.mean(scores["none"])  # steps that are told apart at once
    printed = capsys.readouterr().out
    assert "| names | 1 corrected | 2 corrected |" in printed
    assert "| prototypes (hiero adapt) | 100.0 ± 0.0" in printed
    main(command)
    assert len((work / "cells-test.jsonl").read_text().splitlines()) == len(cells)  # all were there
