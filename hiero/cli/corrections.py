"""hiero import-steps, push-steps and adapt: exchange steps with annotation tools, and learn from corrected steps."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cyclopts import Parameter

import hiero
from hiero.cli.console import echo, log, progress_bar
from hiero.cli.options import Flag, Join, OptionalOut, Out, Repeated, VideoOptions, parse_hz
from hiero.cli.training_display import TrainDisplay
from hiero.errors import InputError
from hiero.storage.files import parse_json, read_bounded, write_bytes
from hiero.types import Clock, format_count

if TYPE_CHECKING:
    from hiero.formats.label_studio_api import LabelStudioProject
    from hiero.sources.source import VideoSource

MAX_TASK_BYTES = 2**26


@Parameter(name="*")
@dataclass(frozen=True)
class StepFileOptions:
    """How the file is read.

    Parameters
    ----------
    tier
        ELAN tier to read, from coarse to fine. Repeatable. Defaults to all tiers with annotations.
    fps
        Frame rate in the annotation tool. Defaults to 25 for Label Studio, and to the rate in the
        file or of the video for CVAT and FiftyOne.
    cut_overlaps
        End a step where the next one starts. Otherwise steps that overlap are an error.
    hz
        Rows per second of a feature file. Defaults to the rate stored with the file, or 1.
    """

    tier: Repeated = None
    fps: float | None = None
    cut_overlaps: Flag = False
    hz: float | None = None


def import_steps(
    file: str,
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
    * `hiero import-steps http://localhost:8080/projects/3 --video kitchen.mp4 --replace`

    Parameters
    ----------
    file
        ELAN (.eaf), Label Studio (JSON), FiftyOne (samples.json, labels.json), CVAT 1.1 (XML), VIA 3
        (JSON), ActivityNet (JSON), subtitles (.vtt, .srt), table (.csv, .tsv), steps.json or
        .hiero.json of hiero, or the address of a Label Studio project (token in
        LABEL_STUDIO_API_KEY).
    video
        Video or feature file that the steps belong to. If FILE holds several videos, the one with
        this name is imported.
    out
        Output file. Defaults to a file next to the video, where all commands find it.
    replace
        Overwrite existing corrected steps.
    """
    from hiero.formats.hiero_json import encode_edits, find_edits, next_revision, write_edits
    from hiero.formats.label_studio_api import is_project_address
    from hiero.formats.registry import read_step_document, read_step_file
    from hiero.storage.cache import content_key

    if not video.is_file():
        raise InputError(f"{video}: no such file; --video is the video that the steps belong to")
    key = content_key(video)
    existing = find_edits(video, key) if out is None else [out] if out.exists() else []
    if existing and not replace:
        raise InputError(f"{existing[0]}: corrected steps exist already; --replace overwrites them, -o FILE keeps both")
    duration_s = _duration(video, reading.hz)
    settings: dict[str, Any] = {"fps": reading.fps, "cut_overlaps": reading.cut_overlaps}
    if is_project_address(file):
        project = open_project(file)
        try:
            hierarchy = read_step_document(project.export(), video, duration_s, **settings)
        except InputError as error:
            prefix = "" if str(error).startswith(project.server) else f"{project.address}: "
            raise InputError(f"{prefix}{error}") from error
    else:
        hierarchy = read_step_file(Path(file), video, duration_s, tiers=reading.tier or (), **settings)
    if out is None:
        out, *_ = write_edits(video, key, hierarchy)
    else:
        write_bytes(out, encode_edits(hierarchy, key, next_revision(video, key)))
    num_named = sum(step.label is not None for step in hierarchy)
    counts = ", ".join(str(len(level)) for level in hierarchy.levels)
    log(f"{out}: {counts} steps on {format_count(len(hierarchy.levels), 'level')}, {num_named} of them named")


def _duration(video: Path, hz: float | None) -> float | None:
    """The duration of a video or feature file in seconds; None if a video does not state it."""
    from hiero.data.features import FEATURE_SUFFIXES, read_feature_array, read_sidecar

    if video.suffix.lower() not in FEATURE_SUFFIXES:
        from hiero.decoding.decode import probe

        return probe(video).duration_s
    sidecar = read_sidecar(video)
    clock = parse_hz(hz) or (sidecar.clock if sidecar is not None else Clock(1.0, 1.0))
    return clock.edge_s(len(read_feature_array(video)))


