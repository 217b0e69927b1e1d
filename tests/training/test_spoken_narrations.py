"""Training on transcripts: people speak early or late, so positives reach further."""

from __future__ import annotations

import numpy as np
import pytest

from hiero.config import override, read_preset
from hiero.errors import InputError
from hiero.features.stores import pack
from hiero.training.from_files import SPEECH_WINDOW_S, TrainOptions, speech_settings, train_from_files
from hiero.training.loop import SilentDisplay
from hiero.types import Clock
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


def train_on_transcripts(folder, **options):
    pytest.importorskip("lightning_fabric", reason="needs lightning-fabric: pip install 'hiero-video[train]'")
    weights_or_skip("minilm")
    (folder / "features").mkdir()
    (folder / "words").mkdir()
    for name in ("a", "b"):
        np.save(folder / "features" / f"{name}.npy", np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32))
        cues = [f"{i}\n00:00:{10 * i},000 --> 00:00:{10 * i + 4},000\nwe do thing number {i}\n" for i in (1, 2, 3)]
        (folder / "words" / f"{name}.srt").write_text("\n".join(cues))
    pack(folder / "features", folder / "store", clock=Clock(1, 1))
    sizes = ["model.hidden_size=8", "model.embedding_size=8", "model.gate_size=4"]
    return train_from_files(
        folder / "store",
        folder / "words",
        folder / "model",
        settings=["epochs=1", "warmup_epochs=0", *sizes],
        options=TrainOptions(device="cpu", speech_window_s=5.0, **options),
    )


def test_a_model_from_transcripts(tmp_path):
    training = train_on_transcripts(tmp_path, validation_share=0.0)
    assert training.config.losses.alpha == pytest.approx(0.2)
    assert sorted(training.windows.texts) == [f"we do thing number {i}" for i in (1, 2, 3)]
    assert (tmp_path / "model" / "config.json").is_file()


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_hint_names_the_best_model(tmp_path, share):
    display, lines = SilentDisplay(), []
    display.log = lines.append
    training = train_on_transcripts(tmp_path, validation_share=share, display=display)
    best, last = tmp_path / "model" / "best", tmp_path / "model"
    assert best.is_dir() == bool(share)
    assert lines[-1].endswith(f"Next: hiero embed FEATURES --model {best if share else last} -o OUT")
    assert (f"{best}: the model with the best validation score ({training.best or 0:.3f})" in lines) == bool(share)
