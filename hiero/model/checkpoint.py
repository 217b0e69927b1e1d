"""Models as folders: config.json, model.safetensors and, where a text encoder was trained along, text_encoder.safetensors.

With huggingface_hub installed, `from_pretrained` also takes a hub id and `push_to_hub` works; without it, folders still do.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from torch import Tensor

from hiero.config import ModelConfig
from hiero.errors import InputError
from hiero.files import load_tensors, replacing, save_tensors

if TYPE_CHECKING:

    class ModelHubMixin:
        def save_pretrained(self, save_directory: str | Path, **options: Any) -> str | None: ...
        @classmethod
        def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> Self: ...
        def push_to_hub(self, repo_id: str, **options: Any) -> str: ...
else:
    try:
        from huggingface_hub import ModelHubMixin
    except ImportError:

        class ModelHubMixin:
            """Folders only."""

            def save_pretrained(self, save_directory, **_):
                Path(save_directory).mkdir(parents=True, exist_ok=True)
                self._save_pretrained(Path(save_directory))

            @classmethod
            def from_pretrained(cls, pretrained_model_name_or_path, **_):
                return cls._from_pretrained(model_id=str(pretrained_model_name_or_path))

            def push_to_hub(self, *_, **__):
                raise InputError("sharing on a hub needs huggingface_hub; run: pip install huggingface_hub")


CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TEXT_ENCODER = "text_encoder.safetensors"


class Checkpoint(ModelHubMixin):
    """Saving and loading for `HiERO`. What came with a loaded model (its text encoder, losses, source) is saved with it again."""

    config: ModelConfig
    _extra: dict[str, Any] | None = None
    _text_encoder: Path | None = None

    def fingerprint(self) -> str:
        """Names configuration and weights, so that what one model made is not taken for another's."""
        model: Any = self
        digest = hashlib.sha256(json.dumps(self.config.to_dict(), sort_keys=True).encode())
        for name, value in model.state_dict().items():
            digest.update(name.encode() + value.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    def _save_pretrained(self, save_directory: Path) -> None:
        model: Any = self
        target = save_directory / TEXT_ENCODER
        if self._text_encoder is not None and self._text_encoder.resolve() != target.resolve():
            with replacing(target) as path:
                shutil.copyfile(self._text_encoder, path)
        write_checkpoint(save_directory, self.config, model.state_dict(), self._extra)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> Self:
        """A model folder, or the id of one on a hub (with `revision`, `cache_dir`, `token` … as in huggingface_hub)."""
        name = str(pretrained_model_name_or_path)
        if Path(name).is_dir():
            return cls._from_pretrained(model_id=name)
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name) or Path(name).parent.is_dir():
            raise InputError(f"{name}: no such model folder")
        try:
            return super().from_pretrained(name, **options)
        except InputError:
            raise
        except (OSError, ValueError, RuntimeError) as error:
            raise InputError(f"{name}: no such model folder, and it could not be fetched from a hub ({error})") from error

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **hub: Any) -> Self:
        folder = Path(model_id)
        if not folder.is_dir():
            folder = _download(model_id, hub)
        config, state, extra = read_checkpoint(folder)
        model: Any = cls(config)  # type: ignore[call-arg]
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            raise InputError(f"{folder / WEIGHTS}: does not fit its config.json\n{error}") from error
        model._extra = extra
        model._text_encoder = folder / TEXT_ENCODER if (folder / TEXT_ENCODER).is_file() else None
        return model.eval()


def _download(model_id: str, hub: dict[str, Any]) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise InputError(f"{model_id}: no such model folder; to load from a hub, run: pip install huggingface_hub") from None
    options = {name: hub[name] for name in ("revision", "cache_dir", "force_download", "token", "local_files_only") if name in hub}
    return Path(snapshot_download(model_id, allow_patterns=[CONFIG, WEIGHTS, TEXT_ENCODER], **options))


def write_checkpoint(folder: Path, config: ModelConfig, state: dict[str, Tensor], extra: dict[str, Any] | None = None) -> None:
    """`extra` joins config.json under its own keys, e.g. {"text_encoder": {…}}."""
    try:
        text = json.dumps({"model": config.to_dict(), **(extra or {})}, indent=2) + "\n"
    except (TypeError, ValueError) as error:
        raise InputError(f"{folder}: the configuration holds more than plain values ({error})") from error
    save_tensors(folder / WEIGHTS, state)
    with replacing(folder / CONFIG) as path:
        path.write_text(text)


def read_checkpoint(folder: Path) -> tuple[ModelConfig, dict[str, Tensor], dict[str, Any]]:
    """The network's settings, its weights, and what else config.json holds."""
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise InputError(f"{folder}: not a model folder, {name} is missing; for an authors' .pth run hiero import-checkpoint")
    try:
        extra = json.loads((folder / CONFIG).read_text())
        config = ModelConfig.from_dict(extra.pop("model"))
    except InputError as error:
        raise InputError(f"{folder / CONFIG}: {error}") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:  # a JSON error is a ValueError
        raise InputError(f"{folder / CONFIG}: not a hiero configuration ({error})") from error
    return config, load_tensors(folder / WEIGHTS), extra
