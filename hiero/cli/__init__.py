"""The command line: one function a command, in groups.

Imports of what is heavy stay inside the functions, so that `hiero --help` and a mistake in an option are answered at once.
"""

from __future__ import annotations

import sys

from cyclopts import App

import hiero
from hiero.cli import bench, corpus, evaluation, extraction, figures, heads, models, serve, tables, videos, weights
from hiero.cli.console import log
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
    evaluation.app, tables.table, tables.app, figures.app, heads.app,
    models.train, models.pack, models.embed, models.import_checkpoint,
    bench.app, extraction.extract, extraction.backbones, weights.app,
):  # fmt: skip
    app.command(command)


def main() -> None:
    """Run the command line; a user's mistake is one clear line and exit code 2, an interruption 130."""
    try:
        app(extraction.expand_ray_address(sys.argv[1:]))
    except InputError as error:
        log(f"hiero: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        log("hiero: interrupted; what was finished is kept, run the same command again to go on (train: with --resume)")
        sys.exit(130)
    except OSError as error:
        log(f"hiero: {error.filename or ''}: {error.strerror or error}; nothing half-written was left behind")
        sys.exit(1)
