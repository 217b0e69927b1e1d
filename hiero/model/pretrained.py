"""Saving a network as a model folder, and loading it from one.

With huggingface_hub installed, `from_pretrained` also takes a hub id and `push_to_hub` works;
without it, folders still do.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from torch import Tensor

from hiero.config import ModelConfig
from hiero.errors import InputError
from hiero.model.model_folder import CONFIG_FILE, TEXT_ENCODER_FILE, WEIGHTS_FILE, ModelFolder, open_model_folder
from hiero.storage.checkpoints import dequantise
from hiero.storage.files import atomic_path, load_tensors, save_tensors

MAX_LISTED = 3  # names of weights that an error lists of each kind

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


class PretrainedMixin(ModelHubMixin):
    """Saving and loading for `HiERO`. What came with a loaded model (its text encoder, losses, source)
    is saved with it again.
    """

    config: ModelConfig
    _extra: dict[str, Any] | None = None  # what else config.json held
    _text_encoder: Path | None = None  # the file of the text encoder

    def fingerprint(self) -> str:
        """A name for configuration and weights, so that what one model computed is not taken for another's."""
        model: Any = self
        settings = {**self.config.to_dict(), **self._network_settings()}
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
        for name, value in model.state_dict().items():
            digest.update(name.encode() + value.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    def _save_pretrained(self, save_directory: Path) -> None:
        model: Any = self
        target = save_directory / TEXT_ENCODER_FILE
        if self._text_encoder is not None and self._text_encoder.resolve() != target.resolve():
            with atomic_path(target) as path:
                shutil.copyfile(self._text_encoder, path)
        write_model_folder(
            save_directory, self.config, model.state_dict(), {**self._network_settings(), **(self._extra or {})}
        )

    def _network_settings(self) -> dict[str, Any]:
        """What config.json says of the networks of an ensemble."""
        return {}

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> Self:
        """Load a model of this class, in evaluation mode. `hiero.load_model` loads any model.

        Raises:
            InputError: The folder is missing or damaged, or holds a model of the other class.
        """
        return cls._from_pretrained(model_id=str(pretrained_model_name_or_path), **options)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **hub_options: Any) -> Self:
        return cls.from_folder(open_model_folder(model_id, **hub_options))

    @classmethod
    def from_folder(cls, folder: ModelFolder) -> Self:
        """The model of an open folder, in evaluation mode."""
        try:
            model: Any = cls._make(folder)
        except InputError as error:
            raise InputError(f"{folder.path}: {error}") from error
        # what does not fit stays as it is, and is reported below
        state = dequantise(load_tensors(folder.path / WEIGHTS_FILE))
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            problems = _describe_mismatch(model.state_dict(), state) or str(error).splitlines()[0]
            raise InputError(
                f"{folder.path / WEIGHTS_FILE}: does not fit its config.json ({problems}); take both files from "
                "one model"
            ) from error
        model._extra, model._text_encoder = folder.extra, folder.text_encoder
        return model.eval()

    @classmethod
    def _make(cls, folder: ModelFolder) -> Self:
        """A network with the settings of a folder, without its weights."""
        raise NotImplementedError


def _describe_mismatch(expected: dict[str, Tensor], actual: dict[str, Tensor]) -> str:
    """How weights differ from those of a network, in a line: a few names of each kind, and how many
    more there are.
    """
    differences = {
        "missing": sorted(expected.keys() - actual.keys()),
        "unexpected": sorted(actual.keys() - expected.keys()),
        "of another shape": [
            f"{name} {tuple(actual[name].shape)} for {tuple(value.shape)}"
            for name, value in expected.items()
            if name in actual and actual[name].shape != value.shape
        ],
    }
    parts = []
    for kind, names in differences.items():
        if names:
            more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
            parts.append(f"{kind}: {', '.join(names[:MAX_LISTED])}{more}")
    return "; ".join(parts)


def write_model_folder(
    folder: Path, config: ModelConfig, state: dict[str, Tensor], extra: dict[str, Any] | None = None
) -> None:
    """Write config.json and model.safetensors."""
    try:
        text = json.dumps({"model": config.to_dict(), **(extra or {})}, indent=2) + "\n"
    except (TypeError, ValueError) as error:
        raise InputError(f"{folder}: the configuration holds more than plain values ({error})") from error
    save_tensors(folder / WEIGHTS_FILE, state)
    with atomic_path(folder / CONFIG_FILE) as path:
        path.write_text(text)
