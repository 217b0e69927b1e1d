"""Words on real pictures: short clips joined with cuts, and whether captions find their clip.

    python -m benchmarks.clips ../shared/clips
    python -m benchmarks.clips ../shared/clips --apart     the clips as four videos of a corpus: which one do captions find?

What each part of the evidence finds alone, and all together as `hiero ask` has it. Few clips, so this is a check, not a score.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from hiero.engine import CLASS_NAMES, load
from hiero.steps.grounding import rank_spans
from hiero.steps.similarity import NodeEvidence, text_similarity

CAPTIONS = {
    "frying": [
        "frying food in a pan", "a person cooks in a frying pan", "frying", "cooking food on the stove", "stirring food in a pan",
    ],
    "blender": [
        "preparing a sauce in a blender", "a chef makes a sauce with a blender", "blending", "using a blender",
        "making a smoothie in a mixer", "chef preparing a sauce in a blender",
    ],
    "dough": ["kneading dough", "hands knead dough on a table", "hands of a baker kneading a dough", "making bread dough"],
    "loaf": [
        "cutting a loaf of bread into slices", "a baker slices bread with a knife", "slicing bread",
        "pastry chef cutting a loaf into slices", "cutting bread",
    ],
}  # fmt: skip


def join_clips(clips: list[Path], path: Path, width: int = 480, height: int = 270, rate: int = 25) -> list[float]:
    """Write the clips one after the other into a video of constant rate; returns where each begins, and the end, in seconds."""
    import av

    boundaries = [0.0]
    with av.open(str(path), "w") as out:
        stream = out.add_stream("mpeg4", rate=rate)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = width, height, "yuv420p", 4_000_000
        for clip in clips:
            with av.open(str(clip)) as container:
                frames = [
                    (float(f.pts * f.time_base), f.reformat(width, height, "rgb24").to_ndarray()) for f in container.decode(video=0)
                ]
            times_s = np.array([time_s for time_s, _ in frames]) - frames[0][0]
            num_frames = int((times_s[-1] + np.median(np.diff(times_s))) * rate)
            for i in range(num_frames):
                index = max(0, int(np.searchsorted(times_s, i / rate, side="right")) - 1)  # the frame that is shown at i / rate
                for packet in stream.encode(av.VideoFrame.from_ndarray(frames[index][1], "rgb24")):
                    out.mux(packet)
            boundaries.append(boundaries[-1] + num_frames / rate)
        for packet in stream.encode():
            out.mux(packet)
    return boundaries


def find_clips(folder: Path) -> list[Path]:
    """The clips that CAPTIONS are about, in that order."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".mp4", ".gif"))
    return [next(path for path in files if name in path.name) for name in CAPTIONS]


def all_captions() -> tuple[list[str], np.ndarray]:
    """All captions, and the clip that each describes."""
    captions = [caption for group in CAPTIONS.values() for caption in group]
    return captions, np.repeat(np.arange(len(CAPTIONS)), [len(group) for group in CAPTIONS.values()])


def across_clips(folder: Path) -> None:
    """Captions against the vectors of whole clips, as `hiero search` compares them: the model's part, that of class names, both."""
    engine = load(backbone="default")
    videos = [engine.read(clip) for clip in find_clips(folder)]
    vectors = np.concatenate([video.embed_spans(np.array([[0, len(video.nodes)]])) for video in videos])
    captions, owners = all_captions()
    queries = engine.embed_queries(captions)
    size = videos[0].nodes.shape[1]  # of the model's part, which comes first
    for name, part in (("model", slice(0, size)), ("class names", slice(size, None)), ("both", slice(None))):
        x = vectors[:, part] / np.linalg.norm(vectors[:, part], axis=1, keepdims=True)
        correct = (queries[:, part] @ x.T).argmax(1) == owners
        print(f"{name}: {correct.sum()} of {len(correct)} captions find their clip first; chance {len(correct) / len(videos):.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--apart", action="store_true")
    args = parser.parse_args()
    if args.apart:
        across_clips(args.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        joined = Path(folder) / "joined.mp4"
        boundaries = join_clips(find_clips(args.folder), joined)
        video = load(backbone="default").read(joined, cache=False)
    steps = next(level for level in video.steps().levels if len(level) == len(CAPTIONS))
    print(f"joins at {boundaries[1:-1]}, steps begin at {[step.start_s for step in steps[1:]]}")
    captions, owners = all_captions()
    texts = video.engine.encode(captions)
    parts = {"model": [NodeEvidence(video.nodes, 1.0)]}
    parts |= {name: [part] for name, part in zip(CLASS_NAMES, video.evidence[1:], strict=True)}
    parts["all"] = video.evidence
    print(f"| | {' | '.join(CAPTIONS)} | all captions |\n" + "|---" * (len(CAPTIONS) + 2) + "|")
    for name, evidence in parts.items():
        ranked = rank_spans(text_similarity(evidence, *texts), video.spans, video.clock.spacing_s)
        # A caption finds its clip if the middle of its best span lies in it. Nodes are a second apart.
        middle = np.array([video.spans[indices[0]].mean() for indices, _ in ranked])
        correct = np.searchsorted(boundaries, middle, side="right") - 1 == owners
        cells = [f"{correct[owners == i].sum()} of {(owners == i).sum()}" for i in range(len(CAPTIONS))]
        print(f"| {name} | {' | '.join(cells)} | {correct.sum()} of {len(correct)} |")


if __name__ == "__main__":
    main()
