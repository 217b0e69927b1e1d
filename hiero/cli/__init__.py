"""The command line: one function per command, in groups.

A command's module is imported when it runs, so that `hiero --help` and each command start at once.
"""

from __future__ import annotations

import io
import os
import re
import sys

from cyclopts import App, CycloptsPanel, Group, Parameter

import hiero
from hiero.cli.console import OPTIONS, log, path_exists
from hiero.errors import BusyError, InputError, hide_credentials

app = App(
    name="hiero",
    help="Turn hours of first-person video into a searchable hierarchy of steps.\n\n"
    "Every command takes `--plugin FILE.py`, a Python file that registers plug-ins.",
    version=hiero.__version__,
    help_format="markdown",
    group_parameters=OPTIONS,
    default_parameter=Parameter(show_default=lambda default: None if default is False or default == "" else default),
    suppress_keyboard_interrupt=False,
    error_formatter=lambda error: CycloptsPanel(hide_credentials(str(error))),
)
# The commands of each group: their names, where they are defined below hiero.cli, and what they do.
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Videos": {
        "steps": ("steps:steps", "Find the steps of videos: a hierarchy from coarse to fine, with names."),
        "ask": ("ask:ask", "Find moments by text, in one or several videos."),
        "clips": ("clips:clips", "Cut videos into clips of their steps, join the best moments, or add chapters."),
        "procedure": ("procedure:procedure", "Find the steps that several videos of one task share."),
        "import-steps": ("corrections:import_steps", "Import steps that were corrected or created in another tool."),
    },
    "Collections": {
        "index": ("corpus:index", "Add videos to a corpus, so that they can be searched together."),
        "search": ("corpus:search", "Find steps in all videos of a corpus, by text or by similarity."),
        "corpus": ("corpus:app", "List, remove and check the videos of a corpus."),
        "report": ("report:report", "Compare many videos on one page: shared activities and their times."),
    },
    "Models": {
        "adapt": ("corrections:adapt", "Learn from corrected steps: the new model names them in other videos."),
        "train": ("training:train", "Train a model from features and narrations."),
        "pack": ("training:pack", "Pack a folder of feature files into a store for training."),
        "embed": ("training:embed", "Enrich backbone features with a model."),
        "models": ("models:app", "List, download and import models and backbones."),
        "head": ("heads:app", "Train and score VSLNet, ActionFormer and linear probes."),
        "extract": ("extraction:extract", "Extract features of videos with a backbone, one file per video."),
        "cache": ("cache:app", "Show what the cache holds, and clear it."),
    },
    "Benchmarks": {
        "eval": ("evaluation:app", "Score a model on your own videos or on benchmarks of the paper."),
        "reproduce": ("reproduce:reproduce", "Compute the tables of the paper beside the published numbers."),
    },
    "Server": {
        "serve": ("serve:app", "Start a web page to browse videos by their steps and to search them."),
        "backup": ("serve:backup", "Copy a server to a tar file, also while it runs."),
        "restore": ("serve:restore", "Restore a server from a backup."),
        "doctor": ("doctor:doctor", "Show versions, weights, decoders and GPU of this machine."),
    },
}
for group_number, (title, commands) in enumerate(COMMANDS.items()):
    group = Group(title, sort_key=group_number)
    for number, (name, (place, description)) in enumerate(commands.items()):
        app.command(f"hiero.cli.{place}", name=name, help=description, group=group, sort_key=number)
for flag in ("--help", "--version"):
    app[flag].group = (OPTIONS,)


