"""hiero serve: the web page and its access tokens."""

from __future__ import annotations

import os
import time
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

import hiero
from hiero.cli.console import OPTIONS, echo, log
from hiero.cli.corpus import with_model_of
from hiero.cli.options import Join, VideoOptions, check_at_least, read_labels
from hiero.errors import InputError
from hiero.formatting import format_count
from hiero.serve.settings import Role, ServerSettings, is_loopback
from hiero.storage.files import home

if TYPE_CHECKING:
    from hiero.corpus.indexing import ArrivalWatcher
    from hiero.serve.library import Library

app = App(name="serve", help_format="markdown", group_parameters=OPTIONS)
token_app = App(name="token", help="Manage the access tokens of a server.", group_parameters=OPTIONS)
app.command(token_app)

StateFolder = Annotated[Path, Parameter(name=("--root", "--state"), help="Root of the server.")]


@app.default
def serve(
    *what: str, settings: ServerSettings = ServerSettings(), join: Join = None, options: VideoOptions = VideoOptions()
) -> None:
    """Start a web page to browse videos by their steps and to search them by text.

    By default only this machine can open the page. With another `--host`, people need a token, which
    is printed with the address. Without videos, the page offers a sample, folders and files.

    **Examples**

    * `hiero serve`
    * `hiero serve kitchen.mp4`
    * `hiero serve corpus/ --open`
    * `hiero serve videos/ --truth steps.json`
    * `hiero serve videos/ --root /var/lib/hiero --jobs 2 --root-path /hiero --trusted-proxy 127.0.0.1`

    Parameters
    ----------
    what
        Videos, feature files, folders, patterns such as '*.mp4', addresses (https://, s3:// …), or a
        corpus created by `hiero index`.
    """
    # Many small matrix products are slower with several BLAS threads. This must be set before numpy is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from hiero.serve.server import run_server
    except ImportError as error:
        raise InputError(f"the server needs {error.name}; run: pip install 'hiero-video[serve]'") from None

    check_at_least("--jobs", settings.jobs)
    check_at_least("--upload-limit", settings.upload_limit, 0)
    if not what and settings.upload is None and settings.root is None:
        settings = _first_start(settings)
    if options.transcript is not None:
        raise InputError("--transcript is for one video; put it next to the video: kitchen.srt for kitchen.mp4")
    if options.edits is not None:
        raise InputError("--edits is for commands; a server with --root has its own corrections")
    library = _open_library(what, settings, join, options)
    watcher = _make_watcher(what, join) if settings.watch else None

    def announce(page: str) -> None:
        echo(f"{format_count(len(library.entries), 'video')}: {page}")
        if not is_loopback(settings.host) and not settings.trusted_proxy:
            log("warning: tokens and videos are sent unencrypted (http); for other people, add a proxy with TLS")
        if settings.open:
            webbrowser.open(page)

    run_server(library, settings, announce, watcher)


@token_app.command
def add(name: str, /, *, role: Role = "view", state: StateFolder) -> None:
    """Create a token for a person and print it. It is shown only once, and replaces an earlier token.

    **Example**

    * `hiero serve token add anna --role edit --root /var/lib/hiero`

    Parameters
    ----------
    name
        Name of the person.
    role
        `view` browses and asks, `edit` also changes steps and adds videos, `admin` also sees tokens and
        the log of changes.
    """
    from hiero.serve.state import State
    from hiero.serve.users import check_name, new_token, token_digest

    store, token = State(state), new_token()
    is_replaced = any(old.name == name and old.revoked_at is None for old in store.tokens())
    store.add_token(check_name(name), role, token_digest(token))
    store.add_audit("command line", "add token", name, role)
    echo(token)
    log(f"{name} has the role {role}; enter this token on the page, or send it as Authorization: Bearer TOKEN")
    if is_replaced:
        log(f"the earlier token of {name} is no longer valid")


@token_app.command
def revoke(name: str, /, *, state: StateFolder) -> None:
    """Revoke the token of a person, effective at once, also in a running server.

    **Example**

    * `hiero serve token revoke anna --root /var/lib/hiero`

    Parameters
    ----------
    name
        Name from `hiero serve token list`.
    """
    from hiero.serve.state import State

    store = State(state)
    if not store.revoke_token(name):
        raise InputError(f"{name}: has no valid token; run hiero serve token list to see all")
    store.add_audit("command line", "revoke token", name)
    log(f"{name}: revoked")


