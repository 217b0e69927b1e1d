"""Parts of a video, decoded and scaled by a GPU.

The GPU's decoder (FFmpeg's `cuda`, by PyAV) leaves frames in the memory of the GPU. Those that are sampled are scaled and become
RGB there, several together, and only small pictures come back: the same as the CPU makes, up to rounding. Each worker of a pool
(`hiero.video.parallel_decode`) is a thread of this process, since all the work is the GPU's.
"""

from __future__ import annotations

import functools
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from hiero.video.decode import DisplayedFrame, quarter_turns, scaled_size
from hiero.video.decode_worker import PartDecoder, PartError, PartReply, PartTask
from hiero.video.part_worker import NUM_MEMORIES, PartWorker

if TYPE_CHECKING:
    import torch
    from torch import Tensor

NUM_THREADS = 8  # that decode; GPUs have up to seven decoders
FRAMES_TOGETHER = 8  # that are scaled at once
# Weights of red and blue in the luma, by FFmpeg's number of the matrix; what does not say is taken for BT.601, as swscale does.
LUMA_WEIGHTS = {1: (0.2126, 0.0722), 2: (0.299, 0.114), 5: (0.299, 0.114), 6: (0.299, 0.114), 9: (0.2627, 0.0593)}
FULL_RANGE = 2  # FFmpeg's number
LUMA_BLACK, LUMA_SPAN, CHROMA_SPAN, CHROMA_ZERO = 16, 219, 224, 128  # of 8-bit video that does not use the full range


