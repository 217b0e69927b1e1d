"""VSLNet and ActionFormer: parts against slow oracles, masks, gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hiero.evaluation.heads import actionformer as af
from hiero.evaluation.heads import vslnet as vn
from hiero.evaluation.heads.actionformer import diou_loss, focal_loss, soft_nms
from hiero.evaluation.heads.layers import attend_locally
from tests.oracle import heads as slow


def draw(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=30)
@given(st.integers(1, 23), st.integers(1, 6), st.integers(1, 23), st.integers(0, 99))
def test_attention_in_blocks_is_attention_in_a_window(length, reach, num_seen, seed):
    query, key, value = (draw(seed + i, 2, 2, length, 4) for i in range(3))
    mask = torch.arange(length)[None] < torch.tensor([[length], [min(num_seen, length)]])
    attended = attend_locally(query, key, value, mask, reach)
    expected = slow.attend_locally(query, key, value, mask, reach)
    inside = mask[:, None, :, None].expand_as(attended)
    torch.testing.assert_close(attended[inside], expected[inside], rtol=1e-4, atol=1e-5)
    assert torch.isfinite(attended).all()


@given(st.integers(0, 30), st.integers(0, 999))
def test_soft_nms(num, seed):
    rng = np.random.default_rng(seed)
    start = rng.uniform(0, 20, num)
    spans = np.stack([start, start + rng.uniform(0.5, 9, num)], 1)
    scores, labels = rng.random(num), rng.integers(0, 3, num)
    selected = soft_nms(spans, scores, labels, sigma=0.5, min_score=0.05, max_spans=12)
    expected = slow.soft_nms(spans, scores, labels, 0.5, 0.05, 12)
    assert len(selected[0]) == len(expected)
    for span, score, label, row in zip(*selected, expected, strict=True):
        assert (*span, score, label) == pytest.approx(row)


CONFIG = af.ActionFormerConfig(6, 4, hidden_size=16, num_heads=2, window=5, num_stem=1, num_levels=3, drop_path=0.0)


@given(st.integers(0, 999), st.integers(1, 5))
def test_each_moment_gets_its_step(seed, num):
    rng = np.random.default_rng(seed)
    start = rng.uniform(0, 24, (2, num))
    spans = torch.from_numpy(np.stack([start, start + rng.uniform(0.6, 20, (2, num))], 2)).float()
    labels = torch.from_numpy(rng.integers(-1, 4, (2, num)))
    points = torch.cat(
        [torch.stack([torch.arange(0, 32, s).float(), torch.full((32 // s,), float(s))], 1) for s in (1, 2, 4)]
    )
    classes, distances = af.assign_targets(points, spans, labels, CONFIG)
    expected_classes, expected_distances = slow.assign_targets(points, spans, labels, CONFIG)
    np.testing.assert_array_equal(classes.numpy(), expected_classes)
    positive = expected_classes.sum(2) > 0
    np.testing.assert_allclose(distances.numpy()[positive], expected_distances[positive], atol=1e-4)


@given(st.lists(st.floats(0.01, 20), min_size=4, max_size=4))
def test_diou(values):
    predicted, target = torch.tensor(values[:2]), torch.tensor(values[2:])
    assert float(diou_loss(predicted, target)) == pytest.approx(slow.diou(values[:2], values[2:]), abs=1e-4)


@given(st.floats(-8, 8), st.booleans())
def test_focal(logit, positive):
    loss = focal_loss(torch.tensor([logit]), torch.tensor([float(positive)]))
    assert float(loss) == pytest.approx(slow.focal(logit, positive), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("length", [1, 3, 4, 17, 32])
def test_padding_changes_nothing_in_actionformer(length):
    torch.manual_seed(0)
    network = af.ActionFormer(CONFIG).eval()
    x = draw(1, 1, length, 6)
    outputs = []
    for total in (32, 48):
        padded = torch.full((1, total, 6), 7.0)
        padded[:, :length] = x
        logits, distances, mask, points = network(padded, torch.arange(total)[None] < length)
        outputs.append((logits[mask], distances[mask], points[mask[0]]))
    for a, b in zip(*outputs, strict=True):
        torch.testing.assert_close(a, b)
    spans, scores, labels = network.detect(x[0])
    assert ((spans >= 0) & (spans <= length)).all()
    assert (np.diff(scores) <= 0).all()
    assert set(labels.tolist()) <= set(range(4))


def test_no_steps_at_all_is_no_disaster():
    network = af.ActionFormer(CONFIG).train()
    losses = network.losses(
        draw(0, 2, 16, 6), torch.ones(2, 16, dtype=torch.bool), torch.zeros(2, 1, 2), torch.full((2, 1), -1)
    )
    losses.total.backward()
    assert losses.regression == 0
    assert all(torch.isfinite(p.grad).all() for p in network.parameters() if p.grad is not None)


def test_ten_hours_in_bounded_memory():
    """Ten hours at 1 Hz: attention inside windows never makes anything of the size of the video squared."""
    import resource

    network = af.ActionFormer(CONFIG).eval()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    network.detect(draw(0, 36_000, 6))
    # KiB: under 1 GiB; squared it would be 5 GiB a head
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20


SMALL = vn.VSLNetConfig(6, text_size=5, hidden_size=16, num_heads=2, num_positions=20, dropout=0.0)


def test_padding_changes_nothing_in_vslnet():
    torch.manual_seed(0)
    network = vn.VSLNet(SMALL).eval()
    video, words = draw(0, 1, 9, 6), draw(1, 1, 4, 5)
    outputs = []
    for padding in (0, 5):
        x, w = torch.full((1, 9 + padding, 6), 9.0), torch.full((1, 4 + padding, 5), 9.0)
        x[:, :9], w[:, :4] = video, words
        logits = network(x, torch.arange(9 + padding)[None] < 9, w, torch.arange(4 + padding)[None] < 4)
        outputs.append([part[:, :9] for part in logits])
        assert all((part[:, 9:] == vn.MASKED_LOGIT).all() for part in logits)
    for a, b in zip(*outputs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@given(st.integers(1, 9), st.integers(0, 99))
def test_best_spans(length, seed):
    start, end = draw(seed, length), draw(seed + 1, length)
    spans, scores = vn.top_spans(start[None], end[None], 5)
    expected = slow.top_spans(start, end, 5)
    for (i, j), score, (value, _, _) in zip(spans[0].tolist(), scores[0].tolist(), expected, strict=False):
        assert i <= j or score == 0
        assert score == pytest.approx(value, rel=1e-4)


def test_foreground_reaches_beyond_the_answer():
    mask = torch.ones(1, 30, dtype=torch.bool)
    mask[0, 25:] = False
    inside = vn.foreground(torch.tensor([[10, 19]]), mask, 0.1)[0]
    assert inside.nonzero().flatten().tolist() == list(range(9, 21))
    assert vn.foreground(torch.tensor([[24, 24]]), mask, 1.0)[0].nonzero().flatten().tolist() == [23, 24]


def test_highlight_loss_is_a_mean_over_what_is_there():
    logits, targets = torch.tensor([[0.3, -1.0, 5.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    mask = torch.tensor([[True, True, False]])
    first, second = -math.log(1 / (1 + math.exp(-0.3))), -math.log(1 - 1 / (1 + math.exp(1.0)))
    assert float(vn.highlight_loss(logits, targets, mask)) == pytest.approx((2 * first + second) / 2, rel=1e-5)
