"""hiero import-steps, adapt: steps that a person corrected or labelled come back, and teach a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

from hiero.cli.console import log
from hiero.cli.display import TrainDisplay
from hiero.cli.options import DEFAULTS, Flag, Join, OptionalOut, Out, Repeated, VideoOptions, parse_hz
from hiero.errors import InputError

if TYPE_CHECKING:
    from hiero.sources.source import VideoSource


@Parameter(name="*")
@dataclass(frozen=True)
class StepFileOptions:
    """How the file is read.

    Parameters
    ----------
    tier
        Of an ELAN file: which tiers, coarse to fine; may be repeated. By default all with
        annotations.
    fps
        Frames a second that the tool has counted with: 25 for Label Studio (frameRate of its Video
        tag); for CVAT and FiftyOne what the file says, else the video.
    cut_overlaps
        Where two steps overlap, the earlier one ends where the later one begins. Otherwise that is
        an error.
    hz
        For feature files: rows a second, where it is not what was written beside them, else 1.
    """

    tier: Repeated = None
    fps: float | None = None
    cut_overlaps: Flag = False
    hz: float | None = None


READING_DEFAULTS = StepFileOptions()


def import_steps(
    file: str,
    /,
    *,
    video: Path,
    out: OptionalOut = None,
    replace: Flag = False,
    reading: StepFileOptions = READING_DEFAULTS,
) -> None:
    """Take back steps that were corrected or made in another tool: they become the video's edits,
    which the page shows.

    Files that hiero exported give back the same steps; unchanged ones of annotation tools with
    their ids and threads. In files of others, gaps become unnamed background steps, and a step
    inside another one goes to a finer level.

    **Examples**

    `hiero import-steps steps.eaf --video kitchen.mp4`

    `hiero import-steps project.json --video kitchen.mp4 --replace`

    `hiero import-steps http://localhost:8080/projects/3 --video kitchen.mp4`

    `hiero import-steps labels.csv --video kitchen.mp4 --cut-overlaps -o kitchen-steps.json`

    Parameters
    ----------
    file
        ELAN (.eaf), Label Studio (JSON), FiftyOne (samples.json, labels.json), CVAT (XML for video
        or images 1.1), VIA 3 (project JSON), ActivityNet (JSON), WebVTT or SubRip (.vtt, .srt), a
        table (.csv, .tsv), hiero's steps.json, or the page's edits (.hiero.json). Or the address of
        a Label Studio project, with a token in LABEL_STUDIO_API_KEY.
    video
        The video, or feature file, that the steps are of. Where the file holds several videos, the
        one of this name is taken.
    out
        Write there instead of beside the video, where `hiero serve` and `hiero adapt` look.
    replace
        Replace corrected steps that are there already.
    """
    from hiero.cli.annotation import open_project
    from hiero.formats.hiero_json import edits_file, write_edits
    from hiero.formats.label_studio_api import is_project_address
    from hiero.formats.registry import read_step_document, read_step_file

    if not video.is_file():
        raise InputError(f"{video}: no such file; --video is the video that the steps are of")
    target = out or edits_file(video)
    if target.exists() and not replace:
        raise InputError(f"{target}: there are corrected steps already; --replace to replace them, or -o FILE")
    duration_s = _duration(video, reading.hz)
    if is_project_address(file):
        project = open_project(file)
        try:
            hierarchy = read_step_document(
                project.export(), video, duration_s, fps=reading.fps, cut_overlaps=reading.cut_overlaps
            )
        except InputError as error:
            message = str(error)
            raise InputError(
                message if message.startswith(project.server) else f"{project.address}: {message}"
            ) from error
    else:
        hierarchy = read_step_file(
            Path(file),
            video,
            duration_s,
            tiers=reading.tier or (),
            fps=reading.fps,
            cut_overlaps=reading.cut_overlaps,
        )
    write_edits(target, hierarchy)
    num_named = sum(step.label is not None for step in hierarchy)
    counts = ", ".join(str(len(level)) for level in hierarchy.levels)
    log(f"{target}: {counts} steps on {len(hierarchy.levels)} levels, {num_named} of them named")


def adapt(
    *what: str,
    out: Out,
    annotations: Path | None = None,
    fine_tune: bool | None = None,
    join: Join = None,
    options: VideoOptions = DEFAULTS,
) -> None:
    """Learn from corrected or labelled steps: a model that finds and names these steps in other videos too.

    At once, without training: what each named step looks like, in the model's space, and when it
    usually comes. Use the new folder as any model: --model models/mine. From eight videos and a
    hundred steps on the network also goes on training for a minute or two; after an interruption
    run the same command again to go on with it.

    **Examples**

    `hiero adapt kitchen1.mp4 kitchen2.mp4 -o models/mine`

    `hiero adapt corpus/ -o models/mine`

    `hiero adapt features/ --annotations steps.json -o models/mine --no-fine-tune`

    Parameters
    ----------
    what
        Videos, feature files, folders of them, patterns ('*.mp4'), or a corpus made by `hiero
        index`. Those with corrected steps beside them are learned from: saved on the page of `hiero
        serve`, or brought by `hiero import-steps`.
    out
        Folder for the adapted model.
    annotations
        Labelled steps of the videos in one file, as `hiero eval own` takes it, instead of corrected
        ones beside them.
    fine_tune
        Whether the network goes on training; by default where there are enough steps. With fewer,
        prototypes alone name better.
    """
    from hiero.corpus.adaptation import adapt as adapt_model
    from hiero.corpus.adaptation import annotated_corrections, find_corrections

    if not what:
        raise InputError("say what to learn from: hiero adapt VIDEO…, a folder, or a corpus")
    videos = _find_videos(what, join)
    corrections = find_corrections(videos) if annotations is None else annotated_corrections(videos, annotations)
    if not corrections:
        raise InputError(
            f"none of these {len(videos)} videos has corrected steps with names beside it; correct some on the page "
            "(hiero serve), or bring them with hiero import-steps"
        )
    engine = options.load_engine()
    prototypes = adapt_model(
        engine,
        corrections,
        lambda reader, source: options.read_video(source, reader),
        out,
        tune=fine_tune,
        display=TrainDisplay(),
        log=log,
    )
    num_steps = int(prototypes.num_steps.sum())
    print(
        f"{out}: {len(prototypes.labels)} named steps, from {num_steps} in {len(corrections)} of {len(videos)} videos"
    )
    print(f"  next: hiero steps VIDEO --model {out}")


def _find_videos(what: tuple[str, ...], join: bool | None) -> dict[str, VideoSource]:
    """Videos of files, folders, patterns and corpora, by name."""
    from hiero.corpus.corpus import Corpus
    from hiero.decoding.recordings import find_recordings
    from hiero.serve.library import is_corpus

    videos: dict[str, VideoSource] = {}
    for uri in filter(is_corpus, what):
        for record in Corpus(uri).videos():
            if Path(record.path).is_file():
                videos[record.video] = record.source
    paths = [Path(name) for name in what if not is_corpus(name)]
    recordings = find_recordings(paths, join, log=log) if paths else {}
    for source in recordings.values():
        if not source.path.is_file():
            raise InputError(f"{source.path}: no such file or folder")
    return {**videos, **recordings}


def _duration(video: Path, hz: float | None) -> float | None:
    """Seconds of a video or of a feature file; None where a video does not say."""
    from hiero.data.features import FEATURE_SUFFIXES, read_feature_array, read_sidecar
    from hiero.types import Clock

    if video.suffix.lower() not in FEATURE_SUFFIXES:
        from hiero.decoding.decode import probe

        return probe(video).duration_s
    sidecar = read_sidecar(video)
    clock = parse_hz(hz) or (sidecar.clock if sidecar is not None else Clock(1.0, 1.0))
    return clock.start_s + len(read_feature_array(video)) * clock.spacing_s
