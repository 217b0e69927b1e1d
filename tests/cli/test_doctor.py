"""hiero doctor: what is here is ok, and each problem made on purpose is seen, with what to do about it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import metadata
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from hiero.cli import doctor
from hiero.cli.diagnostics import GIB, Machine, machine, networks, server
from hiero.cli.doctor import diagnose
from hiero.storage import weights
from tests.films import import_av
from tests.processes import run_python

OPTIONAL = weights.Weights("toy", "a toy", "MIT", 1, {"toy.bin": ("toy.bin", "")})


def check(name, machine=None):
    """Findings of one check by their names."""
    run = doctor.load_checks()[name]
    return {finding.name: finding for finding in run(machine or Machine())}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home, with one file that hiero could fetch."""
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HIERO_WEIGHTS", raising=False)
    digest = "9f64a747e1b97f131fabb6b447296c9b6f0201e79fb3c5356e6c77e89b6a806a"  # of the bytes 1 2 3 4
    toy = weights.Weights("minilm", "a toy", "MIT", 1, {"toy.bin": ("toy.bin", digest)})
    monkeypatch.setattr(weights, "REGISTRY", {"minilm": toy, "toy": OPTIONAL})
    monkeypatch.setattr(server, "DEFAULT_WEIGHTS", ("minilm",))
    monkeypatch.setattr(networks, "DEFAULT_WEIGHTS", ("minilm",))
    return tmp_path / "home"


# Python and packages


def block(monkeypatch, *modules):
    """A finder that does not let modules be imported, as if they were broken."""

    class Blocked:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in modules:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Blocked(), *sys.meta_path])
    for name in [name for name in sys.modules if name.split(".")[0] in modules]:
        monkeypatch.delitem(sys.modules, name)


def test_packages_that_are_needed_are_here():
    findings = check("packages")
    assert findings["packages"].level == "ok"
    assert "torch" in findings["packages"].message
    assert not any("dev" in name or "docs" in name for name in findings)


def test_a_needed_package_that_is_missing_is_a_problem(monkeypatch):
    block(monkeypatch, "scipy")
    finding = check("packages")["packages"]
    assert finding.level == "problem"
    assert "missing: scipy" in finding.message
    assert finding.advice == "pip install hiero-video"


def test_an_old_package_is_a_problem(monkeypatch):
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "1.2+cpu" if name == "torch" else version(name))
    finding = check("packages")["packages"]
    assert finding.level == "problem"
    assert "torch 2.6 or later, not 1.2+cpu" in finding.message


def test_extras(monkeypatch):
    required = {
        "": {},
        "video": {"av": "12"},
        "speech": {"nothing-here": "1"},
        "text": {"numpy": "1", "nothing-here": "1"},
    }
    monkeypatch.setattr(machine, "read_requirements", lambda: required)
    block(monkeypatch, "av")
    findings = check("packages")
    assert findings["packages [video]"].level == "warning"
    assert "no video can be read" in findings["packages [video]"].message
    assert findings["packages [video]"].advice == "pip install 'hiero-video[video]'"
    assert findings["packages [speech]"].level == "ok"  # nobody asked for it
    assert findings["packages [text]"].level == "warning"  # half of it is here


def test_requirements_are_those_of_pyproject():
    requirements = machine.read_requirements()
    assert requirements[""]["torch"] == "2.6"
    assert requirements["video"]["av"] == "18"
    assert "mkdocstrings" in requirements["docs"]  # mkdocstrings[python]>=0.26


def test_an_installation_of_another_version_is_a_warning(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "0.0.1")
    assert check("hiero")["hiero"].level == "warning"


def test_little_memory_is_a_warning(monkeypatch):
    monkeypatch.setattr(machine, "available_bytes", lambda: GIB)
    assert check("python")["python"].level == "warning"
    monkeypatch.setattr(machine, "available_bytes", lambda: None)
    assert check("python")["python"].level == "ok"


# Weights and models


def test_weights_that_are_not_here(home):
    findings = check("weights")
    assert (findings["weights minilm"].level, findings["weights minilm"].advice) == (
        "warning",
        "hiero weights get minilm",
    )
    assert findings["weights toy"].level == "ok"
    assert not home.exists()  # looking makes nothing


