"""`hiero eval own`: annotations, what is left out, raw features, and the command."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hiero.cli import app
from hiero.engine import NO_TEXT, load
from hiero.errors import InputError
from hiero.evaluation.cases import map_cases, read_input_features
from hiero.evaluation.own_videos import TASKS, evaluate_own_videos, read_own_cases
from hiero.evaluation.results import Report
from hiero.formats.annotations import read_annotations
from tests.documentation import check_schema
from tests.evaluation.simulated import FEW_DRAWS, TEXT_SIZE


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        *(("[]", "bad"), ("{}", "bad"), ("{", "bad"), ('{"v": {}}', "v "), ('{"v": "tea"}', "v ")),
        ('{"version": "1.0", "videos": [{"video_uid": "v", "segments": []}]}', "hiero eval goalstep-grounding"),
        ('{"v": {"steps": [{"start_s": 5, "end_s": 1, "text": "x"}]}}', "5.0 to 1.0"),
        ('{"v": {"steps": [{"start_s": 0, "end_s": NaN, "text": "x"}]}}', "nan"),
        ('{"v": {"steps": [{"start_s": 0, "end_s": 1, "text": " "}]}}', "text"),
    ],
)
def test_annotations_that_cannot_be_read_are_refused(tmp_path, content, fact):
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(InputError, match=fact):
        read_annotations(tmp_path / "bad.json")


def test_the_command(model, data, capsys):
    arguments = ["eval", "own", "--features", str(data / "features"), "--annotations", str(data / "steps.json")]
    arguments += ["--model", str(model), "--device", "cpu", "--no-baselines", "-o", str(data / "report.json")]
    app([*arguments, "--json"], result_action="return_value")
    printed = json.loads(capsys.readouterr().out)
    check_schema(printed, "eval")
    check_schema(json.loads((data / "steps.json").read_text()), "annotations")
    assert printed == json.loads(json.dumps(Report.load(data / "report.json").to_dict()))
    (data / "only.txt").write_text("v1\n")
    app([*arguments, "--only", str(data / "only.txt"), "--tasks", "grounding"], result_action="return_value")
    assert "Step grounding" in capsys.readouterr().out
    for more, message in ((["--tasks", "magic"], "--tasks"), (["--hz", "0"], "positive")):
        with pytest.raises(InputError, match=message):
            app([*arguments, *more], result_action="return_value")


def test_videos_of_the_training_are_named_and_can_be_left_out(model, data, capsys):
    def train_on(*videos, is_ensemble=False):
        training = {"videos": videos}
        config = json.loads((model / "config.json").read_text())
        config["training"] = [training] if is_ensemble else training
        (model / "config.json").write_text(json.dumps(config))

    def score(*more):
        arguments = ["eval", "own", "--features", str(data / "features"), "--annotations", str(data / "steps.json")]
        arguments += ["--model", str(model), "--device", "cpu", "--no-baselines", "--tasks", "grounding", "--json"]
        app([*arguments, *more], result_action="return_value")
        printed = capsys.readouterr()
        return json.loads(printed.out)["settings"]["videos"], printed.err

    train_on("v0", "other")
    num_videos, log = score()
    assert num_videos == 3
    assert "--held-out" in log
    assert score("--held-out")[0] == 2
    train_on("v0", "v1", "v2", is_ensemble=True)
    with pytest.raises(InputError, match="--skip"):
        score("--held-out")


def test_features_of_another_width_name_models_that_take_them(model, tmp_path):
    np.save(tmp_path / "tea.npy", np.zeros((30, 1536), dtype=np.float32))
    with pytest.raises(InputError, match="hiero-omnivore"):
        read_input_features(load(model, device="cpu"), tmp_path / "tea.npy")


def test_nothing_is_left_out_in_silence(model, data):
    content = json.loads((data / "steps.json").read_text())
    content["v0"]["steps"].append({"start_s": 9000, "end_s": 9001, "text": "boil the water"})
    content["v1"]["duration_s"] *= 2
    content["v2"]["steps"] = []
    content["v3"] = content["v0"]
    (data / "steps.json").write_text(json.dumps(content))
    annotated = read_annotations(data / "steps.json")
    cases, missing, warnings = read_own_cases(load(model, device="cpu"), data / "features", annotated, None)
    assert (len(cases), missing) == (2, ["v3"])
    assert [line.split(":")[0] for line in warnings] == ["v0", "v1", "v2"]
    assert "--hz" in warnings[1]
    (data / "features" / "more").mkdir()
    np.save(data / "features" / "more" / "v0.npy", np.zeros((5, TEXT_SIZE), dtype=np.float32))
    with pytest.raises(InputError, match="have the same name"):
        read_own_cases(load(model, device="cpu"), data / "features", annotated, None)


def test_raw_features_have_no_words_and_no_rows_of_hiero(data):
    engine = load("raw", device="cpu")
    cases, _, _ = read_own_cases(engine, data / "features", read_annotations(data / "steps.json"), None)
    tables = evaluate_own_videos(cases, TASKS, FEW_DRAWS)
    assert not any("HiERO" in row.method for table in tables for row in table.rows)
    assert [table.notes for table in tables if not table.rows] == [[NO_TEXT]] * 3


def test_results_of_cases_come_in_their_order(cases):
    done: list[str] = []
    names = [case.video.path.stem for case in cases]
    assert map_cases(lambda case: case.video.path.stem, cases, done.append) == names
    assert sorted(done) == names


def test_a_step_is_one_cluster_in_all_recordings_of_a_task(tmp_path, capsys):
    scenes = 6 * np.random.default_rng(0).normal(size=(3, 16))
    annotations = {}
    for name, order in (("a", [0, 1, 2]), ("b", [0, 2, 1]), ("c", [0, 1, 2])):
        noise = np.random.default_rng(len(annotations)).normal(size=(90, 16))
        np.save(tmp_path / f"{name}.npy", (np.repeat(scenes[order], 30, axis=0) + noise).astype(np.float32))
        steps = [{"start_s": 30 * i, "end_s": 30 * i + 30, "text": f"step {k}"} for i, k in enumerate(order)]
        annotations[name] = {"task": "tea", "steps": steps}
    (tmp_path / "steps.json").write_text(json.dumps(annotations))
    own = ["eval", "own", "--features", str(tmp_path), "--annotations", str(tmp_path / "steps.json"), "--hz", "1"]
    app([*own, "--model", "raw", "--tasks", "procedure-many", "--json"], result_action="return_value")
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert [row["scores"]["F1"] for row in table["rows"]] == [100.0, pytest.approx(77.8, abs=0.1)]
