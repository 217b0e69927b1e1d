"""Where remote files come from: ranges of bytes over HTTP, or through whatever fsspec opens (S3,
Google, Azure, SFTP …).

Addresses may hold passwords, and signatures after a question mark: messages only ever have `public_address`.
"""

from __future__ import annotations

import base64
import http.client
import netrc
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from hiero.errors import InputError

ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://", re.ASCII)
HTTP_SCHEMES = ("http", "https")
CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
# What signs an address for a while, or says who asks: another one does not make it another file.
SIGNATURE = re.compile(
    r"x-(amz|goog|oss|obs|cos|ms)-.*|awsaccesskeyid|googleaccessid|signature|expires|policy|key-pair-id|"
    r"s[veprst]|sig|spr|sip|srt|sdd|skoid|sktid|sk[tesv]|(access_?|auth_?|id_?)?token|auth|jwt|api_?key|password|hdnts|hmac",
    re.IGNORECASE,
)
SECRET_VARIABLE = re.compile(r"SECRET|TOKEN|PASSW|ACCESS_?KEY|ACCOUNT_?KEY|CREDENTIAL", re.IGNORECASE)
SECRET_VALUE = re.compile(
    r"(?i)\b([\w-]*(?:secret|token|passw|signature|credential|sig|authorization)[\w-]*)(\s*[=:]\s*)[^\s,;&'\"]+"
)
URL_IN_TEXT = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://[^\s'\"<>)\]]+")
MIN_SECRET_LENGTH = 6  # of a variable's value that is taken out of messages: shorter ones are parts of words
MAX_REASON_LENGTH = 200
TIMEOUT_S = 30.0  # for each wait on a server
CHUNK_BYTES = 2**18  # of a response, that are written at a time
REQUEST_BYTES = 2**23  # of a request through fsspec
RETRIED_CODES = (408, 425, 429, 500, 502, 503, 504)
DENIED_CODES = (401, 403, 407)
VERSION_FIELDS = (
    "ETag",
    "etag",
    "content_md5",
    "md5Hash",
    "md5",
    "generation",
    "LastModified",
    "last_modified",
    "mtime",
    "updated",
    "modify",
)


class LostConnectionError(OSError):
    """A server could not be reached, or stopped in the middle: it may answer when it is asked again."""


class DeniedError(InputError):
    """A server does not give a file to whoever asks."""


class RemoteChangedError(Exception):
    """A file is another one than when its first bytes were read."""


@dataclass(frozen=True)
class RemoteStat:
    """What a server says about a file."""

    size: int | None
    version: str
    has_ranges: bool = True


@dataclass(frozen=True)
class RemoteEntry:
    """A file of a listing."""

    address: str
    name: str
    stat: RemoteStat


class Origin(Protocol):
    """Reads one remote file."""

    def stat(self) -> RemoteStat:
        """What is there now. Raises InputError where there is no such file, LostConnectionError
        where nobody answers.
        """

    def read(self, start: int, stop: int | None, expected: RemoteStat) -> tuple[int, Iterator[bytes]]:
        """Bytes from `start` to `stop` (None: the end); the first number is where they really begin: 0
        where there are no ranges.
        """


def is_address(text: object) -> bool:
    """Whether a text is the address of something remote (s3://…, https://…), not the name of a file.

    Examples:
        >>> is_address("s3://bucket/kitchen.mp4"), is_address("videos/kitchen.mp4"), is_address("C:/kitchen.mp4")
        (True, False, False)
    """
    return isinstance(text, str) and ADDRESS.match(text) is not None


def scheme_of(address: str) -> str:
    """What stands before :// in an address, in small letters."""
    return address.partition("://")[0].lower()


def public_address(address: str) -> str:
    """An address as it may be shown and stored: without user, password, and what signs it after a question mark.

    Examples:
        >>> public_address("https://me:secret@host/kitchen.mp4?X-Amz-Signature=ab12")
        'https://host/kitchen.mp4'
    """
    parts = []
    for part in address.split("::"):  # fsspec's chains: zip://kitchen.mp4::s3://bucket/videos.zip
        scheme, separator, rest = part.partition("://")
        if not separator:
            parts.append(part)
            continue
        authority, slash, path = rest.partition("/")
        is_http = scheme.lower() in HTTP_SCHEMES
        # A key of an object store may hold a question mark; what follows one is a query where it says NAME=VALUE.
        path = re.sub(r"[?#].*" if is_http else r"\?[\w.-]+=.*", "", path, flags=re.DOTALL)
        authority = authority.rpartition("@")[2].partition("?")[0]
        parts.append(f"{scheme.lower()}://{authority}{slash}{path}")
    return "::".join(parts)


