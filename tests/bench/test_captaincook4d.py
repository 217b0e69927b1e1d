"""The files of CaptainCook4D, from a small folder in their layout."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from benchmarks.captaincook4d import main
from hiero.engine.vocabulary import class_names
from hiero.formats.annotations import read_annotations
from hiero.networks.minilm import MINILM_KEY, MINILM_SIZE
from hiero.networks.vector_cache import TextCache
from hiero.storage.files import save_tensors
from tests.optional import weights_or_skip


def write_source(folder):
    names = [f"{recipe}_{i}" for recipe in range(6) for i in range(2)]

    def rows(width):
        return {name: torch.randint(-9, 9, (40, width), dtype=torch.int8) for name in names}

    logits = {f"logits/{name}": x for name, x in rows(400).items()}
    save_tensors(folder / "kinetics400_logits.safetensors", {**logits, "scale": torch.full((400,), 0.5)})
    components = {f"pca/{name}": x for name, x in rows(384).items()}
    others = {"scale": torch.ones(384), "basis": torch.randn(1024, 384), "mean": torch.zeros(1024)}
    save_tensors(folder / "omnivore_pca384.safetensors", components | others)
    steps = [{"start_s": 2.0, "end_s": 9.0, "text": "Rinse a tomato"}]
    entries = {name: {"recipe": name[0], "seconds": 40, "steps": steps} for name in names}
    (folder / "annotations.json").write_text(json.dumps(entries))


def test_what_was_prepared_is_exported_without_naming_the_source_again(tmp_path):
    weights_or_skip("minilm")
    work, source = tmp_path / "work", tmp_path / "data"
    write_source(source)
    texts = ["Rinse a tomato", *class_names()]
    TextCache(MINILM_KEY, work / "text").encode(texts, lambda each: np.ones((len(each), MINILM_SIZE)))
    main(["prepare", str(work), "--source", str(source)])
    main(["export", str(work)])
    assert len(read_annotations(work / "own" / "annotations.json")) == 12
    widths = [np.load(work / "own" / kind / "0_0.npy").shape[1] for kind in ("k400", "omnivore", "omnivore-b")]
    assert widths == [400, 180, 1024]


def write_published(folder):
    """Annotations and features as they are published, small."""
    rng, entries = np.random.default_rng(0), {}
    for name, width in (("slowfast", 400), ("omnivore", 1024)):
        (folder / "features" / name).mkdir(parents=True)
        for recording in ("1_7", "12_10"):
            rows = rng.normal(size=(40, width)).astype(np.float32)
            np.savez(folder / "features" / name / f"{recording}_360p.mp4_1s_1s.npz", rows)
    for recording, activity in (
        ("1_7", "Microwave Egg Sandwich"),
        ("12_10", "Tomato Mozzarella Salad"),
        ("9_9", "Ramen"),
    ):
        steps = [
            {
                "step_id": 1,
                "start_time": 2.5,
                "end_time": 9.0,
                "description": "Rinse-Rinse a tomato",
                "has_errors": False,
            },
            {"step_id": 2, "start_time": -1.0, "end_time": -1.0, "description": "Cut-Cut it", "has_errors": True},
        ]
        about = {
            "recording_id": recording,
            "activity_id": 1,
            "activity_name": activity,
            "person_id": 3,
            "environment": 8,
        }
        entries[recording] = {**about, "steps": steps}
    (folder / "annotation_json").mkdir()
    (folder / "annotation_json" / "complete_step_annotations.json").write_text(json.dumps(entries))


def test_the_published_files_are_a_source(tmp_path):
    write_published(tmp_path / "data")
    main(["export", str(tmp_path / "work"), "--source", str(tmp_path / "data"), "--part", "all"])
    annotated = {video.video: video for video in read_annotations(tmp_path / "work" / "own" / "annotations.json")}
    assert sorted(annotated) == ["12_10", "1_7"]  # the third has no features
    assert [(step.start_s, step.text) for step in annotated["12_10"].steps] == [(2.5, "Rinse a tomato")]
    for name, folder in (("k400", "slowfast"), ("omnivore-b", "omnivore")):
        rows = np.load(tmp_path / "work" / "own" / name / "1_7.npy")
        true = np.load(tmp_path / "data" / "features" / folder / "1_7_360p.mp4_1s_1s.npz")["arr_0"]
        np.testing.assert_allclose(rows, true, atol=0.1)


def test_a_source_without_annotations_is_named(tmp_path):
    with pytest.raises(SystemExit, match=str(tmp_path)):
        main(["export", str(tmp_path / "work"), "--source", str(tmp_path)])
