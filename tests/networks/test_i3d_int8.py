"""I3D in integers: as the network in single precision, up to the rounding of 8 bits. That network
is the slow twin.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from hiero.errors import InputError
from hiero.features.extractor import NUM_FRAMES
from hiero.media.decode import Sampling, read_segments
from hiero.networks import i3d_int8
from hiero.networks.i3d import I3D, SIZE, Unit, load, prepare
from hiero.networks.i3d_int8 import GraphBuilder, IntegerI3D
from tests.films import import_av
from tests.optional import weights_or_skip

pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'hiero-video[video]'")
pytest.importorskip("onnx", reason="needs onnx: pip install 'hiero-video[video]'")
pytestmark = pytest.mark.skipif(
    not i3d_int8.has_integer_products(), reason="this CPU has no products of 8-bit integers"
)
CLIP = Path(__file__).parents[3] / "shared" / "clips" / "ego_frying_2s.mp4"


@pytest.fixture(scope="module")
def network():
    """Random weights, such that every channel has about mean β and deviation 1, as after a batch normalisation."""
    torch.manual_seed(0)
    network = I3D().eval()
    for unit in network.modules():
        if isinstance(unit, Unit):
            torch.nn.init.normal_(unit.weight, std=(unit.weight[0].numel() / 2) ** -0.5)
            torch.nn.init.normal_(unit.bias, std=0.5)
    return network


def make_graph(network, num_frames, size):
    state = {name: value.numpy() for name, value in network.state_dict().items()}
    means = {
        name.removeprefix("layers.").removesuffix(".bias"): value
        for name, value in state.items()
        if name.endswith("bias")
    }
    return GraphBuilder(state, means).build(num_frames, size)


def pooled(network, clips):
    """The slow twin."""
    with torch.inference_mode():
        for layer in network.layers.values():
            clips = layer(clips)
        return clips.mean((3, 4))


@pytest.mark.slow
@pytest.mark.parametrize(("num_frames", "size"), [(9, 37), (16, 64)])
def test_integer_features_are_close_to_single_precision(network, tmp_path, num_frames, size):
    """Also where lengths and sizes are odd, and padding differs on both sides."""
    integer = IntegerI3D(lambda: make_graph(network, num_frames, size), tmp_path / "i3d.onnx", num_frames, size)
    torch.manual_seed(1)
    colours, motion = torch.randn(4, 1, 3, 1, 1), torch.randn(4, num_frames, 3, size, size)
    clips = (0.7 * colours + 0.4 * motion).clamp(-1, 1)
    actual, expected = integer(clips), pooled(network, clips)
    assert actual.shape == expected.shape
    mean = expected.mean((0, 1))
    assert F.cosine_similarity(actual - mean, expected - mean, dim=-1).min() > 0.95
    assert (actual - expected).abs().mean() < 0.05 * expected.abs().mean()


@pytest.mark.slow
def test_the_graph_is_stored_and_a_damaged_one_is_rebuilt(network, tmp_path):
    path, built = tmp_path / "i3d.onnx", []

    def make():
        built.append(1)
        return make_graph(network, 8, 32)

    clip = torch.zeros(1, 8, 3, 32, 32)
    first = IntegerI3D(make, path, 8, 32)(clip)
    assert torch.equal(IntegerI3D(make, path, 8, 32)(clip), first)
    assert len(built) == 1
    path.write_bytes(b"damaged")
    assert torch.equal(IntegerI3D(make, path, 8, 32)(clip), first)
    assert len(built) == 2


def test_a_graph_that_does_not_run_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="cannot run"):
        IntegerI3D(lambda: b"damaged", tmp_path / "i3d.onnx", 8, 32)


def test_random_weights_are_not_quantised(network):
    with pytest.raises(InputError, match="published"):
        i3d_int8.use_integers(network, 24)


@pytest.mark.slow
@pytest.mark.skipif(not CLIP.is_file(), reason="needs shared/clips")
def test_integer_scores_of_a_real_clip():
    import_av()
    (segment, *_) = read_segments(CLIP, Sampling(spacing_s=2.0, num_frames=NUM_FRAMES, short_side=260))
    clip = prepare(torch.from_numpy(segment.frames))[None]
    network = load(weights_or_skip("i3d-k400"))
    with torch.inference_mode():
        expected = network(clip)
        i3d_int8.use_integers(network, NUM_FRAMES)
        actual = network(clip)
        other_size = network(torch.zeros(1, 8, 3, 64, 64))  # not what the integers are for
    assert clip.shape[1:] == (NUM_FRAMES, 3, SIZE, SIZE)
    assert F.cosine_similarity(actual, expected).item() > 0.99
    assert actual.argmax() == expected.argmax()
    assert other_size.shape == (1, 400)
    assert np.isfinite(other_size.numpy()).all()
