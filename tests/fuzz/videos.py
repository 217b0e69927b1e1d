"""Damaged videos, videos with jumping clocks, and playlists with the names of videos."""

from __future__ import annotations

import functools
import random
import re
from contextlib import suppress
from pathlib import Path

import numpy as np

from hiero.errors import InputError
from hiero.media.audio import SAMPLE_RATE, read_audio
from hiero.media.cutting import CONTAINERS, FileSpan, write_clip
from hiero.media.decode import Sampling, probe, read_segments
from hiero.media.parallel_decode import read_segments_parallel
from tests.films import write_video
from tests.fuzz.damage import damage_bytes
from tests.fuzz.files import made_folder
from tests.fuzz.suite import suite
from tests.media.test_audio import write_beeps

NUM_FRAMES = 40
JUMPS_S = (0.0, 0.1, 9.0, 11.0, 655.35, 3599.0, 3601.0, 86_400.0, 1e7)
MAX_STILL_S = 3600.0  # of a small file; larger ones may have more
BYTES_PER_S = 500.0
CODECS = {"mkv": "libx264", "mp4": "libx264", "ts": "libx264", "webm": "libvpx", "avi": "mpeg4", "gif": "gif"}
SMALL = Sampling(spacing_s=2.0, num_frames=4, short_side=32)


@suite("videos", 400)
def read_video(folder: Path, rng: random.Random) -> None:
    """The pictures or the sound of a damaged video are read to their end, or refused."""
    suffix = rng.choice([*CODECS, "sound.mkv", "sound.mkv"])
    path = folder / f"v.{suffix}"
    path.write_bytes(damage_bytes(made_film(suffix), rng))
    if suffix == "sound.mkv":
        assert sum(len(samples) for samples in read_audio(path)) < 24 * MAX_STILL_S * SAMPLE_RATE
    else:
        probe(path)
        assert sum(segment.frames.shape[0] for segment in read_segments(path, Sampling())) < 100_000


@suite("times", 200)
def read_jumping_times(folder: Path, rng: random.Random) -> None:
    """A video whose clock jumps is read in a time proportional to its size."""
    suffix = rng.choice(("mkv", "mp4", "webm", "gif"))
    path = folder / f"v.{suffix}"
    if suffix == "gif":
        delays = (b"\xff\xff", b"\x00\x00", b"\x10\x27")
        change = lambda match: b"\x21\xf9\x04" + match[1] + (rng.choice(delays) if rng.random() < 0.5 else match[2])  # noqa: E731
        path.write_bytes(re.sub(rb"\x21\xf9\x04(.)(..)", change, made_film("gif"), flags=re.DOTALL))
    else:
        steps_s = [0.1 + (rng.choice(JUMPS_S) if rng.random() < 0.3 else 0.0) for _ in range(NUM_FRAMES)]
        with suppress(Exception):  # a muxer may refuse some times; what it has written is a case too
            write_video(path, range(NUM_FRAMES), np.cumsum(steps_s).tolist(), codec=CODECS[suffix])
    read = functools.partial(read_segments_parallel, processes=2) if rng.random() < 0.1 else read_segments
    end_s = max((segment.end_s for segment in read(path, SMALL)), default=0.0)
    assert end_s <= MAX_STILL_S + path.stat().st_size / BYTES_PER_S + 10.0 * (NUM_FRAMES + 1), f"{end_s:.0f} s"


@suite("playlists", 150)
def read_playlist(folder: Path, rng: random.Random) -> None:
    """A playlist or a pattern with the name of a video is refused, and the files in it are not read."""
    for suffix in ("mp4", "ts"):
        (folder / f"other.{suffix}").write_bytes(made_film(suffix))
    path = folder / f"v{rng.choice(('.mp4', '.mkv', '.ts', '.m3u8', '.ffconcat', '.mpd', '.sdp', '.avi'))}"
    names = ("other.mp4", "other.ts", str(folder / "other.ts"), "concat:other.mp4")
    path.write_text(rng.choice(PLAYLISTS).format(name=rng.choice(names)))
    patterns = ("%04d.png", "*.png", "pipe:0", "concat:other.mp4")
    opened = path if rng.random() < 0.7 else folder / rng.choice(patterns)
    with suppress(InputError):
        probe(opened)
        assert not list(read_segments(opened, SMALL)), f"{opened.name}: frames of a file that nobody named"


MPD = '<MPD type="static"><Period><AdaptationSet mimeType="video/mp4"><Representation id="1"><BaseURL>{name}</BaseURL>'
PLAYLISTS = (
    "ffconcat version 1.0\n" + "file '{name}'\n" * 3,
    "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4.0,\n{name}\n",  # without an end, as of a live stream
    "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\n{name}\n#EXT-X-ENDLIST\n",
    f'<?xml version="1.0"?>{MPD}</Representation></AdaptationSet></Period></MPD>',
    "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
)


@suite("clips", 100)
def cut_video(folder: Path, rng: random.Random) -> None:
    """Clips of a damaged video are complete files or do not exist."""
    path = folder / f"v.{rng.choice(list(CODECS)[:-1])}"
    path.write_bytes(damage_bytes(made_film(path.suffix[1:]), rng))
    times_s = [rng.choice((-1.0, 0.0, 0.5, 1.0, 2.03, 3.9, 4.0, 1e9)) for _ in range(4)]
    spans = [FileSpan(path, *sorted(times_s[:2])), FileSpan(path, *sorted(times_s[2:]))][: rng.choice((1, 2))]
    clip = folder / f"clip{rng.choice(list(CONTAINERS))}"
    try:
        written = write_clip(clip, spans, copy=rng.random() < 0.5)
    except InputError:
        assert [file.name for file in folder.iterdir()] == [path.name]
        raise
    assert written.duration_s < MAX_STILL_S
    probe(clip)


@functools.cache
def made_film(suffix: str) -> bytes:
    """Four seconds of pictures, or of sound."""
    path = made_folder("films") / f"v.{suffix}"
    if suffix == "sound.mkv":
        write_beeps(path, [1.0, 2.0], length_s=4.0)
    else:
        noise = np.random.default_rng(0).integers(0, 255, (48, 160, 3), dtype=np.uint8)
        pictures = [np.ascontiguousarray(noise[:, i : i + 64]) for i in range(NUM_FRAMES)]
        write_video(path, range(NUM_FRAMES), codec=CODECS[suffix], pictures=pictures, options={"crf": "30", "g": "10"})
    return path.read_bytes()
