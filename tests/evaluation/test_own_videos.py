"""`hiero eval own`, `hiero table` and `hiero figure` on small sessions with known steps."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiero.cli import app
from hiero.config import ModelConfig
from hiero.engine import load
from hiero.errors import InputError
from hiero.evaluation import own_videos as own
from hiero.evaluation import paper_tables as tables
from hiero.evaluation.cases import EvalOptions, TextEmbeddings
from hiero.evaluation.grounding import evaluate_grounding
from hiero.evaluation.localization import evaluate_localization
from hiero.evaluation.multiple_choice import evaluate_multiple_choice
from hiero.evaluation.procedure import evaluate_procedure_learning
from hiero.evaluation.results import Report, Row, Table, as_markdown, bootstrap_row, weighted_means
from hiero.model.hiero import HiERO
from hiero.steps.clustering import cluster, clustering_names
from hiero.steps.segmentation import label_runs
from hiero.types import Clock

STEPS = ["boil the water", "grind the beans", "pour the milk", "stir the cup", "wash the pot", "dry the pot"]
SIZE = 384


def words(texts):
    """A text is a unit vector of its own; so is a video that shows nothing but it."""
    out = np.zeros((len(texts), SIZE), dtype=np.float32)
    for i, text in enumerate(texts):
        out[i] = np.random.default_rng(sum(text.encode())).normal(size=SIZE)
    return out / np.linalg.norm(out, axis=1, keepdims=True)


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A network without a graph whose both heads do nothing: what a node shows is what a text says."""
    import torch

    for module in ("embedder", "video"):
        monkeypatch.setattr(f"hiero.engine.{module}.encode_minilm", words)
    config = ModelConfig(
        input_size=SIZE, hidden_size=SIZE, embedding_size=SIZE, text_size=SIZE, depth=0, dropout=0.0, clock=Clock(1.0, 1.0)
    )
    HiERO(config).save_pretrained(tmp_path / "model")
    monkeypatch.setattr("hiero.engine.Engine._forward", lambda self, x, *_: x.copy())
    monkeypatch.setattr("hiero.model.model_folder.ModelFolder.embed_text", lambda self, vectors: vectors)
    torch.manual_seed(0)
    return tmp_path / "model"


@pytest.fixture
def data(tmp_path):
    """Three videos, each with its steps in an order of its own, a few seconds of nothing between them."""
    (tmp_path / "features").mkdir()
    annotations, rng = {}, np.random.default_rng(0)
    for number in range(3):
        at, rows, steps = 0.0, [], []
        for text in rng.permutation(STEPS):
            length = int(rng.integers(40, 70))
            rows.append(np.repeat(words([text]), length, 0) + rng.normal(0, 0.02, (length, SIZE)))
            steps.append({"start_s": at, "end_s": at + length, "text": str(text)})
            rows.append(rng.normal(0, 0.05, (5, SIZE)))
            at += length + 5
        np.save(tmp_path / "features" / f"v{number}.npy", np.concatenate(rows).astype(np.float32))
        annotations[f"v{number}"] = {"task": "coffee", "duration_s": at, "steps": steps}
    (tmp_path / "steps.json").write_text(json.dumps(annotations))
    return tmp_path


@pytest.fixture
def cases(model, data):
    engine = load(model, device="cpu")
    found, missing, left_out = own.read_cases(engine, data / "features", own.read_annotations(data / "steps.json"), None)
    assert not missing
    assert not left_out
    return found


FEW = EvalOptions(num_threads=7, num_draws=30)


def by_name(table):
    return {one.method: one.scores for one in table.rows}


def test_grounding_finds_what_is_plainly_there(cases):
    found = by_name(evaluate_grounding(cases, TextEmbeddings(cases[0].video.engine, STEPS), FEW))
    assert found["HiERO, runs of threads (the paper)"]["R1@.5"] == 100
    assert found["HiERO, all queries in their order"]["R1@.5"] == 100
    assert found["HiERO"]["R1@.3"] > 80
    assert found["random"]["R1@.5"] < 60
    assert found["raw, spectral"]["R1@.5"] == 100  # these features have no names: the model's words
    assert "text of each second, no graph" not in found


def test_localization_and_choices(cases):
    vocabulary = TextEmbeddings(cases[0].video.engine, STEPS)
    found = by_name(evaluate_localization(cases, STEPS, vocabulary, FEW))
    assert found["HiERO, runs of threads (the paper)"]["mAP@0.5"] == pytest.approx(100)
    assert found["random"]["mean"] < 70
    chosen = by_name(evaluate_multiple_choice(cases, vocabulary, FEW))
    assert chosen["HiERO"] == {"inter": 100, "intra": 100}
    assert chosen["random"]["intra"] < 80


