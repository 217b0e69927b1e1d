"""The summary of `hiero reproduce` in a real browser, from a file, without a network."""

from __future__ import annotations

import pytest

from hiero.formats.html_page import write_page
from tests.browser.video_page import violations

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
ROW = {"published": {"inter": 91.6, "intra": 59.6}, "ours": {}, "difference": {}, "missing": [], "failed": []}
OURS = {"inter": 92.1, "intra": 59.0}
TABLE = {
    "name": "mcq",
    "label": "tab:egomcq_nlq",
    "title": "EgoMCQ (Table 1)",
    "notes": ["A note."],
    "columns": ["inter", "intra"],
    "rows": [
        {
            **ROW,
            "method": "EgoVLP",
            "ours": {"inter": 92.1, "intra": 59.0},
            "difference": {"inter": 0.5, "intra": -0.6},
        },
        {
            **ROW,
            "method": "HiERO, trained three times",
            "seeds": 3,
            "ours": {"inter": 92.1},
            "intervals": {"inter": [91.1, 93.1]},
        },
        {**ROW, "method": "Omnivore", "missing": ["data/checkpoints/hiero_omnivore.pth"]},
        {**ROW, "method": "LaViLa", "failed": ["a.pt: damaged </script> & <b>"]},
    ],
    "runs": {"hiero eval egomcq": {"settings": {"videos": 3, "protocol": "release"}, "missing_videos": ["a", "b"]}},
}


def test_it_shows_the_paper_ours_and_the_difference(offline, tmp_path):
    data = {"version": 1, "hiero": "0.1.0", "data": "HiERO", "tables": [TABLE]}
    write_page(tmp_path / "summary.html", "reproduction.html", ("style.css",), data)
    offline.goto((tmp_path / "summary.html").as_uri())
    rows = offline.locator("table tbody").first.locator("tr").all_inner_texts()
    assert [row.split("\t")[-3:] for row in rows] == [
        ["paper", "91.60", "59.60"],
        ["ours", "92.10", "59.00"],
        ["difference", "+0.50", "−0.60"],
    ]
    several = offline.locator("table tbody").nth(1).inner_text()
    assert "3 seeds" in several
    assert "92.10 ± 1.00" in several
    assert offline.locator("section h2").inner_text() == "EgoMCQ (Table 1) tab:egomcq_nlq"
    page = offline.locator("main").inner_text()
    for text in (
        "missing: data/checkpoints/hiero_omnivore.pth",
        "failed: a.pt: damaged </script> & <b>",
        "hiero eval egomcq videos: 3, protocol: release, without features: 2",
        "files in HiERO",
    ):
        assert text in page
    assert violations(offline) == []
