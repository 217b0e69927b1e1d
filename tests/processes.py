"""Commands, programs and the workers of a run in processes of their own, without waiting for each to import torch.

They are forked from a process that has imported it (the forkserver of multiprocessing), which takes
milliseconds where `python -m hiero` takes seconds. Like those they have their own memory,
environment, signals, limits and exit code.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from types import TracebackType
from typing import IO, Any

# None of these starts a thread, which a fork would lose. lancedb and onnxruntime do; what lancedb
# imports in turn does not.
PRELOADED = [
    "torch",
    "scipy.linalg",
    "safetensors.torch",
    "av",
    "lance_namespace",
    "pandas",
    "pyarrow.dataset",
    "uvicorn",
    "hiero.cli",
    "hiero.engine.engine",
    "hiero.extraction.collection",
    "hiero.model.embed_files",
    "hiero.model.released",
    "hiero.data.stores",
    "hiero.serve.server",
    "hiero.training.from_files",
    "hiero.text.minilm",
    "lightning_fabric",
    "torch.utils.tensorboard",
    "transformers.models.distilbert.modeling_distilbert",
]
# What several test modules import besides.
PRELOADED_FOR_WORKERS = [
    "pytest",
    "hypothesis.extra.numpy",
    "sklearn.cluster",
    "sklearn.metrics",
    "matplotlib.pyplot",
    "peft",
    "starlette.testclient",
    "httpx",
    "jsonschema",
    "playwright.sync_api",
    "opentimelineio",
    "ray",
    "onnx",
    "skimage",
]
FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(["tests.preloading", *PRELOADED])
ADDRESS = "HIERO_TESTS_FORKSERVER"


def share_forkserver() -> None:
    """Start the process to fork from, for this process and all workers that it starts from now on."""
    if sys.version_info < (3, 14):  # from then on it serves those alone who know its key
        FORKSERVER.set_forkserver_preload(["tests.preloading", *PRELOADED, *PRELOADED_FOR_WORKERS])
        forkserver.ensure_running()
        os.environ[ADDRESS] = forkserver._forkserver._forkserver_address


def end_forkserver() -> None:
    """End the process to fork from at once; by itself it would take seconds to forget what it has imported."""
    if (pid := forkserver._forkserver._forkserver_pid) is not None:
        os.kill(pid, signal.SIGKILL)


def join_forkserver() -> None:
    """Use the process to fork from of the whole run, where there is one."""
    if ADDRESS in os.environ:
        forkserver._forkserver._forkserver_address = os.environ[ADDRESS]
        # is handed on; the run holds the real one
        forkserver._forkserver._forkserver_alive_fd = os.open(os.devnull, os.O_RDONLY)
        forkserver._forkserver.ensure_running = resource_tracker.ensure_running


def worker_interpreter() -> str | None:
    """What xdist starts its workers with in place of `python`, such that they are forked too; None
    where they cannot be.
    """
    code = "from tests.processes import fork_worker; fork_worker()"
    return shlex.join([sys.executable, "-c", code]) if ADDRESS in os.environ else None


def fork_worker() -> None:
    """Run the code of the last argument in a forked process with the files of this one, and end as it ends."""
    join_forkserver()
    files = tuple(Connection(os.dup(number), readable=number == 0, writable=number > 0) for number in range(3))
    code = f"from tests.processes import join_forkserver; join_forkserver(); {sys.argv[-1]}"
    process = FORKSERVER.Process(target=_run, args=(files, code, [], dict(os.environ), None, os.getcwd()))  # noqa: PTH109
    process.start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run ends its workers
    process.join()
    sys.exit(process.exitcode)


class Program:
    """A running process, with the methods of `subprocess.Popen` that tests use.

    Attributes:
        pid: Of the process.
        stdout: What it prints, as text.
        stderr: What it prints there, as text.
    """

    def __init__(
        self,
        target: str | None,
        *arguments: object,
        env: Mapping[str, str] | None = None,
        stdin: int | None = None,
        limit_bytes: int | None = None,
    ) -> None:
        """Start it.

        Args:
            target: Python code; None for the command `hiero`.
            arguments: Of the program.
            env: Its environment, of this process if None.
            stdin: An open file for its standard input, which is empty if None.
            limit_bytes: No file may grow beyond this size.
        """
        readers, writers = zip(*(FORKSERVER.Pipe(duplex=False) for _ in range(2)), strict=True)
        with open(os.devnull) as empty:  # noqa: PTH123
            source = Connection(os.dup(empty.fileno() if stdin is None else stdin), writable=False)
        environment = dict(os.environ if env is None else env)
        settings = (target, [*map(str, arguments)], environment, limit_bytes, os.getcwd())  # noqa: PTH109
        self._process = FORKSERVER.Process(target=_run, args=((source, *writers), *settings), daemon=True)
        self._process.start()
        self.pid = self._process.pid
        self.stdout, self.stderr = (os.fdopen(os.dup(reader.fileno()), errors="backslashreplace") for reader in readers)
        for connection in (source, *writers, *readers):
            connection.close()

    def poll(self) -> int | None:
        """The exit code, or minus the signal that ended it; None while it runs."""
        return self._process.exitcode

    returncode = property(poll)

    def wait(self, timeout: float = 60.0) -> int:
        """Wait for its end; the exit code."""
        self._process.join(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("hiero", timeout)
        return code

    def communicate(self, timeout: float = 60.0) -> tuple[str, str]:
        """Wait for its end; what it printed to both of its outputs."""
        with ThreadPoolExecutor(2) as pool:
            reading = [pool.submit(_read_and_close, file) for file in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
            return reading[0].result(), reading[1].result()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It does not outlive the test."""
        self.kill()
        self.wait()

    def __del__(self) -> None:
        self.stdout.close()
        self.stderr.close()


