"""Checkpoints in the layouts of their releases, small, with random weights."""

from __future__ import annotations

from pathlib import Path

import torch

from hiero.model.released import OMEGACONF, resolve_config
from hiero.networks.spacetime import SpaceTimeTransformer
from hiero.storage.pickles import read_torch
from tests.conftest import FIXTURES
from tests.networks.test_towers import randomise


def egovlp_with_words(path: Path, patch: int = 16) -> tuple[Path, dict, torch.nn.Module]:
    """egovlp.pth: visual tower, DistilBERT, both projections into 256 dimensions. → file, state, text tower

    Args:
        path: The file.
        patch: Side of a patch in pixels; the tower is fast where there are few.
    """
    from transformers import DistilBertConfig, DistilBertModel

    torch.manual_seed(0)
    text = DistilBertModel(DistilBertConfig(dim=64, hidden_dim=128, n_layers=1, n_heads=1)).eval()
    tower = randomise(SpaceTimeTransformer(64, 1, patch, (224 // patch) ** 2, 4))
    state = {f"module.video_model.{name}": value for name, value in tower.items()}
    state |= {f"module.text_model.{name}": value for name, value in text.state_dict().items()}
    state |= {"module.vid_proj.0.weight": torch.randn(256, 64), "module.vid_proj.0.bias": torch.zeros(256)}
    state |= {"module.txt_proj.1.weight": torch.randn(256, 64), "module.txt_proj.1.bias": torch.randn(256)}
    torch.save({"state_dict": state}, path)
    return path, state, text


def lavila_with_words(path: Path) -> tuple[Path, dict[str, torch.Tensor]]:
    """The file of LaViLa: TimeSformer, CLIP's text tower, both projections into 256 dimensions. → file, text tower"""
    torch.manual_seed(0)
    width = 64
    tower = randomise(SpaceTimeTransformer(64, 1, 14, 256, 4, clip=True))
    text = {
        "token_embedding.weight": torch.randn(49408, width) * 0.2,
        "positional_embedding": torch.randn(77, width) * 0.2,
        "ln_final.weight": torch.ones(width),
        "ln_final.bias": torch.zeros(width),
    }
    sizes = {"attn.in_proj": 3 * width, "attn.out_proj": width, "mlp.c_fc": 4 * width, "mlp.c_proj": width}
    for name, size in sizes.items():
        layer = f"transformer.resblocks.0.{name}{'_' if name.endswith('in_proj') else '.'}"
        text[f"{layer}weight"] = torch.randn(size, 4 * width if name == "mlp.c_proj" else width) * 0.2
        text[f"{layer}bias"] = torch.zeros(size)
    for name in ("ln_1", "ln_2"):
        text |= {f"transformer.resblocks.0.{name}.weight": torch.ones(width)}
        text |= {f"transformer.resblocks.0.{name}.bias": torch.zeros(width)}
    state = {f"module.visual.{name}": value for name, value in tower.items()}
    state |= {f"module.{name}": value for name, value in text.items()}
    state |= {"module.text_projection": torch.randn(width, 256), "module.image_projection": torch.randn(64, 256)}
    torch.save({"state_dict": state, "args": None}, path)
    return path, text


def hiero_checkpoint(path: Path, features: str, width: int, text: dict[str, torch.Tensor]) -> Path:
    """hiero_NAME.pth: the small network for features of a width, with a text tower inside, as the release saves it."""
    raw = read_torch(FIXTURES / "protocols/checkpoint/hiero_small.pth", opaque=OMEGACONF)
    config = resolve_config(raw["config"])
    config["features"] |= {"name": features, "size": width}
    is_clip = "token_embedding.weight" in text
    config["task"]["text_encoder"] = "clip" if is_clip else "distillbert"
    torch.manual_seed(1)
    task = {name: value for name, value in raw["task"].items() if not name.startswith("text_model.")}
    task["text_proj.0.weight"] = torch.randn(len(task["text_proj.0.weight"]), 64) * 0.1
    task |= {f"text_model.{name}": value for name, value in text.items()}
    model = raw["model"] | {"proj.1.weight": torch.randn(len(raw["model"]["proj.1.weight"]), width) * 0.1}
    torch.save({"model": model, "task": task, "optimizer": {}, "step": 1000, "config": config}, path)
    return path
