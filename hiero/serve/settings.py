"""The settings of `hiero serve`, shared by the command line and all parts of the server."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from hiero.errors import InputError

Flag = Annotated[bool, Parameter(negative="")]
Repeated = Annotated[list[str] | None, Parameter(negative="")]
Role = Literal["view", "edit", "admin"]  # each role includes those before it
LogFormat = Literal["none", "text", "json"]

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")


@Parameter(name="*")
@dataclass(frozen=True)
class ServerSettings:
    """Settings of a server."""

    host: str = "127.0.0.1"
    """Address to listen on. 0.0.0.0 listens on all networks."""
    port: Annotated[int, Parameter(alias="-p")] = 8400
    """Port to listen on. 0 chooses a free one."""
    truth: Path | None = None
    """Annotations in the format of `hiero eval own`, shown in an extra row."""
    labels: Path | None = None
    """Text file with one label per line. Defaults to a bundled list of everyday phrases."""
    token: str | None = None
    """Shared token with all rights. One is generated if other machines can reach the server and nobody has a token."""
    allow_host: Repeated = None
    """Host name under which the server may be reached. Repeatable."""
    root: Path | None = None
    """Folder of everything that the server keeps: jobs, edits with their history, tokens, uploads and a corpus. Without
    it, jobs end with the server and edits are saved next to the videos. `hiero backup` copies it."""
    upload: Path | None = None
    """Folder for videos that are uploaded on the page, if not in the root."""
    upload_limit: int = 2000
    """Maximum size of an upload in megabytes. 0 switches uploads off."""
    state: Path | None = None
    """Folder of a server without a root for jobs, edits and tokens. With `--root`, it is copied to the root once."""
    auto: bool = True
    """Process uploads without being asked."""
    index: Flag = False
    """Add the videos that are processed to the corpus, so that they can be searched."""
    jobs: int = 1
    """Number of videos that are processed at the same time."""
    watch: Flag = False
    """Check folders and addresses every ten seconds for new videos, and process them."""
    root_path: str = ""
    """Path under which a proxy serves the page, such as /hiero."""
    trusted_proxy: Repeated = None
    """Address or network of a proxy whose X-Forwarded headers are trusted. Repeatable."""
    user_header: str | None = None
    """Header in which a trusted proxy sends the name of the signed-in user, such as Remote-User."""
    header_role: Literal["view", "edit", "admin", "none"] = "view"
    """Role of users named in that header who have no token of their own. `none` denies them access."""
    log_format: LogFormat = "none"
    """Log each request and each change to standard error, as text or JSON."""
    choose_folders: Annotated[bool, Parameter(parse=False)] = False
    """Whether administrators may add folders of the home folder on the page."""
    open: Flag = False
    """Open the page in a browser."""

    @property
    def state_folder(self) -> Path | None:
        """The folder of the state, None if it is only kept in memory."""
        return self.root or self.state

    @property
    def upload_folder(self) -> Path | None:
        """The folder of uploads, None if they are off."""
        folder = self.upload if self.root is None else self.root / "uploads"
        return folder if self.upload_limit else None

    @property
    def hosts(self) -> frozenset[str]:
        """Host names that requests may use."""
        return frozenset(name.lower() for name in (*LOOPBACK_HOSTS, self.host, *(self.allow_host or ())))

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach the server. A proxy or another host name lets others in."""
        return is_loopback(self.host) and not (self.trusted_proxy or self.root_path or self.allow_host)

    @property
    def path_prefix(self) -> str:
        """`root_path` with a leading slash and no trailing one, or empty for the root."""
        parts = [part for part in self.root_path.split("/") if part]
        if any(part in (".", "..") or not all(c.isalnum() or c in "-._~" for c in part) for part in parts):
            raise InputError(f"--root-path must be a path such as /hiero, got {self.root_path}")
        return "".join(f"/{part}" for part in parts)

    @property
    def trusted_networks(self) -> list[str]:
        """`trusted_proxy` as networks."""
        networks = []
        for text in self.trusted_proxy or ():
            try:
                networks.append(str(ipaddress.ip_network(text, strict=False)))
            except ValueError:
                message = f"--trusted-proxy must be an address or network such as 10.0.0.0/24, got {text}"
                raise InputError(message) from None
        return networks


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    return host in LOOPBACK_HOSTS or host.startswith("127.")
