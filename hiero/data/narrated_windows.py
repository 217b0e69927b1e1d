"""Narrated windows: pieces of videos with the narrations that fall into them, as padded batches.

Two readers give the same batches: `NarratedWindows` reads features from a store as they are needed, `ResidentWindows` holds
everything in the memory of a device and only gathers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hiero.data.batches import node_times
from hiero.data.narrations import Narrations
from hiero.data.stores import FeatureStore
from hiero.data.windows import cut_windows, narrations_in
from hiero.errors import InputError
from hiero.types import Window

ALIGNED = (64, 8)  # nodes and narrations of a resident batch: tensor cores want multiples of 8, at level 3 too
TAG = re.compile(r"^\s*#\s*(unsure|[cCoO])\b\s*(?:[a-zA-Z]\b)?\s*", re.IGNORECASE)


class TrainingBatch(NamedTuple):
    """A padded batch of windows with their narrations.

    features (B, T, F), mask (B, T), times (B, T) in seconds; text_times and text_mask (B, M); texts are either the places of
    the narrations in a list of texts, (B, M) integers, or their vectors (B, M, E).
    """

    features: Tensor
    mask: Tensor
    times: Tensor
    texts: Tensor
    text_times: Tensor
    text_mask: Tensor

    def copy_(self, other: TrainingBatch) -> None:
        for name, mine, theirs in zip(self._fields, self, other, strict=True):
            if mine.shape != theirs.shape:  # copy_ would broadcast
                raise InputError(
                    f"{name} is {tuple(theirs.shape)}, the step was captured with {tuple(mine.shape)}; "
                    "pad with masked rows or leave the last batch out"
                )
            mine.copy_(theirs, non_blocking=True)

    def clone(self) -> TrainingBatch:
        return TrainingBatch(*(value.clone() for value in self))

    def to(self, device: torch.device | str) -> TrainingBatch:
        return TrainingBatch(*(value.to(device, non_blocking=True) for value in self))

    def with_vectors(self, table: Tensor) -> TrainingBatch:
        """Look up the vectors of the narrations in a table (number of texts, E)."""
        vectors = table.index_select(0, self.texts.flatten()).view(*self.texts.shape, table.shape[1])
        return self._replace(texts=vectors.float())


@dataclass(frozen=True)
class NarratedWindow:
    """One window: whose, which segments, and which texts at which times."""

    video: str
    window: Window
    texts: tuple[int, ...]
    times_s: tuple[float, ...]


class NarratedWindows:
    """All windows of a collection that have narrations, read from a store one batch at a time."""

    def __init__(self, store: FeatureStore, narrations: Narrations, window_s: float = 300.0, *, drop_tags: bool = False) -> None:
        self.store, self.window_s = store, window_s
        self.windows: list[NarratedWindow] = []
        self.texts: list[str] = []
        self.num_empty = 0
        self.num_outside = 0
        place: dict[str, int] = {}
        for video, spoken in narrations.by_video.items():
            if video not in store:
                continue
            num = store.num_segments(video)
            inside = 0
            for index, window in enumerate(cut_windows(num, store.clock, window_s)):
                here = narrations_in([n.time_s for n in spoken], index, num, store.clock, window_s)
                inside += len(here)
                if not here or not window.num_nodes:
                    self.num_empty += 1
                    continue
                said = [drop_tag(spoken[i].text) if drop_tags else spoken[i].text for i in here]
                for text in said:
                    if text not in place:
                        place[text] = len(self.texts)
                        self.texts.append(text)
                ids, times_s = tuple(place[text] for text in said), tuple(spoken[i].time_s for i in here)
                self.windows.append(NarratedWindow(video, window, ids, times_s))
            self.num_outside += len(spoken) - inside
        if not self.windows:
            raise InputError(
                "no window of any video holds a narration; do the narrations' video ids match the feature files' names?"
            )

    def __len__(self) -> int:
        return len(self.windows)

    def summary(self) -> str:
        num = sum(len(window.texts) for window in self.windows)
        line = f"{len(self)} windows of {self.window_s:g} s with {num} narrations ({len(self.texts)} different texts)"
        if self.num_empty:
            line += f"; {self.num_empty} windows without narrations left out"
        if self.num_outside:
            line += f"; {self.num_outside} narrations beyond the end of their video's features left out"
        return line

    def fingerprint(self) -> str:
        """Names these windows, narrations and texts."""
        digest = hashlib.sha256("\n".join(self.texts).encode())
        for item in self.windows:
            digest.update(f"{item.video} {item.window.start} {item.window.end} {item.texts} {item.times_s}".encode())
        return digest.hexdigest()

    def shape(self, index: Sequence[int] | None = None) -> tuple[int, int]:
        """Most nodes and most narrations of these windows, or of all."""
        chosen = self.windows if index is None else [self.windows[i] for i in index]
        return max(w.window.num_nodes for w in chosen), max(len(w.texts) for w in chosen)

    def read(self, index: Sequence[int], shape: tuple[int, int] | None = None) -> TrainingBatch:
        """The windows at these places, padded to (nodes, narrations) or to the largest of them. Texts are places in `texts`."""
        num_nodes, num_texts = shape or self.shape(index)
        batch = len(index)
        out = TrainingBatch(
            features=torch.zeros(batch, num_nodes, self.store.width),
            mask=torch.zeros(batch, num_nodes, dtype=torch.bool),
            times=torch.zeros(batch, num_nodes),
            texts=torch.zeros(batch, num_texts, dtype=torch.long),
            text_times=torch.zeros(batch, num_texts),
            text_mask=torch.zeros(batch, num_texts, dtype=torch.bool),
        )
        for row, i in enumerate(index):
            item = self.windows[i]
            n, m = item.window.num_nodes, len(item.texts)
            out.features[row, :n] = self.store.read(item.video, item.window.start, item.window.end)
            out.mask[row, :n] = True
            out.times[row, :n] = node_times(n, item.window.clock)
            out.texts[row, :m] = torch.tensor(item.texts)
            out.text_times[row, :m] = torch.tensor(item.times_s, dtype=torch.float64).float()
            out.text_mask[row, :m] = True
        return out

    def statistics(self, max_rows: int = 200_000) -> tuple[Tensor, Tensor]:
        """Mean and deviation of each channel over (an even choice of) the windows."""
        step = max(1, sum(w.window.num_nodes for w in self.windows) // max_rows)
        rows = torch.cat([self.store.read(w.video, w.window.start, w.window.end)[::step] for w in self.windows])
        return rows.double().mean(0).float(), rows.double().std(0, unbiased=False).float()

    def num_bytes(self, text_size: int) -> int:
        """What `ResidentWindows` would take of a device, about."""
        rows = sum(w.window.num_nodes for w in self.windows)
        size = getattr(torch, self.store.precision).itemsize
        return rows * self.store.width * size + len(self.texts) * text_size * 2 + len(self) * self.shape()[1] * 12

    def resident(self, table: Tensor, device: torch.device | str) -> ResidentWindows:
        """All of it on a device: features in the store's precision, text vectors, and where each window's are."""
        num_nodes, num_texts = align(self.shape())
        lengths = torch.tensor([w.window.num_nodes for w in self.windows])
        precision = getattr(torch, self.store.precision)
        rows = torch.zeros(int(lengths.sum()) + num_nodes, self.store.width, dtype=precision, device=device)
        texts = np.zeros((len(self), num_texts), dtype=np.int64)
        text_times = np.zeros((len(self), num_texts))
        at = 0
        for i, item in enumerate(self.windows):
            n, m = item.window.num_nodes, len(item.texts)
            rows[at : at + n] = self.store.read(item.video, item.window.start, item.window.end).to(device)
            texts[i, :m], text_times[i, :m] = item.texts, item.times_s
            at += n
        spacing = self.store.clock.spacing_s
        starts = torch.tensor([w.window.clock.time_s(0) for w in self.windows], dtype=torch.float64)
        return ResidentWindows(
            rows, (lengths.cumsum(0) - lengths).to(device), lengths.to(device), starts.to(device),
            torch.from_numpy(texts).to(device), torch.from_numpy(text_times).float().to(device),
            torch.tensor([len(w.texts) for w in self.windows], device=device), table.to(device), spacing, num_nodes,
        )  # fmt: skip


@dataclass(frozen=True)
class ResidentWindows:
    """Windows in the memory of a device. `read` is made of gathers only, so that a CUDA graph can hold it.

    rows (N + T, F); first, length, start_s (W,): first row, number of nodes, time of the first node of each window;
    texts, text_times (W, M), num_texts (W,); table (number of texts, E) half.
    """

    rows: Tensor
    first: Tensor
    length: Tensor
    start_s: Tensor
    texts: Tensor
    text_times: Tensor
    num_texts: Tensor
    table: Tensor
    spacing_s: float
    num_nodes: int

    def __len__(self) -> int:
        return len(self.first)

    def read(self, index: Tensor) -> TrainingBatch:
        """index (B,) → a batch with text vectors, padded to the largest window of all and a little beyond (`ALIGNED`)."""
        node = torch.arange(self.num_nodes, device=index.device)
        mask = node < self.length[index, None]
        # Rows after the end of a window belong to the next one; the mask hides them.
        features = self.rows[self.first[index, None] + node]
        times = torch.where(mask, self.start_s[index, None] + node.double() * self.spacing_s, 0.0).float()
        text_mask = torch.arange(self.texts.shape[1], device=index.device) < self.num_texts[index, None]
        features = torch.where(mask[..., None], features, 0).float()
        return TrainingBatch(features, mask, times, self.table[self.texts[index]].float(), self.text_times[index], text_mask)


def align(shape: tuple[int, int]) -> tuple[int, int]:
    """Numbers of nodes and narrations, rounded up to what tensor cores like."""
    num_nodes, num_texts = (-(-num // unit) * unit for num, unit in zip(shape, ALIGNED, strict=True))
    return num_nodes, num_texts


def drop_tag(text: str) -> str:
    """'#C C rinses a spoon' → 'rinses a spoon'."""
    return TAG.sub("", text) or text
