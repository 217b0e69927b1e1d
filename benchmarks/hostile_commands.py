"""Commands for `benchmarks.hostile`: killed, on full disks, several at once, with odd options, with control
characters, on damaged corpora.
"""

from __future__ import annotations

import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.damage import ODD_NUMBERS, ODD_TEXTS, damage_bytes

PROCESS_LIMIT_S = 120.0
KILL_AFTER_S = (0.2, 3.0)  # of a process that starts from nothing


def kill_command(folder: Path, rng: random.Random) -> None:
    """A long command is killed at some moment; run again, its result is that of an undisturbed run."""
    features = folder / "features"
    features.mkdir()
    for i in range(4):
        np.save(features / f"v{i}.npy", np.random.default_rng(i).normal(size=(80, 16)).astype(np.float32))
    commands = {
        "pack": ["pack", str(features), "OUT", "--fps", "1", "--stride", "1"],
        "index": ["index", str(features), "--to", "OUT", "--model", "raw"],
    }
    name = rng.choice(sorted(commands))
    outs = []
    for disturbed in (False, True):
        out = folder / ("disturbed" if disturbed else "whole")
        command = [str(out) if part == "OUT" else part for part in commands[name]]
        if disturbed:
            process = _start(command)
            time.sleep(rng.uniform(*KILL_AFTER_S))
            process.send_signal(rng.choice((signal.SIGKILL, signal.SIGINT, signal.SIGTERM)))
            process.communicate(timeout=PROCESS_LIMIT_S)
        _run(command)
        outs.append(_content(name, out))
    assert outs[0] == outs[1], f"{name}: the result after a kill differs"


def fill_disk(folder: Path, rng: random.Random) -> None:
    """No file can grow beyond a size: a clear message, no traceback, and the old result still there."""
    features = folder / "features"
    features.mkdir()
    np.save(features / "v.npy", np.random.default_rng(0).normal(size=(200, 64)).astype(np.float32))
    out, limit = folder / "out", rng.choice((0, 100, 4096, 20_000))
    command = rng.choice(
        (
            ["pack", str(features), str(out), "--fps", "1", "--stride", "1"],
            ["steps", str(features / "v.npy"), "--model", "raw", "-o", str(out)],
            ["index", str(features), "--to", str(out), "--model", "raw"],
        )
    )
    _run(command, limit_bytes=limit, codes=(0, 1, 2))


def write_at_once(folder: Path, rng: random.Random) -> None:
    """Several processes index the same files: each video once, all steps."""
    features = folder / "features"
    features.mkdir()
    for i in range(6):
        np.save(features / f"v{i}.npy", np.random.default_rng(i).normal(size=(60, 16)).astype(np.float32))
    corpus = str(folder / "corpus")
    processes = [_start(["index", str(features), "--to", corpus, "--model", "raw"]) for _ in range(rng.choice((2, 3)))]
    for process in processes:
        _, errors = process.communicate(timeout=PROCESS_LIMIT_S)
        _check(process.returncode, errors, (0,))
    names = sorted(video["video"] for video in json.loads(_run(["corpus", "list", corpus, "--json"]))["videos"])
    assert names == [f"v{i}" for i in range(6)], names
    _run(["corpus", "check", corpus])


