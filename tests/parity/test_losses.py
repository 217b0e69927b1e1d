"""The losses give what the release gives, in value and gradient."""

from __future__ import annotations

import pytest
import torch

from hiero.config import LossConfig
from hiero.model.losses import Timed, alignment_loss, thread_loss
from tests.conftest import close, load, load_json, pad

VALUES = load_json("losses")


@pytest.fixture(scope="module")
def data():
    return load("losses")


def padded(data, case, dtype):
    def get(name):
        return data[f"{case}/{name}"]

    nodes, node_mask = pad(get("vis").to(dtype), get("video"))
    times, _ = pad(get("pos"), get("video"))
    level, _ = pad(get("depth"), get("video"))
    texts, text_mask = pad(get("text").to(dtype), get("narration_video"))
    text_times, _ = pad(get("narration_time"), get("narration_video"))
    return (nodes.requires_grad_(), times, node_mask, texts.requires_grad_(), text_times, text_mask), level


@pytest.mark.parametrize("entry", VALUES["vna"], ids=lambda e: f"{e['case']}-{e['alpha']}-{e['beta']}-{e['mode']}")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_alignment_values(data, entry, dtype):
    inputs, level = padded(data, entry["case"], dtype)
    config = LossConfig(alpha=entry["alpha"], beta=entry["beta"], mode=entry["mode"], temperature=entry["temperature"])
    expected = entry["value" if dtype == torch.float32 else "value_f64"]
    assert alignment_loss(Timed(*inputs[:3]), Timed(*inputs[3:]), config, level).item() == pytest.approx(
        expected, rel=1e-4 if dtype == torch.float32 else 1e-6
    )


@pytest.mark.parametrize("case", ["vna0", "vna1"])
@pytest.mark.parametrize(("alpha", "beta"), [(1, -1), (2, 4)])
def test_alignment_gradients(data, case, alpha, beta):
    inputs, level = padded(data, case, torch.float32)
    alignment_loss(Timed(*inputs[:3]), Timed(*inputs[3:]), LossConfig(alpha=alpha, beta=beta), level).backward()
    close(inputs[0].grad[inputs[2]], in_video_order(data, case, f"grad_vis_a{alpha}_b{beta}_sym", "video"))
    close(inputs[3].grad[inputs[5]], in_video_order(data, case, f"grad_text_a{alpha}_b{beta}_sym", "narration_video"))


def in_video_order(data, case, name, owner):
    return data[f"{case}/{name}"][data[f"{case}/{owner}"].argsort(stable=True)]


def thread_levels(data, dtype=torch.float32, assignment=None):
    x = data["ft/x"].to(dtype).clone().requires_grad_()
    assignment = data["ft/assignment"] if assignment is None else assignment
    levels = []
    for depth in range(1, int(data["ft/depth"].max()) + 1):
        at_depth = data["ft/depth"] == depth
        features, mask = pad(x[at_depth], data["ft/video"][at_depth])
        threads, _ = pad(assignment[at_depth], data["ft/video"][at_depth], fill=-1)
        levels.append((features, torch.where(mask, threads, -1)))
    return x, levels


@pytest.mark.parametrize("entry", [e for e in VALUES["ft"] if e["case"] == "ft"], ids=lambda e: f"T{e['temperature']}")
def test_thread_values_and_gradients(data, entry):
    x, levels = thread_levels(data)
    loss = thread_loss(levels, entry["temperature"])
    assert loss.item() == pytest.approx(entry["value"], rel=1e-4)
    loss.backward()
    close(x.grad, data[f"ft/grad_T{entry['temperature']}"])


def test_one_thread_a_video_is_already_tight(data):
    _, levels = thread_levels(data, assignment=data["ft/video"])
    assert abs(thread_loss(levels).item()) < 1e-6
