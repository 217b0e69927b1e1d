"""Engine: reads videos and feature files with one model, and caches the results by the content of the files."""

from __future__ import annotations

import functools
import hashlib
import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hiero.devices import choose_device
from hiero.engine.embedder import PICTURES, Embedder
from hiero.engine.evidence import open_sight
from hiero.engine.joined import FileRows, join_rows
from hiero.engine.video import Video
from hiero.errors import InputError
from hiero.features.files import FEATURE_SUFFIXES, check_sidecar, read_feature_array, read_sidecar
from hiero.features.video_features import VideoFeatures
from hiero.formats.hiero_json import DURATION_TOLERANCE_S, has_stored_edits, read_edits
from hiero.media.addresses import display_addresses
from hiero.media.source import SourceFile, VideoInput, VideoSource, join_keys
from hiero.model.model_folder import ModelFolder, open_model_folder
from hiero.networks.joint_text import joint_key
from hiero.networks.registry import GROUP as BACKBONES
from hiero.networks.registry import Precision, backbone_for, fetch_weights, find_backbone
from hiero.plugins import registered
from hiero.storage import weights
from hiero.storage.cache import cache_folder, content_key, read_cached, store_cached
from hiero.storage.files import load_arrays, save_arrays
from hiero.types import Clock, ProgressCallback, ProgressEvent, no_progress
from hiero.vectors import unit_vectors

DEFAULT_BACKBONES = ("i3d-k400", "dinov2-text")
RAW = "raw"  # a model name: the rows of feature files as they are
CACHE_VERSION = 7
JPEG = b"\xff\xd8"


def load(
    model: str | Path = "hiero-k400",
    *,
    device: str = "auto",
    precision: Precision = "auto",
    batch_size: int | None = None,
) -> Engine:
    """Load an engine that reads videos with a model.

    Args:
        model: A name from `hiero models`, a model folder, or a hub id. The name of a backbone, such as
            `egovlp`, gives its features without a model; `raw` takes feature files as they are.
        device: `auto`, `cpu`, `cuda` …
        precision: `auto` chooses the fastest one for the device.
        batch_size: Windows per forward pass. Defaults to 1 on a CPU and 16 on a GPU.

    Raises:
        InputError: There is no such model.

    Examples:
        >>> engine = hiero.load("raw")
        >>> engine.read_array(np.eye(60, dtype=np.float32)).duration_s
        60.0
    """
    name, settings = str(model), (device, precision, batch_size)
    if name == RAW:
        return Engine(None, RAW, DEFAULT_BACKBONES[:1], *settings)
    if name in registered(BACKBONES):
        return Engine(None, find_backbone(name).name, (name,), *settings)
    folder = open_model_folder(model)
    return Engine(folder, Path(model).name, _backbones_for(folder), *settings)


def _backbones_for(folder: ModelFolder) -> tuple[str, ...]:
    """The backbones that read videos for a model."""
    name = backbone_for(folder.config.backbone, folder.config.input_size)
    return DEFAULT_BACKBONES if name is None or name in DEFAULT_BACKBONES else (name,)


