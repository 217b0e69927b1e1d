"""The machine: Python, hiero and its packages, folders that hiero writes to, GPUs."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import hiero
from hiero.cli.diagnostics.findings import GIB, Finding, Level, Machine, first_line, ok, problem, warning
from hiero.plugins import DISTRIBUTION, read_project
from hiero.storage.files import available_bytes, home

MIN_MEMORY_BYTES = 2 * GIB  # below this a long video may not fit
# What does not work without an extra of pyproject.toml. One that is not named here can do without.
NEEDED_EXTRAS = {"video": "no video can be read", "serve": "hiero serve, hiero index and hiero search do not work"}
TOOL_EXTRAS = ("dev", "docs")  # for work on hiero itself
MODULE_NAMES = {"pillow": "PIL", "scikit-learn": "sklearn"}  # where it is not the name of the package
REQUIREMENT = re.compile(
    r"""(?P<package>[\w.-]+)(?:\[[\w,-]+\])?\s*(?:>=\s*(?P<minimum>\d+(?:\.\d+)*))?[^;]*"""
    r"""(?:;.*extra\s*==\s*['"](?P<extra>[\w-]+)['"].*)?"""
)


def check_python(_: Machine) -> Iterator[Finding]:
    """The interpreter, the processor and the memory."""
    available = available_bytes()
    memory = "" if available is None else f", {available / GIB:.1f} GiB of memory free"
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    message = f"{platform.python_version()}, {platform.system()} {platform.machine()}, {num_cores} CPU cores{memory}"
    if available is not None and available < MIN_MEMORY_BYTES:
        yield warning("python", message, "long videos need 2 GiB: end other programs, or raise the container's limit")
    else:
        yield ok("python", message)


def check_hiero(_: Machine) -> Iterator[Finding]:
    """Which hiero runs, and whether it is the one that is installed."""
    message = f"{hiero.__version__} in {Path(hiero.__file__).parent}"
    try:
        installed = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        yield warning("hiero", f"{message}, not installed", "plug-ins need an installation: pip install .")
        return
    if installed != hiero.__version__:
        advice = f"install one of them again: pip install {DISTRIBUTION}=={hiero.__version__}"
        yield warning("hiero", f"{message}, while {installed} is installed", advice)
    else:
        yield ok("hiero", message)


def check_packages(_: Machine) -> Iterator[Finding]:
    """Packages that hiero needs, and those of its extras."""
    for extra, packages in read_requirements().items():
        if extra in TOOL_EXTRAS:
            continue
        there: list[str] = []
        missing: list[str] = []
        for package, minimum in packages.items():
            version = _installed_version(package)
            if version is None:
                missing.append(package)
            elif _parse_version(version) < _parse_version(minimum):
                missing.append(f"{package} {minimum} or later, not {version}")
            else:
                there.append(f"{package} {version}")
        name = f"packages [{extra}]" if extra else "packages"
        message = "; ".join(
            part for part in (", ".join(there), "missing: " + ", ".join(missing) if missing else "") if part
        )
        if not missing:
            yield ok(name, message)
        elif not extra:
            yield problem(name, message, f"pip install {DISTRIBUTION}")
        elif extra in NEEDED_EXTRAS:
            yield warning(name, f"{message}; {NEEDED_EXTRAS[extra]}", f"pip install '{DISTRIBUTION}[{extra}]'")
        else:  # of its own choice: half of it is more likely a mistake than none
            level: Level = "warning" if there else "ok"
            yield Finding(
                name, level, f"{message} (optional)", f"if you want it: pip install '{DISTRIBUTION}[{extra}]'"
            )


def read_requirements() -> dict[str, dict[str, str]]:
    """Extra → package → its smallest version; what is always needed under an empty name."""
    project = read_project()
    lines = list(project["dependencies"])
    for extra, requirements in project["optional-dependencies"].items():
        lines += [f"{requirement}; extra == '{extra}'" for requirement in requirements]
    out: dict[str, dict[str, str]] = {"": {}}
    for line in lines:
        if (match := REQUIREMENT.fullmatch(line)) is not None:
            out.setdefault(match["extra"] or "", {})[match["package"]] = match["minimum"] or "0"
    return out


def _installed_version(package: str) -> str | None:
    """None where it is not installed, or its module is not to be found."""
    try:
        version = metadata.version(package)
        module = MODULE_NAMES.get(package.lower(), package.replace("-", "_"))
        return version if importlib.util.find_spec(module) is not None else None
    except (ImportError, ValueError):  # PackageNotFoundError is an ImportError
        return None


def _parse_version(text: str) -> tuple[int, ...]:
    """Numbers of a version up to what is none: 2.13.0+cpu is (2, 13, 0)."""
    leading = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in leading[0].split(".")) if leading else ()


FULL_DISK_BYTES = 200 * 2**20  # below this nothing sensible can be written


