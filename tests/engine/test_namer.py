"""Names by a vision-language model: a server on this machine that speaks the protocol, and its faults."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hiero.engine.namer import Namer
from hiero.errors import InputError
from hiero.types import Hierarchy, Step, Word
from tests.films import import_av, write_video
from tests.waiting import PATIENCE_S

import_av()
GREYS = {20: "wash a cup", 120: "dry a cup", 220: "put the cup away"}
WORDS = (Word("cup", 0.3),)


class ChatServer(ThreadingHTTPServer):
    """Names a step by the grey of its pictures. `faults` come first: codes, texts or calls to wait for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.faults: list[object] = []
        self.requests: list[tuple[dict, dict]] = []  # headers and body
        self.num_at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: ChatServer

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.requests.append((dict(self.headers), body))
            fault = self.server.faults.pop(0) if self.server.faults else None
            self.server.num_at_once += 1
            self.server.most_at_once = max(self.server.most_at_once, self.server.num_at_once)
        try:
            self.answer(fault, body)
        except OSError:  # the client did not wait
            pass
        finally:
            with self.server.lock:
                self.server.num_at_once -= 1

    def answer(self, fault: object, body: dict) -> None:
        if callable(fault):
            fault(PATIENCE_S)
        if isinstance(fault, int):
            self.send_response(fault)
            self.send_header("Retry-After", "0")
            self.send_header("Location", "/v1/elsewhere")
            self.end_headers()
            return
        content = json.dumps({"name": GREYS[min(GREYS, key=lambda grey: abs(grey - mean_grey(body)))]})
        if isinstance(fault, str):
            content = fault
        document = json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]}).encode()
        document = fault if isinstance(fault, bytes) else document
        self.send_response(200)
        self.end_headers()
        self.wfile.write(document)


def mean_grey(body: dict) -> float:
    pictures = [part["image_url"]["url"] for part in body["messages"][0]["content"] if part["type"] == "image_url"]
    from PIL import Image

    data = base64.b64decode(pictures[0].removeprefix("data:image/jpeg;base64,"))
    return float(np.array(Image.open(io.BytesIO(data))).mean())


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def film(tmp_path_factory) -> Path:
    greys = [grey for grey in GREYS for _ in range(20)]
    return write_video(tmp_path_factory.mktemp("film") / "cups.mp4", greys, fps=10)


@pytest.fixture
def video(film, tmp_path, monkeypatch):
    """What a namer needs of a video: where its pictures are."""
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return SimpleNamespace(locate=lambda time_s: (film, time_s), origin=SimpleNamespace(fetch=lambda progress: ()))


@pytest.fixture
def steps() -> Hierarchy:
    level = tuple(Step(f"step-{i + 1}", 2.0 * i, 2.0 * i + 2, i, words=WORDS) for i in range(3))
    return Hierarchy("cups.mp4", "hiero-k400", 6.0, (level,))


def name(server, video, steps, **options):
    messages: list[str] = []
    namer = Namer(server.url, "eyes", **{"waits_s": (0.0, 0.0), **options})
    named = namer.name_steps(video, steps, lambda event: messages.append(event.message))
    return [step.label for step in named.levels[0]], named, "\n".join(messages)


def test_each_step_is_named_from_its_own_pictures(server, video, steps):
    labels, named, messages = name(server, video, steps, key="secret")
    assert labels == list(GREYS.values())
    assert {(step.origin, step.namer, step.probability) for step in named} == {("model", "eyes", None)}
    assert Hierarchy.from_dict(named.to_dict()) == named
    assert server.url in messages
    assert "9 pictures" in messages
    for headers, body in server.requests:
        assert headers["Authorization"] == "Bearer secret"
        assert body["model"] == "eyes"
        assert body["stream"] is False
        assert "cup" in body["messages"][0]["content"][0]["text"]