def identity(address: str) -> str:
    """What tells two files from each other, also where both are signed anew each time: goes into a
    hash, never into a message.
    """
    public = public_address(address)
    query = (
        urllib.parse.parse_qsl(address.partition("?")[2].partition("#")[0])
        if scheme_of(address) in HTTP_SCHEMES
        else []
    )
    named = sorted((name, value) for name, value in query if not SIGNATURE.fullmatch(name))
    return f"{public}?{urllib.parse.urlencode(named)}" if named else public


def reason(error: BaseException, address: str = "") -> str:
    """What an error says, in a short line without anything secret."""
    text = " ".join(str(error).split()) or type(error).__name__
    if address:
        text = text.replace(address, public_address(address))
    text = URL_IN_TEXT.sub(lambda match: public_address(match[0]), text)
    for name, value in os.environ.items():
        if len(value) >= MIN_SECRET_LENGTH and SECRET_VARIABLE.search(name):
            text = text.replace(value, "***")
    text = SECRET_VALUE.sub(r"\1\2***", text)
    return text if len(text) <= MAX_REASON_LENGTH else f"{text[:MAX_REASON_LENGTH]}…"


def open_origin(address: str) -> Origin:
    """What reads an address. Raises InputError where nothing installed can."""
    return HttpOrigin(address) if scheme_of(address) in HTTP_SCHEMES else FsspecOrigin(address)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirections; a password goes only to the server that it was given for."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        authorization = req.unredirected_hdrs.get("Authorization")
        before, after = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if new is not None and authorization and (before.scheme, before.netloc) == (after.scheme, after.netloc):
            new.add_unredirected_header("Authorization", authorization)
        return new


