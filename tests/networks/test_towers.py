"""The paper's backbones with small random weights in the layouts of their releases."""

from __future__ import annotations

import pytest
import torch

from hiero.errors import InputError
from hiero.networks import egovlp, lavila, omnivore
from hiero.networks.registry import IMAGENET
from hiero.networks.spacetime import SpaceTimeTransformer, fill_frames
from hiero.storage.checkpoints import read_state_dict
from tests.conftest import close
from tests.oracle import towers


def randomise(module, scale=0.15):
    generator = torch.Generator().manual_seed(0)
    state = {name: torch.randn(value.shape, generator=generator) * scale for name, value in module.state_dict().items()}
    for name in state:
        if "norm" in name and name.endswith("weight"):
            state[name] += 1
    return state


def egovlp_state():
    tower = randomise(SpaceTimeTransformer(128, 2, 8, 9, 4))
    out = {f"module.video_model.{name}": value for name, value in tower.items()}
    out |= {"module.vid_proj.0.weight": torch.randn(16, 128), "module.vid_proj.0.bias": torch.randn(16)}
    out |= {
        "module.txt_proj.1.weight": torch.randn(16, 128),
        "module.text_model.embeddings.word_embeddings.weight": torch.randn(5, 128),
    }
    return out


def lavila_state():
    tower = randomise(SpaceTimeTransformer(128, 2, 8, 9, 4, clip=True))
    out = {f"module.visual.{name}": value for name, value in tower.items()}
    return out | {
        "module.image_projection": torch.randn(128, 16),
        "module.logit_scale": torch.zeros(()),
        "module.text_projection": torch.randn(8, 16),
    }


def omnivore_state(window=(2, 7, 7), depths=(2, 2), width=32):
    state = randomise(omnivore.Omnivore(width, depths, window))
    for name in [name for name in state if name.endswith("bias_table")]:
        state[name] = torch.randn(state[name].shape)
        state[name.replace("bias_table", "index")] = torch.zeros(3, 3, dtype=torch.long)  # a buffer of the release
    state["depth_patch_embed.proj.weight"] = torch.randn(width, 1, 2, 4, 4)
    return state


def save(path, content):
    torch.save(content, path)
    return path


@pytest.mark.parametrize("frames", [1, 3, 4])
def test_egovlp_equals_the_plain_version(tmp_path, frames):
    state = egovlp_state()
    tower = egovlp.load(save(tmp_path / "egovlp.pth", {"state_dict": state, "epoch": 3}))
    x = torch.randn(2, frames, 3, 24, 24)
    plain = {name.removeprefix("module.video_model."): value for name, value in state.items() if "video_model" in name}
    with torch.no_grad():
        expected = torch.stack([towers.spacetime(plain, window) for window in x])
        close(tower.transformer(x), expected, atol=1e-4)
        close(tower(x), expected @ state["module.vid_proj.0.weight"].T + state["module.vid_proj.0.bias"], atol=1e-3)
        close(egovlp.load(tmp_path, project=False)(x), expected, atol=1e-4)  # a folder that holds one file


def test_lavila_equals_the_plain_version(tmp_path):
    state = lavila_state()
    tower = lavila.load(save(tmp_path / "lavila.pth", {"state_dict": state, "args": None}))
    x = torch.randn(2, 4, 3, 24, 24)
    plain = {name.removeprefix("module.visual."): value for name, value in state.items() if ".visual." in name}
    with torch.no_grad():
        expected = torch.stack([towers.spacetime(plain, window) for window in x])
        close(tower(x), expected @ state["module.image_projection"], atol=1e-3)


@pytest.mark.parametrize(
    ("window", "shape"),
    [
        ((2, 7, 7), (4, 56, 56)),  # shifted in all directions
        ((8, 7, 7), (6, 28, 28)),  # one window in time, cut short
        ((2, 7, 7), (8, 40, 28)),  # padded to whole windows, odd merging
    ],
)
def test_omnivore_equals_the_plain_version(tmp_path, window, shape):
    state = omnivore_state(window)
    trunk = omnivore.load(
        save(tmp_path / "swin.torch", {"trunk": state, "heads": {"image.weight": torch.randn(3, 64)}})
    )
    x = torch.randn(1, shape[0], 3, *shape[1:])
    with torch.no_grad():
        close(trunk(x)[0], towers.omnivore(state, x[0], window), rtol=1e-3, atol=1e-3)


def test_the_results_of_a_batch_are_those_of_its_members(tmp_path):
    trunk = omnivore.load(save(tmp_path / "o.pth", omnivore_state()))
    tower = egovlp.load(save(tmp_path / "e.pth", egovlp_state()))
    clips, windows = torch.randn(3, 4, 3, 56, 56), torch.randn(3, 4, 3, 24, 24)
    with torch.no_grad():
        close(trunk(clips), torch.cat([trunk(clip[None]) for clip in clips]), atol=1e-4)
        close(tower(windows), torch.cat([tower(window[None]) for window in windows]), atol=1e-4)


def test_temporal_embeddings_for_other_numbers_of_frames():
    embedding = torch.tensor([[[0.0], [4.0]]])
    assert fill_frames(embedding, 1, "zeros").flatten().tolist() == [0]
    assert fill_frames(embedding, 4, "zeros").flatten().tolist() == [0, 4, 0, 0]
    assert fill_frames(embedding, 4, "interpolate").flatten().tolist() == [0, 1, 3, 4]  # halves of pixels, as LaViLa


