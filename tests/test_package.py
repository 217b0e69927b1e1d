"""The package from outside: its name, what it installs, light to import, few public names, the method
with torch alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from importlib.metadata import distribution, distributions
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

import hiero
from hiero.storage import weights
from tests.optional import weights_or_skip

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


def test_nothing_tells_to_install_a_stranger():
    """The distribution is hiero-video; what package indexes have as hiero is another project."""
    name = "hiero"
    stranger = rf"\b(pip3?|pipx|uv|poetry|pdm|conda)\b.*?\b(install|add)\b.*?(?<![-\w/.=]){name}(?![-\w/.])"
    found = subprocess.run(["git", "grep", "-nP", stranger], cwd=ROOT, capture_output=True, text=True)
    assert found.stdout == ""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The folder with wheel and sdist, made by `python -m build`."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_wheel_and_sdist(built):
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    version = hiero.__version__
    assert wheel.name == f"hiero_video-{version}-py3-none-any.whl"
    assert sdist.name == f"hiero_video-{version}.tar.gz"
    names = set(zipfile.ZipFile(wheel).namelist())
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "hiero").rglob("*.*") if path.is_file()}
    assert {name for name in files if "__pycache__" not in name} <= names  # assets, presets, the page and all
    assert not [name for name in names if not name.startswith(("hiero/", "hiero_video-"))]
    with tarfile.open(sdist) as archive:
        assert f"hiero_video-{version}/README.md" in archive.getnames()


def link_requirements(requirements: Iterable[str], site: Path) -> None:
    """Link the installed packages that are required, and those that they require, into an environment."""
    waiting, done = [(Requirement(line), "") for line in requirements], set()
    while waiting:
        requirement, extra = waiting.pop()
        is_needed = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        if not is_needed or (str(requirement), extra) in done:
            continue
        done.add((str(requirement), extra))
        package = distribution(requirement.name)
        assert requirement.specifier.contains(package.version, prereleases=True), str(requirement)
        for name in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            if not (site / name).exists():
                (site / name).symlink_to(package.locate_file(name))
        waiting += [(Requirement(line), of) for line in package.requires or () for of in ("", *requirement.extras)]


@pytest.mark.slow
def test_the_wheel_in_a_clean_environment(built, tmp_path):
    """Installed with what it asks for and nothing else, it finds steps.

    What it asks for is taken from this environment: an installer would copy gigabytes to the same end.
    """
    weights_or_skip("minilm")
    (wheel,) = built.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    binaries = tmp_path / "env" / "bin"
    options = ["--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    pip = [sys.executable, "-m", "pip", "--python", str(binaries / "python"), *options, str(wheel)]
    done = subprocess.run(pip, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (installed,) = distributions(path=[str(site)])
    link_requirements(installed.requires, site)
    np.save(tmp_path / "tea.npy", np.random.default_rng(0).normal(0, 2, (240, 400)).astype(np.float32))
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HIERO_HOME": str(weights.home())}
    command = [binaries / "hiero", "steps", "tea.npy", "--hz", "1", "-k", "3,6"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert "3 coarse, 6 fine steps" in done.stdout, done.stderr


def test_import_is_light():
    heavy = {"torch", "numpy", "huggingface_hub", "rich"}
    assert run(f"import sys, hiero; print({heavy} & {{*sys.modules}})") == "set()\n"


def test_public_names():
    """They are listed in hiero/__init__.pyi, load, and are documented; tools/check_docs.py checks the reference."""
    assert {"Clock", "Engine", "HiERO", "Hierarchy", "Video", "load"} <= set(hiero.__all__)
    for name in hiero.__all__:
        assert getattr(hiero, name).__doc__
    assert set(hiero.__all__) <= set(dir(hiero))
    with pytest.raises(AttributeError, match="no_such_name"):
        hiero.no_such_name  # noqa: B018


def test_type_checkers_see_the_public_names(tmp_path):
    pytest.importorskip("mypy")
    script = tmp_path / "script.py"
    script.write_text("import hiero\nreveal_type(hiero.Clock(1.0, 1.0))\nhiero.no_such_name\n")
    options = ["--config-file=", "--follow-imports=silent", f"--cache-dir={os.devnull}"]
    options += ["--no-site-packages", "--ignore-missing-imports"]  # reading torch would take a minute
    command = [sys.executable, "-m", "mypy", *options, str(script)]
    shown = subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout
    assert 'Revealed type is "hiero.types.Clock"' in shown
    assert 'has no attribute "no_such_name"' in shown


def test_the_method_needs_only_torch_numpy_scipy():
    """Everything else that the project installs is blocked."""
    run(
        """
import sys
for name in "huggingface_hub safetensors sklearn cyclopts rich transformers av lightning omegaconf".split():
    sys.modules[name] = None
import torch
from hiero.config import LossConfig, ModelConfig
from hiero.model.hiero import HiERO
from hiero.model.losses import Timed, compute_losses
import hiero.model.released, hiero.model.ensemble, hiero.training.captured_step
model = HiERO(ModelConfig(input_size=4, hidden_size=8, embedding_size=4, text_size=4))
levels = model.train()(torch.randn(2, 40, 4))
texts, times, mask = torch.randn(2, 3, 4), torch.rand(2, 3) * 20, torch.ones(2, 3, dtype=torch.bool)
compute_losses(model, levels, Timed(texts, times, mask), LossConfig()).total.backward()
"""
    )
