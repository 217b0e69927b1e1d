"""The loop: it learns, stops and resumes without a trace, and says what is wrong."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

import examples.custom_operator  # noqa: F401  registers mean-neighbours
from examples.simulation import bag_of_words
from hiero.config import LossConfig, ModelConfig, TextConfig
from hiero.errors import InputError
from hiero.features.stores import FeatureStore
from hiero.model.ensemble import load_model
from hiero.model.hiero import HiERO
from hiero.model.released import read_released
from hiero.networks import text_encoders as encoders
from hiero.networks.text_encoders import load_text_encoder, locate_encoder
from hiero.storage.files import load_tensors
from hiero.training.fabric import make_fabric
from hiero.training.hiero_training import HieroTraining, validate
from hiero.training.loop import STATE_FILE, TrainingStopped
from hiero.training.narrated_windows import NarratedWindows
from hiero.training.narrations import read_narrations
from hiero.training.step import Objective, TrainStep, make_adam
from tests.conftest import FIXTURES
from tests.networks.test_encoders import word_tokenizer


def prepared(
    collection, out, resume=False, windows=None, log=lambda _: None, capture="auto", log_every=10, **options
) -> HieroTraining:
    config = options.pop("config", None) or collection.config(**options.pop("changes", {}))
    windows = windows or collection.windows()
    options.setdefault("text_vectors", bag_of_words(windows.texts).half())
    training = HieroTraining(config, windows, out, make_fabric("cpu"), **options)
    training.log_every = log_every
    training.prepare(resume=resume, capture=capture, log=log)
    return training


def same_state(a, b):
    first, second = load_tensors(a / STATE_FILE), load_tensors(b / STATE_FILE)
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.slow
def test_it_learns(collection, tmp_path):
    reports = []
    training = prepared(collection, tmp_path, changes={"epochs": 10})
    training.run(on_report=reports.append)
    assert reports[-1].losses["alignment"] < 0.8 * reports[0].losses["alignment"]
    assert reports[-1].step == training.num_steps == 10 * (len(training.windows) // 4)
    model = HiERO.from_pretrained(tmp_path)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), training.model.parameters(), strict=True))
    saved = json.loads((tmp_path / "config.json").read_text())["training"]
    assert saved["epochs"] == 10
    assert saved["steps_done"] == training.num_steps
    assert list(tmp_path.glob("events.out.*"))


@pytest.mark.slow
def test_another_operator_trains_on_the_plain_path_and_says_so(collection, tmp_path):
    messages: list[str] = []
    config = collection.config(epochs=1, model={"operator": "mean-neighbours"})
    training = prepared(collection, tmp_path, config=config, log=messages.append)
    assert type(training.step) is TrainStep
    assert [("mean-neighbours" in message) for message in messages] == [True]
    training.run()
    assert load_model(tmp_path).config.operator == "mean-neighbours"
    prepared(collection, tmp_path, config=config, resume=True).run()
    with pytest.raises(InputError, match=r"the run has other settings \(model\.operator was mean-neighbours"):
        prepared(collection, tmp_path, config=collection.config(epochs=1), resume=True)


NOISY = {"noise": 0.3, "jitter": 0.2, "text_noise": 0.3, "optimizer": "adamw", "accumulate": 1}


@pytest.fixture(scope="module")
def whole(collection, tmp_path_factory):
    """The folder of a run that was not stopped."""
    out = tmp_path_factory.mktemp("run") / "whole"
    prepared(collection, out, changes=NOISY).run()
    return out


@pytest.mark.slow
@pytest.mark.parametrize("stop_at", [1, 7, 12])
def test_stopped_and_resumed_is_uninterrupted(collection, whole, tmp_path, stop_at):
    """Bit by bit: weights, optimizer and random state, with dropout and noise drawn in every step."""
    first = prepared(collection, tmp_path / "parts", changes=NOISY, log_every=1)

    def stop(report):
        first.stop = report.step >= stop_at

    with pytest.raises(TrainingStopped):
        first.run(on_report=stop)
    assert first.step_number == stop_at
    second = prepared(collection, tmp_path / "parts", resume=True, changes=NOISY)
    assert second.step_number == stop_at
    second.run()
    assert same_state(whole, tmp_path / "parts")
    assert torch.equal(
        load_tensors(whole / "model.safetensors")["project.weight"],
        load_tensors(tmp_path / "parts" / "model.safetensors")["project.weight"],
    )


@pytest.mark.slow
def test_watching_changes_nothing(collection, tmp_path):
    """Validation between epochs draws no random numbers and leaves the model as it is; the best model is kept."""
    windows = collection.windows()
    messages = []
    prepared(collection, tmp_path / "blind").run()
    watched = prepared(collection, tmp_path / "watched", validation=(windows, bag_of_words(windows.texts)))
    watched.run(log=messages.append)
    a, b = load_tensors(tmp_path / "blind" / STATE_FILE), load_tensors(tmp_path / "watched" / STATE_FILE)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert len(messages) == 3
    best = max(watched.scores, key=lambda score: score["narrations found"])
    assert (tmp_path / "watched" / "best" / "model.safetensors").is_file()
    assert json.loads((tmp_path / "watched" / "best" / "config.json").read_text())["training"]["validation"][-1] == best
    score = validate(watched.objective, windows, bag_of_words(windows.texts))
    trained = json.loads((tmp_path / "watched" / "config.json").read_text())["training"]
    assert trained["videos"] == sorted({window.video for window in windows.windows})
    assert score["narrations found"] == pytest.approx(watched.scores[-1]["narrations found"])


def test_accumulated_batches_are_averaged(collection):
    windows = collection.windows()
    table = bag_of_words(windows.texts)
    parts = [windows.read(range(i, i + 4)).with_vectors(table) for i in (0, 4)]

    def gradients(backward):
        torch.manual_seed(0)
        model = HiERO(ModelConfig(16, 16, 16, 64, gate_size=8, radius_s=2.5, dropout=0.0))
        objective = Objective(model, LossConfig(alpha=0.5), 1.0)
        backward(objective)
        return {name: p.grad.clone() for name, p in model.named_parameters()}

    def backward_by_hand(objective):
        (sum(objective(part).total for part in parts) / 2).backward()

    together = gradients(lambda objective: TrainStep(objective, make_adam(objective, lr=0.0), clip=1e9)(*parts))
    for name, grad in gradients(backward_by_hand).items():
        torch.testing.assert_close(together[name], grad, rtol=1e-4, atol=1e-7)


def test_resuming_with_other_settings_is_refused(collection, tmp_path):
    prepared(collection, tmp_path, changes={"epochs": 1}).run()
    with pytest.raises(InputError, match=r"epochs was 1, now 2; lr was 0.01, now 0.02"):
        prepared(collection, tmp_path, resume=True, changes={"epochs": 2, "lr": 0.02})
    other = collection.windows()
    other.texts[0] += " again"  # the same numbers of windows, narrations and texts
    with pytest.raises(InputError, match="the run has other features or narrations"):
        prepared(collection, tmp_path, resume=True, windows=other, changes={"epochs": 1})
    with pytest.raises(InputError, match="nothing to resume"):
        prepared(collection, tmp_path / "empty", resume=True)


def test_a_broken_model_never_replaces_a_good_one(collection, tmp_path):
    training = prepared(collection, tmp_path, changes={"epochs": 1})
    training.run()
    before = (tmp_path / STATE_FILE).read_bytes()
    with torch.no_grad():
        training.model.project.weight[0, 0] = float("nan")
    with pytest.raises(InputError, match="the loss became nan"):
        training.save()
    assert (tmp_path / STATE_FILE).read_bytes() == before


def test_each_process_takes_its_part(collection, tmp_path):
    training = prepared(collection, tmp_path)
    training.fabric = SimpleNamespace(global_rank=1, world_size=2, device=torch.device("cpu"))
    assert training._process_share(torch.arange(4)).tolist() == [2, 3]
    training.resident = training.windows.resident(training.text_vectors, "cpu")
    whole = training.order(0)[:4].tolist()
    assert next(training._batch_indices())[0].tolist() == whole[2:]


def test_a_channel_that_never_moved_is_switched_off():
    model = HiERO(ModelConfig(3, 8, 8, 8, standardise=True))
    model.standardise(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 0.0, 4.0]))
    assert model.input_scale.tolist() == [2.0, 0.0, 0.25]


def test_a_damaged_state_is_named(collection, tmp_path):
    prepared(collection, tmp_path, changes={"epochs": 1}).run()
    state = tmp_path / STATE_FILE
    state.write_bytes(state.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"training\.safetensors: damaged or cut short"):
        prepared(collection, tmp_path, resume=True, changes={"epochs": 1})


def test_what_cannot_work_says_so(collection, tmp_path):
    from dataclasses import replace

    config = collection.config()
    with pytest.raises(InputError, match=r"must be above the spacing .*try --set model\.radius_s=2\.5"):
        prepared(collection, tmp_path, config=replace(config, model=config.model.replace(radius_s=1.0)))
    with pytest.raises(InputError, match=r"egovlp\.pth must be saved with the model"):
        prepared(collection, tmp_path, config=config.replace(text=TextConfig("egovlp.pth")))
    with pytest.raises(InputError, match="--capture needs a CUDA GPU"):
        prepared(collection, tmp_path, capture=True)
    with pytest.raises(InputError, match="--device nonsense cannot be used"):
        make_fabric("nonsense")


def test_a_loss_that_explodes_ends_the_run(collection, tmp_path):
    training = prepared(collection, tmp_path, changes={"lr": 1e30, "warmup_epochs": 0.0, "clip": 1e30}, log_every=1)
    with pytest.raises(InputError, match=r"the loss became nan near step \d+.*Try a smaller learning rate"):
        training.run()


def test_fewer_windows_than_a_batch(collection, tmp_path):
    training = prepared(collection, tmp_path, changes={"batch_size": 64, "epochs": 2})
    training.run()
    assert training.num_steps == 2


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["lora", "full"])
def test_a_text_encoder_trained_along(collection, tmp_path, monkeypatch, mode):
    """It learns, is saved with the model, and comes back from its folder with what it learned."""
    monkeypatch.setattr(encoders, "_tokenizer", lambda _: word_tokenizer())
    read_released(FIXTURES / "official_small.pth").save(tmp_path / "released")
    text_config = TextConfig(str(tmp_path / "released"), mode, lora_rank=2)

    def run(out, stop_at=None, resume=False):
        torch.manual_seed(1)
        text_encoder = load_text_encoder(text_config)
        before = text_encoder.encode(["cuts the onion"])
        config = collection.config(epochs=2).replace(
            text=text_config, model=collection.config().model.replace(text_size=32)
        )
        windows = collection.windows()
        validation = (windows, None)
        training = prepared(
            collection,
            out,
            config=config,
            text_vectors=None,
            text_encoder=text_encoder,
            validation=validation,
            resume=resume,
            log_every=1,
        )
        if stop_at:
            with pytest.raises(TrainingStopped):
                training.run(on_report=lambda report: setattr(training, "stop", report.step >= stop_at))
        else:
            training.run()
        return before, text_encoder.encode(["cuts the onion"])

    before, after = run(tmp_path / "whole")
    assert not torch.allclose(before, after, atol=1e-4)
    source = locate_encoder(str(tmp_path / "whole"))
    assert source.kind == "distilbert"
    torch.testing.assert_close(load_text_encoder(TextConfig(str(tmp_path / "whole"))).encode(["cuts the onion"]), after)
    run(tmp_path / "parts", stop_at=3)
    run(tmp_path / "parts", resume=True)
    assert same_state(tmp_path / "whole", tmp_path / "parts")


def test_validation_finds_a_text_at_any_of_its_times(collection, tmp_path):
    """Whichever node an untrained network chooses, a text that is narrated all the time is near it."""
    video = next(iter(FeatureStore(collection.store)))
    rows = [f"{video},{time_s},cuts the onion" for time_s in range(0, 60, 2)]
    (tmp_path / "narrations.csv").write_text("\n".join(["video,time_s,text", *rows]) + "\n")
    windows = NarratedWindows(FeatureStore(collection.store), read_narrations(tmp_path / "narrations.csv"), 60.0)
    training = prepared(collection, tmp_path / "model", changes={"epochs": 1})
    scores = validate(training.objective, windows, bag_of_words(windows.texts))
    assert scores["narrations found"] == 1.0
