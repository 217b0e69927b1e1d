"""A hub's file of the same tensors becomes the file of the package index, byte for byte, or is not used."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import tempfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiero.errors import InputError
from hiero.storage import weights
from hiero.storage.files import ASSETS, load_arrays, save_arrays
from hiero.storage.weights import fill_template
from tests.optional import weights_or_skip

TEMPLATE = ASSETS / weights.REGISTRY["dinov2-text"].template


def make_template(path, content, slots):
    document = {"content": base64.b64encode(content).decode(), "slots": slots}
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


@given(
    st.lists(st.tuples(st.binary(max_size=5), st.integers(1, 4), st.integers(1, 4), st.booleans()), max_size=5),
    st.binary(),
)
def test_a_template_is_filled_with_tensors(parts, last):
    content, slots, tensors, expected = b"", [], {}, b""
    for i, (part, rows, columns, transpose) in enumerate(parts):
        values = np.random.default_rng(i).normal(size=(rows, columns)).astype(np.float32)
        content += part
        names = [f"{i}.top", f"{i}.bottom"]
        slots.append({"offset": len(content), "tensors": names, "transpose": transpose, "skip": 1})
        tensors |= {f"{i}.top": values, f"{i}.bottom": -values}
        both = np.vstack([values, -values])
        expected += part + (both.T if transpose else both).tobytes()[4:]
    with tempfile.TemporaryDirectory() as folder:
        template = make_template(Path(folder) / "t", content + last, slots)
        assert fill_template(template, tensors) == expected + last


@pytest.fixture(scope="module")
def hub_tensors():
    """DINOv2's tensors under the hub's names, out of the file of the package index."""
    file = (weights_or_skip("dinov2-text") / "dinov2_vits14.onnx").read_bytes()
    document = json.loads(gzip.decompress(TEMPLATE.read_bytes()))
    content, slots = base64.b64decode(document["content"]), document["slots"]
    ends = [*(slot["offset"] for slot in slots[1:]), len(content)]
    tensors, position, offset = {}, 0, 0
    for slot, end in zip(slots, ends, strict=True):
        position += slot["offset"] - offset
        offset = slot["offset"]
        after = content[offset:end]
        length = file.index(after, position) - position if after else 0
        values = np.frombuffer(file[position : position + length], np.float32)
        position += length
        name = slot["tensors"][0]
        if slot["transpose"]:
            values = values.reshape(-1, 1536 if "fc1" in name else 1152 if "query" in name else 384).T
        elif "projection.weight" in name:
            values = values.reshape(384, 3, 14, 14)
        elif "cls_token" in name:
            values = values.reshape(1, 1, 384)
        elif "position" in name:  # the file holds the first token's position as that token: they are equal
            values = np.concatenate([tensors["embeddings.cls_token"][0], values.reshape(-1, 384)])[None]
        parts = np.split(values, len(slot["tensors"]))
        tensors |= {each: np.ascontiguousarray(part) for each, part in zip(slot["tensors"], parts, strict=True)}
    return tensors | {"embeddings.mask_token": np.zeros((1, 384), np.float32)}


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The folder of DINOv2 on a hub of this machine."""
    folder = tmp_path / "hub" / "facebook" / "dinov2-small" / "resolve" / "main"
    folder.mkdir(parents=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=tmp_path / "hub"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(weights, "package_indexes", list)  # no other source
    yield folder
    server.shutdown()
    server.server_close()


def test_dinov2_from_a_hub(hub, hub_tensors):
    save_arrays(hub / "model.safetensors", hub_tensors)
    file = weights.get("dinov2-text") / "dinov2_vits14.onnx"
    assert hashlib.sha256(file.read_bytes()).hexdigest() == weights.REGISTRY["dinov2-text"].files[file.name][1]


@pytest.mark.slow
@pytest.mark.parametrize("change", ["a number", "a name"])
def test_another_file_of_the_hub_is_not_used(hub, hub_tensors, change):
    changed = dict(hub_tensors)
    if change == "a number":
        changed["layernorm.bias"] = changed["layernorm.bias"] + 1e-6
    else:
        changed["norm.bias"] = changed.pop("layernorm.bias")
    save_arrays(hub / "model.safetensors", changed)
    with pytest.raises(InputError, match="dinov2-text"):
        weights.get("dinov2-text")
    assert weights.find("dinov2-text") is None


@pytest.mark.slow
def test_names_are_those_that_transformers_reads(hub_tensors, tmp_path):
    """And the network is the same: tokens of a picture agree but for how positions are interpolated."""
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    torch = pytest.importorskip("torch")
    from hiero.networks.dinov2 import TOKENS, add_output

    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    save_arrays(tmp_path / "model.safetensors", hub_tensors)
    config = transformers.Dinov2Config(
        hidden_size=384, num_attention_heads=6, num_hidden_layers=12, image_size=518, patch_size=14
    )
    config.save_pretrained(tmp_path)
    model, info = transformers.Dinov2Model.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    x = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = model(x).last_hidden_state[0].numpy()
    onnx_file = fill_template(TEMPLATE, load_arrays(tmp_path / "model.safetensors"))
    session = runtime.InferenceSession(add_output(onnx_file, TOKENS), providers=["CPUExecutionProvider"])
    (tokens,) = session.run([TOKENS], {"input": x.numpy()})
    cosines = (tokens[0] * expected).sum(1) / np.linalg.norm(tokens[0], axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() > 0.98
