"""The command line: one function a command, in groups. Heavy imports stay inside the functions."""

from __future__ import annotations

import sys

from cyclopts import App

import hiero
from hiero.cli import corpus, evaluate, extract, figures, heads, models, serve, tables, videos, weights
from hiero.cli.console import say
from hiero.errors import InputError

app = App(
    name="hiero",
    help="Hours of first-person video in, a searchable hierarchy of what was done out.",
    version=hiero.__version__,
    help_format="markdown",
    suppress_keyboard_interrupt=False,
)
for command in (
    videos.steps, videos.ask, videos.label,
    corpus.index, corpus.search, corpus.app, serve.serve,
    evaluate.app, tables.table, figures.app, heads.app,
    models.train, models.pack, models.embed, models.import_checkpoint,
    models.bench_app, extract.extract, extract.backbones, weights.weights_app,
):  # fmt: skip
    app.command(command)


def main() -> None:
    """Run the command line; a user's mistake is one clear line and exit code 2, an interruption 130."""
    try:
        app(extract.with_address(sys.argv[1:]))
    except InputError as error:
        say(f"hiero: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        say("hiero: interrupted; what was finished is kept, run the same command again to go on (train: with --resume)")
        sys.exit(130)
    except OSError as error:
        say(f"hiero: {error.filename or ''}: {error.strerror or error}; nothing half-written was left behind")
        sys.exit(1)
