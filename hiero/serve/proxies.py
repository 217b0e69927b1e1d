"""Proxies before the server: whose headers are believed, and the path under which they serve it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Any

from hiero.errors import InputError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Addresses or networks, such as 10.0.0.2 or 10.0.0.0/24. Raises InputError where one is neither."""
    out = []
    for text in texts:
        try:
            out.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            raise InputError(
                f"--trusted-proxy {text}: not an address or a network, such as 10.0.0.2 or 10.0.0.0/24"
            ) from None
    return tuple(out)


def check_root_path(path: str) -> str:
    """/hiero out of hiero, /hiero and /hiero/; empty for the root. Raises InputError where it is no path."""
    parts = [part for part in path.split("/") if part]
    if any(part in (".", "..") or not all(c.isalnum() or c in "-._~" for c in part) for part in parts):
        raise InputError(f"--root-path {path}: not a path such as /hiero")
    return "".join(f"/{part}" for part in parts)


class Proxies:
    """What trusted proxies say about requests."""

    def __init__(self, networks: Sequence[Network] = (), root_path: str = "") -> None:
        self.networks, self.root_path = networks, root_path

    def is_trusted(self, address: str) -> bool:
        """Whether an address is that of a trusted proxy."""
        try:
            ip = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
            ip = ip.ipv4_mapped
        return any(ip in network for network in self.networks)

    def resolve(self, scope: Any, headers: dict[str, str]) -> bool:
        """Make a request what it was before it came through proxies: its path, and from a trusted one
        its client, scheme and host.
        """
        path = scope["path"]
        if self.root_path and (path == self.root_path or path.startswith(self.root_path + "/")):
            scope.update(path=path[len(self.root_path) :], raw_path=None)
        peer = (scope.get("client") or ("", 0))[0]
        if not self.is_trusted(peer):
            return False
        # Each proxy adds the address that it saw at the end: the last one that is not a proxy of ours is the client.
        hops = [hop.strip() for hop in headers.get("x-forwarded-for", "").split(",") if hop.strip()]
        client = next((hop for hop in reversed(hops) if not self.is_trusted(hop)), hops[0] if hops else peer)
        scope["client"] = (client, 0)
        if (scheme := headers.get("x-forwarded-proto", "").lower()) in ("http", "https"):
            scope["scheme"] = scheme
        if host := headers.get("x-forwarded-host", "").split(",")[0].strip():
            headers["host"] = host
        return True
