"""The paper's tables: your own models and files beside the published numbers, and what is missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from hiero.cli import app
from hiero.config import Behaviour, ModelConfig, TextConfig, override
from hiero.evaluation.paper_tables import definitions
from hiero.evaluation.released_files import ReleasedFiles
from hiero.evaluation.reproduction import Reproduction
from hiero.evaluation.results import Report, Row, Table, as_latex
from hiero.model.hiero import HiERO
from tests.conftest import FIXTURES
from tests.evaluation.simulated import save_random_model, write_goalstep

QUESTIONS = ("data/egomcq.json", "data/stores/egovlp/store.json")
GROUNDING = (
    *("data/goalstep/goalstep_grounding_val.json", "data/goalstep/goalstep_video_groups.tsv"),
    "data/ego4d/egovlp/x.pt",
)


class FakeHiero:
    """Records commands. Evaluations write a report with one score, or fail for a reason."""

    def __init__(self, scores: dict[str, float] | None = None, reason: str = "") -> None:
        self.commands: list[list[str]] = []
        self.scores, self.reason = scores or {}, reason

    def __call__(self, arguments, environment):
        self.commands.append(arguments)
        if "-o" in arguments and not self.reason:
            out = Path(arguments[arguments.index("-o") + 1])
            value = next((value for name, value in self.scores.items() if any(name in word for word in arguments)), 0.0)
            if out.suffix == ".json":
                row = Row("m", {"inter": value, "R1@.3": value})
                Report("egomcq", [Table("t", [row])], command=" ".join(map(str, arguments))).save(out)
            else:
                out.mkdir(parents=True)
        return self.reason


def prepare(folder, *paths):
    """Empty files in data/, and folders for those without a suffix."""
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("") if Path(path).suffix else (folder / path).mkdir()


def perform(folder, hiero, *tables, num_seeds=1):
    """The rows of tables, by method, after all jobs."""
    files = ReleasedFiles(folder / "data", folder / "out", num_seeds, folder / "models")
    reproduction = Reproduction(files)
    for job in reproduction.jobs(tables):
        if not reproduction.is_finished(job):
            reproduction.perform(job, hiero)
    return {row["method"]: row for name in tables for row in reproduction.table(name)["rows"]}


def test_every_table_is_whole():
    models = {*definitions()["models"], "raw"}
    for definition in definitions()["tables"].values():
        for row in definition["rows"]:
            assert len(row["published"]) == len(definition["columns"])
            assert {run["model"] for run in row.get("ours", [])} <= models


def test_your_own_models_replace_released_ones_and_seeds_are_averaged(tmp_path):
    prepare(tmp_path, *QUESTIONS, "models/hiero-egovlp-seed0", "models/hiero-egovlp-seed1")
    hiero = FakeHiero({"hiero-egovlp-seed0": 88.0, "hiero-egovlp-seed1": 92.0})
    row = perform(tmp_path, hiero, "mcq")["HiERO (EgoVLP)"]
    assert row["ours"] == {"inter": 90.0}
    assert row["intervals"]["inter"] == pytest.approx((90 - 2 * np.sqrt(8), 90 + 2 * np.sqrt(8)))
    assert [command[:2] for command in hiero.commands] == [["eval", "egomcq"]] * 2


def test_seeds_of_heads_are_scored_together(tmp_path):
    """`hiero head eval` averages them itself: one command for all."""
    prepare(tmp_path, *GROUNDING, "models/heads/steps-egovlp-seed0", "models/heads/steps-egovlp-seed1")
    hiero = FakeHiero({"steps-egovlp": 15.0})
    assert perform(tmp_path, hiero, "grounding-supervised")["EgoVLP"]["ours"] == {"R1@.3": 15.0}
    (command,) = hiero.commands
    assert [Path(part).name for part in command[2:4]] == ["steps-egovlp-seed0", "steps-egovlp-seed1"]
    shutil.copytree(tmp_path / "models/heads/steps-egovlp-seed1", tmp_path / "models/heads/steps-egovlp-seed2")
    perform(tmp_path, hiero, "grounding-supervised")
    assert len(hiero.commands) == 2  # other seeds are another run


def test_a_table_that_is_not_reproduced_says_so(tmp_path, capsys):
    app(["reproduce", str(tmp_path), "opel", "-o", str(tmp_path / "out")], result_action="return_value")
    printed = capsys.readouterr()
    assert "not reproduced" in printed.err
    assert "Not reproduced" in printed.out
    assert "35.4" in printed.out


@pytest.mark.parametrize("edges", ["released", "corrected"])
def test_ablations_are_trained_with_the_edges_they_are_tested_with(tmp_path, edges):
    prepare(tmp_path, "data/egoclip.csv", "data/egomcq.json", "data/ego4d/omnivore/x.pt")
    files = ReleasedFiles(tmp_path / "data", tmp_path / "out", 1, None, edges)
    words, _ = files.recipe("MODELS/omnivore-frozen-seed0")
    settings = [word for word in words if word.startswith("model.behaviour.")]
    values = override({}, settings).get("model", {}).get("behaviour", {})
    assert Behaviour.from_dict(values) == getattr(Behaviour, edges)()


def test_networks_and_heads_are_trained_by_the_table_s_own_command(tmp_path):
    prepare(tmp_path, *GROUNDING, "data/goalstep/goalstep_grounding_train.json", "data/egoclip.csv")
    prepare(tmp_path, *QUESTIONS, "data/stores/omnivore/store.json", "data/ego4d/omnivore/x.pt")
    hiero = FakeHiero()
    perform(tmp_path, hiero, "grounding-supervised", "text", num_seeds=2)
    heads = [command for command in hiero.commands if command[:3] == ["head", "train", "vslnet"]]
    seeds = [command[-1] for command in heads if "steps-egovlp" in str(command)]
    assert seeds == ["seed=0", "seed=1"]
    trained = [command for command in hiero.commands if command[0] == "train"]
    outs = [Path(command[command.index("-o") + 1]) for command in trained]
    assert outs[:2] == [tmp_path / f"out/models/omnivore-frozen-seed{seed}" for seed in (0, 1)]
    assert trained[0][1:3] == [str(tmp_path / "out/data/stores/omnivore-train"), str(tmp_path / "data/egoclip.csv")]
    assert ["pack", str(tmp_path / "data/ego4d/omnivore")] in [command[:2] for command in hiero.commands]
    num_commands = len(hiero.commands)
    perform(tmp_path, hiero, "grounding-supervised", "text", num_seeds=0)
    assert len(hiero.commands) == num_commands


@pytest.mark.slow
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


def test_latex():
    table = Table("A & B", [Row("Δ = 4, 50 %", {"inter": 91.8, "intra": float("nan")})], ["a note"])
    text = as_latex(table)
    assert r"$\Delta$ = 4, 50 \% & 91.8 & -- \\" in text
    assert r"\caption{A \& B}" in text
    assert text.endswith("% a note")


def check(folder, capsys):
    """What `hiero reproduce --check` says about folder/data: its files by path, and its tables."""
    words = ["reproduce", str(folder / "data"), "--check", "--models", str(folder / "models"), "--seeds", "0"]
    app([*words, "-o", str(folder / "out"), "--json"], result_action="return_value")
    document = json.loads(capsys.readouterr().out)
    assert not (folder / "out").exists()
    return {Path(file["path"]): file for file in document["inputs"]}, document["tables"]


def test_check_says_what_is_there_and_where_to_get_the_rest(tmp_path, capsys):
    data = tmp_path / "data"
    prepare(tmp_path, "data/egomcq.json", "data/stores/egovlp/store.json", "data/egoprocel")
    (data / "egoprocel" / "annotations").symlink_to(FIXTURES / "protocols" / "egoprocel" / "annotations")
    save_random_model(tmp_path / "models" / "hiero-egovlp")
    inputs, tables = check(tmp_path, capsys)
    assert inputs[data / "egomcq.json"]["present"]
    assert not inputs[data / "data/ego4d/raw/features/egovlp"]["present"]
    assert tables["mcq"] == {"ready": 1, "rows": 5}
    assert 0 < tables["egoprocel-statistics"]["ready"] < 16
    assert "hiero head train" in inputs[tmp_path / "models/heads/nlq-egovlp"]["source"]
    assert not any(f" {folder}/" in file["source"] for file in inputs.values() for folder in ("DATA", "MODELS"))


def test_an_official_file_of_goalstep_is_known_by_its_content(tmp_path, capsys):
    folder = tmp_path / "data" / "goalstep"
    folder.mkdir(parents=True)
    write_goalstep(tmp_path)
    (tmp_path / "valid.json").rename(folder / "from_the_web.json")
    (folder / "another.json").write_text('{"videos": []}')
    inputs, _ = check(tmp_path, capsys)
    assert [path.name for path, file in inputs.items() if file["present"]] == ["from_the_web.json"]


def test_a_run_that_fails_is_tried_once_and_the_other_rows_are_computed(tmp_path):
    """Several rows, also of other tables, may need it."""
    prepare(tmp_path, *QUESTIONS, "models/egovlp-align", "models/egovlp-a2")
    hiero = FakeHiero(reason="the disk is full")
    rows = perform(tmp_path, hiero, "context", "window", num_seeds=0)
    assert len(hiero.commands) == 5  # four contexts and a model
    failed = [method for method, row in rows.items() if row["failed"] == ["the disk is full"]]
    assert failed == ["Δ = 0", "Δ = 1", "Δ = 2", "Δ = 4", "α = 1, β = all", "α = 2, β = all"]
