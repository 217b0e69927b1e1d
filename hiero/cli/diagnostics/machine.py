"""Checks of Python, hiero and its packages, the folders hiero writes to, and GPUs."""

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
from hiero.cli.diagnostics import GIB, Finding, Machine, first_line, ok, problem, warning
from hiero.devices import num_usable_cores
from hiero.plugins import DISTRIBUTION, read_project
from hiero.storage.files import available_bytes, home

MIN_MEMORY_BYTES = 2 * GIB  # a long video may need more
FULL_DISK_BYTES = 200 * 2**20  # a disk with less free space counts as full
# What fails without an extra of pyproject.toml. Other extras are optional.
NEEDED_EXTRAS = {"video": "no video can be read", "serve": "hiero serve, hiero index and hiero search do not work"}
TOOL_EXTRAS = ("dev", "docs")  # for the development of hiero
MODULE_NAMES = {"pillow": "PIL", "scikit-learn": "sklearn"}  # modules not named after their package
REQUIREMENT = re.compile(r"(?P<package>[\w.-]+)(?:\[[\w,-]+\])?\s*(?:>=\s*(?P<minimum>\d+(?:\.\d+)*))?")


def check_python(_: Machine) -> Iterator[Finding]:
    """The interpreter, the processor and the memory."""
    available = available_bytes()
    memory = "" if available is None else f", {available / GIB:.1f} GiB of memory free"
    system = f"{platform.system()} {platform.machine()}, {num_usable_cores()} CPU cores"
    message = f"{platform.python_version()}, {system}{memory}"
    if available is not None and available < MIN_MEMORY_BYTES:
        advice = "long videos need 2 GiB: close other programs, or raise the memory limit of the container"
        yield warning("python", message, advice)
    else:
        yield ok("python", message)


def check_hiero(_: Machine) -> Iterator[Finding]:
    """The version of hiero that runs and the installed one."""
    message = f"{hiero.__version__} in {Path(hiero.__file__).parent}"
    try:
        installed = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        yield warning("hiero", f"{message}, not installed", "plug-ins need an installation: pip install .")
        return
    if installed != hiero.__version__:
        advice = f"reinstall one of them: pip install {DISTRIBUTION}=={hiero.__version__}"
        yield warning("hiero", f"{message}, but version {installed} is installed", advice)
    else:
        yield ok("hiero", message)


def check_packages(_: Machine) -> Iterator[Finding]:
    """Required packages, and those of the extras."""
    for extra, packages in read_requirements().items():
        if extra in TOOL_EXTRAS:
            continue
        installed: list[str] = []
        missing: list[str] = []
        for package, minimum in packages.items():
            version = _installed_version(package)
            if version is None:
                missing.append(package)
            elif _parse_version(version) < _parse_version(minimum):
                missing.append(f"{package} {minimum} or later, not {version}")
            else:
                installed.append(f"{package} {version}")
        name = f"packages [{extra}]" if extra else "packages"
        command = f"pip install '{DISTRIBUTION}[{extra}]'"
        parts = {"": installed, "missing: ": missing}
        message = "; ".join(prefix + ", ".join(names) for prefix, names in parts.items() if names)
        if not missing:
            yield ok(name, message)
        elif not extra:
            yield problem(name, message, f"pip install {DISTRIBUTION}")
        elif extra in NEEDED_EXTRAS:
            yield warning(name, f"{message}; {NEEDED_EXTRAS[extra]}", command)
        else:  # a partly installed extra is probably a mistake
            yield Finding(name, "warning" if installed else "ok", f"{message} (optional)", f"optional: {command}")


def read_requirements() -> dict[str, dict[str, str]]:
    """The minimum version of each package by extra; packages that are always required have the empty name."""
    project = read_project()
    out: dict[str, dict[str, str]] = {}
    for extra, requirements in {"": project["dependencies"], **project["optional-dependencies"]}.items():
        matches = filter(None, map(REQUIREMENT.match, requirements))
        out[extra] = {match["package"]: match["minimum"] or "0" for match in matches}
    return out


def _installed_version(package: str) -> str | None:
    """The version of a package; None if it, or its module, is missing."""
    try:
        version = metadata.version(package)
        module = MODULE_NAMES.get(package.lower(), package.replace("-", "_"))
        return version if importlib.util.find_spec(module) is not None else None
    except (ImportError, ValueError):  # PackageNotFoundError is an ImportError
        return None


