"""Windows of videos with the narrations inside them, as padded batches for training, and clips for EgoMCQ.

Two readers give the same batches: `NarratedWindows` reads features from a store when they are needed,
`ResidentWindows` holds everything in the memory of a device.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from hiero.errors import InputError
from hiero.features.stores import FeatureStore
from hiero.formatting import format_count
from hiero.model.batches import mask_of, node_times, pad
from hiero.training.narrations import Narrations
from hiero.types import Clock, Window

# The numbers of nodes and narrations in a resident batch are multiples of these: tensor cores are
# fast on multiples of 8, and pooling halves the nodes up to three times.
ALIGNMENT = (64, 8)
TAG_PATTERN = re.compile(r"^\s*#\s*(unsure|[cCoO])\b\s*(?:[a-zA-Z]\b)?\s*", re.IGNORECASE)


def cut_windows(num_segments: int, clock: Clock, window_s: float = 300.0) -> list[Window]:
    """Cut a video into consecutive windows. Times of nodes count from the start of the video.

    Window i holds the segments from ⌊i·window_s·fps/stride⌋ up to that of window i + 1, as in the release.
    """
    windows = []
    start_s = clock.start_s
    while (start := clock.index(start_s)) < num_segments:
        end = min(num_segments, clock.index(start_s + window_s))
        window_clock = Clock(clock.fps, clock.stride, clock.edge_s(start))
        windows.append(Window(start, end, window_clock))
        start_s += window_s
    return windows


def narrations_in(
    times_s: Iterable[float], index: int, num_segments: int, clock: Clock, window_s: float = 300.0
) -> list[int]:
    """Indices of the narrations in a window of `cut_windows`: start ≤ t < min(end of the window, end of the video)."""
    start_s = clock.start_s + index * window_s
    end_s = min(start_s + window_s, clock.edge_s(num_segments))
    return [i for i, time_s in enumerate(times_s) if start_s <= time_s < end_s]


class TrainingBatch(NamedTuple):
    """A padded batch of B windows of up to T nodes, with up to M narrations each."""

    features: Tensor
    mask: Tensor
    times: Tensor
    texts: Tensor
    text_times: Tensor
    text_mask: Tensor

    def copy_(self, source: TrainingBatch) -> None:
        """Copy another batch of the same shapes into these tensors, whose addresses a CUDA graph holds."""
        for name, target, value in zip(self._fields, self, source, strict=True):
            if target.shape != value.shape:  # copy_ would broadcast
                shapes = f"{tuple(value.shape)}, but the first batch had {tuple(target.shape)}"
                raise InputError(f"{name} has shape {shapes}; pad with masked rows or leave out the last batch")
            target.copy_(value, non_blocking=True)

    def clone(self) -> TrainingBatch:
        return TrainingBatch(*(value.clone() for value in self))

    def to(self, device: torch.device | str) -> TrainingBatch:
        return TrainingBatch(*(value.to(device, non_blocking=True) for value in self))

    def with_vectors(self, table: Tensor) -> TrainingBatch:
        """Replace the indices of texts by their vectors from a table (number of texts, E)."""
        vectors = table.index_select(0, self.texts.flatten()).view(*self.texts.shape, table.shape[1])
        return self._replace(texts=vectors.float())


@dataclass(frozen=True)
class NarratedWindow:
    """A window of a video with its narrations."""

    video: str
    window: Window
    texts: tuple[int, ...]
    times_s: tuple[float, ...]


class NarratedWindows:
    """All windows of a collection that have narrations, read from a store batch by batch."""

    def __init__(
        self, store: FeatureStore, narrations: Narrations, window_s: float = 300.0, *, drop_tags: bool = False
    ) -> None:
        self.store, self.window_s = store, window_s
        self.windows: list[NarratedWindow] = []
        self.num_empty = 0
        self.num_outside = 0
        text_index: dict[str, int] = {}
        for video, video_narrations in narrations.by_video.items():
            if video not in store:
                continue
            num_segments = store.num_segments(video)
            all_times_s = [narration.time_s for narration in video_narrations]
            num_inside = 0
            for index, window in enumerate(cut_windows(num_segments, store.clock, window_s)):
                selected = narrations_in(all_times_s, index, num_segments, store.clock, window_s)
                num_inside += len(selected)
                if not selected or not window.num_nodes:
                    self.num_empty += 1
                    continue
                texts = [video_narrations[i].text for i in selected]
                texts = [drop_tag(text) for text in texts] if drop_tags else texts
                indices = tuple([text_index.setdefault(text, len(text_index)) for text in texts])
                self.windows.append(NarratedWindow(video, window, indices, tuple(all_times_s[i] for i in selected)))
            self.num_outside += len(video_narrations) - num_inside
        self.texts = list(text_index)
        if not self.windows and self.num_outside:
            raise InputError(
                f"no narration can be used: all {self.num_outside} lie beyond the end of their video's features. "
                "Are their times in seconds, and is the clock of the features right (hiero pack --fps --stride)?"
            )
        if not self.windows:
            raise InputError("no video has narrations; do the narrations' video ids match the feature files' names?")

    def __len__(self) -> int:
        return len(self.windows)

    def summary(self) -> str:
        """How many windows and narrations there are, and how many are left out."""
        num_narrations = sum(len(window.texts) for window in self.windows)
        line = f"{len(self)} windows of {self.window_s:g} s with {num_narrations} narrations"
        line += f" ({len(self.texts)} different texts)"
        if self.num_empty:
            line += f"; {format_count(self.num_empty, 'window')} without narrations left out"
        if self.num_outside:
            line += f"; {format_count(self.num_outside, 'narration')} beyond the end of their video's features left out"
        return line

    def fingerprint(self) -> str:
        """Hash of these windows, narrations and texts."""
        digest = hashlib.sha256("\n".join(self.texts).encode())
        for item in self.windows:
            line = f"{item.video} {item.window.start} {item.window.end} {item.texts} {item.times_s}"
            digest.update(line.encode("utf-8", "surrogatepass"))  # file names may contain any bytes
        return digest.hexdigest()

    def shape(self, indices: Sequence[int] | None = None) -> tuple[int, int]:
        """The largest numbers of nodes and narrations of some windows, or of all."""
        windows = self.windows if indices is None else [self.windows[i] for i in indices]
        return max(w.window.num_nodes for w in windows), max(len(w.texts) for w in windows)

    def read(self, indices: Sequence[int], shape: tuple[int, int] | None = None) -> TrainingBatch:
        """Read a batch of windows, padded to the largest, or to `shape`."""
        num_nodes, num_texts = shape or self.shape(indices)
        items = [self.windows[i] for i in indices]
        nodes, texts = (len(items), num_nodes), (len(items), num_texts)
        return TrainingBatch(
            features=pad(map(self._features, items), (*nodes, self.store.width)),
            mask=mask_of([item.window.num_nodes for item in items], num_nodes),
            times=pad((node_times(item.window.num_nodes, item.window.clock) for item in items), nodes),
            texts=pad((torch.tensor(item.texts) for item in items), texts, torch.long),
            text_times=pad((torch.tensor(item.times_s) for item in items), texts),
            text_mask=mask_of([len(item.texts) for item in items], num_texts),
        )

    def _features(self, item: NarratedWindow) -> Tensor:
        return self.store.read(item.video, item.window.start, item.window.end)

    def statistics(self, max_rows: int = 200_000) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel, (F,) each, over about `max_rows` evenly spaced rows."""
        step = max(1, sum(w.window.num_nodes for w in self.windows) // max_rows)
        rows = torch.cat([self._features(item)[::step] for item in self.windows])
        return rows.double().mean(0).float(), rows.double().std(0, unbiased=False).float()

    def num_bytes(self, text_size: int) -> int:
        """Approximate memory that `resident` takes on a device, with text vectors (E = text_size) in half precision."""
        num_rows = sum(w.window.num_nodes for w in self.windows)
        row_bytes = self.store.width * getattr(torch, self.store.precision).itemsize
        narration_bytes = 8 + 4  # an index and a time
        return num_rows * row_bytes + len(self.texts) * text_size * 2 + len(self) * self.shape()[1] * narration_bytes

    def resident(self, table: Tensor, device: torch.device | str) -> ResidentWindows:
        """Copy all windows onto a device: features in the store's precision, and text vectors."""
        num_nodes, num_texts = align(self.shape())
        lengths = torch.tensor([w.window.num_nodes for w in self.windows])
        precision = getattr(torch, self.store.precision)
        # `ResidentWindows.read` gathers `num_nodes` rows for every window, also for the last.
        rows = torch.zeros(int(lengths.sum()) + num_nodes, self.store.width, dtype=precision, device=device)
        first = lengths.cumsum(0) - lengths
        for start, item in zip(first.tolist(), self.windows, strict=True):
            rows[start : start + item.window.num_nodes] = self._features(item).to(device)
        starts = torch.tensor([w.window.clock.time_s(0) for w in self.windows], dtype=torch.float64)
        return ResidentWindows(
            rows,
            first.to(device),
            lengths.to(device),
            starts.to(device),
            pad((torch.tensor(w.texts) for w in self.windows), (len(self), num_texts), torch.long).to(device),
            pad((torch.tensor(w.times_s) for w in self.windows), (len(self), num_texts)).to(device),
            torch.tensor([len(w.texts) for w in self.windows], device=device),
            table.to(device),
            self.store.clock.spacing_s,
            num_nodes,
        )


@dataclass(frozen=True)
class ResidentWindows:
    """Narrated windows in the memory of a device. A CUDA graph can capture `read`, which only gathers."""

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

    def read(self, indices: Tensor) -> TrainingBatch:
        """A batch of the windows `indices` (B,) with text vectors, padded to the aligned size of the largest window."""
        node = torch.arange(self.num_nodes, device=indices.device)
        mask = node < self.length[indices, None]
        # Rows after the end of a window belong to the next one, and are masked.
        features = self.rows[self.first[indices, None] + node]
        times = torch.where(mask, self.start_s[indices, None] + node.double() * self.spacing_s, 0.0).float()
        text_mask = torch.arange(self.texts.shape[1], device=indices.device) < self.num_texts[indices, None]
        features = torch.where(mask[..., None], features, 0).float()
        return TrainingBatch(
            features, mask, times, self.table[self.texts[indices]].float(), self.text_times[indices], text_mask
        )


def align(shape: tuple[int, int]) -> tuple[int, int]:
    """Round numbers of nodes and narrations up to multiples of `ALIGNMENT`."""
    num_nodes, num_texts = (-(-size // multiple) * multiple for size, multiple in zip(shape, ALIGNMENT, strict=True))
    return num_nodes, num_texts


def drop_tag(text: str) -> str:
    """Remove the tag of an annotator: '#C C rinses a spoon' → 'rinses a spoon'."""
    return TAG_PATTERN.sub("", text) or text
