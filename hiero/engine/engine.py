"""Engine: reads videos and feature files with one model; what it computes is cached by the content of the file."""

from __future__ import annotations

import functools
import hashlib
import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from hiero.backbones.registry import Precision, backbone_for, backbones, fetch_weights, find_backbone
from hiero.data.features import FEATURE_SUFFIXES, check_sidecar, read_feature_array, read_sidecar
from hiero.devices import choose_device
from hiero.engine.embedder import CLIP, PICTURES, Embedder
from hiero.engine.joined import FileRows, join_rows
from hiero.engine.video import Video
from hiero.errors import InputError
from hiero.extraction.video_features import RECORDING_SUFFIX, VideoFeatures
from hiero.model.model_folder import SHIPPED, ModelFolder, open_model_folder
from hiero.sources.addresses import display_addresses
from hiero.sources.source import LocalFile, SourceFile, VideoInput, VideoSource, join_keys
from hiero.storage import weights
from hiero.storage.cache import cache_folder, content_key, read_cached, store_cached
from hiero.storage.files import load_arrays, save_arrays
from hiero.text.joint_text import joint_key
from hiero.types import Clock, ProgressCallback, ProgressEvent, no_progress
from hiero.vectors import unit_vectors

DEFAULT_BACKBONES = ("i3d-k400", "dinov2-text")
CACHE_VERSION = 7
JPEG = b"\xff\xd8"

Result = TypeVar("Result")


def load(
    model: str | Path = "hiero-k400",
    *,
    backbone: str = "auto",
    device: str = "auto",
    precision: Precision = "auto",
    batch_size: int | None = None,
    for_path: Path | str | None = None,
) -> Engine:
    """An engine that reads videos with a model.

    Args:
        model: A shipped one by its name (`hiero-k400`, `hiero-omnivore-b`), a model folder, a hub
            id, or `raw` for features as they are.
        backbone: For videos. `default` is the one that the model was made for (I3D and DINOv2 with
            words for hiero-k400); any other of `hiero backbones` works without a graph model;
            `auto` is clip where its weights are here and no model is named, else the default.
        device: `auto`, `cpu`, `cuda` …
        precision: Of the backbones; `auto` measures what is faster here.
        batch_size: Windows that go through the backbones together; by default 1 on a CPU, 16 on a GPU.
        for_path: A file that will be read. With `auto`, features that CLIP did not make get the default.

    Raises:
        InputError: There is no such model or backbone, or the two do not fit.

    Examples:
        >>> engine = hiero.load("raw")
        >>> engine.read_array(np.eye(60, dtype=np.float32)).duration_s
        60.0
    """
    backbone = CLIP if backbone == "clip" else backbone
    if backbone == "auto":
        is_clip = str(model) == SHIPPED[0] and weights.find(CLIP) is not None
        backbone = CLIP if is_clip and not (for_path and _has_other_features(for_path)) else "default"
    if backbone == "default":
        folder = None if str(model) == "raw" else open_model_folder(model)
        return Engine(folder, Path(model).name, _backbones_for(folder), device, precision, batch_size)
    if backbone not in backbones() or backbone in DEFAULT_BACKBONES:
        alone = [name for name, known in backbones().items() if known.num_frames or not known.builtin]
        raise InputError(f"backbone is one of {', '.join(['auto', 'default', 'clip', *alone])}; got {backbone}")
    if str(model) in ("raw", SHIPPED[0]):
        return Engine(None, "raw", (backbone,), device, precision, batch_size)
    folder = open_model_folder(model)
    if folder.config.input_size != find_backbone(backbone).width:
        raise InputError(
            f"{model} takes {folder.config.input_size}-d features ({folder.config.backbone or 'unnamed'}), "
            f"{backbone} gives {find_backbone(backbone).width}-d ones; leave one of them out"
        )
    return Engine(folder, Path(model).name, (backbone,), device, precision, batch_size)


