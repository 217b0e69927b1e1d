"""Odd and damaged videos for `benchmarks.hostile`: clocks that jump, recordings that grow, clips, sound, logs."""

from __future__ import annotations

import functools
import random
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from fractions import Fraction
from pathlib import Path

import numpy as np

from benchmarks.damage import damage_bytes
from hiero.errors import InputError

NUM_FRAMES = 40
JUMPS_S = (0.0, 0.1, 9.0, 11.0, 655.35, 3599.0, 3601.0, 86_400.0, 1e7)
MAX_STILL_S = 3600.0  # of a small file; larger ones may have more
BYTES_PER_S = 500.0
CODECS = {"mkv": "libx264", "mp4": "libx264", "ts": "mpeg2video", "webm": "libvpx", "avi": "mpeg4"}


def read_jumping_times(folder: Path, rng: random.Random) -> None:
    """However the clock of a video jumps, it is read in a time that its bytes bound."""
    from hiero.decoding.decode import Sampling, read_segments
    from hiero.decoding.parallel_decode import read_segments_parallel

    suffix = rng.choice(("mkv", "mp4", "webm", "gif"))
    path = folder / f"v.{suffix}"
    if suffix == "gif":
        path.write_bytes(_damage_gif(_made_gif(), rng))
    else:
        steps_s = [0.1 + (rng.choice(JUMPS_S) if rng.random() < 0.3 else 0.0) for _ in range(NUM_FRAMES)]
        with suppress(Exception):  # a muxer may refuse some times; what it has written is a case too
            _write_film(path, CODECS[suffix], np.cumsum(steps_s).tolist())
    sampling = Sampling(spacing_s=2.0, num_frames=4, short_side=32, skip_unreferenced=rng.random() < 0.5)
    is_parallel = rng.random() < 0.2
    read = functools.partial(read_segments_parallel, processes=2) if is_parallel else read_segments
    end_s = max((segment.end_s for segment in read(path, sampling)), default=0.0)
    assert end_s <= MAX_STILL_S + path.stat().st_size / BYTES_PER_S + 10.0 * (NUM_FRAMES + 1), f"{end_s:.0f} s"


def watch_file(folder: Path, rng: random.Random) -> None:
    """A damaged recording that is still being written is read to its end, or refused."""
    from hiero.sources.live_source import open_live_source

    from hiero.decoding.decode import Sampling, read_segments

    suffix = rng.choice(("ts", "mkv", "mp4", "avi"))
    path = folder / f"v.{suffix}"
    content = damage_bytes(_made_film(suffix), rng)
    path.write_bytes(content if rng.random() < 0.7 else rng.randbytes(rng.choice((0, 1, 7, 5000))))
    source = open_live_source(str(path), idle_s=0.2)
    for segment in read_segments(source, Sampling(short_side=32, skip_unreferenced=rng.random() < 0.5)):
        assert segment.end_s < 2 * MAX_STILL_S
        if rng.random() < 0.3:
            source.stop.set()


def read_recording(folder: Path, rng: random.Random) -> None:
    """A damaged log of `hiero watch` is read without its damaged windows, or refused; it can be begun again."""
    import torch
    from hiero.extraction.feature_log import FeatureLog, LogHeader, load_recording

    from hiero.extraction.extractor import Thumbnail

    path = folder / "recording.features"
    header = LogHeader(("i3d-k400",), 2, 1.0, "camera")
    with closing(FeatureLog(path, header)) as log:
        for index in range(rng.randrange(1, 30)):
            log.append(
                index, 2.0 * index + 2, {"i3d-k400": torch.full((1, 400), index)}, [Thumbnail(0, 0.0, b"x" * 99)]
            )
    path.write_bytes(damage_bytes(path.read_bytes(), rng))
    with suppress(InputError):
        source, _ = load_recording(path)
        values = source.features["i3d-k400"]
        assert np.isfinite(values).all()
        assert 0 <= values.min() <= values.max() < 30
    with suppress(OSError), closing(FeatureLog(path, header, is_same=lambda _: True)) as log:
        log.append(40, 82.0, {"i3d-k400": torch.zeros(1, 400)})


