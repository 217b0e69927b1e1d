"""Points to plug into: a package of twenty lines adds a backbone, a clustering and a format."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from hiero import plugins
from hiero.errors import InputError
from hiero.networks import registry
from tests.films import write_video
from tests.processes import run_python

ROOT = Path(__file__).parent.parent
EXAMPLE = Path(__file__).parent / "fixtures" / "plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The example package, installed by pip into a folder of its own."""
    folder = tmp_path_factory.mktemp("plugin")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--target", str(folder / "site")]
    source = folder / "source"
    source.mkdir()
    for file in EXAMPLE.glob("*.*"):  # pip builds in the source folder
        (source / file.name).write_bytes(file.read_bytes())
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True, capture_output=True)
    return folder / "site"


def run(installed: Path, code: str, home: Path) -> str:
    return run_python(code, env={**os.environ, "PYTHONPATH": str(installed), "HIERO_HOME": str(home)}).stdout


def test_plug_ins_are_listed(installed, tmp_path):
    code = "from hiero.plugins import *; print(*(name for group in GROUPS for name in registered(group)))"
    names = run(installed, code, tmp_path).split()
    assert {"brightness", "halves", "lines"} <= set(names)
    assert {"i3d-k400", "spectral", "vtt"} <= set(names)


def test_a_clustering_and_a_format_on_the_command_line(installed, tmp_path):
    np.save(tmp_path / "tea.npy", np.random.default_rng(0).normal(size=(120, 8)).astype(np.float32))
    options = ["--model", "raw", "--method", "halves", "-k", "2", "--export", "lines"]
    arguments = ["steps", "tea.npy", "-o", "out", *options]
    run(installed, f"import os; os.chdir({str(tmp_path)!r}); from hiero.cli import app; app({arguments})", tmp_path)
    assert (tmp_path / "out" / "steps.lines").read_text() == "0 step-1\n60 step-2\n"


def test_a_backbone_reads_a_video(installed, tmp_path):
    write_video(tmp_path / "v.mp4", [10] * 20 + [240] * 20)
    code = f"import hiero; print(hiero.load('brightness', device='cpu').read({str(tmp_path / 'v.mp4')!r}).nodes.shape)"
    assert run(installed, code, tmp_path).strip() == "(4, 3)"


@pytest.mark.slow
def test_a_backbone_extracts_a_collection_once(installed, tmp_path):
    """Without weights of its own nothing but the video decides whether it is done."""
    write_video(tmp_path / "v.mp4", [10] * 20 + [240] * 20)
    arguments = ["extract", "v.mp4", "-o", "out", "--backbone", "brightness", "--device", "cpu"]
    code = f"import os; os.chdir({str(tmp_path)!r}); from hiero.cli import app; app({arguments})"
    assert "1 done" in run(installed, code, tmp_path)
    (tmp_path / "another.txt").write_text("a new file beside it")
    assert "1 kept" in run(installed, code, tmp_path)


HALVES = """
import numpy as np
from hiero.plugins import register

register("hiero.clusterings", "halves", lambda nodes, num, **_: (np.arange(len(nodes)) >= len(nodes) / 2).astype(int))
"""


def test_a_file_is_a_plug_in_also_for_the_processes_of_a_command(tmp_path):
    (tmp_path / "halves.py").write_text(HALVES)
    np.save(tmp_path / "tea.npy", np.random.default_rng(0).normal(size=(120, 8)).astype(np.float32))
    options = ["--model", "raw", "--method", "halves", "-k", "2", "--json", "--plugin", str(tmp_path / "halves.py")]
    code = f"import sys; sys.argv[1:] = {['steps', str(tmp_path / 'tea.npy'), *options]}; from hiero.cli import main\n"
    code += "try: main()\nexcept SystemExit: pass\nimport subprocess; from hiero.plugins import registered; "
    code += "names = 'from hiero.plugins import *; print(registered(GROUPS[2]))'; "
    code += "print(subprocess.run([sys.executable, '-c', names], capture_output=True, text=True).stdout)"
    printed = run_python(code, env={**os.environ, "HIERO_HOME": str(tmp_path)}).stdout
    assert '"start_s": 60' in printed
    assert "halves" in printed


@pytest.mark.parametrize("content", [None, "raise ValueError('broken')", "not python"])
def test_a_file_that_cannot_be_loaded_is_named(tmp_path, content, monkeypatch):
    monkeypatch.setenv("HIERO_PLUGINS", "")
    if content:
        (tmp_path / "mine.py").write_text(content)
    with pytest.raises(InputError, match=r"mine\.py"):
        plugins.add_plugin_file(str(tmp_path / "mine.py"))


def test_ours_register_the_same_way():
    """The groups hold what pyproject.toml lists; without `pip install -e .` after a change they do not."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert set(listed) == set(plugins.GROUPS)
    for group, entries in listed.items():
        found = plugins.registered_entry_points(group)
        assert entries.items() <= {name: entry.value for name, entry in found.items()}.items()
        assert set(entries) == set(plugins.registered(group)[: len(entries)])  # before those of other packages
        for name in entries:
            assert plugins.load_plugin(group, name) is not None


def test_what_does_not_exist_is_named():
    with pytest.raises(InputError, match="magic"):
        plugins.load_plugin("hiero.clusterings", "magic")


@pytest.mark.parametrize("target", ["no_such_module:X", "json:no_such_name", "raising_plugin:X"])
def test_a_broken_backbone_does_not_take_the_others_along(target, tmp_path):
    (tmp_path / "raising_plugin.py").write_text("import hiero; X = hiero.Backbone(colour='red')")
    (info := tmp_path / "broken-1.dist-info").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[hiero.backbones]\nbroken = {target}\n")
    code = "from hiero.networks.registry import *; print(*backbones()); find_backbone('broken')"
    done = run_python(code, env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=False)
    assert {"i3d-k400", "broken"} & set(done.stdout.split()) == {"i3d-k400"}
    assert done.stderr.count(target) == 2  # in a warning, and in the error


def test_a_backbone_that_a_script_registers_later_is_found():
    code = "import hiero; from hiero.networks.registry import *; before = backbones()\n"
    code += "mine = Backbone('mine', '', 3, 'json', per_frame=True, allows_half=False, needs_weights=False)\n"
    code += "hiero.plugins.register('hiero.backbones', 'mine', mine); print(find_backbone('mine').width)"
    assert run_python(code).stdout.strip() == "3"


@pytest.mark.parametrize("settings", [{"num_frames": 4}, {"has_text": True, "needs_weights": False}])
def test_backbones_that_cannot_work_are_refused(settings):
    with pytest.raises(InputError, match="|".join(settings)):
        registry.Backbone("x", "", 3, "x", per_frame=True, allows_half=False, **settings)