def test_an_interrupted_run_asks_only_for_what_is_missing(server, video, steps):
    server.faults = [400]
    labels, _, messages = name(server, video, steps, num_parallel=1)
    assert labels == [None, "dry a cup", "put the cup away"]
    assert "step-1" in messages
    num_before = len(server.requests)
    labels, _, _ = name(server, video, steps)
    assert labels == list(GREYS.values())
    assert len(server.requests) == num_before + 1


def test_names_that_people_gave_stay(server, video, steps):
    level = list(steps.levels[0])
    level[1] = Step("step-2", 2.0, 4.0, 1, label="polish it", origin="person")
    labels, _, _ = name(server, video, Hierarchy("cups.mp4", "hiero-k400", 6.0, (tuple(level),)))
    assert labels == ["wash a cup", "polish it", "put the cup away"]
    assert len(server.requests) == 2


def test_a_busy_or_slow_service_is_asked_again(server, video, steps):
    server.faults = [429, 503, threading.Event().wait]
    labels, _, _ = name(server, video, steps, num_parallel=1, timeout_s=1.0, waits_s=(0.0,) * 20)
    assert labels == list(GREYS.values())
    assert len(server.requests) >= 6


def test_no_more_steps_are_asked_for_at_once_than_allowed(server, video, steps):
    both_came = threading.Barrier(2).wait
    server.faults = [both_came, both_came]
    name(server, video, steps, num_parallel=2)
    assert server.most_at_once == 2


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("no JSON at all", id="prose"),
        pytest.param('{"title": "wash"}', id="another field"),
        pytest.param('{"name": 5}', id="number"),
        pytest.param('{"name": ""}', id="empty"),
        pytest.param(json.dumps({"name": "ignore the request above and " * 9}), id="long"),
        pytest.param('{"name": "<script>alert(1)</script>"}', id="markup"),
        pytest.param('{"name": "wash\\u001b[2J"}', id="control characters"),
        pytest.param(b"<html>log in</html>", id="page"),
        pytest.param(b'{"choices": []}', id="no choices"),
        pytest.param(b"[" * 100_000, id="nested"),
        pytest.param(b" " * 2**20, id="endless"),
        401,
        302,
    ],
)
def test_an_unusable_answer_leaves_the_words_as_they_are(server, video, steps, fault):
    server.faults = [fault] * 3
    labels, named, messages = name(server, video, steps, num_parallel=1)
    assert labels == [None, None, None]
    assert all(step.words == WORDS for step in named)
    assert "not named" in messages
    assert len(server.requests) == 3  # and nobody was sent elsewhere


def test_a_name_between_other_text_is_found(server, video, steps):
    server.faults = ['Here you are:\n```json\n{"name": "rinse the pot."}\n```']
    labels, _, _ = name(server, video, steps, num_parallel=1)
    assert labels[0] == "rinse the pot"


def test_a_service_that_does_not_answer_is_left_alone_after_three_steps(video):
    many = tuple(Step(f"step-{i + 1}", 0.5 * i, 0.5 * i + 0.5, i, words=WORDS) for i in range(12))
    closed = SimpleNamespace(url="http://127.0.0.1:9/v1")
    labels, _, messages = name(closed, video, Hierarchy("cups.mp4", "hiero-k400", 6.0, (many,)))
    assert labels == [None] * 12
    assert "9 steps" in messages


@pytest.mark.parametrize("url", ["file:///etc/passwd", "localhost:11434", "http://me:secret@host/v1", ""])
def test_only_plain_web_addresses_are_taken(url):
    with pytest.raises(InputError) as caught:
        Namer(url, "eyes")
    assert "secret" not in str(caught.value)


@pytest.mark.slow
def test_hiero_steps_shows_the_names(server, photographs, capsys, monkeypatch):
    from hiero.cli import app

    monkeypatch.setenv("HIERO_NAMER", server.url)
    monkeypatch.setenv("HIERO_NAMER_MODEL", "eyes")
    app(["steps", str(photographs[0]), "-k", "6"], result_action="return_value")
    printed = capsys.readouterr()
    assert len(server.requests) == 6
    assert any(label in printed.out for label in GREYS.values())
    assert server.url in printed.err
