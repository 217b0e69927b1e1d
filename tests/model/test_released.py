"""Import of the authors' files, and refusal of everything that is not one."""

from __future__ import annotations

import collections
import json
import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch

from hiero.config import Behaviour
from hiero.errors import InputError
from hiero.model.hiero import HiERO
from hiero.model.released import OMEGACONF, read_released, resolve_config
from hiero.storage.checkpoints import read_state_dict
from hiero.storage.pickles import read_torch
from tests.conftest import FIXTURES

OFFICIAL = FIXTURES / "official_small.pth"


def test_what_is_imported(released, tmp_path):
    assert released.config.behaviour == Behaviour.released()
    assert (released.config.hidden_size, released.config.num_layers, released.config.depth) == (48, 3, 3)
    assert released.config.threads_at_inference is False
    assert released.losses.mode == "sym"
    assert released.source["model"]["conv"]["in_channels"] == 48  # ${model.hidden_size}
    assert released.source["val_dataset"]["root"] == "data/ego4d"
    assert len(released.text_encoder) == 36
    released.save(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["text_encoder"] == {"name": "distillbert", "file": "text_encoder.safetensors"}
    assert HiERO.from_pretrained(tmp_path).state_dict().keys() == released.model().state_dict().keys()


def archive(path: Path, pickled: bytes, data: dict[str, bytes] | None = None) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x/data.pkl", pickled)
        for name, content in (data or {}).items():
            file.writestr(f"x/data/{name}", content)
    return path


class Evil:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("kind", ["zip", "legacy"])
def test_a_malicious_pickle_is_refused_and_not_run(tmp_path, kind):
    target = tmp_path / "owned"
    payload = {"model": {}, "task": {}, "config": Evil(target)}
    file = tmp_path / "evil.pth"
    if kind == "zip":
        archive(file, pickle.dumps(payload, protocol=2))
        expected = "unsafe pickle: it references posix.system"
    else:
        file.write_bytes(pickle.dumps(payload, protocol=2))
        expected = "not a torch file that holds only data"
    with pytest.raises(InputError, match=expected):
        read_released(file)
    assert not target.exists()


@pytest.mark.parametrize(
    "name", ["builtins.eval", "builtins.getattr", "torch.load", "subprocess.Popen", "omegaconf.x.Y", "torch.hub.load"]
)
def test_names_outside_the_list_are_refused(tmp_path, name):
    module, _, attribute = name.rpartition(".")
    program = f"c{module}\n{attribute}\n.".encode()
    with pytest.raises(InputError, match=f"references {name}"):
        read_torch(archive(tmp_path / "f.pt", program))


@pytest.mark.parametrize(
    "name",
    [
        "torch._utils\n_rebuild_tensor_v2",
        "torch._utils\n_rebuild_parameter",
        "collections\ndefaultdict",
        "collections\nOrderedDict",
    ],
)
@pytest.mark.parametrize("state", [b"}U\x01aK\x01s", b"N}U\x08__name__U\x01xs\x86"])
def test_state_cannot_be_forced_on_what_the_reader_uses(tmp_path, name, state):
    """BUILD on an allowed name itself: neither its attributes nor its slots may change."""
    torch.save({"weight": torch.nn.Parameter(torch.ones(2))}, tmp_path / "plain.pt")
    before = read_torch(tmp_path / "plain.pt")
    with pytest.raises(InputError, match="damaged or not a torch file"):
        read_torch(archive(tmp_path / "f.pt", b"\x80\x02c" + name.encode() + b"\n" + state + b"b."))
    assert read_torch(tmp_path / "plain.pt")["weight"].equal(before["weight"])


def _tuple(numbers):
    return b"(" + b"".join(b"J" + n.to_bytes(4, "little", signed=True) for n in numbers) + b"t"


def tensor_program(size, stride, offset=0, after=b""):
    """A pickle of one tensor over 4 stored floats, with more instructions behind it."""
    storage = b"(U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x04tQ"
    call = b"K" + bytes([offset]) + _tuple(size) + _tuple(stride) + b"\x89NtR"
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + call + after + b"."


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [((200_000_000, 4), (0, 1), 0), ((2, 4), (4, 1), 0), ((4,), (1,), 2), ((-1,), (1,), 0), ((2,), (-1,), 3)],
)
def test_tensors_that_do_not_fit_their_data(tmp_path, size, stride, offset):
    """Among them 3 GB out of 16 bytes by a stride of 0."""
    program = tensor_program(size, stride, offset)
    with pytest.raises(InputError, match="damaged or not a torch file"):
        read_torch(archive(tmp_path / "f.pt", program, {"0": bytes(16)}))