def push_steps(*files: Path, to: str, media_url: str = "", set_up: Flag = False) -> None:
    """Send steps to a Label Studio project, as tasks with predictions that people correct.

    The access token is read from LABEL_STUDIO_API_KEY. Videos that the project already has are skipped.
    Import the corrected steps with `hiero import-steps`.

    **Examples**

    * `hiero push-steps out/*/steps.json --to http://localhost:8080/projects/3`
    * `hiero push-steps steps.json --to http://localhost:8080/projects/3 --media-url http://localhost:8000/`

    Parameters
    ----------
    files
        steps.json or labelstudio.json written by `hiero steps -o`, or corrected steps (.hiero.json).
    to
        Address of the project, as shown by the browser.
    media_url
        Address of the folder with the videos, from which the browser plays them. Without it, set up
        a storage in Label Studio.
    set_up
        Replace the labelling interface of the project if it was made for another purpose.
    """
    from hiero.formats.label_studio_api import extend_interface, labels_of_tasks

    if not files:
        raise InputError("name the files to send: hiero push-steps STEPS.json --to http://localhost:8080/projects/3")
    project = open_project(to)
    tasks = [task for file in files for task in _read_tasks(file, media_url)]
    present = {str(task.get("data", {}).get("video")) for task in project.tasks()}
    missing = [task for task in tasks if task["data"]["video"] not in present]
    if missing:
        interface, labels = project.read_interface(), labels_of_tasks(missing)
        extended = extend_interface("<View></View>" if set_up else interface, labels)
        if extended is None:
            lacking = ", ".join(sorted(labels))
            raise InputError(f"{project.address}: its interface lacks {lacking}; use a new project, or --set-up")
        if extended.split() != interface.split():
            project.write_interface(extended)
        with progress_bar("sending", len(missing)) as advance:
            for task in missing:
                project.import_tasks([task])
                advance(task["data"]["video"])
    num_present = len(tasks) - len(missing)
    skipped = f", {num_present} existed already" if num_present else ""
    log(f"{project.address}: {format_count(len(missing), 'task')} added{skipped}")


def open_project(address: str) -> LabelStudioProject:
    """A Label Studio project, with the token from the environment."""
    from hiero.formats.label_studio_api import TOKEN_VARIABLE, LabelStudioProject

    return LabelStudioProject(address, os.environ.get(TOKEN_VARIABLE, ""))


def _read_tasks(file: Path, media_url: str) -> list[dict[str, Any]]:
    """The Label Studio tasks of a file, with the addresses of the videos."""
    from hiero.formats.hiero_json import parse_hierarchy
    from hiero.formats.label_studio import to_task

    try:
        document = parse_json(read_bounded(file, MAX_TASK_BYTES, "a file of steps"))
        if isinstance(document, dict) and "levels" in document:
            document = [to_task(parse_hierarchy(document))]
        tasks: list[dict[str, Any]] = document
        for task in tasks:
            name = task["data"]["video"]
            task["data"]["video"] = f"{media_url.rstrip('/')}/{quote(name)}" if media_url else name
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError) and str(error).startswith(str(file)):
            raise
        raise InputError(f"{file}: neither steps of hiero nor tasks of Label Studio ({error})") from error
    return tasks


def adapt(
    *what: str,
    out: Out,
    annotations: Path | None = None,
    fine_tune: bool | None = None,
    join: Join = None,
    options: VideoOptions = VideoOptions(),
) -> None:
    """Learn from corrected or labelled steps: the new model finds and names these steps in other videos.

    The model stores what each named step looks like, without training. With at least eight videos and a
    hundred steps, it is also fine-tuned if that helps on corrected videos that are held out. Repeat an
    interrupted run to continue it.

    **Examples**

    * `hiero adapt kitchen1.mp4 kitchen2.mp4 -o models/mine`
    * `hiero adapt corpus/ -o models/mine`
    * `hiero adapt features/ --annotations steps.json -o models/mine --no-fine-tune`

    Parameters
    ----------
    what
        Videos, feature files, folders, patterns such as '*.mp4', or a corpus.
        Only those with corrected steps count.
    out
        Output folder for the new model.
    annotations
        JSON file with the steps of all videos, in the format of `hiero eval own`.
    fine_tune
        Whether to fine-tune the network. Defaults to yes if it helps on held-out videos.
    """
    from hiero.corpus.adaptation import adapt as adapt_model
    from hiero.corpus.adaptation import annotated_corrections, find_corrections

    if not what:
        raise InputError("name the videos to learn from: hiero adapt VIDEO…, a folder, or a corpus")
    videos = _find_videos(what, join)
    corrections = find_corrections(videos) if annotations is None else annotated_corrections(videos, annotations)
    prototypes = adapt_model(
        options.load_engine(),
        corrections,
        lambda reader, source: options.read_video(source, reader),
        out,
        tune=fine_tune,
        display=TrainDisplay(),
        log=log,
    )
    learned = f"learned from {format_count(int(prototypes.num_steps.sum()), 'step')} in {len(corrections)}"
    names, of_videos = format_count(len(prototypes.labels), "step name"), format_count(len(videos), "video")
    echo(f"{out}: {names}, {learned} of {of_videos}")
    echo(f"  next: hiero steps VIDEO --model {out}")


def _find_videos(what: tuple[str, ...], join: bool | None) -> dict[str, VideoSource]:
    """The videos of files, folders, patterns and corpora by name."""
    from hiero.corpus.table import is_corpus
    from hiero.decoding.recordings import find_recordings

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
