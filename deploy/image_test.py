"""Build the image and use it as docs/guides/deploy.md says: python deploy/image_test.py, or make image-test

With buildah and podman, as root, without a daemon or a registry: unless one is named, the base is
Debian with its own Python, made by debootstrap. The container has no network, a read-only root and
no rights; it reads a made video, is stopped and started again.
"""

from __future__ import annotations

import argparse
import configparser
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
LOCAL_BASE = "localhost/hiero-base"
IMAGE = "localhost/hiero-image-test"
DEBIAN = "http://deb.debian.org/debian"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
BUILD_TIMEOUT_S = 1800.0
START_TIMEOUT_S = 120.0
JOB_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60
FPS, VIDEO = 10, [i // 60 * 30 for i in range(480)]  # greys of the frames
# A machine that is itself a container may not raise these limits.
LIMITS = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"]
HARDENED = [
    "--read-only",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    "--tmpfs=/tmp",
    "--network=none",
    *LIMITS,
]
REQUEST = """
import json, sys, urllib.request, urllib.error
method, path, token = sys.argv[1:]
headers = {"Authorization": "Bearer " + token} if token else {}
request = urllib.request.Request("http://127.0.0.1:8400" + path, method=method, headers=headers)
try:
    answer = urllib.request.urlopen(request, timeout=60)
except urllib.error.HTTPError as error:
    answer = error
print(json.dumps([answer.status, answer.read().decode()]))
"""


def run(*command: str, timeout_s: float = 120.0, check: bool = True) -> str:
    """What a command prints on standard output; where it fails, all that it prints, and the end."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    if check and done.returncode:
        sys.exit(
            f"{shlex.join(command[:6])} … failed ({done.returncode}):\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )
    return done.stdout.strip()


def report(line: str, begin: float | None = None) -> None:
    """Print a step that went well, with its time."""
    print("ok  " + line + (f"  ({time.monotonic() - begin:.0f} s)" if begin is not None else ""), flush=True)


class Podman:
    """podman with a runtime that works on this machine.

    Args:
        image: To try it with.
    """

    def __init__(self, image: str) -> None:
        for runtime in (None, "crun", "runc"):
            self.command = ["podman", *(["--runtime", runtime] if runtime else [])]
            if (
                subprocess.run(
                    [*self.command, "run", "--rm", "--entrypoint=true", *HARDENED, image], capture_output=True
                ).returncode
                == 0
            ):
                return
        sys.exit("podman cannot run containers here: install crun or runc, and run this as root")

    def __call__(self, *arguments: str, timeout_s: float = 120.0, check: bool = True) -> str:
        return run(*self.command, *arguments, timeout_s=timeout_s, check=check)


def make_base() -> str:
    """Debian with its Python as an image, made once."""
    if subprocess.run(["podman", "image", "exists", LOCAL_BASE]).returncode == 0:
        return LOCAL_BASE
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        packages = "--include=python3,python3-venv,ca-certificates"
        run("debootstrap", "--variant=minbase", packages, "bookworm", folder, DEBIAN, timeout_s=BUILD_TIMEOUT_S)
        with subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE) as archive:
            subprocess.run(["podman", "import", "-", LOCAL_BASE], stdin=archive.stdout, check=True, capture_output=True)
    report("base made by debootstrap", begin)
    return LOCAL_BASE


def pip_settings(folder: Path) -> list[str]:
    """Options that let pip in the build reach the same package indexes as pip here, by its settings
    and local folders.
    """
    listing = run(sys.executable, "-m", "pip", "config", "list")
    wanted = ("index-url", "extra-index-url", "find-links")
    settings: dict[str, str] = {}
    for line in listing.splitlines():
        name, _, value = line.partition("=")
        if name.rpartition(".")[2] in wanted:
            settings[name.rpartition(".")[2]] = value.strip("'\"")
    config = configparser.RawConfigParser()
    config["global"] = settings
    with (folder / "pip.conf").open("w") as file:
        config.write(file)
    mounts = {str(folder / "pip.conf"): "/etc/pip.conf"}
    if CERTIFICATES.is_file():
        mounts[str(CERTIFICATES)] = str(CERTIFICATES)
    for place in " ".join(settings.values()).split():
        path = Path(urllib.parse.urlsplit(place).path if place.startswith("file:") else place)
        # A folder of an index has its files beside it.
        path = path.parent if path.name == "simple" else path
        if path.is_absolute() and path.is_dir():
            mounts[str(path)] = str(path)
    return [f"--volume={source}:{target}:ro" for source, target in mounts.items()]


def build(base: str, options: list[str]) -> None:
    """The image, by buildah, which needs neither a daemon nor namespaces for it."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "buildah",
            "bud",
            "--layers",
            "--format=docker",
            "--isolation=chroot",
            "--network=host",
            f"--tag={IMAGE}",
        ]
        command += [*pip_settings(Path(folder)), f"--build-arg=BASE={base}", *options, str(ROOT)]
        run(*command, timeout_s=BUILD_TIMEOUT_S)
    size = int(json.loads(run("podman", "image", "inspect", IMAGE))[0]["Size"])
    report(f"image built, {size / 1e9:.1f} GB", begin)