def _start(arguments: list[str], limit_bytes: int | None = None) -> subprocess.Popen[str]:
    def limit() -> None:
        if limit_bytes is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that a write fails as on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    return subprocess.Popen(
        [sys.executable, "-m", "hiero", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
    )


def _run(arguments: list[str], limit_bytes: int | None = None, codes: tuple[int, ...] = (0,)) -> str:
    process = _start(arguments, limit_bytes)
    output, errors = process.communicate(timeout=PROCESS_LIMIT_S)
    _check(process.returncode, errors, codes)
    return output


def _check(code: int, errors: str, codes: tuple[int, ...]) -> None:
    assert "Traceback" not in errors, errors[-300:]
    assert code in codes, f"exit code {code}: {errors[-300:]}"


def _content(name: str, out: Path) -> Any:
    """What a command made, without what differs from run to run."""
    if name == "pack":
        return {path.name: path.read_bytes() for path in sorted(out.iterdir()) if path.is_file()}
    videos = json.loads(_run(["corpus", "list", str(out), "--json"]))["videos"]
    return [(video["video"], video["sha256"], video["levels"]) for video in videos]


# Commands within this process, which is quick


def give_odd_options(folder: Path, rng: random.Random) -> None:
    """A command with odd options, arguments and variables ends with a result or a clear message."""
    files = _made_files(folder)
    name = rng.choice(sorted(COMMANDS))
    arguments = [files.get(part, part) for part in COMMANDS[name]]
    options = [
        argument
        for argument in _find_command(name).assemble_argument_collection()
        if argument.names[0].startswith("-") and not UNENDING & set(argument.names)
    ]
    for option in rng.sample(options, min(len(options), rng.choice((0, 1, 1, 2, 3)))):
        arguments.append(rng.choice(option.names))
        if option.hint is not bool:
            arguments.append(_odd_argument(files, rng))
    if rng.random() < 0.2:
        arguments.insert(rng.randrange(len(arguments) + 1), _odd_argument(files, rng))
    if arguments and rng.random() < 0.1:
        del arguments[rng.randrange(len(arguments))]
    variables = {variable: _odd_argument(files, rng) for variable in VARIABLES if rng.random() < 0.15}
    _call([*name.split(), *arguments], folder, variables)


def print_control_characters(folder: Path, rng: random.Random) -> None:
    """Control characters of names, options, labels and speech reach neither the terminal nor a file."""
    files = _made_files(folder)
    odd = rng.choice(CONTROL_CHARACTERS)
    name = f"a{odd}b"
    named = {"features": folder / f"{name}.npy", "table": folder / f"{name}.csv", "missing": folder / f"{name}.mp4"}
    shutil.copy(files["FEATURES"], named["features"])
    named["table"].write_text(f"start_s,end_s,label\n0,9,{odd}stir\n9,60,pour{odd}\n")
    (folder / "labels.txt").write_text(f"boil{odd}\n{odd}wash\n")
    (folder / f"{name}.srt").write_text(f"1\n00:00:01,000 --> 00:00:04,000\nnow {odd} we boil\n")
    video, out = str(named["features"]), folder / "out"
    exports = [text for each in ("csv", "srt", "vtt") for text in ("--export", each)]
    commands = (
        ["steps", video, "--model", "raw", "-o", str(out), *exports],
        ["steps", files["FEATURES"], "--model", "raw", "--transcript", str(folder / f"{name}.srt"), "-o", str(out)],
        ["steps", str(named["missing"])],
        ["steps", files["FEATURES"], "--model", name],
        ["steps", files["FEATURES"], "--model", "raw", "--export", name],
        ["ask", str(named["missing"]), name],
        ["import-steps", str(named["table"]), "--video", files["FEATURES"], "-o", str(out / "s.json")],
        ["import-steps", str(named["table"]), "--video", video],
        ["label", video, "--labels", str(folder / "labels.txt")],
        ["index", video, "--to", str(folder / "corpus"), "--model", "raw"],
        ["corpus", "list", str(folder / name)],
        ["pack", str(folder / name), str(out)],
        ["eval", "own", "--features", str(folder), "--annotations", str(named["missing"])],
        ["weights", "path", name],
        [name],
        ["steps", f"--{name}"],
    )
    command = rng.choice(commands)
    _, *printed = _call(command, folder, {})
    for path in out.rglob("*"):
        if path.suffix in (".csv", ".srt", ".vtt"):
            printed.append(path.read_text())
    for text in printed:
        found = [
            character for character in text if unicodedata.category(character) == "Cc" and character not in "\n\t\r"
        ]
        assert not found, f"{command[0]} prints {found[0]!r}"


def damage_corpus(folder: Path, rng: random.Random) -> None:
    """A damaged corpus is used, or refused with a message; `corpus check` ends."""
    corpus = folder / "corpus"
    shutil.copytree(_made_corpus(), corpus)
    for _ in range(rng.choice((1, 1, 3))):
        paths = sorted(corpus.rglob("*"))
        path = rng.choice([path for path in paths if path.is_file()] if rng.random() < 0.9 else paths)
        kind = rng.choice(("remove", "bytes", "bytes", "noise", "folder"))
        if path.is_dir():
            shutil.rmtree(path)
        elif kind == "bytes":
            path.write_bytes(damage_bytes(path.read_bytes(), rng))
        elif kind == "noise":
            path.write_bytes(rng.randbytes(path.stat().st_size))
        else:
            path.unlink()
            if kind == "folder":
                path.mkdir()
    features = str(_made_corpus().parent / "features")
    commands = [
        ["corpus", "check", str(corpus)],
        ["corpus", "list", str(corpus)],
        ["corpus", "remove", str(corpus), "v1"],
        ["search", str(corpus), "--like", "v1@0:20", "--model", "raw"],
        ["index", features, "--to", str(corpus), "--model", "raw"],
    ]
    if "repair" in list(_find_command("corpus")):
        commands.append(["corpus", "repair", str(corpus)])
    for command in rng.sample(commands, 2):
        _call(command, folder, {})


UNENDING = {"--watch", "--seeds"}  # options that wait for more videos, or train networks
VARIABLES = (
    "HIERO_HOME",
    "HIERO_WEIGHTS",
    "HIERO_REMOTE_CACHE_GB",
    "HIERO_WHISPER_MODEL",
    "HIERO_GPU_DECODING",
    "XDG_CACHE_HOME",
    "COLUMNS",
    "TERM",
    "NO_COLOR",
    "LANG",
    "TMPDIR",
)
COMMANDS: dict[str, list[str]] = {  # words in capitals are files of `_made_files`
    "steps": ["FEATURES", "--model", "raw"],
    "ask": ["FEATURES", "boil", "--model", "raw"],
    "label": ["FEATURES", "--labels", "LABELS", "--model", "raw"],
    "import-steps": ["TABLE", "--video", "FEATURES"],
    "index": ["FOLDER", "--to", "OUT", "--model", "raw"],
    "search": ["CORPUS", "--like", "v1@0:20", "--model", "raw"],
    "corpus check": ["CORPUS"],
    "corpus list": ["CORPUS"],
    "pack": ["FOLDER", "OUT"],
    "embed": ["FEATURES", "--model", "MODEL", "-o", "OUT"],
    "import-checkpoint": ["FEATURES", "OUT"],
    "weights list": [],
    "weights path": ["minilm"],
    "backbones": [],
    "eval own": ["--features", "FOLDER", "--annotations", "STEPS", "--model", "raw"],
    "table": ["mcq"],
    "data check": ["FOLDER"],
    "head eval": ["MODEL", "--features", "FOLDER", "--annotations", "STEPS"],
    "report": ["FOLDER", "--model", "raw", "-o", "OUT"],
}
CONTROL_CHARACTERS = (
    "\x1b]0;title\x07",
    "\x1b[2J",
    "\x1b[31m",
    "\x07",
    "\x08\x08",
    "\x9b31m",
    "\x7f",
    "\x0b",
    "\x85",
    "\x1bc",
)


def _find_command(name: str) -> Any:
    from hiero.cli import app

    for part in name.split():
        app = app[part]
    return app


def _odd_argument(files: dict[str, str], rng: random.Random) -> str:
    """A text, a number or a file of another kind, as the shell could pass it."""
    odd = str(rng.choice((*ODD_TEXTS, *ODD_NUMBERS, *files.values(), "/dev/null", "1,2", "0:20", "cpu", "raw")))
    return odd.replace("\x00", "")[:5000]


def _call(arguments: list[str], folder: Path, variables: dict[str, str]) -> tuple[int, str, str]:
    """Run a command in this process and in a folder below `folder`: its exit code, output and errors."""
    from hiero import cli

    inside = folder / "a" / "b" / "c"  # so that ../../x is below `folder` too
    inside.mkdir(parents=True, exist_ok=True)
    output, errors = io.StringIO(), io.StringIO()
    before = os.environ.copy(), sys.argv, Path.cwd()
    os.environ.update({"HF_HUB_OFFLINE": "1", **variables})
    sys.argv = ["hiero", *arguments]
    os.chdir(inside)
    try:
        with redirect_stdout(output), redirect_stderr(errors):
            cli.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        os.chdir(before[2])
        sys.argv = before[1]
        os.environ.clear()
        os.environ.update(before[0])
    assert code in (0, 1, 2), f"{arguments}: exit code {code}"
    assert code == 0 or errors.getvalue().strip() or output.getvalue().strip(), f"{arguments}: no message"
    return code, output.getvalue(), errors.getvalue()


def _made_files(folder: Path) -> dict[str, str]:
    """A file of each kind that commands take."""
    files = {"OUT": folder / "out", "FOLDER": folder / "features", "CORPUS": _made_corpus(), "MODEL": _made_model()}
    files |= {"FEATURES": folder / "features" / "v1.npy", "LABELS": folder / "l.txt", "TABLE": folder / "t.csv"}
    files |= {"STEPS": folder / "steps.json"}
    shutil.copytree(_made_corpus().parent / "features", folder / "features")
    files["LABELS"].write_text("boil\nwash\n")
    files["TABLE"].write_text("start_s,end_s,label\n0,9,stir\n9,60,pour\n")
    step = {"start_s": 1.0, "end_s": 9.0, "text": "boil"}
    files["STEPS"].write_text(json.dumps({f"v{i}": {"steps": [step]} for i in range(3)}))
    return {name: str(path) for name, path in files.items()}


@cache
def _made_corpus() -> Path:
    """A corpus of three videos beside their feature files."""
    folder = Path(tempfile.mkdtemp(prefix="hostile-corpus-"))
    (folder / "features").mkdir()
    for i in range(3):
        np.save(folder / "features" / f"v{i}.npy", np.random.default_rng(i).normal(size=(60, 16)).astype(np.float32))
    _call(["index", str(folder / "features"), "--to", str(folder / "corpus"), "--model", "raw"], folder, {})
    return folder / "corpus"


@cache
def _made_model() -> Path:
    """The folder of a small network."""
    from hiero import HiERO, ModelConfig

    folder = Path(tempfile.mkdtemp(prefix="hostile-model-"))
    HiERO(ModelConfig(16, hidden_size=8, embedding_size=8, text_size=8, depth=1, num_layers=1)).save_pretrained(folder)
    return folder


KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "options": give_odd_options,
    "terminal": print_control_characters,
    "corpora": damage_corpus,
}
# Each takes seconds.
SLOW_KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "kills": kill_command,
    "disks": fill_disk,
    "writers": write_at_once,
}