def engine_for(engine: Engine, source: VideoInput) -> Engine:
    """The engine that reads a source of a collection: the shipped model's for features that CLIP did not make."""
    if engine.backbones == (CLIP,) and _has_other_features(source):
        return load(backbone="default", device=engine.device)
    return engine


def _has_other_features(source: VideoInput) -> bool:
    """Whether a file has features that CLIP did not make: they come with the model that they are for."""
    file = VideoSource.of(source).files[0]
    if file.path.suffix.lower() not in FEATURE_SUFFIXES:
        return False
    sidecar = read_sidecar(file.fetch())
    return sidecar is None or sidecar.backbone != CLIP


def _backbones_for(folder: ModelFolder | None) -> tuple[str, ...]:
    """What reads videos for a model."""
    name = None if folder is None else backbone_for(folder.config.backbone, folder.config.input_size)
    return DEFAULT_BACKBONES if name is None or name in DEFAULT_BACKBONES else (name,)


class FileContent:
    """A file as it was when reading began: only what was computed from that may be stored under its key."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self._state = file.state()
        self.key = file.key()
        self._is_changed = False

    @property
    def is_unchanged(self) -> bool:
        """Whether nobody wrote to the file since; says so once where somebody did."""
        if not self._is_changed:
            try:
                self._is_changed = self.file.state() != self._state
            except OSError:
                self._is_changed = True
            if self._is_changed:
                warnings.warn(
                    f"{self.file.path}: changed while it was read; the result is not kept, "
                    "read it again when it is whole",
                    stacklevel=2,
                )
        return not self._is_changed

    def store(self, save: Callable[[], None], progress: ProgressCallback = no_progress) -> bool:
        """`store_cached`, unless the file has changed."""
        return self.is_unchanged and store_cached(save, progress)


class JoinedContent(FileContent):
    """Files that are one video, as they were when reading began."""

    def __init__(self, contents: Sequence[FileContent], durations_s: Sequence[float]) -> None:
        self.key = join_keys(
            [f"{content.key} {time_s:.6f}" for content, time_s in zip(contents, durations_s, strict=True)]
        )
        self._contents = contents

    @property
    def is_unchanged(self) -> bool:
        """Whether nobody wrote to any of the files since."""
        return all(content.is_unchanged for content in self._contents)


@dataclass
class Engine(Embedder):
    """Reads videos and feature files with one model and one choice of backbones. Made by `hiero.load`."""

    def read(
        self,
        path: VideoInput,
        *,
        clock: Clock | None = None,
        cache: bool = True,
        stream: int = 0,
        progress: ProgressCallback | None = None,
    ) -> Video:
        """Read a video, or a file with features of one; several files as one video.

        Args:
            path: A video that FFmpeg reads, or .npy, .npz, .pt, .pth or .safetensors with one (T,
                D) array; or the address of one (https://…, s3://…), which is brought here first. A
                list of files is read as one timeline, such as the chapters of a camera;
                `Video.locate` says which file a moment is in.
            clock: When the rows of a feature file are, if not as the model was trained.
            cache: Use what was computed before from the same content, and keep what is computed now.
            stream: Which video stream of the file.
            progress: Called with a `ProgressEvent` whenever there is something to show.

        Raises:
            InputError: A file cannot be read, its features do not fit the model, or files cannot be joined.

        Examples:
            >>> video = hiero.load("raw").read(feature_file, clock=hiero.Clock(fps=1, stride=1))
            >>> [len(level) for level in video.steps([3, 6]).levels]
            [3, 6]
        """
        source = VideoSource.of(path)
        if not source.files:
            raise InputError("there is no file to read")
        try:
            video = self._read_source(source, clock, cache, stream, progress or no_progress)
        except InputError as error:
            if not source.is_remote:
                raise
            raise InputError(display_addresses(str(error))) from error
        video.origin = source
        return video

    def _read_source(
        self, source: VideoSource, clock: Clock | None, cache: bool, stream: int, progress: ProgressCallback
    ) -> Video:
        for file in source.files:
            if not file.exists():
                raise InputError(f"{file.path}: no such file")
            if file.is_remote and cache and self._is_cached(file, stream):
                file.fetch_companions()
            else:
                file.fetch(progress)
        paths = source.paths
        contents = [FileContent(file) if cache else None for file in source.files]
        try:
            parts = [
                self._read_file(file, clock, content, stream, progress)
                for file, content in zip(source.files, contents, strict=True)
            ]
        except InputError as error:
            if len(paths) == 1:
                raise
            raise InputError(
                f"{error}; to read the other files leave this one out, or read each by itself: --no-join"
            ) from error
        stream = 0 if paths[0].suffix.lower() in FEATURE_SUFFIXES else stream
        if len(parts) == 1:
            part = parts[0]
            return self._video(part.path, part.rows, part.clock, part.source, contents[0], progress, stream)
        joined = join_rows(parts)
        known = [content for content in contents if content is not None]
        content = JoinedContent(known, [part.duration_s for part in parts]) if known else None
        video = self._video(paths[0], joined.rows, joined.clock, joined.source, content, progress, stream)
        video.files = joined.files
        return video

    def _read_file(
        self,
        file: SourceFile,
        clock: Clock | None,
        content: FileContent | None,
        stream: int,
        progress: ProgressCallback,
    ) -> FileRows:
        """What a file says by itself, before the model sees it."""
        path = file.path
        if path.suffix.lower() in FEATURE_SUFFIXES:
            return self._read_features(path, clock, content)
        if clock is not None:
            raise InputError(f"{path}: a video has its own clock; rows a second (--hz) are for feature files")
        width = self.backbone.width
        if self.folder is not None and width != self.folder.config.input_size:
            raise InputError(
                f"{self.name} takes {self.folder.config.input_size}-d features "
                f"({self.folder.config.backbone or 'unnamed'}), "
                f"{self.backbone.name} gives {width}-d ones; give it a feature file, or leave --model out"
            )
        source = self._extract(file, content, stream, progress)
        clock = Clock(1.0, source.spacing_s)
        return FileRows(path, source.features[self.backbones[0]], clock, source, source.duration_s)

    def read_array(self, features: np.ndarray, clock: Clock | None = None, name: str = "features") -> Video:
        """Features of a video that are in memory already; nothing is cached.

        Args:
            features: (T, D).
            clock: When the rows are, if not as the model was trained.
            name: What results call the video.
        """
        part = self._from_features(Path(name), np.asarray(features, dtype=np.float32), clock)
        return self._video(part.path, part.rows, part.clock, part.source, None, no_progress)

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
        # The video's own length, which is seldom a whole number of rows: files that are joined begin where it ends.
        is_known = duration_s is not None and abs(duration_s - part.duration_s) <= part.clock.spacing_s
        return replace(part, duration_s=duration_s) if is_known and duration_s is not None else part

    @property
    def _is_tower(self) -> bool:
        """Whether features are those of one backbone, not any as they are."""
        return self.backbone.has_text or self.backbone.num_frames > 0

    def _check_origin(self, path: Path, made_by: str) -> None:
        """Features of one backbone mean nothing to another, even where they are as wide."""
        expected = self.backbone.name
        if self.folder is not None:
            expected = backbone_for(self.folder.config.backbone, self.folder.config.input_size) or made_by
        elif not self._is_tower:
            return  # raw features as they are
        if made_by != expected:
            raise InputError(
                f"{path}: its features are of {made_by}, {self.name} takes those of {expected}; see --model and "
                "--backbone"
            )

    def _from_features(self, path: Path, features: np.ndarray, clock: Clock | None) -> FileRows:
        config = None if self.folder is None else self.folder.config
        clock = clock or (Clock(1.0, 1.0) if config is None else config.clock)
        class_scores = {}
        if config is not None and config.backbone == "k400":
            class_scores["i3d-k400"] = features  # scores of another network for the same classes
        source = VideoFeatures(class_scores, clock.start_s + len(features) * clock.spacing_s, clock.spacing_s)
        return FileRows(path, features, clock, source, source.duration_s)

    def _cached_array(self, path: Path, width: int | None, content: FileContent | None) -> np.ndarray:
        """Features of a file; those of a torch file are cached as an array, which is read faster the next time."""
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
        """Features of a video by all backbones: from the cache, or extracted now and stored."""
        path = video_file.path

        def run(partial: Path | None) -> VideoFeatures:
            from hiero.decoding.decode import probe

            video_file.fetch(progress)
            duration_s = probe(path, stream).duration_s  # what cannot be read is said before anything is fetched
            for name in self.backbones:
                fetch_weights(find_backbone(name), progress)  # before the video's bar begins
            from hiero.extraction.extractor import ExtractionOptions, extract_features

            progress(ProgressEvent("read", path.name, 0.0, duration_s))
            options = ExtractionOptions(
                spacing_s=self.spacing_s,
                device=choose_device(self.device),
                precision=self.precision,
                batch_size=self.batch_size,
                stream=stream,
            )
            return extract_features(
                path,
                self.backbones,
                options,
                partial=partial,
                progress=lambda done_s: progress(ProgressEvent("read", path.name, done_s, duration_s)),
            )

        if path.suffix == RECORDING_SUFFIX:
            return self._load_recording(path, half=content is not None)
        if content is None:
            return run(None)
        file = self._features_file(content, stream)
        partial = file.with_suffix(".partial")
        if (cached := read_cached(file, self._load_features)) is not None:
            with suppress(OSError):
                partial.unlink(missing_ok=True)  # of another process that was stopped
            return cached
        source = run(partial)
        source.features = {name: value.astype(np.float16) for name, value in source.features.items()}
        if content.store(functools.partial(source.save, file), progress) or not content.is_unchanged:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
        return source

    def _features_file(self, content: FileContent, stream: int) -> Path:
        """Where the cache has the features of a video."""
        return cache_folder("features") / f"{content.key}-{CACHE_VERSION}-{self._feature_key(stream)}.safetensors"

    def _is_cached(self, file: SourceFile, stream: int) -> bool:
        """Whether the features of a remote video are cached, so that the video itself is not needed."""
        suffix = file.path.suffix
        if suffix.lower() in FEATURE_SUFFIXES or suffix == RECORDING_SUFFIX or file.known_key() is None:
            return False
        return self._features_file(FileContent(file), stream).is_file()

    def store_features(self, path: Path, source: VideoFeatures, *, stream: int = 0) -> None:
        """Keep features of a video that were computed while it was recorded: `read` then finds them.

        Args:
            path: The video, which is whole now.
            source: What this engine's backbones gave for it.
            stream: Which video stream of the file.
        """
        content = FileContent(LocalFile(path))
        half = replace(source, features={name: rows.astype(np.float16) for name, rows in source.features.items()})
        content.store(functools.partial(half.save, self._features_file(content, stream)))

    def _load_recording(self, path: Path, half: bool) -> VideoFeatures:
        """Features that `hiero watch` has written."""
        from hiero.extraction.feature_log import load_recording

        source, num_skipped = load_recording(path)
        if set(source.features) != set(self.backbones):
            recorded, own = ", ".join(source.features), ", ".join(self.backbones)
            raise InputError(f"{path}: was recorded with {recorded}, not {own}; see --model and --backbone")
        if num_skipped:
            warnings.warn(f"{path}: {num_skipped} windows were skipped or lost while it was recorded", stacklevel=2)
        if half:  # as from the cache
            source.features = {name: rows.astype(np.float16) for name, rows in source.features.items()}
        return source

    def _load_features(self, path: Path) -> VideoFeatures:
        """Features from a file of the cache. Raises where they are not what this engine stores."""
        source = VideoFeatures.load(path)
        num_rows = max(1, round(source.duration_s / self.spacing_s))
        is_valid = set(source.features) == set(self.backbones) and math.isclose(source.spacing_s, self.spacing_s)
        is_valid = is_valid and all(
            array.shape == (num_rows, find_backbone(name).width)
            and array.dtype == np.float16
            and bool(np.isfinite(array).all())
            for name, array in source.features.items()
        )
        is_valid = is_valid and bool(np.isfinite(source.thumbnail_times).all())
        is_valid = is_valid and len(source.thumbnail_times) == len(source.thumbnails)
        return _require(source, is_valid and all(picture.startswith(JPEG) for picture in source.thumbnails))

    def _video(
        self,
        path: Path,
        features: np.ndarray,
        clock: Clock,
        source: VideoFeatures,
        content: FileContent | None,
        progress: ProgressCallback,
        stream: int = 0,
    ) -> Video:
        """Nodes in the model's space: from the cache, or computed now and stored.

        The spans that could be answers take longer to find than all else of a feature file, and
        only questions need them: they are found, and stored too, when the first is asked.
        """
        if content is None:
            return Video(
                self, path, clock, source.duration_s, self._embed_nodes(features, clock).astype(np.float32), source
            )
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

        # When a question is asked the file may be another one, but nodes and spans are of what was read.
        keep = store_spans if content.is_unchanged else None
        return Video(self, path, clock, source.duration_s, half.astype(np.float32), source, spans, keep)

    def _embed_nodes(self, features: np.ndarray, clock: Clock) -> np.ndarray:
        """Unit vectors in half precision, as they come from the cache."""
        nodes = self.embed_nodes(features.astype(np.float32), clock)
        return unit_vectors(nodes).astype(np.float16)

    def _feature_key(self, stream: int) -> str:
        """Names where a video's features come from: stream, backbones, their head, and the weights of
        one that the user brought.
        """
        checkpoint_key, spacing = f"-{joint_key()}" if PICTURES in self.backbones else "", ""
        if (
            self.backbone.needs_weights
            and not self.backbone.auto_fetch
            and weights.find(self.backbone.weights_name) is not None
        ):
            checkpoint_key += f"-{content_key(self.user_checkpoint)}"
        if self.backbone.num_frames:
            spacing = f"-{self.spacing_s:.4f}"
        return f"{'-'.join(self.backbones)}{checkpoint_key}{spacing}-{stream}"


def _load_array(path: Path) -> np.ndarray:
    """Features from a file of the cache. Raises where they are not what `read_feature_array` gives."""
    array: np.ndarray = load_arrays(path)["features"]
    is_valid = array.ndim == 2 and 0 not in array.shape and array.dtype == np.float32 and bool(np.isfinite(array).all())
    return _require(array, is_valid)


def _load_nodes(path: Path, num_nodes: int, width: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Nodes, and spans where there are any, from a file of the cache. Raises where they do not fit the video."""
    arrays = load_arrays(path)
    nodes, spans = arrays["nodes"], arrays.get("spans")
    is_valid = nodes.shape == (num_nodes, width) and nodes.dtype == np.float16 and bool(np.isfinite(nodes).all())
    if spans is not None:
        is_valid = is_valid and spans.ndim == 2 and spans.shape[1] == 2 and len(spans) > 0 and spans.dtype == np.int64
        is_valid = is_valid and bool(
            ((spans[:, 0] >= 0) & (spans[:, 0] < spans[:, 1]) & (spans[:, 1] <= num_nodes)).all()
        )
    return _require((nodes, spans), is_valid)


def _require(value: Result, is_valid: bool) -> Result:
    """A value from a file of the cache, if it is what it should be."""
    if not is_valid:
        raise InputError("not what was stored")
    return value
