"""EgoMCQ in its official layout, against one question at a time."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hiero.engine import load
from hiero.errors import InputError
from hiero.evaluation.egomcq import context_window, embed_clips, evaluate_egomcq, read_questions
from hiero.features.stores import pack
from hiero.types import Clock
from tests.evaluation.simulated import CLOCK, WIDTH, write_questions


@pytest.mark.slow
@pytest.mark.parametrize("context", [0, 4])
def test_egomcq_is_what_one_question_at_a_time_gives(tmp_path, engine, store, context):
    questions = read_questions(write_questions(tmp_path / "egomcq.json", num=16))
    table, missing = evaluate_egomcq(engine, store, questions, context, batch_size=7)
    correct = {"inter": [], "intra": []}
    with torch.no_grad():
        for question in questions:
            text = torch.from_numpy(engine.encode([question.text])[1])[0]
            similarity = []
            for video, start_s, end_s in question.choices:
                window = context_window(store.num_segments(video), CLOCK, start_s, end_s, context)
                empty = window.num_nodes <= 0
                x = torch.zeros(1, WIDTH) if empty else store.read(video, window.start, window.end)
                node = engine.model(x[None], spacing_s=CLOCK.spacing_s, threads=False)[0].features[0, len(x) // 2]
                similarity.append(float(engine.model.embed_video(node) @ text))
            correct[question.kind].append(int(np.argmax(similarity)) == question.answer)
    assert not missing
    for kind, hits in correct.items():
        assert table.rows[0].scores[kind] == pytest.approx(100 * np.mean(hits))


def test_egomcq_counts_what_is_missing(tmp_path, engine, store):
    questions = read_questions(write_questions(tmp_path / "egomcq.json", missing_videos=["gone"]))
    table, missing = evaluate_egomcq(engine, store, questions)
    assert missing == ["gone"]
    answerable = [q for q in questions if all(video != "gone" for video, _, _ in q.choices)]
    assert 0 < len(answerable) < len(questions)
    assert f"{len(answerable)} of {len(questions)} questions" in table.notes[0]
    with pytest.raises(InputError, match="--model"):  # without a text encoder
        embed_clips(load("raw"), store, [("a", 0.0, 1.0)], 4)


@pytest.mark.parametrize("context", [0, 2])
def test_raw_features_are_means_over_a_clip_and_its_context(tmp_path, store, context):
    """A backbone's features and text tower, without a model."""
    questions = read_questions(write_questions(tmp_path / "egomcq.json"))
    rng = np.random.default_rng(0)

    def encode(texts):
        vectors = rng.normal(size=(len(texts), WIDTH))
        return vectors, vectors

    raw = SimpleNamespace(model=None, has_text=True, name="raw", encode=encode)
    table, _ = evaluate_egomcq(raw, store, questions, context)
    assert set(table.rows[0].scores) == {"inter", "intra"}
    video, start_s, end_s = questions[0].choices[0]
    (vector,) = embed_clips(raw, store, [(video, start_s, end_s)], context)
    window = context_window(store.num_segments(video), CLOCK, start_s, end_s, context)
    mean = store.read(video, window.start, window.end).float().mean(0).numpy()
    np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), rtol=1e-5)


def test_clips_beyond_the_features_are_counted_or_refused(tmp_path, engine, store):
    questions = read_questions(write_questions(tmp_path / "egomcq.json"))
    table, _ = evaluate_egomcq(engine, store, questions)  # features of video c end after 1.6 s
    assert "begin after the features" in table.notes[0]
    wrong = pack(tmp_path / "features", tmp_path / "wrong", clock=Clock(300.0, 16.0))[0]
    with pytest.raises(InputError, match="--fps"):
        evaluate_egomcq(engine, wrong, questions)


@pytest.mark.parametrize("change", [{"answer": 5}, {"choices": {"0": {}}}, {"types": 3}])
def test_impossible_questions_are_refused(tmp_path, change):
    file = write_questions(tmp_path / "egomcq.json", num=2)
    content = json.loads(file.read_text())
    content["1"] |= change
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"egomcq\.json"):
        read_questions(file)