class HttpOrigin:
    """A file behind an http or https address."""

    def __init__(self, address: str) -> None:
        parts = urllib.parse.urlsplit(address)
        user, _, host = parts.netloc.rpartition("@")
        # A space or an umlaut that somebody typed; what is quoted already stays as it is.
        path, query = (urllib.parse.quote(part, safe="/%:=&?~#+!$,;'@()*[]-._") for part in (parts.path, parts.query))
        self._url = urllib.parse.urlunsplit((parts.scheme.lower(), host, path, query, ""))
        self._public = public_address(address)
        self._authorization = _basic(urllib.parse.unquote(user)) if user else _from_netrc(parts.hostname)
        self._opener = urllib.request.build_opener(_Redirects)

    def stat(self) -> RemoteStat:
        """Asks for the first byte: a signature is often for GET alone, and the answer tells whether
        there are ranges.
        """
        try:
            with self._open({"Range": "bytes=0-0"}) as response:
                return self._describe(response)
        except _StatusError as error:
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise InputError(f"{self._public}: is empty") from None
            raise self._refused(error) from None

    def read(self, start: int, stop: int | None, expected: RemoteStat) -> tuple[int, Iterator[bytes]]:
        """See `Origin.read`."""
        headers = {"Range": f"bytes={start}-{'' if stop is None else stop - 1}"} if expected.has_ranges else {}
        try:
            response = self._open(headers)
        except _StatusError as error:
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:  # it is shorter now
                raise RemoteChangedError from None
            raise self._refused(error) from None
        stat = self._describe(response)
        first = start if response.status == http.client.PARTIAL_CONTENT else 0
        if (stat.size, stat.version) != (expected.size, expected.version):
            response.close()
            raise RemoteChangedError
        return first, self._chunks(response, None if stop is None else stop - first)

    def _chunks(self, response: Any, num_bytes: int | None) -> Iterator[bytes]:
        """The body; only so much of it where a server sends more than it was asked for."""
        length = response.headers.get("Content-Length")
        received = 0
        with response:
            while num_bytes is None or received < num_bytes:
                try:
                    data = response.read(CHUNK_BYTES if num_bytes is None else min(CHUNK_BYTES, num_bytes - received))
                except (OSError, http.client.HTTPException) as error:
                    raise LostConnectionError(reason(error, self._url)) from None
                if not data:
                    break
                received += len(data)
                yield data
        expected = int(length) if length is not None and length.isdecimal() else received
        if received < (expected if num_bytes is None else min(expected, num_bytes)):
            raise LostConnectionError("the connection ended early")

    def _open(self, headers: dict[str, str]) -> Any:
        request = urllib.request.Request(
            self._url, headers={"Accept-Encoding": "identity", "User-Agent": "hiero", **headers}
        )
        if self._authorization:
            request.add_unredirected_header("Authorization", self._authorization)
        try:
            return self._opener.open(request, timeout=TIMEOUT_S)
        except urllib.error.HTTPError as error:
            error.close()
            raise _StatusError(error.code, str(error.reason)) from None
        except (OSError, http.client.HTTPException) as error:
            raise LostConnectionError(reason(getattr(error, "reason", None) or error, self._url)) from None
        except ValueError as error:
            raise InputError(f"{self._public}: not an address that can be read ({reason(error, self._url)})") from None

    def _describe(self, response: Any) -> RemoteStat:
        headers = response.headers
        version = headers.get("ETag") or headers.get("Last-Modified") or ""
        if response.status == http.client.PARTIAL_CONTENT:
            match = CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
            return RemoteStat(int(match[3]) if match and match[3] != "*" else None, version)
        length = headers.get("Content-Length", "")
        return RemoteStat(int(length) if length.isdecimal() else None, version, has_ranges=False)

    def _refused(self, error: _StatusError) -> Exception:
        """What a status of 400 or more means."""
        if error.code in RETRIED_CODES:
            return LostConnectionError(f"the server answers {error.code} {error.text}")
        if error.code in DENIED_CODES:
            return DeniedError(
                f"{self._public}: the server refuses it ({error.code} {error.text}); is the address signed, and "
                "still valid? Users "
                "and passwords belong into ~/.netrc"
            )
        if error.code in (404, 410):
            return InputError(f"{self._public}: no such file on the server ({error.code})")
        return InputError(f"{self._public}: the server answers {error.code} {error.text}")


