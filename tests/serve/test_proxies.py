"""A server behind a proxy: whose headers are believed, and under which path."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from hiero.errors import InputError
from hiero.serve.app import AppOptions, create_app
from hiero.serve.proxies import Proxies, check_root_path, parse_networks

TRUSTED = parse_networks(["10.0.0.0/8", "fd00::/8"])


def resolve(peer, headers, root_path=""):
    scope = {"path": "/api/videos", "client": (peer, 1234), "scheme": "http"}
    headers = dict(headers)
    is_trusted = Proxies(TRUSTED, root_path).resolve(scope, headers)
    return scope, headers, is_trusted


def test_headers_of_trusted_proxies_only():
    headers = {
        "host": "inside",
        "x-forwarded-for": "1.2.3.4",
        "x-forwarded-proto": "https",
        "x-forwarded-host": "lab.example",
    }
    scope, seen, trusted = resolve("10.0.0.9", headers)
    assert (scope["client"][0], scope["scheme"], seen["host"], trusted) == ("1.2.3.4", "https", "lab.example", True)
    scope, seen, trusted = resolve("5.5.5.5", headers)
    assert (scope["client"][0], scope["scheme"], seen["host"], trusted) == ("5.5.5.5", "http", "inside", False)
    assert resolve("::ffff:10.0.0.9", headers)[2]


@given(st.lists(st.ip_addresses(v=4).map(str), max_size=5), st.ip_addresses(v=4).map(str))
def test_a_client_cannot_choose_its_address(forged, client):
    """What a client sends in the header stands before what the proxy adds."""
    proxies = Proxies(TRUSTED)
    header = ", ".join([*forged, client])
    address = resolve("10.0.0.9", {"x-forwarded-for": header})[0]["client"][0]
    assert address == client or proxies.is_trusted(client)


def test_under_a_path(library):
    options = AppOptions(proxies=Proxies(root_path="/hiero"), token="secret")
    with TestClient(create_app(library, options), base_url="http://localhost", follow_redirects=False) as client:
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
    options = AppOptions(proxies=Proxies(TRUSTED), token="secret", hosts=frozenset({"lab.example"}))
    headers = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "lab.example", "Origin": "https://lab.example"}
    with TestClient(create_app(library, options), base_url="http://inside", client=("10.0.0.9", 1)) as client:
        answer = client.post("/api/sign-in", json={"token": "secret"}, headers=headers)
        assert answer.status_code == 200
        assert "Secure" in answer.headers["set-cookie"]
        # not through the proxy's name
        assert client.get("/api/me", headers={"Authorization": "Bearer secret"}).status_code == 421


def test_settings_that_are_wrong():
    with pytest.raises(InputError, match="not an address or a network"):
        parse_networks(["lab.example"])
    with pytest.raises(InputError, match="not a path"):
        check_root_path("/a b")
    with pytest.raises(InputError, match="not a path"):
        check_root_path("/a/../b")
    assert [check_root_path(path) for path in ("", "/", "hiero", "/a/b/")] == ["", "", "/hiero", "/a/b"]
