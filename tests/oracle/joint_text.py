"""MiniLM with learned additions to its layers, by transformers."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from hiero.storage import weights

MAX_TOKENS = 40


def encode_texts(texts: list[str], additions: dict[str, Tensor]) -> Tensor:
    """Unit vectors (N, 384) of texts, with LAYER.b @ LAYER.a added to the weight of each layer."""
    from tokenizers import Tokenizer
    from transformers import BertModel

    folder = weights.get("minilm")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.enable_padding(pad_id=0)
    bert = BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    encoded = tokenizer.encode_batch(texts)
    mask = torch.tensor([text.attention_mask for text in encoded])
    with torch.inference_mode():
        for name in [name.removesuffix(".a") for name in additions if name.endswith(".a")]:
            bert.get_submodule(name).weight += additions[f"{name}.b"] @ additions[f"{name}.a"]
        hidden = bert(torch.tensor([text.ids for text in encoded]), mask).last_hidden_state
    return F.normalize((hidden * mask[..., None]).sum(1), dim=-1)
