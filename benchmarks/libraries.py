"""How do our hand-written parts compare with libraries that do the same? docs/design.md has the decisions.

    python -m benchmarks.libraries [ROW …]     such as sentences, actions, swin, subtitles, elan, kmeans

Some rows need a library that is not in the extras: torchvision (`pip install --no-deps torchvision`;
the row shows the error if it cannot be imported). The weights are random, which are as fast. Times are
the best of several; ratios are of one run.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

TEXT = "cut the onion"
OURS = f"""
from hiero.storage import weights
from hiero.networks.minilm import MiniLM

MiniLM(weights.get("minilm")).encode(["{TEXT}"])
"""
THEIRS = f"""
import torch
from transformers import AutoModel, AutoTokenizer
from hiero.storage import weights
folder = weights.get("minilm")
tokens = AutoTokenizer.from_pretrained(folder)(["{TEXT}"], return_tensors="pt")
with torch.inference_mode():
    AutoModel.from_pretrained(folder, local_files_only=True)(**tokens)
"""


def process(code: str) -> tuple[float, float]:
    """Seconds and peak megabytes of a Python process, the fastest of three."""
    spent = []
    for _ in range(3):
        begin = time.perf_counter()
        measured = f"{code}\nimport resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        done = subprocess.run([sys.executable, "-c", measured], check=True, capture_output=True, text=True)
        spent.append((time.perf_counter() - begin, int(done.stdout.split()[-1]) / 1024))
    return min(spent)


@torch.inference_mode()
def fastest(run: Callable[[], object], num: int = 5) -> float:
    """Seconds of a call, the fastest of some after one to warm up."""
    run()
    spent = []
    for _ in range(num):
        begin = time.perf_counter()
        run()
        spent.append(time.perf_counter() - begin)
    return min(spent)


class PlainI3D(nn.Module):
    """Our I3D with torch's own 3-d convolutions in place of stacked 2-d ones: the same sums."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        from hiero.networks import i3d

        self.network, self.module = network, i3d

    def forward(self, frames: Tensor) -> Tensor:
        def convolve(unit: nn.Conv3d, x: Tensor) -> Tensor:
            kernel, stride = unit.kernel_size[0], unit.stride[0]
            x = x.transpose(1, 2)
            pads = [self.module.same_padding(size, kernel, stride) for size in reversed(x.shape[2:])]
            x = nn.functional.pad(x, [side for pair in pads for side in pair])
            return nn.functional.conv3d(x, unit.weight, unit.bias, stride).relu_().transpose(1, 2)

        unit_type = next(type(m) for m in self.network.modules() if isinstance(m, nn.Conv3d))
        original = unit_type.forward
        unit_type.forward = convolve  # type: ignore[method-assign]
        try:
            return self.network(frames)
        finally:
            unit_type.forward = original  # type: ignore[method-assign]


def sentences() -> str:
    (ours_s, ours_mb), (theirs_s, theirs_mb) = process(OURS), process(THEIRS)
    return (
        f"| one sentence, from a cold start | numpy: {ours_s:.2f} s, {ours_mb:.0f} MB "
        f"| transformers: {theirs_s:.2f} s, {theirs_mb:.0f} MB | {theirs_s / ours_s:.1f} |"
    )


def actions() -> str:
    from hiero.networks import i3d

    network, frames = i3d.untrained().eval(), torch.rand(1, 24, 3, i3d.SIZE, i3d.SIZE) * 2 - 1
    plain = PlainI3D(network).eval()
    with torch.inference_mode():
        torch.testing.assert_close(network(frames), plain(frames), rtol=1e-3, atol=1e-3)
    ours, theirs = fastest(lambda: network(frames)), fastest(lambda: plain(frames))
    return (
        f"| I3D, a window of 24 frames "
        f"| stacked 2-d convolutions: {ours:.2f} s "
        f"| torch's 3-d convolutions: {theirs:.2f} s | {theirs / ours:.1f} |"
    )


