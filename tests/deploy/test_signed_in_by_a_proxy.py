"""`hiero serve` behind the real nginx and Caddy: whom it believes to be a visitor, and who signs people in."""

from __future__ import annotations

import json
import re
import signal

import numpy as np
import pytest

from tests.deploy.test_proxies import DEPLOY, PROXIES, ask, run_proxy
from tests.optional import skip_without
from tests.processes import start_hiero

pytestmark = pytest.mark.slow

skip_without("fastapi", "needs FastAPI: pip install 'hiero-video[serve]'")

VISITOR = "127.0.0.5"


def sign_in_everyone(folder, name):
    """The shipped files in a folder, changed so that they sign everyone in with this name, if there is one."""
    for file in ("nginx.conf", "Caddyfile"):
        text = (DEPLOY / file).read_text()
        if name is not None:
            text = text.replace('Remote-User "";', f"Remote-User {name};")
            text = text.replace("header_up -Remote-User", f"header_up Remote-User {name}")
        (folder / file).write_text(text)
    return folder


def logged_client(process):
    """The address in the log line of /api/me."""
    process.send_signal(signal.SIGTERM)
    lines = [json.loads(line) for line in process.stderr.read().splitlines() if line.startswith("{")]
    return next(line["client"] for line in lines if line.get("path") == "/api/me")


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize(
    ("trusted", "name", "answer", "client"),
    [
        ("127.0.0.1", None, (401, None), VISITOR),  # a proxy that signs nobody in
        ("127.0.0.1", "anna", (200, {"name": "anna", "role": "edit", "sign_in": True}), VISITOR),
        ("192.0.2.7", "anna", (401, None), "127.0.0.1"),  # a proxy that is not trusted
    ],
)
def test_only_a_trusted_proxy_signs_people_in(tmp_path, proxy, trusted, name, answer, client):
    """The visitor pretends to be the proxy and an administrator."""
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(60, 16)).astype(np.float32))
    options = ("--model", "raw", "--device", "cpu", "--port", "0", "--log-format", "json", "--trusted-proxy", trusted)
    users = ("--user-header", "Remote-User", "--header-role", "edit")
    tmp_path.chmod(0o755)
    (folder := tmp_path / "proxy").mkdir()
    with start_hiero("serve", tmp_path / "v.npy", *options, *users) as process:
        line = process.stdout.readline()
        assert "http" in line, line + process.stderr.read()
        upstream_port = int(re.search(r":(\d+)", line)[1])
        with run_proxy(proxy, folder, upstream_port, sign_in_everyone(tmp_path, name)) as port:
            forged = {"Remote-User": "boss", "X-Forwarded-For": "127.0.0.1"}
            response, body = ask(port, "/api/me", forged, VISITOR)
        assert (response.status, json.loads(body) if response.status == 200 else None) == answer
        assert logged_client(process) == client
