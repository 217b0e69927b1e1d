"""Checkpoints in the layouts of their releases, small, with random weights."""

from __future__ import annotations

from pathlib import Path

import torch

from hiero.networks.spacetime import SpaceTimeTransformer
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