def check_folders(machine: Machine) -> Iterator[Finding]:
    """Room, and the right to write, where hiero writes."""
    folders = {
        "cache": (home(), 5 * GIB, "set HIERO_HOME to a folder of yours"),
        "temp": (Path(tempfile.gettempdir()), GIB // 2, "set TMPDIR to another folder"),
    }
    if machine.state_folder is not None:
        folders["state"] = (machine.state_folder, GIB, "choose another --state")
    for name, (folder, wanted_bytes, advice) in folders.items():
        present = next((parent for parent in (folder, *folder.absolute().parents) if parent.exists()), None)
        if present is None or not present.is_dir():
            yield problem(f"folder {name}", f"{folder}: {present or folder} is no folder", advice)
            continue
        yield _check_room(name, folder, present, wanted_bytes, advice)
        try:
            with tempfile.TemporaryFile(dir=present) as file:
                file.write(bytes(4096))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            owner = f"give {_user_name()} the right to write there, or {advice}"
            yield problem(f"writing {name}", f"{folder}: {error.strerror or error}", owner)
        else:
            yield ok(f"writing {name}", str(folder) + ("" if present == folder else " (made on first use)"))


def _check_room(name: str, folder: Path, present: Path, wanted_bytes: int, advice: str) -> Finding:
    free = shutil.disk_usage(present).free
    message = f"{free / GIB:.1f} GiB free in {folder}"
    # Some file systems do not count files; those say 0 of 0.
    inodes = os.statvfs(present) if hasattr(os, "statvfs") else None
    if inodes is not None and inodes.f_files > 0 and inodes.f_favail == 0:
        return problem(
            f"disk {name}",
            f"{message}, but no further file can be made (inodes)",
            f"remove files, or {advice}",
        )
    if free < FULL_DISK_BYTES:
        return problem(f"disk {name}", f"full: {message}", f"make room, or {advice}")
    if free < wanted_bytes:
        return warning(f"disk {name}", message, f"{wanted_bytes / GIB:.1f} GiB are better: make room, or {advice}")
    return ok(f"disk {name}", message)


def _user_name() -> str:
    return f"user {os.geteuid()}" if hasattr(os, "geteuid") else "this user"


def check_gpu(machine: Machine) -> Iterator[Finding]:
    """GPUs, and whether this torch can compute on them. torch is imported only where both are there."""
    gpus, build = find_nvidia_gpus(), _torch_gpu_build()
    is_for_amd = build is not None and build.startswith("ROCm")
    if platform.system() == "Darwin":
        yield ok("gpu", "Apple's is used with --device mps")
    elif not gpus and not is_for_amd:
        surplus = f"; this torch is built for {build}, which is larger than the one for CPUs" if build else ""
        yield ok("gpu", f"no NVIDIA GPU: networks run on the CPU{surplus}")
    elif not is_for_amd and not any(Path("/dev").glob("nvidia[0-9]*")):
        advice = "in a container: install the NVIDIA container toolkit and start it with --gpus all"
        yield warning("gpu", f"{', '.join(gpus)}: in this machine, but not reachable from here", advice)
    elif build is None:
        advice = (
            "pip install torch --force-reinstall --index-url https://download.pytorch.org/whl/cu130 "
            "(your driver's CUDA)"
        )
        yield warning("gpu", f"{', '.join(gpus)}: not used, since this torch is built for CPUs only", advice)
    elif machine.fast:
        yield ok("gpu", f"{', '.join(gpus) or 'AMD'}; torch is built for {build} (not tried: --fast)")
    else:
        yield from _try_gpus(build)


def _try_gpus(build: str) -> Iterator[Finding]:
    import torch

    if not torch.cuda.is_available():
        advice = (
            f"update the driver to one for {build}, "
            "or install a torch for the driver that is here (nvidia-smi shows it)"
        )
        yield problem("gpu", f"torch for {build} can use none", advice)
        return
    for index in range(torch.cuda.device_count()):
        name = f"gpu cuda:{index}"
        try:
            total = torch.cuda.get_device_properties(index).total_memory
            free, _ = torch.cuda.mem_get_info(index)
            assert torch.ones(2, device=f"cuda:{index}").sum().item() == 2
        except (RuntimeError, AssertionError) as error:
            advice = "update the driver, or install a torch that is built for this GPU"
            yield problem(name, f"torch cannot compute on it: {first_line(error)}", advice)
            continue
        message = f"{torch.cuda.get_device_name(index)}, {free / GIB:.1f} of {total / GIB:.1f} GiB free, {build}"
        if any(shutil.which(compiler) for compiler in ("cc", "gcc", "clang")):
            yield ok(name, message)
        else:
            yield warning(name, f"{message}; no C compiler, which GPU kernels need", "apt install gcc libc6-dev")


def find_nvidia_gpus() -> list[str]:
    """Names of NVIDIA GPUs as the driver lists them, without a library of it."""
    names = []
    for information in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        model = re.search(r"Model:\s*(.+)", information.read_text(errors="replace"))
        names.append(model[1].strip() if model else information.parent.name)
    return names or [device.name for device in sorted(Path("/dev").glob("nvidia[0-9]*"))]


def _torch_gpu_build() -> str | None:
    """What torch is built for, such as CUDA 13.0, read from its files; None: for CPUs."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    for name, kind in (("cuda", "CUDA"), ("hip", "ROCm")):
        if version := re.search(rf"^{name}\b[^=\n]*=\s*['\"](\d[\w.-]*)['\"]", text, re.MULTILINE):
            return f"{kind} {version[1]}"
    return None
