"""The engine on feature files with the shipped model, and on real clips joined with cuts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import hiero
from hiero.corpus.corpus import Corpus, add_video
from hiero.engine import evidence, load
from hiero.engine.html_report import write_report
from hiero.engine.vocabulary import class_names
from hiero.errors import InputError
from hiero.storage import weights
from hiero.types import MIN_LABEL_PROBABILITY, Step
from tests.evaluation.simulated import save_identity_model, save_random_model, write_own_videos
from tests.films import join_clips, write_streams
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


ACTIVITIES = ["washing dishes", "peeling potatoes", "frying vegetables", "washing dishes", "making tea"]


def scores(seconds=300, seed=0):
    """Class scores of a video with five activities."""
    rng = np.random.default_rng(seed)
    names = class_names()
    out = rng.normal(0, 1, (seconds, 400)).astype(np.float32)
    for i, name in enumerate(ACTIVITIES):
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
    return save(tmp_path / "kitchen.npy", scores())


@pytest.fixture
def video(minilm, home, features):
    return load().read(features)


def test_steps_cover_nest_and_are_named(video):
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


def test_answers_are_ranked_and_in_order_if_asked(video):
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
    with pytest.raises(InputError, match="empty"):
        video.ask(["", "tea"])
    with pytest.raises(InputError, match="301"):
        video.ask(["tea"] * 301, in_order=True)


def test_improbable_labels_are_not_shown(video):
    (((_, probability),), *_) = video.likely_labels(video.steps([1], labels=[]).levels[0], ["rob a bank"], num=1)
    assert probability < MIN_LABEL_PROBABILITY
    assert [step.label for step in video.steps([1], labels=["rob a bank"])] == [None]


def test_parts_that_plainly_show_a_label_get_it(tmp_path, monkeypatch):
    model = save_identity_model(tmp_path / "model", monkeypatch)
    write_own_videos(tmp_path, 1)
    truth = json.loads((tmp_path / "steps.json").read_text())["v0"]["steps"]
    video = load(model, device="cpu").read(tmp_path / "features" / "v0.npy")
    labels = [step["text"] for step in truth]
    assert [step.label for step in video.steps([6], labels=labels)] == labels
    first, *_, last = steps = video.label([labels[0], labels[-1], " ", labels[0]])
    assert [step.label for step in steps] == [labels[0], None, labels[-1]]
    assert (first.start_s, last.end_s) == (0, video.duration_s)
    assert first.end_s == pytest.approx(truth[0]["end_s"], abs=6)
    assert all(a.end_s == b.start_s for a, b in pairwise(steps))
    with pytest.raises(InputError, match="label"):
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
        for i, match in enumerate(answer.matches):  # no two are of one moment
            for other in answer.matches[:i]:
                shared_s = min(match.end_s, other.end_s) - max(match.start_s, other.start_s)
                assert shared_s < min(match.end_s - match.start_s, other.end_s - other.start_s) / 2


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["npy", "pt"])
def test_the_second_question_needs_no_torch(minilm, home, tmp_path, suffix):
    """Importing it takes longer than the answer."""
    file = tmp_path / f"kitchen.{suffix}"
    np.save(file, scores()) if suffix == "npy" else torch.save(torch.from_numpy(scores()), file)
    first = load().read(file)
    answer, steps = first.ask("wash a cup")[0].to_dict(), first.steps().to_dict()
    code = f"""
import json, sys, hiero
video = hiero.load().read({str(file)!r})
answer = video.ask("wash a cup")[0].to_dict()
assert not {{"torch", "transformers", "scipy"}} & set(sys.modules)
print(json.dumps([video.steps().to_dict(), answer]))
assert not {{"torch", "transformers"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [steps, answer]


def test_results_belong_to_the_content_and_not_to_the_name(home, features):
    first = load("raw").read(features).steps([3])
    copy = features.with_name("copy.npy")
    copy.write_bytes(features.read_bytes())
    assert load("raw").read(copy).steps([3]).levels == first.levels
    assert len(list((home / "cache" / "nodes").iterdir())) == 1


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
    engine, broken = load(), scores()
    broken[7, 3] = np.nan
    read = {
        r"none\.mp4": lambda: engine.read(tmp_path / "none.mp4"),
        r"wide\.npy.*400": lambda: engine.read(save(tmp_path / "wide.npy", np.zeros((5, 12), np.float32))),
        r"nan\.npy.* 1 of 300": lambda: engine.read(save(tmp_path / "nan.npy", broken)),
        "num must": lambda: engine.read(save(tmp_path / "UPPER.NPY", scores())).ask("tea", num=0),
        "--hz": lambda: engine.read(save(tmp_path / "v.mp4", scores()), clock=hiero.Clock(1.0, 1.0)),
        str(tmp_path): lambda: load(tmp_path),
        "hiero models": lambda: load("nowhere"),
    }
    for fact, action in read.items():
        with pytest.raises(InputError, match=fact):
            action()


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
        with pytest.raises(InputError, match="text"):
            question()


def test_a_model_for_other_features_is_refused_before_reading(home, tmp_path):
    save_random_model(tmp_path / "model")
    with pytest.raises(InputError, match="12-d features"):
        load(tmp_path / "model").read(save(tmp_path / "v.mp4", scores()))


def test_each_stream_of_a_file_is_a_video_of_its_own(home, tmp_path, brightness):
    path = tmp_path / "two.mkv"
    write_streams(path, (40, 200))
    for stream, value in ((0, 40), (1, 200), (0, 40)):
        rows = brightness.read(path, stream=stream).source.features["brightness"]
        np.testing.assert_allclose(rows * 255, np.full((1, 3), value), atol=4)


def test_a_report_holds_the_steps_and_runs_nothing_else(video, tmp_path):
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


def test_a_recipe_covers_the_video_in_its_order(video):
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


def test_a_step_holds_every_node_that_it_touches():
    video = load("raw").read_array(np.eye(10, dtype=np.float32))
    assert video.sight.level_spans([Step("0", 3.6, 7.4, 0), Step("1", 7.4, 10.0, 0)]).tolist() == [[3, 8], [7, 10]]


def test_a_name_decides_whatever_weights_are_installed(tmp_path):
    assert load().backbones == load("hiero-k400-permissive").backbones == ("i3d-k400", "dinov2-text")
    assert load("clip-vit-b32").backbones == ("clip-vit-b32",)
    with pytest.raises(InputError, match="400"):
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