def _parse_version(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: 2.13.0+cpu is (2, 13, 0)."""
    leading = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in leading[0].split(".")) if leading else ()


def check_folders(machine: Machine) -> Iterator[Finding]:
    """Free space and write permission in the folders hiero writes to."""
    folders = {
        "cache": (home(), 5 * GIB, "set HIERO_HOME to another folder"),
        "temp": (Path(tempfile.gettempdir()), GIB // 2, "set TMPDIR to another folder"),
    }
    if machine.state_folder is not None:
        folders["state"] = (machine.state_folder, GIB, "choose another --state")
    for name, (folder, wanted_bytes, advice) in folders.items():
        existing = next((parent for parent in (folder, *folder.absolute().parents) if parent.exists()), None)
        if existing is None or not existing.is_dir():
            yield problem(f"folder {name}", f"{folder}: {existing or folder} is not a folder", advice)
            continue
        yield _check_space(name, folder, existing, wanted_bytes, advice)
        try:
            with tempfile.TemporaryFile(dir=existing) as file:
                file.write(bytes(4096))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            user = f"user {os.geteuid()}" if hasattr(os, "geteuid") else "this user"
            advice = f"give {user} write permission, or {advice}"
            yield problem(f"writing {name}", f"{folder}: {error.strerror or error}", advice)
        else:
            yield ok(f"writing {name}", f"{folder}{'' if existing == folder else ' (created on first use)'}")


def _check_space(name: str, folder: Path, existing: Path, wanted_bytes: int, advice: str) -> Finding:
    name = f"disk {name}"
    free = shutil.disk_usage(existing).free
    message = f"{free / GIB:.1f} GiB free in {folder}"
    inodes = os.statvfs(existing) if hasattr(os, "statvfs") else None
    if inodes is not None and inodes.f_files > 0 and inodes.f_favail == 0:  # f_files is 0 where inodes are not counted
        return problem(name, f"{message}, but no inodes for further files", f"delete files, or {advice}")
    if free < FULL_DISK_BYTES:
        return problem(name, f"full: {message}", f"free some space, or {advice}")
    if free < wanted_bytes:
        return warning(name, message, f"{wanted_bytes / GIB:.1f} GiB are recommended: free some space, or {advice}")
    return ok(name, message)


def check_gpu(machine: Machine) -> Iterator[Finding]:
    """GPUs, and whether the installed torch can compute on them. torch is imported only if it supports a GPU."""
    gpus, build = find_nvidia_gpus(), _torch_gpu_build()
    is_for_amd = build is not None and build.startswith("ROCm")
    if platform.system() == "Darwin":
        yield ok("gpu", "Apple GPU, used with --device mps")
    elif not gpus and not is_for_amd:
        surplus = f"; this torch is built for {build} and larger than the one for CPUs" if build else ""
        yield ok("gpu", f"no NVIDIA GPU, networks run on the CPU{surplus}")
    elif not is_for_amd and not any(Path("/dev").glob("nvidia[0-9]*")):
        advice = "in a container, install the NVIDIA container toolkit and start it with --gpus all"
        yield warning("gpu", f"{', '.join(gpus)}: installed but not accessible", advice)
    elif build is None:
        index = "https://download.pytorch.org/whl/cu130"
        advice = f"pip install torch --force-reinstall --index-url {index} (for the CUDA version of your driver)"
        yield warning("gpu", f"{', '.join(gpus)}: not used, because this torch is built for CPUs only", advice)
    elif machine.fast:
        yield ok("gpu", f"{', '.join(gpus) or 'AMD'}; torch is built for {build} (not tested because of --fast)")
    else:
        yield from _try_gpus(build)


def _try_gpus(build: str) -> Iterator[Finding]:
    import torch

    if not torch.cuda.is_available():
        advice = f"update the driver to one for {build}, or install a torch for your driver (see nvidia-smi)"
        yield problem("gpu", f"torch for {build} cannot use any GPU", advice)
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
    """Names of NVIDIA GPUs as listed by the driver."""
    names = []
    for information in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        model = re.search(r"Model:\s*(.+)", information.read_text(errors="replace"))
        names.append(model[1].strip() if model else information.parent.name)
    return names or [device.name for device in sorted(Path("/dev").glob("nvidia[0-9]*"))]


def _torch_gpu_build() -> str | None:
    """The platform that torch is built for, such as CUDA 13.0, read from its files; None for CPUs."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    for name, kind in (("cuda", "CUDA"), ("hip", "ROCm")):
        if version := re.search(rf"^{name}\b[^=\n]*=\s*['\"](\d[\w.-]*)['\"]", text, re.MULTILINE):
            return f"{kind} {version[1]}"
    return None
