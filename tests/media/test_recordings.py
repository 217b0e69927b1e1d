"""Chapters by their names: files of one recording together and in order, never two recordings."""

from __future__ import annotations

from pathlib import Path

import pytest

from hiero.media.recordings import find_siblings, group_chapters


def names(paths, folder=""):
    """Names of the files of each recording, of names in a folder."""
    return [
        [path.name for path in recording.paths] for recording in group_chapters(Path(folder) / name for name in paths)
    ]


@pytest.mark.parametrize(
    ("files", "recordings"),
    [
        # GoPro's order on a card is by name, not by recording.
        (
            ["GX010012.MP4", "GX010013.MP4", "GX020012.MP4", "GX030012.MP4"],
            [["GX010012.MP4", "GX020012.MP4", "GX030012.MP4"], ["GX010013.MP4"]],
        ),
        (["GX010012.MP4", "GH020012.MP4"], [["GX010012.MP4"], ["GH020012.MP4"]]),  # HEVC and AVC: two recordings
        (["GP020012.MP4", "GP010012.MP4", "GOPR0012.MP4"], [["GOPR0012.MP4", "GP010012.MP4", "GP020012.MP4"]]),
        (["GOPR0012.MP4", "GP010013.MP4"], [["GOPR0012.MP4"], ["GP010013.MP4"]]),
        (["gx010012.mp4", "gx020012.mp4"], [["gx010012.mp4", "gx020012.mp4"]]),
        (["GX010012.safetensors", "GX020012.safetensors"], [["GX010012.safetensors", "GX020012.safetensors"]]),
        (["GX010012.MP4", "GX020012.safetensors"], [["GX010012.MP4"], ["GX020012.safetensors"]]),
        (["GX010012.MP4", "gx010012.mp4", "GX020012.MP4"], [["GX010012.MP4"], ["gx010012.mp4"], ["GX020012.MP4"]]),
        (["GX010012.MP4", "GL010012.MP4"], [["GX010012.MP4"]]),  # a small copy
        (["GL010012.MP4", "GL020012.MP4"], [["GL010012.MP4", "GL020012.MP4"]]),  # nothing else is there
        (
            ["VID_20240501_101500_00_007.mp4", "VID_20240501_101500_00_008.mp4", "VID_20240501_102500_00_009.mp4"],
            [["VID_20240501_101500_00_007.mp4", "VID_20240501_101500_00_008.mp4"], ["VID_20240501_102500_00_009.mp4"]],
        ),
        (
            ["VID_20240501_101500_00_007.mp4", "VID_20240501_101500_10_007.mp4"],
            [["VID_20240501_101500_00_007.mp4"], ["VID_20240501_101500_10_007.mp4"]],
        ),
        (
            ["PI world v1 ps2.mp4", "PI world v1 ps1.mp4", "PI left v1 ps1.mp4"],
            [["PI world v1 ps1.mp4", "PI world v1 ps2.mp4"], ["PI left v1 ps1.mp4"]],
        ),
    ],
)
def test_files_are_grouped_by_recording(files, recordings):
    assert names(files) == recordings
    # Another order of the files gives the same recordings.
    assert sorted(names(reversed(files))) == sorted(recordings)


def test_names_that_say_nothing_for_sure_are_recordings_of_their_own():
    numbered = ["DJI_0001.MP4", "DJI_0002.MP4", "C0001.MP4", "C0002.MP4", "PI world v1.mp4", "part2.mp4"]
    looping = ["GHAA0001.MP4", "GHAA0002.MP4"]  # a loop overwrites itself
    nearly = [
        "GX01001.MP4",
        "GX0100123.MP4",
        "xGX010012.MP4",
        "GOPR12.MP4",
        "VID_20240501_101500.mp4",
        "PI world v1.mp4",
    ]
    for files in (numbered, looping, nearly):
        assert names(files) == [[name] for name in files]


def test_folders_are_kept_apart():
    files = [Path("100GOPRO/GX010012.MP4"), Path("101GOPRO/GX020012.MP4"), Path("100GOPRO/GX020012.MP4")]
    assert [recording.paths for recording in group_chapters(files)] == [(files[0], files[2]), (files[1],)]


def test_missing_chapters_are_listed():
    (recording,) = group_chapters([Path("GX010012.MP4"), Path("GX040012.MP4")])
    assert recording.missing == (2, 3)
    assert "chapter 2, 3 is missing" in recording.describe()
    (recording,) = group_chapters([Path("GX020012.MP4"), Path("GX030012.MP4")])
    assert recording.missing == (1,)
    (recording,) = group_chapters([Path("VID_20240501_101500_00_007.mp4"), Path("VID_20240501_101500_00_008.mp4")])
    assert recording.missing == ()  # the counter goes on from recording to recording
    many = group_chapters(Path(f"GX{i:02d}0012.MP4") for i in range(1, 12))[0]
    assert many.describe() == "GX010012.MP4 … GX110012.MP4 (11 files)"


def test_siblings_are_the_other_chapters_of_a_recording(tmp_path):
    for name in ("GX010012.MP4", "GX020012.MP4", "GX010013.MP4", "GX010012.THM"):
        (tmp_path / name).write_bytes(b"")
    assert find_siblings(tmp_path / "GX010012.MP4") == [tmp_path / "GX020012.MP4"]
    assert find_siblings(tmp_path / "GX010013.MP4") == []
    assert find_siblings(tmp_path / "nowhere" / "GX010013.MP4") == []
