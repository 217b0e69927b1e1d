"""Engine: reads videos and feature files with one model, and caches the results by the content of the files."""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hiero.devices import choose_device
from hiero.engine.embedder import CLASSES, PICTURES, RAW, Embedder, is_tower, user_checkpoint
from hiero.engine.evidence import open_sight
from hiero.engine.joined import FileRows, join_rows
from hiero.engine.video import Video
from hiero.errors import InputError
from hiero.features.files import (
    FEATURE_SUFFIXES,
    MAX_FEATURE_BYTES,
    check_sidecar,
    read_feature_array,
    read_sidecar,
)
from hiero.features.video_features import VideoFeatures
from hiero.formats.hiero_json import DURATION_TOLERANCE_S, StoredEdits, has_stored_edits, read_edits
from hiero.media.addresses import display_addresses
from hiero.media.source import SourceFile, VideoInput, VideoSource, join_keys
from hiero.networks.joint_text import joint_key
from hiero.networks.registry import fetch_weights, find_backbone
from hiero.storage import weights
from hiero.storage.cache import cache_folder, content_key, read_cached, store_cached
from hiero.storage.files import check_fits, load_arrays, save_arrays
from hiero.types import Clock, ProgressCallback, ProgressEvent, no_progress
from hiero.vectors import unit_vectors

CACHE_VERSION = 7
JPEG = b"\xff\xd8"

Cached = TypeVar("Cached")


@dataclass(frozen=True)
class Inputs:
    """The features that an engine takes."""

    width: int | None  # None for any
    backbone: str | None  # that they must come from, or None for any
    clock: Clock  # of feature files that do not name theirs
    are_class_scores: bool = False  # of the classes of `CLASSES`


class Uncached:
    """The content of a file whose results are neither stored nor looked up."""

    is_unchanged = False  # whether results may be stored

    def load(self, kind: str, name: str, read: Callable[[Path], Cached]) -> Cached | None:
        """A cached result, or None."""
        return None

    def store(
        self, kind: str, name: str, save: Callable[[Path], None], progress: ProgressCallback = no_progress
    ) -> bool:
        """Store a result unless the file has changed. Returns whether it was stored."""
        return False

    def partial(self, name: str) -> Path | None:
        """Where unfinished features are kept."""
        return None

    def as_stored(self, source: VideoFeatures) -> VideoFeatures:
        """Features of a video in the precision in which the cache has them."""
        return source


