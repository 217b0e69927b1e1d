"""The rows of a LanceDB table whose vectors are nearest to one."""

from __future__ import annotations

from typing import Any

import numpy as np

NUM_PROBES = 40  # parts of the index that a search visits
REFINE_FACTOR = 10  # candidates of the index that are compared exactly, for each result
# Each of them is read from another place of the table, which is most of a search's time. Who wants
# more results than a person looks at orders them by something else.
MAX_REFINED = 500


def nearest_rows(
    table: Any, vector: np.ndarray, where: str | None, columns: list[str], num: int, exact: bool
) -> list[dict[str, Any]]:
    """The rows whose vectors have the largest cosine with one, nearest first."""
    query = table.search(vector.astype(np.float32), vector_column_name="vector").distance_type("cosine")
    query = (query if where is None else query.where(where, prefilter=True)).select(columns).limit(num)
    refine_factor = max(1, min(REFINE_FACTOR, MAX_REFINED // num))
    query = query.bypass_vector_index() if exact else query.nprobes(NUM_PROBES).refine_factor(refine_factor)
    return list(query.to_list())
