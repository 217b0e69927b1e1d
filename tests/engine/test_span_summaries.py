"""What an edit costs: only spans that it changed are summarised again."""

from __future__ import annotations

import numpy as np

from hiero.engine.summaries import SpanSummaries, SummaryCache


class CountingSummaries:
    """A fake whose pictures are the spans themselves."""

    def __init__(self):
        self.computed = []

    def summarise(self, spans):
        self.computed += spans.tolist()
        return SpanSummaries(*(spans.copy() for _ in range(4)))


def test_only_the_spans_that_an_edit_changed_are_summarised_again():
    counting = CountingSummaries()
    cache = SummaryCache(counting.summarise)
    before = np.array([[0, 9], [0, 3], [3, 6], [6, 9]])
    moved = np.array([[0, 9], [0, 4], [4, 6], [6, 9]])
    for spans in (before, before, moved, moved):
        np.testing.assert_array_equal(cache.find(spans).pictures, spans)
    assert counting.computed == [*before.tolist(), [0, 4], [4, 6]]
