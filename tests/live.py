"""What tests of recordings share: a backbone without weights, a film, and writers that take their time."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from tests.films import import_av

BACKBONES = """
import os
import time

import hiero

COLOURS = hiero.Backbone(
    "colours", "mean colours", 12, __name__, per_frame=True, allows_half=False, scores=False, needs_weights=False
)


def prepare(frames):
    return frames.permute(0, 3, 1, 2).float() / 255


def load(folder):
    import torch

    class Colours(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))

        def forward(self, x):
            time.sleep(float(os.environ.get("COLOURS_S", "0")))  # how slow the machine is
            return torch.nn.functional.adaptive_avg_pool2d(self.scale * x, 2).flatten(1)

    return Colours()
"""
COLOURS = [(220, 30, 30), (30, 220, 30), (30, 30, 220), (200, 200, 20)]


def install_backbone(folder: Path) -> Path:
    """A package with the backbone `colours`, as pip would install it; the folder goes on the path."""
    (folder / "live_colours.py").write_text(BACKBONES)
    information = folder / "live_colours-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: live-colours\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[hiero.backbones]\ncolours = live_colours:COLOURS\n")
    return folder


def write_film(
    path: Path,
    seconds: int = 24,
    fps: int = 10,
    scene_s: int = 6,
    container: str | None = None,
    options=None,
    bf: int = 2,
):
    """Scenes of one colour each, with noise, and B-frames unless `bf` is 0."""
    av = import_av()
    rng = np.random.default_rng(0)
    with av.open(str(path), "w", format=container, options=options or {}) as out:
        stream = out.add_stream("libx264", rate=fps)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.options = {"crf": "8", "preset": "veryfast", "g": str(fps), "bf": str(bf)}
        for i in range(seconds * fps):
            picture = np.zeros((48, 64, 3), np.int16) + COLOURS[i // (fps * scene_s) % len(COLOURS)]
            picture[:, : 1 + i % 60] //= 2
            picture += rng.integers(-30, 30, picture.shape, dtype=np.int16)
            frame = av.VideoFrame.from_ndarray(np.clip(picture, 0, 255).astype(np.uint8), format="rgb24")
            for packet in stream.encode(frame):
                out.mux(packet)
        for packet in stream.encode(None):
            out.mux(packet)
    return path


class SlowWriter:
    """Writes bytes piece by piece in a thread, as a recorder does: into a file, or anything with `write`."""

    def __init__(self, target, data: bytes, num_pieces: int = 30, pause_s: float = 0.03) -> None:
        self.file = target.open("wb", buffering=0) if isinstance(target, Path) else target
        self.data, self.num_pieces, self.pause_s = data, num_pieces, pause_s
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.thread.join()

    def _run(self) -> None:
        size = -(-len(self.data) // self.num_pieces)
        with self.file:
            for start in range(0, len(self.data), size):
                self.file.write(self.data[start : start + size])
                time.sleep(self.pause_s)


def free_port(kind=socket.SOCK_STREAM) -> int:
    """A port for a program that must be told one. It lies below those that the system hands out, so that
    no connection of another test gets it in between.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket(socket.AF_INET, kind) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class RtspServer:
    """An RTSP camera: MPEG-TS in RTP over the connection itself. Wants a password. Sends the film once
    to each who connects.
    """

    def __init__(self, stream: bytes, seconds: float, speed: float = 4.0) -> None:
        self.stream, self.pause_s = stream, 7 * 188 * seconds / speed / len(stream)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.requests: list[str] = []
        self.num_played = 0
        self.played = threading.Event()  # once to its end
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self.listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file:
            while line := file.readline().decode():
                headers = {}
                while header := file.readline().decode().strip():
                    name, value = header.split(":", 1)
                    headers[name.lower()] = value.strip()
                method = line.split()[0]
                self.requests.append(f"{line.strip()} {headers.get('authorization', '')}")
                extra, body = "", ""
                status = "200 OK"
                if method != "OPTIONS" and "authorization" not in headers:
                    status, extra = "401 Unauthorized", 'WWW-Authenticate: Basic realm="camera"\r\n'
                elif method == "OPTIONS":
                    extra = "Public: OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN\r\n"
                elif method == "DESCRIBE":
                    body = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=camera\r\nt=0 0\r\n"
                    body += "m=video 0 RTP/AVP 33\r\na=control:track\r\n"
                    extra = f"Content-Type: application/sdp\r\nContent-Length: {len(body)}\r\n"
                elif method == "SETUP":
                    extra = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\nSession: 1\r\n"
                connection.sendall(
                    f"RTSP/1.0 {status}\r\nCSeq: {headers.get('cseq', '0')}\r\n{extra}\r\n{body}".encode()
                )
                if method == "PLAY":
                    self._play(connection)
                    return

    def _play(self, connection: socket.socket) -> None:
        self.num_played += 1
        try:
            for number, start in enumerate(range(0, len(self.stream), 7 * 188)):
                payload = struct.pack(">BBHII", 0x80, 33, number & 0xFFFF, int(number * self.pause_s * 90000), 7)
                payload += self.stream[start : start + 7 * 188]
                connection.sendall(b"$\x00" + struct.pack(">H", len(payload)) + payload)
                time.sleep(self.pause_s)
        except OSError:
            return
        self.played.set()
