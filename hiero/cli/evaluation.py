"""hiero eval: score a model on your own videos and on the benchmarks of the paper."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Group, Parameter

import hiero
from hiero.cli.console import OPTIONS, echo, log, plain_table, print_json, progress_bar, results_console
from hiero.cli.options import Device, FeatureRate, Flag, Json, check_at_least, open_engine, parse_hz, parse_names
from hiero.devices import num_usable_cores
from hiero.errors import InputError
from hiero.formats.annotations import AnnotatedVideo
from hiero.formatting import format_count
from hiero.types import Clock

if TYPE_CHECKING:
    from hiero.evaluation.cases import Case, TextEmbeddings
    from hiero.evaluation.protocols import Protocol
    from hiero.evaluation.results import Report, Table

NUM_DETAIL_TABLES = 2  # tables of EgoProceL at the end, one row per video and key-step, that are not printed
MIN_RUN_NODES = 5  # shorter runs of a thread count as background in Goal-Step
MAX_MISSING = 3  # number of videos without features that are named
# Widths in characters: a table in a file or pipe, the column of methods, a score with its interval.
FILE_WIDTH, METHOD_WIDTH, INTERVAL_WIDTH = 240, 34, 18

ProtocolName = Annotated[
    Literal["corrected", "release"],
    Parameter(help="`release` matches the authors' scripts, `corrected` fixes their defects."),
]
Baselines = Annotated[bool, Parameter(help="Also score other clusterings, raw features and chance.")]
NumThreads = Annotated[int, Parameter(help="Number of threads (groups of similar segments) per video.")]
Model = Annotated[str, Parameter(help="Model name, folder, Hugging Face id, backbone such as egovlp, or `raw`.")]
Stride = Annotated[float, Parameter(help="Frames between two feature rows.")]
GoalStepFile = Annotated[Path, Parameter(help="goalstep_val.json of Goal-Step.")]
Taxonomy = Annotated[Path | None, Parameter(help="Further labels: goalstep_train.json, or one label per line.")]

app = App(name="eval", help="Score a model on your own videos or on benchmarks of the paper.", group_parameters=OPTIONS)


@Parameter(name="*", group=Group("Report options", sort_key=12))
@dataclass(frozen=True)
class ReportOptions:
    """Output of a benchmark."""

    json_: Json = False
    out: Annotated[Path | None, Parameter(alias="-o", help="Also write the report to this JSON file.")] = None

    def output(self, report: Report, num_tables: int | None = None) -> None:
        """Write and print a report; at most `num_tables` tables are printed."""
        report.command = shlex.join(["hiero", *sys.argv[1:]])
        if self.out is not None:
            report.save(self.out)
            log(f"{self.out}: report of {report.benchmark} written, {format_count(len(report.tables), 'table')}")
        if self.json_:
            print_json(report.to_dict())
            return
        log_missing(report.missing)
        for table in report.tables[:num_tables]:
            print_table(table)
        echo(f"\n{', '.join(f'{name} {value}' for name, value in report.settings.items() if value not in ([], None))}")
        echo(report.command)


def log_missing(videos: list[str]) -> None:
    """Name some of the videos without features, if there are any."""
    if videos:
        log(f"{len(videos)} videos have no feature file: {', '.join(videos[:MAX_MISSING])} …")


def print_table(table: Table) -> None:
    """Print a table of results, with intervals if the terminal is wide enough."""
    from hiero.evaluation.results import format_cell

    console = results_console(file_width=FILE_WIDTH)
    console.print(f"\n{table.title}", style="bold")
    drawn = plain_table("", *table.columns, right=table.columns)
    is_wide = console.width >= METHOD_WIDTH + INTERVAL_WIDTH * len(table.columns)
    for row in table.rows:
        drawn.add_row(row.method, *(format_cell(row, name, intervals=is_wide) for name in table.columns))
    console.print(drawn)
    if not is_wide and any(row.intervals for row in table.rows):
        console.print("A wider terminal, or --json, also shows intervals.", style="dim")
    for note in table.notes:
        console.print(note)


@Parameter(name="*")
@dataclass(frozen=True)
class OwnOptions:
    """What is scored on your own videos, and how."""

    model: str = "hiero-k400"
    """Shipped model (hiero-k400 was trained on all of CaptainCook4D), model folder, Hugging Face id, or `raw`."""
    hz: FeatureRate = None
    tasks: str = "procedure,grounding,localization,choices"
    """Tasks to score, separated by commas. `procedure-many` needs several videos of each task."""
    k: Annotated[int | None, Parameter(alias="-k")] = None
    """Also score procedure learning with this number of clusters."""
    num_threads: NumThreads = 16
    baselines: Baselines = True
    only: Path | None = None
    """Text file with the names of the videos to score, one per line. Defaults to all."""
    held_out: Flag = False
    """Score only videos that the model was not trained on."""
    device: Device = "auto"
    seed: int = 0
    """Random seed of the baselines and of the wrong answers."""


@app.command
def own(
    *, features: Path, annotations: Path, options: OwnOptions = OwnOptions(), report: ReportOptions = ReportOptions()
) -> None:
    """Score a model on your own videos: procedure learning, grounding, localization, multiple choice.

    Annotations are JSON: `{"tea": {"task": "tea", "duration_s": 300, "steps": [{"start_s": 0, "end_s":
    9, "text": "boil"}]}}`.

    **Example**

    * `hiero eval own --features features/ --annotations steps.json`

    Parameters
    ----------
    features
        Folder with a feature file for each annotated video.
    annotations
        JSON file with the timed steps of each video.
    """
    from hiero.evaluation import cases, own_videos

    check_at_least("-k", options.k)
    settings = own_videos.OwnSettings(
        model=options.model,
        clock=parse_hz(options.hz),
        tasks=parse_names(options.tasks),
        num_clusters=options.k,
        options=cases.EvalOptions(options.num_threads, baselines=options.baselines, random_state=options.seed),
        only=options.only,
        held_out=options.held_out,
        device=options.device,
        num_processes=num_usable_cores(),
    )
    report.output(own_videos.run_own_videos(features, annotations, settings, log, progress_bar))


@app.command
def egomcq(
    *,
    store: Path,
    questions: Path,
    model: Model,
    context: int | None = None,
    batch_size: int = 2048,
    device: Device = "auto",
    report: ReportOptions = ReportOptions(),
) -> None:
    """Score EgoMCQ: which of five clips does a narration describe?

    **Examples**

    * `hiero eval egomcq --store packed/ --questions egomcq.json --model hiero-egovlp/`
    * `hiero eval egomcq --store packed/ --questions egomcq.json --model egovlp`

    Parameters
    ----------
    store
        Features of the Ego4D videos, packed by `hiero pack`.
    questions
        egomcq.json as published with EgoVLP.
    context
        Segments added on each side of a clip (Δ). Defaults to 4 for a model. Raw features are averaged over the
        clip and its context, which is 0 by default.
    batch_size
        Clips per forward pass.
    """
    from hiero.evaluation.egomcq import DEFAULT_CONTEXT, NUM_CHOICES, evaluate_egomcq, read_questions
    from hiero.evaluation.results import Report
    from hiero.features.stores import FeatureStore

    check_at_least("--context", context, 0)
    check_at_least("--batch-size", batch_size)
    parsed = read_questions(questions)
    engine = open_engine(model, device=device)
    is_raw = engine.folder is None
    if context is None:
        context = 0 if is_raw else DEFAULT_CONTEXT
    with progress_bar("clips", NUM_CHOICES * len(parsed)) as advance:
        table, missing = evaluate_egomcq(
            engine, FeatureStore(store), parsed, context, batch_size, lambda num_clips: advance("", num_clips)
        )
    summary = {"raw" if is_raw else "HiERO": table.rows[0].scores}
    report.output(Report("egomcq", [table], {"model": model, "context": context}, missing, summary))


@Parameter(name="*")
@dataclass(frozen=True)
class EgoProceLOptions:
    """Files of EgoProceL, and how they are scored."""

    annotations: Path
    """The official annotations folder, with MECCANO, EPIC-Tents and so on."""
    features: Path
    """Folder with a feature file for each video, at any depth, named like its csv file."""
    model: Model
    videos: Path | None = None
    """Folder with the videos, for their frame rates."""
    rates: Path | None = None
    """csv file with video, fps and frames, instead of `--videos`."""
    only: str = ""
    """Data sets or tasks to score, separated by commas. Defaults to all."""
    stride: Annotated[int, Parameter(help="Frames between two feature rows.")] = 16
    baselines: Baselines = True
    protocol: ProtocolName = "corrected"
    device: Device = "auto"
    seed: int = 0
    """Random seed of clusterings and baselines."""

    def read_rates(self) -> dict[str, tuple[float, int]]:
        """Frame rate and number of frames of each video."""
        from hiero.evaluation.egoprocel_data import probe_rates, read_rates, video_name

        if self.rates is not None:
            return read_rates(self.rates)
        if self.videos is not None:
            return probe_rates(self.videos, [video_name(file) for file in self.annotations.rglob("*.csv")])
        raise InputError("frame rates are needed: --videos FOLDER, or --rates FILE with video, fps and frames")


@app.command
def egoprocel(*, options: EgoProceLOptions, report: ReportOptions = ReportOptions()) -> None:
    """Score EgoProceL: procedure learning on six data sets.

    `--json` and `-o` also report every task, video and key-step.

    **Example**

    * `hiero eval egoprocel --annotations annotations/ --features features/ --videos videos/ --model hiero-egovlp/`
    """
    from hiero.evaluation.egoprocel import check_lengths, evaluate_egoprocel, summarise
    from hiero.evaluation.egoprocel_data import NO_FEATURES, NO_RATE, find_egoprocel_videos
    from hiero.evaluation.protocols import PROTOCOLS
    from hiero.evaluation.results import Report

    videos, lacking, not_annotated = find_egoprocel_videos(
        options.annotations, options.features, options.read_rates(), parse_names(options.only)
    )
    if not_annotated:
        log(f"no annotations for {', '.join(not_annotated)}")
    missing = [name for name, lack in lacking.items() if lack == NO_FEATURES]
    without_rate = [name for name, lack in lacking.items() if lack == NO_RATE]
    if without_rate:
        log(f"{format_count(len(without_rate), 'video')} without a frame rate left out: {', '.join(without_rate)}")
    engine = open_engine(options.model, device=options.device)
    for warning in (warnings := check_lengths(engine, videos, options.stride)):
        log(warning)
    with progress_bar("videos", len(videos)) as advance:
        tables = evaluate_egoprocel(
            engine,
            videos,
            stride=options.stride,
            baselines=options.baselines,
            protocol=PROTOCOLS[options.protocol],
            seed=options.seed,
            progress=advance,
        )
    settings = {"model": options.model, "protocol": options.protocol, "videos": len(videos)}
    settings |= {"stride": options.stride, "seed": options.seed, "without_rate": without_rate, "warnings": warnings}
    result = Report("egoprocel", tables, settings, missing, summarise(tables[0]))
    report.output(result, len(tables) - NUM_DETAIL_TABLES)


@Parameter(name="*", group=Group("Goal-Step options", sort_key=11))
@dataclass(frozen=True)
class GoalStepOptions:
    """Features of Goal-Step, and how they are scored."""

    features: Path
    """Folder with a feature file UID.pt for each Ego4D video."""
    model: Model
    groups: Path | None = None
    """goalstep_video_groups.tsv, which lists videos to join."""
    fps: float = 30.0
    """Frame rate of the videos."""
    stride: Stride = 16.0
    baselines: Baselines = True
    device: Device = "auto"

    def load_engine(self, protocol: Protocol | None = None) -> hiero.Engine:
        """The model, configured for a protocol."""
        engine = open_engine(self.model, device=self.device)
        if engine.folder is None and not engine.has_text:
            raise InputError("Goal-Step needs a text encoder; give --model FOLDER or --model egovlp")
        return engine if protocol is None else protocol.configure(engine)

    def read_cases(
        self, engine: hiero.Engine, annotated: Sequence[AnnotatedVideo], protocol: Protocol | None = None
    ) -> tuple[list[Case], list[str]]:
        """The annotated videos that have features, and the names of the others."""
        from hiero.evaluation.goalstep import read_goalstep_cases, read_groups
        from hiero.evaluation.protocols import CORRECTED

        groups = {} if self.groups is None else read_groups(self.groups)
        with progress_bar("videos", len(annotated)) as advance:
            clock, protocol = Clock(self.fps, self.stride), protocol or CORRECTED
            return read_goalstep_cases(engine, self.features, annotated, groups, clock, advance, protocol, log)

    def settings(self, cases: Sequence[Case], **protocol: str) -> dict[str, Any]:
        """The settings that a report records."""
        return {"model": self.model, **protocol, "videos": len(cases), "fps": self.fps, "stride": self.stride}


@app.command(name="goalstep-grounding")
def goalstep_grounding(
    *,
    annotations: Path,
    options: GoalStepOptions,
    report: ReportOptions = ReportOptions(),
    num_threads: NumThreads = 8,
    prefix: str = "#C C ",
    protocol: ProtocolName = "corrected",
) -> None:
    """Score Goal-Step grounding without training: where is the step that a text describes?

    "HiERO, runs of threads" is the method of the paper, and "HiERO" is that of `hiero ask`. The row with
    all queries in order knows their true order.

    **Example**

    * `hiero eval goalstep-grounding --annotations goalstep_val.json --features egovlp/ --model hiero-egovlp/`

    Parameters
    ----------
    annotations
        goalstep_val.json of Goal-Step, or queries in the layout of NLQ.
    prefix
        Text added before each query.
    """
    from hiero.evaluation.cases import EvalOptions, TextEmbeddings
    from hiero.evaluation.goalstep import read_grounding
    from hiero.evaluation.grounding import evaluate_runs, grounding_task, name_raw_rows, summarise_grounding
    from hiero.evaluation.protocols import PROTOCOLS, RELEASE
    from hiero.evaluation.results import Report

    chosen = PROTOCOLS[protocol]
    engine, annotated = options.load_engine(chosen), read_grounding(annotations, prefix)
    embeddings = TextEmbeddings(engine, [step.text for video in annotated for step in video.steps])
    cases, missing = options.read_cases(engine, annotated, chosen)
    eval_options = EvalOptions(
        num_threads=num_threads, min_nodes=MIN_RUN_NODES, baselines=options.baselines, protocol=chosen
    )
    if chosen == RELEASE:
        table = evaluate_runs(cases, embeddings, eval_options)
    else:
        (table,) = grounding_task(cases, embeddings, eval_options).evaluate(cases)
    table.title += f", protocol: {chosen.name}"
    if engine.folder is None:
        name_raw_rows(table)
    summary = summarise_grounding(table)
    settings = options.settings(cases, protocol=chosen.name)
    report.output(Report("goalstep-grounding", [table], settings, missing, summary))


@app.command(name="goalstep-localization")
def goalstep_localization(
    *,
    annotations: GoalStepFile,
    options: GoalStepOptions,
    report: ReportOptions = ReportOptions(),
    taxonomy: Taxonomy = None,
    num_threads: NumThreads = 8,
) -> None:
    """Score Goal-Step localization without training: mAP at tIoU 0.1 to 0.5 over steps and substeps.

    **Example**

    * `hiero eval goalstep-localization --annotations goalstep_val.json --features egovlp/ --model hiero-egovlp/`
    """
    from hiero.evaluation.cases import EvalOptions
    from hiero.evaluation.goalstep import read_steps
    from hiero.evaluation.grounding import name_raw_rows
    from hiero.evaluation.protocols import CORRECTED
    from hiero.evaluation.results import Report
    from hiero.evaluation.tasks import localization_task

    annotated, engine = read_steps(annotations), options.load_engine()
    labels, embeddings = _read_taxonomy(engine, annotated, taxonomy)
    cases, missing = options.read_cases(engine, annotated)
    # With a protocol, the paper's methods average the same nodes as in step grounding.
    eval_options = EvalOptions(num_threads, MIN_RUN_NODES, options.baselines, protocol=CORRECTED)
    (table,) = localization_task(cases, labels, embeddings, eval_options).evaluate(cases)
    if engine.folder is None:
        name_raw_rows(table)
    report.output(Report("goalstep-localization", [table], options.settings(cases), missing))


@app.command(name="goalstep-classification")
def goalstep_classification(
    *,
    annotations: GoalStepFile,
    options: GoalStepOptions,
    report: ReportOptions = ReportOptions(),
    train: Path | None = None,
    taxonomy: Taxonomy = None,
) -> None:
    """Score Goal-Step key-step classification with known segments, without training and with a linear probe.

    **Example**

    * `hiero eval goalstep-classification --annotations goalstep_val.json --features egovlp/ --model hiero-egovlp/`

    Parameters
    ----------
    train
        goalstep_train.json, to train a linear probe on its segments.
    """
    from hiero.evaluation.goalstep import evaluate_classification, read_steps
    from hiero.evaluation.results import Report

    annotated, engine = read_steps(annotations), options.load_engine()
    labels, embeddings = _read_taxonomy(engine, annotated, taxonomy, train)
    cases, missing = options.read_cases(engine, annotated)
    train_cases = None
    if train is not None:
        train_cases, missing_train = options.read_cases(engine, read_steps(train))
        missing += missing_train
    table = evaluate_classification(cases, labels, embeddings, train_cases)
    report.output(Report("goalstep-classification", [table], options.settings(cases), missing))


def _read_taxonomy(
    engine: hiero.Engine, annotated: Sequence[AnnotatedVideo], *files: Path | None
) -> tuple[list[str], TextEmbeddings]:
    from hiero.evaluation.cases import TextEmbeddings
    from hiero.evaluation.goalstep import NUM_LABELS, label_text, read_taxonomy

    given = [file for file in files if file is not None]
    labels = read_taxonomy(annotated, given)
    if len(labels) != NUM_LABELS:
        names = ", ".join(map(str, given))
        hint = f"{names} should complete them" if given else "add --taxonomy goalstep_train.json"
        log(f"{len(labels)} labels instead of the paper's {NUM_LABELS}; {hint}")
    return labels, TextEmbeddings(engine, labels, label_text)
