"""Commands with odd options and control characters, on damaged corpora, killed, on full disks, several at once."""

from __future__ import annotations

import functools
import io
import json
import operator
import os
import random
import shutil
import signal
import sys
import time
import unicodedata
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from hiero import cli
from tests.fuzz.damage import ODD_NUMBERS, ODD_TEXTS, damage_bytes
from tests.fuzz.files import damage_file, made_folder, made_hierarchy, made_model
from tests.fuzz.suite import LostEditError, suite
from tests.processes import Program, start_hiero

PROCESS_LIMIT_S = 120.0  # of several processes; each must end within ten seconds on an idle machine
UNENDING = {"--watch", "--seeds"}  # options that wait for more videos, or train networks
VARIABLES = ("HIERO_HOME", "HIERO_WEIGHTS", "HIERO_REMOTE_CACHE_GB", "HIERO_WHISPER_MODEL", "HIERO_GPU_DECODING")
VARIABLES += ("HIERO_CACHE_MAX", "XDG_CACHE_HOME", "COLUMNS", "TERM", "NO_COLOR", "LANG", "HOME")
COMMANDS: dict[str, list[str]] = {  # words in capitals are files of `make_files`
    "steps": ["FEATURES", "--model", "raw"],
    "ask": ["FEATURES", "boil", "--model", "raw"],
    "procedure": ["FOLDER", "--model", "raw", "-k", "3"],
    "import-steps": ["TABLE", "--video", "FEATURES"],
    "index": ["FOLDER", "--to", "OUT", "--model", "raw"],
    "search": ["CORPUS", "--like", "v1@0:20", "--model", "raw"],
    "corpus check": ["CORPUS"],
    "corpus list": ["CORPUS"],
    "corpus remove": ["CORPUS", "v7"],
    "adapt": ["FOLDER", "--model", "raw", "-o", "OUT"],
    "pack": ["FOLDER", "OUT"],
    "embed": ["FEATURES", "--model", "MODEL", "-o", "OUT"],
    "models import": ["FEATURES", "-o", "OUT"],
    "models list": [],
    "models get": ["minilm", "--source", "TABLE"],
    "eval own": ["--features", "FOLDER", "--annotations", "STEPS", "--model", "raw"],
    "eval egomcq": ["--features", "FOLDER", "--annotations", "STEPS", "--model", "MODEL"],
    "reproduce": ["FOLDER", "--check"],
    "head eval": ["MODEL", "--features", "FOLDER", "--annotations", "STEPS"],
    "report": ["FOLDER", "--model", "raw", "-o", "OUT"],
    "serve token list": ["--root", "FOLDER"],
    "backup": ["FOLDER", "OUT"],
    "restore": ["STEPS", "OUT"],
    "extract": ["FEATURES", "-o", "OUT"],
}
CONTROL = ("\x1b]0;title\x07", "\x1b[2J", "\x1b[31m", "\x07", "\x08\x08", "\x9b31m", "\x7f", "\x0b", "\x85", "\x1bc")


@functools.cache
def made_corpus() -> Path:
    """A corpus of three videos, next to their feature files."""
    folder = made_folder("corpus")
    write_features(folder / "features", 3)
    call(["index", str(folder / "features"), "--to", str(folder / "corpus"), "--model", "raw"], folder, {})
    return folder / "corpus"


@suite("options", 800, prepare=made_corpus)
def give_odd_options(folder: Path, rng: random.Random) -> None:
    """A command with odd options, arguments and variables ends with a result or a clear message."""
    arguments, variables = odd_command(folder, rng)
    call(arguments, folder, variables)


@suite("processes", 60, PROCESS_LIMIT_S, made_corpus)
def start_odd_command(folder: Path, rng: random.Random) -> None:
    """The same in its own process, whose outputs may be closed."""
    arguments, variables = odd_command(folder, rng)
    with chdir(folder):  # it may write where it runs
        run(arguments, codes=(0, 1, 2), env={**os.environ, **variables})


