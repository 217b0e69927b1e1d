"""The image, the compose file and the unit say what docs/guides/deploy.md promises. make image-test builds
and runs the image.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from hiero.cli import app
from hiero.cli.doctor import DEFAULT_WEIGHTS
from hiero.storage.weights import REGISTRY
from tests.optional import program_or_skip

ROOT = Path(__file__).parent.parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
UNIT = (ROOT / "deploy/hiero.service").read_text()


def instructions() -> list[tuple[str, str]]:
    """(instruction, its arguments) of the Dockerfile; lines that go on joined, comments dropped."""
    lines = [line for line in DOCKERFILE.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in joined.splitlines()]


def check_command(words: list[str]) -> None:
    """Words after `hiero` are a command whose options exist."""
    function, _, unused, *_ = app.parse_known_args(words)
    assert function.__name__ == "serve"
    assert not unused


def test_the_image_runs_without_root_and_gets_only_what_it_copies():
    values = dict(instructions())  # the last of each, which is that of the last stage
    assert values["USER"] == "10001:10001"
    own = [value for name, value in instructions() if name == "COPY" and "--from" not in value]
    copied = {source for value in own for source in value.split()[:-1]}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored  # first nothing, then what is named
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert all((ROOT / name).exists() for name in copied)
    assert PROJECT["readme"] in copied  # else hatchling does not build


def test_the_image_has_extras_and_weights_that_exist():
    arguments = dict(value.split("=", 1) for name, value in instructions() if name == "ARG")
    assert set(arguments["EXTRAS"].split(",")) <= set(PROJECT["optional-dependencies"])
    names = shlex.split(arguments["WEIGHTS"])[0].split()
    assert tuple(names) == DEFAULT_WEIGHTS
    assert all(name in REGISTRY for name in names)


def test_the_image_s_own_command():
    values = dict(instructions())
    assert values["ENTRYPOINT"] == '["hiero"]'
    check_command([word.strip('"') for word in values["CMD"].strip("[]").split(", ")])
    probe = re.search(r"CMD (\[.*\])", values["HEALTHCHECK"])[1]
    assert "127.0.0.1:8400/healthz" in probe
    compile(re.search(r'"-c", "(.*)"\]', probe)[1], "probe", "exec")


def test_compose():
    yaml = pytest.importorskip("yaml", reason="reads compose.yaml")
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    service = compose["services"]["hiero"]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "ports" not in service  # only the proxy reaches it
    assert [volume.rsplit(":", 1)[-1] for volume in service["volumes"]] == ["ro", "/var/lib/hiero", "/var/cache/hiero"]
    assert {volume.split(":")[0] for volume in service["volumes"][1:]} <= set(compose["volumes"])
    check_command([re.sub(r"\$\{HIERO_JOBS:-(\d+)\}", r"\1", word) for word in service["command"]])
    # Headers are believed of the proxy alone, by its fixed address.
    proxy = compose["services"]["caddy"]
    assert f"--trusted-proxy={proxy['networks']['web']['ipv4_address']}" in service["command"]
    assert proxy["environment"]["HIERO_UPSTREAM"] == service["networks"]["web"]["ipv4_address"] + ":8400"
    gpu = yaml.safe_load((ROOT / "deploy/compose.gpu.yaml").read_text())["services"]
    assert set(gpu) <= set(compose["services"])


def test_the_unit_s_command():
    command = re.search(r"^ExecStart=(.*)$", UNIT, re.MULTILINE)[1]
    options = re.search(r"HIERO_OPTIONS=(.*)$", UNIT, re.MULTILINE)[1]
    for variable, value in (("$HIERO_VIDEOS", "/srv/videos"), ("$HIERO_OPTIONS", options), ("%S", "/var/lib")):
        command = command.replace(variable, value)
    assert command.split()[0] == "/opt/hiero/bin/hiero"
    check_command(command.split()[1:])


def test_the_unit_limits_memory_tasks_and_files():
    limits = dict(line.split("=", 1) for line in UNIT.splitlines() if "=" in line)
    assert all(limits.get(name) for name in ("MemoryMax", "TasksMax", "LimitNOFILE"))


@pytest.mark.parametrize("has_gpu", [False, True])
def test_the_unit_is_valid_and_hardened(tmp_path, has_gpu):
    program_or_skip("systemd")
    unit = tmp_path / "hiero.service"
    unit.write_text(UNIT.replace("/opt/hiero/bin/hiero", shutil.which("true")))
    if has_gpu:
        (tmp_path / "hiero.service.d").mkdir()
        shutil.copy(ROOT / "deploy/hiero.service.d/gpu.conf", tmp_path / "hiero.service.d")
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "hiero" in line]) == (0, [])
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze cannot judge a file")
    if not has_gpu:
        assert done.returncode == 0, done.stdout[-300:]  # exposure of at most 2.0 of 10
