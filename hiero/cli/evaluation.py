"""hiero eval: scores on one's own videos and on the paper's benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from hiero.cli.console import log, progress_bar
from hiero.cli.options import Device, FeatureRate, parse_hz, parse_names
from hiero.cli.reports import PRINT_ONLY, ReportOptions
from hiero.errors import InputError

if TYPE_CHECKING:
    from hiero.engine import Engine
    from hiero.evaluation.cases import AnnotatedVideo, Case
    from hiero.evaluation.protocols import Protocol
    from hiero.evaluation.results import Report, Table

NUM_CHOICES = 5  # clips of a question of EgoMCQ
NUM_DETAIL_TABLES = 2  # of EgoProceL: the last ones, of each video and key-step, are too long for a terminal
MIN_RUN_NODES = 5  # Goal-Step: shorter runs of a thread are background

ProtocolName = Annotated[
    Literal["corrected", "release"],
    Parameter(
        help="release: what the authors' scripts print, defects included; corrected: right times, rates and edges."
    ),
]

app = App(name="eval", help="Score a model on one's own videos or on the paper's benchmarks.")


@Parameter(name="*")
@dataclass(frozen=True)
class OwnOptions:
    """What is scored on one's own videos, and how.

    Parameters
    ----------
    model
        The shipped model by its name (for Kinetics-400 scores; it learned from all of
        CaptainCook4D), a model folder, a hub id, or `raw`.
    tasks
        Some of procedure, grounding, localization, choices, separated by commas.
    k
        Procedure learning also with this number of clusters for all videos; the true number is
        always reported.
    num_threads
        Threads that the paper's way of grounding cuts a video into.
    baselines
        Also score random, equal parts, raw features with other clusterings, and words without the
        graph.
    only
        A file with the names of videos to score, one a line; by default all.
    seed
        Of random baselines and the choice of wrong answers.
    """

    model: str = "hiero-k400"
    hz: FeatureRate = None
    tasks: str = "procedure,grounding,localization,choices"
    k: Annotated[int | None, Parameter(alias="-k")] = None
    num_threads: int = 16
    baselines: bool = True
    only: Path | None = None
    device: Device = "auto"
    seed: int = 0


OWN_DEFAULTS = OwnOptions()


@app.command
def own(
    *,
    features: Path,
    annotations: Path,
    options: OwnOptions = OWN_DEFAULTS,
    report: ReportOptions = PRINT_ONLY,
) -> None:
    """Score on your own videos: procedure learning, step grounding, step localization, multiple choice.

    **Example**: `hiero eval own --features features/ --annotations steps.json`

    The annotations are JSON: `{"video": {"task": "tea", "duration_s": 300, "steps": [{"start_s": 0,
    "end_s": 9, "text": "boil"}]}}`

    Parameters
    ----------
    features
        Folder with a feature file for each video: .npy, .npz, .pt or .safetensors, named as in the
        annotations.
    annotations
        JSON file with the timed steps of each video.
    """
    from hiero.devices import num_usable_cores
    from hiero.evaluation.cases import EvalOptions
    from hiero.evaluation.own_videos import OwnSettings, run_own_videos

    if options.k is not None and options.k < 1:
        raise InputError(f"-k is at least 1, got {options.k}")
    settings = OwnSettings(
        model=options.model,
        clock=parse_hz(options.hz),
        tasks=parse_names(options.tasks),
        num_clusters=options.k,
        options=EvalOptions(num_threads=options.num_threads, random_state=options.seed, baselines=options.baselines),
        only=options.only,
        device=options.device,
        num_processes=num_usable_cores(),
    )
    report.output(run_own_videos(features, annotations, settings, log, progress_bar))


@Parameter(name="*")
@dataclass(frozen=True)
class ModelOptions:
    """The model that is scored.

    Parameters
    ----------
    model
        A model folder or hub id; for the authors' weights: `hiero import-checkpoint FILE.pth
        FOLDER`. Or `raw`.
    backbone
        With `raw`: whose text tower belongs to the features (egovlp, lavila-l).
    """

    model: str
    backbone: str = "default"

    def load(self, device: str) -> Engine:
        """The engine of the model."""
        from hiero.engine import load

        return load(self.model, backbone=self.backbone, device=device)


@app.command
def egomcq(
    *,
    store: Path,
    questions: Path,
    model: ModelOptions,
    context: int = 4,
    batch_size: int = 2048,
    device: Device = "auto",
    report: ReportOptions = PRINT_ONLY,
) -> None:
    """EgoMCQ: which of five clips does a narration describe? Inter-video and intra-video accuracy.

    **Examples**

    `hiero eval egomcq --store packed/ --questions egomcq.json --model hiero-egovlp/`

    `hiero eval egomcq --store packed/ --questions egomcq.json --model raw --backbone egovlp`

    Parameters
    ----------
    store
        Features of Ego4D videos, packed: `hiero pack FEATURES STORE`.
    questions
        egomcq.json as EgoVLP publishes it.
    context
        Δ: segments added on each side of a clip.
    batch_size
        Clips that go through the network together.
    """
    from hiero.data.stores import FeatureStore
    from hiero.evaluation.egomcq import evaluate_egomcq, read_questions
    from hiero.evaluation.results import Report

    if context < 0 or batch_size < 1:
        raise InputError(f"--context is not negative and --batch-size at least 1, got {context} and {batch_size}")
    parsed = read_questions(questions)
    engine = model.load(device)
    with progress_bar("clips", NUM_CHOICES * len(parsed)) as advance:
        table, missing = evaluate_egomcq(
            engine, FeatureStore(store), parsed, context, batch_size, lambda num_clips: advance("", num_clips)
        )
    name = "raw" if engine.folder is None else "HiERO"
    summary = {name: {kind: table.rows[0].scores[kind] for kind in ("inter", "intra")}}
    settings = {"model": model.model, "context": context}
    report.output(Report("egomcq", [table], settings, missing, summary))


@Parameter(name="*")
@dataclass(frozen=True)
class EgoProceLOptions:
    """EgoProceL's files, the model and how it is scored.

    Parameters
    ----------
    annotations
        The official folder: CMU-MMAC/Brownie/…/*.csv, EGTEA_Gaze+/…, EPIC-Tents, MECCANO,
        pc_assembly, pc_disassembly.
    features
        Folder with a feature file for each video, anywhere below it, named as its csv file.
    model
        A model folder or hub id, or `raw` for the baselines alone.
    videos
        Folder with the videos, for their true frame rates.
    rates
        Instead of videos: a csv file with video, fps, frames.
    only
        Data sets or tasks to score, separated by commas; by default all.
    stride
        Frames from one feature to the next.
    baselines
        Also score raw features, other clusterings, equal parts and random.
    seed
        Of clusterings and random baselines.
    """

    annotations: Path
    features: Path
    model: str
    videos: Path | None = None
    rates: Path | None = None
    only: str = ""
    stride: int = 16
    baselines: bool = True
    protocol: ProtocolName = "corrected"
    device: Device = "auto"
    seed: int = 0

    def read_rates(self) -> dict[str, tuple[float, int]]:
        """Frame rate and number of frames of each video."""
        from hiero.evaluation.egoprocel_data import probe_rates, read_rates, video_name

        if self.rates is not None:
            return read_rates(self.rates)
        if self.videos is not None:
            return probe_rates(self.videos, [video_name(file) for file in self.annotations.rglob("*.csv")])
        raise InputError("frame rates are needed: --videos FOLDER with the videos, or --rates FILE (video,fps,frames)")


@app.command
def egoprocel(*, options: EgoProceLOptions, report: ReportOptions = PRINT_ONLY) -> None:
    """EgoProceL: procedure learning on six data sets, as the authors' script computes it or corrected.

    The JSON has every task, video and key-step too.

    **Examples**

    `hiero eval egoprocel --annotations annotations/ --features features/ --videos videos/ --model hiero-egovlp/`

    `hiero eval egoprocel … --protocol release` is what the authors' script prints for the same checkpoint.
    """
    from hiero.engine import load
    from hiero.evaluation.egoprocel import evaluate_egoprocel, summarise
    from hiero.evaluation.egoprocel_data import find_egoprocel_videos
    from hiero.evaluation.protocols import find_protocol
    from hiero.evaluation.results import Report

    videos, missing, not_annotated = find_egoprocel_videos(
        options.annotations, options.features, options.read_rates(), parse_names(options.only)
    )
    if not_annotated:
        log(f"no annotations for {', '.join(not_annotated)}")
    engine = load(options.model, backbone="default", device=options.device)
    with progress_bar("videos", len(videos)) as advance:
        tables = evaluate_egoprocel(
            engine,
            videos,
            stride=options.stride,
            baselines=options.baselines,
            protocol=find_protocol(options.protocol),
            seed=options.seed,
            progress=advance,
        )
    settings = {
        "model": options.model,
        "protocol": options.protocol,
        "videos": len(videos),
        "stride": options.stride,
        "seed": options.seed,
    }
    result = Report("egoprocel", tables, settings, missing, summarise(tables[0]))
    report.output(result, len(tables) - NUM_DETAIL_TABLES)


@Parameter(name="*")
@dataclass(frozen=True)
class GoalStepOptions:
    """Where features are, and what to do with the result.

    Parameters
    ----------
    features
        Folder with a feature file for each Ego4D video, UID.pt.
    model
        A model folder or hub id, or `raw`.
    backbone
        With `raw`: whose text tower belongs to the features (egovlp, lavila-l).
    groups
        goalstep_video_groups.tsv: videos that are joined.
    fps
        Frames a second of the videos.
    stride
        Frames from one feature to the next.
    baselines
        Also score other clusterings, equal parts and random.
    """

    features: Path
    model: str
    backbone: str = "default"
    groups: Path | None = None
    fps: float = 30.0
    stride: float = 16.0
    baselines: bool = True
    device: Device = "auto"

    def read_cases(
        self, annotated: Sequence[AnnotatedVideo], protocol: Protocol | None = None
    ) -> tuple[list[Case], list[str]]:
        """The annotated videos that have features, and the names of those without."""
        from hiero.engine import load
        from hiero.evaluation.goalstep import read_goalstep_cases, read_groups
        from hiero.evaluation.protocols import CORRECTED
        from hiero.types import Clock

        engine = load(self.model, backbone=self.backbone, device=self.device)
        if engine.folder is None and not engine.has_text:
            raise InputError(
                "Goal-Step compares with words: raw features have none; give --model FOLDER, or --backbone egovlp"
            )
        if protocol is not None:
            engine = protocol.configure(engine)
        groups = {} if self.groups is None else read_groups(self.groups)
        with progress_bar("videos", len(annotated)) as advance:
            return read_goalstep_cases(
                engine, self.features, annotated, groups, Clock(self.fps, self.stride), advance, protocol or CORRECTED
            )

    def to_report(
        self,
        benchmark: str,
        table: Table,
        cases: tuple[list[Case], list[str]],
        summary: dict[str, dict[str, float]] | None = None,
        protocol: str | None = None,
    ) -> Report:
        """The result with its settings; `cases` as `read_cases` gives them."""
        from hiero.evaluation.results import Report

        protocols = {} if protocol is None else {"protocol": protocol}
        clock = {"fps": self.fps, "stride": self.stride}
        settings = {"model": self.model, **protocols, "videos": len(cases[0]), **clock}
        return Report(benchmark, [table], settings, cases[1], summary or {})


@app.command(name="goalstep-grounding")
def goalstep_grounding(
    *,
    annotations: Path,
    options: GoalStepOptions,
    report: ReportOptions = PRINT_ONLY,
    num_threads: int = 8,
    prefix: str = "#C C ",
    protocol: ProtocolName = "corrected",
) -> None:
    """Goal-Step, step grounding without training: where is the step that a text describes?

    "HiERO, runs of threads" is the paper's method; "HiERO" is what `hiero ask` does. The row with
    all queries in their order knows more than the others: in these files the order follows the
    truth.

    **Examples**

    `hiero eval goalstep-grounding --annotations goalstep_grounding_val.json --features egovlp/
    --model hiero-egovlp/`

    `hiero eval goalstep-grounding … --protocol release` is what the authors' script prints for the same checkpoint.

    Parameters
    ----------
    annotations
        goalstep_val.json as published, or its queries in the NLQ-like layout of the task.
    num_threads
        Threads that a video is cut into.
    prefix
        Written before each query, so that it reads as narrations do.
    """
    from hiero.evaluation.cases import EvalOptions, TextEmbeddings
    from hiero.evaluation.goalstep import read_grounding
    from hiero.evaluation.grounding import evaluate_runs, grounding_task, name_raw_rows, summarise_grounding
    from hiero.evaluation.protocols import RELEASE, find_protocol

    chosen = find_protocol(protocol)
    cases, missing = options.read_cases(read_grounding(annotations, prefix), chosen)
    embeddings = TextEmbeddings(cases[0].video.engine, [step.text for case in cases for step in case.truth])
    eval_options = EvalOptions(
        num_threads=num_threads, min_nodes=MIN_RUN_NODES, baselines=options.baselines, protocol=chosen
    )
    if chosen == RELEASE:
        table = evaluate_runs(cases, embeddings, eval_options)
    else:
        (table,) = grounding_task(cases, embeddings, eval_options).evaluate(cases)
    table.title += f", protocol: {chosen.name}"
    if cases[0].video.engine.folder is None:
        name_raw_rows(table)
    summary = summarise_grounding(table)
    report.output(options.to_report("goalstep-grounding", table, (cases, missing), summary, chosen.name))


@app.command(name="goalstep-localization")
def goalstep_localization(
    *,
    annotations: Path,
    options: GoalStepOptions,
    report: ReportOptions = PRINT_ONLY,
    taxonomy: Path | None = None,
    num_threads: int = 8,
) -> None:
    """Goal-Step, step localization without training: mAP at tIoU 0.1 to 0.5 over steps and substeps.

    **Example**: `hiero eval goalstep-localization --annotations goalstep_val.json --features
    egovlp/ --model hiero-egovlp/`

    Parameters
    ----------
    annotations
        goalstep_val.json.
    taxonomy
        goalstep_train.json, for the labels that do not occur in the annotations, or a text file
        with one label a line.
    num_threads
        Threads that a video is cut into.
    """
    from hiero.evaluation.cases import EvalOptions, TextEmbeddings
    from hiero.evaluation.goalstep import label_text, read_steps
    from hiero.evaluation.grounding import name_raw_rows
    from hiero.evaluation.tasks import localization_task

    annotated = read_steps(annotations)
    labels = _read_taxonomy(annotated, taxonomy)
    cases, missing = options.read_cases(annotated)
    embeddings = TextEmbeddings(cases[0].video.engine, labels, label_text)
    eval_options = EvalOptions(num_threads=num_threads, min_nodes=MIN_RUN_NODES, baselines=options.baselines)
    (table,) = localization_task(cases, labels, embeddings, eval_options).evaluate(cases)
    if cases[0].video.engine.folder is None:
        name_raw_rows(table)
    report.output(options.to_report("goalstep-localization", table, (cases, missing)))


@app.command(name="goalstep-classification")
def goalstep_classification(
    *,
    annotations: Path,
    options: GoalStepOptions,
    report: ReportOptions = PRINT_ONLY,
    train: Path | None = None,
    taxonomy: Path | None = None,
) -> None:
    """Goal-Step, key-step classification with known segments: without training, and with a linear probe.

    **Example**: `hiero eval goalstep-classification --annotations val.json --train train.json
    --features f/ --model m/`

    Parameters
    ----------
    annotations
        goalstep_val.json.
    train
        goalstep_train.json: a linear probe learns from its segments.
    taxonomy
        More labels: goalstep_train.json, or a text file with one label a line.
    """
    from hiero.evaluation.cases import TextEmbeddings
    from hiero.evaluation.goalstep import evaluate_classification, label_text, read_steps

    annotated = read_steps(annotations)
    labels = _read_taxonomy(annotated, taxonomy, train)
    cases, missing = options.read_cases(annotated)
    train_cases = None
    if train is not None:
        train_cases, missing_train = options.read_cases(read_steps(train))
        missing += missing_train
    embeddings = TextEmbeddings(cases[0].video.engine, labels, label_text)
    table = evaluate_classification(cases, labels, embeddings, train_cases)
    report.output(options.to_report("goalstep-classification", table, (cases, missing)))


def _read_taxonomy(annotated: Sequence[AnnotatedVideo], *files: Path | None) -> list[str]:
    from hiero.evaluation.goalstep import NUM_LABELS, read_taxonomy

    labels = read_taxonomy(annotated, [file for file in files if file is not None])
    if len(labels) != NUM_LABELS:
        log(
            f"{len(labels)} labels; the paper's taxonomy has {NUM_LABELS}. --taxonomy goalstep_train.json adds "
            "those of training"
        )
    return labels
