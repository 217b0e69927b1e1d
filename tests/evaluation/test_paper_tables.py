"""The paper's tables: what is missing, reports that become rows, and runs that are made."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from hiero.cli import app
from hiero.config import ModelConfig, TextConfig
from hiero.errors import InputError
from hiero.evaluation import paper_tables
from hiero.evaluation.paper_tables import PaperTables, check_data, definitions, report_file, table_names
from hiero.evaluation.results import Report, Row, Table, as_latex
from hiero.model.hiero import HiERO
from tests.conftest import FIXTURES
from tests.evaluation.simulated import save_random_model, scores_by_method, write_goalstep
from tests.optional import weights_or_skip
from tests.processes import run_hiero

SHARED = Path(__file__).parents[3] / "shared" / "annotations"


def tables_in(folder, **options):
    return PaperTables(folder / "data", folder / "models", folder / "runs", **options)


def test_every_table_is_whole():
    for name in table_names():
        definition = definitions()["tables"][name]
        for row in definition["rows"]:
            assert len(row["published"]) == len(definition["columns"])
            for run in row.get("ours", []):
                assert run["model"] in (*definitions()["models"], "raw")


def test_a_table_without_data_says_what_to_get(tmp_path):
    for name in table_names():
        result = tables_in(tmp_path).make(name)
        ours = [row for row in result.table.rows if not row.method.endswith("published")]
        assert all(set(row.scores) == {"parameters (M)"} for row in ours)
        if name == "egoprocel-statistics":
            continue
        assert any("hiero models import" in line or "train" in line for line in result.wanted)
        assert any(str(tmp_path / "data") in line for line in result.wanted)
        told = [*result.wanted, *result.table.notes]
        assert not any(f" {folder}/" in line for line in told for folder in ("DATA", "MODELS"))
    with pytest.raises(InputError, match="choose one of mcq"):
        tables_in(tmp_path).make("nine")


def test_reports_become_rows_and_seeds_are_averaged(tmp_path):
    for seed, value in enumerate((88.0, 92.0)):
        (tmp_path / "models" / f"hiero-egovlp-seed{seed}").mkdir(parents=True)
        report = Report("egomcq", [Table("t", [Row("m", {"inter": value, "intra": 60.0})])], command=f"run {seed}")
        folder = tmp_path / "models" / f"hiero-egovlp-seed{seed}"
        run = {"eval": "egomcq", "model": "hiero-egovlp", "backbone": "egovlp"}
        arguments, _ = paper_tables.run_arguments(run, [folder], tmp_path / "data")
        report.save(report_file(run, [folder], arguments, tmp_path / "runs"))
    result = tables_in(tmp_path).make("mcq")
    ours = next(row for row in result.table.rows if row.method == "HiERO (EgoVLP), ours")
    assert ours.scores == {"inter": 90.0, "intra": 60.0}
    assert ours.intervals["inter"] == pytest.approx((90 - 2 * np.sqrt(8), 90 + 2 * np.sqrt(8)))
    assert result.commands == ["run 0", "run 1"]


def test_seeds_of_heads_are_scored_together(tmp_path):
    """`hiero head eval` averages them itself: one command for all."""
    for path in ("goalstep/goalstep_grounding_val.json", "goalstep/goalstep_video_groups.tsv", "ego4d/egovlp/x.pt"):
        (tmp_path / "data" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / path).write_text("")
    for seed in (0, 1):
        (tmp_path / "models" / "heads" / f"steps-egovlp-seed{seed}").mkdir(parents=True)

    def run(command, _):
        assert command[:2] == ["head", "eval"]
        assert [Path(part).name for part in command[2:4]] == ["steps-egovlp-seed0", "steps-egovlp-seed1"]
        Report("head", [Table("t", [Row("m", {"R1@.3": 15.0})])], command="made").save(
            Path(command[command.index("-o") + 1])
        )
        return ""

    result = tables_in(tmp_path, execute=run).make("grounding-supervised")
    assert scores_by_method(result.table)["EgoVLP, ours"] == {"R1@.3": 15.0}
    assert len(list((tmp_path / "runs").glob("head-steps-egovlp-*.json"))) == 1
    (tmp_path / "models" / "heads" / "steps-egovlp-seed1").rename(tmp_path / "models" / "heads" / "steps-egovlp-seed2")
    with pytest.raises(AssertionError):  # another seed is another run
        tables_in(tmp_path, execute=run).make("grounding-supervised")


@pytest.mark.slow
def test_a_table_runs_what_it_needs(tmp_path, capsys):
    """From end to end: a model, features and questions in the folders that the table names, and a
    process for the run.
    """
    data, models = tmp_path / "data", tmp_path / "models"
    (data / "goalstep").mkdir(parents=True)
    write_goalstep(data / "goalstep")
    (data / "goalstep" / "features").rename(tmp_path / "features")
    (data / "ego4d").mkdir()
    (tmp_path / "features").rename(data / "ego4d" / "egovlp")
    for old, new in (("grounding.json", "goalstep_grounding_val.json"), ("groups.tsv", "goalstep_video_groups.tsv")):
        (data / "goalstep" / old).rename(data / "goalstep" / new)
    save_random_model(models / "hiero-egovlp")
    weights_or_skip("minilm")
    result = tables_in(tmp_path, execute=lambda command, _: run_hiero(*command) and "").make("clustering-grounding")
    ours = [row.method for row in result.table.rows if row.method.endswith("ours")]
    assert ours == [f"HiERO (EgoVLP), {name}, ours" for name in ("K-Means (L2)", "K-Means (cosine)", "spectral")]
    assert ["--protocol release" in command for command in result.commands] == [False, True]
    assert result.commands[0].startswith("hiero eval goalstep-grounding")
    assert result.wanted == ["the text tower of egovlp: hiero models get egovlp"]  # for rows without a model
    folders = ["--data", str(data), "--models", str(models), "--runs", str(tmp_path / "runs")]
    app(["table", "clustering-grounding", *folders], result_action="return_value")
    assert f"{tmp_path / 'runs'}: 0 new reports, 2 from earlier runs" in capsys.readouterr().err


def test_parameters_are_those_of_the_networks_and_the_published_ones():
    transformers = pytest.importorskip("transformers")
    config = transformers.DistilBertConfig()
    with torch.device("meta"):  # count without allocating
        network = count(HiERO(ModelConfig(input_size=1536, num_layers=2)))
        encoder = count(transformers.DistilBertModel(config))
    lora = config.n_layers * 3 * 2 * config.dim * TextConfig().lora_rank  # two factors of query, key and value
    rows = definitions()["tables"]["text"]["rows"]
    assert [row["parameters"] for row in rows] == [num / 1e6 for num in (network, network + lora, network + encoder)]
    assert [round(row["parameters"], 2) for row in rows] == [row["published"][0] for row in rows]


def count(module):
    return sum(p.numel() for p in module.parameters())


def test_annotations_are_counted():
    annotations = FIXTURES / "protocols" / "egoprocel" / "annotations"
    assert paper_tables.count_annotations(annotations, "Brownie") == {"videos": 4.0, "key-steps": 9.0}
    assert paper_tables.count_annotations(annotations, "Salad") == {}


def test_seeds_are_trained_by_the_table_s_own_command(tmp_path):
    commands = []

    def run(command, _):
        commands.append(command)
        return ""

    tables = tables_in(tmp_path, num_seeds=2, execute=run)
    tables.train_seeds("heads/steps-egovlp")
    tables.train_seeds("hiero-egovlp")  # imported: nothing to train
    assert [command[command.index("-o") + 1] for command in commands] == [
        str(tmp_path / "models" / "heads" / f"steps-egovlp-seed{seed}") for seed in (0, 1)
    ]
    assert [command[-2:] for command in commands] == [["--set", "seed=0"], ["--set", "seed=1"]]
    for command in commands:
        assert command[:3] == ["head", "train", "vslnet"]
        assert "vslnet.num_positions=256" in command
        assert command.count("--set") == 2


def test_latex():
    table = Table("A & B", [Row("Δ = 4, 50 %", {"inter": 91.8, "intra": float("nan")})], ["a note"])
    text = as_latex(table)
    assert r"$\Delta$ = 4, 50 \% & 91.8 & -- \\" in text
    assert r"\caption{A \& B}" in text
    assert text.endswith("% a note")


def test_data_check(tmp_path, capsys):
    (tmp_path / "data" / "goalstep").mkdir(parents=True)
    write_goalstep(tmp_path / "data" / "goalstep")
    inputs, num_rows = check_data(tmp_path / "data", tmp_path / "models")
    assert num_rows["grounding"][0] == 0
    assert found_in(tmp_path / "data") == {"valid.json"}
    files = {item.path: item for item in inputs}
    assert "hiero pack" in files[tmp_path / "data" / "stores" / "egovlp"].source
    (tmp_path / "data" / "egomcq.json").write_text("{}")
    (tmp_path / "data" / "stores" / "egovlp").mkdir(parents=True)
    (tmp_path / "data" / "stores" / "egovlp" / "store.json").write_text("{}")
    save_random_model(tmp_path / "models" / "hiero-egovlp")
    app(["data", "check", str(tmp_path / "data"), "--models", str(tmp_path / "models")], result_action="return_value")
    printed = capsys.readouterr().out
    assert "mcq                       1 of 5    hiero table mcq" in printed
    assert f"present  {tmp_path / 'data' / 'egomcq.json'}" in printed
    assert "goalstep_grounding_train.json" in printed  # read by the training of heads
    assert num_rows["egoprocel-statistics"] == (0, 16)
    (tmp_path / "data" / "egoprocel").mkdir()
    (tmp_path / "data" / "egoprocel" / "annotations").symlink_to(FIXTURES / "protocols" / "egoprocel" / "annotations")
    assert check_data(tmp_path / "data", tmp_path / "models")[1]["egoprocel-statistics"][0] > 0


def found_in(data):
    inputs, _ = check_data(data, data.parent / "models")
    return {item.path.name for item in inputs if item.found and item.path.is_relative_to(data)}


def test_an_official_file_of_goalstep_is_known_by_its_content(tmp_path):
    (tmp_path / "data" / "goalstep").mkdir(parents=True)
    write_goalstep(tmp_path)
    (tmp_path / "valid.json").rename(tmp_path / "data" / "goalstep" / "from_the_web.json")
    (tmp_path / "data" / "goalstep" / "another.json").write_text('{"videos": []}')
    assert found_in(tmp_path / "data") == {"from_the_web.json"}
    for benchmark in ("goalstep-grounding", "goalstep-localization"):
        run = {"eval": benchmark, "model": "hiero-egovlp", "backbone": "egovlp"}
        arguments, _ = paper_tables.run_arguments(run, [tmp_path], tmp_path / "data")
        assert arguments[:2] == ["--annotations", str(tmp_path / "data" / "goalstep" / "from_the_web.json")]


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs shared/annotations")
def test_the_real_files_of_goalstep_are_found(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "goalstep").symlink_to(SHARED)
    grounding = {"goalstep_grounding_train.json", "goalstep_grounding_val.json"}
    assert found_in(tmp_path / "data") == {"goalstep_valid.json", "goalstep_video_groups.tsv", *grounding}


def test_a_row_that_fails_does_not_end_the_table(tmp_path, capsys):
    """A damaged report of one model, and a good one of another."""
    for model in ("hiero-omnivore", "hiero-egovlp"):
        (tmp_path / "models" / model).mkdir(parents=True)
        run = {"eval": "egomcq", "model": model, "backbone": model.removeprefix("hiero-")}
        arguments, _ = paper_tables.run_arguments(run, [tmp_path / "models" / model], tmp_path / "data")
        file = report_file(run, [tmp_path / "models" / model], arguments, tmp_path / "runs")
        Report("egomcq", [Table("t", [Row("m", {"inter": 90.0})])], command="made").save(file)
        if model == "hiero-omnivore":
            file.write_text("{}")
    folders = [text for name in ("data", "models", "runs") for text in (f"--{name}", str(tmp_path / name))]
    with pytest.raises(SystemExit) as stop:
        app(["table", "mcq", *folders, "--json"], result_action="return_value")
    document = json.loads(capsys.readouterr().out)
    rows = {row["method"]: row["scores"] for row in document["table"]["rows"]}
    assert (stop.value.code, rows["HiERO (EgoVLP), ours"]) == (1, {"inter": 90.0})
    assert len(document["failed"]) == 1
    assert document["failed"][0].startswith("HiERO (Omnivore): ")
    assert "egomcq-hiero-omnivore" in document["failed"][0]


def test_a_run_that_fails_is_tried_once(tmp_path):
    """Several rows, also of other tables, may need it."""
    for name in ("egomcq.json", "stores/egovlp/store.json", "goalstep/goalstep_grounding_val.json"):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_text("")
    (tmp_path / "models" / "egovlp-align").mkdir(parents=True)
    commands = []
    tables = tables_in(tmp_path, execute=lambda command, _: commands.append(command) or "the disk is full")
    failed = [reason for name in ("context", "window") for reason in tables.make(name).failed]
    assert len(failed) == 5
    assert all("the disk is full" in reason for reason in failed)
    assert len(commands) == 4  # four contexts
