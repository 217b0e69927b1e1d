"""Every table of the paper from one folder with the files that the authors released.

released files ─► models, packed and enriched features, heads ─► a report for each run ─► tables

Each arrow is a job: a command of hiero in its own process. OUT/made.json remembers the finished ones.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hiero.errors import InputError
from hiero.evaluation.commands import Execute
from hiero.evaluation.egoprocel_data import TASKS, find_annotations
from hiero.evaluation.paper_tables import (
    ANNOTATIONS,
    RAW,
    Run,
    add_scores,
    count_annotations,
    definitions,
    own_rows,
    run_arguments,
    run_command,
    table_names,
)
from hiero.evaluation.released_files import FOLDERS, JOINED_TOWER, TOWER_FILES, ReleasedFiles, link
from hiero.evaluation.results import Report, Row
from hiero.features.files import features_by_name
from hiero.storage.checkpoints import read_state_dict
from hiero.storage.files import atomic_path, read_json, write_text

TRAINING_FILE = "training.safetensors"  # state of an unfinished training, which --resume continues
NUM_VIDEOS = sum(task.num_videos for task in TASKS)  # in EgoProceL
WITHOUT_DEVICE = ("models", "pack")  # commands that have no --device


@dataclass(frozen=True)
class Job:
    """A command of hiero, what it makes, and a digest of the command and the content of its inputs."""

    target: str
    arguments: list[str]
    inputs: list[str]
    digest: str


def reproducible_tables(heads: bool) -> list[str]:
    """The tables that need only released files and, with `heads`, those of heads that are trained on them.

    The others compare models that the authors did not release.
    """
    excluded = ("hiero train",) if heads else ("hiero train", "hiero head")
    commands = {RAW: "", **definitions()["models"]}
    runs = {name: [run for row in own_rows(name) for run in row["ours"]] for name in table_names()}
    return [name for name in runs if not any(commands[run["model"]].startswith(excluded) for run in runs[name])]


class Reproduction:
    """The jobs behind the tables, their state, and the tables themselves."""

    def __init__(self, files: ReleasedFiles, device: str = "auto") -> None:
        self.files, self.device = files, device
        self.failures: dict[str, str] = {}
        self._made_file = files.out / "made.json"
        try:
            self._made: dict[str, Any] = dict(read_json(self._made_file))
        except (InputError, TypeError, ValueError):  # missing or damaged: everything is made again
            self._made = {}

    def missing(self, row: dict[str, Any]) -> list[str]:
        """The released files that a row needs and DATA does not have."""
        files = [file for run in row["ours"] for file in self.files.missing(run)]
        if "statistics" in row:
            task = next(task for task in TASKS if task.name == row["statistics"])
            if not find_annotations(self.files.path(f"DATA/{ANNOTATIONS}"), task):
                folder = f"DATA/{ANNOTATIONS}"
                files.append(f"{folder}/{task.folder}" if self.files.exists(folder) else folder)
        return list(dict.fromkeys(files))

    def jobs(self, tables: Sequence[str]) -> list[Job]:
        """The jobs that can be done, each after those that make its inputs."""
        runs = [run for table in tables for row in own_rows(table) for run in row["ours"]]
        jobs: dict[str, Job] = {}
        for run in runs:
            if not self.files.missing(run):
                jobs |= {job.target: job for job in self._jobs_of(run)}
        return list(jobs.values())

    def is_finished(self, job: Job) -> bool:
        """Whether a job was finished with the same command and inputs, and its result can still be used."""
        is_report = job.target.startswith("RUNS/")
        is_usable = self._report(job) is not None if is_report else self.files.path(job.target).exists()
        return is_usable and self._made.get(job.target) == [job.digest, True]

    def _report(self, job: Job) -> Report | None:
        try:
            return Report.load(self.files.path(job.target))
        except InputError:  # missing or damaged
            return None

    def perform(self, job: Job, execute: Execute) -> None:
        """Do a job. The reason of a failure is kept in `failures`, also for the jobs that need its result."""
        reason = next((self.failures[target] for target in job.inputs if target in self.failures), "")
        try:
            reason = reason or self._perform(job, execute)
        except InputError as error:
            reason = str(error)
        if reason:
            self.failures[job.target] = self.files.show_originals(reason)
        else:
            self._note(job, True)

    def _perform(self, job: Job, execute: Execute) -> str:
        path, arguments = self.files.path(job.target), job.arguments
        if job.target == JOINED_TOWER:
            text, projection = map(self.files.path, TOWER_FILES)
            join_tower(text, projection, path / "egovlp.pth")
            return ""
        if arguments[0] in ("pack", "embed"):
            self._select_videos(job, Path(arguments[1]))
        elif arguments[:2] == ["head", "train"]:
            if self._made.get(job.target) != [job.digest, False]:
                shutil.rmtree(path, ignore_errors=True)  # it was trained on other data
            elif (path / TRAINING_FILE).is_file():
                arguments = [*arguments, "--resume"]
        self._note(job, False)
        is_joined = JOINED_TOWER in job.inputs and not self.files.exists(JOINED_TOWER)
        return execute(arguments, {"HIERO_WEIGHTS": str(self.files.path("WEIGHTS/"))} if is_joined else {})

    def _note(self, job: Job, is_finished: bool) -> None:
        self._made[job.target] = [job.digest, is_finished]
        write_text(self._made_file, json.dumps(self._made, indent=1) + "\n")

    def _jobs_before(self, targets: Sequence[str]) -> Iterator[Job]:
        """The jobs that make files and folders."""
        for target in targets:
            if (recipe := self.files.recipe(target)) is not None:
                words, inputs = recipe
                yield from self._jobs_before(inputs)
                arguments = [str(self.files.path(word)) if word.split("/")[0] in FOLDERS else word for word in words]
                if arguments and arguments[0] in ("pack", "embed"):
                    arguments[1] = str(self.files.path(f"DATA/selected/{target.replace('/', '-')}"))
                yield self._job(target, arguments, inputs)

    def _jobs_of(self, run: Run) -> list[Job]:
        """The jobs behind a run; the last one writes its report."""
        jobs = list(self._jobs_before(self.files.run_inputs(run)))
        models = [Path(RAW)] if run["model"] == RAW else [self.files.path(target) for target in self.files.models(run)]
        parts = [str(run[key]) for key in ("eval", "model", "backbone", "data", "protocol", "context") if key in run]
        target = f"RUNS/{'-'.join(parts).replace('/', '-')}.json"
        arguments = [*run_command(run), *run_arguments(run, models, self.files.path("DATA/"))[0]]
        output = ["-o", str(self.files.path(target))]
        return [*jobs, self._job(target, [*arguments, *output], self.files.run_inputs(run))]

    def _job(self, target: str, arguments: list[str], inputs: list[str]) -> Job:
        words = [word.replace(str(self.files.out), "OUT") for word in arguments]
        content = "\0".join([*words, *map(self.files.digest, inputs)])
        digest = self.files.digests[target] = hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()
        if self.device != "auto" and arguments and arguments[0] not in WITHOUT_DEVICE:
            arguments = [*arguments, "--device", self.device]
        return Job(target, arguments, inputs, digest)

    def _select_videos(self, job: Job, folder: Path) -> None:
        """Link the features of the videos that annotations name: a benchmark needs few of Ego4D's videos."""
        shutil.rmtree(folder, ignore_errors=True)
        words: set[str] = set()
        for file in (self.files.path(name) for name in job.inputs if name.endswith((".json", ".tsv"))):
            words.update(re.findall(r"[\w-]+", file.read_text(encoding="utf-8", errors="replace")))
        source = self.files.path(next(name for name in job.inputs if name.startswith("DATA/ego4d/")))
        files = {name: file for name, file in features_by_name(source).items() if name in words}
        if not files:
            raise InputError(f"{source.resolve()}: no feature file is named like a video of the annotations")
        for file in files.values():
            link(folder / file.name, file)

    def table(self, name: str) -> dict[str, Any]:
        """A table with the published numbers, ours and their difference, and what is missing or failed."""
        definition = definitions()["tables"][name]
        columns, notes = definition["columns"], dict.fromkeys(definition.get("notes", []))
        rows: list[dict[str, Any]] = []
        runs: dict[str, dict[str, Any]] = {}
        for row in own_rows(name):
            ours, failed = Row(row["method"], {}), []
            for run in (run for run in row["ours"] if not self.files.missing(run)):
                job = self._jobs_of(run)[-1]
                report = self._report(job)
                if job.target in self.failures:
                    failed.append(self.failures[job.target])
                elif report is not None and self.is_finished(job):
                    add_scores(ours, [report], run, columns)
                    runs[report.command] = {"settings": report.settings, "missing_videos": report.missing}
                    if run["eval"] == "egoprocel" and (num_videos := report.settings["videos"]) < NUM_VIDEOS:
                        notes[f"Ours: {num_videos} of {NUM_VIDEOS} videos, and means of their data sets."] = None
            if "statistics" in row:
                try:
                    ours.scores |= count_annotations(self.files.path(f"DATA/{ANNOTATIONS}"), row["statistics"])
                except InputError as error:
                    failed.append(str(error))
            places = [self.files.describe(file)[0] for file in self.missing(row)]
            problems = {"missing": places, "failed": list(dict.fromkeys(failed))}
            rows.append(_compare(row, columns, ours.scores) | problems)
        head = {"name": name, "label": definition["label"], "title": definition["title"], "columns": columns}
        return {**head, "notes": list(notes), "rows": rows, "runs": runs}


def _compare(row: dict[str, Any], columns: Sequence[str], scores: dict[str, float]) -> dict[str, Any]:
    """A row of a table with the differences between our numbers and the published ones."""
    published = {c: value for c, value in zip(columns, row["published"], strict=True) if not math.isnan(value)}
    ours = {c: scores[c] for c in columns if not math.isnan(scores.get(c, math.nan))}
    difference = {c: ours[c] - published[c] for c in columns if c in ours.keys() & published}
    return {"method": row["method"], "published": published, "ours": ours, "difference": difference}


def join_tower(text: Path, projection: Path, out: Path) -> None:
    """Join EgoVLP's text encoder and its projection in the layout of EgoVLP's own checkpoint."""
    import torch

    state = {f"text_model.{name}": value for name, value in read_state_dict(text).items()}
    state |= {f"txt_proj.{name}": value for name, value in read_state_dict(projection).items()}
    with atomic_path(out) as file:
        torch.save({"state_dict": state}, file)
