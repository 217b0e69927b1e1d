"""The engine on feature files with the shipped model, and on real clips joined with cuts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import hiero
from hiero.config import ModelConfig
from hiero.corpus.corpus import Corpus, add_video
from hiero.engine import engine as module
from hiero.engine import evidence, load
from hiero.engine.html_report import write_report
from hiero.engine.vocabulary import class_names, default_labels
from hiero.errors import InputError
from hiero.features.video_features import VideoFeatures
from hiero.model.hiero import HiERO
from hiero.model.model_folder import ASSETS
from hiero.storage import weights
from hiero.storage.cache import content_key
from hiero.types import MIN_LABEL_PROBABILITY, Step
from tests.films import join_clips
from tests.optional import weights_or_skip

SHARED = Path(__file__).parents[3] / "shared"


@pytest.fixture(scope="module")
def minilm():
    weights_or_skip("minilm")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A cache of its own, with the weights of the real one."""
    real = weights.home() / "weights"
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    if real.is_dir():
        (tmp_path / "home" / "weights").symlink_to(real)
    return tmp_path / "home"


def scores(seconds=300, seed=0):
    """Class scores of a video with five activities."""
    rng = np.random.default_rng(seed)
    names = class_names()
    out = rng.normal(0, 1, (seconds, 400)).astype(np.float32)
    for i, name in enumerate(
        ["washing dishes", "peeling potatoes", "frying vegetables", "washing dishes", "making tea"]
    ):
        part = slice(i * seconds // 5, (i + 1) * seconds // 5)
        out[part] += 2 * np.random.default_rng(names.index(name)).normal(0, 1, 400)  # what else it looks like
        out[part, names.index(name)] += 12
    return out


def save(path, array):
    with path.open("wb") as file:
        np.save(file, array)
    return path


@pytest.fixture
def features(tmp_path):
    np.save(tmp_path / "kitchen.npy", scores())
    return tmp_path / "kitchen.npy"


def test_the_shipped_model_is_small_and_whole():
    folder = ASSETS / "hiero-k400"
    assert sum(file.stat().st_size for file in folder.iterdir()) < 12e6
    model = load().model
    assert model.config.input_size == 400
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert 200 < len(default_labels()) == len(set(default_labels()))


def test_steps_cover_nest_and_are_named(minilm, home, features):
    video = load().read(features)
    result = video.steps([3, 5, 10])
    for level in result.levels:
        assert level[0].start_s == 0
        assert level[-1].end_s == 300
        assert all(a.end_s == b.start_s for a, b in pairwise(level))
        best = [likely for (likely,) in video.likely_labels(level, num=1)]
        expected = [pair if pair[1] >= MIN_LABEL_PROBABILITY else (None, None) for pair in best]
        assert [(step.label, step.probability) for step in level] == expected
    edges = [step.start_s for step in result.levels[1]][1:]
    assert np.abs(np.array(edges) - [60, 120, 180, 240]).max() <= 8
    assert [len(level) for level in video.steps().levels] == [2, 4, 8]


def test_answers(minilm, home, features):
    video = load().read(features)
    answers = video.ask(["peeling potatoes", "making tea"], num=3)
    assert [answer.query for answer in answers] == ["peeling potatoes", "making tea"]
    for answer in answers:
        assert 1 <= len(answer.matches) <= 3
        values = [match.probability for match in answer.matches]
        assert values == sorted(values, reverse=True)
        assert values[0] == pytest.approx(answer.probability)
        assert all(0 <= match.start_s < match.end_s <= 300 for match in answer.matches)
    ordered = video.ask(["wash the dishes", "peel potatoes", "make tea"], in_order=True)
    spans = [answer.matches[0] for answer in ordered]
    assert all(a.end_s <= b.start_s for a, b in pairwise(spans))
    assert video.ask("make tea")[0].query == "make tea"
    with pytest.raises(InputError, match="must not be empty"):
        video.ask(["", "tea"])
    with pytest.raises(InputError, match="do not fit"):
        video.ask(["tea"] * 301, in_order=True)


def test_without_pictures_improbable_labels_are_not_shown_either(minilm, home, features, monkeypatch):
    """Names at 28 % were shown for feature files."""
    video = load().read(features)
    (((_, probability),), *_) = video.likely_labels(video.steps([1], labels=[]).levels[0], ["rob a bank"], num=1)
    assert probability < MIN_LABEL_PROBABILITY
    assert [step.label for step in video.steps([1], labels=["rob a bank"])] == [None]
    monkeypatch.setattr(evidence, "MIN_LABEL_PROBABILITY", probability)
    assert [step.label for step in video.steps([1], labels="rob a bank")] == ["rob a bank"]


def test_labels_of_a_taxonomy(minilm, home, features, monkeypatch):
    monkeypatch.setattr(evidence, "MIN_LABEL_PROBABILITY", 0.0)
    video = load().read(features)
    steps = video.label(["washing dishes", "peeling potatoes", " ", "washing dishes"])
    assert {step.label for step in steps} <= {"washing dishes", "peeling potatoes"}
    assert steps[0].start_s == 0
    assert steps[-1].end_s == 300
    assert all(a.end_s == b.start_s and a.label != b.label for a, b in pairwise(steps))
    with pytest.raises(InputError, match="at least one label"):
        video.label([" "])


@pytest.mark.slow
def test_ask_and_search_give_the_same_probability(minilm, home, features, tmp_path):
    """They used different numbers: 84 % in one and 33 % in the other, for the same step."""
    engine = load()
    corpus = Corpus(str(tmp_path / "corpus"), create=True)
    add_video(corpus, engine, features, engine.read)
    video = engine.read(features)
    for text in ("peeling potatoes", "make tea", "fry vegetables", "repair a bicycle"):
        (answer,), hits = video.ask(text, num=3), corpus.search_text(engine, text, 3)
        assert answer.probability == answer.matches[0].probability
        assert answer.probability == pytest.approx(hits[0].probability, abs=0.005)
        spans = [(match.start_s, match.end_s) for match in answer.matches]
        for i, (start_s, end_s) in enumerate(spans):
            others = [
                (a, b) for a, b in spans[:i] if min(b, end_s) - max(a, start_s) >= min(b - a, end_s - start_s) / 2
            ]
            assert not others, "two matches of one moment"


def test_the_expensive_part_is_done_once(minilm, home, features, monkeypatch):
    first = load().read(features)
    monkeypatch.setattr(module.Engine, "embed_nodes", lambda *_, **__: pytest.fail("computed again"))
    again = load().read(features)
    assert np.array_equal(first.nodes, again.nodes)
    assert np.array_equal(first.sight.spans, again.sight.spans)
    assert first.ask("make tea") == again.ask("make tea")
    copy = features.with_name("copy.npy")
    copy.write_bytes(features.read_bytes())
    assert content_key(copy) == content_key(features)  # by content, not by name
    load().read(copy)
    (cached,) = (home / "cache" / "nodes").iterdir()
    cached.write_bytes(cached.read_bytes()[:100])  # damaged: it is made again
    monkeypatch.undo()
    monkeypatch.setenv("HIERO_HOME", str(home))
    assert np.array_equal(load().read(features).nodes, first.nodes)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["npy", "pt"])
