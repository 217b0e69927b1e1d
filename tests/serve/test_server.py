"""`hiero serve` as its users start it, and clients that behave badly."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import time
import urllib.error
import urllib.request

import pytest
from starlette.datastructures import Headers

from hiero.cli import app
from hiero.errors import InputError
from hiero.serve.app import create_app
from hiero.serve.settings import ServerSettings
from hiero.serve.state import State
from tests.processes import run_hiero, start_hiero
from tests.serve.conftest import write_scenes
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow


def start(*arguments):
    return wait_for_address(start_hiero("serve", *arguments, "--port", "0"))


def wait_for_address(process):
    line = process.stdout.readline()
    address = re.search(r"http://\S+", line)
    assert address, line + process.stderr.read()
    return process, address[0]


def get(url, **headers):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=PATIENCE_S) as answer:
        return answer.status, answer.read()


@pytest.fixture(scope="module")
def served(world):
    """A server that waits for requests less long than it usually does."""
    arguments = ["serve", world.root / "corpus", "--model", "egovlp", "--device", "cpu", "--port", "0"]
    process, url = wait_for_address(start_hiero(*arguments))
    yield url
    process.send_signal(signal.SIGINT)
    assert process.wait() in (0, 130, -2)
    process.stdout.close()
    process.stderr.close()


def test_the_command_opens_a_page(served):
    status, page = get(served)
    assert status == 200
    assert b"<title>hiero</title>" in page
    assert {video["name"] for video in json.loads(get(served + "api/videos")[1])["videos"]} == {"tea", "bike"}
    for name in ("app.js", "video/view.js", "collection/view.js", "api.js", "style.css", "icon.svg"):
        assert get(served + name)[0] == 200
    assert "paths" in json.loads(get(served + "openapi.json")[1])


def test_clients_that_go_away_or_dawdle(served):
    """Ten that disconnect in the middle of a video, ten that send half a request and wait: the others are served."""
    host, port = re.search(r"//([^:/]+):(\d+)", served).groups()
    id = json.loads(get(served + "api/videos")[1])["videos"][0]["id"]
    for _ in range(10):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(f"GET /api/videos/{id}/file HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            connection.recv(100)
    slow = [socket.create_connection((host, int(port))) for _ in range(10)]
    for connection in slow:
        connection.sendall(
            f"PUT /api/videos/{id}/edits HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000\r\n\r\n{{".encode()
        )
    assert get(served + "api/videos")[0] == 200
    for connection in slow:
        connection.close()
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"NONSENSE\r\n\r\n")
        assert b"400" in connection.recv(200)
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: " + b"b" * 200_000)
        connection.settimeout(PATIENCE_S)
        answer = connection.recv(200)
        assert answer == b"" or b" 4" in answer
    assert get(served + "api/videos")[0] == 200


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        (["--upload", "{tmp}/file"], "--upload"),
        (["--upload", "{tmp}", "--upload-limit", "-1"], "--upload-limit"),
        (["--upload", "{tmp}", "--user-header", "Remote-User"], "--trusted-proxy"),
        (["{video}", "--index"], "--index"),
        (["--upload", "{tmp}", "--port", "{port}"], "127.0.0.1:{port}"),
        (["{video}", "--transcript", "{tmp}/file"], "--transcript"),
        (["--upload", "{tmp}", "--watch"], "--watch"),
        (["--upload", "{tmp}", "--token", "a token"], "--token"),
    ],
)
def test_options_that_cannot_work_are_named(world, tmp_path, options, fact):
    (tmp_path / "file").write_text("x")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        values = {"tmp": tmp_path, "video": world.videos[0], "port": taken.getsockname()[1]}
        arguments = [option.format(**values) for option in options]
        with pytest.raises(InputError, match=fact.format(**values)):
            app(["serve", *arguments, "--model", "egovlp", "--device", "cpu"], result_action="return_value")


class Client:
    """A client whose body never ends: it sends nothing, or chunks of 1 MB for as long as the server reads on."""

    def __init__(self, method, path, header=("transfer-encoding", "chunked")):
        self.scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"name=a.mp4",
            "headers": [(name.encode(), value.encode()) for name, value in (("host", "localhost"), header)],
            "scheme": "http",
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        self.is_silent = header[0] != "transfer-encoding"
        self.num_chunks, self.messages = 0, []

    async def receive(self):
        if self.is_silent:
            await asyncio.sleep(2 * PATIENCE_S)
        self.num_chunks += 1
        return {"type": "http.request", "body": bytes(2**20), "more_body": True}

    async def send(self, message):
        self.messages.append(message)

    def answer(self, app):
        asyncio.run(asyncio.wait_for(app(self.scope, self.receive, self.send), PATIENCE_S))
        return self.messages[0]["status"], Headers(raw=self.messages[0]["headers"])


def test_a_body_that_never_comes_is_not_waited_for(library, monkeypatch):
    monkeypatch.setattr("hiero.serve.guard.BODY_TIMEOUT_S", 0.1)
    client = Client("PUT", "/api/videos/x/edits", ("content-length", "100"))
    status, headers = client.answer(create_app(library))
    assert (status, headers["connection"]) == (408, "close")


@pytest.mark.parametrize(("method", "path", "num_mb"), [("PUT", "/edits", 4), ("POST", "/api/upload", 1)])
def test_a_body_over_the_limit_is_refused_and_not_read_on(library, tmp_path, method, path, num_mb):
    path = path.replace("/edits", f"/api/videos/{library.find_by_name('tea').id}/edits")
    client = Client(method, path)
    status, headers = client.answer(create_app(library, ServerSettings(upload=tmp_path, upload_limit=1)))
    assert (status, headers["connection"], client.num_chunks) == (413, "close", num_mb + 1)
    assert not list(tmp_path.iterdir())


def test_an_endless_body_that_no_route_reads_is_not_read_either(library):
    client = Client("GET", "/healthz")
    status, headers = client.answer(create_app(library))
    assert (status, headers["connection"], client.num_chunks) == (200, "close", 0)


def test_sigterm_closes_the_state_and_puts_jobs_back(world, tmp_path):
    video = write_scenes(tmp_path / "long.mp4", [0, 1, 2, 3], 8)
    process, url = start(video, "--model", "egovlp", "--device", "cpu", "--state", tmp_path / "state")
    (row,) = json.loads(get(url + "api/videos")[1])["videos"]
    send(f"{url}api/videos/{row['id']}/read", "POST")
    begin_s = time.monotonic()
    code, errors = end(process, signal.SIGTERM)
    assert (code, errors) == (0, "")
    assert time.monotonic() - begin_s < 60  # 10 s on an idle machine; tests run beside others
    assert not (tmp_path / "state" / "state.sqlite-wal").exists()
    state = State(tmp_path / "state", lock=True)
    assert state.jobs(("running",), 9) == []
    state.close()


def test_other_networks_need_the_token(world):
    process, url = start(world.videos[0], "--model", "egovlp", "--device", "cpu", "--host", "0.0.0.0")
    try:
        bare, token = url.split("?token=")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(bare + "api/videos")
        assert get(bare + "api/videos", Authorization=f"Bearer {token}")[0] == 200
        jar = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with jar.open(url, timeout=PATIENCE_S) as page:
            assert page.url == bare  # the token is in a cookie now
            assert b"<title>hiero</title>" in page.read()
    finally:
        _, errors = end(process, signal.SIGTERM)
    assert "unencrypted" in errors


@pytest.mark.parametrize(
    "option", [("--root-path", "/hiero"), ("--trusted-proxy", "127.0.0.1"), ("--allow-host", "lab.example")]
)
def test_behind_a_proxy_there_is_a_token(world, monkeypatch, option):
    """Only this machine reaches 127.0.0.1, but a proxy on it brings others."""
    tokens = []

    def run(server, sockets):
        tokens.append(server.app.guard.access.token)
        sockets[0].close()

    monkeypatch.setattr("hiero.serve.server.Server.run", run)
    arguments = ["serve", str(world.videos[0]), "--model", "egovlp", "--device", "cpu", "-p", "0", *option]
    app(arguments, result_action="return_value")
    assert len(tokens[0]) >= 32


def test_a_client_cannot_pretend_to_be_the_proxy(world, tmp_path):
    """X-Forwarded-For from this machine, where the trusted proxy is another, makes nobody an administrator."""
    state = State(tmp_path)
    state.add_token("root", "admin", b"digest")
    state.close()
    proxy = ("--trusted-proxy", "192.0.2.7", "--user-header", "Remote-User", "--header-role", "admin")
    process, url = start(world.videos[0], "--model", "egovlp", "--device", "cpu", "--state", tmp_path, *proxy)
    try:
        for forwarded in ("192.0.2.7", "10.0.0.1, 192.0.2.7", "192.0.2.7, 127.0.0.1"):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                get(url + "api/me", **{"X-Forwarded-For": forwarded, "Remote-User": "root"})
    finally:
        end(process, signal.SIGTERM)


def test_the_trusted_proxy_names_its_users(world):
    """Here the client of this machine is the proxy, whatever it says about addresses."""
    proxy = ("--trusted-proxy", "127.0.0.1", "--user-header", "Remote-User", "--header-role", "edit")
    process, url = start(world.videos[0], "--model", "egovlp", "--device", "cpu", *proxy)
    try:
        _, body = get(url + "api/me", **{"X-Forwarded-For": "198.51.100.4", "Remote-User": "anna"})
        assert json.loads(body) == {"name": "anna", "role": "edit", "sign_in": True}
    finally:
        end(process, signal.SIGTERM)


def test_a_start_without_videos(monkeypatch, tmp_path):
    """The page opens and offers to add videos. It needs a token: no other user of the machine can add folders."""
    started = []
    monkeypatch.setenv("HIERO_HOME", str(tmp_path))
    monkeypatch.setattr("hiero.serve.server.run_server", lambda *arguments: started.append(arguments))
    monkeypatch.setattr("hiero.cli.serve._open_library", lambda *_: None)
    for options in ([], ["--host", "0.0.0.0"], ["--token", "mine"]):
        app(["serve", *options], result_action="return_value")
    plain, public, own = (settings for _, settings, *_ in started)
    assert (plain.root, plain.open, plain.choose_folders) == (tmp_path / "server", True, True)
    assert plain.token not in (None, public.token)
    assert not public.choose_folders
    assert own.token == "mine"
    with pytest.raises(SystemExit):
        app(["serve", "--choose-folders"])


def send(url, method, body=None, **headers):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers}, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.loads(answer.read())


def end(process, kind):
    process.send_signal(kind)
    code = process.wait()
    errors = process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    return code, errors


def wait_for_job(url, id, states, timeout_s=PATIENCE_S):
    deadline_s = time.monotonic() + timeout_s
    while (job := json.loads(get(f"{url}api/jobs/{id}")[1]))["state"] not in states:
        assert time.monotonic() < deadline_s, job
        time.sleep(0.1)
    return job


@pytest.mark.slow
def test_jobs_and_edits_survive_a_kill_and_a_stop(world, tmp_path):
    """A video whose reading is killed, then stopped, is read by the next server; what was saved is there."""
    video = write_scenes(tmp_path / "long.mp4", [0, 1, 2, 3], 8)
    arguments = (video, world.videos[0], "--model", "egovlp", "--device", "cpu", "--state", tmp_path / "state")
    process, url = start(*arguments)
    ids = {row["name"]: row["id"] for row in json.loads(get(url + "api/videos")[1])["videos"]}
    wait_for_job(url, send(f"{url}api/videos/{ids['tea']}/read", "POST")["id"], ["done"])
    steps = json.loads(get(f"{url}api/videos/{ids['tea']}/steps")[1])
    send(f"{url}api/videos/{ids['tea']}/edits", "PUT", steps)
    job = send(f"{url}api/videos/{ids['long']}/read", "POST")["id"]
    wait_for_job(url, job, ["running"])
    end(process, signal.SIGKILL)

    process, url = start(*arguments)
    wait_for_job(url, job, ["running", "done"])
    second = run_hiero("serve", video, "--model", "raw", "--state", tmp_path / "state", "-p", "0", check=False)
    assert (second.returncode, second.stderr.count("\n")) == (1, 1)
    assert len(json.loads(get(f"{url}api/videos/{ids['tea']}/history")[1])) == 1
    assert get(f"{url}api/videos/{ids['tea']}/edits")[0] == 200
    code, errors = end(process, signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in errors

    process, url = start(*arguments)
    assert wait_for_job(url, job, ["done"])["num_attempts"] <= 2
    assert json.loads(get(f"{url}api/videos/{ids['long']}")[1])["num_steps"] > 1
    end(process, signal.SIGTERM)
