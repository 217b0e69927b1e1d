"""`hiero serve` behind the real nginx and Caddy: whom it believes to be a visitor, and who signs people in."""

from __future__ import annotations

import json
import re
import signal

import numpy as np
import pytest

from tests.deploy import test_proxies
from tests.deploy.test_proxies import WAIT_S, connect, start_caddy, start_nginx, wait_for
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
        wait_for(processes[-1], port)
        return port

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


def get_me(port):
    """Status and body of /api/me for a visitor who pretends to be the proxy and an administrator."""
    connection = connect(port, VISITOR)
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


@pytest.mark.parametrize(
    ("trusted", "name", "answer", "client"),
    [
        ("127.0.0.1", None, (401, None), VISITOR),  # a proxy that signs nobody in
        ("127.0.0.1", "anna", (200, {"name": "anna", "role": "edit", "sign_in": True}), VISITOR),
        ("192.0.2.7", "anna", (401, None), "127.0.0.1"),  # a proxy that is not trusted
    ],
)
def test_only_a_trusted_proxy_signs_people_in(serve, start_proxy, trusted, name, answer, client):
    port, process = serve("--trusted-proxy", trusted, "--header-role", "edit")
    status, body = get_me(start_proxy(port, name))
    assert (status, body if status == 200 else None) == answer
    assert logged_client(process) == client
