"""Every table of the paper from the files that the authors released, and from your own models.

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
from hiero.evaluation.egoprocel_data import TASKS
from hiero.evaluation.paper_tables import (
    Run,
    add_scores,
    all_rows,
    count_annotations,
    definitions,
    is_own,
    own_rows,
    table_names,
)
from hiero.evaluation.released_files import ANNOTATIONS, JOINED_TOWER, TOWER_FILES, ReleasedFiles
from hiero.evaluation.results import Report, Row
from hiero.features.files import features_by_name
from hiero.storage.checkpoints import read_state_dict
from hiero.storage.files import atomic_path, read_json, write_text

TRAINING_FILE = "training.safetensors"  # state of an unfinished training, which --resume continues
NUM_VIDEOS = sum(task.num_videos for task in TASKS)  # in EgoProceL
WITHOUT_DEVICE = ("models", "pack")  # commands that have no --device
SELECTED = "DATA/selected"  # links to the features of the videos that annotations name


@dataclass(frozen=True)
class Job:
    """A command of hiero, what it makes, and a digest of the command and the content of its inputs."""

    target: str
    arguments: list[str]
    inputs: list[str]
    digest: str


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

    def add_tables(self, names: Sequence[str]) -> list[str]:
        """Remember which tables are computed; returns them with those of earlier runs."""
        self._made["tables"] = [name for name in table_names() if name in [*names, *self._made.get("tables", [])]]
        self._write()
        return list(self._made["tables"])

    def inputs(self, row: dict[str, Any]) -> dict[str, bool]:
        """The files that a row needs, and whether they are there."""
        targets = [target for run in row["ours"] for target in self._run_inputs(run)]
        given = {file: self.files.given(file) is not None for target in targets for file in self.files.origins(target)}
        if "statistics" in row:
            given |= [self.files.annotations_of(row["statistics"])]
        return given

    def _run_inputs(self, run: Run) -> list[str]:
        return list(dict.fromkeys(target for _, inputs in self.files.reports(run).values() for target in inputs))

    def _can_run(self, run: Run) -> bool:
        return all(self.inputs({"ours": [run]}).values())

    def survey(self, tables: Sequence[str]) -> dict[str, Any]:
        """The files that tables need, present and missing, and how many of their rows can be computed."""
        used: dict[str, list[str]] = {}
        is_given: dict[str, bool] = {}
        num_rows: dict[str, dict[str, int]] = {}
        for name in tables:
            rows = [self.inputs(row) for row in own_rows(name)]
            for file, given in [pair for row in rows for pair in row.items()]:
                used[file], is_given[file] = [*used.get(file, []), name], given
            num_rows[name] = {"ready": sum(all(row.values()) for row in rows), "rows": len(rows)}
        files = [
            {**self.files.describe(file), "present": is_given[file], "tables": list(dict.fromkeys(names))}
            for file, names in used.items()
        ]
        return {"version": 1, "inputs": sorted(files, key=lambda file: str(file["path"])), "tables": num_rows}

    def jobs(self, tables: Sequence[str]) -> list[Job]:
        """The jobs that can be done, each after those that make its inputs."""
        runs = [run for table in tables for row in own_rows(table) for run in row["ours"]]
        jobs: dict[str, Job] = {}
        for run in runs:
            if self._can_run(run):
                jobs |= {job.target: job for job in self._jobs_before(self._run_inputs(run))}
                jobs |= {job.target: job for job in self._report_jobs(run)}
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
            self.failures[job.target] = reason
        else:
            self._note(job, True)

    def _perform(self, job: Job, execute: Execute) -> str:
        path, arguments = self.files.path(job.target), job.arguments
        if job.target == JOINED_TOWER:
            text, projection = map(self.files.path, TOWER_FILES)
            join_tower(text, projection, path / "egovlp.pth")
            return ""
        if arguments[1].startswith(str(self.files.path(SELECTED))):
            self._select_videos(job, Path(arguments[1]))
        elif "train" in arguments[:2]:
            if self._made.get(job.target) != [job.digest, False]:
                shutil.rmtree(path, ignore_errors=True)  # it was trained on other data
            elif (path / TRAINING_FILE).is_file():
                arguments = [*arguments, "--resume"]
        self._note(job, False)
        is_joined = JOINED_TOWER in job.inputs and self.files.given(JOINED_TOWER) is None
        return execute(arguments, {"HIERO_WEIGHTS": str(self.files.out / "weights")} if is_joined else {})

    def _note(self, job: Job, is_finished: bool) -> None:
        self._made[job.target] = [job.digest, is_finished]
        self._write()

    def _write(self) -> None:
        write_text(self._made_file, json.dumps(self._made, indent=1) + "\n")

    def _jobs_before(self, targets: Sequence[str]) -> Iterator[Job]:
        """The jobs that make files and folders."""
        for target in targets:
            if (recipe := self.files.recipe(target)) is not None:
                words, inputs = recipe
                yield from self._jobs_before(inputs)
                if words and words[0] in ("pack", "embed") and _annotations(inputs):
                    words = [words[0], f"{SELECTED}/{target.replace('/', '-')}", *words[2:]]
                yield self._job(target, words, inputs)

    def _report_jobs(self, run: Run) -> list[Job]:
        """The jobs that write the reports of a run; the digests of their inputs must be known."""
        reports = self.files.reports(run).items()
        return [self._job(target, [*words, "-o", target], inputs) for target, (words, inputs) in reports]

    def _job(self, target: str, words: list[str], inputs: list[str]) -> Job:
        content = "\0".join([*words, *map(self.files.digest, inputs)])
        digest = self.files.digests[target] = hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()
        arguments = self.files.resolve(words)
        if self.device != "auto" and arguments and arguments[0] not in WITHOUT_DEVICE:
            arguments += ["--device", self.device]
        return Job(target, arguments, inputs, digest)

    def _select_videos(self, job: Job, folder: Path) -> None:
        """Link the features of the videos that annotations name: a benchmark needs few of Ego4D's videos."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        words: set[str] = set()
        for file in map(self.files.path, _annotations(job.inputs)):
            words.update(re.findall(r"[\w-]+", file.read_text(encoding="utf-8", errors="replace")))
        source = self.files.path(next(name for name in job.inputs if name.startswith("DATA/ego4d/")))
        files = {name: file for name, file in features_by_name(source).items() if name in words}
        if not files:
            raise InputError(f"{source}: no feature file is named like a video of the annotations")
        for file in files.values():
            (folder / file.name).symlink_to(file.resolve())

    def table(self, name: str) -> dict[str, Any]:
        """A table with the published numbers, ours and their difference, and what is missing or failed."""
        definition = definitions()["tables"][name]
        columns, notes = definition["columns"], dict.fromkeys(definition.get("notes", []))
        rows: list[dict[str, Any]] = []
        runs: dict[str, dict[str, Any]] = {}
        for row in all_rows(name):
            ours, failed, num_seeds = Row(row["method"], {}), [], 1
            for run in filter(self._can_run, row["ours"]):
                list(self._jobs_before(self._run_inputs(run)))  # digests of what is made
                jobs = self._report_jobs(run)
                failed += [self.failures[job.target] for job in jobs if job.target in self.failures]
                finished = [job for job in jobs if job.target not in self.failures and self.is_finished(job)]
                reports = [report for job in finished if (report := self._report(job)) is not None]
                if len(reports) < len(jobs):
                    continue
                add_scores(ours, reports, run, columns)
                num_seeds = max(num_seeds, len(self.files.models(run)))
                for report in reports:
                    runs[report.command] = {"settings": report.settings, "missing_videos": report.missing}
                    if run["eval"] == "egoprocel" and (num_videos := report.settings["videos"]) < NUM_VIDEOS:
                        notes[f"Ours: {num_videos} of {NUM_VIDEOS} videos, and means of their data sets."] = None
            try:
                if "statistics" in row and (folder := self.files.given(ANNOTATIONS)):
                    ours.scores |= count_annotations(folder, row["statistics"])
            except InputError as error:
                failed.append(str(error))
            if "parameters" in row:
                ours.scores["parameters (M)"] = row["parameters"]
            places = [self.files.describe(file)["path"] for file, is_given in self.inputs(row).items() if not is_given]
            problems = {"seeds": num_seeds, "missing": places, "failed": list(dict.fromkeys(failed))}
            rows.append({"published_only": not is_own(row), **_compare(row, columns, ours), **problems})
        head = {"name": name, "label": definition["label"], "title": definition["title"], "columns": columns}
        is_quoted = all(row["published_only"] for row in rows)
        return {**head, "notes": list(notes), "is_quoted": is_quoted, "rows": rows, "runs": runs}


def _annotations(inputs: Sequence[str]) -> list[str]:
    return [name for name in inputs if name.endswith((".json", ".tsv"))]


def _compare(row: dict[str, Any], columns: Sequence[str], ours: Row) -> dict[str, Any]:
    """A row of a table with the differences between our numbers and the published ones."""
    published = {c: value for c, value in zip(columns, row["published"], strict=True) if not math.isnan(value)}
    scores = {c: ours.scores[c] for c in columns if not math.isnan(ours.scores.get(c, math.nan))}
    difference = {c: scores[c] - published[c] for c in columns if c in scores.keys() & published}
    intervals = {c: ours.intervals[c] for c in scores if c in ours.intervals}
    numbers = {"published": published, "ours": scores, "intervals": intervals, "difference": difference}
    return {"method": row["method"], **numbers}


def join_tower(text: Path, projection: Path, out: Path) -> None:
    """Join EgoVLP's text encoder and its projection in the layout of EgoVLP's own checkpoint."""
    import torch

    state = {f"text_model.{name}": value for name, value in read_state_dict(text).items()}
    state |= {f"txt_proj.{name}": value for name, value in read_state_dict(projection).items()}
    with atomic_path(out) as file:
        torch.save({"state_dict": state}, file)
