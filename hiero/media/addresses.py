"""Addresses of remote files as text: hide secrets, and tell which addresses name the same file."""

from __future__ import annotations

import os
import re
import urllib.parse
from pathlib import Path

from hiero.errors import InputError, hide_credentials

ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://", re.ASCII)
HTTP_SCHEMES = ("http", "https")
OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "hf")
# Parameters of an address that sign it or identify the user; the file does not depend on them.
SIGNATURE = re.compile(
    r"x-(amz|goog|oss|obs|cos|ms)-.*|awsaccesskeyid|googleaccessid|signature|expires|policy|key-pair-id|"
    r"s[veprst]|sig|spr|sip|srt|sdd|skoid|sktid|sk[tesv]|(access_?|auth_?|id_?)?token|auth|jwt|api_?key|password|hdnts|hmac",
    re.IGNORECASE,
)
SECRET_VARIABLE = re.compile(r"SECRET|TOKEN|PASSW|ACCESS_?KEY|ACCOUNT_?KEY|CREDENTIAL", re.IGNORECASE)
SECRET_VALUE = re.compile(
    r"(?i)\b([\w-]*(?:secret|token|passw|signature|credential|sig|authorization)[\w-]*)(\s*[=:]\s*)[^\s,;&'\"]+"
)
URL_IN_TEXT = re.compile(r"(?<![a-zA-Z0-9+.-])[a-zA-Z0-9+.-]+://[^\s'\"<>)\]]+")
MIN_SECRET_LENGTH = 6  # shorter values of variables could be parts of ordinary words
MAX_REASON_LENGTH = 200
COPY_NAMES: dict[Path, str] = {}  # public addresses by the path of the local copy


def is_address(text: object) -> bool:
    """Whether a text is an address (s3://…, https://…) and not the name of a file (kitchen.mp4, C:/kitchen.mp4)."""
    return isinstance(text, str) and ADDRESS.match(text) is not None


def scheme_of(address: str) -> str:
    return address.partition("://")[0].lower()


def is_http(address: str) -> bool:
    return scheme_of(address) in HTTP_SCHEMES


def has_magic(text: str) -> bool:
    """Whether a part of an address is a pattern. A question mark does not count, since it begins a query."""
    return "*" in text or "[" in text


def public_address(address: str) -> str:
    """An address without user, password and query, which may be shown and stored."""
    scheme, separator, rest = hide_credentials(address).partition("://")
    if not separator:
        return scheme
    authority, slash, path = rest.partition("/")
    # Keys of object stores may contain a question mark: only ?NAME=VALUE is a query. A chain may end in a web address.
    query = r"[?#].*" if is_http(address) or "::" in address else r"\?[\w.-]+=.*"
    path = re.sub(query, "", path, flags=re.DOTALL)
    return f"{scheme.lower()}://{authority.partition('?')[0]}{slash}{path}"


def check_credentials(address: str) -> None:
    """Raise InputError for an object store's address with a key or token. It would show up in messages of libraries."""
    if scheme_of(address) in OBJECT_STORES and hide_credentials(address) != address:
        raise InputError(
            f"{public_address(address)}: its address contains a key, which {scheme_of(address)}:// does not take. "
            "Set the credentials as environment variables, such as AWS_SECRET_ACCESS_KEY or HF_TOKEN."
        )


def query_identity(address: str) -> str:
    """The parameters that select a file, without signatures. Only for hashes, since they may be secret."""
    query = urllib.parse.parse_qsl(address.partition("?")[2].partition("#")[0]) if is_http(address) else []
    named = sorted((name, value) for name, value in query if not SIGNATURE.fullmatch(name))
    return f"?{urllib.parse.urlencode(named)}" if named else ""


def describe_error(error: BaseException, address: str = "") -> str:
    """The message of an error in one short line without secrets."""
    text = " ".join(str(error).split()) or type(error).__name__
    if address:
        text = text.replace(address, public_address(address))
    text = URL_IN_TEXT.sub(lambda match: public_address(match[0]), text)
    for name, value in os.environ.items():
        if len(value) >= MIN_SECRET_LENGTH and SECRET_VARIABLE.search(name):
            text = text.replace(value, "***")
    text = SECRET_VALUE.sub(r"\1\2***", text)
    return text if len(text) <= MAX_REASON_LENGTH else f"{text[:MAX_REASON_LENGTH]}…"


def display_addresses(text: str) -> str:
    """Replace paths of local copies in a message by the addresses of the files, and remove passwords."""
    text = hide_credentials(text)
    if f"{os.sep}remote{os.sep}" not in text:
        return text
    for path in sorted(COPY_NAMES, key=lambda path: -len(path.name)):  # a name may be the prefix of another
        for copy in (str(path), str(path.resolve())):
            text = text.replace(copy, COPY_NAMES[path])
    return text


def failure_message(name: str, error: Exception) -> str:
    """What went wrong with a file, in one line."""
    text = display_addresses(str(error))
    if isinstance(error, InputError):
        return text if name in text else f"{name}: {text}"
    if isinstance(error, OSError):
        return f"{display_addresses(str(error.filename or name))}: {error.strerror or text}"
    return f"{name}: {type(error).__name__}: {text}"