def check_image(podman: Podman) -> None:
    """What the image says of itself, and what a process in it can do."""
    (image,) = json.loads(podman("image", "inspect", IMAGE))
    assert image["Config"]["User"] == "10001:10001", image["Config"]["User"]
    assert "healthz" in " ".join(image["Healthcheck"]["Test"])
    folders = "('/', '/opt/hiero', '/tmp')"
    inside = f"import os; print(os.getuid(), *(os.access(folder, os.W_OK) for folder in {folders}))"
    words = podman("run", "--rm", *HARDENED, "--entrypoint=python", IMAGE, "-c", inside)
    assert words == "10001 False False True", words
    status = podman(
        "run", "--rm", *HARDENED, "--entrypoint=grep", IMAGE, "-E", "^(CapEff|NoNewPrivs)", "/proc/self/status"
    ).split()
    assert int(status[1], 16) == 0, status
    assert status[3] == "1", status
    report("runs as user 10001, without capabilities, on a read-only root")


def check_doctor(podman: Podman) -> None:
    """hiero doctor finds no problem, and the weights are in the image."""
    begin = time.monotonic()
    findings = json.loads(podman("run", "--rm", *HARDENED, IMAGE, "doctor", "--json", check=False))
    problems = [finding for finding in findings["findings"] if finding["level"] != "ok"]
    assert findings["ok"], problems
    levels = {finding["name"]: finding["message"] for finding in findings["findings"]}
    for name in ("i3d-k400", "dinov2-text", "minilm"):
        assert levels[f"weights {name}"] == f"in /opt/hiero/share/weights/{name}, verified", levels[f"weights {name}"]
    report(f"hiero doctor: warnings: {[finding['name'] for finding in problems]}", begin)


def check_backup(podman: Podman, name: str) -> None:
    """A backup that is made while the server runs can be restored."""
    podman("exec", name, "hiero", "backup", "/var/lib/hiero", "/tmp/copy.tar")
    podman("exec", name, "hiero", "restore", "/tmp/copy.tar", "/tmp/copy")
    report("a backup, made while the server runs, can be restored")


