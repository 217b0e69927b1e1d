"""hiero serve: the page and its API."""

from __future__ import annotations

import os
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hiero.cli.console import log
from hiero.cli.options import DEFAULTS, Join, Repeated, VideoOptions, read_labels
from hiero.errors import InputError

if TYPE_CHECKING:
    from hiero.engine import Engine


def serve(
    *what: str,
    host: str = "127.0.0.1",
    port: Annotated[int, Parameter(alias="-p")] = 8400,
    compare: Repeated = None,
    truth: Path | None = None,
    labels: Path | None = None,
    token: str | None = None,
    allow_host: Repeated = None,
    upload: Path | None = None,
    upload_limit: int = 2000,
    open_: Annotated[bool, Parameter(name="--open", negative="")] = False,
    join: Join = None,
    options: VideoOptions = DEFAULTS,
) -> None:
    """Open a page where videos can be browsed by their steps and searched in words.

    Only this machine can reach it, unless you choose another `--host`; then a token is needed, which is printed with the address.

    **Examples**

    `hiero serve kitchen.mp4`

    `hiero serve corpus/ --open`

    `hiero serve videos/ --compare models/mine --truth steps.json`

    Parameters
    ----------
    what
        Videos, feature files, folders of them, patterns ('*.mp4'), or a corpus made by `hiero index`.
    host
        Where to listen; 0.0.0.0 for all networks.
    port
        Its number; 0 takes a free one.
    compare
        Another model whose steps are shown as extra rows; may be repeated.
    truth
        Annotations as `hiero eval own` takes them; shown as an extra row.
    labels
        A file with one label a line for the steps, instead of the bundled everyday phrases.
    token
        What others must know; made up where the server is not for this machine alone.
    allow_host
        A name that this server may be reached by, such as its name in your network; may be repeated.
    upload
        A folder for videos that are uploaded through the page; without it there are no uploads.
    upload_limit
        Megabytes of an upload at most.
    open_
        Open the page in a browser.
    """
    # Answers are many small products: threads of numpy's BLAS wait for each other there. Set before numpy is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from hiero.serve.server import ServerOptions, run_server
    except ImportError as error:
        raise InputError(f"the server needs {error.name}; run: pip install 'hiero-video[serve]'") from None
    from hiero.serve.library import open_library

    if not what and upload is None:
        raise InputError("say what to show: hiero serve VIDEO…, a folder, or a corpus")
    if options.transcript is not None:
        raise InputError("--transcript is of one video; put it beside the video under its name: kitchen.srt for kitchen.mp4")
    engines: dict[str, Engine] = {}
    for model in [_main_model(what, options), *(compare or [])]:
        engine = replace(options, model=model).load_engine()
        # Two folders may have the same name: the second goes by its whole path.
        engines.setdefault(engine.name if engine.name not in engines else model, engine)
    library = open_library(list(what), engines, truth, log, join)
    library.cache = options.cache
    library.transcripts, library.speech = not options.no_transcript, options.speech
    library.labels = None if labels is None else read_labels(labels)

    def announce(address: str) -> None:
        print(f"{len(library.entries)} videos: {address}", flush=True)
        if open_:
            webbrowser.open(address)

    run_server(library, ServerOptions(host, port, token, tuple(allow_host or ()), upload, upload_limit), announce)


def _main_model(what: tuple[str, ...], options: VideoOptions) -> str:
    """The model that is named, else the one that a corpus was made with."""
    from hiero.corpus.corpus import Corpus, corpus_model
    from hiero.serve.library import is_corpus

    if (options.model, options.backbone) == (DEFAULTS.model, DEFAULTS.backbone):
        for path in what:
            if is_corpus(path):
                return corpus_model(Corpus(path)) or options.model
    return options.model
