"""A process that decodes parts of videos (`hiero.decoding.decode_worker`), and the memory that it
shares with this one.
"""

from __future__ import annotations

import functools
import json
import mmap
import os
import queue
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass

import numpy as np

from hiero.child_process import python_command
from hiero.decoding.decode_worker import PartReply, PartTask

NUM_MEMORIES = 2  # of a worker: it fills one while the other is read
CLOSE_TIMEOUT_S = 1.0
CPU = "cpu"  # in place of the number of a GPU


class FailedPartError(Exception):
    """The process is well, but the part does not decode as it should."""


@dataclass
class DecodedPart:
    """A part that is decoded, or why it is not."""

    task: PartTask
    reply: PartReply | None
    error: str | None
    pictures: np.ndarray
    on_release: Callable[[], None] | None = None

    def release(self) -> None:
        """Give the memory back to its worker."""
        self.pictures = np.empty(0, np.uint8)
        if self.on_release is not None:
            self.on_release()
            self.on_release = None


class PartWorker:
    """A process that decodes parts, one at a time, each into one of its memories. One that dies is started again."""

    def __init__(self, gpu: int | None = None) -> None:
        self.gpu = gpu
        self.free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(NUM_MEMORIES):
            self.free.put(number)
        self.process: subprocess.Popen[str] | None = None
        self.num_tasks = 0
        self.descriptors = [os.memfd_create("hiero-pictures") for _ in range(NUM_MEMORIES)]
        self.memories: list[mmap.mmap | None] = [None] * NUM_MEMORIES

    def decode(self, task: PartTask, num_bytes: int, number: int) -> DecodedPart:
        """Decode a part."""
        try:
            memory = self._map(number, num_bytes)
            reply = self._ask(task, len(memory), number)
        except Exception as error:  # whatever it is, whoever waits must hear of it
            if not isinstance(error, FailedPartError):  # it died, or says something else: another process begins anew
                self.close(kill=True)
            self.free.put(number)
            return DecodedPart(task, None, str(error) or type(error).__name__, np.empty(0, np.uint8))
        pixels = np.frombuffer(memory, np.uint8, reply.num_pictures * task.picture_bytes)
        pictures = pixels.reshape(reply.num_pictures, *task.shape, 3)
        return DecodedPart(task, reply, None, pictures, functools.partial(self.free.put, number))

    def _ask(self, task: PartTask, num_bytes: int, number: int) -> PartReply:
        process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        self.num_tasks += 1
        fields = {"id": self.num_tasks, "memory": number, "num_bytes": num_bytes, **asdict(task)}
        process.stdin.write(json.dumps(fields) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        if answer.pop("id") != self.num_tasks:
            raise ValueError("the answer to another task")
        if "error" in answer:
            raise FailedPartError(answer["error"])
        answer["shown"], answer["warnings"] = tuple(answer["shown"]), tuple(answer["warnings"])
        return PartReply(**answer)

    def rest(self) -> None:
        """Let the process close its file and give the GPU's memory back: no part has come for a while."""
        process = self.process  # once: another thread may close it
        if self.gpu is not None and process is not None and process.stdin is not None:
            with suppress(OSError, ValueError):  # it has died, or was closed
                process.stdin.write("\n")
                process.stdin.flush()

    def _map(self, number: int, num_bytes: int) -> mmap.mmap:
        """Memory of at least this size. It grows, and shrinks never."""
        memory = self.memories[number]
        if memory is None or len(memory) < num_bytes:
            os.ftruncate(self.descriptors[number], num_bytes)
            memory = self.memories[number] = mmap.mmap(self.descriptors[number], num_bytes)
        return memory

    def _start(self) -> subprocess.Popen[str]:
        """The process; another where it has died."""
        if self.process is not None and self.process.poll() is not None:
            self.close()
        if self.process is None:
            decoder = CPU if self.gpu is None else str(self.gpu)
            self.process = subprocess.Popen(
                python_command("hiero.decoding.decode_worker", decoder, *map(str, self.descriptors)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                pass_fds=self.descriptors,
            )
        return self.process

    def end_input(self) -> None:
        """Say that no part comes any more, and do not wait for the end."""
        process = self.process
        if process is not None and process.stdin is not None:
            with suppress(OSError, ValueError):  # of what was not sent
                process.stdin.close()

    def close(self, kill: bool = False) -> None:
        """End the process, which ends with its input; or at once."""
        if kill and self.process is not None:
            self.process.kill()
        self.end_input()
        process, self.process = self.process, None
        if process is None or process.stdout is None:
            return
        try:
            process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
