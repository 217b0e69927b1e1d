"""`hiero eval` for each benchmark of the paper, on files in its official layout."""

from __future__ import annotations

import pytest

from hiero.cli import app
from hiero.errors import InputError
from hiero.evaluation.results import Report
from tests.evaluation.simulated import write_goalstep, write_questions


def run(arguments, out):
    app(["eval", *map(str, arguments), "--device", "cpu", "-o", str(out)], result_action="return_value")
    return Report.load(out)


@pytest.mark.slow
def test_the_commands(tmp_path, engine, store, egoprocel_files, capsys):
    write_goalstep(tmp_path)
    model, features = engine.folder.path, tmp_path / "features"
    questions = write_questions(tmp_path / "egomcq.json")
    egomcq = ["egomcq", "--store", store.folder, "--questions", questions, "--context", 2, "--model"]
    report = run([*egomcq, model], tmp_path / "1.json")
    assert report.settings["context"] == 2
    assert set(report.tables[0].rows[0].scores) == {"inter", "intra"}
    rates = tmp_path / "rates.csv"
    rates.write_text("".join(f"{name},{fps},{num}\n" for name, (fps, num) in egoprocel_files[1].items()))
    egoprocel = ["egoprocel", "--annotations", tmp_path / "annotations", "--features", features, "--model", model]
    report = run([*egoprocel, "--rates", rates, "--only", "MECCANO", "--no-baselines"], tmp_path / "2.json")
    assert report.missing == ["0005"]
    assert "MECCANO F1" in report.tables[0].columns
    with pytest.raises(InputError, match="frame rates are needed"):
        run(egoprocel, tmp_path / "x.json")
    options = ["--features", features, "--model", model, "--groups", tmp_path / "groups.tsv", "--no-baselines"]
    report = run(["goalstep-grounding", "--annotations", tmp_path / "grounding.json", *options], tmp_path / "3.json")
    assert report.tables[0].columns == ["R1@.3", "R5@.3", "R1@.5", "R5@.5"]
    report = run(["goalstep-localization", "--annotations", tmp_path / "valid.json", *options], tmp_path / "4.json")
    assert report.tables[0].columns[-1] == "mean"
    (tmp_path / "more.txt").write_text("Cook: Fry eggs\n")
    options += ["--annotations", tmp_path / "valid.json", "--train", tmp_path / "valid.json"]
    report = run(["goalstep-classification", "--taxonomy", tmp_path / "more.txt", *options], tmp_path / "5.json")
    assert "4 labels" in report.tables[0].title
    assert capsys.readouterr().err.count("add --taxonomy") == 1  # not where it is given