def test_procedure_learning(cases):
    removed, kept = evaluate_procedure_learning(cases, FEW)
    assert "removed" in removed.title
    assert by_name(removed)["HiERO nodes, spectral"]["F1"] == pytest.approx(100)
    assert by_name(removed)["HiERO"]["F1"] > 95
    assert by_name(removed)["random"]["F1"] < 35
    assert by_name(kept)["equal parts"]["IoU"] < by_name(removed)["HiERO"]["IoU"]
    (fixed, _) = evaluate_procedure_learning(cases, FEW, num_clusters=3)
    assert by_name(fixed)["HiERO nodes, spectral"]["recall"] < 100 + 1e-9
    assert len(evaluate_procedure_learning(cases, EvalOptions(baselines=False, num_draws=5))[0].rows) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "expected"), ("{}", "holds no videos"), ("{", "not JSON"), ('{"v": {}}', "1 videos cannot be read: v"),
        ('{"v": {"steps": [{"start_s": 5, "end_s": 1, "text": "x"}]}}', "a step from 5.0 to 1.0 s"),
        ('{"v": {"steps": [{"start_s": 0, "end_s": NaN, "text": "x"}]}}', "a step from"),
        ('{"v": {"steps": [{"start_s": 0, "end_s": 1, "text": " "}]}}', "without a text"),
    ],
)  # fmt: skip
def test_bad_annotations(tmp_path, content, message):
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(InputError, match=message):
        own.read_annotations(tmp_path / "bad.json")


def test_the_command(model, data, capsys):
    arguments = [
        "eval", "own", "--features", str(data / "features"), "--annotations", str(data / "steps.json"), "--model", str(model),
        "--device", "cpu", "--no-baselines", "-o", str(data / "report.json"),
    ]  # fmt: skip
    app([*arguments, "--json"], result_action="return_value")
    printed = json.loads(capsys.readouterr().out)
    kept = Report.load(data / "report.json")
    assert printed["version"] == 1
    assert printed == kept.to_dict() | {"tables": json.loads(json.dumps(kept.to_dict()["tables"]))}
    assert [table["title"] for table in printed["tables"]][-1] == "Multiple choice of five"
    (data / "only.txt").write_text("v1\n")
    app([*arguments, "--only", str(data / "only.txt"), "--tasks", "grounding"], result_action="return_value")
    assert "Step grounding" in capsys.readouterr().out
    for more, message in (
        (["--tasks", "magic"], "--tasks are some of"), (["--hz", "0"], "must be positive"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            app([*arguments, *more], result_action="return_value")


def test_videos_without_features_are_counted(model, data):
    (data / "features" / "v2.npy").unlink()
    engine = load(model, device="cpu")
    found, missing, _ = own.read_cases(engine, data / "features", own.read_annotations(data / "steps.json"), None)
    assert (len(found), missing) == (2, ["v2"])


def test_nothing_is_left_out_in_silence(model, data):
    content = json.loads((data / "steps.json").read_text())
    content["v0"]["steps"].append({"start_s": 9000, "end_s": 9001, "text": "boil the water"})
    content["v1"]["duration_s"] *= 2
    content["v2"]["steps"] = []
    (data / "steps.json").write_text(json.dumps(content))
    annotated = own.read_annotations(data / "steps.json")
    found, missing, left_out = own.read_cases(load(model, device="cpu"), data / "features", annotated, None)
    assert (len(found), missing) == (2, [])
    assert [line.split(":")[0] for line in left_out] == ["v0", "v1", "v2"]
    assert "is --hz right?" in left_out[1]
    (data / "features" / "more").mkdir()
    np.save(data / "features" / "more" / "v0.npy", np.zeros((5, SIZE), dtype=np.float32))
    with pytest.raises(InputError, match="have the same name"):
        own.read_cases(load(model, device="cpu"), data / "features", annotated, None)


def test_raw_features_have_no_words_and_no_rows_of_hiero(data):
    engine = load("raw", backbone="default", device="cpu")
    found, _, _ = own.read_cases(engine, data / "features", own.read_annotations(data / "steps.json"), None)
    tables = own.evaluate_own_videos(found, own.TASKS, FEW)
    assert not any("HiERO" in one.method for table in tables for one in table.rows)
    assert [table.notes for table in tables if not table.rows] == [[own.NO_TEXT]] * 3


def test_a_shallow_model_has_its_deepest_level(data, tmp_path, monkeypatch):
    for module in ("embedder", "video"):
        monkeypatch.setattr(f"hiero.engine.{module}.encode_minilm", words)
    config = ModelConfig(input_size=SIZE, hidden_size=16, embedding_size=8, text_size=SIZE, gate_size=8, depth=1, radius_s=2.5)
    HiERO(config).save_pretrained(tmp_path / "shallow")
    engine = load(tmp_path / "shallow", device="cpu")
    found, _, _ = own.read_cases(engine, data / "features", own.read_annotations(data / "steps.json"), Clock(1.0, 1.0))
    assert engine.deep_level == 0
    assert evaluate_procedure_learning(found, EvalOptions(num_draws=2))[0].rows[1].method == "HiERO, spectral (the paper)"


# Clusters


@given(st.sampled_from(clustering_names()), st.integers(1, 30), st.integers(1, 9), st.integers(0, 99))
def test_any_algorithm_labels_every_node(algorithm, length, num, seed):
    x = np.random.default_rng(seed).normal(size=(length, 5)).astype(np.float32)
    labels = cluster(x, num, algorithm, random_state=seed)
    assert labels.shape == (length,)
    assert labels.min() >= 0
    assert labels.max() < num


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 5))
def test_runs_are_runs(labels, shortest):
    labels = np.array(labels)
    every = label_runs(labels)
    assert [labels[a] for a, b in every for _ in range(b - a)] == labels.tolist()
    assert all(labels[a - 1] != labels[a] for a, _ in every[1:])
    long = label_runs(labels, shortest)
    assert len(long) == len(every) or (long[:, 1] - long[:, 0]).min() >= shortest


