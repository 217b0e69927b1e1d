"""Engine: reads videos and feature files with one model; what it computes is kept by the content of the file.

torch is imported only where something must be computed with it: a second question is answered without.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hiero import weights
from hiero.cache import cache_folder, content_key, keep, kept_before
from hiero.data.features import SUFFIXES, read_array, read_sidecar
from hiero.devices import choose_device
from hiero.engine.asked import NO_WORDS, RAW, Video
from hiero.errors import InputError
from hiero.files import load_arrays, save_arrays
from hiero.model.folder import SHIPPED, ModelFolder, open_folder
from hiero.model.folder import WEIGHTS as NETWORK
from hiero.records import Clock
from hiero.states import find_checkpoint
from hiero.steps.spans import candidate_spans
from hiero.text.cache import TextCache
from hiero.text.minilm import SIZE, encode_minilm
from hiero.video.backbones import BACKBONES, Backbone, Precision, backbone_for, fetch_weights, find_backbone
from hiero.video.extracted import Extract

if TYPE_CHECKING:
    from hiero.model.hiero import HiERO

DEFAULT = ("i3d-k400", "lite2-imagenet")
CACHE_VERSION = 5


@dataclass
class Reading:
    """How a display follows the reading of a video."""

    begin: Callable[[str, float | None], None] = lambda *_: None
    advance: Callable[[float], None] = lambda _: None
    fetch: weights.Progress | None = None
    say: Callable[[str], None] = field(default=lambda _: None)


def load(
    model: str | Path = "hiero-k400",
    *,
    backbone: str = "auto",
    device: str = "auto",
    precision: Precision = "auto",
    batch_size: int | None = None,
) -> Engine:
    """An engine with a model: a shipped one by its name, a model folder, or a hub id; `raw` uses features as they are.

    backbone, for videos: `default` is the one that the model was made for (I3D and EfficientNet-Lite2 for hiero-k400); any
    other of `hiero backbones` works without a graph model; `auto` is clip where its weights are here and no model is named,
    else the default.
    """
    backbone = RAW if backbone == "clip" else backbone
    if backbone == "auto":
        backbone = RAW if str(model) == SHIPPED[0] and weights.find(RAW) is not None else "default"
    if backbone == "default":
        folder = None if str(model) == "raw" else open_folder(model)
        return Engine(folder, Path(model).name, _backbones_for(folder), device, precision, batch_size)
    if backbone not in BACKBONES or backbone in DEFAULT:
        known = ", ".join(["auto", "default", "clip", *(name for name, b in BACKBONES.items() if b.num_frames)])
        raise InputError(f"backbone is one of {known}; got {backbone}")
    if str(model) in ("raw", SHIPPED[0]):
        return Engine(None, "raw", (backbone,), device, precision, batch_size)
    folder = open_folder(model)
    if folder.config.input_size != find_backbone(backbone).width:
        raise InputError(
            f"{model} takes {folder.config.input_size}-d features ({folder.config.backbone or 'unnamed'}), {backbone} gives "
            f"{find_backbone(backbone).width}-d ones; leave one of them out"
        )
    return Engine(folder, Path(model).name, (backbone,), device, precision, batch_size)


def _backbones_for(folder: ModelFolder | None) -> tuple[str, ...]:
    """What reads videos for a model."""
    name = None if folder is None else backbone_for(folder.config.backbone, folder.config.input_size)
    return DEFAULT if name is None or name in DEFAULT else (name,)


@dataclass
class Engine:
    """Reads videos with one model and one choice of backbones."""

    folder: ModelFolder | None
    name: str
    backbones: tuple[str, ...]
    device: str = "auto"
    precision: Precision = "auto"
    batch_size: int | None = None

    @cached_property
    def model(self) -> HiERO | None:
        """The network, loaded when it is needed."""
        return None if self.folder is None else self.folder.network(choose_device(self.device))

    @property
    def backbone(self) -> Backbone:
        """The one whose features the model takes."""
        return find_backbone(self.backbones[0])

    @property
    def spacing_s(self) -> float:
        """Time between the rows of a video that is read."""
        tower = self.backbone.num_frames > 0
        return self.folder.config.clock.spacing_s if tower and self.folder is not None else self.backbone.spacing_s

    @cached_property
    def key(self) -> str:
        """Names configuration and weights, so that what one model made is not taken for another's."""
        if self.folder is None:  # any features as they are, or those of one backbone, which has a space of its own
            return f"raw-{self.backbone.name}" if self.backbone.words or self.backbone.num_frames else "raw"
        about = json.dumps(self.folder.config.to_dict(), sort_keys=True) + content_key(self.folder.path / NETWORK)
        return hashlib.sha256(about.encode()).hexdigest()[:16]

    def read(
        self, path: Path | str, *, clock: Clock | None = None, cache: bool = True, stream: int = 0, reading: Reading | None = None
    ) -> Video:
        """A video, or a file with features of one, ready to be asked. clock: of the features, if not the model's."""
        path, reading = Path(path), reading or Reading()
        if not path.is_file():
            raise InputError(f"{path}: no such file")
        if path.suffix.lower() in SUFFIXES:
            return self._read_features(path, clock, cache, reading)
        if clock is not None:
            raise InputError(f"{path}: a video has its own clock; rows a second (--hz) are for feature files")
        width = self.backbone.width
        if self.folder is not None and width != self.folder.config.input_size:
            raise InputError(
                f"{self.name} takes {self.folder.config.input_size}-d features ({self.folder.config.backbone or 'unnamed'}), "
                f"{self.backbone.name} gives {width}-d ones; give it a feature file, or leave --model out"
            )
        found = self._extract(path, cache, stream, reading)
        clock = Clock(1.0, found.spacing_s)
        return self._video(path, found.features[self.backbones[0]], clock, found, cache, reading.say, stream)

    def read_array(self, features: np.ndarray, clock: Clock | None = None, name: str = "features") -> Video:
        """Features of a video that are in memory already, (T, D); nothing is kept."""
        return self._from_features(Path(name), np.asarray(features, dtype=np.float32), clock, False, Reading())

    def _read_features(self, path: Path, clock: Clock | None, cache: bool, reading: Reading) -> Video:
        said = read_sidecar(path)
        if self.backbones == (RAW,) and (said is None or said.backbone != RAW):  # features come with the model that they are for
            return load(backbone="default", device=self.device).read(path, clock=clock, cache=cache, reading=reading)
        config = None if self.folder is None else self.folder.config
        if said is not None:
            self._check_origin(path, said.backbone)
            clock = clock or said.clock
        width = self.backbone.width if self.backbone.num_frames and config is None else None
        features = self._features(path, width if config is None else config.input_size, cache)
        return self._from_features(path, features, clock, cache, reading)

    def _check_origin(self, path: Path, made_by: str) -> None:
        """Features of one backbone mean nothing to another, even where they are as wide."""
        wanted = self.backbone.name
        if self.folder is not None:
            wanted = backbone_for(self.folder.config.backbone, self.folder.config.input_size) or made_by
        elif not self.backbone.words and not self.backbone.num_frames:
            return  # raw features as they are
        if made_by != wanted:
            raise InputError(
                f"{path}: its features are of {made_by}, {self.name} takes those of {wanted}; see --model and --backbone"
            )

    def _from_features(self, path: Path, features: np.ndarray, clock: Clock | None, cache: bool, reading: Reading) -> Video:
        config = None if self.folder is None else self.folder.config
        clock = clock or (Clock(1.0, 1.0) if config is None else config.clock)
        held = {}
        if config is not None and config.backbone == "k400":
            held["i3d-k400"] = features  # scores of another network for the same classes
        found = Extract(held, clock.start_s + len(features) * clock.spacing_s, clock.spacing_s)
        return self._video(path, features, clock, found, cache, reading.say)

    def _features(self, path: Path, width: int | None, cache: bool) -> np.ndarray:
        """Features of a file; those of a torch file are kept as an array, which is read faster the next time."""
        if not cache or path.suffix.lower() not in (".pt", ".pth"):
            return read_array(path, width)
        kept = cache_folder("features") / f"{content_key(path)}-array.safetensors"
        before = kept_before(kept, lambda file: load_arrays(file)["features"])
        if before is not None and width in (None, before.shape[1]):
            return np.asarray(before)
        found = read_array(path, width)
        keep(lambda: save_arrays(kept, {"features": found}))
        return found

    def _extract(self, path: Path, cache: bool, stream: int, reading: Reading) -> Extract:
        def run(partial: Path | None) -> Extract:
            from hiero.video.decode import probe

            duration_s = probe(path, stream).duration_s  # what cannot be read is said before anything is fetched
            for name in self.backbones:
                fetch_weights(find_backbone(name), reading.fetch)  # before the video's bar begins
            from hiero.video.extract import extract

            reading.begin(path.name, duration_s)
            return extract(
                path, self.backbones, spacing_s=self.spacing_s, device=choose_device(self.device), precision=self.precision,
                batch_size=self.batch_size, stream=stream, partial=partial, progress=reading.advance,
            )  # fmt: skip

        if not cache:
            return run(None)
        kept = cache_folder("features") / f"{content_key(path)}-{CACHE_VERSION}-{self._source(stream)}.safetensors"
        partial = kept.with_suffix(".partial")
        if (found := kept_before(kept, Extract.load)) is not None:
            with suppress(OSError):
                partial.unlink(missing_ok=True)  # of another process that was stopped
            return found
        found = run(partial)
        found.features = {name: value.astype(np.float16) for name, value in found.features.items()}
        if keep(functools.partial(found.save, kept), reading.say):
            partial.unlink(missing_ok=True)
        return found

    def _video(
        self,
        path: Path,
        features: np.ndarray,
        clock: Clock,
        found: Extract,
        cache: bool,
        say: Callable[[str], None],
        stream: int = 0,
    ) -> Video:
        """Nodes in the model's space, and the spans that could be steps: from the cache, or made now and kept."""
        about = f"{CACHE_VERSION}-{self.key}-{self._source(stream)}-{clock.fps:g}-{clock.stride:g}-{clock.start_s:g}"
        kept = None
        if cache:
            kept = cache_folder("nodes") / f"{content_key(path)}-{hashlib.sha256(about.encode()).hexdigest()[:16]}.safetensors"
            before = kept_before(kept, _read_nodes)
            if before is not None:
                return Video(self, path, clock, found.duration_s, before[0], found, before[1])
        nodes = self._embed(features.astype(np.float32), clock)
        nodes /= np.maximum(np.linalg.norm(nodes, axis=1, keepdims=True), 1e-12)
        x = nodes.astype(np.float16)  # as it will come from the cache
        video = Video(self, path, clock, found.duration_s, x.astype(np.float32), found)
        video.spans = candidate_spans(video.looks, clock.spacing_s)
        if kept is not None:
            keep(functools.partial(save_arrays, kept, {"nodes": x, "spans": video.spans}), say)
        return video

    @property
    def deep_level(self) -> int:
        """The level that the paper finds procedures on, 2, or the deepest that this network has."""
        return 0 if self.folder is None else min(2, max(1, self.folder.config.depth) - 1)

    def enrich(self, features: np.ndarray, clock: Clock, level: int) -> np.ndarray:
        """The network's own features of a level (T_level, D), before h_v; as they are without a network."""
        return features if self.model is None else self._embed(features, clock, level, f"level{level}")

    def _embed(self, features: np.ndarray, clock: Clock, level: int = 0, name: str = "projected0") -> np.ndarray:
        if self.model is None:
            return features.copy()
        import torch

        from hiero.model.embed import embed_features

        return embed_features(self.model, torch.from_numpy(features), clock, [level])[name].float().numpy()

    def _source(self, stream: int) -> str:
        """Names where a video's features come from: stream, backbones, and the weights of one that the user brought."""
        own, spacing = "", ""
        if not self.backbone.fetched and weights.find(self.backbone.weights_name) is not None:
            own = f"-{content_key(self._checkpoint)}"
        if self.backbone.num_frames:
            spacing = f"-{self.spacing_s:.4f}"
        return f"{'-'.join(self.backbones)}{own}{spacing}-{stream}"

    @property
    def _checkpoint(self) -> Path:
        """The file with the weights that the user brought."""
        return find_checkpoint(fetch_weights(self.backbone))

    def fetch_words(self, progress: weights.Progress | None = None) -> None:
        """Fetch what texts need, if it is not here: later it would be done without a word."""
        if self.uses_minilm:
            weights.get("minilm", progress)

    @property
    def knows_words(self) -> bool:
        return self.folder is not None or self.backbone.words

    @property
    def uses_minilm(self) -> bool:
        """Whether texts come from the sentence encoder as it is: only then class names and questions lie in one space."""
        return self.folder is not None and self.folder.text_encoder is None and self.folder.config.text_size == SIZE

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Texts as the sentence encoder has them, and in the model's own space."""
        if self.folder is None:
            if not self.backbone.words:
                raise InputError(NO_WORDS)
            key = f"{self.backbone.module}-{content_key(self._checkpoint)[:16]}"
            own = TextCache(key).encode(list(texts), self._joint_words).astype(np.float32)
            return own, own
        name = (self.folder.extra.get("text_encoder") or {}).get("name")
        if self.folder.text_encoder is not None:
            from hiero.text.encoders import encode_texts

            vectors = encode_texts(list(texts), str(self.folder.path), device=choose_device(self.device)).float().numpy()
        elif self.uses_minilm and name in (None, "minilm"):
            vectors = encode_minilm(list(texts))
        else:
            raise InputError(f"{self.name} was trained with the text encoder {name}, which is not beside it; words need it")
        if vectors.shape[1] != self.folder.config.text_size:
            raise InputError(
                f"{self.name} takes {self.folder.config.text_size}-d texts, its encoder gives {vectors.shape[1]}-d ones"
            )
        return vectors, self.folder.embed_text(vectors)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Texts (n, D) as `Video.embed_spans` has stretches of video."""
        vectors, own = self.encode(texts)
        return np.concatenate([own, vectors], axis=1).astype(np.float32) if self.uses_minilm else own.astype(np.float32)

    def _joint_words(self, texts: list[str]) -> np.ndarray:
        """Texts in the space of the pictures, by the backbone's own text tower."""
        if self.backbones == (RAW,):
            from hiero.video.clip import encode_words

            return encode_words(self._checkpoint.parent, texts).numpy()
        from hiero.text.encoders import encode_joint

        return encode_joint(self._checkpoint, texts).numpy()


def _read_nodes(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and spans from a file of the cache."""
    held = load_arrays(path)
    return held["nodes"].astype(np.float32), held["spans"]