class FileContent:
    """The content of a file when reading began: results are only stored under its key if it has not changed."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self._state = file.state()
        self.key = file.key()
        self._was_changed = False

    @property
    def is_unchanged(self) -> bool:
        """Whether the file has not changed since; warns once if it has."""
        if not self._was_changed:
            with suppress(OSError):
                if self.file.state() == self._state:
                    return True
            self._was_changed = True
            message = "changed while it was read, so the result is not cached. Read it again when it is complete."
            warnings.warn(f"{self.file.path}: {message}", stacklevel=2)
        return False

    def store(self, save: Callable[[], None], progress: ProgressCallback = no_progress) -> bool:
        """Call `store_cached`, unless the file has changed."""
        return self.is_unchanged and store_cached(save, progress)


class JoinedContent(FileContent):
    """The content of files that are one video."""

    def __init__(self, contents: Sequence[FileContent], durations_s: Sequence[float]) -> None:
        lengths = zip(contents, durations_s, strict=True)
        self.key = join_keys([f"{content.key} {duration_s:.6f}" for content, duration_s in lengths])
        self._contents = contents

    @property
    def is_unchanged(self) -> bool:
        """Whether no file has changed."""
        return all(content.is_unchanged for content in self._contents)


@dataclass
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
            if file.is_remote and cache and self._is_cached(file, stream):
                file.fetch_companions()
            else:
                file.fetch(progress)

    def _read_source(
        self, source: VideoSource, clock: Clock | None, cache: bool, stream: int, progress: ProgressCallback
    ) -> Video:
        contents = [FileContent(file) if cache else None for file in source.files]
        try:
            parts = [
                self._read_file(file, clock, content, stream, progress)
                for file, content in zip(source.files, contents, strict=True)
            ]
        except InputError as error:
            if len(source.files) == 1:
                raise
            raise InputError(f"{error}; leave this file out, or read each file separately: --no-join") from error
        stream = 0 if source.path.suffix.lower() in FEATURE_SUFFIXES else stream
        if len(parts) == 1:
            return self._video(parts[0], contents[0], progress, stream)
        files, joined = join_rows(parts)
        known = [content for content in contents if content is not None]
        content = JoinedContent(known, [part.duration_s for part in parts]) if known else None
        video = self._video(joined, content, progress, stream)
        video.files = files
        return video

    def _read_file(
        self,
        file: SourceFile,
        clock: Clock | None,
        content: FileContent | None,
        stream: int,
        progress: ProgressCallback,
    ) -> FileRows:
        """Features of one file, before the model sees them."""
        path = file.path
        if path.suffix.lower() in FEATURE_SUFFIXES:
            return self._read_features(path, clock, content)
        if clock is not None:
            raise InputError(f"{path}: --hz is only for feature files, and this is a video.")
        if self.name == RAW:
            raise InputError(f"{path}: raw is for feature files; name a backbone, such as --model i3d-k400")
        self.check_width("Give it a feature file, or leave out --model.")
        source = self._extract(file, content, stream, progress)
        clock = Clock(1.0, source.spacing_s)
        return FileRows(path, source.features[self.backbones[0]], clock, source, source.duration_s)

    def check_width(self, hint: str = "") -> None:
        """Raise InputError if the model needs features of another width than those of the backbone."""
        width, config = self.backbone.width, None if self.folder is None else self.folder.config
        if config is not None and config.input_size != width:
            needs = f"{self.name} needs {config.input_size}-d features ({config.backbone or 'unnamed'})"
            raise InputError(f"{needs}, {self.backbone.name} produces {width}-d ones. {hint}".rstrip())

    def read_array(self, features: np.ndarray, clock: Clock | None = None, name: str = "features") -> Video:
        """Use features that are already in memory. Nothing is cached.

        Args:
            features: An array (T, D).
            clock: Clock of the rows, if it differs from that of the model.
            name: Name of the video in results.
        """
        part = self._from_features(Path(name), np.asarray(features, dtype=np.float32), clock)
        return self._video(part, None, no_progress)

    def _read_features(self, path: Path, clock: Clock | None, content: FileContent | None) -> FileRows:
        sidecar, duration_s = read_sidecar(path), None
        config = None if self.folder is None else self.folder.config
        if sidecar is not None:
            self._check_origin(path, sidecar.backbone)
            duration_s = sidecar.duration_s if clock is None else None
            clock = clock or sidecar.clock
        width = config.input_size if config is not None else self.backbone.width if self._is_tower else None
        features = self._cached_array(path, width, content)
        part = self._from_features(path, features, clock)
        # The exact length of the video, which is seldom a whole number of rows: joined files follow each other by it.
        if duration_s is not None and abs(duration_s - part.duration_s) <= part.clock.spacing_s:
            return replace(part, duration_s=duration_s)
        return part

    @property
    def _is_tower(self) -> bool:
        """Whether features must come from one backbone."""
        return self.backbone.has_text or self.backbone.num_frames > 0

    def _check_origin(self, path: Path, backbone: str) -> None:
        """Raise InputError for features of another backbone, even if they have the right width."""
        expected = self.backbone.name
        if self.folder is not None:
            expected = backbone_for(self.folder.config.backbone, self.folder.config.input_size) or backbone
        elif not self._is_tower:
            return
        if backbone != expected:
            needed = f"but {self.name} needs those of {expected}"
            raise InputError(f"{path}: has features of {backbone}, {needed}; use --model {backbone}")

    def _from_features(self, path: Path, features: np.ndarray, clock: Clock | None) -> FileRows:
        config = None if self.folder is None else self.folder.config
        clock = clock or (Clock(1.0, 1.0) if config is None else config.clock)
        class_scores = {}
        if config is not None and config.backbone == "k400":
            class_scores["i3d-k400"] = features  # another network with the same classes
        source = VideoFeatures(class_scores, clock.edge_s(len(features)), clock.spacing_s)
        return FileRows(path, features, clock, source, source.duration_s)

    def _cached_array(self, path: Path, width: int | None, content: FileContent | None) -> np.ndarray:
        """Features of a file; those of a torch file are cached as an array, which is faster to read."""
        if content is None or path.suffix.lower() not in (".pt", ".pth"):
            return read_feature_array(path, width)
        file = cache_folder("features") / f"{content.key}-array.safetensors"
        cached = read_cached(file, _load_array)
        if cached is not None and width in (None, cached.shape[1]):
            check_sidecar(path, cached)
            return cached
        features = read_feature_array(path, width)
        content.store(functools.partial(save_arrays, file, {"features": features}))
        return features

    def _extract(
        self, video_file: SourceFile, content: FileContent | None, stream: int, progress: ProgressCallback
    ) -> VideoFeatures:
        """Features of a video by all backbones, from the cache if possible."""
        if content is None:
            return self._extract_now(video_file, None, stream, progress)
        file = self._features_file(content.key, stream)
        partial = file.with_suffix(".partial")
        source, is_done = read_cached(file, self._load_features), True
        if source is None:
            source = _to_half(self._extract_now(video_file, partial, stream, progress))
            is_done = content.store(functools.partial(source.save, file), progress) or not content.is_unchanged
        if is_done:
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

    def _features_file(self, key: str, stream: int) -> Path:
        """File of the cache with the features of a video, by the key of its content."""
        return cache_folder("features") / f"{key}-{CACHE_VERSION}-{self._feature_key(stream)}.safetensors"

    def _is_cached(self, file: SourceFile, stream: int) -> bool:
        """Whether the features of a remote video are cached, so that it need not be downloaded."""
        if file.path.suffix.lower() in FEATURE_SUFFIXES or (key := file.known_key()) is None:
            return False
        return self._features_file(key, stream).is_file()

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

    def _video(self, part: FileRows, content: FileContent | None, progress: ProgressCallback, stream: int = 0) -> Video:
        """A video with nodes in the model's space, from the cache if possible.

        The candidate spans for answers take longest to find, and only questions need them: they are
        found and stored when the first question is asked.
        """
        path, features, clock, source = part.path, part.rows, part.clock, part.source
        kept = None if self.folder is None else features
        if content is None:
            nodes = self._embed_nodes(features, clock).astype(np.float32)
            return Video(self, path, clock, open_sight(self, clock, nodes, source, kept))
        clock_key = f"{clock.fps:g}-{clock.stride:g}-{clock.start_s:g}"
        settings = f"{CACHE_VERSION}-{self.key}-{self._feature_key(stream)}-{clock_key}"
        digest = hashlib.sha256(settings.encode()).hexdigest()[:16]
        file = cache_folder("nodes") / f"{content.key}-{digest}.safetensors"
        width = features.shape[1] if self.folder is None else self.folder.config.embedding_size
        cached = read_cached(file, lambda file: _load_nodes(file, len(features), width))
        half, spans = cached if cached is not None else (self._embed_nodes(features, clock), None)
        if cached is None:
            content.store(functools.partial(save_arrays, file, {"nodes": half}), progress)

        def store_spans(spans: np.ndarray) -> None:
            store_cached(functools.partial(save_arrays, file, {"nodes": half, "spans": spans}))

        sight = open_sight(self, clock, half.astype(np.float32), source, kept)
        if spans is not None:
            sight.spans = spans
        elif content.is_unchanged:  # it may change later, but nodes and spans belong to the content that was read
            sight.store_spans = store_spans
        return Video(self, path, clock, sight)

    def _embed_nodes(self, features: np.ndarray, clock: Clock) -> np.ndarray:
        """Unit vectors in half precision, as in the cache."""
        nodes = self.embed_nodes(features.astype(np.float32), clock)
        return unit_vectors(nodes).astype(np.float16)

    def _feature_key(self, stream: int) -> str:
        """Identifies the stream, the backbones, their head, and the user's own weights."""
        key, backbone = "-".join(self.backbones), self.backbone
        if PICTURES in self.backbones:
            key += f"-{joint_key(self.image_text_head)}"
        own = backbone.needs_weights and not weights.look_up(backbone.weights_name).is_pinned
        if own and weights.find(backbone.weights_name) is not None:
            key += f"-{content_key(self.user_checkpoint)}"
        if backbone.num_frames:
            key += f"-{self.spacing_s:.4f}"
        return f"{key}-{stream}"


