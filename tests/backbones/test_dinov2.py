"""DINOv2 and the head that brings its pictures into one space with words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hiero.backbones.dinov2 import (
    NUM_PATCHES,
    TOKENS,
    PictureHead,
    add_output,
    cpu_session,
    group_patches,
    int8_model,
    load,
    load_head,
    prepare,
)
from hiero.errors import InputError
from hiero.vectors import group_vectors
from tests.backbones.test_onnx_files import linear_file
from tests.optional import weights_or_skip


def unit(rng, *shape):
    x = rng.standard_normal(shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@given(st.integers(1, 3), st.integers(2, 12), st.integers(1, 5), st.integers(0, 200))
def test_groups_of_patches_one_picture_at_a_time(num_pictures, num_patches, num, seed):
    num = min(num, num_patches)  # with more groups than patches the choice is a tie
    patches = unit(np.random.default_rng(seed), num_pictures, num_patches, 4)
    result = group_patches(torch.from_numpy(patches), num).numpy()
    for own, grouped in zip(patches, result, strict=True):
        centres = [own[0]]
        while len(centres) < num:
            centres.append(min(own, key=lambda p: max(float(p @ c) for c in centres)))
        for _ in range(6):
            group = [int(np.argmax([p @ c for c in centres])) for p in own]
            sums = [
                np.sum([p for p, g in zip(own, group, strict=True) if g == k], axis=0) + 1e-6 * centres[k]
                for k in range(num)
            ]
            centres = [total / np.linalg.norm(total) for total in sums]
        np.testing.assert_allclose(grouped, centres, atol=1e-6)
        np.testing.assert_allclose(group_vectors(own, num), centres, atol=1e-6)


def test_the_middle_of_a_frame_is_seen_whole():
    frames = np.zeros((1, 90, 160, 3), np.uint8)
    frames[:, 15:75, 40:120] = 255  # inside of the box that is cut out, which reaches from 11 to 79 and from 32 to 128
    shown = prepare(torch.from_numpy(frames))
    assert shown.shape == (1, 3, 224, 224)
    bright = (shown[0, 0] > 0).float()
    assert 0.6 < float(bright.mean()) < 0.9
    assert not bright[0].any()
    assert not bright[:, 0].any()
    assert prepare(torch.zeros(2, 3, 2, 3, dtype=torch.uint8)).isfinite().all()  # a video of three lines


def test_the_shipped_head():
    whole, patches = load_head()(torch.randn(2, 257, 384))
    assert (whole.shape, patches.shape) == ((2, 256), (2, 64, 256))
    torch.testing.assert_close(whole.norm(dim=1), torch.ones(2))
    torch.testing.assert_close(patches.norm(dim=2), torch.ones(2, 64))
    assert len(PictureHead().state_dict()) == 12


def test_another_file_is_refused(tmp_path):
    (tmp_path / "dinov2_vits14.onnx").write_bytes(b"something else")
    with pytest.raises(InputError, match="not the DINOv2 file"):
        load(tmp_path)


def test_a_file_of_another_network_is_refused(tmp_path):
    (tmp_path / "dinov2_vits14.onnx").write_bytes(linear_file())
    with pytest.raises(InputError, match="not those of a ViT-S/14"):
        load(tmp_path)


def test_the_real_network_on_both_paths(tmp_path):
    """torch computes what onnxruntime computes; with 8 bits, as a CPU runs it, nearly the same vectors."""
    folder = weights_or_skip("dinov2-text")
    network = load(folder)
    scene = np.random.default_rng(0).integers(0, 255, (1, 9, 16, 3)).astype(np.uint8).repeat(20, 1).repeat(20, 2)
    pictures = prepare(torch.from_numpy(scene))
    session = cpu_session(add_output((folder / "dinov2_vits14.onnx").read_bytes(), TOKENS))
    (expected,) = session.run([TOKENS], {"input": pictures.numpy()})
    with torch.inference_mode():
        tokens = network.network(pictures)
        exact, _ = network.head(tokens)
        row = network(pictures)
    torch.testing.assert_close(tokens, torch.from_numpy(expected), rtol=1e-3, atol=1e-3)
    assert row.shape == (1, (1 + NUM_PATCHES) * 256)
    assert float(torch.nn.functional.cosine_similarity(row[:, :256], exact)) > 0.95
    (tmp_path / "int8.onnx").write_bytes(b"made before")
    assert int8_model(b"", tmp_path / "int8.onnx") == b"made before"
