"""Engine: reads videos and feature files with one model; what it computes is cached by the content of the file."""

from __future__ import annotations

import functools
import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hiero.data.features import FEATURE_SUFFIXES, read_feature_array, read_sidecar
from hiero.devices import choose_device
from hiero.engine.embedder import CLIP, PICTURES, Embedder
from hiero.engine.video import Video
from hiero.errors import InputError
from hiero.extraction.video_features import VideoFeatures
from hiero.model.model_folder import SHIPPED, ModelFolder, open_model_folder
from hiero.steps.grounding import candidate_spans
from hiero.storage import weights
from hiero.storage.cache import cache_folder, content_key, read_cached, store_cached
from hiero.storage.files import load_arrays, save_arrays
from hiero.text.joint_text import joint_key
from hiero.types import Clock, ProgressCallback, ProgressEvent, no_progress
from hiero.video.registry import Precision, backbone_for, backbones, fetch_weights, find_backbone

DEFAULT_BACKBONES = ("i3d-k400", "dinov2-text")
CACHE_VERSION = 6


def load(
    model: str | Path = "hiero-k400",
    *,
    backbone: str = "auto",
    device: str = "auto",
    precision: Precision = "auto",
    batch_size: int | None = None,
) -> Engine:
    """An engine that reads videos with a model.

    Args:
        model: A shipped one by its name (`hiero-k400`, `hiero-omnivore-b`), a model folder, a hub id, or `raw` for features as
            they are.
        backbone: For videos. `default` is the one that the model was made for (I3D and DINOv2 with words for hiero-k400); any
            other of `hiero backbones` works without a graph model; `auto` is clip where its weights are here and no model is
            named, else the default.
        device: `auto`, `cpu`, `cuda` …
        precision: Of the backbones; `auto` measures what is faster here.
        batch_size: Windows that go through the backbones together; by default 1 on a CPU, 16 on a GPU.

    Raises:
        InputError: There is no such model or backbone, or the two do not fit.

    Examples:
        >>> engine = hiero.load("raw")
        >>> engine.read_array(np.eye(60, dtype=np.float32)).duration_s
        60.0
    """
    backbone = CLIP if backbone == "clip" else backbone
    if backbone == "auto":
        backbone = CLIP if str(model) == SHIPPED[0] and weights.find(CLIP) is not None else "default"
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
            f"{model} takes {folder.config.input_size}-d features ({folder.config.backbone or 'unnamed'}), {backbone} gives "
            f"{find_backbone(backbone).width}-d ones; leave one of them out"
        )
    return Engine(folder, Path(model).name, (backbone,), device, precision, batch_size)


def _backbones_for(folder: ModelFolder | None) -> tuple[str, ...]:
    """What reads videos for a model."""
    name = None if folder is None else backbone_for(folder.config.backbone, folder.config.input_size)
    return DEFAULT_BACKBONES if name is None or name in DEFAULT_BACKBONES else (name,)