# Results


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
    Report("own", "hiero eval own", [table]).save(tmp_path / "r.json")
    assert Report.load(tmp_path / "r.json").tables[0].rows[0].scores == {"a": 12.345}
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(InputError, match="not a report"):
        Report.load(tmp_path / "bad.json")


# Tables


def test_every_table_is_whole():
    for name in tables.table_names():
        about = tables.definitions()["tables"][name]
        for line in about["rows"]:
            assert len(line["published"]) == len(about["columns"])
            for run in line.get("ours", []):
                assert run["model"] in tables.definitions()["models"]


def test_a_table_without_data_says_what_to_get(tmp_path):
    for name in tables.table_names():
        found = tables.make_table(name, tmp_path / "data", tmp_path / "models", tmp_path / "runs")
        assert all(one.method.endswith("published") for one in found.table.rows)
        assert any("hiero import-checkpoint" in line or "train" in line for line in found.wanted)
        assert any(str(tmp_path / "data") in line for line in found.wanted)
    with pytest.raises(InputError, match="known are mcq"):
        tables.make_table("nine", tmp_path, tmp_path, tmp_path)


def test_reports_become_rows_and_seeds_are_averaged(tmp_path):
    for seed, value in enumerate((88.0, 92.0)):
        (tmp_path / "models" / f"hiero-egovlp-seed{seed}").mkdir(parents=True)
        report = Report("egomcq", f"run {seed}", [Table("t", [Row("m", {"inter": value, "intra": 60.0})])])
        folder = tmp_path / "models" / f"hiero-egovlp-seed{seed}"
        run = {"eval": "egomcq", "model": "hiero-egovlp", "backbone": "egovlp"}
        arguments, _ = tables._arguments(run, [folder], tmp_path / "data")
        report.save(tables.report_file(run, [folder], arguments, tmp_path / "runs"))
    found = tables.make_table("mcq", tmp_path / "data", tmp_path / "models", tmp_path / "runs")
    ours = next(one for one in found.table.rows if one.method == "HiERO (EgoVLP), ours")
    assert ours.scores == {"inter": 90.0, "intra": 60.0}
    assert ours.intervals["inter"] == pytest.approx((90 - 2 * np.sqrt(8), 90 + 2 * np.sqrt(8)))
    assert found.commands == ["run 0", "run 1"]