def check_server(podman: Podman, videos: Path) -> None:
    """The image's own command: healthy, closed to strangers, reads a video, ends in time and remembers its people."""
    name = f"hiero-image-test-{time.time_ns()}"
    volumes = [
        f"--volume={name}-state:/var/lib/hiero",
        f"--volume={name}-cache:/var/cache/hiero",
        f"--volume={videos}:/videos:ro",
    ]

    def ask(method: str, path: str, token: str = "") -> tuple[int, str]:
        return tuple(json.loads(podman("exec", name, "python", "-c", REQUEST, method, path, token)))

    def start() -> None:
        begin = time.monotonic()
        podman("run", "--detach", f"--name={name}", *HARDENED, *volumes, IMAGE)
        (image,) = json.loads(podman("image", "inspect", IMAGE))
        probe = image["Healthcheck"]["Test"][1:]
        while subprocess.run([*podman.command, "exec", name, *probe], capture_output=True).returncode:
            if time.monotonic() - begin > START_TIMEOUT_S:
                sys.exit(f"not healthy after {START_TIMEOUT_S:.0f} s:\n{podman('logs', name, check=False)[-3000:]}")
            time.sleep(0.5)
        report("server is healthy", begin)

    def stop() -> None:
        begin = time.monotonic()
        podman("stop", f"--time={STOP_TIMEOUT_S}", name)
        code = podman("inspect", "--format={{.State.ExitCode}}", name)
        assert code == "0", (code, run(*podman.command, "logs", name)[-3000:])
        podman("rm", name)
        report("server ended by SIGTERM with exit code 0", begin)

    try:
        start()
        token = podman(
            "exec", name, "hiero", "serve", "token", "add", "tester", "--role=edit", "--root=/var/lib/hiero"
        ).split()[-1]
        assert ask("GET", "/api/videos")[0] == 401
        status, body = ask("GET", "/api/videos", token)
        assert status == 200, (status, body)
        (video,) = json.loads(body)["videos"]
        begin = time.monotonic()
        status, body = ask("POST", f"/api/videos/{video['id']}/read", token)
        assert status == 202, (status, body)
        while (job := json.loads(ask("GET", "/api/jobs", token)[1])[0])["state"] in ("waiting", "running"):
            assert time.monotonic() - begin < JOB_TIMEOUT_S, job
            time.sleep(1)
        assert job["state"] == "done", (job, podman("logs", name)[-3000:])
        status, body = ask("GET", f"/api/videos/{video['id']}/steps", token)
        assert status == 200, (status, body)
        report("a video was read, without any network", begin)
        check_backup(podman, name)
        memory = podman("exec", name, "grep", "VmHWM", "/proc/1/status").split()[1]
        cache = podman("exec", name, "du", "-sk", "/var/cache/hiero/cache").split()[0]
        report(
            f"memory: at most {int(memory) / 1e6:.2f} GB; cache of {len(VIDEO) / FPS:.0f} s of video: "
            f"{int(cache) / 1e3:.2f} MB"
        )
        stop()
        start()
        assert ask("GET", "/api/videos", token)[0] == 200
        report("the token is valid after a restart")
        stop()
    finally:
        podman("rm", "--force", name, check=False)
        podman("volume", "rm", "--force", f"{name}-state", f"{name}-cache", check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", help="the base image; by default one is made by debootstrap")
    parser.add_argument("--no-build", action="store_true", help="use the image that was built before")
    parser.add_argument(
        "build_options", nargs="*", help="for buildah, after --, such as --build-arg=TORCH_INDEX=ADDRESS"
    )
    arguments = parser.parse_args()
    missing = [
        tool
        for tool in ("buildah", "podman", *([] if arguments.base else ["debootstrap"]))
        if shutil.which(tool) is None
    ]
    if missing:
        sys.exit(f"needs {', '.join(missing)}: apt install buildah podman runc debootstrap")
    from tests.films import write_video

    if not arguments.no_build:
        build(arguments.base or make_base(), arguments.build_options)
    podman = Podman(IMAGE if arguments.no_build else arguments.base or LOCAL_BASE)
    check_image(podman)
    check_doctor(podman)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the user in the container is another
        write_video(Path(folder) / "kitchen.mp4", VIDEO, fps=FPS)
        check_server(podman, Path(folder))


if __name__ == "__main__":
    main()
