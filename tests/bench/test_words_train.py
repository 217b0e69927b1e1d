"""Training of words, small: made-up pictures, clips and networks; what it writes is what the package reads."""

from __future__ import annotations

import gzip
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks import words_data, words_networks, words_train
from benchmarks.words_actions import rank_of, write_text
from benchmarks.words_networks import Additions, Student, Teacher, TextNetwork
from benchmarks.words_train import (
    Batches,
    Files,
    Options,
    Tuning,
    contrast,
    crop,
    draw_text,
    imitate,
    texts_of,
)
from hiero.networks import dinov2
from hiero.networks.minilm import MiniLM
from hiero.storage.files import load_arrays, save_arrays

pytestmark = pytest.mark.slow

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")
Image = pytest.importorskip("PIL.Image")

WORDS = ["cut", "open", "pour", "the", "a", "onion", "fridge", "water", "person", "is", "red", "blue", "cup"]
LABELS = """Video_name,Video_category,Action_labels,Nouns
OP01-R01-PastaSalad-1-2,OP01-R01-PastaSalad,9,water
OP01-R01-PastaSalad-3-4,OP01-R01-PastaSalad,4,onion
OP02-R01-PastaSalad-1-2,OP02-R01-PastaSalad,2,fridge
OP02-R01-PastaSalad-5-6,OP02-R01-PastaSalad,0,"onion,water"
OP06-R07-Pizza-1-2,OP06-R07-Pizza,2,fridge
OP06-R07-Pizza-3-4,OP06-R07-Pizza,4,"onion"
"""
OPTIONS = Options(batch=4, clips=3, image_rank=2)
DEVICE = torch.device("cpu")


@pytest.fixture(scope="module")
def minilm(tmp_path_factory):
    """A MiniLM of one layer, as its folder."""
    folder = tmp_path_factory.mktemp("minilm")
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    sizes = {"hidden_size": 384, "num_hidden_layers": 1, "num_attention_heads": 12, "intermediate_size": 64}
    config = transformers.BertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, **sizes)
    torch.manual_seed(0)
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


@pytest.fixture
def networks(minilm, monkeypatch):
    """Small networks instead of those that are downloaded: a DINOv2 of one block, and a CLIP of one layer."""

    def load_tower(folder):
        torch.manual_seed(1)
        tower = dinov2.VisionTransformer()
        tower.blocks = tower.blocks[:1]
        return tower.eval()

    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    monkeypatch.setattr(words_networks, "CLIP_CONFIG", {"patch_size": 56, "projection_dim": 512, **sizes})
    monkeypatch.setattr(words_networks, "read_clip", lambda file: {})
    monkeypatch.setattr(words_networks.weights, "get", lambda name: minilm)
    monkeypatch.setattr(dinov2, "load_tower", load_tower)
    monkeypatch.setattr(words_train, "HELD_OUT", 2)
    monkeypatch.setattr(words_train, "NUM_UNTOLD", 2)