def swin() -> str:
    from hiero.networks import omnivore

    ours_network, clip = omnivore.untrained("B").eval(), torch.randn(1, 16, 3, 224, 224)
    ours = fastest(lambda: ours_network(clip), 3)
    begin = f"| Omnivore's Swin-B, a clip of 16 frames | {ours:.2f} s "
    try:
        from torchvision.models.video import swin3d_b

        theirs_network = swin3d_b().eval()
    except (ImportError, RuntimeError) as error:
        return f"{begin}| torchvision: {type(error).__name__}: {error} | |"
    theirs = fastest(lambda: theirs_network(clip.transpose(1, 2)), 3)
    return f"{begin}| torchvision's swin3d_b: {theirs:.2f} s | {theirs / ours:.1f} |"


def subtitles() -> str:
    import webvtt

    from hiero.formats.subtitles import parse_cues

    lines = (f"00:{i // 60:02}:{i % 60:02}.000 --> 00:{i // 60:02}:{i % 60:02}.900\nline {i}\n" for i in range(3000))
    content = "WEBVTT\n\n" + "\n".join(lines)
    assert len(parse_cues(content)) == len(webvtt.from_string(content)) == 3000
    ours, theirs = fastest(lambda: parse_cues(content)), fastest(lambda: webvtt.from_string(content))
    return f"| 3,000 cues of WebVTT | {ours:.3f} s | webvtt-py: {theirs:.3f} s | {theirs / ours:.1f} |"


def elan(num: int = 2000) -> str:
    from tempfile import TemporaryDirectory

    from pympi.Elan import Eaf

    from hiero.formats.elan import read_elan, to_elan
    from hiero.formats.registry import ImportSettings
    from hiero.types import Hierarchy, Step

    steps = tuple(Step(f"0.{i}", float(i), i + 1.0, thread=0, label=f"step {i}") for i in range(num))
    text = to_elan(Hierarchy("tea.mp4", "raw", float(num), (steps,)))
    with TemporaryDirectory() as folder:
        file = Path(folder) / "tea.eaf"
        file.write_text(text, encoding="utf-8")
        settings = ImportSettings(Path("tea.mp4"))
        ours, theirs = fastest(lambda: read_elan(text.encode(), settings)), fastest(lambda: Eaf(str(file)))
    return f"| {num} annotations of ELAN | {ours:.3f} s | pympi: {theirs:.3f} s | {theirs / ours:.1f} |"


# Points (N, D) in K clusters: the embedding of a spectral cut, and the nodes of videos
KMEANS_SIZES = ((3_600, 20, 20), (36_000, 20, 20), (1_800, 768, 20), (10_800, 768, 20))


def kmeans() -> str:
    """Points around random centres that follow each other in runs, as those of a video do."""
    from sklearn.cluster import KMeans

    from hiero.model.kmeans import kmeans as our_kmeans
    from hiero.model.spectral import KMEANS_ITERATIONS, KMEANS_RESTARTS

    rows = []
    for num, width, num_clusters in KMEANS_SIZES:
        rng = np.random.default_rng(0)
        cluster = rng.integers(num_clusters, size=-(-num // 20)).repeat(20)[:num]
        points = rng.standard_normal((num_clusters, width))[cluster] + 1.5 * rng.standard_normal((num, width))
        tensor = torch.from_numpy(points.astype(np.float32))[None]
        settings = {"num_restarts": KMEANS_RESTARTS, "num_iterations": KMEANS_ITERATIONS}
        theirs = KMeans(num_clusters, n_init=KMEANS_RESTARTS, max_iter=KMEANS_ITERATIONS, tol=0, random_state=0)
        ours_s = fastest(lambda: our_kmeans(tensor, num_clusters, **settings), 3)  # noqa: B023
        theirs_s = fastest(lambda: theirs.fit(tensor[0].numpy()), 3)  # noqa: B023
        rows.append(
            f"| K-Means, {num_clusters} clusters of ({num}, {width}) | {1e3 * ours_s:.0f} ms "
            f"| scikit-learn: {1e3 * theirs_s:.0f} ms | {theirs_s / ours_s:.1f} |"
        )
    return "\n".join(rows)


def main() -> None:
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}")
    print("| | ours | library | library / ours |\n|---|---|---|---|")
    for row in (sentences, actions, swin, subtitles, elan, kmeans):
        if len(sys.argv) == 1 or row.__name__ in sys.argv[1:]:
            print(row(), flush=True)
    print(f"peak of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
