"""EfficientNet-Lite2: folded batch normalisation, and objects seen in real clips."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from hiero.errors import InputError
from hiero.extraction.extractor import extract_features
from hiero.storage import weights
from hiero.video.efficientnet_lite2 import EPSILON, FILE, STAGES, EfficientNetLite2, convert, load, prepare
from hiero.video.preprocessing import centre_crop
from tests.conftest import close

CLIPS = Path(__file__).parents[3] / "shared" / "clips"


def random_state():
    """A checkpoint in the published layout."""
    generator = torch.Generator().manual_seed(0)
    state = {}

    def add(conv, norm, weight):
        size = weight.shape[0]
        state[f"{conv}.weight"] = torch.randn(weight.shape, generator=generator) * 0.2
        for name in ("weight", "bias", "running_mean"):
            state[f"{norm}.{name}"] = torch.randn(size, generator=generator) * 0.3 + (name == "weight")
        state[f"{norm}.running_var"] = torch.rand(size, generator=generator) + 0.5

    model = EfficientNetLite2()
    add("_conv_stem", "_bn0", model.stem.weight)
    add("_conv_head", "_bn1", model.head.weight)
    for i, block in enumerate(model.blocks):
        if block.expand is not None:
            add(f"_blocks.{i}._expand_conv", f"_blocks.{i}._bn0", block.expand.weight)
        add(f"_blocks.{i}._depthwise_conv", f"_blocks.{i}._bn1", block.depthwise.weight)
        add(f"_blocks.{i}._project_conv", f"_blocks.{i}._bn2", block.project.weight)
    return state | {"_fc.weight": torch.randn(1000, 1280, generator=generator), "_fc.bias": torch.zeros(1000)}


def pad_same(x, kernel, stride):
    """TensorFlow's SAME padding, written out."""
    pads = []
    for size in (x.shape[3], x.shape[2]):
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        pads += [total // 2, total - total // 2]
    return F.pad(x, pads)


def unfolded(state, x):
    """The published network layer by layer, batch normalisation as layers of its own."""

    def layer(x, conv, norm, stride=1, groups=1, active=True):
        weight = state[f"{conv}.weight"]
        x = F.conv2d(pad_same(x, weight.shape[-1], stride), weight, None, stride, groups=groups)
        bn = {name: state[f"{norm}.{name}"] for name in ("running_mean", "running_var", "weight", "bias")}
        x = F.batch_norm(x, bn["running_mean"], bn["running_var"], bn["weight"], bn["bias"], eps=EPSILON)
        return x.clamp(0, 6) if active else x

    x = layer(x, "_conv_stem", "_bn0", 2)
    i = 0
    for _, stride, expansion, outputs, num_blocks in STAGES:
        for first in [True] + [False] * (num_blocks - 1):
            y = layer(x, f"_blocks.{i}._expand_conv", f"_blocks.{i}._bn0") if expansion > 1 else x
            y = layer(y, f"_blocks.{i}._depthwise_conv", f"_blocks.{i}._bn1", stride if first else 1, groups=y.shape[1])
            y = layer(y, f"_blocks.{i}._project_conv", f"_blocks.{i}._bn2", active=False)
            x = x + y if not first and y.shape[1] == outputs else y
            i += 1
    x = layer(x, "_conv_head", "_bn1")
    return x.mean((2, 3)) @ state["_fc.weight"].T + state["_fc.bias"]


def test_it_is_the_published_network():
    state = {name: value.double() for name, value in random_state().items()}  # random weights magnify rounding
    model = EfficientNetLite2().double()
    model.load_state_dict(convert(state))
    x = torch.randn(2, 3, 67, 50, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(model(x), unfolded(state, x), rtol=1e-6, atol=1e-6)


def test_another_checkpoint_is_refused(tmp_path):
    torch.save({"a": torch.zeros(1)}, tmp_path / FILE)
    with pytest.raises(InputError, match="not the EfficientNet-Lite2 checkpoint"):
        load(tmp_path)


def test_frames_are_cropped_and_normalised():
    frames = torch.full((1, 300, 400, 3), 127, dtype=torch.uint8)
    frames[:, :, :50] = 255  # outside the middle square
    x = prepare(frames)
    assert x.shape == (1, 3, 260, 260)
    close(x, torch.full_like(x, (127 / 255 - 0.498) / 0.502), atol=1e-5)
    assert centre_crop(frames, 224, 0.5).shape == (1, 3, 224, 224)
    assert (centre_crop(frames, 150, 0.5) == 127).all()


@pytest.mark.skipif(not CLIPS.is_dir(), reason="needs shared/clips")
def test_one_pass_over_a_real_clip_gives_actions_and_objects():
    try:
        for name in ("i3d-k400", "lite2-imagenet"):
            weights.get(name)
    except InputError as error:
        pytest.skip(f"weights cannot be fetched here: {error}")
    progress_s = []
    features = extract_features(CLIPS / "ego_frying_2s.mp4", progress=progress_s.append).features
    assert {name: tuple(value.shape) for name, value in features.items()} == {"i3d-k400": (2, 400), "lite2-imagenet": (2, 1000)}
    assert progress_s == [pytest.approx(2.0, abs=0.1)]
    assets = Path(weights.__file__).parents[1] / "assets"
    actions, objects = ((assets / name).read_text().splitlines() for name in ("kinetics400.txt", "imagenet.txt"))
    best = features["lite2-imagenet"].mean(0).argsort()[::-1][:3]
    assert "frying pan" in [objects[i] for i in best]
    best = features["i3d-k400"].mean(0).argsort()[::-1][:5]
    assert {actions[i] for i in best} & {
        "cooking sausages",
        "cooking chicken",
        "scrambling eggs",
        "frying vegetables",
        "cooking egg",
        "barbequing",
    }