class _StatusError(Exception):
    """A status of 400 or more."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code)
        self.code, self.text = code, " ".join(text.split())[:80]


def _basic(user: str) -> str:
    return "Basic " + base64.b64encode(user.encode()).decode()


def _from_netrc(host: str | None) -> str:
    """The header for a server that ~/.netrc knows."""
    try:
        login = netrc.netrc().authenticators(host or "")
    except (OSError, netrc.NetrcParseError):
        return ""
    return _basic(f"{login[0]}:{login[2]}") if login else ""


class FsspecOrigin:
    """A file, or a folder, of a file system that fsspec knows. Credentials come from where that file
    system looks for them.
    """

    def __init__(self, address: str) -> None:
        self._address, self._public = address, public_address(address)

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        """The file system, and the path in it."""
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise InputError(
                f"{self._public}: reading it needs fsspec; run: pip install 'hiero-video[remote]'"
            ) from None
        options: dict[str, Any] = {}
        if (scheme := scheme_of(self._address.rpartition("::")[2])) in ("s3", "s3a"):
            # it is tried again here
            options["config_kwargs"] = {"retries": {"max_attempts": 1}, "connect_timeout": TIMEOUT_S}
            endpoint = os.environ.get("AWS_ENDPOINT")  # as LanceDB has it: one setting for the corpus and the videos
            if endpoint and "AWS_ENDPOINT_URL" not in os.environ:
                options["endpoint_url"] = endpoint
            options = {scheme: options} if "::" in self._address else options
        try:
            return url_to_fs(self._address, **options)
        except ImportError as error:
            name = getattr(error, "name", None) or reason(error)
            extra = "run: pip install 'hiero-video[remote]'" if "s3" in name else "install what it names"
            raise InputError(f"{self._public}: a package is missing to read it ({name}); {extra}") from None
        except ValueError as error:
            live = (
                "; live streams are for hiero watch"
                if scheme_of(self._address) in ("rtsp", "rtmp", "udp", "rtp", "srt")
                else ""
            )
            text = reason(error, self._address)
            raise InputError(f"{self._public}: not a kind of address that fsspec knows ({text}){live}") from None
        except Exception as error:  # of any library
            raise self._translate(error) from None

    def stat(self) -> RemoteStat:
        """See `Origin.stat`."""
        fs, path = self._opened
        try:
            fs.invalidate_cache(path.rpartition("/")[0])
            info = fs.info(path)
        except Exception as error:
            raise self._translate(error) from None
        if info.get("type") == "directory":
            raise InputError(f"{self._public}: is a folder; to read what is in it, write {self._public.rstrip('/')}/")
        if info.get("size") == 0:
            raise InputError(f"{self._public}: is empty")
        return _stat_of(info)

    def read(self, start: int, stop: int | None, expected: RemoteStat) -> tuple[int, Iterator[bytes]]:
        """See `Origin.read`."""
        if self.stat() != expected:
            raise RemoteChangedError
        return start, self._chunks(start, expected.size if stop is None else stop)

    def _chunks(self, start: int, stop: int | None) -> Iterator[bytes]:
        fs, path = self._opened
        while stop is None or start < stop:
            end = start + REQUEST_BYTES if stop is None else min(start + REQUEST_BYTES, stop)
            try:
                data = fs.cat_file(path, start=start, end=end)
            except Exception as error:
                raise self._translate(error) from None
            if data:
                yield data
                start += len(data)
            if stop is None and len(data) < REQUEST_BYTES:
                return
            if stop is not None and not data:
                raise LostConnectionError("the connection ended early")

    def is_folder(self) -> bool:
        """Whether files lie below it."""
        fs, path = self._opened
        try:
            fs.invalidate_cache(path)
            return bool(fs.isdir(path))
        except Exception as error:
            raise self._translate(error) from None

    def find(self) -> list[RemoteEntry]:
        """All files below a folder, or that match a pattern (* within a folder, ** over several)."""
        fs, path = self._opened
        first, chain, rest = self._address.partition("::")
        plain_parts = []
        for part in first.split("/"):
            if has_magic(part):
                break
            plain_parts.append(part)
        is_pattern = len(plain_parts) < len(first.split("/"))
        root_address = "/".join(plain_parts).rstrip("/") if is_pattern else first.rstrip("/")
        try:
            fs.invalidate_cache()
            root = str(fs._strip_protocol(root_address)).rstrip("/")
            entries = fs.glob(path, detail=True) if is_pattern else fs.find(path, detail=True)
        except FileNotFoundError:
            return []
        except Exception as error:
            raise self._translate(error) from None
        out = []
        for file, info in sorted(entries.items()):
            if info.get("type") == "directory" or not file.startswith(f"{root}/") or file.endswith("/"):
                continue
            name = file[len(root) + 1 :]
            out.append(RemoteEntry(f"{root_address}/{name}{chain}{rest}", name, _stat_of(info)))
        return out

    def _translate(self, error: Exception) -> Exception:
        """What an error of fsspec and the libraries below it means."""
        if isinstance(error, InputError | LostConnectionError):
            return error
        text = reason(error, self._address)
        if isinstance(error, FileNotFoundError):
            return InputError(f"{self._public}: no such file")
        if isinstance(error, PermissionError) or "credentials" in type(error).__name__.lower():
            variables = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (public bucket: FSSPEC_S3_ANON=true)"
            advice = (
                variables
                if scheme_of(self._address) in ("s3", "s3a")
                else "see where its file system takes credentials from"
            )
            return DeniedError(f"{self._public}: access is refused ({text}); {advice}")
        if isinstance(error, ValueError | TypeError | NotImplementedError | ImportError):
            return InputError(f"{self._public}: cannot be read ({text})")
        return LostConnectionError(text)


def has_magic(text: str) -> bool:
    """Whether a part of an address is a pattern. A question mark is none: it begins a query."""
    return "*" in text or "[" in text


def _stat_of(info: dict[str, Any]) -> RemoteStat:
    size = info.get("size")
    version = ""
    for field in VERSION_FIELDS:
        with suppress(Exception):
            if info.get(field) is not None:
                version = str(info[field])
                break
    return RemoteStat(None if size is None else int(size), version)
