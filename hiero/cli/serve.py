"""hiero serve: the page and its API."""

from __future__ import annotations

import re
import socket as socketlib
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from hiero.cli.console import say
from hiero.cli.videos import DEFAULTS, Source, read_labels
from hiero.errors import InputError

if TYPE_CHECKING:
    from hiero.engine import Engine


def serve(
    *what: str,
    host: str = "127.0.0.1",
    port: Annotated[int, Parameter(alias="-p")] = 8400,
    compare: Annotated[list[str] | None, Parameter(negative="")] = None,
    truth: Path | None = None,
    labels: Path | None = None,
    token: str | None = None,
    allow_host: Annotated[list[str] | None, Parameter(negative="")] = None,
    upload: Path | None = None,
    upload_limit: int = 2000,
    open_: Annotated[bool, Parameter(name="--open", negative="")] = False,
    source: Source = DEFAULTS,
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
        Videos, feature files, folders of them, or a corpus made by `hiero index`.
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
    try:
        import uvicorn

        from hiero.serve.app import Uploads, create_app
    except ImportError as error:
        raise InputError(f"the server needs {error.name}; run: pip install 'hiero[serve]'") from None
    from dataclasses import replace

    from hiero.serve.guard import is_loopback, new_token
    from hiero.serve.library import open_library

    if not what and upload is None:
        raise InputError("say what to show: hiero serve VIDEO…, a folder, or a corpus")
    engines: dict[str, Engine] = {}
    for name in [_model(what, source), *(compare or [])]:
        engine = replace(source, model=name).engine()
        engines.setdefault(engine.name if engine.name not in engines else name, engine)
    library = open_library(list(what), engines, truth, say)
    library.cache = source.cache
    library.labels = None if labels is None else read_labels(labels)
    if upload is not None:
        upload.mkdir(parents=True, exist_ok=True)
    if not is_loopback(host):
        token = token or new_token()
    if token is not None and not re.fullmatch(r"[\w.~-]+", token):
        raise InputError("--token takes letters, digits and . _ ~ -")
    names = {"localhost", "127.0.0.1", "::1", host.lower(), *(name.lower() for name in allow_host or [])}
    app = create_app(library, hosts=names, token=token, uploads=Uploads(upload, upload_limit * 2**20))
    listener = uvicorn.Config(
        app, host, port, log_level="warning", access_log=False, timeout_keep_alive=20, limit_concurrency=512,
        h11_max_incomplete_event_size=65536, timeout_graceful_shutdown=5, server_header=False,
    )  # fmt: skip
    socket = listener.bind_socket()
    shown = own_address() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{socket.getsockname()[1]}/" + (f"?token={token}" if token else "")

    class Server(uvicorn.Server):
        """Says where it is once it answers."""

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            print(f"{len(library.entries)} videos: {address}", flush=True)
            if open_:
                webbrowser.open(address)

        async def shutdown(self, sockets: Any = None) -> None:
            app.close()  # before it waits for those who watch a job
            await super().shutdown(sockets)

    Server(listener).run(sockets=[socket])


def own_address() -> str:
    """This machine's address in its network, for others to use."""
    with socketlib.socket(socketlib.AF_INET, socketlib.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it only asks which way it would go
            return str(probe.getsockname()[0])
        except OSError:
            return "localhost"


def _model(what: tuple[str, ...], source: Source) -> str:
    """The model that a corpus was made with, where none is named."""
    from hiero.corpus.index import Corpus, model_of
    from hiero.serve.library import is_corpus

    for item in what:
        if source.model == DEFAULTS.model and source.backbone == DEFAULTS.backbone and is_corpus(item):
            return model_of(Corpus(item)) or source.model
    return source.model
