"""Packs of pictures out of made-up repositories; phrases out of sentences; views."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks import words_data
from benchmarks.words_data import (
    NUM_VIEWS,
    Packer,
    Source,
    make_view,
    read_pictures,
)
from benchmarks.words_texts import phrases, texts_of_picture, unheard_phrases

av = pytest.importorskip("av")
Image = pytest.importorskip("PIL.Image")
COLOURS = {"red": (200, 30, 30), "green": (30, 160, 30), "blue": (30, 30, 200), "grey": (120, 120, 120)}


def picture(colour, size=(64, 48)):
    out = io.BytesIO()
    Image.new("RGB", size, COLOURS[colour]).save(out, "JPEG")
    return out.getvalue()


def video(colours, size=(64, 48)):
    """A clip with a frame for each colour."""
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=12)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        frames = [av.VideoFrame.from_image(Image.new("RGB", size, COLOURS[colour])) for colour in colours]
        for packet in [packet for frame in [*frames, None] for packet in stream.encode(frame)]:
            container.mux(packet)
    return out.getvalue()


@pytest.fixture
def clone(tmp_path):
    """A function that writes files into the clone of a source; returns the source with its commit."""

    def write(source, files):
        folder = tmp_path / "clones" / source.clone / "repo"
        for name, data in files.items():
            path = folder / source.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

        def git(*arguments):
            command = ["git", "-C", folder, "-c", "user.name=x", "-c", "user.email=x", *arguments]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

        git("init", "-q")
        git("add", ".")
        git("commit", "-qm", "files")
        return replace(source, commit=git("rev-parse", "HEAD"))

    return write


@pytest.fixture
def packer(tmp_path):
    (tmp_path / "work").mkdir()
    with ThreadPoolExecutor(1) as pool:
        yield Packer(tmp_path / "work", tmp_path / "clones", pool)


@pytest.fixture
def pairs(tmp_path):
    """A function that writes a file with texts."""

    def write(name, *rows):
        with gzip.open(tmp_path / name, "wt") as file:
            file.writelines("\t".join(row) + "\n" for row in rows)
        return tmp_path

    return write


def test_each_picture_of_coco_is_in_one_pack(packer, clone, pairs, monkeypatch, capsys):
    files = {f"{name}.jpg": picture(name) for name in COLOURS} | {"broken.jpg": b"no picture"}
    source = clone(words_data.SOURCES["coco"], files)
    monkeypatch.setitem(words_data.SOURCES, "coco", source)
    pairs("coco_captions.tsv.gz", ("red.jpg", "a red square"), ("broken.jpg", "nothing"))
    folder = pairs("coco_texts.tsv.gz", ("red.jpg", "tag", "red"), ("green.jpg", "tag", "green"))
    words_data.pack_coco(packer, folder)
    names, pictures = read_pictures(packer.work, "coco")
    assert names == ["red.jpg"]
    assert pictures.shape == (1, 224, 224, 3)
    np.testing.assert_allclose(pictures[0].mean((0, 1)), COLOURS["red"], atol=12)
    assert read_pictures(packer.work, "coco-texts")[0] == ["green.jpg"]
    assert sorted(read_pictures(packer.work, "coco-others")[0]) == ["blue.jpg", "grey.jpg"]
    assert "broken.jpg: not a picture, left out" in capsys.readouterr().out


def test_a_large_pack_is_written_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(words_data, "PACK_BYTES", 10)
    pictures = [(name, words_data.squash_picture(picture(name))[0]) for name in COLOURS]
    words_data.write_pack(tmp_path, "some", iter(pictures))
    assert len(list(tmp_path.glob("some.*.pack"))) == len(pictures)
    assert read_pictures(tmp_path, "some")[0] == list(COLOURS)
    assert read_pictures(tmp_path, "some", 1)[0] == ["red"]


def test_household_pictures_come_from_those_repositories_that_are_cloned(packer, clone, pairs, monkeypatch, capsys):
    things = clone(Source("someone+things", ""), {"a/cup.jpg": picture("red"), "b/pan.jpg": picture("blue")})
    monkeypatch.setattr(words_data, "HOUSEHOLD", {things: 1, Source("someone+missing", ""): 5})
    rows = [("someone/things", "a/cup.jpg", "label", text) for text in ("cup", "red cup")]
    rows += [("someone/things", "b/pan.jpg", "label", "pan"), ("other/one", "c.jpg", "label", "lid")]
    words_data.pack_household(packer, pairs("pictures.tsv.gz", *rows))
    names, _ = read_pictures(packer.work, "household")
    texts = json.loads((packer.work / words_data.HOUSEHOLD_TEXTS).read_text())
    assert len(names) == 1
    assert texts == {"someone/things/a/cup.jpg": ["cup", "red cup"], "someone/things/b/pan.jpg": ["pan"]}
    assert names[0] in texts
    assert "someone/missing: no clone" in capsys.readouterr().out


def test_egtea_gives_frames_of_clips_and_of_videos(packer, clone, monkeypatch):
    clip = "OP01-R01-PastaSalad-1-2-F1-F2.mp4"
    colours = ["red", "red", "green", "green", "blue", "blue"] * 2
    files = {f"TrimmedVideos/video/train/OP01-R01-PastaSalad/{clip}": video(sorted(colours, reverse=True))}
    files |= {f"TrimmedVideos/label/gt_{part}.csv": part.encode() for part in ("train", "valid")}
    frames = {f"{i:05d}.jpg": picture(colour) for i, colour in enumerate(COLOURS)}
    files |= {f"FullLengthVideos/videos/train/OP01-R01-PastaSalad/{name}": data for name, data in frames.items()}
    source = clone(replace(words_data.EGTEA_CLIPS, path="hw4_data"), files)
    for name, path in (("EGTEA_CLIPS", "TrimmedVideos"), ("EGTEA_VIDEOS", "FullLengthVideos/videos/train")):
        monkeypatch.setattr(words_data, name, replace(source, path=f"hw4_data/{path}"))
    words_data.pack_egtea(packer)
    names, pictures = read_pictures(packer.work, "egtea")
    assert names == [clip] * 6
    assert pictures.shape == (6, 216, 288, 3)
    strongest = pictures.reshape(6, -1, 3).mean(1).argmax(1)
    assert strongest.tolist() == [0, 0, 1, 1, 2, 2]
    assert read_pictures(packer.work, "whole")[0] == [f"OP01-R01-PastaSalad/{i:05d}.jpg" for i in range(len(COLOURS))]
    assert (packer.work / "egtea_gt_valid.csv").read_text() == "valid"


def test_frames_of_the_steps_of_a_video():
    steps = [(0.0, 2.5, "cut"), (3.9, 4.0, "mix"), (7.2, 20.0, "serve")]
    assert words_data._frames_of_steps(steps, 10, 18) == [(10, 13, "cut"), (13, 14, "mix"), (17, 18, "serve")]


def test_phrases_out_of_sentences():
    doings, things = phrases("A man is cutting a loaf of bread while standing near the kitchen sink.")
    assert doings == ["cutting a loaf of bread", "standing near the kitchen sink"]
    assert things == ["loaf", "kitchen sink"]
    assert phrases("A large building in the evening") == ([], ["large building", "evening"])
    assert texts_of_picture("stanford40", ["a person riding a bike"])[1] == ["riding a bike"]


def test_views_are_pictures_of_the_same_size():
    pictures = torch.rand(3, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    for view in range(NUM_VIEWS):
        made = [make_view(pictures, view, torch.Generator().manual_seed(1)) for _ in range(2)]
        assert made[0].shape == pictures.shape
        assert torch.equal(*made)
        assert torch.isfinite(made[0]).all()


def test_phrases_that_no_text_contains(tmp_path):
    with gzip.open(tmp_path / "texts.tsv.gz", "wt") as file:
        file.write("1.jpg\tA man fills two cups.\n2.jpg\tshe washes the knives and a knife\n")
    files = [tmp_path / "texts.tsv.gz"]
    phrases = ["fill the cup", "fill the knife", "wash the knife", "wash the cup"]
    assert unheard_phrases(phrases, files) == ["fill the knife", "wash the cup"]
