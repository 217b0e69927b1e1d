"""A server behind a proxy: whose headers are believed, and under which path."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiero.errors import InputError
from hiero.serve.guard import FROM_PROXY, Guard
from hiero.serve.settings import ServerSettings
from hiero.serve.state import State
from hiero.serve.users import Access
from tests.serve.conftest import connect

SETTINGS = ServerSettings(token="secret", trusted_proxy=["10.0.0.0/8", "fd00::/8"], allow_host=["lab.example"])


def resolve(peer, headers):
    """Client, scheme, and whether a trusted proxy sent it, as the application sees a request; None if it does not."""
    seen = []

    async def application(scope, receive, send):
        seen.append((scope["client"][0], scope["scheme"], scope[FROM_PROXY]))

    async def send(_):
        pass

    guard = Guard(application, SETTINGS, Access(State(), SETTINGS))
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/api/videos",
        "query_string": b"",
        "scheme": "http",
        "client": (peer, 1234),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    asyncio.run(guard(scope, None, send))
    return seen[0] if seen else None


def test_headers_of_trusted_proxies_only():
    headers = {
        "host": "inside",
        "authorization": "Bearer secret",
        "x-forwarded-for": "1.2.3.4",
        "x-forwarded-proto": "https",
        "x-forwarded-host": "lab.example",
    }
    assert resolve("10.0.0.9", headers) == ("1.2.3.4", "https", True)
    assert resolve("::ffff:10.0.0.9", headers) == ("1.2.3.4", "https", True)
    assert resolve("5.5.5.5", headers) is None  # it may not say that it asked for another host
    assert resolve("5.5.5.5", {**headers, "host": "lab.example"}) == ("5.5.5.5", "http", False)


@given(st.lists(st.ip_addresses(v=4).map(str), max_size=5), st.ip_addresses(v=4).map(str))
def test_a_client_cannot_choose_its_address(forged, client):
    """What a client sends in the header stands before what the proxy adds."""
    header = ", ".join([*forged, client])
    headers = {"host": "localhost", "authorization": "Bearer secret", "x-forwarded-for": header}
    address, _, _ = resolve("10.0.0.9", headers)
    assert address == client or client.startswith("10.")


def test_under_a_path(library):
    settings = ServerSettings(root_path="/hiero", token="secret")
    with connect(library, settings, follow_redirects=False) as client:
        headers = {"Authorization": "Bearer secret"}
        assert client.get("/hiero/api/videos", headers=headers).status_code == 200  # a proxy that leaves the path
        assert client.get("/api/videos", headers=headers).status_code == 200  # one that takes it off
        assert client.get("/hiero").headers["location"] == "/hiero/"
        assert "<title>hiero</title>" in client.get("/hiero/").text
        signed_in = client.get("/hiero/?token=secret")
        assert signed_in.headers["location"] == "/hiero/"
        assert "Path=/hiero/" in signed_in.headers["set-cookie"]
        assert client.get("/hieroglyph").status_code == 404


def test_a_cookie_over_tls_is_secure(library):
    headers = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "lab.example", "Origin": "https://lab.example"}
    with connect(library, SETTINGS, base_url="http://inside", client=("10.0.0.9", 1)) as client:
        answer = client.post("/api/sign-in", json={"token": "secret"}, headers=headers)
        assert answer.status_code == 200
        assert "Secure" in answer.headers["set-cookie"]
        # not through the proxy's name
        assert client.get("/api/me", headers={"Authorization": "Bearer secret"}).status_code == 421


@pytest.mark.parametrize("header", ["X-Forwarded-For", "X-Real-IP", "Forwarded"])
def test_an_open_server_is_not_for_the_clients_of_a_proxy(library, header):
    """A proxy on this machine that nobody declared would make everyone an administrator."""
    with connect(library, client=("127.0.0.1", 1)) as client:
        assert client.get("/api/me").status_code == 200
        refused = client.get("/api/me", headers={header: "198.51.100.4"})
        assert (refused.status_code, "--trusted-proxy" in refused.json()["error"]) == (403, True)
        assert client.get("/healthz", headers={header: "198.51.100.4"}).status_code == 200


def test_a_page_without_tls_cannot_change_one_with_tls(library):
    headers = {"X-Forwarded-Host": "lab.example", "Authorization": "Bearer secret"}
    url = f"/api/videos/{library.find_by_name('tea').id}/edits"
    with connect(library, SETTINGS, base_url="http://inside", client=("10.0.0.9", 1)) as client:
        for scheme, origin, status in (
            ("https", "https://lab.example", 200),
            ("https", "http://lab.example", 403),
            ("http", "http://lab.example", 200),
            ("http", "https://lab.example", 200),  # a proxy that does not say that it uses TLS
        ):
            answer = client.delete(url, headers={**headers, "X-Forwarded-Proto": scheme, "Origin": origin})
            assert answer.status_code == status, (scheme, origin)


def test_settings_that_are_wrong():
    with pytest.raises(InputError, match="must be an address or network"):
        ServerSettings(trusted_proxy=["lab.example"]).trusted_networks  # noqa: B018
    for path in ("/a b", "/a/../b"):
        with pytest.raises(InputError, match="must be a path"):
            ServerSettings(root_path=path).path_prefix  # noqa: B018
    prefixes = [ServerSettings(root_path=path).path_prefix for path in ("", "/", "hiero", "/a/b/")]
    assert prefixes == ["", "", "/hiero", "/a/b"]
