"""What words say about nodes, against loops."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hiero.steps.grounding import TEMPERATURE, nms, score_spans, span_means
from hiero.steps.similarity import (
    BACKGROUND_TEMPERATURE,
    CHUNK,
    MIN_PROBABILITY,
    MIN_SCORE,
    NUM_DETECTIONS,
    SHARE_WEIGHT,
    ClassEvidence,
    NodeEvidence,
    PictureEvidence,
    background_similarity,
    detect_labels,
    label_probabilities,
    text_similarity,
)


def unit(rng, *shape):
    x = rng.standard_normal(shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(2, 5), st.integers(0, 1000))
def test_class_names_one_by_one(length, num_texts, num_classes, seed):
    rng = np.random.default_rng(seed)
    seen = rng.dirichlet(np.ones(num_classes), length)
    names, texts, nodes, own = (
        unit(rng, num_classes, 8),
        unit(rng, num_texts, 8),
        unit(rng, length, 3),
        unit(rng, num_texts, 3),
    )
    result = text_similarity([NodeEvidence(nodes, 0.5), ClassEvidence(seen, names, 0.2, 0.1)], texts, own)
    for q in range(num_texts):
        weights = [math.exp(float(texts[q] @ name) / 0.1) for name in names]
        for t in range(length):
            mass = sum(w * p for w, p in zip(weights, seen[t], strict=True)) / sum(weights)
            expected = 0.5 * float(own[q] @ nodes[t]) + 0.2 * math.log(
                (mass + MIN_PROBABILITY) / (1 / num_classes + MIN_PROBABILITY)
            )
            assert math.isclose(result[q, t], expected, rel_tol=1e-9, abs_tol=1e-9)


@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 4), st.integers(0, 1000))
def test_pictures_one_by_one(length, num_texts, num_patches, seed):
    rng = np.random.default_rng(seed)
    pictures, patches, texts = unit(rng, length, 4), unit(rng, length, num_patches, 4), unit(rng, num_texts, 2, 4)
    rows = np.concatenate([pictures[:, None], patches], 1).reshape(length, -1)
    result = PictureEvidence.from_rows(rows, 4, 8.0).similarity(texts)
    for q in range(num_texts):
        for t in range(length):
            cosines = [float(texts[q, 1] @ patch) for patch in patches[t]]
            weights = [math.exp(8.0 * c) for c in cosines]
            chosen = sum(w * c for w, c in zip(weights, cosines, strict=True)) / sum(weights)
            assert math.isclose(result[q, t], float(texts[q, 0] @ pictures[t]) + chosen, abs_tol=1e-5)


def test_pictures_of_a_long_video_in_chunks():
    rng = np.random.default_rng(0)
    evidence = PictureEvidence(unit(rng, CHUNK + 3, 2), unit(rng, CHUNK + 3, 2, 2), 5.0)
    texts = unit(rng, 1, 2, 2)
    last = PictureEvidence(evidence.pictures[-3:], evidence.patches[-3:], 5.0)
    np.testing.assert_allclose(evidence.similarity(texts)[:, -3:], last.similarity(texts), atol=1e-12)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 100))
def test_the_background_is_a_soft_maximum(length, num_texts, seed):
    similarity = np.random.default_rng(seed).normal(0, 0.3, (num_texts, length))
    for t, value in enumerate(background_similarity(similarity)):
        mean = sum(math.exp(s / BACKGROUND_TEMPERATURE) for s in similarity[:, t]) / num_texts
        assert math.isclose(value, BACKGROUND_TEMPERATURE * math.log(mean), abs_tol=1e-9)
        assert similarity[:, t].mean() - 1e-9 <= value <= similarity[:, t].max() + 1e-9


@given(st.integers(1, 12), st.integers(0, 100))
def test_means_and_shares(length, seed):
    rng = np.random.default_rng(seed)
    similarity = rng.normal(0, 0.3, (4, length))
    spans = np.array([[a, b] for a in range(length) for b in range(a + 1, length + 1)])
    expected = np.array([[row[a:b].mean() for a, b in spans] for row in similarity])
    np.testing.assert_allclose(span_means(similarity, spans), expected, atol=1e-12)
    share = label_probabilities(similarity, spans)
    np.testing.assert_allclose(share.sum(1), 1)
    assert (share.argmax(1) == expected.argmax(0)).all()


def test_a_large_vocabulary_is_compared_in_parts(monkeypatch):
    rng = np.random.default_rng(0)
    texts, nodes = rng.normal(size=(50, 8)).astype(np.float32), rng.normal(size=(30, 8)).astype(np.float32)
    evidence = [NodeEvidence(nodes, 1.0), ClassEvidence(np.full((30, 4), 0.25), rng.normal(size=(4, 8)), 0.1, 0.2)]
    together = text_similarity(evidence, texts, texts)
    spans = np.array([[0, 4], [4, 30], [7, 8]])
    means = span_means(together, spans)
    monkeypatch.setattr("hiero.steps.similarity.MANY_TEXTS", 7)
    monkeypatch.setattr("hiero.steps.grounding.CHUNK_SIZE", 100)
    np.testing.assert_allclose(text_similarity(evidence, texts, texts), together, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(span_means(together, spans), means)


@given(st.integers(3, 12), st.integers(1, 4), st.integers(0, 1000))
def test_detected_labels_one_by_one(length, num_texts, seed):
    rng = np.random.default_rng(seed)
    similarity = rng.uniform(-0.5, 0.8, (num_texts, length))
    spans = np.array([(start, end) for start in range(length) for end in range(start + 1, length + 1)])
    share = score_spans(similarity, spans, 1.0)
    expected = []
    for q in range(num_texts):
        scores = []
        for i, (start, end) in enumerate(spans):
            weights = [math.exp(float(row[start:end].mean()) / TEMPERATURE) for row in similarity]
            scores.append(weights[q] / sum(weights) * (share[q, i] / share[q].max()) ** SHARE_WEIGHT)
        indices, values = nms(spans, np.array(scores), NUM_DETECTIONS)
        expected += [(*spans[i], q, value) for i, value in zip(indices, values, strict=True) if value >= MIN_SCORE]
    found = [(*span, label, score) for span, label, score in zip(*detect_labels(similarity, spans, 1.0), strict=True)]
    assert np.allclose(found, expected)
