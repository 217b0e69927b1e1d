"""Who may do what: people with tokens or known by a proxy, and the three roles."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any, get_args
from urllib.parse import parse_qs

from hiero.errors import InputError
from hiero.serve.settings import Role, ServerSettings
from hiero.serve.state import State

ROLES: tuple[Role, ...] = get_args(Role)
NAME = re.compile(r"[\w.@+-]{1,64}")
COOKIE_S = 30 * 86400  # how long a browser stays signed in
USER = "hiero.user"  # in the scope of a request


class ForbiddenError(Exception):
    """Someone asked for what their role does not allow."""


@dataclass(frozen=True)
class User:
    """Who sends a request."""

    name: str
    role: Role

    def may(self, role: Role) -> bool:
        """Whether they may do what a role may."""
        return ROLES.index(self.role) >= ROLES.index(role)


LOCAL_USER = User("local", "admin")  # of a server that asks nobody who they are, which only this machine reaches


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(24)


def token_digest(token: str) -> bytes:
    """What is stored of a token. Tokens are long and random, so one round of SHA-256 is enough."""
    return hashlib.sha256(token.encode(errors="replace")).digest()


def check_name(name: str) -> str:
    """The name itself. Raises InputError where it is none for a person."""
    if not NAME.fullmatch(name):
        raise InputError(f"{name!a}: not a name; letters, digits and . _ @ + - , at most 64")
    return name


class Access:
    """Finds out who sends a request."""

    def __init__(self, state: State, settings: ServerSettings) -> None:
        self.state, self.token = state, settings.token
        self.user_header = (settings.user_header or "").lower()
        self.header_role = None if settings.header_role == "none" else settings.header_role

    @property
    def is_open(self) -> bool:
        """Nobody has to sign in: nobody ever got a token. A server does not open again when the
        last one is revoked.
        """
        return self.token is None and not self.user_header and not self.state.tokens()

    def authenticate(self, scope: Any, headers: dict[str, str], from_proxy: bool) -> User | None:
        """Who sends a request; None where they must sign in."""
        for token in self._candidates(scope, headers):
            if (user := self.find(token)) is not None:
                return user
        name = headers.get(self.user_header, "") if from_proxy and self.user_header else ""
        if name and NAME.fullmatch(name):
            tokens = [token for token in self.state.tokens() if token.name == name and token.revoked_at is None]
            role = tokens[0].role if tokens else self.header_role
            return None if role is None else User(name, role)
        return LOCAL_USER if self.is_open else None

    def find(self, token: str) -> User | None:
        """Whose a token is."""
        # In constant time, so that the time of an answer does not tell how much of a guess is right.
        if self.token is not None and hmac.compare_digest(token.encode(errors="replace"), self.token.encode()):
            return User("token", "admin")
        stored = self.state.find_token(token_digest(token)) if token else None
        return None if stored is None else User(stored.name, stored.role)

    def _candidates(self, scope: Any, headers: dict[str, str]) -> list[str]:
        """Tokens in the header, the cookie, or the address of the page, from which they are moved to the cookie."""
        candidates = [headers.get("authorization", "").removeprefix("Bearer ").strip()]
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(cookie_name(scope))
            candidates += [cookie.value] if cookie is not None else []
        except CookieError:
            pass
        return [token for token in [*candidates, token_in_address(scope)] if token]


def token_in_address(scope: Any) -> str:
    """The token of /?token=…; of no other address, since those stay in histories and logs."""
    if scope["path"] != "/":
        return ""
    return parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]


def cookie_name(scope: Any) -> str:
    """Browsers share cookies between the ports of a host, so the port is part of the name."""
    return f"hiero-{(scope.get('server') or ('', 0))[1]}"


def cookie_header(scope: Any, token: str, root_path: str) -> str:
    """A Set-Cookie that signs a browser in, or out where the token is empty."""
    parts = [
        f"{cookie_name(scope)}={token}",
        "HttpOnly",
        "SameSite=Strict",
        f"Path={root_path or ''}/",
        f"Max-Age={COOKIE_S if token else 0}",
        *(["Secure"] if scope.get("scheme") == "https" else []),
    ]
    return "; ".join(parts)
