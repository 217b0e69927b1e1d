"""hiero serve: the page and its API."""

from __future__ import annotations

import os
import time
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from hiero.cli.console import log
from hiero.cli.options import DEFAULTS, Join, Repeated, VideoOptions, read_labels
from hiero.errors import InputError

if TYPE_CHECKING:
    from hiero.engine import Engine


app = App(name="serve", help_format="markdown")
token_app = App(name="token", help="People who may use a server, by name and role.")
app.command(token_app)


@app.default
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
    state: Path | None = None,
    write_edits: Annotated[bool, Parameter(negative="")] = False,
    jobs: int = 1,
    watch: Annotated[bool, Parameter(negative="")] = False,
    ray: Annotated[bool, Parameter(negative="")] = False,
    address: str | None = None,
    root_path: str = "",
    trusted_proxy: Repeated = None,
    user_header: str | None = None,
    header_role: Literal["view", "edit", "admin", "none"] = "view",
    log_format: Literal["none", "text", "json"] = "none",
    open_: Annotated[bool, Parameter(name="--open", negative="")] = False,
    join: Join = None,
    options: VideoOptions = DEFAULTS,
) -> None:
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
        One for all, with all rights; made up where the server is not for this machine alone and nobody has one
        of their own.
    allow_host
        A name that this server may be reached by, such as its name in your network; may be repeated.
    upload
        A folder for videos that are uploaded through the page; without it there are no uploads.
    upload_limit
        Megabytes of an upload at most.
    state
        A folder for what the server remembers: jobs, edits with their history, tokens, vectors of questions.
        Without it jobs end
        with the server, and edits are files beside the videos.
    write_edits
        With --state, write the edits beside the videos too (KITCHEN.mp4.hiero.json).
    jobs
        Videos that are read at a time.
    watch
        Look at folders and addresses again every ten seconds: videos that arrive there are shown, and read.
    ray
        Read videos on a Ray cluster, one that is started on this machine or that at --address; all its machines
        need the same
        paths and the same cache.
    address
        Of the Ray cluster; `--ray HOST:PORT` says the same.
    root_path
        Under which a proxy serves the page, such as /hiero.
    trusted_proxy
        Address or network of a proxy whose X-Forwarded-For, -Proto and -Host are believed; may be repeated.
    user_header
        A header in which such a proxy says who has signed in there, such as Remote-User.
    header_role
        What people in that header may do who have no token of their name; none keeps them out.
    log_format
        A line on standard error for each request and each change, as text or JSON.
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

    if jobs < 1:
        raise InputError("--jobs is a number from 1 on")
    if not what and upload is None:
        raise InputError("say what to show: hiero serve VIDEO…, a folder, or a corpus")
    if options.transcript is not None:
        raise InputError(
            "--transcript is of one video; put it beside the video under its name: kitchen.srt for kitchen.mp4"
        )
    engines: dict[str, Engine] = {}
    for model in [_main_model(what, options), *(compare or [])]:
        engine = replace(options, model=model).load_engine()
        # Two folders may have the same name: the second goes by its whole path.
        engines.setdefault(engine.name if engine.name not in engines else model, engine)
    library = open_library(list(what), engines, truth, log, join, may_be_empty=watch)
    library.cache = options.cache
    library.transcripts, library.speech = not options.no_transcript, options.speech
    library.labels = None if labels is None else read_labels(labels)

    if state is not None:
        from hiero.text.vector_cache import TextCache

        TextCache.default_folder = state / "text"
    reader = None
    if ray:
        from hiero.serve.ray_reader import RayReader

        settings = {"model": _main_model(what, options), "backbone": options.backbone, "device": options.device}
        reader = RayReader(settings, jobs, address)

    watcher = None
    if watch:
        from hiero.corpus.watching import ArrivalWatcher
        from hiero.serve.library import is_corpus
        from hiero.sources.source import is_address

        folders = [source if is_address(source) else Path(source) for source in what if not is_corpus(source)]
        if not folders:
            raise InputError("--watch looks at folders or addresses of videos; name one beside the corpus")
        watcher = ArrivalWatcher(folders, join, log)

    def announce(page: str) -> None:
        print(f"{len(library.entries)} videos: {page}", flush=True)
        if open_:
            webbrowser.open(page)

    role = None if header_role == "none" else header_role
    server_options = ServerOptions(
        host=host,
        port=port,
        token=token,
        allowed_hosts=tuple(allow_host or ()),
        upload_folder=upload,
        upload_limit_mb=upload_limit,
        state=state,
        write_edits=write_edits,
        num_jobs=jobs,
        root_path=root_path,
        trusted_proxies=tuple(trusted_proxy or ()),
        user_header=user_header,
        header_role=role,
        log_format=log_format,
        watcher=watcher,
        reader=reader,
    )
    run_server(library, server_options, announce)


@token_app.command
def add(name: str, /, *, role: Literal["view", "edit", "admin"] = "view", state: Path) -> None:
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


def _main_model(what: tuple[str, ...], options: VideoOptions) -> str:
    """The model that is named, else the one that a corpus was made with."""
    from hiero.corpus.corpus import Corpus, corpus_model
    from hiero.serve.library import is_corpus

    if (options.model, options.backbone) == (DEFAULTS.model, DEFAULTS.backbone):
        for path in what:
            if is_corpus(path):
                return corpus_model(Corpus(path)) or options.model
    return options.model