def test_the_second_question_needs_no_torch(minilm, home, tmp_path, suffix):
    """Importing it takes longer than the answer."""
    file = tmp_path / f"kitchen.{suffix}"
    np.save(file, scores()) if suffix == "npy" else torch.save(torch.from_numpy(scores()), file)
    first = load().read(file)
    first.ask("make tea")
    steps = first.steps().to_dict()
    code = f"""
import json, sys, hiero
video = hiero.load().read({str(file)!r})
answer = video.ask("wash a cup")[0].to_dict()
assert not {{"torch", "transformers", "scipy"}} & set(sys.modules)
print(json.dumps([video.steps().to_dict(), answer]))
assert not {{"torch", "transformers"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert result == [steps, first.ask("wash a cup")[0].to_dict()]


def test_a_home_that_cannot_be_written_costs_nothing(minilm, home, features):
    (home / "cache").write_text("in the way")  # as good as a full disk: nothing can be kept
    messages = []
    video = load().read(features, progress=lambda event: messages.append(event.message))
    assert len(video.nodes) == 300
    assert "not cached" in messages[0]


@pytest.mark.parametrize("seconds", [1, 2, 5])
def test_tiny_videos(minilm, home, tmp_path, seconds):
    np.save(tmp_path / "tiny.npy", scores(max(5, seconds))[:seconds])
    video = load().read(tmp_path / "tiny.npy")
    for level in video.steps().levels:
        assert level[-1].end_s == seconds
    assert video.ask("tea")[0].matches


def test_bad_input(home, tmp_path):
    engine = load()
    with pytest.raises(InputError, match="no such file"):
        engine.read(tmp_path / "none.mp4")
    np.save(tmp_path / "wide.npy", np.zeros((5, 12), dtype=np.float32))
    with pytest.raises(InputError, match="12 wide, expected 400"):
        engine.read(tmp_path / "wide.npy")
    broken = scores()
    broken[7, 3] = np.nan
    np.save(tmp_path / "nan.npy", broken)
    with pytest.raises(InputError, match="NaN or infinite values in 1 of 300"):
        engine.read(tmp_path / "nan.npy")
    with pytest.raises(InputError, match="not a model folder"):
        load(tmp_path)
    with pytest.raises(InputError, match="num must be at least 1"):
        engine.read(save(tmp_path / "UPPER.NPY", scores())).ask("tea", num=0)
    with pytest.raises(InputError, match="--hz is only for feature files"):
        engine.read(save(tmp_path / "v.mp4", scores()), clock=hiero.Clock(1.0, 1.0))
    with pytest.raises(InputError, match="hiero models"):
        load("nowhere")


def test_a_feature_file_larger_than_memory_is_refused_before_it_is_hashed(home, tmp_path):
    path = tmp_path / "huge.npy"
    path.touch()
    os.truncate(path, 2**40)  # a hole: it takes no space on the disk
    with pytest.raises(InputError, match=r"huge\.npy"):
        hiero.load("raw").read(path)


def test_raw_features_have_steps_but_no_words(home, features):
    video = load("raw").read(features)
    assert video.steps([5]).levels[0][0].label is None
    for question in (lambda: video.ask("tea"), lambda: video.label(["tea"]), lambda: video.steps(labels=["tea"])):
        with pytest.raises(InputError, match="cannot be compared with texts"):
            question()


def test_a_model_for_other_features_is_refused_before_reading(home, tmp_path, monkeypatch):
    HiERO(ModelConfig(input_size=12, hidden_size=8, embedding_size=4, text_size=384)).save_pretrained(
        tmp_path / "model"
    )
    monkeypatch.setattr("hiero.features.extractor.extract_features", lambda *_, **__: pytest.fail("read all the same"))
    with pytest.raises(InputError, match="model needs 12-d features"):
        load(tmp_path / "model").read(save(tmp_path / "v.mp4", scores()))


def test_streams_and_stale_results(home, tmp_path, monkeypatch):
    """Each stream of a file is a video of its own."""
    result = {0: scores(40), 1: scores(60, seed=1)}

    def read(path, names, options, **_):
        rows = result[options.stream]
        return VideoFeatures({"i3d-k400": rows}, float(len(rows)), 1.0)

    monkeypatch.setattr("hiero.features.extractor.extract_features", read)
    monkeypatch.setattr("hiero.media.decode.probe", lambda *_: SimpleNamespace(duration_s=None))
    monkeypatch.setattr(module.weights, "get", lambda *_: None)
    file = save(tmp_path / "two.mkv", scores())
    for stream in (0, 1, 0, 1):
        assert len(load().read(file, stream=stream).nodes) == len(result[stream])


def test_report(minilm, home, features, tmp_path):
    video = load().read(features)
    nasty = "</script><script>alert(1)</script><!-- [/b]"
    result = video.steps([2, 4], labels=[nasty, "tea"])
    write_report(tmp_path / "report.html", video, result, [nasty, "tea"])
    text = (tmp_path / "report.html").read_text()
    assert text.count("</script>") == 3  # the page's own
    assert "http://" not in text
    assert "https://" not in text
    start = text.index('id="data">') + len('id="data">')
    data = json.loads(text[start : text.index("</script>", start)])
    assert [len(level) for level in data["levels"]] == [2, 4]
    assert {word["text"] for step in data["levels"][1] for word in step["likely"]} == {nasty, "tea"}
    titles = [step["title"] for step in data["levels"][1]]
    assert titles == [result.shown_titles[step.id] for step in result.levels[1]]


def test_a_recipe_covers_the_video_in_its_order(minilm, home, features):
    video = load().read(features)
    recipe = video.follow(["boil water", "cut the onion 1 min", "boil water"])
    (level,) = recipe.levels
    assert [step.label for step in level if not step.background] == ["boil water", "cut the onion", "boil water"]
    assert level[0].start_s == 0
    assert level[-1].end_s == video.duration_s
    assert all(step.end_s == later.start_s for step, later in pairwise(level))
    with pytest.raises(InputError, match="301 steps"):
        video.follow(["stir"] * 301)
    with pytest.raises(InputError, match="empty"):
        video.follow([" "])


# Real clips


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "clips").is_dir(), reason="needs shared/clips")
def test_joins_of_real_clips_are_found_and_captions_find_their_clip(minilm, home, tmp_path):
    """All captions: `python -m benchmarks.words score`."""
    for name in ("i3d-k400", "dinov2-text"):
        weights_or_skip(name)
    names = ("frying", "blender", "dough", "loaf")
    clips = [next(path for path in sorted((SHARED / "clips").iterdir()) if name in path.name) for name in names]
    ends = join_clips(clips, tmp_path / "joined.mp4")
    video = load().read(tmp_path / "joined.mp4")
    assert video.duration_s == pytest.approx(ends[-1], abs=0.1)
    levels = video.steps().levels
    edges = [step.start_s for step in next(level for level in levels if len(level) == 4)]
    np.testing.assert_allclose(edges, ends[:-1], atol=1.0)
    captions = {
        0: ["frying food in a pan", "a person cooks in a frying pan"],
        1: ["preparing a sauce in a blender", "using a blender"],
        2: ["kneading dough", "hands knead dough on a table"],
        3: ["cutting a loaf of bread into slices", "slicing bread"],
    }
    for clip, texts in captions.items():
        for answer in video.ask(texts):
            middle = (answer.matches[0].start_s + answer.matches[0].end_s) / 2
            assert ends[clip] <= middle <= ends[clip + 1], answer
            assert answer.present
    for answer in video.ask(["playing the piano", "riding a bicycle", "washing a car"]):
        assert not answer.present
    assert video.source.thumbnail_at(1.0)[:2] == b"\xff\xd8"


def test_a_video_as_an_object(minilm, home, features):
    video = load().read(features)
    assert repr(video) == f"<Video {features.name}: 300.0 s, 300 nodes, hiero-k400>"
    assert video == video
    assert video != load().read(features)  # arrays are not compared
    assert video.steps(4, labels=[]).levels == video.steps([4], labels=[]).levels
    assert video.label("cut the onion", num_steps=3) == video.label(["cut the onion"], num_steps=[3])


def test_a_step_holds_every_node_that_it_touches():
    video = load("raw").read_array(np.eye(10, dtype=np.float32))
    assert video.sight.level_spans([Step("0", 3.6, 7.4, 0), Step("1", 7.4, 10.0, 0)]).tolist() == [[3, 8], [7, 10]]


def test_a_name_decides_whatever_weights_are_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "find", lambda name: tmp_path)
    assert load().backbones == load("hiero-k400-permissive").backbones == ("i3d-k400", "dinov2-text")
    assert load("clip-vit-b32").backbones == ("clip-vit-b32",)
    with pytest.raises(InputError, match=r"use --model|400"):
        load("clip-vit-b32").read(save(tmp_path / "v.npy", scores(60)), cache=False)


def test_raw_is_for_feature_files(tmp_path, make):
    with pytest.raises(InputError, match="--model i3d-k400"):
        load("raw").read(make("v.mp4", [10] * 40))


def test_models_with_different_heads_share_a_process(home):
    """Keys and vectors of questions are those of the head that the name brings."""
    weights_or_skip("minilm")
    default, permissive = load(), load("hiero-k400-permissive")
    assert default.key != permissive.key
    both = [engine.embed_queries(["cut the onion"]) for engine in (default, permissive)]
    assert not np.allclose(*both, atol=1e-2)
    assert np.array_equal(default.embed_queries(["cut the onion"]), both[0])


def test_a_coarse_step_has_a_name_that_most_of_it_shares():
    def step(i, start_s, end_s, label, children=(), origin="model"):
        probability = 0.9 if origin == "model" else None
        return Step(i, start_s, end_s, 0, label=label, probability=probability, children=children, origin=origin)

    fine = [step("2.0", 0, 7, "a"), step("2.1", 7, 12, "b"), step("2.2", 12, 16, "c"), step("2.3", 16, 20, None)]
    middle = [step("1.0", 0, 12, "a", ("2.0", "2.1")), step("1.1", 12, 20, "c", ("2.2", "2.3"))]
    coarse = [step("0.0", 0, 20, "a", ("1.0", "1.1"))]
    keep = partial(evidence.Pictures.common_names, None)
    levels = keep([coarse, middle, fine])
    assert [[s.label for s in level] for level in levels] == [["a"], ["a", None], ["a", "b", "c", None]]
    assert levels[1][1].probability is None
    longer = [step("0.0", 0, 20, "c", ("1.0", "1.1"))]
    assert keep([longer, middle, fine])[0][0].label is None
    by_person = [step("0.0", 0, 20, "dinner", ("1.0", "1.1"), "person")]
    assert keep([by_person, middle, fine])[0] == by_person
