"""`hiero doctor` lists what is installed."""

from __future__ import annotations

import json

import pytest

from hiero.cli import app


def findings(capsys):
    with pytest.raises(SystemExit) as exit_:
        app(["doctor", "--json"])
    document = json.loads(capsys.readouterr().out)
    return exit_.value.code, {finding["name"]: finding for finding in document["findings"]}


@pytest.mark.slow
def test_versions_weights_decoders_and_the_gpu_have_a_line_each(capsys):
    code, found = findings(capsys)
    assert code == 0
    assert {"hiero", "torch", "av", "weights minilm", "decoders"} <= set(found)
    assert any(name.startswith("gpu") for name in found)


def test_damaged_weights_are_a_problem(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_WEIGHTS", str(tmp_path))
    from hiero.storage import weights

    entry = weights.REGISTRY["minilm"]
    for name in entry.files:
        (tmp_path / "minilm" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "minilm" / name).write_bytes(b"damaged")
    code, found = findings(capsys)
    assert code == 1
    assert str(tmp_path) in found["weights minilm"]["message"]
