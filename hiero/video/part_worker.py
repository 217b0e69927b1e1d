"""Who decodes parts of videos for a pool (`hiero.video.parallel_decode`): a process or a thread, with memory for their pictures."""

from __future__ import annotations

import functools
import queue
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hiero.video.decode_worker import PartReply, PartTask

NUM_MEMORIES = 2  # of a worker: it fills one while the other is read


@dataclass
class DecodedPart:
    """A part that is decoded, or why it is not.

    Attributes:
        task: The part.
        reply: What it shows.
        error: Why there is no reply.
        pictures: (N, H, W, 3) uint8, until `release`.
        on_release: Gives the memory back.
    """

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


class PartWorker(ABC):
    """Decodes parts, one at a time, each into one of its memories.

    Attributes:
        free: Numbers of its memories that nobody reads.
    """

    def __init__(self) -> None:
        self.free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(NUM_MEMORIES):
            self.free.put(number)

    def decode(self, task: PartTask, num_bytes: int, number: int) -> DecodedPart:
        """Decode a part.

        Args:
            task: The part.
            num_bytes: Memory for its pictures at most.
            number: Of a memory that is free.
        """
        try:
            reply, pixels = self._decode(task, num_bytes, number)
        except Exception as error:  # whatever it is, whoever waits must hear of it
            self._recover(task, error)
            self.free.put(number)
            return DecodedPart(task, None, str(error) or type(error).__name__, np.empty(0, np.uint8))
        pictures = pixels[: reply.num_pictures * task.picture_bytes].reshape(reply.num_pictures, *task.shape, 3)
        return DecodedPart(task, reply, None, pictures, functools.partial(self.free.put, number))

    @abstractmethod
    def _decode(self, task: PartTask, num_bytes: int, number: int) -> tuple[PartReply, np.ndarray]:
        """What a part shows, and the memory (N,) uint8 that begins with its pictures."""

    @abstractmethod
    def _recover(self, task: PartTask, error: Exception) -> None:
        """Make ready for the next part, after an error."""

    @abstractmethod
    def rest(self) -> None:
        """Give back what only the next part of a video would need: none has come for a while."""

    @abstractmethod
    def close(self) -> None:
        """Give back what it holds, or stop as soon as possible."""
