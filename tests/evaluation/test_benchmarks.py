"""Readers on official layouts, and each benchmark on simulated features in them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from hiero.cli import app
from hiero.config import ModelConfig
from hiero.data.features import read_feature_array
from hiero.data.stores import FeatureStore, pack
from hiero.data.windows import context_window
from hiero.engine import Engine, load
from hiero.errors import InputError
from hiero.evaluation import egomcq, egoprocel, goalstep
from hiero.evaluation.cases import EvalOptions, TextEmbeddings
from hiero.evaluation.grounding import evaluate_grounding
from hiero.evaluation.localization import evaluate_localization
from hiero.evaluation.results import Report
from hiero.model.hiero import HiERO
from hiero.types import Clock
from tests.conftest import load_json

SHARED = Path(__file__).parents[3] / "shared" / "annotations"
CLOCK = Clock(30.0, 16.0)
WIDTH = 12


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """A small random model; texts are bags of letters, so no encoder is needed."""
    torch.manual_seed(0)
    config = ModelConfig(input_size=WIDTH, hidden_size=16, embedding_size=8, text_size=384, gate_size=8, num_layers=2)
    HiERO(config).save_pretrained(tmp_path / "model")
    for module in ("embedder", "video"):
        monkeypatch.setattr(f"hiero.engine.{module}.encode_minilm", letters)
    return load(tmp_path / "model", device="cpu")


def letters(texts):
    out = np.zeros((len(texts), 384), dtype=np.float32)
    for i, text in enumerate(texts):
        for j, letter in enumerate(text):
            out[i, (ord(letter) * 7 + j) % 384] += 1
    return out / np.linalg.norm(out, axis=1, keepdims=True)


def save_features(folder, name, num, seed=0):
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(torch.randn(num, WIDTH, generator=torch.Generator().manual_seed(seed)), folder / f"{name}.pt")


# EgoMCQ


def write_questions(path, num=40, seed=0, lost=()):
    rng = np.random.default_rng(seed)
    videos = ["a", "b", "c", *lost]
    content = {}
    for i in range(num):
        choices = {}
        for j in range(5):
            start = rng.uniform(0, 60)
            choices[str(j)] = {
                "video_uid": videos[rng.integers(len(videos))], "clip_start": start, "clip_end": start + rng.uniform(0.2, 3),
                "clip_text": "#C C x", "narration_time": start,
            }  # fmt: skip
        content[str(i)] = {
            "answer": int(rng.integers(5)), "types": int(rng.integers(1, 3)), "choices": choices,
            "query": {"clip_text": f"#C C does {rng.integers(9)}", "video_uid": "a"},
        }  # fmt: skip
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def store(tmp_path):
    for seed, (name, num) in enumerate((("a", 130), ("b", 90), ("c", 3))):
        save_features(tmp_path / "features", name, num, seed)
    pack(tmp_path / "features", tmp_path / "store", clock=CLOCK, precision="float32")
    return FeatureStore(tmp_path / "store")


@pytest.mark.parametrize("context", [0, 1, 4])
def test_egomcq_is_what_one_question_at_a_time_gives(tmp_path, engine, store, context):
    questions = egomcq.read_questions(write_questions(tmp_path / "egomcq.json"))
    table, missing = egomcq.evaluate_egomcq(engine, store, questions, context, batch_size=7)
    right = {"inter": [], "intra": []}
    with torch.no_grad():
        for question in questions:
            text = torch.from_numpy(engine.encode([question.text])[1])[0]
            likeness = []
            for video, start_s, end_s in question.choices:
                window = context_window(store.num_segments(video), CLOCK, start_s, end_s, context)
                empty = window.num_nodes <= 0
                x = torch.zeros(1, WIDTH) if empty else store.read(video, window.start, window.end)
                node = engine.model(x[None], spacing_s=CLOCK.spacing_s, threads=False)[0].features[0, len(x) // 2]
                likeness.append(float(engine.model.embed_video(node) @ text))
            right[question.kind].append(int(np.argmax(likeness)) == question.answer)
    assert not missing
    for kind, hits in right.items():
        assert table.rows[0].scores[kind] == pytest.approx(100 * np.mean(hits))


def test_egomcq_counts_what_is_missing(tmp_path, engine, store):
    questions = egomcq.read_questions(write_questions(tmp_path / "egomcq.json", lost=["gone"]))
    table, missing = egomcq.evaluate_egomcq(engine, store, questions)
    assert missing == ["gone"]
    whole = [q for q in questions if all(video != "gone" for video, _, _ in q.choices)]
    assert 0 < len(whole) < len(questions)
    assert f"{len(whole)} of {len(questions)} questions" in table.notes[0]
    (tmp_path / "bad.json").write_text('{"0": {"answer": 1}}')
    with pytest.raises(InputError, match="not EgoMCQ's questions"):
        egomcq.read_questions(tmp_path / "bad.json")
    with pytest.raises(InputError, match="raw features have none"):
        egomcq.embed_clips(Engine(None, "raw", ()), store, [("a", 0.0, 1.0)], 4)


# EgoProceL


@pytest.mark.parametrize("case", load_json("metrics")["egoprocel_frame_labels"])
def test_labels_of_frames_are_the_official_ones(case, tmp_path):
    with (tmp_path / "v.csv").open("w") as file:
        file.writelines(f"{start},{end},{name}\n" for start, end, name in case["annotation_rows"])
    fps = int(case["video_fps"])  # the official code truncates it; we do not
    found = egoprocel.frame_labels(egoprocel.read_rows(tmp_path / "v.csv"), fps, case["num_frames"])
    assert found.tolist() == case["labels"]
    assert list(range(1, case["num_frames"], 2)) == case["kept_frames"]


@pytest.fixture
def procedures(tmp_path):
    """Two tasks in the official layout; five cameras, of which one is worn."""
    rates = {}
    for folder, names in (
        ("CMU-MMAC/Brownie/S07_Brownie_Video", ["S07_Brownie_7150991-1431", "S07_Brownie_8421130-2374"]),
        ("MECCANO", ["0003", "0004", "0005"]),
    ):
        (tmp_path / "annotations" / folder).mkdir(parents=True)
        for seed, name in enumerate(names):
            lines = ["0.0,5.0,1 take", "7.5,20,2. mix", "20,33.3,3 bake"]
            (tmp_path / "annotations" / folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
            save_features(tmp_path / "features" / folder.split("/")[0], name, 80, seed)
            rates[name] = (29.97, 1270)
    (tmp_path / "features" / "MECCANO" / "0005.pt").unlink()
    return tmp_path, rates


def test_egoprocel(procedures, engine):
    folder, rates = procedures
    videos, missing, absent = egoprocel.find_egoprocel_videos(folder / "annotations", folder / "features", rates)
    assert [video.name for video in videos] == ["0003", "0004", "S07_Brownie_7150991-1431"]
    assert missing == ["0005"]
    assert len(absent) == 14
    tables = egoprocel.evaluate_egoprocel(engine, videos)
    main = tables[0]
    assert "the paper's" in main.title
    assert [one.method for one in main.rows][:1] == ["HiERO, spectral"]
    for one in main.rows:
        assert one.scores["mean F1"] == pytest.approx((one.scores["CMU-MMAC F1"] + one.scores["MECCANO F1"]) / 2)
    titles = [table.title for table in tables]
    assert len(titles) == len(set(titles)) == 2 * len(egoprocel.PROTOCOLS) + 4
    sets = next(table for table in tables if table.title.endswith("data sets"))
    for one in sets.rows:
        assert one.scores["F1"] == pytest.approx(main.rows[0].scores[f"{one.method} F1"])
        assert set(one.scores) >= {"precision", "recall", "IoU"}
    steps = next(table for table in tables if table.title.endswith("key-steps"))
    assert {one.method for one in steps.rows} >= {"Brownie: key-step 1", "MECCANO: background"}


def test_clusters_that_are_the_steps_get_full_marks(procedures):
    folder, rates = procedures
    videos, _, _ = egoprocel.find_egoprocel_videos(folder / "annotations", folder / "features", rates)
    truth = egoprocel.frame_labels(videos[0].rows, videos[0].fps, videos[0].num_frames)
    for protocol in egoprocel.PROTOCOLS:
        if protocol.background:
            assert egoprocel.score(truth, videos[0], protocol, 7)["F1"] == pytest.approx(1.0)


def test_frames_follow_the_true_rate(procedures, engine):
    """At 60 frames a second a node stands for half the time that it does at 30."""
    folder, rates = procedures
    slow, fast = (
        egoprocel.find_egoprocel_videos(folder / "annotations", folder / "features", dict.fromkeys(rates, (fps, 1270)))[0][0]
        for fps in (30.0, 60.0)
    )
    assert len(egoprocel.predict(engine, slow, 7, "spectral", False, 16, 0)) == 635
    assert (egoprocel.frame_labels(fast.rows, 60.0, 1270) > 0).sum() > (egoprocel.frame_labels(slow.rows, 30.0, 1270) > 0).sum()


def test_egoprocel_s_bad_files(tmp_path, procedures):
    (tmp_path / "bad.csv").write_text("0,1,take\n")
    with pytest.raises(InputError, match="line 1 has no key-step number"):
        egoprocel.read_rows(tmp_path / "bad.csv")
    folder, _ = procedures
    with pytest.raises(InputError, match="no frame rate"):
        egoprocel.find_egoprocel_videos(folder / "annotations", folder / "features", {})
    assert sum(task.num_videos for task in egoprocel.TASKS) == 326
    assert len({task.data_set for task in egoprocel.TASKS}) == 6


# Goal-Step


def write_goalstep(folder):
    """Two videos, one of them a group of two, as the official files have them."""
    steps = [
        {"start_time": 2.0, "end_time": 12.0, "step_category": "Cook: Boil water", "segments": [
            {"start_time": 2.0, "end_time": 5.0, "step_category": "Cook: Fill the pot", "segments": []}]},
        {"start_time": 15.0, "end_time": 30.0, "step_category": "Cook: Make tea", "segments": []},
    ]  # fmt: skip
    videos = [
        {"video_uid": name, "start_time": 0.02, "end_time": end, "segments": steps}
        for name, end in (("u1", 40.0), ("grp-g1", 60.0))
    ]
    (folder / "valid.json").write_text(json.dumps({"videos": videos}))
    queries = [{"clip_start_sec": s["start_time"], "clip_end_sec": s["end_time"], "query": s["step_category"]} for s in steps]
    grounding = [
        {"video_uid": v["video_uid"], "clips": [{
            "clip_uid": v["video_uid"], "video_start_sec": 0.02, "video_end_sec": v["end_time"],
            "annotations": [{"annotation_uid": "x", "language_queries": queries}],
        }]} for v in videos
    ]  # fmt: skip
    (folder / "grounding.json").write_text(json.dumps({"videos": grounding}))
    (folder / "groups.tsv").write_text("university\tvideo_group\nx\t['g1', 'g2']\n")
    for seed, (name, num) in enumerate((("u1", 80), ("g1", 60), ("g2", 60))):
        save_features(folder / "features", name, num, seed)


def test_goalstep(tmp_path, engine):
    write_goalstep(tmp_path)
    groups = goalstep.read_groups(tmp_path / "groups.tsv")
    asked = goalstep.read_grounding(tmp_path / "grounding.json")
    assert asked[0].steps[0].text == "#C C Cook: Boil water"
    cases, missing = goalstep.read_cases(engine, tmp_path / "features", asked, groups, CLOCK)
    assert not missing
    assert len(cases[1].features) == clock_segments(60.0)
    joined = np.concatenate([read_feature_array(tmp_path / "features" / f"{name}.pt") for name in ("g1", "g2")])
    np.testing.assert_array_equal(cases[1].features, joined[: len(cases[1].features)])
    words = TextEmbeddings(engine, [step.text for case in cases for step in case.truth])
    table = evaluate_grounding(cases, words, EvalOptions(num_threads=8, min_nodes=5, num_draws=20))
    assert table.rows[-1].method == "HiERO, all queries in their order"
    assert "R5@.3" not in table.rows[-1].scores
    labelled = goalstep.read_steps(tmp_path / "valid.json")
    assert [step.text for step in labelled[0].steps] == ["Cook: Boil water", "Cook: Fill the pot", "Cook: Make tea"]
    taxonomy = goalstep.taxonomy_of(labelled)
    cases, _ = goalstep.read_cases(engine, tmp_path / "features", labelled, groups, CLOCK)
    words = TextEmbeddings(engine, taxonomy, goalstep.label_text)
    found = evaluate_localization(cases, taxonomy, words, EvalOptions(num_draws=20))
    assert 0 <= found.rows[0].scores["mean"] <= 100
    scores = goalstep.evaluate_classification(cases, taxonomy, words, train=cases)
    assert [one.method for one in scores.rows] == ["zero-shot", "linear probe on HiERO", "linear probe on raw features"]
    assert scores.rows[2].scores["top-1"] == 100.0  # it has seen them
    assert scores.rows[0].scores["top-5"] == 100.0  # of three labels


def clock_segments(end_s):
    return CLOCK.index(end_s) + 1


def test_goalstep_s_missing_and_bad_files(tmp_path, engine):
    write_goalstep(tmp_path)
    (tmp_path / "features" / "g2.pt").unlink()
    asked = goalstep.read_grounding(tmp_path / "grounding.json")
    groups = goalstep.read_groups(tmp_path / "groups.tsv")
    cases, missing = goalstep.read_cases(engine, tmp_path / "features", asked, groups, CLOCK)
    assert (len(cases), missing) == (1, ["g2"])
    cases, missing = goalstep.read_cases(engine, tmp_path / "features", asked, {}, CLOCK)
    assert (len(cases), missing) == (1, ["grp-g1"])  # a group that nobody knows is not its first video
    (tmp_path / "bad.json").write_text('{"videos": [{"video_uid": "u9", "clips": []}]}')
    with pytest.raises(InputError, match="none of the 0 annotated videos"):
        goalstep.read_cases(engine, tmp_path / "features", goalstep.read_grounding(tmp_path / "bad.json"), {}, CLOCK)
    (tmp_path / "bad.json").write_text('{"videos": [{"video_uid": "u9", "clips": [{}]}]}')
    with pytest.raises(InputError, match="u9 cannot be read"):
        goalstep.read_grounding(tmp_path / "bad.json")
    (tmp_path / "bad.tsv").write_text("university\tvideo_group\nx\t__import__('os')\n")
    with pytest.raises(InputError, match="video groups"):
        goalstep.read_groups(tmp_path / "bad.tsv")


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs shared/annotations")
def test_the_real_files_of_goalstep():
    asked = goalstep.read_grounding(SHARED / "goalstep_grounding_val.json")
    assert (len(asked), sum(len(one.steps) for one in asked)) == (134, 7696)
    labelled = goalstep.read_steps(SHARED / "goalstep_valid.json")
    assert len(labelled) == 134
    assert len(goalstep.taxonomy_of(labelled)) == 425
    groups = goalstep.read_groups(SHARED / "goalstep_video_groups.tsv")
    assert all(one.video in groups for one in asked if one.video.startswith("grp-"))


# Commands


def run(arguments, out):
    app(["eval", *map(str, arguments), "--device", "cpu", "-o", str(out)], result_action="return_value")
    return Report.load(out)


def test_the_commands(tmp_path, engine, store, procedures, capsys):
    write_goalstep(tmp_path)
    model, features = engine.folder.path, tmp_path / "features"
    questions = write_questions(tmp_path / "egomcq.json")
    found = run(
        ["egomcq", "--store", store.folder, "--questions", questions, "--model", model, "--context", 2], tmp_path / "1.json"
    )
    assert found.settings["context"] == 2
    assert set(found.tables[0].rows[0].scores) == {"inter", "intra"}
    rates = tmp_path / "rates.csv"
    rates.write_text("video,fps,frames\n" + "".join(f"{name},{fps},{num}\n" for name, (fps, num) in procedures[1].items()))
    where = ["--annotations", tmp_path / "annotations", "--features", features, "--model", model]
    found = run(["egoprocel", *where, "--rates", rates, "--only", "MECCANO", "--no-baselines"], tmp_path / "2.json")
    assert found.missing == ["0005"]
    assert "MECCANO F1" in found.tables[0].columns
    with pytest.raises(InputError, match="frame rates are needed"):
        run(["egoprocel", *where], tmp_path / "x.json")
    data = ["--features", features, "--model", model, "--groups", tmp_path / "groups.tsv", "--no-baselines"]
    found = run(["goalstep-grounding", "--annotations", tmp_path / "grounding.json", *data], tmp_path / "3.json")
    assert found.tables[0].columns == ["R1@.3", "R5@.3", "R1@.5", "R5@.5"]
    found = run(["goalstep-localization", "--annotations", tmp_path / "valid.json", *data], tmp_path / "4.json")
    assert found.tables[0].columns[-1] == "mean"
    (tmp_path / "more.txt").write_text("Cook: Fry eggs\n")
    arguments = ["goalstep-classification", "--annotations", tmp_path / "valid.json", "--train", tmp_path / "valid.json"]
    found = run([*arguments, "--taxonomy", tmp_path / "more.txt", *data], tmp_path / "5.json")
    assert "4 labels" in found.tables[0].title
    assert "the paper's taxonomy has 514" in capsys.readouterr().err


def test_frame_rates_come_from_videos(tmp_path):
    av = pytest.importorskip("av")
    (tmp_path / "videos" / "MECCANO").mkdir(parents=True)
    with av.open(str(tmp_path / "videos" / "MECCANO" / "0003.mp4"), "w") as out:
        stream = out.add_stream("mpeg4", rate=12)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        for _ in range(24):
            for packet in stream.encode(av.VideoFrame(32, 32, "yuv420p")):
                out.mux(packet)
        for packet in stream.encode():
            out.mux(packet)
    (tmp_path / "videos" / "0004.csv").write_text("0,1,1 take")
    assert egoprocel.probe_rates(tmp_path / "videos", ["0003", "0004"]) == {"0003": (12.0, 24)}
