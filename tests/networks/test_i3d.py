"""I3D: published padding, folded batch normalisation, and the published scores on a real clip."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from hiero.errors import InputError
from hiero.media.decode import Sampling, read_segments
from hiero.networks.i3d import EPSILON, FILE, I3D, Pool, Unit, convert, load, same_padding
from hiero.storage import weights
from tests.conftest import close
from tests.films import import_av
from tests.optional import weights_or_skip

CLIP = Path(__file__).parents[3] / "shared" / "clips" / "ego_frying_2s.mp4"


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(1, 12), st.sampled_from([1, 3, 7]), st.sampled_from([1, 2]), st.integers(0, 99))
def test_a_unit_is_a_convolution_in_three_dimensions(length, size, kernel, stride, seed):
    torch.manual_seed(seed)
    unit = Unit(3, 5, kernel, stride)
    x = torch.randn(2, 3, length, size, size + 1)
    padded = F.pad(x, [amount for n in reversed(x.shape[2:]) for amount in same_padding(n, kernel, stride)])
    with torch.no_grad():
        expected = F.relu(F.conv3d(padded, unit.weight, unit.bias, stride))
        output = unit(x.transpose(1, 2)).transpose(1, 2)
    assert output.shape[2:] == tuple(-(-n // stride) for n in x.shape[2:])  # SAME: ⌈size / stride⌉
    close(output, expected, rtol=1e-4)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 6),
    st.integers(1, 9),
    st.sampled_from([(1, 3, 1, 2), (3, 3, 1, 1), (3, 3, 2, 2), (2, 2, 2, 2)]),
    st.integers(0, 99),
)
def test_a_pool_is_a_maximum_in_three_dimensions(length, size, shape, seed):
    torch.manual_seed(seed)
    time, space, time_stride, space_stride = shape
    x = -torch.rand(2, 3, length, size, size + 1)  # negative: a pad of 0 would win
    pads = [
        same_padding(size + 1, space, space_stride),
        same_padding(size, space, space_stride),
        same_padding(length, time, time_stride),
    ]
    padded = F.pad(x, [amount for pair in pads for amount in pair], value=-torch.inf)
    expected = F.max_pool3d(padded, (time, space, space), (time_stride, space_stride, space_stride))
    assert torch.equal(Pool(*shape)(x.transpose(1, 2)).transpose(1, 2), expected)


def test_padding_is_tensorflows():
    """224 pixels, kernel 7, stride 2: 2 before and 3 after; odd sizes differ."""
    assert same_padding(224, 7, 2) == (2, 3)
    assert same_padding(7, 3, 2) == (1, 1)
    assert same_padding(5, 1, 1) == (0, 0)


def random_checkpoint(path):
    """A tree of arrays in the published layout."""
    rng = np.random.default_rng(0)
    params, stats = {}, {}
    for name, module in I3D().named_modules():
        if isinstance(module, Unit):
            shape = tuple(module.weight.shape)
            parts = name.removeprefix("layers.").split(".")
            node = {
                "Conv_0": {"kernel": rng.standard_normal((*shape[2:], shape[1], shape[0])).astype(np.float32) * 0.05},
                "BatchNorm_0": {"bias": rng.standard_normal(shape[0]).astype(np.float32)},
            }
            folder = params
            for part in parts[:-1]:
                folder = folder.setdefault(part, {})
            folder[parts[-1]] = node
            entry = {
                "mean": rng.standard_normal((1, 1, 1, 1, shape[0])).astype(np.float32),
                "var": rng.uniform(0.5, 2, (1, 1, 1, 1, shape[0])).astype(np.float32),
            }
            folder = stats.setdefault(parts[0], {})
            if len(parts) == 1:
                folder["BatchNorm_0"] = entry
            else:
                folder["/".join(parts[1:])] = {"BatchNorm_0": entry}  # branch and unit are joined with a slash here
    shapes = {"kernel": (1, 1, 1, 1024, 400), "bias": (400,)}
    logits = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    params["Logits"] = {"Conv3d_0c_1x1": {"Conv_0": logits}}
    path.write_bytes(pickle.dumps({"params": params, "batch_stats": stats}))
    return params, stats


def test_batch_normalisation_is_folded_in(tmp_path):
    params, stats = random_checkpoint(tmp_path / FILE)
    model = load(tmp_path)
    x = torch.randn(1, 2, 192, 6, 6)
    node, entry = (
        params["Mixed_3b"]["Branch_1"]["Conv3d_0a_1x1"],
        stats["Mixed_3b"]["Branch_1/Conv3d_0a_1x1"]["BatchNorm_0"],
    )
    kernel = torch.from_numpy(node["Conv_0"]["kernel"]).permute(4, 3, 0, 1, 2)
    mean, var = (torch.from_numpy(entry[name]).flatten() for name in ("mean", "var"))
    expected = F.batch_norm(
        F.conv3d(x.transpose(1, 2), kernel), mean, var, None, torch.from_numpy(node["BatchNorm_0"]["bias"]), eps=EPSILON
    ).relu()
    with torch.no_grad():
        close(model.layers["Mixed_3b"].Branch_1["Conv3d_0a_1x1"](x).transpose(1, 2), expected, rtol=1e-3)
        assert model(torch.randn(2, 8, 3, 64, 64)).shape == (2, 400)


def test_only_arrays_are_read(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "executed"), "w"))

    (tmp_path / "evil.ckpt").write_bytes(pickle.dumps({"params": Evil()}))
    with pytest.raises(InputError, match=r"(io|_io)\.open"):
        convert(tmp_path / "evil.ckpt")
    assert not (tmp_path / "executed").exists()
    (tmp_path / "cut.ckpt").write_bytes(b"\x80\x04")
    with pytest.raises(InputError, match="not the I3D checkpoint"):
        convert(tmp_path / "cut.ckpt")


@pytest.mark.slow
@pytest.mark.skipif(not CLIP.is_file(), reason="needs shared/clips")
def test_the_published_scores_of_a_real_clip():
    """32 frames of frying: cooking sausages .67, cooking chicken .14, scrambling eggs .08 (shared/weights.md)."""
    model = load(weights_or_skip("i3d-k400"))
    import_av()
    segments = list(read_segments(CLIP, Sampling(num_frames=16)))
    frames = np.concatenate([segment.frames for segment in segments])
    top, left = (frames.shape[1] - 224) // 2, (frames.shape[2] - 224) // 2
    x = torch.from_numpy(frames[:, top : top + 224, left : left + 224]).permute(0, 3, 1, 2)[None].float() / 127.5 - 1
    with torch.inference_mode():
        scores = model(x).softmax(1)[0]
    names = (Path(weights.__file__).parents[1] / "assets" / "kinetics400.txt").read_text().splitlines()
    top_scores = {names[i]: float(scores[i]) for i in scores.topk(3).indices}
    assert list(top_scores) == ["cooking sausages", "cooking chicken", "scrambling eggs"]
    assert top_scores["cooking sausages"] == pytest.approx(0.67, abs=0.1)
    assert top_scores["cooking chicken"] == pytest.approx(0.14, abs=0.1)
