"""CLIP's tokenizer and text tower against versions that are written out."""

from __future__ import annotations

import gzip

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hiero.errors import InputError
from hiero.networks.text_encoders import TextEncoder
from hiero.networks.text_towers import END, START, build_tower, clip_tokenizer, to_transformers
from tests.conftest import close
from tests.oracle import clip as oracle

MERGES = [
    *("t h", "th e</w>", "i n", "in g</w>", "c u", "cu t", "cut s</w>"),
    *("o n", "on i", "oni on</w>", "o n</w>", "a</w> b", "1 2"),
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    file = tmp_path_factory.mktemp("clip") / "merges.txt.gz"
    with gzip.open(file, "wt", encoding="utf-8") as out:
        out.write("\n".join(["#version: 0.2", *MERGES]))
    return clip_tokenizer(file)


def expected_ids(text: str) -> list[int]:
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [*map(chr, printable), *(chr(256 + i) for i in range(256 - len(printable)))]
    words = [*letters, *(letter + "</w>" for letter in letters), *(m.replace(" ", "") for m in MERGES), START, END]
    bytes_ = [*printable, *(b for b in range(256) if b not in printable)]
    by_byte = dict(zip(bytes_, letters, strict=True))
    vocabulary = {word: i for i, word in enumerate(words)}
    inside = oracle.bpe(text, vocabulary, [tuple(m.split()) for m in MERGES], by_byte)
    return [vocabulary[START], *inside[:75], vocabulary[END]]


@pytest.mark.parametrize(
    "text", ["#C C cuts the onion", "cutting 12 onions on the board", "it's café ☕", "", "   ", "the " * 100]
)
def test_tokens_of_known_texts(tokenizer, text):
    assert tokenizer.encode(text).ids == expected_ids(text)


@given(
    st.text(
        alphabet=st.characters(codec="utf-8", categories=["Ll", "Lu", "Nd", "Zs", "Po", "Sm"], max_codepoint=0x24F),
        max_size=30,
    )
)
def test_tokens_of_any_text(tokenizer, text):
    import unicodedata

    text = unicodedata.normalize("NFC", text)
    assert tokenizer.encode(text).ids == expected_ids(text)


def random_tower(width=16, num_layers=2, context=77):
    vocabulary = len(MERGES) + 514
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator) * 0.2

    state = {"token_embedding.weight": draw(vocabulary, width), "positional_embedding": draw(context, width)}
    for name in ("ln_final", *(f"transformer.resblocks.{i}.ln_{j}" for i in range(num_layers) for j in (1, 2))):
        state |= {f"{name}.weight": 1 + draw(width), f"{name}.bias": draw(width)}
    for i in range(num_layers):
        block = f"transformer.resblocks.{i}"
        shapes = {"attn.out_proj": (width, width), "mlp.c_fc": (4 * width, width), "mlp.c_proj": (width, 4 * width)}
        state |= {f"{block}.attn.in_proj_weight": draw(3 * width, width), f"{block}.attn.in_proj_bias": draw(3 * width)}
        for name, shape in shapes.items():
            state |= {f"{block}.{name}.weight": draw(*shape), f"{block}.{name}.bias": draw(shape[0])}
    return state


def test_the_text_tower_equals_the_plain_version(tokenizer, tmp_path):
    state = random_tower()
    encoder = TextEncoder("clip", build_tower("clip", state, 2, tmp_path), tokenizer).eval()
    texts = ["#C C cuts the onion", "on", "the thing " * 60]
    for text in texts:
        ids, _ = encoder.tokenize([text])
        close(encoder.encode([text])[0], oracle.text_tower(state, ids, heads=2)[0], rtol=1e-4)
    # padding changes nothing
    close(encoder.encode(texts), torch.cat([encoder.encode([text]) for text in texts]), rtol=1e-4)


def test_weights_of_another_tower_are_refused():
    with pytest.raises(InputError, match=r"visual\.proj: not part of a CLIP text tower"):
        to_transformers({"visual.proj": torch.zeros(1)})
