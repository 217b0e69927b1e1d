"""ExtractionPlan: the settings with which videos become feature files."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hiero.backbones.registry import FPS, STRIDE, Backbone, Precision, fetch_weights, find_backbone
from hiero.devices import choose_device
from hiero.errors import InputError
from hiero.storage.cache import content_key
from hiero.storage.checkpoints import find_checkpoint
from hiero.types import Clock

if TYPE_CHECKING:
    from hiero.extraction.extractor import LoadedBackbones

KEY_LENGTH = 16  # hexadecimal digits of a SHA-256 in sidecars
_LOADING = threading.Lock()


@dataclass(frozen=True)
class ExtractionPlan:
    """How videos become feature files."""

    backbone: str
    out: Path
    clock: Literal["seconds", "frames"] = "seconds"
    spacing_s: float | None = None
    window: int | None = None
    num_frames: int | None = None
    format: Literal["safetensors", "pt"] = "safetensors"
    dtype: Literal["float16", "float32"] = "float16"
    weights: Path | None = None
    device: str = "auto"
    precision: Precision = "auto"
    batch_size: int | None = None
    stream: int = 0
    threads: int = 0

    def __post_init__(self) -> None:
        is_tower = self.is_tower  # first: an unknown backbone is an error, whatever the other settings are
        if self.spacing_s is not None and not 0 < self.spacing_s < float("inf"):
            raise InputError(f"--spacing must be a positive number of seconds, got {self.spacing_s}")
        if self.clock == "frames" and (self.spacing_s is not None or not is_tower):
            raise InputError("--clock frames needs a video backbone and cannot be combined with --spacing")
        if self.window is not None and (not is_tower or self.window < STRIDE or self.window % STRIDE):
            raise InputError(f"--window must be a multiple of {STRIDE} and needs a video backbone, got {self.window}")
        if self.batch_size is not None and self.batch_size < 1:
            raise InputError(f"--batch-size must be at least 1, got {self.batch_size}")
        if self.weights is not None and not is_tower:
            raise InputError(f"--weights needs a video backbone. For {self.backbone}, use hiero weights get.")

    @property
    def backbone_info(self) -> Backbone:
        """The entry of the backbone in the registry."""
        return find_backbone(self.backbone)

    @property
    def is_tower(self) -> bool:
        """Whether the backbone is a video backbone, which sees all frames of a window at once."""
        return self.backbone_info.num_frames > 0

    @property
    def overlap(self) -> int:
        """Number of segments of a window."""
        return (self.window or STRIDE) // STRIDE

    @property
    def frames_per_segment(self) -> int | None:
        """Number of frames of a segment that a tower sees; None for other backbones."""
        return self.num_frames or self.backbone_info.num_frames or None

    @cached_property
    def weights_key(self) -> str:
        """Hash of the weights."""
        if self.weights is None and not self.backbone_info.needs_weights:
            return "none"
        folder = self.weights or fetch_weights(self.backbone_info)
        files = [find_checkpoint(folder)] if self.is_tower or folder.is_file() else sorted(folder.iterdir())
        keys = "".join(content_key(file) for file in files if file.is_file() and not file.name.startswith("."))
        return hashlib.sha256(keys.encode()).hexdigest()[:KEY_LENGTH]

    @cached_property
    def settings_key(self) -> str:
        """Hash of everything that the rows depend on, except the video."""
        settings = [
            self.backbone,
            self.weights_key,
            self.clock,
            self.spacing_s,
            self.overlap,
            self.frames_per_segment,
            self.dtype,
            self.precision,
            self.stream,
        ]
        if self.backbone_info.version > 1:  # files of version 1 stay valid
            settings.append(self.backbone_info.version)
        return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:KEY_LENGTH]

    def feature_file(self, name: str) -> Path:
        """The feature file of a video."""
        return self.out / f"{name}.{self.format}"

    def row_clock(self, path: Path) -> Clock:
        """The clock of the rows of a video."""
        if self.clock == "frames":
            from hiero.decoding.decode import probe

            fps = probe(path, self.stream).fps
            if fps is None:
                raise InputError(f"{path}: does not state its frame rate. Use --clock seconds.")
            return Clock(fps, STRIDE)
        if self.spacing_s is None and self.is_tower:
            return Clock(FPS, STRIDE)
        return Clock(1.0, self.spacing_s or self.backbone_info.spacing_s)

    def load_backbones(self) -> LoadedBackbones:
        """The network on its device, loaded by the first thread that calls this."""
        with _LOADING:
            return self._backbones

    @cached_property
    def _backbones(self) -> LoadedBackbones:
        from hiero.extraction.extractor import LoadedBackbones

        device = choose_device(self.device)
        return LoadedBackbones.load(
            [self.backbone], device, self.precision, self.num_frames, self.weights, self.overlap
        )

    def prepare(self) -> None:
        """Create the output folder and find the weights, so that mistakes show before a video is read."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.out}: the folder cannot be created ({error.strerror})") from error
        self.weights_key  # noqa: B018