def test_the_same_program_with_a_fitting_tensor_is_read(tmp_path):
    program = tensor_program((2, 2), (2, 1))
    assert read_torch(archive(tmp_path / "f.pt", program, {"0": bytes(16)})).equal(torch.zeros(2, 2))


def test_state_cannot_be_forced_on_a_tensor(tmp_path):
    program = tensor_program((4,), (1,), after=b"}U\x01aK\x01sb")
    with pytest.raises(InputError, match="changes an object other than a tensor"):
        read_torch(archive(tmp_path / "f.pt", program, {"0": bytes(16)}))


def test_bombs_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "zip.pt", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x/data.pkl", b"\x80\x02}.")
        file.writestr("x/data/0", bytes(10_000_000))
    with pytest.raises(InputError, match="compressed"):
        read_torch(tmp_path / "zip.pt")
    memo = b"\x80\x02}r" + (2**31 - 1).to_bytes(4, "little") + b"."
    assert read_torch(archive(tmp_path / "memo.pt", memo)) == {}  # without a table of 2**31 entries
    array = b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b"."
    with pytest.raises(InputError, match="damaged"):
        read_torch(archive(tmp_path / "array.pt", array))
    laughs = {"a0": "lol", **{f"a{i}": {"x": f"${{a{i - 1}}}", "y": f"${{a{i - 1}}}"} for i in range(1, 25)}}
    with pytest.raises(InputError, match="too large for a HiERO model"):
        resolve_config(laughs)


def nested_tuples(depth):
    """A pickle that puts a tuple on the stack which holds 2 ** depth others."""
    return b")" + b"2\x86" * depth


def a_billion_values():
    """A dictionary with two names for each of its parts."""
    laughs = {"x": 1}
    for _ in range(30):
        laughs = {"a": laughs, "b": laughs}
    return laughs


@pytest.mark.parametrize(
    "program",
    [
        b"\x80\x02}" + nested_tuples(60) + b"K\x01s.",
        b"\x80\x02}(" + nested_tuples(60) + b"K\x01u.",
        b"\x80\x02ccollections\nOrderedDict\n](" + nested_tuples(60) + b"K\x01\x86e\x85R.",
        b"\x80\x04\x8f(" + nested_tuples(60) + b"\x90.",
        b"\x80\x02cbuiltins\nset\n](" + nested_tuples(60) + b"e\x85R.",
        b"\x80\x02(" + nested_tuples(60) + b"ctorch\nFloatStorage\nU\x010NK\x01tQ.",
        b"\x80\x02(U\x07storagectorch\nFloatStorage\n" + nested_tuples(60) + b"NK\x01tQ.",
        tensor_program((2**31 - 1,) * 50_000, (0,) * 50_000),
        pickle.dumps(a_billion_values(), protocol=2),
    ],
)
def test_a_small_file_does_not_take_for_ever(tmp_path, program):
    with pytest.raises(InputError, match=r"f\.pt"):
        read_state_dict(archive(tmp_path / "f.pt", program, {"0": bytes(16)}))


def test_a_dictionary_that_contains_itself_is_refused(tmp_path):
    circle = {"a": torch.ones(2)}
    circle["model"] = circle
    torch.save(circle, tmp_path / "circle.pt")
    with pytest.raises(InputError, match=r"circle\.pt"):
        read_state_dict(tmp_path / "circle.pt")


