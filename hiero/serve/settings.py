"""The settings of `hiero serve`: one object that the command line fills and every part of the server reads."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from hiero.errors import InputError

Flag = Annotated[bool, Parameter(negative="")]
Repeated = Annotated[list[str] | None, Parameter(negative="")]
Role = Literal["view", "edit", "admin"]  # each may do what those before it may
LogFormat = Literal["none", "text", "json"]

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")


@Parameter(name="*")
@dataclass(frozen=True)
class ServerSettings:
    """Settings of a server.

    Parameters
    ----------
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
    open
        Open the page in a browser.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Parameter(alias="-p")] = 8400
    compare: Repeated = None
    truth: Path | None = None
    labels: Path | None = None
    token: str | None = None
    allow_host: Repeated = None
    upload: Path | None = None
    upload_limit: int = 2000
    state: Path | None = None
    write_edits: Flag = False
    jobs: int = 1
    watch: Flag = False
    ray: Flag = False
    address: str | None = None
    root_path: str = ""
    trusted_proxy: Repeated = None
    user_header: str | None = None
    header_role: Literal["view", "edit", "admin", "none"] = "view"
    log_format: LogFormat = "none"
    open: Flag = False

    @property
    def hosts(self) -> frozenset[str]:
        """Names that requests may use for this server."""
        return frozenset(name.lower() for name in (*LOOPBACK_HOSTS, self.host, *(self.allow_host or ())))

    @property
    def is_private(self) -> bool:
        """Whether only this machine reaches the server: a proxy, or another name, brings others."""
        return is_loopback(self.host) and not (self.trusted_proxy or self.root_path or self.allow_host)

    @property
    def max_upload_bytes(self) -> int:
        return self.upload_limit * 2**20

    @property
    def path_prefix(self) -> str:
        """`root_path` with a slash before it and none behind; empty for the root."""
        parts = [part for part in self.root_path.split("/") if part]
        if any(part in (".", "..") or not all(c.isalnum() or c in "-._~" for c in part) for part in parts):
            raise InputError(f"--root-path {self.root_path}: not a path such as /hiero")
        return "".join(f"/{part}" for part in parts)

    @property
    def trusted_networks(self) -> list[str]:
        """`trusted_proxy` as networks."""
        networks = []
        for text in self.trusted_proxy or ():
            try:
                networks.append(str(ipaddress.ip_network(text, strict=False)))
            except ValueError:
                raise InputError(
                    f"--trusted-proxy {text}: not an address or a network, such as 10.0.0.2 or 10.0.0.0/24"
                ) from None
        return networks


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    return host in LOOPBACK_HOSTS or host.startswith("127.")
