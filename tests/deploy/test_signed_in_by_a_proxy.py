"""`hiero serve` behind the real nginx and Caddy: whom it believes to be a visitor, and who signs people in."""

from __future__ import annotations

import http.client
import json
import re
import signal
import ssl
import time

import numpy as np
import pytest

from tests.deploy import test_proxies
from tests.deploy.test_proxies import WAIT_S, start_caddy, start_nginx
from tests.optional import program_or_skip, skip_without
from tests.processes import start_hiero
from tests.waiting import free_port

pytestmark = pytest.mark.slow

skip_without("fastapi", "needs FastAPI: pip install 'hiero-video[serve]'")

VISITOR = "127.0.0.5"


@pytest.fixture(params=["nginx", "caddy"])
def start_proxy(request, tmp_path, monkeypatch):
    """Starts the proxy with the shipped file before a port. With a name it signs everyone in as this person."""
    program_or_skip({"nginx": "nginx-light", "caddy": "caddy"}[request.param])
    processes = []

    def start(upstream_port, name=None):
        deploy = tmp_path / "deploy"
        deploy.mkdir()
        for file in ("nginx.conf", "Caddyfile"):
            text = (test_proxies.DEPLOY / file).read_text()
            if name is not None:
                text = text.replace('Remote-User "";', f"Remote-User {name};")
                text = text.replace("header_up -Remote-User", f"header_up Remote-User {name}")
            (deploy / file).write_text(text)
        monkeypatch.setattr(test_proxies, "DEPLOY", deploy)
        port, plain_port = free_port(), free_port()
        folder = tmp_path / "proxy"
        folder.mkdir()
        tmp_path.chmod(0o755)
        folder.chmod(0o755)
        begin = {"nginx": start_nginx, "caddy": start_caddy}[request.param]
        processes.append(begin(folder, upstream_port, port, plain_port))
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                connect(port).close()
                return port
            except OSError:
                assert time.monotonic() < deadline, "it does not answer"
                time.sleep(0.05)

    yield start
    for process in processes:
        process.terminate()
        process.wait(WAIT_S)


@pytest.fixture
def serve(tmp_path):
    """Starts hiero with options. Returns its port and the process."""
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(60, 16)).astype(np.float32))
    processes = []

    def start(*options):
        fixed = ("--model", "raw", "--device", "cpu", "--port", "0", "--log-format", "json")
        process = start_hiero("serve", tmp_path / "v.npy", *fixed, "--user-header", "Remote-User", *options)
        processes.append(process)
        line = process.stdout.readline()
        found = re.search(r"http://[^:]+:(\d+)", line)
        assert found, line + process.stderr.read()
        return int(found[1]), process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def connect(port):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    source = (VISITOR, 0)
    connection = http.client.HTTPSConnection("localhost", port, timeout=WAIT_S, context=context, source_address=source)
    connection.connect()
    return connection


def get_me(port):
    """Status and body of /api/me for a visitor who pretends to be the proxy and an administrator."""
    connection = connect(port)
    connection.request("GET", "/api/me", headers={"Remote-User": "boss", "X-Forwarded-For": "127.0.0.1"})
    response = connection.getresponse()
    body = json.loads(response.read())
    connection.close()
    return response.status, body


def logged_client(process):
    """The address in the log line of /api/me."""
    process.send_signal(signal.SIGTERM)
    lines = [json.loads(line) for line in process.stderr.read().splitlines() if line.startswith("{")]
    return next(line["client"] for line in lines if line.get("path") == "/api/me")


def test_a_proxy_that_signs_nobody_in(serve, start_proxy):
    port, process = serve("--trusted-proxy", "127.0.0.1", "--header-role", "admin")
    status, _ = get_me(start_proxy(port))
    assert status == 401
    assert logged_client(process) == VISITOR


def test_a_trusted_proxy_that_signs_people_in(serve, start_proxy):
    port, process = serve("--trusted-proxy", "127.0.0.1", "--header-role", "edit")
    status, body = get_me(start_proxy(port, "anna"))
    assert (status, body) == (200, {"name": "anna", "role": "edit", "sign_in": True})
    assert logged_client(process) == VISITOR


def test_a_proxy_that_is_not_trusted(serve, start_proxy):
    port, process = serve("--trusted-proxy", "192.0.2.7", "--header-role", "admin")
    status, _ = get_me(start_proxy(port, "anna"))
    assert status == 401
    assert logged_client(process) == "127.0.0.1"