def start_hiero(*arguments: object, **options: Any) -> Program:
    """`hiero` with arguments; options as those of `Program`."""
    return Program(None, *arguments, **options)


def start_python(code: str, *arguments: object, **options: Any) -> Program:
    """Python code whose sys.argv is `-c` and the arguments; options as those of `Program`."""
    return Program(code, *arguments, **options)


def run_hiero(*arguments: object, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """`hiero` with arguments to its end; fails where it fails, unless `check` is False."""
    return _finish(start_hiero(*arguments, **options), check)


def run_python(code: str, *arguments: object, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Python code to its end; fails where it fails, unless `check` is False."""
    return _finish(start_python(code, *arguments, **options), check)


def _finish(program: Program, check: bool) -> subprocess.CompletedProcess[str]:
    out, errors = program.communicate(120.0)
    result = subprocess.CompletedProcess("hiero", program.poll(), out, errors)
    assert not check or result.returncode == 0, result.stderr
    return result


def _read_and_close(file: IO[str]) -> str:
    with file:
        return file.read()


def _run(
    files: tuple[Connection, ...],
    target: str | None,
    arguments: list[str],
    environment: dict[str, str],
    limit_bytes: int | None,
    folder: str,
) -> None:
    """What the forked process does."""
    gc.freeze()
    gc.enable()
    for number, file in enumerate(files):
        os.dup2(file.fileno(), number)
        file.close()
    sys.stdin, sys.stdout = (open(number, mode, closefd=False) for number, mode in enumerate("rw"))  # noqa: SIM115
    sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [
        path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path
    ]
    os.setsid()
    # a shell in the background ignores it, and children inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if limit_bytes is not None:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
    import torch

    torch.set_num_threads(1)
    multiprocessing.current_process()._config["daemon"] = False  # it may have children itself
    main: Callable[[], object]
    if target is None:
        from hiero.__main__ import main

        sys.argv = ["hiero", *arguments]
    else:
        code = compile(target, "<string>", "exec")
        sys.argv = ["-c", *arguments]
        main = lambda: exec(code, {"__name__": "__main__"})  # noqa: E731
    main()
