"""The similarity matrix of a video in tiles, so that a page can show a long one."""

from __future__ import annotations

import numpy as np

from hiero.engine import Video
from hiero.errors import InputError
from hiero.serve.entries import NotFoundError
from hiero.steps.segmentation import MIN_NORM, centre_and_normalise, to_grey
from hiero.vectors import unit_vectors

TILE_SIZE = 128  # cells
MAX_ZOOM = 12  # 128 · 2¹² cells, which is days of video


def similarity_tile(video: Video, zoom: int, row: int, column: int) -> np.ndarray:
    """A tile of the similarity matrix in grey.

    At zoom z the whole matrix has 128 · 2ᶻ rows, or one for each node where there are fewer. A cell
    is the cosine of the mean features of two stretches of nodes.
    """
    if not 0 <= zoom <= MAX_ZOOM:
        raise InputError(f"zoom is between 0 and {MAX_ZOOM}")
    size = matrix_size(video, zoom)
    if not (0 <= row * TILE_SIZE < size and 0 <= column * TILE_SIZE < size):
        raise NotFoundError(f"no tile {row}, {column} at zoom {zoom}")
    edges = np.linspace(0, len(video.nodes), size + 1).round().astype(int)
    x = centre_and_normalise(video.segmentation_features, MIN_NORM)

    def cell_means(index: int) -> np.ndarray:
        """Unit means of the nodes of each cell of a tile's row or column."""
        bounds = edges[index * TILE_SIZE : index * TILE_SIZE + TILE_SIZE + 1]
        sums = np.add.reduceat(x[: bounds[-1]], bounds[:-1], axis=0)
        return unit_vectors(sums)

    return to_grey(cell_means(row) @ cell_means(column).T)


def matrix_size(video: Video, zoom: int) -> int:
    """Rows of the whole similarity matrix at a zoom."""
    return min(len(video.nodes), TILE_SIZE << zoom)
