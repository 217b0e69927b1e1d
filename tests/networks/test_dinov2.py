"""DINOv2 and the head that brings its pictures into one space with words."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hiero.errors import InputError
from hiero.networks.dinov2 import (
    FILE,
    NUM_PATCHES,
    TOKENS,
    PictureHead,
    add_output,
    add_to_weights,
    cpu_session,
    group_patches,
    int8_model,
    load,
    load_additions,
    load_head,
    prepare,
)
from hiero.networks.joint_text import HEAD_FILES
from hiero.storage.files import load_arrays, save_arrays
from hiero.vectors import group_vectors
from tests.networks.test_onnx_files import linear_file
from tests.optional import weights_or_skip


def unit(rng, *shape):
    x = rng.standard_normal(shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@given(st.integers(1, 3), st.integers(2, 12), st.integers(1, 5), st.integers(0, 200))
def test_grouped_patches_equal_a_loop(num_pictures, num_patches, num, seed):
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


def test_prepare_crops_the_middle():
    frames = np.zeros((1, 90, 160, 3), np.uint8)
    frames[:, 15:75, 40:120] = 255  # inside of the box that is cut out, which reaches from 11 to 79 and from 32 to 128
    shown = prepare(torch.from_numpy(frames))
    assert shown.shape == (1, 3, 224, 224)
    bright = (shown[0, 0] > 0).float()
    assert 0.6 < float(bright.mean()) < 0.9
    assert not bright[0].any()
    assert not bright[:, 0].any()
    assert prepare(torch.zeros(2, 3, 2, 3, dtype=torch.uint8)).isfinite().all()  # a video of three lines


def test_the_bundled_head_gives_unit_vectors():
    whole, patches = load_head(HEAD_FILES["research"])(torch.randn(2, 257, 384))
    assert (whole.shape, patches.shape) == ((2, 256), (2, 64, 256))
    torch.testing.assert_close(whole.norm(dim=1), torch.ones(2))
    torch.testing.assert_close(patches.norm(dim=2), torch.ones(2, 64))
    assert len(PictureHead().state_dict()) == 12


@pytest.mark.parametrize("content", [b"something else", linear_file()])
def test_another_file_is_refused(tmp_path, content):
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(InputError, match=FILE):
        load(tmp_path)


@pytest.mark.slow
def test_torch_and_onnxruntime_agree_on_the_released_network():
    """torch computes what onnxruntime computes; with 8 bits, as a CPU runs it, nearly the same vectors."""
    folder = weights_or_skip("dinov2-text")
    network = load(folder)
    scene = np.random.default_rng(0).integers(0, 255, (1, 9, 16, 3)).astype(np.uint8).repeat(20, 1).repeat(20, 2)
    pictures = prepare(torch.from_numpy(scene))
    file = add_output((folder / "dinov2_vits14.onnx").read_bytes(), TOKENS)
    session = cpu_session(add_to_weights(file, load_additions(HEAD_FILES["research"])))
    (expected,) = session.run([TOKENS], {"input": pictures.numpy()})
    with torch.inference_mode():
        tokens = network.network(pictures)
        exact, _ = network.head(tokens)
        row = network(pictures)
    torch.testing.assert_close(tokens, torch.from_numpy(expected), rtol=1e-3, atol=1e-3)
    assert row.shape == (1, (1 + NUM_PATCHES) * 256)
    assert float(torch.nn.functional.cosine_similarity(row[:, :256], exact)) > 0.95


def write_head(path, layers, rank=2):
    """A file of a head with random additions to layers, {name: (outputs, inputs)}."""
    rng, arrays = np.random.default_rng(rank), {"pooling": np.ones(1, np.float32)}
    for layer, (outputs, inputs) in layers.items():
        arrays[f"dinov2.{layer}.a"] = rng.normal(0, inputs**-0.5, (rank, inputs)).astype(np.float16)
        arrays[f"dinov2.{layer}.b"] = rng.normal(0, 0.3 * rank**-0.5, (outputs, rank)).astype(np.float16)
    save_arrays(path, arrays)
    return path


def run(model, name, x):
    return cpu_session(model).run([TOKENS], {name: x})[0]


def test_the_8_bit_file_belongs_to_a_head(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime.quantization", reason="needs onnx and onnxruntime, to quantise")
    (tmp_path / FILE).write_bytes(linear_file(TOKENS))
    heads = [write_head(tmp_path / "plain", {}), write_head(tmp_path / "tuned", {"head": (3, 4)})]
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    plain = run(add_output(linear_file(TOKENS), TOKENS), "x", x)
    arrays = load_arrays(heads[1], "dinov2.head.")
    tuned = plain + x @ (arrays["dinov2.head.b"].astype(np.float32) @ arrays["dinov2.head.a"].astype(np.float32)).T
    assert np.abs(tuned - plain).max() > 0.2
    for expected, head in zip([plain, tuned], heads, strict=True):
        with monkeypatch.context() as missing:
            missing.setitem(sys.modules, "onnxruntime.quantization", None)
            np.testing.assert_allclose(run(int8_model(tmp_path, head), "x", x), expected, atol=1e-6)
        np.testing.assert_allclose(run(int8_model(tmp_path, head), "x", x), expected, atol=0.1)
    stored = sorted(tmp_path.glob("*int8*"))
    assert len(stored) == 2
    for path in stored:
        path.write_bytes(path.name.encode())
    assert sorted(int8_model(tmp_path, head) for head in heads) == [path.name.encode() for path in stored]