def test_other_files_are_refused_with_a_reason(tmp_path):
    torch.save({"weight": torch.zeros(2)}, tmp_path / "other.pth")
    with pytest.raises(InputError, match="not a HiERO checkpoint; expected the entries"):
        read_released(tmp_path / "other.pth")
    torch.save({"model": {}, "task": {}, "config": {"model": {}, "task": {}}}, tmp_path / "empty.pth")
    with pytest.raises(InputError, match=r"lin_rel\.weight' is missing"):
        read_released(tmp_path / "empty.pth")
    (tmp_path / "nothing.pth").write_bytes(b"")
    with pytest.raises(InputError, match="not a torch file"):
        read_released(tmp_path / "nothing.pth")
    with pytest.raises(InputError, match="no such file"):
        read_released(tmp_path / "missing.pth")
    (tmp_path / "half.pth").write_bytes(OFFICIAL.read_bytes()[: OFFICIAL.stat().st_size // 2])
    with pytest.raises(InputError, match=r"half\.pth"):
        read_released(tmp_path / "half.pth")


def test_weights_that_do_not_fit_their_configuration(tmp_path):
    raw = read_torch(OFFICIAL, opaque=OMEGACONF)
    state = dict(raw["model"])
    state["up_stages.1.module_3.lin_rel.weight"] = torch.zeros(3, 3)
    torch.save({"model": state, "task": raw["task"], "config": {"model": {}, "task": {}}}, tmp_path / "bad.pth")
    with pytest.raises(InputError, match="weights or settings do not fit"):
        read_released(tmp_path / "bad.pth")


def save_variant(path, model=None, settings=None):
    """The official file with some weights or settings changed."""
    raw = read_torch(OFFICIAL, opaque=OMEGACONF)
    source = resolve_config(raw["config"])
    source["model"] = {**source["model"], **(settings or {})}
    torch.save({"model": model or raw["model"], "task": raw["task"], "config": source}, path)
    return raw["model"]


def test_models_without_projection_or_bias(tmp_path):
    weights = save_variant(tmp_path / "x.pth")
    reduced = {
        name: value
        for name, value in weights.items()
        if not name.startswith("proj.") and not name.endswith("module_3.bias")
    }
    save_variant(tmp_path / "y.pth", reduced)
    released = read_released(tmp_path / "y.pth")
    assert released.config.input_size == 48
    assert released.state["project.weight"].equal(torch.eye(48))
    assert released.state["encoder.stages.0.layers.1.mix.bias"][:48].eq(0).all()
    released.model()(torch.randn(1, 9, 48))


@pytest.mark.parametrize(
    "settings", [{"pool": "max"}, {"conv": {"pos_act": "relu"}}, {"conv": {"use_pos_attr": False}}]
)
def test_other_networks_of_the_release_are_refused(tmp_path, settings):
    save_variant(tmp_path / "x.pth", settings=settings)
    with pytest.raises(InputError, match="as in the paper, is supported"):
        read_released(tmp_path / "x.pth")


def test_optimizer_states_with_foreign_objects_are_passed_over(tmp_path):
    """torch.device and the like in parts that are not used do not spoil a checkpoint."""
    raw = read_torch(OFFICIAL, opaque=OMEGACONF)
    extra = {"device": torch.device("cpu"), "milestones": collections.Counter([1, 2])}
    torch.save(
        {
            **{k: raw[k] for k in ("model", "task")},
            "config": resolve_config(raw["config"]),
            "scheduler": extra,
        },
        tmp_path / "x.pth",
    )
    assert read_released(tmp_path / "x.pth").config.hidden_size == 48


def test_tensor_data_that_is_cut_short(tmp_path):
    torch.save(torch.arange(100.0), tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as file:
        parts = {info.filename: file.read(info) for info in file.infolist()}
    with zipfile.ZipFile(tmp_path / "b.pt", "w") as file:
        for name, content in parts.items():
            file.writestr(name, content[:40] if name.endswith("data/0") else content)
    with pytest.raises(InputError, match="cut short"):
        read_torch(tmp_path / "b.pt")


def test_views_and_dtypes_survive(tmp_path):
    base = torch.arange(12.0).view(3, 4)
    values = {
        "view": base.T[1:],
        "half": base.half(),
        "bf16": base.bfloat16(),
        "long": base.long(),
        "bool": base > 3,
        "parameter": torch.nn.Parameter(base),
        "scalar": torch.tensor(3),
        "none": torch.zeros(0, 4),
        "list": [base, "text"],
    }
    torch.save(values, tmp_path / "values.pt")
    loaded = read_torch(tmp_path / "values.pt")
    for name in ("view", "half", "bf16", "long", "bool", "parameter", "scalar", "none"):
        assert loaded[name].equal(values[name].detach()), name
    assert loaded["list"][0].equal(base)


def test_interpolations():
    tree = {"a": {"b": 3}, "c": "${a.b}", "d": "${a}", "e": "${x.y}", "f": ["${a.b}"]}
    assert resolve_config(tree) == {"a": {"b": 3}, "c": 3, "d": {"b": 3}, "e": "${x.y}", "f": [3]}
    with pytest.raises(InputError, match="refers to itself"):
        resolve_config({"a": "${a}"})
