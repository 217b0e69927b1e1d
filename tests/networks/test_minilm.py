"""BERT's forward pass, against transformers'."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hiero.networks import minilm
from hiero.storage.files import save_tensors
from tests.conftest import close
from tests.optional import skip_without

skip_without("transformers", "needs transformers: pip install 'hiero-video[text]'")


class Encoded:
    def __init__(self, ids, longest):
        self.ids, self.attention_mask = ids + [0] * (longest - len(ids)), [1] * len(ids) + [0] * (longest - len(ids))


class Letters:
    def encode_batch(self, texts):
        rows = [[1, *(2 + ord(c) % 40 for c in text[:30])] for text in texts]
        return [Encoded(row, max(map(len, rows))) for row in rows]


@pytest.fixture(scope="module")
def towers(tmp_path_factory):
    torch.manual_seed(0)
    import transformers

    sizes = {"vocab_size": 50, "hidden_size": 24, "intermediate_size": 32, "max_position_embeddings": 40}
    config = transformers.BertConfig(num_hidden_layers=2, num_attention_heads=12, **sizes)
    theirs = transformers.BertModel(config).eval()
    for p in theirs.parameters():
        torch.nn.init.normal_(p, std=0.3)
    folder = tmp_path_factory.mktemp("minilm")
    save_tensors(folder / "model.safetensors", theirs.state_dict())
    (folder / "tokenizer.json").write_text("")
    patch = pytest.MonkeyPatch()
    patch.setattr(minilm, "word_pieces", lambda _: Letters())
    yield minilm.MiniLM(folder), minilm.MiniLM(folder, "cpu"), theirs
    patch.undo()


@settings(max_examples=20)
@given(texts=st.lists(st.text("abcdefgh ", min_size=1, max_size=40), min_size=1, max_size=6))
def test_the_vectors_equal_those_of_transformers(towers, texts):
    plain, with_torch, theirs = towers
    encodings = Letters().encode_batch(texts)
    ids, mask = torch.tensor([e.ids for e in encodings]), torch.tensor([e.attention_mask for e in encodings])
    with torch.no_grad():
        hidden = theirs(input_ids=ids, attention_mask=mask).last_hidden_state
    weight = mask[..., None].float()
    expected = torch.nn.functional.normalize((hidden * weight).sum(1) / weight.sum(1), dim=-1)
    for ours in (plain, with_torch):
        close(torch.from_numpy(ours.encode(texts, batch_size=2)), expected, rtol=1e-4, atol=1e-5)
