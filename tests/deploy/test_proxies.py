"""The files for Caddy and nginx, run by the real programs before a server that says what reaches it."""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import subprocess
import threading
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.optional import program_or_skip
from tests.waiting import free_port, wait_until

pytestmark = pytest.mark.slow

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
VIDEO = bytes(range(256)) * 1000
WAIT_S = 60.0


class Upstream(BaseHTTPRequestHandler):
    """Headers as JSON, a video by ranges, events one by one, and the size of what is uploaded."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"9\r\ndata: 0\n\n\r\n")
            self.wfile.flush()
            has_arrived = self.server.seen.wait(WAIT_S)  # a proxy that buffers would hold the first event back
            self.wfile.write(b"9\r\ndata: %d\n\n\r\n0\r\n\r\n" % has_arrived)
        elif self.path == "/video.mp4":
            first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            headers = {"Content-Type": "video/mp4", "Content-Range": f"bytes {first}-{last}/{len(VIDEO)}"}
            self.answer(206, VIDEO[first : last + 1], headers)
        else:
            self.answer(200, json.dumps([self.path, dict(self.headers)]).encode(), {"Content-Type": "application/json"})

    def do_POST(self):
        first = self.rfile.read(1)
        self.server.seen.set()  # before the rest has come
        rest = self.rfile.read(int(self.headers["Content-Length"]) - 1)
        self.answer(200, str(len(first + rest)).encode(), {})

    def answer(self, status, body, headers):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def start_nginx(folder, deploy, upstream_port, port, plain_port):
    openssl = program_or_skip("openssl")
    request = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    files = ["-keyout", str(folder / "privkey.pem"), "-out", str(folder / "fullchain.pem")]
    subprocess.run([*request, *files], check=True, capture_output=True)
    site = (deploy / "nginx.conf").read_text().replace("127.0.0.1:8400", f"127.0.0.1:{upstream_port}")
    site = re.sub(r"/etc/letsencrypt/live/hiero.example.org", str(folder), site)
    site = re.sub(r".*listen \[::\].*\n", "", site)
    site = re.sub("listen 443 ", f"listen 127.0.0.1:{port} ", site)
    site = re.sub("listen 80;", f"listen 127.0.0.1:{plain_port};", site)
    (folder / "hiero.conf").write_text(site.replace("hiero.example.org", "localhost"))
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    http = f"access_log off; {temporary} include {folder}/hiero.conf;"
    main = f"pid {folder}/pid; error_log stderr; events {{}} http {{ {http} }}"
    (folder / "nginx.conf").write_text(main)
    command = [program_or_skip("nginx-light"), "-p", str(folder), "-c", str(folder / "nginx.conf")]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    return subprocess.Popen([*command, "-g", "daemon off;"], stderr=subprocess.DEVNULL)


def start_caddy(folder, deploy, upstream_port, port, plain_port):
    # Its own certificate, nothing in the machine's trust store, no port for administration.
    options = f"{{\n\tadmin off\n\tskip_install_trust\n\thttp_port {plain_port}\n\thttps_port {port}\n}}\n"
    (folder / "Caddyfile").write_text(options + (deploy / "Caddyfile").read_text())
    homes = {"HOME": str(folder), "XDG_DATA_HOME": str(folder / "data"), "XDG_CONFIG_HOME": str(folder / "config")}
    environment = {**os.environ, **homes, "HIERO_DOMAIN": "localhost", "HIERO_UPSTREAM": f"127.0.0.1:{upstream_port}"}
    command = [program_or_skip("caddy"), "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


PROXIES = {"nginx": ("nginx-light", start_nginx), "caddy": ("caddy", start_caddy)}


@contextmanager
def run_proxy(name, folder, upstream_port, deploy=DEPLOY):
    """A proxy with its file of a folder; its port."""
    package, start = PROXIES[name]
    program_or_skip(package)
    folder.chmod(0o755)
    port = free_port()

    def answers():
        assert process.poll() is None, "it ended"
        with suppress(OSError):
            connect(port).close()
            return True

    process = start(folder, deploy, upstream_port, port, free_port())
    try:
        wait_until(answers)
        yield port
    finally:
        process.terminate()
        process.wait(WAIT_S)


@pytest.fixture(scope="module", params=PROXIES)
def proxy(request, tmp_path_factory):
    """(port, the server behind the proxy)"""
    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as upstream:
        upstream.seen = threading.Event()
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        with run_proxy(request.param, tmp_path_factory.mktemp("proxy"), upstream.server_port) as port:
            yield port, upstream
        upstream.shutdown()


def connect(port, visitor="127.0.0.1"):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    source = (visitor, 0)
    connection = http.client.HTTPSConnection("localhost", port, timeout=WAIT_S, context=context, source_address=source)
    connection.connect()
    return connection


def ask(port, path, headers=None, visitor="127.0.0.1"):
    with closing(connect(port, visitor)) as connection:
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        return response, response.read()


def test_only_the_proxy_says_where_a_request_comes_from(proxy):
    port, _ = proxy
    forged = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "gopher", "X-Forwarded-Host": "evil.example"}
    forged["Remote-User"] = "root"
    response, body = ask(port, "/hiero/api/videos?q=a%2Fb", forged)
    path, headers = json.loads(body)
    headers = {name.lower(): value for name, value in headers.items()}
    assert path == "/hiero/api/videos?q=a%2Fb"  # as it was: hiero serve --root-path takes /hiero off
    assert headers["x-forwarded-for"] == "127.0.0.1"
    assert headers["x-forwarded-proto"] == "https"
    assert headers["x-forwarded-host"] == headers["host"] == f"localhost:{port}"
    assert "remote-user" not in headers
    assert response.headers["Strict-Transport-Security"]


def test_events_arrive_one_by_one(proxy):
    port, upstream = proxy
    upstream.seen.clear()
    with closing(connect(port)) as connection:
        connection.request("GET", "/events", headers={"Accept-Encoding": "gzip"})
        response = connection.getresponse()
        assert response.readline() == b"data: 0\n"
        upstream.seen.set()
        assert response.read().endswith(b"data: 1\n\n")


def test_ranges_of_a_video_pass(proxy):
    response, body = ask(proxy[0], "/video.mp4", {"Range": "bytes=1000-1999", "Accept-Encoding": "gzip"})
    assert (response.status, body) == (206, VIDEO[1000:2000])
    assert response.headers["Content-Range"] == f"bytes 1000-1999/{len(VIDEO)}"


def test_uploads_pass_through_at_once(proxy):
    port, upstream = proxy
    upstream.seen.clear()
    with closing(connect(port)) as connection:
        connection.putrequest("POST", "/api/upload")
        connection.putheader("Content-Length", str(2 * 2**20))
        connection.endheaders(bytes(2**20))
        assert upstream.seen.wait(WAIT_S)  # the first half is there before the second is sent
        connection.send(bytes(2**20))
        assert connection.getresponse().read() == str(2 * 2**20).encode()


def test_metrics_are_not_for_the_world(proxy):
    assert ask(proxy[0], "/metrics")[0].status == 404