@token_app.command(name="list")
def list_tokens(*, state: StateFolder) -> None:
    """List the people with tokens and their roles."""
    from hiero.serve.state import State

    for token in State(state).tokens():
        created = "unknown" if token.created_at is None else time.strftime("%Y-%m-%d", time.gmtime(token.created_at))
        echo(f"{token.name}\t{token.role}\t{created}\t{'valid' if token.revoked_at is None else 'revoked'}")


def backup(root: Path, out: Path, /) -> None:
    """Copy a server to a tar file, also while it runs.

    The file has everything that `hiero serve --root` keeps: edits, tokens, jobs, uploads and the corpus.

    **Example**

    * `hiero backup /var/lib/hiero hiero.tar`

    Parameters
    ----------
    root
        Root of the server.
    out
        File to write. It must not exist.
    """
    from hiero.serve.backup import back_up

    echo(f"{out}: {format_count(back_up(root, out), 'file')}")


def restore(archive: Path, root: Path, /) -> None:
    """Restore a server from a backup.

    Every file is checked before the folder appears. Start the server with `hiero serve --root ROOT`.

    **Example**

    * `hiero restore hiero.tar /var/lib/hiero`

    Parameters
    ----------
    archive
        File that `hiero backup` has written.
    root
        Folder for the server. It must be empty or missing.
    """
    from hiero.serve.backup import restore as unpack

    echo(f"{root}: {format_count(unpack(archive, root), 'file')}")


def _open_library(what: tuple[str, ...], settings: ServerSettings, join: bool | None, options: VideoOptions) -> Library:
    from hiero.corpus.table import is_corpus
    from hiero.engine.transcripts import TranscriptSettings
    from hiero.serve.library import CORPUS_WAIT_S, open_library

    if settings.root is not None:
        what = _use_root(settings.root, what, settings)
    uri = next(filter(is_corpus, what), None)
    if uri is not None:
        options = with_model_of(hiero.Corpus(uri), options)
    library = open_library(list(what), options.load_engine(), settings.truth, log, join, may_be_empty=settings.watch)
    if settings.root is not None and library.corpus is None:
        library.corpus = hiero.Corpus(str(settings.root / "corpus"), create=True, wait_s=CORPUS_WAIT_S)
    if settings.index and library.corpus is None:
        raise InputError("--index needs a corpus: hiero serve CORPUS VIDEO… --index")
    library.join, library.cache, library.adds_to_corpus = (
        join,
        options.cache,
        settings.index or settings.root is not None,
    )
    library.transcripts = TranscriptSettings(None, not options.no_transcript, options.speech, options.cache)
    library.labels = read_labels(settings.labels)
    return library


def _use_root(root: Path, what: tuple[str, ...], settings: ServerSettings) -> tuple[str, ...]:
    """What a server with a root shows: its own corpus, and videos elsewhere. Earlier folders are taken over once."""
    from hiero.corpus.table import is_corpus
    from hiero.serve.backup import CORPUS, take_over

    given = next(filter(is_corpus, what), None)
    take_over(root, settings.state, settings.upload, given, log)
    own = root / CORPUS
    return (*([str(own)] if is_corpus(str(own)) else []), *(source for source in what if not is_corpus(source)))


def _first_start(settings: ServerSettings) -> ServerSettings:
    """Settings of a server without videos: they are added on the page, which opens in a browser and needs a token."""
    from hiero.serve.users import new_token

    return replace(
        settings,
        root=settings.state or home() / "server",
        upload=home() / "videos",
        token=settings.token or new_token(),
        choose_folders=is_loopback(settings.host),
        open=True,
    )


def _make_watcher(what: tuple[str, ...], join: bool | None) -> ArrivalWatcher:
    from hiero.corpus.indexing import ArrivalWatcher
    from hiero.corpus.table import is_corpus

    folders = [source for source in what if not is_corpus(source)]
    if not folders:
        raise InputError("--watch needs a folder or an address of videos besides the corpus")
    return ArrivalWatcher(folders, join, log)
