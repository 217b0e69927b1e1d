"""Tables of addresses for the kernels of gates: they need no GPU."""

from __future__ import annotations

import torch

from hiero.model import gates_triton
from hiero.model.gates_triton import MAX_TABLES, _find_tables, is_available
from hiero.model.tdgc import Gate


def test_addresses_and_distances(monkeypatch):
    monkeypatch.setattr(gates_triton, "_tables", {})
    parameters = list(Gate(4, 3).parameters())
    torch.set_default_dtype(torch.float64)  # what the kernels read is in single precision
    try:
        addresses, distances = _find_tables(parameters, [0.1, 0.2])
    finally:
        torch.set_default_dtype(torch.float32)
    assert addresses.tolist() == [parameter.data_ptr() for parameter in parameters]
    assert distances.dtype == torch.float32
    assert _find_tables(parameters, [0.1, 0.2])[0] is addresses
    assert _find_tables(parameters, [0.1, 0.3])[1].tolist() != distances.tolist()


def test_many_clocks_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(gates_triton, "_tables", {})
    parameters = list(Gate(4, 3).parameters())
    for i in range(2 * MAX_TABLES):
        _find_tables(parameters, [float(i)])
    assert len(gates_triton._tables) == MAX_TABLES


def test_where_the_kernels_run(monkeypatch):
    parameters = list(Gate(4, 3).parameters())
    assert not is_available(parameters)  # on a CPU
    monkeypatch.setattr(gates_triton, "can_compile", lambda _: True)
    assert is_available(parameters)
    assert not is_available([*parameters, torch.zeros(4, dtype=torch.float64)])
    assert not is_available(list(Gate(4, 2000).parameters()))