def to_webp(colour, size):
    return words_data._to_webp(Image.new("RGB", (8, 8), colour), size)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Packs and texts, decoded: pictures of COCO, of another source, and without texts; clips and a whole video."""
    work = tmp_path_factory.mktemp("work")
    squares = {"coco": 8, "flickr8k": 4, "coco-others": 3}
    for name, num in squares.items():
        pictures = [(f"{name}{i}.jpg", to_webp((30 * i, 90, 200 - 20 * i), (224, 224))) for i in range(num)]
        words_data.write_pack(work, name, iter(pictures))
    clips = [row.split(",")[0] for row in LABELS.splitlines()[1:]]
    frames = [(f"{clip}-F1-F2.mp4", to_webp((40 * i, 60, 90), (288, 216))) for i, clip in enumerate(clips)]
    words_data.write_pack(work, "egtea", (frame for frame in frames for _ in range(6)))
    whole = [(f"{video}/{i}.jpg", frames[i][1]) for video in ("OP01-R01-PastaSalad", "OP06-R07-Pizza") for i in (0, 1)]
    words_data.write_pack(work, "whole", iter(whole))
    (work / "egtea_gt_train.csv").write_text(LABELS)
    (work / "egtea_gt_valid.csv").write_text(LABELS.splitlines()[0] + "\n")
    (work / words_data.MORE_VERBS_FILE).write_text(json.dumps({"OP02-R01-PastaSalad-5-6": "wash"}))
    texts = {
        "coco_captions": [f"coco{i}.jpg\ta person is holding a red cup\n" for i in range(7)],
        "coco_texts": ["coco7.jpg\ttag\tblue cup.\n", "coco7.jpg\tunknown kind\tx\n"],
        "flickr8k_captions": [f"flickr8k{i}.jpg\ta blue cup\n" for i in range(4)],
    }
    for name, lines in texts.items():
        with gzip.open(work / f"{name}.tsv.gz", "wt") as file:
            file.writelines(lines)
    words_train.decode(work)
    return Files(work, work, work / "clip.onnx")


def test_additions_begin_as_nothing_and_can_be_left_out():
    torch.manual_seed(0)
    layer, x = nn.Linear(5, 3), torch.randn(4, 5)
    additions = Additions(layer, 2)
    assert torch.equal(additions(x), layer(x))
    additions.b.data.normal_()
    expected = x @ (layer.weight + 2 * additions.b @ additions.a).T + layer.bias
    torch.testing.assert_close(additions(x), expected)
    additions.is_used = False
    assert torch.equal(additions(x), layer(x))


def test_contrast_ignores_what_is_also_true():
    logits = torch.tensor([[4.0, 0.0], [0.0, 4.0], [9.0, -9.0]])
    nothing = torch.zeros(3, 2, dtype=torch.bool)
    third = nothing.clone()
    third[2] = True
    expected = torch.tensor([[4.0, 0.0], [0.0, 4.0]]).log_softmax(1).diagonal().mean()
    assert contrast(logits, nothing) > 1
    torch.testing.assert_close(contrast(logits, third), -expected)


def test_imitation_is_best_at_the_target():
    targets = 3 * torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
    nothing = torch.zeros(5, 5, dtype=torch.bool)
    logits = targets.clone().requires_grad_()
    imitate(logits, targets, nothing).backward()
    assert logits.grad.abs().max() < 1e-6
    assert imitate(targets + torch.eye(5), targets, nothing) > imitate(targets, targets, nothing)


def test_a_frame_is_cropped_as_the_package_does():
    frames = torch.rand(1, 9, 12, 3, generator=torch.Generator().manual_seed(0))
    frames = nn.functional.interpolate(frames.permute(0, 3, 1, 2), size=(216, 288), mode="bilinear").clamp(0, 1)
    expected = dinov2.prepare((255 * frames).round().byte().permute(0, 2, 3, 1))
    right, larger = (words_train.normalise(crop(frames, share), *words_train.IMAGENET) for share in (0.76, 0.8))
    assert (right - expected).abs().mean() < 0.03
    assert (larger - expected).abs().mean() > 0.1


def test_texts_of_pictures_by_kind(files):
    texts = texts_of("coco-texts", files)
    assert texts["coco7.jpg"] == {"tag": ["blue cup"]}
    assert texts["coco0.jpg"]["phrase"] == ["holding a red cup"]
    assert texts_of("flickr8k", files)["flickr8k1.jpg"]["thing"] == ["blue cup"]
    random = np.random.default_rng(0)
    drawn = {draw_text({"caption": ["one"], "tag": ["two", "three"]}, random) for _ in range(200)}
    assert drawn == {"one", "two", "three"}


def test_batches_leave_out_what_is_held_out(files, networks):
    batches = Batches(files, OPTIONS, DEVICE)
    assert [len(batches.pictures.texts), len(batches.pictures.pictures)] == [12, 15]
    draws = [batches.draw(is_permissive=True) for _ in range(20)]
    assert {i for drawn in draws for i in drawn.pictures[:4]} == set(range(2, 8)), "COCO, but for held-out pictures"
    assert {i for drawn in draws for i in drawn.pictures[4:]} == {12, 13, 14}
    assert all(drawn.clips is None and len(drawn.whole) == 0 for drawn in draws)
    draws = [batches.draw(is_permissive=False) for _ in range(20)]
    assert {i for drawn in draws for i in drawn.pictures[:4]} == set(range(2, 12))
    assert {row for drawn in draws for row in drawn.clips.rows} == {0, 1, 2, 3}, "not the development video"
    assert len(batches.clips.whole) == 2
    every = Batches(files, Options(batch=4, clips=3, all_videos=True), DEVICE).clips
    assert [len(every.training), len(every.whole)] == [6, 4]


def test_other_verbs_are_named_by_the_second_table(files):
    clips = words_train.ClipFrames(files.work, False, DEVICE)
    assert clips.clips.verbs.tolist() == [9, 4, 2, 15, 2, 4]
    texts = {write_text(15, ("onion",), np.random.default_rng(i)) for i in range(30)}
    assert {"wash the onion", "rinsing the onion"} <= texts


def test_second_table_of_verbs(tmp_path, monkeypatch):
    folder = tmp_path / "RULSTM" / "data" / "egtea"
    folder.mkdir(parents=True)
    (folder / "actions.csv").write_text("0, 0_0, Open_fridge\n1, 1_1, Turn on_faucet\n")
    (folder / "training1.csv").write_text("1,OP01,30,60,1,1,1\n2,OP01,90,120,0,0,0\n")
    (folder / "validation1.csv").write_text("3,OP02,30,60,1,1,1\n")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(words_data, "EGTEA_VERBS", replace(words_data.EGTEA_VERBS, commit="HEAD"))
    header = "Video_name,Video_category,Start_times,End_times,Action_labels,Nouns\n"
    rows = ["a,OP01,1010,2000,0,faucet", "b,OP01,3000,4000,2,fridge", "c,OP01,1500,3000,0,cup", "d,OP02,1000,2000,0,x"]
    assert words_data.read_more_verbs(tmp_path, {"train": header + "\n".join(rows)}) == {"a": "turn on", "d": "turn on"}


def test_the_mean_of_runs(tmp_path):
    for name, value in (("a", 1.0), ("b", 3.0)):
        save_arrays(tmp_path / name, {"x": np.full(2, value, np.float16), "labels.y": np.zeros(1)})
    words_train.average([tmp_path / "a", tmp_path / "a", tmp_path / "b"], tmp_path / "mean")
    (mean,) = load_arrays(tmp_path / "mean").values()
    assert (mean.dtype, np.round(mean.astype(float), 2).tolist()) == (np.float16, [1.67, 1.67])


def test_swapped_texts_of_clips_are_wrong_or_ignored(files, networks):
    clips = Batches(files, OPTIONS, DEVICE).clips
    random = np.random.default_rng(0)
    for _ in range(10):
        drawn = clips.draw(3, random)
        assert drawn.also_true.shape == (len(drawn.texts), 3) == (3 * (1 + words_train.SWAPS), 3)
        assert not drawn.also_true[range(3), range(3)].any()
        assert drawn.frames.shape == (3, 2)
        for text, row in zip(drawn.texts, drawn.rows, strict=False):
            assert text == "something" or clips.clips.verbs[row] or any(noun in text for noun in clips.clips.nouns[row])
    labels = {clips._swap(1, True, random) for _ in range(50)}
    assert {nouns for _, nouns in labels} == {("onion",)}
    assert 4 not in {verb for verb, _ in labels}
    assert {verb for verb, _ in (clips._swap(1, False, random) for _ in range(20))} == {4}


@pytest.mark.slow
def test_steps_change_every_part_and_lower_the_loss(files, networks, tmp_path, capsys):
    tuning = Tuning(files, OPTIONS, DEVICE)
    before = {name: p.detach().clone() for name, p in tuning._learned().items()}
    drawn = tuning.batches.draw(is_permissive=False)
    tuning.batches.draw = lambda is_permissive: drawn
    tuning.student.eval()  # without dropout
    first = tuning.losses(drawn, with_soft=True)
    assert set(first) == {"picture", "follow", "taught", "soft", "clips"}
    assert set(tuning.losses(drawn, with_soft=False)) == set(first) - {"soft"}
    tuning.train(5, False, tmp_path / "result")
    tuning.student.eval()
    last = tuning.losses(drawn, with_soft=True)
    assert last["follow"] < first["follow"]
    assert sum(last.values()) < sum(first.values())
    # A layer's factor A begins to learn when B is not zero any more.
    assert [n for n, p in tuning._learned().items() if torch.equal(p, before[n]) and "tower" not in n] == []
    assert {group for group, params in tuning.parameters().items() if params} == {"image", "head", "text", "teacher"}
    assert "REPORT coco1" in capsys.readouterr().out


def test_the_result_is_what_the_package_reads(networks, minilm, tmp_path):
    """The exported arrays give the vectors of the student, and training can continue with them."""
    student, result = Student(OPTIONS.image_rank).eval(), tmp_path / "result"
    for addition in (*student.additions.values(), *student.embed.additions.values()):
        nn.init.normal_(addition.b, std=0.05)
    save_arrays(result, student.export())
    texts = ["cut the onion", "a person is red"]
    arrays = {name.removeprefix("minilm."): array for name, array in load_arrays(result, "minilm.").items()}
    for device in (None, "cpu"):
        vectors = MiniLM(minilm, device).tuned(arrays).encode(texts)
        with torch.inference_mode():
            np.testing.assert_allclose(vectors, student.embed(texts).numpy(), atol=1e-3)
    assert not np.allclose(vectors, student.embed.encode_untuned(texts).numpy(), atol=1e-2)

    tower = dinov2.load_tower(Path())
    additions = dinov2.load_additions(result)
    assert set(additions) == {f"blocks.0.{layer}" for layer in words_networks.IMAGE_LAYERS}
    with torch.no_grad():
        pictures = torch.randn(2, 3, 224, 224)
        plain = tower(pictures)
        for layer, addition in additions.items():
            tower.get_parameter(f"{layer}.weight").add_(torch.from_numpy(addition))
        torch.testing.assert_close(tower(pictures), student.tower(pictures), atol=2e-3, rtol=0)
        assert (tower(pictures) - plain).abs().max() > 1e-2

        again = Student(OPTIONS.image_rank, result).eval()
        torch.testing.assert_close(again.see(pictures)[1], student.see(pictures)[1], atol=2e-3, rtol=0)
        assert torch.equal(again.pooling, student.pooling)
    assert all(array.dtype == np.float16 for name, array in load_arrays(result).items() if name != "pooling")


@pytest.mark.slow
def test_a_report_shows_the_mean_of_the_weights_and_leaves_them_as_they_are(files, networks, tmp_path):
    tuning = Tuning(files, OPTIONS, DEVICE)
    tuning.train(1, True, tmp_path / "result")
    with torch.no_grad():
        for parameter in tuning._learned().values():
            parameter.add_(0.01)
    raw = {name: p.detach().clone() for name, p in tuning._learned().items()}
    tuning.report(tmp_path / "report")
    assert all(torch.equal(p, raw[name]) for name, p in tuning._learned().items())
    assert tuning.student.training
    assert not tuning.student.tower.training
    reported = load_arrays(tmp_path / "report")
    assert all(np.array_equal(reported[name], array) for name, array in load_arrays(tmp_path / "result").items())


def test_development_clips_are_found_by_means_over_their_frames(monkeypatch, tmp_path):
    tuning = object.__new__(Tuning)
    tuning.files, tuning.device = Files(tmp_path, tmp_path, tmp_path), DEVICE
    assert tuning.report_clips() == {}
    told = {
        "chores": {"clips": [[0, 2], [2, 3]], "queries": ["first", "second"], "owners": [0, 1]},
        "kitchen": {"clips": [[0, 2], [2, 3]], "queries": ["second"], "owners": [0]},
        "procedures": [[[0, 2, "first"], [2, 3, "second"]]],
    }
    (tmp_path / "dev.json").write_text(json.dumps(told))
    (tmp_path / "dev.names").write_text("[]")
    np.save(tmp_path / "dev.npy", np.zeros((3, 8, 8, 3), np.uint8))
    rows = {"first": [0.9, 0.7, 0.1], "second": [0.0, 1.0, 0.6]}
    monkeypatch.setattr(tuning, "see_all", lambda pictures: pictures, raising=False)
    monkeypatch.setattr(tuning, "similarity", lambda texts, seen: torch.tensor([rows[text] for text in texts]))
    found = {"chores1": 1.0, "chores3": 1.0, "kitchen1": 0.0, "kitchen3": 1.0, "steps1": 1.0, "steps3": 1.0}
    assert tuning.report_clips() == found
    assert rank_of(np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]]), [2, 2], 1).tolist() == [2, 0]


def test_clip_is_read_out_of_its_file_with_8_bit_weights(tmp_path):
    onnx = pytest.importorskip("onnx")
    rng = np.random.default_rng(0)
    arrays = {
        "vision_model.pre_layrnorm.weight": rng.normal(size=4).astype(np.float32),
        "onnx::MatMul_1_quantized": rng.integers(0, 255, (4, 3)).astype(np.uint8),
        "onnx::MatMul_1_zero_point": np.array(120, np.uint8),
        "onnx::MatMul_1_scale": np.array(0.5, np.float32),
        "other": np.zeros(1, np.float32),
    }
    inputs = ["x", "onnx::MatMul_1_quantized", "zero", "onnx::MatMul_1_zero_point"]
    node = onnx.helper.make_node("MatMulInteger", inputs, ["y"], "/visual_projection/MatMul_quant")
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "clip", [], [], initializers)), tmp_path / "clip")
    found = words_networks.read_clip(tmp_path / "clip")
    assert set(found) == {"vision_model.pre_layrnorm.weight", "visual_projection.weight"}
    expected = 0.5 * (arrays["onnx::MatMul_1_quantized"].astype(np.float32).T - 120)
    np.testing.assert_array_equal(found["visual_projection.weight"].numpy(), expected)


def test_the_teacher_centres_by_its_first_pictures(networks):
    torch.manual_seed(0)
    teacher = Teacher(Path("clip"))
    seen = teacher.see(torch.randn(6, 3, 224, 224))
    torch.testing.assert_close(seen.norm(dim=1), torch.ones(6))
    mean = teacher.mean.clone()
    assert mean.any()
    teacher.see(torch.randn(2, 3, 224, 224))
    assert torch.equal(teacher.mean, mean)
    assert not any(p.requires_grad for p in teacher.tower.parameters())
    assert TextNetwork(2).encode_untuned(["cut the onion"]).shape == (1, 384)
