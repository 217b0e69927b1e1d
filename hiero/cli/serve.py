"""hiero serve: the page and its API."""

from __future__ import annotations

import os
import time
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from hiero.cli.console import log
from hiero.cli.options import DEFAULTS, Join, VideoOptions, read_labels
from hiero.errors import InputError
from hiero.serve.settings import Role, ServerSettings

if TYPE_CHECKING:
    from hiero.corpus.indexing import ArrivalWatcher
    from hiero.engine import Engine
    from hiero.serve.library import Library

SETTINGS = ServerSettings()

app = App(name="serve", help_format="markdown")
token_app = App(name="token", help="People who may use a server, by name and role.")
app.command(token_app)


@app.default
def serve(*what: str, settings: ServerSettings = SETTINGS, join: Join = None, options: VideoOptions = DEFAULTS) -> None:
    """Open a page where videos can be browsed by their steps and searched in words.

    Only this machine can reach it, unless you choose another `--host`; then a token is needed,
    which is printed with the address.

    **Examples**

    `hiero serve kitchen.mp4`

    `hiero serve corpus/ --open`

    `hiero serve videos/ --compare models/mine --truth steps.json`

    For a group, with people by name (`hiero serve token`), jobs and edits that outlive the server, behind a proxy:

    `hiero serve corpus/ --state /var/lib/hiero --jobs 2 --root-path /hiero --trusted-proxy
    127.0.0.1 --log-format json`

    Parameters
    ----------
    what
        Videos, feature files, folders of them, patterns ('*.mp4'), addresses (https://…, s3://…), or a corpus made by
        `hiero index`.
    """
    # Answers are many small products: threads of numpy's BLAS wait for each other there. Set before numpy is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from hiero.serve.server import run_server
    except ImportError as error:
        raise InputError(f"the server needs {error.name}; run: pip install 'hiero-video[serve]'") from None

    if settings.jobs < 1:
        raise InputError("--jobs is a number from 1 on")
    if not what and settings.upload is None:
        raise InputError("say what to show: hiero serve VIDEO…, a folder, or a corpus")
    if options.transcript is not None:
        raise InputError(
            "--transcript is of one video; put it beside the video under its name: kitchen.srt for kitchen.mp4"
        )
    library = _open_library(what, settings, join, options)
    watcher = _make_watcher(what, join) if settings.watch else None

    def announce(page: str) -> None:
        print(f"{len(library.entries)} videos: {page}", flush=True)
        if settings.open:
            webbrowser.open(page)

    run_server(library, settings, announce, watcher)


@token_app.command
def add(name: str, /, *, role: Role = "view", state: Path) -> None:
    """Give someone a token, and print it: it is shown once, and only its digest is stored. One that
    they had is replaced.

    **Example**: `hiero serve token add anna --role edit --state /var/lib/hiero`

    Parameters
    ----------
    name
        Whose it is.
    role
        `view` looks and asks, `edit` also changes steps and reads videos, `admin` also sees tokens and changes.
    state
        Folder of the server's state.
    """
    from hiero.serve.state import State
    from hiero.serve.users import check_name, new_token, token_digest

    store, token = State(state), new_token()
    store.add_token(check_name(name), role, token_digest(token))
    store.add_audit("command line", "add token", name, role)
    print(token)
    log(f"{name} may {role}; they open the page and enter this token, or send it as Authorization: Bearer TOKEN")


@token_app.command
def revoke(name: str, /, *, state: Path) -> None:
    """Make someone's token worthless, at once, also in a server that runs.

    **Example**: `hiero serve token revoke anna --state /var/lib/hiero`

    Parameters
    ----------
    name
        Whose it is.
    state
        Folder of the server's state.
    """
    from hiero.serve.state import State

    store = State(state)
    if not store.revoke_token(name):
        raise InputError(f"{name}: no valid token of that name; `hiero serve token list` shows all")
    store.add_audit("command line", "revoke token", name)
    log(f"{name}: revoked")


@token_app.command(name="list")
def list_tokens(*, state: Path) -> None:
    """List whose tokens there are, and their roles.

    Parameters
    ----------
    state
        Folder of the server's state.
    """
    from hiero.serve.state import State

    for token in State(state).tokens():
        created = time.strftime("%Y-%m-%d", time.gmtime(token.created_at))
        print(f"{token.name}\t{token.role}\t{created}\t{'valid' if token.revoked_at is None else 'revoked'}")


def _open_library(what: tuple[str, ...], settings: ServerSettings, join: bool | None, options: VideoOptions) -> Library:
    from hiero.serve.library import open_library

    main_model = _main_model(what, options)
    engines: dict[str, Engine] = {}
    for model in [main_model, *(settings.compare or [])]:
        engine = replace(options, model=model).load_engine()
        # Two folders may have the same name: the second goes by its whole path.
        engines.setdefault(engine.name if engine.name not in engines else model, engine)
    library = open_library(list(what), engines, settings.truth, log, join, may_be_empty=settings.watch)
    library.cache = options.cache
    library.transcripts, library.speech = not options.no_transcript, options.speech
    library.labels = None if settings.labels is None else read_labels(settings.labels)
    if settings.ray:
        from hiero.serve.ray_reader import RayReader

        engine_settings = {"model": main_model, "backbone": options.backbone, "device": options.device}
        library.reader = RayReader(engine_settings, settings.jobs, settings.address)
    return library


def _make_watcher(what: tuple[str, ...], join: bool | None) -> ArrivalWatcher:
    from hiero.corpus.indexing import ArrivalWatcher
    from hiero.serve.library import is_corpus
    from hiero.sources.addresses import is_address

    folders = [source if is_address(source) else Path(source) for source in what if not is_corpus(source)]
    if not folders:
        raise InputError("--watch looks at folders or addresses of videos; name one beside the corpus")
    return ArrivalWatcher(folders, join, log)


def _main_model(what: tuple[str, ...], options: VideoOptions) -> str:
    """The model that is named, else the one that a corpus was made with."""
    from hiero.corpus.corpus import Corpus, corpus_model
    from hiero.serve.library import is_corpus

    if (options.model, options.backbone) == (DEFAULTS.model, DEFAULTS.backbone):
        for path in what:
            if is_corpus(path):
                return corpus_model(Corpus(path)) or options.model
    return options.model
