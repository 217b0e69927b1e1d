"""Rows, tables, reports: intervals, Markdown, files."""

from __future__ import annotations

import numpy as np
import pytest

from hiero.errors import InputError
from hiero.evaluation.results import Report, Row, Table, as_markdown, bootstrap_row, weighted_means
from tests.oracle.bootstrap import score_each_draw


def test_intervals_hold_the_mean_of_most_other_draws():
    rng = np.random.default_rng(0)
    inside = 0
    for seed in range(100):
        values = rng.normal(0.5, 0.1, (40, 1))
        low, high = bootstrap_row("x", weighted_means(values, np.arange(40), ["m"]), 40, 200, seed).intervals["m"]
        inside += low <= 50 <= high
    assert 85 <= inside <= 100


def test_markdown_and_files(tmp_path):
    table = Table("Title", [Row("ours", {"a": 12.345}, {"a": (10.0, 14.0)}), Row("theirs", {"b": 7.9})], ["A note."])
    text = as_markdown(table)
    assert "| ours | 12.3 (10.0-14.0) | – |" in text
    assert "| theirs | – | 7.9 |" in text
    Report("own", [table], command="hiero eval own").save(tmp_path / "r.json")
    assert Report.load(tmp_path / "r.json").tables[0].rows[0].scores == {"a": 12.345}
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(InputError, match="not a report"):
        Report.load(tmp_path / "bad.json")


def test_all_draws_at_once_are_those_of_one_after_the_other():
    rng = np.random.default_rng(0)
    values, owners = rng.random((60, 2)), np.repeat(np.arange(12), 5)

    def means(weights):
        weight = weights[owners]
        return dict(zip("ab", (100 * weight @ values / weight.sum()).tolist(), strict=True))

    together, each = (
        bootstrap_row("x", scores, 12, 50, 3)
        for scores in (weighted_means(values, owners, "ab"), score_each_draw(means))
    )
    assert together.scores == pytest.approx(each.scores)
    for name in "ab":
        assert together.intervals[name] == pytest.approx(each.intervals[name])
