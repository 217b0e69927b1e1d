"""The command line: one function a command, in groups.

Imports of what is heavy stay inside the functions, so that `hiero --help` and a mistake in an
option are answered at once.
"""

from __future__ import annotations

import io
import os
import sys

from cyclopts import App, Group

import hiero
from hiero.cli import (
    annotation,
    ask,
    corpus,
    corrections,
    doctor,
    evaluation,
    extraction,
    figures,
    heads,
    models,
    report,
    serve,
    steps,
    tables,
    watch,
    weights,
)
from hiero.cli.console import log
from hiero.errors import InputError

app = App(
    name="hiero",
    help="Hours of first-person video in, a searchable hierarchy of what was done out.",
    version=hiero.__version__,
    help_format="markdown",
    suppress_keyboard_interrupt=False,
)
GROUPS = {
    "Videos": (
        steps.steps,
        ask.ask,
        ask.label,
        watch.watch,
        corrections.import_steps,
        annotation.push_steps,
    ),
    "Collections": (corpus.index, corpus.search, corpus.app, report.report),
    "Models": (
        corrections.adapt,
        models.train,
        models.pack,
        models.embed,
        models.import_checkpoint,
        heads.app,
        extraction.extract,
        extraction.backbones,
        weights.app,
    ),
    "Benchmarks": (evaluation.app, tables.table, tables.app, figures.app),
    "Server": (serve.app, doctor.doctor),
}
for group_number, (title, commands) in enumerate(GROUPS.items()):
    group = Group(title, sort_key=group_number)
    for number, command in enumerate(commands):
        if isinstance(command, App):
            command.group, command.sort_key = (group,), number
            app.command(command)
        else:
            app.command(command, group=group, sort_key=number)
for flag in ("--help", "--version"):
    app[flag].group = ("Options",)


def main() -> None:
    """Run the command line; a user's mistake is one clear line and exit code 2, an interruption 130."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names of files need not be text. In JSON what stands for such a byte is read back as the same.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        _check_encoding(sys.argv[1:])
        app(extraction.expand_ray_address(sys.argv[1:]))
    except InputError as error:
        log(f"hiero: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        log("hiero: interrupted; what was finished is kept, run the same command again to go on (train: with --resume)")
        sys.exit(130)
    except UnicodeEncodeError as error:
        text = error.object[max(0, error.start - 60) : error.start + 20]
        log(f"hiero: {text!a} is not UTF-8; rename the file, or type it anew")
        sys.exit(2)
    except OSError as error:
        # Python names the file where it cannot be opened, not where its disk fails later.
        name = error.filename or ", ".join(filter(_is_there, sys.argv[1:])) or "a file"
        log(f"hiero: {name}: {error.strerror or error}; nothing half-written was left behind")
        sys.exit(1)


def _is_there(argument: str) -> bool:
    """Whether an argument is the name of a file. pathlib would raise where a text is too long for a name."""
    return os.path.exists(argument)  # noqa: PTH110


def _check_encoding(arguments: list[str]) -> None:
    """Refuse words that are not UTF-8. Names of files that are there may be anything."""
    for argument in arguments:
        try:
            argument.encode("utf-8")
        except UnicodeEncodeError:
            if not _is_there(argument):
                raise InputError(
                    f"{argument!r} is not UTF-8, and no file of this name is there; type it in UTF-8"
                ) from None