@functools.lru_cache(maxsize=16)
def resize_weights(num_in: int, num_out: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Weights of a bilinear filter that is widened where it scales down, as swscale's is.

    Args:
        num_in: Pixels of a row or column.
        num_out: Pixels that it gets.
        device: Where they are used.
        dtype: Their type.

    Returns:
        (num_out, num_in), rows sum to 1.
    """
    import torch

    ratio = num_in / num_out
    centre = (torch.arange(num_out, dtype=torch.float64)[:, None] + 0.5) * ratio
    distance = (torch.arange(num_in, dtype=torch.float64) + 0.5 - centre).abs()
    weights = (1 - distance / max(ratio, 1.0)).clamp_min(0)
    return (weights / weights.sum(1, keepdim=True)).to(device, dtype)


def resize(planes: Tensor, height: int, width: int) -> Tensor:
    """Scale planes (N, H, W) to (N, height, width)."""
    rows = resize_weights(planes.shape[1], height, planes.device, planes.dtype)
    columns = resize_weights(planes.shape[2], width, planes.device, planes.dtype)
    return rows @ planes @ columns.mT


def yuv_to_rgb(luma: Tensor, chroma: Tensor, height: int, width: int, matrix: int, is_full_range: bool) -> Tensor:
    """Pictures as swscale makes them, up to its rounding.

    Args:
        luma: (N, H, W), uint8, or uint16 with the sample in the upper bits.
        chroma: (N, H / 2, W / 2, 2), of the same type.
        height: Of the pictures.
        width: Of the pictures.
        matrix: FFmpeg's number of the colour matrix, a key of `LUMA_WEIGHTS`.
        is_full_range: Black is 0 and white 255; otherwise 16 and 235.

    Returns:
        (N, height, width, 3) RGB, uint8.
    """
    import torch

    dtype = torch.float16 if luma.is_cuda else torch.float32  # sums are in single precision in any case
    unit = 1.0 if luma.dtype == torch.uint8 else 1 / 256
    y = resize(_to_float(luma, unit, dtype), height, width).float()
    repeats = 1 if width % 2 else 2  # swscale gives two pixels one chroma, where that comes out even
    uv = resize(_to_float(chroma, unit, dtype).permute(0, 3, 1, 2).flatten(0, 1), height, width // repeats).float()
    uv = uv.repeat_interleave(repeats, dim=-1)
    blue, red = (uv.unflatten(0, (-1, 2)) - CHROMA_ZERO).unbind(1)
    if not is_full_range:
        y, blue, red = (y - LUMA_BLACK) * (255 / LUMA_SPAN), blue * (255 / CHROMA_SPAN), red * (255 / CHROMA_SPAN)
    red_weight, blue_weight = LUMA_WEIGHTS[matrix]
    r, b = y + 2 * (1 - red_weight) * red, y + 2 * (1 - blue_weight) * blue
    g = (y - red_weight * r - blue_weight * b) / (1 - red_weight - blue_weight)
    return torch.stack([r, g, b], dim=-1).round().clamp(0, 255).to(torch.uint8)


def _to_float(values: Tensor, unit: float, dtype: torch.dtype) -> Tensor:
    """Samples in [0, 256); 16-bit ones do not fit float16 before they are scaled."""
    return values.to(dtype) if unit == 1.0 else (values.float() * unit).to(dtype)


class GpuPictureWriter:
    """Puts pictures of a part into memory, each frame once. Takes frames that are on the GPU, and scales some of them together.

    Args:
        task: The part.
        memory: (N,) uint8, pinned, for the pictures.
    """

    def __init__(self, task: PartTask, memory: np.ndarray) -> None:
        import torch

        self.task, self.memory, self.num, self.num_written = task, torch.from_numpy(memory), 0, 0
        self.last: DisplayedFrame | None = None
        self.planes: list[tuple[Tensor, Tensor]] = []
        self.colours: tuple[int, bool] | None = None
        self.num_turns: int | None = None
        self.is_on_gpu = False

    def write(self, frame: DisplayedFrame) -> int:
        """The number of a frame's picture."""
        if frame is not self.last:
            if (self.num + 1) * self.task.picture_bytes > len(self.memory):
                raise PartError("too many pictures")
            self._take(frame.frame)
            self.last, self.num = frame, self.num + 1
            if len(self.planes) == FRAMES_TOGETHER:
                self._flush()
        return self.num - 1

    def _take(self, frame: Any) -> None:
        """Copy the planes of a frame, whose memory the decoder uses again."""
        width, height = scaled_size(frame.width, frame.height, self.task.short_side)
        colours = int(frame.colorspace), int(frame.color_range) == FULL_RANGE
        is_known = colours[0] in LUMA_WEIGHTS and self.colours in (None, colours)
        num_turns = quarter_turns(frame)
        shape = (width, height) if num_turns % 2 else (height, width)
        if not is_known or shape != tuple(self.task.shape) or self.num_turns not in (None, num_turns):
            raise PartError("frames that the CPU must convert")
        self.colours, self.num_turns = colours, num_turns
        self.planes.append(copy_planes(frame))

    def _flush(self) -> None:
        """Scale the frames that wait, and begin to copy them into the memory."""
        import torch

        if not self.planes or self.colours is None or self.num_turns is None:
            return
        luma, chroma = (torch.stack(planes) for planes in zip(*self.planes, strict=True))
        size = self.task.shape[::-1] if self.num_turns % 2 else self.task.shape
        pictures = torch.rot90(yuv_to_rgb(luma, chroma, *size, *self.colours), self.num_turns, (1, 2)).contiguous()
        begin, num_bytes = self.num_written * self.task.picture_bytes, len(self.planes) * self.task.picture_bytes
        self.memory[begin : begin + num_bytes].copy_(pictures.view(-1), non_blocking=True)
        self.num_written, self.is_on_gpu = self.num_written + len(self.planes), pictures.is_cuda
        self.planes = []

    def finish(self) -> None:
        """Wait until all pictures are in the memory."""
        import torch

        self._flush()
        if self.is_on_gpu:
            torch.cuda.current_stream(self.task.gpu).synchronize()


def copy_planes(frame: Any) -> tuple[Tensor, Tensor]:
    """Copies of luma (H, W) and chroma (H / 2, W / 2, 2) of a frame on the GPU."""
    if frame.format.name != "cuda":
        raise PartError("the GPU has not decoded it")
    try:
        luma, chroma = share_planes(frame)
        return luma.clone(), chroma.clone()
    except (NotImplementedError, ValueError, RuntimeError) as error:
        raise PartError(f"a frame that cannot be shared: {error}") from error


def share_planes(frame: Any) -> tuple[Tensor, Tensor]:
    """Luma (H, W) and chroma (H / 2, W / 2, 2) of a frame in a layout of decoders (`nv12`, `p010le`), in its own memory."""
    from torch.utils.dlpack import from_dlpack

    # The capsule itself: PyAV takes no stream. FFmpeg works on the default one, and so do we.
    luma, chroma = (from_dlpack(plane.__dlpack__()) for plane in frame.planes)
    return luma, chroma


class GpuWorker(PartWorker):
    """A thread's decoder, and the memory that its pictures come back to."""

    def __init__(self) -> None:
        super().__init__()
        # To make a decoder takes 70 ms, and the GPU makes one at a time.
        self.decoder = PartDecoder(GpuPictureWriter, stays_open=True)
        self.memories: list[Tensor | None] = [None] * NUM_MEMORIES

    def _decode(self, task: PartTask, num_bytes: int, number: int) -> tuple[PartReply, np.ndarray]:
        memory = self._memory(number, num_bytes)
        return self.decoder.decode(task, memory), memory

    def _recover(self, task: PartTask, error: Exception) -> None:
        """Wait until nothing is written into a memory any more."""
        import torch

        if torch.cuda.is_available():
            with suppress(RuntimeError):  # of the GPU: then nothing is
                torch.cuda.current_stream(task.gpu).synchronize()

    def _memory(self, number: int, num_bytes: int) -> np.ndarray:
        """Memory of at least this size, pinned, so that copies from the GPU need not be waited for."""
        import torch

        memory = self.memories[number]
        if memory is None or len(memory) < num_bytes:
            memory = self.memories[number] = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
        return memory.numpy()

    def rest(self) -> None:
        """Give the decoder back, and the file. Called by the thread that decodes."""
        self.decoder.close()

    def close(self) -> None:
        """Stop at the next frame."""
        self.decoder.is_stopped = True
