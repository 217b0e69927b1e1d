"""Training on transcripts: people speak early or late, so positives reach further."""

from __future__ import annotations

import pytest

from hiero.config import override, read_preset
from hiero.errors import InputError
from hiero.training.from_files import SPEECH_WINDOW_S, speech_settings
from tests.optional import weights_or_skip


def test_the_window_of_positives(tmp_path):
    values = read_preset("k400-minilm")
    assert speech_settings(tmp_path / "narrations.csv", SPEECH_WINDOW_S) == []
    for spoken in (tmp_path, tmp_path / "kitchen.srt"):
        assert override(values, speech_settings(spoken, SPEECH_WINDOW_S))["losses"]["alpha"] == 1 / 8
        assert override(values, [*speech_settings(spoken, 12.0), "losses.alpha=0.5"])["losses"]["alpha"] == 0.5
    for wrong in (0.0, -1.0, float("nan"), 1e6):
        with pytest.raises(InputError, match="speech-window-s"):
            speech_settings(tmp_path, wrong)


def test_a_model_from_transcripts(tmp_path):
    pytest.importorskip("lightning_fabric", reason="needs lightning-fabric: pip install 'hiero-video[train]'")
    import numpy as np

    from hiero.data.stores import pack
    from hiero.training.from_files import TrainOptions, train_from_files
    from hiero.types import Clock

    weights_or_skip("minilm")
    (tmp_path / "features").mkdir()
    (tmp_path / "words").mkdir()
    for name in ("a", "b"):
        np.save(tmp_path / "features" / f"{name}.npy", np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32))
        cues = [f"{i}\n00:00:{10 * i},000 --> 00:00:{10 * i + 4},000\nwe do thing number {i}\n" for i in (1, 2, 3)]
        (tmp_path / "words" / f"{name}.srt").write_text("\n".join(cues))
    pack(tmp_path / "features", tmp_path / "store", clock=Clock(1, 1))
    sizes = ["model.hidden_size=8", "model.embedding_size=8", "model.gate_size=4"]
    training = train_from_files(
        tmp_path / "store",
        tmp_path / "words",
        tmp_path / "model",
        settings=["epochs=1", "warmup_epochs=0", *sizes],
        options=TrainOptions(device="cpu", validation_share=0.0, speech_window_s=5.0),
    )
    assert training.config.losses.alpha == pytest.approx(0.2)
    assert sorted(training.windows.texts) == [f"we do thing number {i}" for i in (1, 2, 3)]
    assert (tmp_path / "model" / "config.json").is_file()
