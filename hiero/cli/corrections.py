"""hiero import-steps and adapt: import steps from annotation tools, and learn from corrected steps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

import hiero
from hiero.cli.console import echo, log
from hiero.cli.options import Flag, Join, OptionalOut, Out, Repeated, VideoOptions, parse_hz
from hiero.errors import InputError
from hiero.formatting import format_count
from hiero.storage.files import write_bytes
from hiero.types import Clock

if TYPE_CHECKING:
    from hiero.media.source import VideoSource


@Parameter(name="*")
@dataclass(frozen=True)
class StepFileOptions:
    """How the file is read."""

    tier: Repeated = None
    """ELAN tier to read, from coarse to fine. Repeatable. Defaults to all tiers with annotations."""
    fps: float | None = None
    """Frame rate in the annotation tool. Defaults to 25 for Label Studio, and to the rate in the file or of the video
    for FiftyOne."""
    cut_overlaps: Flag = False
    """End a step where the next one starts. Otherwise steps that overlap are an error."""
    hz: float | None = None
    """Rows per second of a feature file. Defaults to the rate stored with the file, or 1."""


def import_steps(
    file: Path,
    /,
    *,
    video: Path,
    out: OptionalOut = None,
    replace: Flag = False,
    reading: StepFileOptions = StepFileOptions(),
) -> None:
    """Import steps that were corrected or created in another tool.

    In files that hiero did not write, gaps become background steps, and a step inside another one
    moves to a finer level.

    **Examples**

    * `hiero import-steps steps.eaf --video kitchen.mp4`
    * `hiero import-steps labels.csv --video kitchen.mp4 --cut-overlaps -o kitchen-steps.json`
    * `hiero import-steps labelstudio.json --video kitchen.mp4 --replace`

    Parameters
    ----------
    file
        ELAN (.eaf), Label Studio (JSON), FiftyOne (samples.json, labels.json), ActivityNet (JSON),
        subtitles (.vtt, .srt), table (.csv, .tsv), steps.json or .hiero.json of hiero.
    video
        Video or feature file that the steps belong to. If FILE holds several videos, the one with
        this name is imported.
    out
        Output file. Defaults to a file next to the video, where all commands find it.
    replace
        Overwrite existing corrected steps.
    """
    from hiero.formats.hiero_json import encode_edits, find_edits, next_revision, write_edits
    from hiero.formats.registry import read_step_file
    from hiero.storage.cache import content_key

    if not video.is_file():
        raise InputError(f"{video}: no such file; --video is the video that the steps belong to")
    key = content_key(video)
    existing = find_edits(video, key) if out is None else [out] if out.exists() else []
    if existing and not replace:
        raise InputError(f"{existing[0]}: corrected steps exist already; --replace overwrites them, -o FILE keeps both")
    duration_s = _duration(video, reading.hz)
    hierarchy = read_step_file(
        file, video, duration_s, tiers=reading.tier or (), fps=reading.fps, cut_overlaps=reading.cut_overlaps
    )
    if out is None:
        out, *_ = write_edits(video, key, hierarchy)
    else:
        write_bytes(out, encode_edits(hierarchy, key, next_revision(video, key)))
    num_named = sum(step.label is not None for step in hierarchy)
    counts = ", ".join(str(len(level)) for level in hierarchy.levels)
    log(f"{out}: {counts} steps on {format_count(len(hierarchy.levels), 'level')}, {num_named} of them named")


def _duration(video: Path, hz: float | None) -> float | None:
    """The duration of a video or feature file in seconds; None if a video does not state it."""
    from hiero.features.files import FEATURE_SUFFIXES, read_feature_array, read_sidecar

    if video.suffix.lower() not in FEATURE_SUFFIXES:
        from hiero.media.decode import probe

        return probe(video).duration_s
    sidecar = read_sidecar(video)
    clock = parse_hz(hz) or (sidecar.clock if sidecar is not None else Clock(1.0, 1.0))
    return clock.edge_s(len(read_feature_array(video)))


def adapt(
    *what: str, out: Out, annotations: Path | None = None, join: Join = None, options: VideoOptions = VideoOptions()
) -> None:
    """Learn from corrected or labelled steps: the new model finds and names these steps in other videos.

    The model stores what each named step looks like, without training.

    **Examples**

    * `hiero adapt kitchen1.mp4 kitchen2.mp4 -o models/mine`
    * `hiero adapt corpus/ -o models/mine`
    * `hiero adapt features/ --annotations steps.json -o models/mine`

    Parameters
    ----------
    what
        Videos, feature files, folders, patterns such as '*.mp4', or a corpus.
        Only those with corrected steps count.
    out
        Output folder for the new model.
    annotations
        JSON file with the steps of all videos, in the format of `hiero eval own`.
    """
    from hiero.corpus.adaptation import adapt as adapt_model
    from hiero.corpus.adaptation import annotated_corrections, find_corrections

    if not what:
        raise InputError("name the videos to learn from: hiero adapt VIDEO…, a folder, or a corpus")
    if options.edits is not None:
        raise InputError("--edits does not work here; choose “Learn from corrections” on the page of the server")
    videos = _find_videos(what, join)
    corrections = find_corrections(videos) if annotations is None else annotated_corrections(videos, annotations)
    engine = options.load_engine()
    prototypes = adapt_model(engine, corrections, lambda source: options.read_video(source, engine), out)
    learned = f"learned from {format_count(int(prototypes.num_steps.sum()), 'step')} in {len(corrections)}"
    names, of_videos = format_count(len(prototypes.labels), "step name"), format_count(len(videos), "video")
    echo(f"{out}: {names}, {learned} of {of_videos}")
    echo(f"  next: hiero steps VIDEO --model {out}")


def _find_videos(what: tuple[str, ...], join: bool | None) -> dict[str, VideoSource]:
    """The videos of files, folders, patterns and corpora by name."""
    from hiero.corpus.table import is_corpus
    from hiero.media.recordings import find_recordings

    videos: dict[str, VideoSource] = {}
    for uri in filter(is_corpus, what):
        for record in hiero.Corpus(uri).videos():
            if Path(record.path).is_file():
                videos[record.video] = record.source
    paths = [Path(name) for name in what if not is_corpus(name)]
    recordings = find_recordings(paths, join, log=log) if paths else {}
    for source in recordings.values():
        if not source.path.is_file():
            raise InputError(f"{source.path}: no such file or folder")
    return {**videos, **recordings}
