"""Users and their roles. Users sign in with a token, or a proxy names them."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import get_args

from hiero.errors import InputError
from hiero.serve.settings import Role, ServerSettings
from hiero.serve.state import State

ROLES: tuple[Role, ...] = get_args(Role)
NAME = re.compile(r"[\w.@+-]{1,64}")
COOKIE_S = 30 * 86400  # time that a browser stays signed in
USER = "hiero.user"  # key of the user in the scope of a request


class ForbiddenError(Exception):
    """The role of the user does not allow this."""


@dataclass(frozen=True)
class User:
    name: str
    role: Role

    def may(self, role: Role) -> bool:
        """Whether the role of the user includes another role."""
        return ROLES.index(self.role) >= ROLES.index(role)


LOCAL_USER = User("local", "admin")  # the user of a server that only this machine can reach


def new_token() -> str:
    return secrets.token_urlsafe(24)


def token_digest(token: str) -> bytes:
    """Digest under which a token is stored. Tokens are long and random, so one round of SHA-256 is enough."""
    return hashlib.sha256(token.encode(errors="replace")).digest()


def check_name(name: str) -> str:
    """Return a user name, or raise InputError if it is not valid."""
    if not NAME.fullmatch(name):
        raise InputError(f"a name must have 1 to 64 letters, digits or . _ @ + -, got {name!a}")
    return name


class Access:
    """Authenticates requests."""

    def __init__(self, state: State, settings: ServerSettings) -> None:
        self.state, self.token = state, settings.token
        self.user_header = (settings.user_header or "").lower()
        self.header_role = None if settings.header_role == "none" else settings.header_role

    @property
    def is_open(self) -> bool:
        """Whether nobody has to sign in because no token was ever given out, not even one that is revoked."""
        return self.token is None and not self.user_header and not self.state.tokens()

    def authenticate(self, tokens: Iterable[str], headers: Mapping[str, str], from_proxy: bool) -> User | None:
        """The user of a request, or None if they must sign in."""
        for token in filter(None, tokens):
            if (user := self.find(token)) is not None:
                return user
        name = headers.get(self.user_header, "") if from_proxy and self.user_header else ""
        if name and NAME.fullmatch(name):
            roles = [token.role for token in self.state.tokens() if token.name == name and token.revoked_at is None]
            role = roles[0] if roles else self.header_role
            return None if role is None else User(name, role)
        return LOCAL_USER if self.is_open else None

    def is_shared_token(self, token: str) -> bool:
        """Whether this is the token of the server itself, which nobody owns."""
        # In constant time, so that the response time does not reveal how much of a guess is right.
        return self.token is not None and hmac.compare_digest(token.encode(errors="replace"), self.token.encode())

    def find(self, token: str) -> User | None:
        """The user with a token."""
        if self.is_shared_token(token):
            return User("token", "admin")
        stored = self.state.find_token(token_digest(token)) if token else None
        return None if stored is None else User(stored.name, stored.role)
