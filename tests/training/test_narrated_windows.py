"""Narrated windows: what a batch holds, however it is read."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hiero.errors import InputError
from hiero.features.stores import pack
from hiero.training.narrated_windows import NarratedWindows, drop_tag
from hiero.training.narrations import Narrations
from hiero.types import Clock, Narration

SECONDS = Clock(1.0, 1.0)


def make_windows(tmp_path, lengths, narrations, clock=SECONDS, window_s=10.0, precision="float32", **options):
    """Videos v0, v1 … of these lengths, with narrations (video, time, text)."""
    (tmp_path / "in").mkdir()
    for i, length in enumerate(lengths):
        torch.save(torch.randn(length, 4, generator=torch.Generator().manual_seed(i)), tmp_path / "in" / f"v{i}.pt")
    store, _ = pack(tmp_path / "in", tmp_path / "store", clock=clock, precision=precision)
    by_video: dict[str, list[Narration]] = {}
    for video, time_s, text in sorted(narrations):
        by_video.setdefault(f"v{video}", []).append(Narration(f"v{video}", time_s, text))
    return NarratedWindows(store, Narrations(by_video), window_s, **options)


def test_a_batch_written_out(tmp_path):
    windows = make_windows(
        tmp_path,
        [12, 25],
        [(0, 3.0, "a"), (0, 11.5, "b"), (1, 2.0, "a"), (1, 21.0, "c"), (1, 22.0, "a"), (1, 99.0, "x")],
    )
    assert [(w.video, w.window.start, w.window.end) for w in windows.windows] == [
        ("v0", 0, 10),
        ("v0", 10, 12),
        ("v1", 0, 10),
        ("v1", 20, 25),
    ]
    assert windows.texts == ["a", "b", "c"]
    assert windows.summary() == (
        "4 windows of 10 s with 5 narrations (3 different texts); 1 window without narrations left out; "
        "1 narration beyond the end of their video's features left out"
    )
    batch = windows.read([3, 1])
    assert batch.features.shape == (2, 5, 4)
    assert torch.equal(batch.features[0], windows.store.read("v1", 20, 25))
    assert torch.equal(batch.features[1, :2], windows.store.read("v0", 10, 12))
    assert batch.mask.tolist() == [[True] * 5, [True, True, False, False, False]]
    assert batch.times[0].tolist() == [20.5, 21.5, 22.5, 23.5, 24.5]
    assert batch.texts.tolist() == [[2, 0], [1, 0]]
    assert batch.text_mask.tolist() == [[True, True], [True, False]]
    assert batch.text_times.tolist() == [[21.0, 22.0], [11.5, 0.0]]
    table = torch.eye(3)
    assert torch.equal(batch.with_vectors(table).texts[0], table[[2, 0]])


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    window_s=st.sampled_from([5.0, 8.0, 100.0]),
    stride=st.sampled_from([1.0, 16.0]),
    seed=st.integers(0, 1000),
)
def test_resident_windows_are_the_same(tmp_path_factory, lengths, window_s, stride, seed):
    """The gather on the device and the read from the store give the same batch, padding aside."""
    generator = torch.Generator().manual_seed(seed)
    clock = Clock(30.0 if stride == 16 else 1.0, stride)
    narrations = [
        (i, float(torch.rand((), generator=generator)) * n * clock.spacing_s, f"t{i}") for i, n in enumerate(lengths)
    ]
    windows = make_windows(tmp_path_factory.mktemp("w"), lengths, narrations, clock, window_s, precision="float16")
    table = torch.randn(len(windows.texts), 6, generator=generator).half()
    resident = windows.resident(table, "cpu")
    indices = torch.randint(len(windows), (3,), generator=generator)
    expected, batch = windows.read(indices.tolist()).with_vectors(table), resident.read(indices)
    for name, tensor, padded in zip(batch._fields, expected, batch, strict=True):
        unpadded = padded[tuple(slice(n) for n in tensor.shape)]
        if name == "texts":  # what stands in the padding is hidden by the mask
            tensor, unpadded = tensor[expected.text_mask], unpadded[expected.text_mask]
        torch.testing.assert_close(unpadded, tensor, rtol=0, atol=0)
    assert not batch.mask[:, expected.mask.shape[1] :].any()
    assert not batch.text_mask[:, expected.text_mask.shape[1] :].any()
    assert windows.num_bytes(6) > 0


def test_large_values_stay_finite_on_a_device(tmp_path):
    """A float32 store is not squeezed into half precision."""
    windows = make_windows(tmp_path, [5], [(0, 1.0, "a")])
    windows.store._rows = windows.store._rows * 1e6
    batch = windows.resident(torch.zeros(1, 4), "cpu").read(torch.tensor([0]))
    assert torch.equal(batch.features[0, :5], windows.store.read("v0"))


def test_statistics(tmp_path):
    windows = make_windows(tmp_path, [30, 10], [(0, 1.0, "a"), (1, 1.0, "b")])
    rows = torch.cat([windows.store.read("v0", 0, 10), windows.store.read("v1")])
    mean, deviation = windows.statistics()
    torch.testing.assert_close(mean, rows.mean(0))
    torch.testing.assert_close(deviation, rows.std(0, unbiased=False))


def test_narrations_of_other_videos_say_what_to_check(tmp_path):
    with pytest.raises(InputError, match="do the narrations' video ids match"):
        make_windows(tmp_path, [5], [(7, 1.0, "a")])


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("#C C rinses a spoon", "rinses a spoon"),
        ("#c c Cuts", "Cuts"),
        ("# C opens", "opens"),
        ("#O A man walks", "man walks"),
        ("#unsure holds", "holds"),
        ("cuts #2 pencils", "cuts #2 pencils"),
        ("C cuts", "C cuts"),
        ("#C C", "#C C"),
    ],
)
def test_tags(text, without):
    assert drop_tag(text) == without


def test_narrations_out_of_range_are_not_blamed_on_ids(tmp_path):
    with pytest.raises(
        InputError, match=r"all 2 lie beyond the end of their video's features. Are their times in seconds"
    ):
        make_windows(tmp_path, [12], [(0, 300.0, "a"), (0, 400.0, "b")])