# Earlier spellings and what to type instead: a command, or a command with an option. The first match counts.
VIDEO_COMMANDS = ("steps", "ask", "clips", "procedure", "index", "search", "report", "adapt", "serve")
MOVED: dict[tuple[str, ...], str] = {
    ("label",): "hiero steps VIDEO --labels FILE",
    ("figure",): "python -m examples.figures",
    ("watch",): "hiero steps RECORDING",
    ("push-steps",): "hiero steps VIDEO -o OUT --export labelstudio",
    ("serve", "--write-edits"): "hiero steps VIDEO --edits server:ROOT",
    ("table",): "hiero reproduce DATA TABLE",
    ("data",): "hiero reproduce DATA --check",
    ("corpus", "repair"): "hiero index VIDEO --to CORPUS",
    ("steps", "--method", "pieces"): "hiero steps VIDEO --method contiguous",
    ("steps", "--split"): "hiero clips VIDEO -o FOLDER",
    ("steps", "--together"): "hiero procedure VIDEO VIDEO",
    ("reproduce", "--only"): "hiero reproduce DATA TABLE TABLE",
    ("ask", "--reel"): 'hiero clips VIDEO "cut the onion" -o best.mp4',
    ("backbones",): "hiero models",
    ("weights", "get"): "hiero models get NAME",
    ("weights", "path"): "hiero models get NAME",
    ("weights",): "hiero models",
    ("import-checkpoint",): "hiero models import CHECKPOINT -o FOLDER",
    ("eval", "--backbone"): "hiero eval … --model egovlp",
    **{(name, "--backbone"): f"hiero {name} … --model NAME; hiero models lists the names" for name in VIDEO_COMMANDS},
    **{(name, "--words"): f"hiero {name} … --model hiero-k400-permissive" for name in VIDEO_COMMANDS},
}


def main() -> None:
    """Run the command line. Mistakes of the user exit with code 2, failed or locked files with 1, Ctrl-C with 130."""
    if sys.stdout is None:  # closed with >&-
        log("hiero: standard output is closed; redirect it to a file or to /dev/null")
        sys.exit(2)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names need not be valid text
    for name in ("COLUMNS", "LINES"):  # rich fails at sizes that no terminal has
        if not re.fullmatch("[0-9]{1,4}", os.environ.get(name, "")):
            os.environ.pop(name, None)
    try:
        _check_text(sys.argv[1:])
        arguments = _load_plugins(sys.argv[1:])
        _check_moved(arguments)
        _check_environment()
        app(arguments)
    except InputError as error:
        log(f"hiero: {error}")
        sys.exit(1 if isinstance(error, BusyError) else 2)
    except KeyboardInterrupt:
        log("hiero: interrupted; run the same command again to continue (hiero train needs --resume)")
        sys.exit(130)
    except UnicodeEncodeError as error:
        text = error.object[max(0, error.start - 60) : error.start + 20]
        log(f"hiero: {text!a} is not UTF-8; rename the file or type the text again")
        sys.exit(2)
    except OSError as error:
        # Python names the file if opening it fails, but not if its disk fails later.
        name = error.filename or ", ".join(filter(path_exists, sys.argv[1:])) or "a file"
        log(f"hiero: {name}: {error.strerror or error}; no partly written file remains")
        sys.exit(1)


def _check_environment() -> None:
    """Report a mistake before videos are read."""
    if os.environ.get("HIERO_CACHE_MAX"):
        from hiero.storage.cache import cache_limit

        cache_limit()


def _load_plugins(arguments: list[str]) -> list[str]:
    """Load the files of `--plugin`, which every command takes; returns the other arguments."""
    others, given = [], iter(arguments)
    for argument in given:
        name, equals, path = argument.partition("=")
        if name == "--plugin":
            from hiero.plugins import add_plugin_file

            add_plugin_file(path if equals else next(given, ""))
        else:
            others.append(argument)
    return others


def _check_moved(arguments: list[str]) -> None:
    """Refuse an earlier spelling, and say what replaces it."""
    names = [argument.partition("=")[0] for argument in arguments]
    for (command, *options), replacement in MOVED.items():
        if names[:1] == [command] and all(option in names for option in options):
            raise InputError(f"hiero {' '.join([command, *options])} no longer exists; use: {replacement}")


def _check_text(arguments: list[str]) -> None:
    """Refuse text that is not UTF-8 or has control characters, unless it names an existing file."""
    for argument in arguments:
        try:
            argument.encode("utf-8")
        except UnicodeEncodeError:
            if not path_exists(argument):
                raise InputError(f"{argument!r} is not UTF-8, and no file has this name; type it in UTF-8") from None
        if re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", argument) and not path_exists(argument):
            raise InputError(f"{argument}: has control characters, and no file has this name; type it without them")