def odd_command(folder: Path, rng: random.Random) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment variables of a command."""
    files = make_files(folder)
    name = rng.choice(list(COMMANDS))
    arguments = [files.get(part, part) for part in COMMANDS[name]]
    command = functools.reduce(operator.getitem, name.split(), cli.app)
    known = [each for each in command.assemble_argument_collection() if each.names[0].startswith("-")]
    options = [each for each in known if not UNENDING & set(each.names)]
    for option in rng.sample(options, min(len(options), rng.choice((0, 1, 1, 2, 3)))):
        arguments.append(rng.choice(option.names))
        if option.hint is not bool:
            arguments.append(odd_argument(files, rng))
    if rng.random() < 0.2:
        arguments.insert(rng.randrange(len(arguments) + 1), odd_argument(files, rng))
    if arguments and rng.random() < 0.1:
        del arguments[rng.randrange(len(arguments))]
    if rng.random() < 0.2:
        damage_file(Path(files[rng.choice(("FEATURES", "LABELS", "TABLE", "STEPS"))]), rng)
    variables = {name: odd_argument(files, rng) for name in VARIABLES if rng.random() < 0.1}
    return [*name.split(), *arguments], {name: value for name, value in variables.items() if value}


def odd_argument(files: dict[str, str], rng: random.Random) -> str:
    """A text, a number or a file of another kind. Never a device, since the command may write there."""
    more = ("1,2", "0:20", "cpu", "raw", "s3://k:s@b/v.mp4", "-1", "1e400")
    odd = str(rng.choice((*ODD_TEXTS, *ODD_NUMBERS, *files.values(), *more)))
    return odd.replace("\x00", "")[:5000]


def call(arguments: list[str], folder: Path, variables: dict[str, str]) -> str:
    """Run a command in this process, in a subfolder of `folder`, and return what it printed."""
    inside = folder / "a" / "b" / "c"  # so that ../../x is below `folder` too
    inside.mkdir(parents=True, exist_ok=True)
    printed, code = io.StringIO(), 0
    with (
        chdir(inside),
        patch.dict(os.environ, variables),
        patch.object(sys, "argv", ["hiero", *arguments]),
        redirect_stdout(printed),
        redirect_stderr(printed),
    ):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    check(code, printed.getvalue(), arguments, (0, 1, 2))
    return printed.getvalue()


def check(code: int | None, printed: str, arguments: list[str], codes: tuple[int, ...] = (0,)) -> None:
    assert "Traceback" not in printed, f"{arguments}: {printed[-300:]}"
    assert code in codes, f"{arguments}: exit code {code}: {printed[-300:]}"
    assert code == 0 or printed.strip(), f"{arguments}: no message"


@suite("terminal", 250, prepare=made_corpus)
def print_control_characters(folder: Path, rng: random.Random) -> None:
    """Control characters of names, options, labels and speech reach neither the terminal nor a file."""
    files = make_files(folder)
    odd = rng.choice(CONTROL)
    name = f"a{odd}b"
    video, table, missing = (str(folder / f"{name}{suffix}") for suffix in (".npy", ".csv", ".mp4"))
    shutil.copy(files["FEATURES"], video)
    Path(table).write_text(f"start_s,end_s,label\n0,9,{odd}stir\n9,60,pour{odd}\n")
    (folder / "labels.txt").write_text(f"boil{odd}\n{odd}wash\n")
    (folder / f"{name}.srt").write_text(f"1\n00:00:01,000 --> 00:00:04,000\nnow {odd} we boil\n")
    out, features = str(folder / "out"), files["FEATURES"]
    commands = (
        ["steps", video, "--model", "raw", "-o", out, "--export", "csv", "--export", "srt"],
        ["steps", features, "--model", "raw", "--transcript", str(folder / f"{name}.srt"), "-o", out],
        ["steps", features, "--model", name],
        ["ask", missing, name],
        ["import-steps", table, "--video", features, "-o", f"{out}/s.json"],
        ["import-steps", table, "--video", video],
        ["steps", video, "--labels", str(folder / "labels.txt")],
        ["index", video, "--to", str(folder / "corpus"), "--model", "raw"],
        ["pack", str(folder / name), out],
        ["eval", "own", "--features", str(folder), "--annotations", missing],
        ["models", "get", name],
        ["steps", f"--{name}"],
    )
    command = rng.choice(commands)
    printed = call(command, folder, {})
    printed += "".join(path.read_text() for path in Path(out).rglob("*") if path.suffix in (".csv", ".srt", ".vtt"))
    found = [c for c in printed if unicodedata.category(c) == "Cc" and c not in "\n\t\r"]
    assert not found, f"{command[0]} prints {found[0]!r}"


@suite("corpora", 150, prepare=made_corpus)
def damage_corpus(folder: Path, rng: random.Random) -> None:
    """A damaged corpus is used, or refused with a message."""
    corpus = folder / "corpus"
    shutil.copytree(made_corpus(), corpus)
    for _ in range(rng.choice((1, 1, 3))):
        paths = sorted(corpus.rglob("*"))
        files = [path for path in paths if path.is_file()]
        if not files:
            break
        path = rng.choice(files if rng.random() < 0.9 else paths)
        kind = rng.choice(("remove", "bytes", "bytes", "noise", "folder"))
        if path.is_dir():
            shutil.rmtree(path)
        elif kind in ("bytes", "noise"):
            data = path.read_bytes()
            path.write_bytes(damage_bytes(data, rng) if kind == "bytes" else rng.randbytes(len(data)))
        else:
            path.unlink()
            if kind == "folder":
                path.mkdir()
    commands = [
        *(["corpus", "check", str(corpus)], ["corpus", "list", str(corpus)], ["corpus", "remove", str(corpus), "v1"]),
        ["search", str(corpus), "--like", "v1@0:20", "--model", "raw"],
        ["index", str(made_corpus().parent / "features"), "--to", str(corpus), "--model", "raw"],
    ]
    for command in rng.sample(commands, 2):
        call(command, folder, {})


@suite("kills", 16, PROCESS_LIMIT_S)
def kill_command(folder: Path, rng: random.Random) -> None:
    """A killed command gives the result of an undisturbed run when it is run again."""
    features = write_features(folder / "features", 4)
    name = rng.choice(("index", "pack"))
    contents = []
    for out in (folder / "whole", folder / "disturbed"):
        options = [out, "--fps", "1", "--stride", "1"] if name == "pack" else ["--to", out, "--model", "raw"]
        command = [name, str(features), *map(str, options)]
        if out.name == "disturbed":
            process = start_hiero(*command)
            time.sleep(rng.uniform(0.0, 1.0))
            process.send_signal(rng.choice((signal.SIGKILL, signal.SIGINT, signal.SIGTERM)))
            process.communicate()
        run(command)
        if name == "pack":
            contents.append({path.name: path.read_bytes() for path in sorted(out.iterdir()) if path.is_file()})
        else:
            contents.append([(row["video"], row["sha256"], row["levels"]) for row in list_corpus(out)])
    assert contents[0] == contents[1], f"{name}: the result after a kill differs"


@suite("corrections", 24, PROCESS_LIMIT_S)
def correct_and_kill(folder: Path, rng: random.Random) -> None:
    """Corrections of a command that ended well are used, even if the next command is killed."""
    video, table = write_features(folder / "features", 1) / "v0.npy", folder / "steps.csv"
    np.save(video, np.random.default_rng(rng.randrange(2**32)).normal(size=(80, 16)).astype(np.float32))
    acknowledged = None
    for number in range(3):
        table.write_text(f"start_s,end_s,label\n0,30,stir {number}\n30,80,pour {number}\n")
        process = start_hiero("import-steps", table, "--video", video, "--replace")
        if number and rng.random() < 0.7:
            time.sleep(rng.uniform(0.0, 0.5))
            process.kill()
        assert "Traceback" not in "".join(process.communicate())
        acknowledged = number if process.poll() == 0 else acknowledged
        document = json.loads(run(["steps", str(video), "--model", "raw", "--json"]))
        found = [step["label"] for step in document["levels"][-1]["steps"]]
        # A command that was killed may have saved before it could say so.
        if found not in [[f"stir {save}", f"pour {save}"] for save in range(acknowledged or 0, number + 1)]:
            raise LostEditError(f"save {acknowledged} was acknowledged, the steps are {found}")


@suite("disks", 16, PROCESS_LIMIT_S)
def fill_disk(folder: Path, rng: random.Random) -> None:
    """A full disk causes a clear message and no traceback."""
    features = write_features(folder / "features", 1)
    out, limit = str(folder / "out"), rng.choice((0, 100, 4096, 20_000))
    commands = (
        ["pack", str(features), out, "--fps", "1", "--stride", "1"],
        ["steps", str(features / "v0.npy"), "--model", "raw", "-o", out],
        ["index", str(features), "--to", out, "--model", "raw"],
    )
    run(rng.choice(commands), codes=(0, 1, 2), limit_bytes=limit)


@suite("writers", 8, PROCESS_LIMIT_S)
def write_at_once(folder: Path, rng: random.Random) -> None:
    """If several processes index the same files, each video is indexed once, with all steps."""
    features, corpus = write_features(folder / "features", 6), str(folder / "corpus")
    command = ["index", str(features), "--to", corpus, "--model", "raw"]
    for process in [start_hiero(*command) for _ in range(rng.choice((2, 3)))]:
        output, errors = process.communicate()
        check(process.poll(), output + errors, command)
    names = sorted(row["video"] for row in list_corpus(Path(corpus)))
    assert names == [f"v{i}" for i in range(6)], names


def run(arguments: list[str], codes: tuple[int, ...] = (0,), **options: Any) -> str:
    """Run a command in its own process, and return what it printed."""
    process: Program = start_hiero(*arguments, **options)
    output, errors = process.communicate(PROCESS_LIMIT_S)
    check(process.poll(), output + errors, arguments, codes)
    return output


def list_corpus(corpus: Path) -> list[dict[str, Any]]:
    return json.loads(run(["corpus", "list", str(corpus), "--json"]))["videos"]


def write_features(folder: Path, num: int) -> Path:
    """A folder of feature files."""
    folder.mkdir(parents=True)
    for i in range(num):
        np.save(folder / f"v{i}.npy", np.random.default_rng(i).normal(size=(80, 16)).astype(np.float32))
    return folder


def make_files(folder: Path) -> dict[str, str]:
    """A file of each kind that commands take."""
    files = {"OUT": folder / "out", "FOLDER": folder / "features", "CORPUS": made_corpus(), "MODEL": folder / "model"}
    files |= {"FEATURES": folder / "features" / "v1.npy", "LABELS": folder / "l.txt", "TABLE": folder / "t.csv"}
    files |= {"STEPS": folder / "steps.json", "EXPORT": folder / "export.json"}
    shutil.copytree(made_corpus().parent / "features", folder / "features")
    files["MODEL"].mkdir()
    for name, data in made_model().items():
        (files["MODEL"] / name).write_bytes(data)
    files["LABELS"].write_text("boil\nwash\n")
    files["TABLE"].write_text("start_s,end_s,label\n0,9,stir\n9,42,pour\n")
    step = {"start_s": 1.0, "end_s": 9.0, "text": "boil"}
    files["STEPS"].write_text(json.dumps({f"v{i}": {"steps": [step]} for i in range(3)}))
    files["EXPORT"].write_text(json.dumps(made_hierarchy(random.Random(0)).to_dict()))
    return {name: str(path) for name, path in files.items()}