def _use_edits(video: Video, source: VideoSource, cache: bool) -> None:
    """Set the corrected steps of a video, unless they are those of a video of another length."""
    # Without the cache, the content of a large video is only read for its key if there are edits by content.
    key = source.known_key() if cache or has_stored_edits() else None
    found = read_edits(source.path, key)
    if found is None:
        return
    length_s = found.hierarchy.duration_s
    if abs(length_s - video.duration_s) > DURATION_TOLERANCE_S:
        lengths = f"{length_s:.1f} s, not {video.duration_s:.1f} s"
        warnings.warn(f"{found.file}: these steps belong to a video of {lengths}, and are not used", stacklevel=3)
        return
    video.edits, video.edits_name = found.hierarchy, found.name


def _to_half(source: VideoFeatures) -> VideoFeatures:
    """The same features in half precision, as in the cache."""
    return replace(source, features={name: rows.astype(np.float16) for name, rows in source.features.items()})


def _load_array(path: Path) -> np.ndarray:
    """Load the features of a torch file from the cache."""
    array: np.ndarray = load_arrays(path)["features"]
    _require(array.ndim == 2 and 0 not in array.shape)
    _require_finite(array, array.shape, np.float32)
    return array


def _load_nodes(path: Path, num_nodes: int, width: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Load nodes, and spans if there are any, from the cache."""
    arrays = load_arrays(path)
    nodes, spans = arrays["nodes"], arrays.get("spans")
    _require_finite(nodes, (num_nodes, width), np.float16)
    if spans is not None:
        _require(spans.ndim == 2 and spans.shape[1] == 2 and len(spans) > 0 and spans.dtype == np.int64)
        starts, ends = spans.T
        _require(bool(((starts >= 0) & (starts < ends) & (ends <= num_nodes)).all()))
    return nodes, spans


def _require_finite(array: np.ndarray, shape: tuple[int, ...], dtype: type[np.floating[Any]]) -> None:
    _require(array.shape == shape and array.dtype == dtype and bool(np.isfinite(array).all()))


def _require(is_valid: bool) -> None:
    """Check a file of the cache."""
    if not is_valid:
        raise InputError("unexpected content of a cached file")