def cut_video(folder: Path, rng: random.Random) -> None:
    """Clips of a damaged video are complete files, or nothing is left of them."""
    from hiero.decoding.cutting import CONTAINERS, Piece, write_clip
    from hiero.decoding.decode import probe

    path = folder / f"v.{rng.choice(list(CODECS))}"
    path.write_bytes(damage_bytes(_made_film(path.suffix[1:]), rng))
    times_s = [rng.choice((-1.0, 0.0, 0.5, 1.0, 2.03, 3.9, 4.0, 1e9)) for _ in range(4)]
    pieces = [Piece(path, *sorted(times_s[:2])), Piece(path, *sorted(times_s[2:]))][: rng.choice((1, 2))]
    clip = folder / f"clip{rng.choice(list(CONTAINERS))}"
    try:
        written = write_clip(clip, pieces, copy=rng.random() < 0.5)
    except InputError:
        assert [file.name for file in folder.iterdir()] == [path.name]
        raise
    assert written.duration_s < MAX_STILL_S
    probe(clip)


def read_sound(folder: Path, rng: random.Random) -> None:
    """The sound of a damaged video is read to its end, or refused."""
    from hiero.decoding.audio import SAMPLE_RATE, read_audio

    path = folder / f"v.{rng.choice(('mkv', 'mp4', 'ts'))}"
    path.write_bytes(damage_bytes(_made_film(path.suffix[1:]), rng))
    assert sum(len(samples) for samples in read_audio(path)) < 24 * MAX_STILL_S * SAMPLE_RATE


@functools.cache
def _made_film(suffix: str) -> bytes:
    """Four seconds of moving noise with sound."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"v.{suffix}"
        times_s = [i / 10 for i in range(NUM_FRAMES)]
        _write_film(path, CODECS[suffix], times_s, has_sound=suffix in ("mkv", "mp4", "ts"))
        return path.read_bytes()


@functools.cache
def _made_gif() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "v.gif"
        _write_film(path, "gif", [i / 10 for i in range(NUM_FRAMES)])
        return path.read_bytes()


def _damage_gif(content: bytes, rng: random.Random) -> bytes:
    """Change delays of frames, or bytes in the middle."""
    if rng.random() < 0.4:
        middle = len(content) // 3
        return content[:middle] + damage_bytes(content[middle:], rng)
    mark = b"\x21\xf9\x04"
    before, *frames = content.split(mark)
    delays = (b"\xff\xff", b"\x00\x00", b"\x10\x27")
    frames = [frame[:1] + rng.choice(delays) + frame[3:] if rng.random() < 0.5 else frame for frame in frames]
    return mark.join([before, *frames])


def _write_film(path: Path, codec: str, times_s: list[float], has_sound: bool = False) -> None:
    import av

    noise = np.random.default_rng(0).integers(0, 255, (48, 160, 3), dtype=np.uint8)
    with av.open(str(path), "w") as out:
        stream = out.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "rgb8" if codec == "gif" else "yuv420p"
        is_free = codec not in ("mpeg2video", "mpeg4", "gif")  # the others have a clock of their own
        if is_free:
            stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
            stream.options = {"g": "10"}
        sound = out.add_stream("aac", rate=16_000, layout="mono") if has_sound else None
        for i, time_s in enumerate(times_s):
            picture = np.ascontiguousarray(noise[:, i % 90 : i % 90 + 64])
            frame = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format=stream.pix_fmt)
            if is_free:
                frame.pts, frame.time_base = round(1000 * time_s), Fraction(1, 1000)
            out.mux(stream.encode(frame))
            if sound is not None:
                wave = np.sin(np.arange(1600, dtype=np.float32) / 5)[None]
                samples = av.AudioFrame.from_ndarray(wave, "fltp", "mono")
                samples.sample_rate, samples.pts, samples.time_base = 16_000, 1600 * i, Fraction(1, 16_000)
                out.mux(sound.encode(samples))
        for each in out.streams:
            out.mux(each.encode(None))


KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "times": read_jumping_times,
    "watch-files": watch_file,
    "recordings": read_recording,
    "clips": cut_video,
    "sound": read_sound,
}
