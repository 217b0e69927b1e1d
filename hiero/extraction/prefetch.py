"""Prefetching: iterate in a thread of its own, a few items ahead of the consumer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

PUT_TIMEOUT_S = 0.1  # how often a thread that waits for room in the queue checks whether it should stop
JOIN_TIMEOUT_S = 0.05


class Prefetcher:
    """A context manager that gives an iterator over `source`, which is read in a thread.

    Leaving the block, even by an error, ends the thread. Errors of the thread are raised by the iterator.

    Examples:
        >>> with Prefetcher(iter([1, 2, 3])) as items:
        ...     list(items)
        [1, 2, 3]
    """

    def __init__(self, source: Iterator[Any], num_ahead: int = 2) -> None:
        self.source = source
        self.queue: queue.Queue[Any] = queue.Queue(num_ahead)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._fill, daemon=True)

    def __enter__(self) -> Iterator[Any]:
        self.thread.start()
        return self._items()

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        while self.thread.is_alive():
            while not self.queue.empty():
                self.queue.get_nowait()
            self.thread.join(JOIN_TIMEOUT_S)

    def _items(self) -> Iterator[Any]:
        while True:
            kind, value = self.queue.get()
            if kind == "end":
                return
            if kind == "error":
                raise value
            yield value

    def _fill(self) -> None:
        try:
            for item in self.source:
                if self.stop.is_set():
                    return
                self._put("item", item)
            self._put("end", None)
        except BaseException as error:  # whatever it is belongs to the consumer
            self._put("error", error)

    def _put(self, kind: str, value: Any) -> None:
        while not self.stop.is_set():
            try:
                self.queue.put((kind, value), timeout=PUT_TIMEOUT_S)
                return
            except queue.Full:
                continue
