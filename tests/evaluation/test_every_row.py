"""Every command behind the paper's tables, on made files in the official layouts: no documented row may break."""

from __future__ import annotations

import json
import sys

import pytest

from hiero.cli import app
from hiero.errors import InputError
from hiero.evaluation import commands as running
from hiero.evaluation.paper_tables import definitions, table_names
from tests.evaluation.released import write_other_backbones, write_release
from tests.optional import skip_without, weights_or_skip

pytestmark = pytest.mark.slow

skip_without("transformers", "transformers is not installed (extra: text)")
skip_without("peft", "peft is not installed (extra: text)")

SMALL = ["model.hidden_size=16", "model.embedding_size=16", "model.gate_size=8"]


def short(arguments, release):
    """Settings that make a training short, and the place of an encoder that would be downloaded."""
    if arguments[0] == "train":
        settings = ["epochs=1", "warmup_epochs=0", *SMALL]
        if "omnivore" in arguments:
            settings.append(f"text.encoder={release / 'pretrained/egovlp_text.pth'}")
        return settings
    return ["epochs=1", f"{arguments[2]}.hidden_size=16"] if arguments[:2] == ["head", "train"] else []


def test_every_row_of_every_table_comes_out_of_its_commands(tmp_path, monkeypatch):
    for name in ("minilm", "clip-bpe"):
        (tmp_path / "weights").mkdir(exist_ok=True)
        (tmp_path / "weights" / name).symlink_to(weights_or_skip(name))
    release = write_release(tmp_path / "HiERO")
    write_other_backbones(release)
    (tmp_path / "weights/lavila-l").mkdir()
    (release / "lavila-l.pth").rename(tmp_path / "weights/lavila-l/lavila-l.pth")
    monkeypatch.setenv("HIERO_WEIGHTS", str(tmp_path / "weights"))
    done = []

    def run_here(arguments, environment):
        """The command, in this process instead of its own."""
        done.append(" ".join(arguments[: 1 if arguments[0] in ("pack", "embed", "train") else 2]))
        settings = [word for setting in short(arguments, release) for word in ("--set", setting)]
        with monkeypatch.context() as inner:
            inner.setattr(sys, "argv", ["hiero", *arguments])
            for name, value in environment.items():
                inner.setenv(name, value)
            try:
                app([*arguments, *settings], result_action="return_value")
            except InputError as error:
                return str(error)
        return ""

    monkeypatch.setattr(running, "run_hiero", run_here)
    out = tmp_path / "out"
    app(["reproduce", str(release), *table_names(), "-o", str(out), "--device", "cpu"], result_action="return_value")
    tables = {table["name"]: table for table in json.loads((out / "summary.json").read_text())["tables"]}
    assert list(tables) == table_names()
    for name, table in tables.items():
        for row in table["rows"]:
            assert row["failed"] == [], (name, row["method"])
            if not row["published_only"] and name != "egoprocel-statistics":
                assert row["missing"] == [], (name, row["method"])
                assert row["ours"], (name, row["method"])
    assert {"train", "models import", "pack", "embed", "head train", "head eval"} <= set(done)
    models = sum(not command.startswith("hiero models import") for command in definitions()["models"].values())
    assert done.count("train") + done.count("head train") == models