def test_more_frames_than_the_release_saw(tmp_path):
    path = save(tmp_path / "e.pth", egovlp_state())
    with torch.no_grad():
        assert egovlp.load(path, num_frames=16)(torch.randn(1, 16, 3, 24, 24)).shape == (1, 16)
        with pytest.raises(InputError, match="at most 4 frames, got 16"):
            egovlp.load(path)(torch.randn(1, 16, 3, 24, 24))
        with pytest.raises(InputError, match="must have 9 patches"):
            egovlp.load(path)(torch.randn(1, 4, 3, 32, 32))


@pytest.mark.parametrize(
    "nest",
    [lambda s: s, lambda s: {"model": s}, lambda s: {"state_dict": {"model": s}, "optimizer": {"x": torch.ones(1)}}],
)
def test_nested_state_dicts_are_found(tmp_path, nest):
    path = save(tmp_path / "e.pth", nest(egovlp_state()))
    assert "video_model.cls_token" in read_state_dict(path)
    assert len(read_state_dict(path)) == len(egovlp_state())


def test_unexpected_parameters_are_named(tmp_path):
    state = egovlp_state()
    state["module.video_model.blocks.0.extra.weight"] = torch.zeros(1)
    del state["module.video_model.norm.bias"]
    with pytest.raises(InputError, match=r"missing: .*norm\.bias; unexpected: .*blocks\.0\.extra\.weight"):
        egovlp.load(save(tmp_path / "e.pth", state))
    with pytest.raises(InputError, match="not LaViLa's visual tower"):
        lavila.load(tmp_path / "e.pth")
    with pytest.raises(InputError, match="not Omnivore's trunk"):
        omnivore.load(tmp_path / "e.pth")
    state = omnivore_state()
    state["layers.0.blocks.0.attn.qkv.weight"] = torch.zeros(3, 3)
    with pytest.raises(InputError, match=r"layers\.0\.blocks\.0\.attn\.qkv\.weight \(3, 3\) instead of \(96, 32\)"):
        omnivore.load(save(tmp_path / "o.pth", state))
    with pytest.raises(InputError, match="holds 2 checkpoints"):
        omnivore.load(tmp_path)


def test_frames_as_the_releases_prepare_them():
    frames = torch.zeros(1, 256, 400, 3, dtype=torch.uint8)
    frames[:, 16:240, 88:312] = torch.tensor([255, 0, 51], dtype=torch.uint8)  # the middle 224 × 224
    x = omnivore.prepare(frames)
    assert x.shape == (1, 3, 224, 224)
    close(x[0, :, 0, 0], (torch.tensor([1, 0, 0.2]) - torch.tensor(IMAGENET[0])) / torch.tensor(IMAGENET[1]))
    assert (x == x[:, :, :1, :1]).all()
    x = egovlp.prepare(frames)  # 256 of the middle, scaled to 224: the frame around it is seen
    assert x.shape == (1, 3, 224, 224)
    assert x[0, 0, 0, 0] == pytest.approx(-0.485 / 0.229, abs=1e-4)
    assert x[0, 0, 112, 112] == pytest.approx((1 - 0.485) / 0.229, abs=1e-4)
    x = lavila.prepare(frames[:, 16:240])
    close(x[0, :, 5, 5], (torch.tensor([255, 0, 51.0]) - torch.tensor(lavila.MEAN)) / torch.tensor(lavila.DEVIATION))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("frames", [1, 4, 16])
def test_kernels_equal_torch(frames):
    """bfloat16 on a GPU against float32 on a CPU, with weights of a trained tower's size."""
    tower = SpaceTimeTransformer(128, 2, 8, 9, 16, clip=True)
    tower.load_state_dict(randomise(tower, 0.05))
    x = torch.randn(2, frames, 3, 24, 24)
    with torch.inference_mode():
        expected = tower(x)
        output = tower.to("cuda", torch.bfloat16)(x.to("cuda", torch.bfloat16)).float().cpu()
    assert torch.nn.functional.cosine_similarity(output, expected).min() > 0.999
    close(output, expected, rtol=0.05, atol=0.05)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("along", ["time", "space"])
@pytest.mark.parametrize(("frames", "patches"), [(1, 9), (4, 256), (16, 196), (7, 5)])
def test_the_attention_kernel_equals_torch(frames, patches, along):
    from hiero.networks.video_kernels import divided_attention

    qkv = torch.randn(3, 1 + frames * patches, 3 * 128, device="cuda", dtype=torch.bfloat16)
    with torch.inference_mode():
        output = divided_attention(qkv, frames, 2, along)[:, 1:].float()
        q, k, v = qkv.float().unflatten(-1, (3, 2, 64)).permute(2, 0, 3, 1, 4)
        token = torch.arange(frames * patches, device="cuda")
        group = token % patches if along == "time" else token // patches
        visible = torch.cat([torch.ones(len(token), 1, dtype=torch.bool, device="cuda"), group[:, None] == group], 1)
        expected = torch.nn.functional.scaled_dot_product_attention(q[:, :, 1:], k, v, attn_mask=visible)
    close(output, expected.transpose(1, 2).flatten(2), rtol=0.02, atol=0.02)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize(
    ("window", "shape"), [((2, 7, 7), (8, 56, 56)), ((8, 7, 7), (16, 112, 56)), ((16, 7, 7), (8, 28, 28))]
)
def test_the_window_kernel_equals_torch(window, shape):
    trunk = omnivore.Omnivore(64, (2, 2), window)
    trunk.load_state_dict(randomise(trunk, 0.05))
    x = torch.randn(2, shape[0], 3, *shape[1:])
    with torch.inference_mode():
        expected = trunk(x)
        output = trunk.to("cuda", torch.bfloat16)(x.to("cuda", torch.bfloat16)).float().cpu()
    assert torch.nn.functional.cosine_similarity(output, expected).min() > 0.999
    close(output, expected, rtol=0.05, atol=0.05)