@dataclass
class Engine(Embedder):
    """Reads videos and feature files with one model and one choice of backbones. Made by `hiero.load`."""

    def read(
        self,
        path: Path | str,
        *,
        clock: Clock | None = None,
        cache: bool = True,
        stream: int = 0,
        progress: ProgressCallback | None = None,
    ) -> Video:
        """Read a video, or a file with features of one.

        Args:
            path: A video that FFmpeg reads, or .npy, .npz, .pt, .pth or .safetensors with one (T, D) array.
            clock: When the rows of a feature file are, if not as the model was trained.
            cache: Use what was computed before from the same content, and keep what is computed now.
            stream: Which video stream of the file.
            progress: Called with a `ProgressEvent` whenever there is something to show.

        Raises:
            InputError: The file cannot be read, or its features do not fit the model.

        Examples:
            >>> video = hiero.load("raw").read(feature_file, clock=hiero.Clock(fps=1, stride=1))
            >>> [len(level) for level in video.steps([3, 6]).levels]
            [3, 6]
        """
        path, progress = Path(path), progress or no_progress
        if not path.is_file():
            raise InputError(f"{path}: no such file")
        if path.suffix.lower() in FEATURE_SUFFIXES:
            return self._read_features(path, clock, cache, progress)
        if clock is not None:
            raise InputError(f"{path}: a video has its own clock; rows a second (--hz) are for feature files")
        width = self.backbone.width
        if self.folder is not None and width != self.folder.config.input_size:
            raise InputError(
                f"{self.name} takes {self.folder.config.input_size}-d features ({self.folder.config.backbone or 'unnamed'}), "
                f"{self.backbone.name} gives {width}-d ones; give it a feature file, or leave --model out"
            )
        source = self._extract(path, cache, stream, progress)
        clock = Clock(1.0, source.spacing_s)
        return self._video(path, source.features[self.backbones[0]], clock, source, cache, progress, stream)

    def read_array(self, features: np.ndarray, clock: Clock | None = None, name: str = "features") -> Video:
        """Features of a video that are in memory already; nothing is cached.

        Args:
            features: (T, D).
            clock: When the rows are, if not as the model was trained.
            name: What results call the video.
        """
        return self._from_features(Path(name), np.asarray(features, dtype=np.float32), clock, False, no_progress)

    def _read_features(self, path: Path, clock: Clock | None, cache: bool, progress: ProgressCallback) -> Video:
        sidecar = read_sidecar(path)
        if self.backbones == (CLIP,) and (sidecar is None or sidecar.backbone != CLIP):
            # Chosen by `auto` for videos; features come with the model that they are for.
            return load(backbone="default", device=self.device).read(path, clock=clock, cache=cache, progress=progress)
        config = None if self.folder is None else self.folder.config
        if sidecar is not None:
            self._check_origin(path, sidecar.backbone)
            clock = clock or sidecar.clock
        width = self.backbone.width if self.backbone.num_frames and config is None else None
        features = self._cached_array(path, width if config is None else config.input_size, cache)
        return self._from_features(path, features, clock, cache, progress)

    def _check_origin(self, path: Path, made_by: str) -> None:
        """Features of one backbone mean nothing to another, even where they are as wide."""
        expected = self.backbone.name
        if self.folder is not None:
            expected = backbone_for(self.folder.config.backbone, self.folder.config.input_size) or made_by
        elif not self.backbone.has_text and not self.backbone.num_frames:
            return  # raw features as they are
        if made_by != expected:
            raise InputError(
                f"{path}: its features are of {made_by}, {self.name} takes those of {expected}; see --model and --backbone"
            )

    def _from_features(
        self, path: Path, features: np.ndarray, clock: Clock | None, cache: bool, progress: ProgressCallback
    ) -> Video:
        config = None if self.folder is None else self.folder.config
        clock = clock or (Clock(1.0, 1.0) if config is None else config.clock)
        class_scores = {}
        if config is not None and config.backbone == "k400":
            class_scores["i3d-k400"] = features  # scores of another network for the same classes
        source = VideoFeatures(class_scores, clock.start_s + len(features) * clock.spacing_s, clock.spacing_s)
        return self._video(path, features, clock, source, cache, progress)

    def _cached_array(self, path: Path, width: int | None, cache: bool) -> np.ndarray:
        """Features of a file; those of a torch file are cached as an array, which is read faster the next time."""
        if not cache or path.suffix.lower() not in (".pt", ".pth"):
            return read_feature_array(path, width)
        file = cache_folder("features") / f"{content_key(path)}-array.safetensors"
        cached = read_cached(file, lambda file: load_arrays(file)["features"])
        if cached is not None and width in (None, cached.shape[1]):
            return np.asarray(cached)
        features = read_feature_array(path, width)
        store_cached(lambda: save_arrays(file, {"features": features}))
        return features

    def _extract(self, path: Path, cache: bool, stream: int, progress: ProgressCallback) -> VideoFeatures:
        """Features of a video by all backbones: from the cache, or extracted now and stored."""

        def run(partial: Path | None) -> VideoFeatures:
            from hiero.video.decode import probe

            duration_s = probe(path, stream).duration_s  # what cannot be read is said before anything is fetched
            for name in self.backbones:
                fetch_weights(find_backbone(name), progress)  # before the video's bar begins
            from hiero.extraction.extractor import extract_features

            progress(ProgressEvent("read", path.name, 0.0, duration_s))
            return extract_features(
                path, self.backbones, spacing_s=self.spacing_s, device=choose_device(self.device), precision=self.precision,
                batch_size=self.batch_size, stream=stream, partial=partial,
                progress=lambda done_s: progress(ProgressEvent("read", path.name, done_s, duration_s)),
            )  # fmt: skip

        if not cache:
            return run(None)
        file = cache_folder("features") / f"{content_key(path)}-{CACHE_VERSION}-{self._feature_key(stream)}.safetensors"
        partial = file.with_suffix(".partial")
        if (cached := read_cached(file, VideoFeatures.load)) is not None:
            with suppress(OSError):
                partial.unlink(missing_ok=True)  # of another process that was stopped
            return cached
        source = run(partial)
        source.features = {name: value.astype(np.float16) for name, value in source.features.items()}
        if store_cached(functools.partial(source.save, file), progress):
            partial.unlink(missing_ok=True)
        return source

    def _video(
        self,
        path: Path,
        features: np.ndarray,
        clock: Clock,
        source: VideoFeatures,
        cache: bool,
        progress: ProgressCallback,
        stream: int = 0,
    ) -> Video:
        """Nodes in the model's space, and the spans that could be steps: from the cache, or computed now and stored."""
        file = None
        if cache:
            clock_key = f"{clock.fps:g}-{clock.stride:g}-{clock.start_s:g}"
            settings = f"{CACHE_VERSION}-{self.key}-{self._feature_key(stream)}-{clock_key}"
            digest = hashlib.sha256(settings.encode()).hexdigest()[:16]
            file = cache_folder("nodes") / f"{content_key(path)}-{digest}.safetensors"
            cached = read_cached(file, _load_nodes)
            if cached is not None:
                nodes, spans = cached
                return Video(self, path, clock, source.duration_s, nodes, source, spans)
        nodes = self.embed_nodes(features.astype(np.float32), clock)
        nodes /= np.maximum(np.linalg.norm(nodes, axis=1, keepdims=True), 1e-12)
        half = nodes.astype(np.float16)  # as it will come from the cache
        video = Video(self, path, clock, source.duration_s, half.astype(np.float32), source)
        video.spans = candidate_spans(video.segmentation_features, clock.spacing_s)
        if file is not None:
            store_cached(functools.partial(save_arrays, file, {"nodes": half, "spans": video.spans}), progress)
        return video

    def _feature_key(self, stream: int) -> str:
        """Names where a video's features come from: stream, backbones, their head, and the weights of one that the user brought."""
        checkpoint_key, spacing = f"-{joint_key()}" if PICTURES in self.backbones else "", ""
        if self.backbone.needs_weights and not self.backbone.auto_fetch and weights.find(self.backbone.weights_name) is not None:
            checkpoint_key += f"-{content_key(self.user_checkpoint)}"
        if self.backbone.num_frames:
            spacing = f"-{self.spacing_s:.4f}"
        return f"{'-'.join(self.backbones)}{checkpoint_key}{spacing}-{stream}"


def _load_nodes(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and spans from a file of the cache."""
    arrays = load_arrays(path)
    return arrays["nodes"].astype(np.float32), arrays["spans"]