def test_weights_are_verified_and_a_damaged_file_is_a_problem_that_is_left_as_it_is(home):
    file = home / "weights" / "minilm" / "toy.bin"
    file.parent.mkdir(parents=True)
    file.write_bytes(bytes([1, 2, 3, 4]))
    assert "verified" in check("weights")["weights minilm"].message
    file.write_bytes(bytes([1, 2, 3, 5]))
    finding = check("weights")["weights minilm"]
    assert finding.level == "problem"
    assert str(file) in finding.advice
    assert "hiero weights get minilm" in finding.advice
    assert file.is_file()


def test_shared_weights(home, tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_WEIGHTS", str(tmp_path / "shared"))
    assert check("weights")["weights"].level == "warning"  # no such folder
    file = tmp_path / "shared" / "minilm" / "toy.bin"
    file.parent.mkdir(parents=True)
    file.write_bytes(bytes([1, 2, 3, 4]))
    findings = check("weights")
    assert "weights" not in findings
    assert str(file.parent) in findings["weights minilm"].message


def test_shipped_models_load(monkeypatch, tmp_path):
    assert {finding.level for finding in check("models").values()} == {"ok"}
    assert check("models", Machine(fast=True)) == {}
    from hiero.model import model_folder

    shutil.copytree(model_folder.ASSETS / "hiero-k400", tmp_path / "hiero-k400")
    file = tmp_path / "hiero-k400" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    monkeypatch.setattr(model_folder, "ASSETS", tmp_path)
    assert check("models")["model hiero-k400"].level == "problem"


# GPU


def torch_built_for(monkeypatch, tmp_path, cuda, hip=None):
    """A stand-in for torch's files, whose version.py says what it is built for."""
    (tmp_path / "torch").mkdir(exist_ok=True)
    (tmp_path / "torch/version.py").write_text(
        f"__version__ = '2.13.0'\ncuda: Optional[str] = {cuda!r}\nhip: Optional[str] = {hip!r}\n"
    )
    spec = SimpleNamespace(origin=str(tmp_path / "torch/__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: spec)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for NVIDIA's files on Linux")
def test_gpus(monkeypatch, tmp_path):
    has_device = any(Path("/dev").glob("nvidia[0-9]*"))
    monkeypatch.setattr(machine, "find_nvidia_gpus", list)
    torch_built_for(monkeypatch, tmp_path, None)
    assert (check("gpu")["gpu"].level, "CUDA" in check("gpu")["gpu"].message) == ("ok", False)
    torch_built_for(monkeypatch, tmp_path, "13.0")
    assert "built for CUDA 13.0" in check("gpu")["gpu"].message
    torch_built_for(monkeypatch, tmp_path, None, "6.2.41133-dd7f95766")
    assert "built for ROCm 6.2" in check("gpu", Machine(fast=True))["gpu"].message
    torch_built_for(monkeypatch, tmp_path, "13.0")
    monkeypatch.setattr(machine, "find_nvidia_gpus", lambda: ["NVIDIA L4"])
    if not has_device:
        assert "--gpus all" in check("gpu")["gpu"].advice
    glob = Path.glob
    monkeypatch.setattr(
        Path, "glob", lambda self, pattern: [Path("/dev/nvidia0")] if self == Path("/dev") else glob(self, pattern)
    )
    assert check("gpu", Machine(fast=True))["gpu"].level == "ok"
    torch_built_for(monkeypatch, tmp_path, None)
    finding = check("gpu")["gpu"]
    assert finding.level == "warning"
    assert "built for CPUs only" in finding.message


def test_a_gpu_that_torch_cannot_use_is_a_problem(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (finding,) = machine._try_gpus("CUDA 13.0")
    assert finding.level == "problem"
    assert "driver" in finding.advice


# Decoders


def test_decoders_decode():
    import_av()
    findings = check("decoders")
    assert [name for name in findings if name.startswith("decoder ")] == [
        f"decoder {codec}" for codec in ("h264", "hevc", "av1", "vp9")
    ]
    assert [finding for finding in findings.values() if finding.level != "ok"] == []
    assert "libx264" in findings["decoder h264"].message


def test_an_encoder_that_fails_says_nothing_about_the_decoder(monkeypatch):
    import_av()
    monkeypatch.setattr(networks, "ENCODER_OPTIONS", {"libx264": {"preset": "no such preset"}})
    finding = check("decoders")["decoder h264"]
    assert (finding.level, finding.message) == ("ok", "available; not tested, because libx264 cannot encode")


def test_a_decoder_that_decodes_nothing_is_seen(monkeypatch):
    import_av()
    monkeypatch.setattr(networks, "_count_frames", lambda av, codec, stream: 0 if codec == "vp9" else 2)
    findings = check("decoders")
    assert (findings["decoder vp9"].level, findings["decoder h264"].level) == ("warning", "ok")


def test_a_decoder_that_this_build_lacks_is_seen(monkeypatch):
    import_av()
    monkeypatch.setattr(networks, "ENCODERS", {"nonesuch": ("nonesuch",)})
    assert check("decoders")["decoder nonesuch"].level == "warning"


@pytest.mark.parametrize(("name", "module"), [("decoders", "av"), ("onnxruntime", "onnxruntime")])
def test_a_missing_library_is_a_warning_with_what_to_install(monkeypatch, name, module):
    block(monkeypatch, module)
    finding = check(name)[name]
    assert finding.level == "warning"
    assert "pip install" in finding.advice


# Folders


def test_a_full_disk_is_a_problem(monkeypatch, home):
    statvfs = os.statvfs

    def full(path):
        real = statvfs(path)
        return os.statvfs_result(
            (real.f_bsize, real.f_frsize, real.f_blocks, 10, 10, 100, 50, 50, real.f_flag, real.f_namemax)
        )

    monkeypatch.setattr(os, "statvfs", full)
    finding = check("folders")["disk cache"]
    assert finding.level == "problem"
    assert finding.message.startswith("full")
    assert "HIERO_HOME" in finding.advice


def test_a_disk_that_is_nearly_full_and_one_without_inodes(monkeypatch, home):
    def room(num_bytes, inodes):
        result = os.statvfs_result((1, 1, num_bytes * 10, num_bytes, num_bytes, 100, inodes, inodes, 0, 255))
        monkeypatch.setattr(os, "statvfs", lambda path: result)
        return check("folders")["disk cache"]

    assert room(GIB, 50).level == "warning"
    assert room(100 * GIB, 50).level == "ok"
    assert "inodes" in room(100 * GIB, 0).message


# In a process of its own: rights belong to all threads of a process.
FOLDERS_AS_NOBODY = """
import json, os, sys
from pathlib import Path
from hiero.cli.diagnostics import Machine
from hiero.cli.diagnostics.machine import check_folders
if os.geteuid() == 0:  # who may write everywhere
    os.seteuid(65534)
print(json.dumps({f.name: [f.level, f.message] for f in check_folders(Machine(state_folder=Path(sys.argv[1])))}))
"""


@pytest.mark.skipif(os.name != "posix", reason="rights of POSIX")
def test_a_folder_that_cannot_be_written_is_a_problem():
    folder = Path(tempfile.mkdtemp(prefix="hiero-doctor-"))  # pytest's own folders are closed to others
    environment = {**os.environ, "HIERO_HOME": str(folder / "home")}

    def look():
        findings = json.loads(run_python(FOLDERS_AS_NOBODY, folder, env=environment).stdout)
        return {name: finding for name, finding in findings.items() if name.startswith("writing")}

    try:
        folder.chmod(0o555)
        findings = look()
        for name in ("writing cache", "writing state"):
            level, message = findings[name]
            assert level == "problem"
            assert "Permission denied" in message
        assert findings["writing temp"][0] == "ok"
        folder.chmod(0o777)
        assert {level for level, _ in look().values()} == {"ok"}
        assert list(folder.iterdir()) == []  # nothing is left behind
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_file_in_place_of_a_folder_is_a_problem(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "file" / "home"))
    assert check("folders")["folder cache"].level == "problem"


# The server


def make_state(folder):
    from hiero.serve.state import FILE_NAME, State

    state = State(folder)
    for i in range(200):
        state.add_token(f"person{i}", "view", os.urandom(32))
    state.close()
    return folder / FILE_NAME


def test_a_state_that_is_whole(tmp_path):
    machine = Machine(state_folder=tmp_path / "state")
    assert "creates it" in check("state", machine)["state"].message
    file = make_state(tmp_path / "state")
    assert check("state", machine)["state"].level == "ok"
    assert "works in " + str(tmp_path / "state") in check("sqlite", machine)["sqlite"].message
    assert sorted(path.name for path in file.parent.iterdir() if "doctor" in path.name) == []
    (tmp_path / "state").chmod(0o755)
    file.chmod(0o644)
    assert "chmod 700" in check("state", machine)["state"].advice


def test_a_damaged_state_is_a_problem(tmp_path):
    file = make_state(tmp_path / "state")
    data = bytearray(file.read_bytes())
    data[3 * 4096 : 3 * 4096 + 64] = os.urandom(64)  # the head of a page
    file.write_bytes(data)
    finding = check("state", Machine(state_folder=file.parent))["state"]
    assert finding.level == "problem"
    assert "from a backup" in finding.advice
    file.write_bytes(b"not a database at all" * 100)
    assert check("state", Machine(state_folder=file.parent))["state"].level == "problem"


def test_a_state_of_a_later_version_is_a_problem(tmp_path):
    file = make_state(tmp_path / "state")
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA user_version = 1000")
    finding = check("state", Machine(state_folder=file.parent))["state"]
    assert (finding.level, "upgrade" in finding.advice) == ("problem", True)


def test_sqlite(monkeypatch, tmp_path):
    assert check("sqlite")["sqlite"].level == "ok"
    monkeypatch.setattr(server, "file_system_of", lambda folder: "nfs4")
    assert check("sqlite", Machine(state_folder=tmp_path))["sqlite"].level == "warning"
    monkeypatch.setattr(server, "_try_wal", lambda path: "delete")
    assert check("sqlite")["sqlite"].level == "problem"
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 7, 0))
    assert "too old" in check("sqlite")["sqlite"].message


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_file_systems():
    assert server.file_system_of(Path("/proc")) == "proc"
    assert server.file_system_of(Path("/")) not in ("", "proc")


