"""What words say about nodes, against loops."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hiero.steps.grounding import span_means
from hiero.steps.similarity import (
    MIN_PROBABILITY,
    ClassEvidence,
    NodeEvidence,
    label_probabilities,
    moving_average,
    presence_probability,
    text_similarity,
)


def unit(rng, *shape):
    x = rng.standard_normal(shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(2, 5), st.integers(0, 1000))
def test_class_names_one_by_one(length, num_texts, num_classes, seed):
    rng = np.random.default_rng(seed)
    seen = rng.dirichlet(np.ones(num_classes), length)
    names, texts, nodes, own = unit(rng, num_classes, 8), unit(rng, num_texts, 8), unit(rng, length, 3), unit(rng, num_texts, 3)
    result = text_similarity([NodeEvidence(nodes, 0.5), ClassEvidence(seen, names, 0.2, 0.1)], texts, own)
    for q in range(num_texts):
        weights = [math.exp(float(texts[q] @ name) / 0.1) for name in names]
        for t in range(length):
            mass = sum(w * p for w, p in zip(weights, seen[t], strict=True)) / sum(weights)
            expected = 0.5 * float(own[q] @ nodes[t]) + 0.2 * math.log(
                (mass + MIN_PROBABILITY) / (1 / num_classes + MIN_PROBABILITY)
            )
            assert math.isclose(result[q, t], expected, rel_tol=1e-9, abs_tol=1e-9)


@given(st.integers(1, 12), st.integers(1, 7), st.integers(0, 100))
def test_steady_is_a_moving_mean(length, num, seed):
    seen = np.random.default_rng(seed).random((length, 3))
    expected = [seen[max(0, i - num // 2) : i + num // 2 + 1].mean(0) for i in range(length)]
    np.testing.assert_allclose(moving_average(seen, num), expected)


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


def test_what_fits_nowhere_is_less_likely_there():
    spans = np.array([[0, 10], [10, 20]])
    there, nowhere = np.full(20, -0.2), np.full(20, -0.2)
    there[:10] = 0.6
    sure = presence_probability(np.stack([there, nowhere]), spans, [0, 0])
    assert sure[0] > 0.5 > 0.3 > sure[1]
