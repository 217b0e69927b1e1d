"""Files that are written whole, and read back with a clear word on what is wrong with them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from hiero.errors import InputError
from hiero.features.files import sidecar_path
from hiero.formats.hiero_json import read_edits, write_edits
from hiero.storage import files as memory
from hiero.storage.files import (
    is_disk_full,
    load_arrays,
    load_metadata,
    load_tensors,
    read_json,
    read_lines,
    save_arrays,
    save_tensors,
    write_bytes,
    write_text,
)
from hiero.types import Hierarchy, Step


def test_tensors_that_share_memory_are_saved(tmp_path):
    base = torch.arange(12.0)
    table = base.view(3, 4)
    tensors = {"all": base, "again": base, "part": base[3:7], "rows": table, "turned": table.T, "none": base[:0]}
    save_tensors(tmp_path / "t.safetensors", tensors)
    loaded = load_tensors(tmp_path / "t.safetensors")
    assert loaded.keys() == tensors.keys()
    assert all(loaded[name].equal(value) for name, value in tensors.items())
    arrays = {name: value.numpy() for name, value in tensors.items()}
    save_arrays(tmp_path / "a.safetensors", arrays)
    for name, value in load_arrays(tmp_path / "a.safetensors").items():
        np.testing.assert_array_equal(value, arrays[name])


@pytest.mark.parametrize("letter", ["k", "\u7530"])
def test_names_may_be_as_long_as_the_system_allows(tmp_path, letter):
    """Also those of files that belong to another one, and of the temporary files that become them."""
    video = tmp_path / (letter * (251 // len(letter.encode())) + ".mp4")
    write_text(video, "")
    write_text(sidecar_path(video), "{}")
    write_edits(video, None, Hierarchy("a.mp4", "raw", 1.0, ((Step("s", 0.0, 1.0, 0),),)))
    assert read_edits(video) is not None
    other = video.with_name(letter + video.name[2:])
    assert len({sidecar_path(video), sidecar_path(other), video, other}) == 4


@pytest.mark.parametrize("read", [load_tensors, load_arrays, load_metadata])
@pytest.mark.parametrize("name", ["cut", "missing", "folder"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, read, name):
    save_tensors(tmp_path / "cut.safetensors", {"x": torch.zeros(100)})
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "cut.safetensors").read_bytes()[:-50])
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(InputError, match=rf"{name}\.safetensors"):
        read(tmp_path / f"{name}.safetensors")


def test_weights_that_were_cut_say_how_to_fetch_them_again(tmp_path, monkeypatch):
    from hiero.storage.pickles import read_torch

    monkeypatch.setenv("HIERO_HOME", str(tmp_path))
    folder = tmp_path / "weights" / "minilm"
    save_tensors(folder / "model.safetensors", {"x": torch.zeros(100)})
    torch.save({"x": torch.zeros(100)}, folder / "model.pt")
    for name, read in (("model.safetensors", load_arrays), ("model.pt", read_torch)):
        (folder / name).write_bytes((folder / name).read_bytes()[:-50])
        with pytest.raises(InputError, match=rf"{name}: .*hiero models get minilm"):
            read(folder / name)


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a":' * 100_000, b'"\xe9"', b"{", None])
def test_json_that_cannot_be_read(tmp_path, content):
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.json" if content else r"a\.json.*get it"):
        read_json(tmp_path / "a.json", "; get it")
    with pytest.raises(InputError, match=tmp_path.name):
        read_json(tmp_path)


@pytest.mark.parametrize("read", [read_json, read_lines])
def test_what_is_no_file_is_refused_before_it_is_opened(tmp_path, read):
    """Opening a pipe waits for somebody who writes to it; a device has no end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("pipe", "device"):
        with pytest.raises(InputError, match=name):
            read(tmp_path / name)
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 2**42)
    with pytest.raises(InputError, match="sparse"):
        read(tmp_path / "sparse")


def test_a_pipe_is_not_replaced_by_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match=str(pipe)):
        write_bytes(pipe, b"steps")
    assert pipe.is_fifo()


def test_a_pipe_of_the_shell_is_read():
    output, inside = os.pipe()
    os.write(inside, b"boil\nwash\n")
    os.close(inside)
    assert read_lines(Path(f"/dev/fd/{output}")) == ["boil", "wash"]
    os.close(output)


def test_what_does_not_fit_is_refused_with_the_numbers(monkeypatch):
    assert memory.available_bytes() is None or memory.available_bytes() > 0
    monkeypatch.setattr(memory, "available_bytes", lambda: 4 * memory.GIB)
    memory.check_fits(2 * memory.GIB, "v.npz: its features")
    with pytest.raises(InputError, match=r"v\.npz.*2\.5 GiB.*4\.0 GiB"):
        memory.check_fits(5 * memory.GIB // 2, "v.npz: its features")
    with pytest.raises(InputError, match=r"v\.npz.*2\.0 GiB.*1\.0 GiB"):
        memory.check_fits(2 * memory.GIB, "v.npz: its features", memory.GIB)
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    memory.check_fits(2**60, "where the system does not say")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_recognised_by_its_number_or_its_words(code):
    error = OSError(code, "words of another language")
    assert is_disk_full(error)
    assert is_disk_full(RuntimeError(f"LanceError(IO): {OSError(code, os.strerror(code))}, /src/io.rs:7"))
    assert not is_disk_full(OSError(errno.EACCES, os.strerror(errno.EACCES)))
    assert not is_disk_full(ValueError("conflict"))


def test_an_account_without_a_home_folder_is_told_what_to_set(monkeypatch):
    def find_no_account(uid):
        raise KeyError(uid)

    for variable in ("HOME", "HIERO_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("pwd.getpwuid", find_no_account)
    with pytest.raises(InputError, match="HIERO_HOME"):
        memory.home()
    monkeypatch.setenv("HIERO_HOME", "/somewhere")
    assert memory.home() == Path("/somewhere")