def test_seeds_of_heads_are_scored_together(tmp_path, monkeypatch):
    """`hiero head eval` averages them itself: one command for all."""
    for path in ("goalstep/goalstep_grounding_val.json", "goalstep/goalstep_video_groups.tsv", "ego4d/egovlp/x.pt"):
        (tmp_path / "data" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / path).write_text("")
    for seed in (0, 1):
        (tmp_path / "models" / "heads" / f"steps-egovlp-seed{seed}").mkdir(parents=True)

    def run(command, **_):
        assert command[2:5] == ["hiero", "head", "eval"]
        assert [Path(part).name for part in command[5:7]] == ["steps-egovlp-seed0", "steps-egovlp-seed1"]
        Report("head", "made", [Table("t", [Row("m", {"R1@.3": 15.0})])]).save(Path(command[command.index("-o") + 1]))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(tables.subprocess, "run", run)
    found = tables.make_table("grounding-supervised", tmp_path / "data", tmp_path / "models", tmp_path / "runs")
    assert {one.method: one.scores for one in found.table.rows}["EgoVLP, ours"] == {"R1@.3": 15.0}
    assert len(list((tmp_path / "runs").glob("head-steps-egovlp-*.json"))) == 1
    (tmp_path / "models" / "heads" / "steps-egovlp-seed1").rename(tmp_path / "models" / "heads" / "steps-egovlp-seed2")
    with pytest.raises(AssertionError):  # another seed is another run
        tables.make_table("grounding-supervised", tmp_path / "data", tmp_path / "models", tmp_path / "runs")


def test_a_table_runs_what_it_needs(tmp_path):
    """The whole way: a model, features and questions in the folders that the table names, and a process for the run."""
    from tests.evaluation.test_benchmarks import write_goalstep

    data, models = tmp_path / "data", tmp_path / "models"
    (data / "goalstep").mkdir(parents=True)
    write_goalstep(data / "goalstep")
    (data / "goalstep" / "features").rename(tmp_path / "features")
    (data / "ego4d").mkdir()
    (tmp_path / "features").rename(data / "ego4d" / "egovlp")
    for old, new in (("grounding.json", "goalstep_grounding_val.json"), ("groups.tsv", "goalstep_video_groups.tsv")):
        (data / "goalstep" / old).rename(data / "goalstep" / new)
    config = ModelConfig(input_size=12, hidden_size=16, embedding_size=8, text_size=384, gate_size=8, num_layers=2)
    HiERO(config).save_pretrained(models / "hiero-egovlp")
    from hiero.storage import weights

    try:
        weights.get("minilm")
    except InputError as error:
        pytest.skip(f"MiniLM cannot be fetched here: {error}")
    found = tables.make_table("clustering-grounding", data, models, tmp_path / "runs")
    ours = [one for one in found.table.rows if one.method.endswith("ours")]
    assert [one.method for one in ours] == ["HiERO (EgoVLP), K-Means (cosine), ours", "HiERO (EgoVLP), spectral, ours"]
    assert len(found.commands) == 1
    assert found.commands[0].startswith("hiero eval goalstep-grounding")
    assert not found.wanted


# Figures


@pytest.mark.parametrize("kind", ["similarity", "timeline"])
def test_figures(model, data, kind):
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'hiero-video[figures]'")
    arguments = [
        "figure",
        kind,
        str(data / "features" / "v0.npy"),
        "--annotations",
        str(data / "steps.json"),
        "--model",
        str(model),
    ]
    app([*arguments, "-o", str(data / "figure")], result_action="return_value")
    text = (data / "figure.svg").read_text()
    ElementTree.fromstring(text)
    from PIL import Image

    with Image.open(data / "figure.png") as picture:
        grey = np.asarray(picture.convert("L"))
    assert grey.std() > 20  # something is drawn
    with pytest.raises(InputError, match="has no video"):
        app([*arguments, "--video", "v9", "-o", str(data / "x.png")], result_action="return_value")


def test_narrations_around_steps(model, data):
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'hiero-video[figures]'")
    lines = [f"v0,{t},{STEPS[t % 6]} now" for t in range(5, 300, 9)]
    (data / "said.csv").write_text("\n".join(["video,time_s,text", *lines]) + "\n")
    arguments = ["figure", "narrations", str(data / "said.csv"), "--annotations", str(data / "steps.json"), "--model", str(model)]
    app([*arguments, "--video", "v0", "-o", str(data / "n.svg")], result_action="return_value")
    assert ElementTree.fromstring((data / "n.svg").read_text()).tag.endswith("svg")
    with pytest.raises(InputError, match="v9: not in"):
        app([*arguments, "--video", "v9", "-o", str(data / "n.svg")], result_action="return_value")


def test_spans_in_seconds_are_nodes(cases):
    case, num = cases[0], len(cases[0].features)
    assert case.to_nodes((0.2, 0.4)) == (0, 1)
    assert case.to_nodes((3.0, 7.0)) == (3, 7)
    assert case.to_nodes((num - 0.5, num + 9.0)) == (num - 1, num)
    assert case.to_nodes((num + 5.0, num + 9.0)) == (num - 1, num)
