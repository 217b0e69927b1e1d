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
    """Write the clips one after the other; where each begins, and the end."""
    import av

    ends = [0.0]
    with av.open(str(path), "w") as out:
        stream = out.add_stream("mpeg4", rate=rate)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = width, height, "yuv420p", 4_000_000
        for clip in clips:
            with av.open(str(clip)) as held:
                frames = [
                    (float(f.pts * f.time_base), f.reformat(width, height, "rgb24").to_ndarray()) for f in held.decode(video=0)
                ]
            times = np.array([time_s for time_s, _ in frames]) - frames[0][0]
            num = int((times[-1] + np.median(np.diff(times))) * rate)
            for i in range(num):
                shown = max(0, int(np.searchsorted(times, i / rate, side="right")) - 1)
                for packet in stream.encode(av.VideoFrame.from_ndarray(frames[shown][1], "rgb24")):
                    out.mux(packet)
            ends.append(ends[-1] + num / rate)
        for packet in stream.encode():
            out.mux(packet)
    return ends


def find_clips(folder: Path) -> list[Path]:
    """The clips that CAPTIONS are about, in that order."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".mp4", ".gif"))
    return [next(path for path in files if name in path.name) for name in CAPTIONS]


def across_clips(folder: Path) -> None:
    """Captions against the vectors of whole clips, as `hiero search` compares them: the model's part, that of class names, both."""
    engine = load(backbone="default")
    videos = [engine.read(clip) for clip in find_clips(folder)]
    vectors = np.concatenate([video.embed_spans(np.array([[0, len(video.nodes)]])) for video in videos])
    captions = [caption for group in CAPTIONS.values() for caption in group]
    which = np.repeat(np.arange(len(CAPTIONS)), [len(group) for group in CAPTIONS.values()])
    queries = engine.embed_queries(captions)
    own = videos[0].nodes.shape[1]
    for name, part in (("model", slice(0, own)), ("class names", slice(own, None)), ("both", slice(None))):
        x = vectors[:, part] / np.linalg.norm(vectors[:, part], axis=1, keepdims=True)
        right = (queries[:, part] @ x.T).argmax(1) == which
        print(f"{name}: {right.sum()} of {len(right)} captions find their clip first; chance {len(right) / len(videos):.0f}")


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
        ends = join_clips(find_clips(args.folder), joined)
        video = load(backbone="default").read(joined, cache=False)
    found = next(level for level in video.steps().levels if len(level) == len(CAPTIONS))
    print(f"joins at {ends[1:-1]}, steps begin at {[step.start_s for step in found[1:]]}")
    captions = [caption for group in CAPTIONS.values() for caption in group]
    which = np.repeat(np.arange(len(CAPTIONS)), [len(group) for group in CAPTIONS.values()])
    texts = video.engine.encode(captions)
    parts = {"model": [NodeEvidence(video.nodes, 1.0)]}
    parts |= {name: [part] for name, part in zip(CLASS_NAMES, video.evidence[1:], strict=True)}
    parts["all"] = video.evidence
    print(f"| | {' | '.join(CAPTIONS)} | all captions |\n" + "|---" * (len(CAPTIONS) + 2) + "|")
    for name, evidence in parts.items():
        ranked = rank_spans(text_similarity(evidence, *texts), video.spans, video.clock.spacing_s)
        middle = np.array([video.spans[places[0]].mean() for places, _ in ranked])
        right = np.searchsorted(ends, middle, side="right") - 1 == which
        cells = [f"{right[which == i].sum()} of {(which == i).sum()}" for i in range(len(CAPTIONS))]
        print(f"| {name} | {' | '.join(cells)} | {right.sum()} of {len(right)} |")


if __name__ == "__main__":
    main()