def test_a_port_that_is_taken_is_a_warning():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert check("port", Machine(port=port))[f"port {port}"].level == "warning"
    assert check("port", Machine(port=0))["port 0"].level == "ok"
    assert check("port", Machine(port=70000))["port 70000"].level == "warning"


class Hub(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.authorization = self.headers.get("Authorization")
        self.send_response(404)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_other_machines_are_asked_only_with_online_and_no_password_is_shown(monkeypatch, home):
    hub = HTTPServer(("127.0.0.1", 0), Hub)
    Thread(target=hub.serve_forever, daemon=True).start()
    try:
        monkeypatch.setenv("HF_ENDPOINT", f"http://somebody:secret@127.0.0.1:{hub.server_port}")
        monkeypatch.setenv("PIP_INDEX_URL", "http://other:secret@127.0.0.1:1/simple")
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        assert check("network") == {}
        assert not hasattr(hub, "authorization")
        run = doctor.load_checks()["network"]
        answered, refused = run(Machine(online=True))
        assert hub.authorization is not None
        assert (answered.level, refused.level) == ("ok", "warning")
        assert "secret" not in str(answered) + str(refused)
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        findings = list(run(Machine(online=True)))
        assert (findings[-1].level, "--source" in findings[-1].advice) == ("problem", True)
    finally:
        hub.shutdown()
        hub.server_close()


# All of them


def test_a_check_that_fails_itself_is_a_problem_and_the_others_go_on(monkeypatch):
    def broken(_):
        raise OSError(5, "Input/output error")
        yield

    names: list[str] = []
    checks = {"broken": broken, "python": machine.check_python}
    monkeypatch.setattr(doctor, "load_checks", lambda: checks)
    first, second = diagnose(Machine(), names.append)
    assert (first.level, second.level) == ("problem", "ok")
    assert "Input/output error" in first.message
    assert names == ["broken", "python"]


def run_doctor(tmp_path, *arguments):
    environment = {**os.environ, "HIERO_HOME": str(tmp_path / "home"), "HIERO_WEIGHTS": ""}
    command = [sys.executable, "-X", "importtime", "-m", "hiero", "doctor", "--fast", "--port=0", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_the_command(tmp_path):
    done = run_doctor(tmp_path, "--json", "--state", str(tmp_path / "state"))
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"]) == (0, True)
    assert document["counts"]["warning"] >= 3  # the weights are not here
    assert {"name", "level", "message", "advice", "elapsed_s"} == set(document["findings"][0])
    assert not any(line.endswith(" torch") for line in done.stderr.splitlines())  # which takes long to import
    assert list(tmp_path.iterdir()) == []


def test_the_command_with_a_problem(tmp_path):
    (tmp_path / "state").write_text("")
    done = run_doctor(tmp_path, "--state", str(tmp_path / "state"))
    assert done.returncode == 1
    assert "problem folder state" in done.stdout.replace("  ", " ")
    assert done.stdout.splitlines()[-1].endswith("1 problem")