class FileContent(Uncached):
    """The content of a file when reading began: results are only stored under its key if it has not changed."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self._state = file.state()
        self.key = file.key()
        self._was_changed = False

    @property
    def is_unchanged(self) -> bool:  # type: ignore[override]
        """Whether the file has not changed since; warns once if it has."""
        if not self._was_changed:
            with suppress(OSError):
                if self.file.state() == self._state:
                    return True
            self._was_changed = True
            message = "changed while it was read, so the result is not cached. Read it again when it is complete."
            warnings.warn(f"{self.file.path}: {message}", stacklevel=2)
        return False

    def load(self, kind: str, name: str, read: Callable[[Path], Cached]) -> Cached | None:
        return read_cached(_cache_file(kind, self.key, name), read)

    def store(
        self, kind: str, name: str, save: Callable[[Path], None], progress: ProgressCallback = no_progress
    ) -> bool:
        file = _cache_file(kind, self.key, name)
        return self.is_unchanged and store_cached(functools.partial(save, file), progress)

    def partial(self, name: str) -> Path:
        return _cache_file("features", self.key, name).with_suffix(".partial")

    def as_stored(self, source: VideoFeatures) -> VideoFeatures:
        return replace(source, features={name: rows.astype(np.float16) for name, rows in source.features.items()})


class JoinedContent(FileContent):
    """The content of files that are one video."""

    def __init__(self, contents: Sequence[FileContent], durations_s: Sequence[float]) -> None:
        lengths = zip(contents, durations_s, strict=True)
        self.key = join_keys([f"{content.key} {duration_s:.6f}" for content, duration_s in lengths])
        self._contents = contents

    @property
    def is_unchanged(self) -> bool:  # type: ignore[override]
        return all(content.is_unchanged for content in self._contents)


def _cache_file(kind: str, key: str, name: str) -> Path:
    return cache_folder(kind) / f"{key}-{name}.safetensors"


class Engine(Embedder):
    """Reads videos and feature files with one model and its backbones. Created by `hiero.load`."""

    def read(
        self,
        path: VideoInput,
        *,
        clock: Clock | None = None,
        cache: bool = True,
        stream: int = 0,
        edits: bool = True,
        progress: ProgressCallback | None = None,
    ) -> Video:
        """Read a video or a feature file, or several files as one video.

        Args:
            path: A video, a feature file (.npy, .npz, .pt, .pth or .safetensors) with one (T, D) array, or
                the address of one (https://…, s3://…). A list of files is read as one video.
            clock: Clock of the rows of a feature file. Defaults to that of the model.
            cache: Whether to use and store cached results for the same content.
            stream: Number of the video stream.
            edits: Whether `Video.steps` and `Video.ask` use the corrections that people made to this video.
            progress: Called with a `ProgressEvent` from time to time.

        Raises:
            InputError: A file cannot be read, its features do not fit the model, or files cannot be joined.

        Examples:
            >>> video = hiero.load("raw").read(feature_file, clock=hiero.Clock(fps=1, stride=1))
            >>> [len(level) for level in video.steps([3, 6]).levels]
            [3, 6]
        """
        source = VideoSource.of(path)
        if not source.files:
            raise InputError("give at least one file to read")
        try:
            self._fetch(source, cache, stream, progress or no_progress)
            state = source.state()
            video = self._read_source(source, clock, cache, stream, progress or no_progress)
        except InputError as error:
            if not source.is_remote:
                raise
            raise type(error)(display_addresses(str(error))) from error
        video.origin, video.state = source, state
        if edits:
            _use_edits(video, source, cache)
        return video

    def _fetch(self, source: VideoSource, cache: bool, stream: int, progress: ProgressCallback) -> None:
        """Download the remote files whose features are not cached."""
        for file in source.files:
            if not file.exists():
                raise InputError(f"{file.path}: no such file")
            if file.is_remote and cache and self.is_cached(file, file.known_key(), stream):
                file.fetch_companions()
            else:
                file.fetch(progress)
            if file.path.suffix.lower() in FEATURE_SUFFIXES:  # before hours are spent on its hash
                check_fits(file.path.stat().st_size, f"{file.path}: its content", MAX_FEATURE_BYTES)

    def is_cached(self, file: SourceFile, key: str | None, stream: int = 0) -> bool:
        """Whether the features of a video are cached, so that it need be neither downloaded nor read.

        Args:
            file: The video.
            key: Key of its content, None if it is not known.
            stream: Number of the video stream.
        """
        if file.path.suffix.lower() in FEATURE_SUFFIXES or key is None:
            return False
        return _cache_file("features", key, f"{CACHE_VERSION}-{self._feature_key(stream)}").is_file()

    def _read_source(
        self, source: VideoSource, clock: Clock | None, cache: bool, stream: int, progress: ProgressCallback
    ) -> Video:
        contents = [FileContent(file) for file in source.files] if cache else []
        parts = []
        for file, content in zip(source.files, contents or itertools.repeat(Uncached()), strict=False):
            try:
                parts.append(self._read_file(file, clock, content, stream, progress))
            except InputError as error:
                if len(source.files) == 1:
                    raise
                raise InputError(f"{error}; leave this file out, or read each file separately: --no-join") from error
        files, part = join_rows(parts) if len(parts) > 1 else ((), parts[0])
        if cache:
            whole = JoinedContent(contents, [part.duration_s for part in parts]) if files else contents[0]
            stream = 0 if source.path.suffix.lower() in FEATURE_SUFFIXES else stream
            video = self._open_cached(part, whole, progress, stream)
        else:
            video = self._open(part, self._embed(part))
        video.files = files or video.files
        return video

    def _read_file(
        self, file: SourceFile, clock: Clock | None, content: Uncached, stream: int, progress: ProgressCallback
    ) -> FileRows:
        """Features of one file, before the model sees them."""
        path = file.path
        if path.suffix.lower() in FEATURE_SUFFIXES:
            return self._read_features(path, clock, content)
        if clock is not None:
            raise InputError(f"{path}: --hz is only for feature files, and this is a video.")
        self.check_video(path)
        source = self._extract(file, content, stream, progress)
        return FileRows(
            path, source.features[self.backbones[0]], Clock(1.0, source.spacing_s), source, source.duration_s
        )

    def read_array(self, features: np.ndarray, clock: Clock | None = None, name: str = "features") -> Video:
        """Use features that are already in memory. Nothing is cached.

        Args:
            features: An array (T, D).
            clock: Clock of the rows, if it differs from that of the model.
            name: Name of the video in results.
        """
        part = self._from_features(Path(name), np.asarray(features, dtype=np.float32), clock or self.inputs.clock)
        return self._open(part, self._embed(part))

    def _read_features(self, path: Path, clock: Clock | None, content: Uncached) -> FileRows:
        sidecar, duration_s = read_sidecar(path), None
        if sidecar is not None:
            given = sidecar.backbone
            needed = self.inputs.backbone or given
            if given != needed:
                names = f"{given}, but {self.name} needs those of {needed}"
                raise InputError(f"{path}: has features of {names}; use --model {given}")
            duration_s = sidecar.duration_s if clock is None else None
            clock = clock or sidecar.clock
        part = self._from_features(path, self._read_array(path, content), clock or self.inputs.clock)
        # The exact length of the video, which is seldom a whole number of rows: joined files follow each other by it.
        if duration_s is not None and abs(duration_s - part.duration_s) <= part.clock.spacing_s:
            return replace(part, duration_s=duration_s)
        return part

    def _from_features(self, path: Path, features: np.ndarray, clock: Clock) -> FileRows:
        class_scores = {CLASSES: features} if self.inputs.are_class_scores else {}
        source = VideoFeatures(class_scores, clock.edge_s(len(features)), clock.spacing_s)
        return FileRows(path, features, clock, source, source.duration_s)

    def _read_array(self, path: Path, content: Uncached) -> np.ndarray:
        """Features of a file; those of a torch file are cached as an array, which is faster to read."""
        if path.suffix.lower() not in (".pt", ".pth"):
            return read_feature_array(path, self.inputs.width)
        cached = content.load("features", "array", _load_array)
        if cached is not None and self.inputs.width in (None, cached.shape[1]):
            check_sidecar(path, cached)
            return cached
        features = read_feature_array(path, self.inputs.width)
        content.store("features", "array", lambda file: save_arrays(file, {"features": features}))
        return features

    def _extract(
        self, video_file: SourceFile, content: Uncached, stream: int, progress: ProgressCallback
    ) -> VideoFeatures:
        """Features of a video by all backbones, from the cache if possible."""
        name = f"{CACHE_VERSION}-{self._feature_key(stream)}"
        partial = content.partial(name)
        source, is_done = content.load("features", name, self._load_features), True
        if source is None:
            source = content.as_stored(self._extract_now(video_file, partial, stream, progress))
            is_done = content.store("features", name, source.save, progress) or not content.is_unchanged
        if is_done and partial:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
        return source

    def _extract_now(
        self, video_file: SourceFile, partial: Path | None, stream: int, progress: ProgressCallback
    ) -> VideoFeatures:
        from hiero.media.decode import probe

        path = video_file.fetch(progress)
        duration_s = probe(path, stream).duration_s  # an unreadable file is an error before weights are downloaded
        backbones = [find_backbone(name) for name in self.backbones]
        for backbone in backbones:
            fetch_weights(backbone, progress)
        from hiero.features.extractor import ExtractionOptions, extract_features

        def report(done_s: float) -> None:
            progress(ProgressEvent("read", path.name, done_s, duration_s))

        report(0.0)
        options = ExtractionOptions(
            spacing_s=self.spacing_s,
            device=choose_device(self.device),
            precision=self.precision,
            batch_size=self.batch_size,
            stream=stream,
        )
        head = {"head": self.image_text_head}
        backbones = [replace(b, options=head) if b.name == PICTURES else b for b in backbones]
        return extract_features(path, backbones, options, partial=partial, progress=report)

    def _load_features(self, path: Path) -> VideoFeatures:
        """Load features from the cache. Raises InputError if this engine cannot have stored them."""
        source = VideoFeatures.load(path)
        num_rows = max(1, round(source.duration_s / self.spacing_s))
        _require(set(source.features) == set(self.backbones) and math.isclose(source.spacing_s, self.spacing_s))
        for name, array in source.features.items():
            _require_finite(array, (num_rows, find_backbone(name).width), np.float16)
        _require(bool(np.isfinite(source.thumbnail_times).all()))
        _require(len(source.thumbnail_times) == len(source.thumbnails))
        _require(all(picture.startswith(JPEG) for picture in source.thumbnails))
        return source

    def _embed(self, part: FileRows) -> np.ndarray:
        """The nodes of a video in half precision, as in the cache."""
        return unit_vectors(self.embed_nodes(part.rows.astype(np.float32), part.clock)).astype(np.float16)

    def _open(self, part: FileRows, half: np.ndarray) -> Video:
        nodes, features = half.astype(np.float32), self.extra_features(part.rows)
        sight = open_sight(self, part.clock, nodes, part.source, features)
        return Video(self, part.path, part.clock, sight, VideoSource.of(part.path))

    def _open_cached(self, part: FileRows, content: FileContent, progress: ProgressCallback, stream: int) -> Video:
        """A video with nodes in the model's space, from the cache if possible.

        The candidate spans for answers take longest to find, and only questions need them: they are
        found and stored when the first question is asked.
        """
        clock, shape = part.clock, (len(part.rows), self.node_width(part.rows))
        clock_key = f"{clock.fps:g}-{clock.stride:g}-{clock.start_s:g}"
        settings = f"{CACHE_VERSION}-{self.key}-{self._feature_key(stream)}-{clock_key}"
        name = hashlib.sha256(settings.encode()).hexdigest()[:16]
        half, spans = content.load("nodes", name, lambda file: _load_nodes(file, shape)) or (None, None)
        if half is None:
            half = self._embed(part)
            content.store("nodes", name, lambda file: save_arrays(file, {"nodes": half}), progress)

        file = _cache_file("nodes", content.key, name)

        def store_spans(spans: np.ndarray) -> None:
            store_cached(functools.partial(save_arrays, file, {"nodes": half, "spans": spans}))

        video = self._open(part, half)
        if spans is not None:
            video.sight.spans = spans
        elif content.is_unchanged:  # it may change later, but nodes and spans belong to the content that was read
            video.sight.store_spans = store_spans
        return video

    @property
    def inputs(self) -> Inputs:
        """The features that the engine takes."""
        backbone = self.backbone
        width, name = (backbone.width, backbone.name) if is_tower(backbone) else (None, None)
        return Inputs(width, name, Clock(1.0, 1.0))

    def check_video(self, path: Path) -> None:
        """Raise InputError if the backbones do not give the features that the engine takes."""
        if self.name == RAW:
            raise InputError(f"{path}: raw is for feature files; name a backbone, such as --model i3d-k400")

    def node_width(self, features: np.ndarray) -> int:
        """Width of the nodes of some features."""
        return int(features.shape[1])

    def extra_features(self, features: np.ndarray) -> np.ndarray | None:
        """The features, if they tell more than the nodes."""
        return None

    def _feature_key(self, stream: int) -> str:
        """Identifies the stream, the backbones, their head, and the user's own weights."""
        key, backbone = "-".join(self.backbones), self.backbone
        if PICTURES in self.backbones:
            key += f"-{joint_key(self.image_text_head)}"
        own = backbone.needs_weights and not weights.look_up(backbone.weights_name).is_pinned
        if own and weights.find(backbone.weights_name) is not None:
            key += f"-{content_key(user_checkpoint(backbone))}"
        if backbone.num_frames:
            key += f"-{self.spacing_s:.4f}"
        return f"{key}-{stream}"


def _use_edits(video: Video, source: VideoSource, cache: bool) -> None:
    """Set the corrected steps of a video from the files that hold them."""
    # Without the cache, the content of a large video is only read for its key if there are edits by content.
    key = source.known_key() if cache or has_stored_edits() else None
    if (found := read_edits(source.path, key)) is not None:
        set_edits(video, found)


def set_edits(video: Video, found: StoredEdits) -> None:
    """Set the corrected steps of a video, unless they are those of a video of another length."""
    length_s = found.hierarchy.duration_s
    if abs(length_s - video.duration_s) > DURATION_TOLERANCE_S:
        lengths = f"{length_s:.1f} s, not {video.duration_s:.1f} s"
        warnings.warn(f"{found.file}: these steps belong to a video of {lengths}, and are not used", stacklevel=4)
        return
    video.edits, video.edits_name = found.hierarchy, found.name


def _load_array(path: Path) -> np.ndarray:
    """Load the features of a torch file from the cache."""
    array: np.ndarray = load_arrays(path)["features"]
    _require(array.ndim == 2 and 0 not in array.shape)
    _require_finite(array, array.shape, np.float32)
    return array


def _load_nodes(path: Path, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray | None]:
    """Load nodes, and spans if there are any, from the cache."""
    arrays = load_arrays(path)
    nodes, spans = arrays["nodes"], arrays.get("spans")
    _require_finite(nodes, shape, np.float16)
    if spans is not None:
        _require(spans.ndim == 2 and spans.shape[1] == 2 and len(spans) > 0 and spans.dtype == np.int64)
        starts, ends = spans.T
        _require(bool(((starts >= 0) & (starts < ends) & (ends <= len(nodes))).all()))
    return nodes, spans


def _require_finite(array: np.ndarray, shape: tuple[int, ...], dtype: type[np.floating[Any]]) -> None:
    _require(array.shape == shape and array.dtype == dtype and bool(np.isfinite(array).all()))


def _require(is_valid: bool) -> None:
    """Check a file of the cache."""
    if not is_valid:
        raise InputError("unexpected content of a cached file")
