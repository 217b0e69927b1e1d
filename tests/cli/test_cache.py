"""hiero cache: shows what the cache holds, and clears it by kind, video or age."""

from __future__ import annotations

import json
import os
import time

import pytest

from hiero.errors import InputError
from hiero.storage.cache import cache_folder, content_key


@pytest.fixture
def video(tmp_path):
    path = tmp_path / "kitchen.mp4"
    path.write_bytes(b"a video")
    return path


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch, video):
    """Three days of use: features and speech of one video, and features of another, by name."""
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    key, files = content_key(video), {}
    for age_days, (kind, name) in enumerate([("features", f"{key}-7"), ("speech", f"{key}-1"), ("features", "other")]):
        file = files[f"{kind} {name[-1]}"] = cache_folder(kind) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(1000))
        os.utime(file, (time.time() - 86_400 * age_days,) * 2)
    (tmp_path / "home" / "edits").mkdir()
    (tmp_path / "home" / "edits" / f"{key}.json").write_text("corrections")
    return files


def removed(files):
    return {name for name, file in files.items() if not file.exists()}


def test_the_cache_is_listed_by_kind(run, files):
    code, out, _ = run("cache", "--json")
    document = json.loads(out)
    assert code == 0
    assert (document["bytes"], document["limit"]) == (3000, 20 * 10**9)
    assert {row["kind"]: (row["files"], row["bytes"]) for row in document["kinds"]} == {
        "features": (2, 2000),
        "speech": (1, 1000),
    }
    assert document["kinds"][0]["oldest_use"] == pytest.approx(time.time() - 2 * 86_400, abs=60)
    code, out, _ = run("cache")
    assert code == 0
    assert "features" in out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--kind", "speech"], {"speech 1"}),
        (["--kind", "nodes"], set()),
        (["--video", "VIDEO"], {"features 7", "speech 1"}),
        (["--days", "1.5"], {"features r"}),
        (["--kind", "features", "--video", "VIDEO"], {"features 7"}),
        (["--all"], {"features 7", "speech 1", "features r"}),
    ],
)
def test_what_all_options_describe_is_removed(run, files, video, tmp_path, arguments, expected):
    code, out, _ = run("cache", "clear", *(str(video) if part == "VIDEO" else part for part in arguments))
    assert code == 0
    assert removed(files) == expected
    assert f"removed {len(expected)} file" in out
    assert len(list((tmp_path / "home" / "edits").iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "fact"), [([], "--all"), (["--video", "missing.mp4"], "missing.mp4"), (["--days", "-1"], "--days")]
)
def test_a_mistake_removes_nothing(run, files, arguments, fact):
    with pytest.raises(InputError, match=fact):
        run("cache", "clear", *arguments)
    assert removed(files) == set()
