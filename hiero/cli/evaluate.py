"""Commands that measure: one's own videos and the paper's benchmarks."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from hiero.cli.console import progress_bar, say
from hiero.errors import InputError
from hiero.files import read_lines

if TYPE_CHECKING:
    from hiero.bench.results import Report, Table
    from hiero.bench.tasks import Case

app = App(name="eval", help="Score a model on one's own videos or on the paper's benchmarks.")
Json = Annotated[bool, Parameter(name="--json", negative="")]
Out = Annotated[Path | None, Parameter(alias="-o")]


@app.command
def own(
    *,
    features: Path,
    annotations: Path,
    model: str = "hiero-k400",
    hz: float | None = None,
    tasks: str = "procedure,grounding,localization,choices",
    k: Annotated[int | None, Parameter(alias="-k")] = None,
    num_threads: int = 16,
    baselines: bool = True,
    only: Path | None = None,
    device: str = "auto",
    seed: int = 0,
    json_: Json = False,
    out: Out = None,
) -> None:
    """Score on your own videos: procedure learning, step grounding, step localization, multiple choice.

    **Example**: `hiero eval own --features features/ --annotations steps.json`

    The annotations are JSON: `{"video": {"task": "tea", "duration_s": 300, "steps": [{"start_s": 0, "end_s": 9, "text": "boil"}]}}`

    Parameters
    ----------
    features
        Folder with a feature file for each video: .npy, .npz, .pt or .safetensors, named as in the annotations.
    annotations
        JSON file with the timed steps of each video.
    model
        The shipped model by its name (for Kinetics-400 scores; it learned from all of CaptainCook4D), a model folder, a hub id,
        or `raw`.
    hz
        Rows a second of the features, where it is not the model's own clock.
    tasks
        Some of procedure, grounding, localization, choices, separated by commas.
    k
        Procedure learning also with this number of clusters for all videos; the true number is always reported.
    num_threads
        Threads that the paper's way of grounding cuts a video into.
    baselines
        Also score random, equal parts, raw features with other clusterings, and words without the graph.
    only
        A file with the names of videos to score, one a line; by default all.
    device
        auto, cpu, cuda …
    seed
        Of random baselines and the choice of wrong answers.
    json_
        Print one JSON document instead of tables.
    out
        Also write the report to this JSON file.
    """
    from hiero.bench.own import TASKS, evaluate, read_annotations, read_cases
    from hiero.bench.results import Report
    from hiero.bench.tasks import Options
    from hiero.engine import load
    from hiero.records import Clock

    wanted = [name.strip() for name in tasks.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in TASKS] or not wanted:
        raise InputError(f"--tasks are some of {', '.join(TASKS)}, got {tasks if unknown is True else ', '.join(unknown)}")
    if hz is not None and not hz > 0:
        raise InputError(f"--hz must be positive, got {hz}")
    if k is not None and k < 1:
        raise InputError(f"-k is at least 1, got {k}")
    annotated = read_annotations(annotations)
    if only is not None:
        names = read_lines(only)
        unknown = sorted(set(names) - {one.video for one in annotated})
        annotated = [one for one in annotated if one.video in names]
        if not annotated:
            raise InputError(f"{only}: none of its videos is in {annotations}")
        if unknown:
            say(f"{only}: {len(unknown)} videos are not in {annotations}: {', '.join(unknown[:3])} …")
    engine = load(model, backbone="default", device=device)
    with progress_bar("reading", len(annotated)) as done:
        clock = None if hz is None else Clock(hz, 1.0)
        cases, missing, left_out = read_cases(engine, features, annotated, clock, done)
    for line in left_out[:10]:
        say(line)
    if len(left_out) > 10:
        say(f"… and {len(left_out) - 10} more like this; all are in the report")
    options = Options(num_threads=num_threads, random_state=seed, baselines=baselines)
    with progress_bar("scoring", len(wanted)) as done:
        tables = evaluate(cases, wanted, options, k, done)
    settings = {"model": model, "videos": len(cases), "steps": sum(len(c.truth) for c in cases), "seed": seed, "hz": hz}
    settings["left_out"] = left_out
    give(Report("own", command_line(), tables, settings, missing), json_, out)


@app.command
def egomcq(
    *,
    store: Path,
    questions: Path,
    model: str,
    context: int = 4,
    batch_size: int = 2048,
    device: str = "auto",
    json_: Json = False,
    out: Out = None,
) -> None:
    """EgoMCQ: which of five clips does a narration describe? Inter-video and intra-video accuracy.

    **Example**: `hiero eval egomcq --store packed/ --questions egomcq.json --model hiero-egovlp/`

    Parameters
    ----------
    store
        Features of Ego4D videos, packed: `hiero pack FEATURES STORE`.
    questions
        egomcq.json as EgoVLP publishes it.
    model
        A model folder or hub id; for the authors' weights: `hiero import-checkpoint FILE.pth FOLDER`.
    context
        Δ: segments added on each side of a clip.
    batch_size
        Clips that go through the network together.
    device
        auto, cpu, cuda …
    json_
        Print one JSON document instead of a table.
    out
        Also write the report to this JSON file.
    """
    from hiero.bench.egomcq import evaluate, read_questions
    from hiero.bench.results import Report
    from hiero.data.store import FeatureStore
    from hiero.engine import load

    if context < 0 or batch_size < 1:
        raise InputError(f"--context is not negative and --batch-size at least 1, got {context} and {batch_size}")
    asked = read_questions(questions)
    engine = load(model, backbone="default", device=device)
    with progress_bar("clips", 5 * len(asked)) as done:
        table, missing = evaluate(engine, FeatureStore(store), asked, context, batch_size, lambda num: done("", num))
    give(Report("egomcq", command_line(), [table], {"model": model, "context": context}, missing), json_, out)


@app.command
def egoprocel(
    *,
    annotations: Path,
    features: Path,
    model: str,
    videos: Path | None = None,
    rates: Path | None = None,
    only: str = "",
    stride: int = 16,
    baselines: bool = True,
    device: str = "auto",
    seed: int = 0,
    json_: Json = False,
    out: Out = None,
) -> None:
    """EgoProceL: procedure learning on six data sets, by every protocol that is in use; the paper's comes first.

    **Example**: `hiero eval egoprocel --annotations annotations/ --features features/ --videos videos/ --model hiero-egovlp/`

    Parameters
    ----------
    annotations
        The official folder: CMU-MMAC/Brownie/…/*.csv, EGTEA_Gaze+/…, EPIC-Tents, MECCANO, pc_assembly, pc_disassembly.
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
    device
        auto, cpu, cuda …
    seed
        Of clusterings and random baselines.
    json_
        Print one JSON document instead of tables; it also has every task, video and key-step.
    out
        Also write the report to this JSON file.
    """
    from hiero.bench import egoprocel as bench
    from hiero.bench.results import Report
    from hiero.engine import load

    if rates is not None:
        known = bench.read_rates(rates)
    elif videos is not None:
        known = bench.probe_rates(videos, [bench.video_name(file) for file in annotations.rglob("*.csv")])
    else:
        raise InputError("frame rates are needed: --videos FOLDER with the videos, or --rates FILE (video,fps,frames)")
    wanted = [name.strip() for name in only.split(",") if name.strip()]
    found, missing, absent = bench.find_videos(annotations, features, known, wanted)
    if absent:
        say(f"no annotations for {', '.join(absent)}")
    engine = load(model, backbone="default", device=device)
    with progress_bar("videos", len(found)) as done:
        tables = bench.evaluate(engine, found, stride=stride, baselines=baselines, seed=seed, done=done)
    settings = {"model": model, "videos": len(found), "stride": stride, "seed": seed, "default": tables[0].title}
    give(Report("egoprocel", command_line(), tables, settings, missing), json_, out, len(tables) - 2)


@Parameter(name="*")
@dataclass(frozen=True)
class Data:
    """Where features are, and what to do with the result.

    Parameters
    ----------
    features
        Folder with a feature file for each Ego4D video, UID.pt.
    model
        A model folder or hub id.
    groups
        goalstep_video_groups.tsv: videos that are joined.
    fps
        Frames a second of the videos.
    stride
        Frames from one feature to the next.
    baselines
        Also score other clusterings, equal parts and random.
    device
        auto, cpu, cuda …
    json_
        Print one JSON document instead of tables.
    out
        Also write the report to this JSON file.
    """

    features: Path
    model: str
    groups: Path | None = None
    fps: float = 30.0
    stride: float = 16.0
    baselines: bool = True
    device: str = "auto"
    json_: Json = False
    out: Out = None

    def read(self, annotated: Sequence[Any]) -> tuple[list[Case], list[str]]:
        from hiero.bench.goalstep import read_cases, read_groups
        from hiero.engine import load
        from hiero.records import Clock

        engine = load(self.model, backbone="default", device=self.device)
        groups = {} if self.groups is None else read_groups(self.groups)
        with progress_bar("videos", len(annotated)) as done:
            return read_cases(engine, self.features, annotated, groups, Clock(self.fps, self.stride), done)

    def give(self, name: str, tables: list[Table], cases: Sequence[Case], missing: list[str]) -> None:
        from hiero.bench.results import Report

        settings = {"model": self.model, "videos": len(cases), "fps": self.fps, "stride": self.stride}
        give(Report(name, command_line(), tables, settings, missing), self.json_, self.out)


@app.command(name="goalstep-grounding")
def goalstep_grounding(*, annotations: Path, data: Data, num_threads: int = 8, prefix: str = "#C C ") -> None:
    """Goal-Step, step grounding without training: where is the step that a text describes?

    The row with all queries in their order knows more than the others: in these files the order follows the truth.

    **Example**: `hiero eval goalstep-grounding --annotations goalstep_grounding_val.json --features egovlp/ --model hiero-egovlp/`

    Parameters
    ----------
    annotations
        Queries in the NLQ-like layout of the task.
    num_threads
        Threads that a video is cut into.
    prefix
        Written before each query, so that it reads as narrations do.
    """
    from hiero.bench.goalstep import read_grounding
    from hiero.bench.tasks import Options, Words, ground

    cases, missing = data.read(read_grounding(annotations, prefix))
    words = Words(cases[0].video.engine, [step.text for case in cases for step in case.truth])
    options = Options(num_threads=num_threads, min_nodes=5, baselines=data.baselines)
    data.give("goalstep-grounding", [ground(cases, words, options)], cases, missing)


@app.command(name="goalstep-localization")
def goalstep_localization(*, annotations: Path, data: Data, taxonomy: Path | None = None, num_threads: int = 8) -> None:
    """Goal-Step, step localization without training: mAP at tIoU 0.1 to 0.5 over steps and substeps.

    **Example**: `hiero eval goalstep-localization --annotations goalstep_val.json --features egovlp/ --model hiero-egovlp/`

    Parameters
    ----------
    annotations
        goalstep_val.json.
    taxonomy
        goalstep_train.json, for the labels that do not occur in the annotations, or a text file with one label a line.
    num_threads
        Threads that a video is cut into.
    """
    from hiero.bench.goalstep import label_text, read_steps
    from hiero.bench.tasks import Options, Words, localize

    annotated = read_steps(annotations)
    labels = _taxonomy(annotated, taxonomy)
    cases, missing = data.read(annotated)
    words = Words(cases[0].video.engine, labels, label_text)
    options = Options(num_threads=num_threads, min_nodes=5, baselines=data.baselines)
    data.give("goalstep-localization", [localize(cases, labels, words, options)], cases, missing)


@app.command(name="goalstep-classification")
def goalstep_classification(*, annotations: Path, data: Data, train: Path | None = None, taxonomy: Path | None = None) -> None:
    """Goal-Step, key-step classification with known segments: without training, and with a linear probe.

    **Example**: `hiero eval goalstep-classification --annotations val.json --train train.json --features f/ --model m/`

    Parameters
    ----------
    annotations
        goalstep_val.json.
    train
        goalstep_train.json: a linear probe learns from its segments.
    taxonomy
        More labels: goalstep_train.json, or a text file with one label a line.
    """
    from hiero.bench.goalstep import classify, label_text, read_steps
    from hiero.bench.tasks import Words

    annotated = read_steps(annotations)
    labels = _taxonomy(annotated, taxonomy, train)
    cases, missing = data.read(annotated)
    known = None
    if train is not None:
        known, more = data.read(read_steps(train))
        missing += more
    words = Words(cases[0].video.engine, labels, label_text)
    data.give("goalstep-classification", [classify(cases, labels, words, known)], cases, missing)


def _taxonomy(annotated: Sequence[Any], *more: Path | None) -> list[str]:
    from hiero.bench.goalstep import NUM_LABELS, read_steps, taxonomy_of

    labels = taxonomy_of(annotated)
    for file in more:
        if file is not None:
            labels = sorted({*labels, *(taxonomy_of(read_steps(file)) if file.suffix == ".json" else read_lines(file))})
    if len(labels) != NUM_LABELS:
        say(f"{len(labels)} labels; the paper's taxonomy has {NUM_LABELS}. --taxonomy goalstep_train.json adds those of training")
    return labels


def command_line() -> str:
    import shlex

    return shlex.join(["hiero", *sys.argv[1:]])


def give(report: Report, as_json: bool, out: Path | None, num_tables: int | None = None) -> None:
    """Write the report where it is wanted, and print it; num_tables: the first ones only, where the rest is detail."""
    if out is not None:
        report.save(out)
        say(f"{out}: written")
    if as_json:
        sys.stdout.write(json.dumps(report.to_dict(), ensure_ascii=False) + "\n")
        return
    if report.missing:
        say(f"{len(report.missing)} videos of the benchmark have no features here: {', '.join(report.missing[:3])} …")
    for table in report.tables[:num_tables]:
        show(table)
    print(f"\n{', '.join(f'{name} {value}' for name, value in report.settings.items() if value not in ([], None))}")
    print(report.command)


def show(table: Table, names: Sequence[str] = ()) -> None:
    from rich.console import Console
    from rich.table import Table as Drawn
    from rich.text import Text

    from hiero.bench.results import cell

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 240
    console.print(f"\n{table.title}", style="bold")
    drawn = Drawn(box=None, pad_edge=False)
    drawn.add_column("")
    for name in table.columns:
        drawn.add_column(name, justify="right")
    wide = console.width >= 34 + 18 * len(table.columns)
    for one in table.rows:
        drawn.add_row(Text(one.method), *(cell(one, name, intervals=wide) for name in table.columns))
    console.print(drawn)
    if not wide and any(one.intervals for one in table.rows):
        console.print("Intervals: in a wider terminal, or with --json.", style="dim")
    for note in table.notes:
        console.print(note)
