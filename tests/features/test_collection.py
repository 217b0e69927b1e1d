"""Extraction of whole collections: kept, continued, reported; on this machine and on a Ray cluster."""

from __future__ import annotations

import json
import os
import signal
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from hiero.cli import app
from hiero.engine import load
from hiero.errors import InputError
from hiero.features import extractor, ray_cluster
from hiero.features.collection import ExtractionPlan, ExtractionProgress, extract_all
from hiero.features.extractor import LoadedBackbones
from hiero.features.files import read_feature_array, read_sidecar
from hiero.features.stores import pack
from hiero.media.recordings import find_recordings, find_videos, have_one_format
from hiero.media.source import VideoSource
from hiero.networks.registry import find_backbone
from hiero.networks.spacetime import SpaceTimeTransformer
from tests.documentation import check_schema
from tests.films import grey, write_video
from tests.networks.test_towers import randomise


def egovlp_file(path, width=64, size=16):
    """A tower in EgoVLP's layout that sees 224 pixels, small enough for a test."""
    tower = SpaceTimeTransformer(width, 1, 32, 49, 4)
    state = {f"module.video_model.{name}": value for name, value in randomise(tower).items()}
    generator = torch.Generator().manual_seed(1)
    state["module.vid_proj.0.weight"] = torch.randn(size, width, generator=generator)
    state["module.vid_proj.0.bias"] = torch.zeros(size)
    torch.save({"state_dict": state}, path)
    return path


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return egovlp_file(tmp_path_factory.mktemp("weights") / "egovlp.pth")


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))


@pytest.fixture
def videos(tmp_path):
    """Three videos of 2 to 4 s at 30 frames a second, their brightness random but steady for half a second."""
    out = {}
    for i in range(3):
        values = np.repeat(np.random.default_rng(i).integers(20, 235, 4 + 2 * i), 15).tolist()
        out[f"v{i}"] = write_video(tmp_path / f"v{i}.mp4", values, fps=30)
    return out


def plan_for(tmp_path, weights, out="out", **options):
    settings = {"num_frames": 4, "device": "cpu", **options}
    return ExtractionPlan("egovlp", tmp_path / out, weights=weights, **settings)


def extract(videos, plan, jobs=1, **callbacks):
    """The status of each video."""
    return [result.status for result in extract_all(videos, plan, jobs, ExtractionProgress(**callbacks))]


def test_files_sidecars_and_what_is_kept(tmp_path, weights, videos, monkeypatch):
    plan = plan_for(tmp_path, weights)
    begun, positions_s = [], {}
    advance = positions_s.__setitem__
    assert extract(videos, plan, begin=lambda name, _: begun.append(name), advance=advance) == ["done"] * 3
    assert begun == list(videos)
    assert positions_s["v0"] == pytest.approx(2.0, abs=0.1)
    sidecar = read_sidecar(tmp_path / "out" / "v0.safetensors")
    assert (sidecar.backbone, sidecar.width, sidecar.num_frames) == ("egovlp", 16, 4)
    assert (sidecar.clock.spacing_s, sidecar.window) == (16 / 30, 16)
    assert read_feature_array(tmp_path / "out" / "v0.safetensors").shape == (sidecar.num_segments, 16) == (4, 16)
    monkeypatch.setattr(ExtractionPlan, "load_backbones", lambda self: pytest.fail("nothing needs reading"))
    assert extract(videos, plan) == ["kept"] * 3
    files = {f"v{i}.{suffix}" for i in range(3) for suffix in ("safetensors", "safetensors.json")}
    assert {path.name for path in (tmp_path / "out").iterdir()} == files


@pytest.mark.slow
def test_what_changed_is_read_again(tmp_path, weights, videos):
    plan = plan_for(tmp_path, weights)
    rows = plan.feature_file("v0")
    extract_all({"v0": videos["v0"]}, plan_for(tmp_path, weights, spacing_s=0.5))
    old_rows = rows.read_bytes()
    assert extract(videos, plan) == ["done"] * 3  # other settings
    rows.write_bytes(old_rows)  # beside a new sidecar, which a kill at the worst moment leaves
    write_video(videos["v1"], [100] * 60, fps=30)
    assert extract(videos, plan) == ["done", "done", "kept"]
    plan.feature_file("v2").write_bytes(b"damaged")
    assert extract(videos, plan) == ["kept", "kept", "done"]
    assert extract(videos, plan_for(tmp_path, weights, dtype="float32")) == ["done"] * 3
    other = egovlp_file(tmp_path / "other.pth", size=8)
    assert extract(videos, plan_for(tmp_path, other)) == ["done"] * 3


def test_features_of_a_video_that_changes_meanwhile_are_not_written(tmp_path, weights, videos):
    def replace(name, _):
        write_video(videos[name], [100] * 60, fps=30)

    assert extract({"v1": videos["v1"]}, plan_for(tmp_path, weights), advance=replace) == ["failed"]
    assert list((tmp_path / "out").iterdir()) == []


def test_one_bad_video_does_not_stop_the_rest(tmp_path, weights, videos, capsys):
    (tmp_path / "bad.mp4").write_bytes(b"not a video")
    (tmp_path / "empty.mp4").write_bytes(b"")
    inputs = [tmp_path / "bad.mp4", *videos.values(), tmp_path / "empty.mp4", tmp_path / "gone.mp4"]
    options = ["--backbone", "egovlp", "--weights", str(weights), "--frames", "4", "--device", "cpu", "-j", "2"]
    with pytest.raises(SystemExit) as ended:
        app(["extract", *map(str, inputs), "-o", str(tmp_path / "out"), *options])
    assert ended.value.code == 1
    failed = [line for line in capsys.readouterr().err.splitlines() if line.startswith("failed")]
    assert len(failed) == 3
    assert all(any(name in line for line in failed) for name in ("bad.mp4", "empty.mp4", "gone.mp4"))
    assert len(list((tmp_path / "out").glob("*.safetensors"))) == 3


def count_calls(monkeypatch, fail_first=False):
    """The calls of the networks from now on. The first one fails if it should."""
    calls, original = [], LoadedBackbones.run_frames

    def run(self, frames):
        calls.append(frames)
        if fail_first and len(calls) == 1:
            raise RuntimeError("out of memory")
        return original(self, frames)

    monkeypatch.setattr(LoadedBackbones, "run_frames", run)
    return calls


def test_an_interrupted_run_goes_on_and_removes_what_it_left(tmp_path, weights, videos, monkeypatch):
    """The first video is kept, and the second goes on from what was saved of it."""
    monkeypatch.setattr(extractor, "SAVE_EVERY_S", -1.0)

    def interrupt(name, done_s):
        if name == "v1" and done_s > 1.5:
            raise KeyboardInterrupt

    plan, out = plan_for(tmp_path, weights), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        extract_all(videos, plan, progress=ExtractionProgress(advance=interrupt))
    assert list(out.glob(".v1-*.partial"))
    assert not (out / "v1.safetensors.json").exists()
    for name in (".v1.safetensors.abcd1234.part", ".v1.safetensors.json.abcd1234.part"):
        (out / name).write_bytes(b"what a process leaves that is killed while it writes")
    calls, moments = count_calls(monkeypatch), []
    two = {name: videos[name] for name in ("v0", "v1")}
    assert extract(two, plan, advance=lambda *moment: moments.append(moment)) == ["kept", "done"]
    assert 0 < len(calls) < len(moments)  # what was saved was not computed again
    assert not list(out.glob(".*"))
    extract_all({"v1": videos["v1"]}, fresh := plan_for(tmp_path, weights, out="fresh"))
    np.testing.assert_array_equal(*(read_feature_array(each.feature_file("v1")) for each in (plan, fresh)))


def test_an_interruption_ends_all_threads(tmp_path, weights, videos):
    def advance(name, done_s):
        if name == "v1":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract_all(videos, plan_for(tmp_path, weights), 3, ExtractionProgress(advance=advance))
    assert not list((tmp_path / "out").glob("*.part"))
    assert extract(videos, plan_for(tmp_path, weights))[1] == "done"


def test_a_full_disk_ends_everything(tmp_path, weights, videos, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", "v0.safetensors")

    plan = plan_for(tmp_path, weights)
    extract_all(videos, plan)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space left"):
            extract_all(videos, plan_for(tmp_path, weights, dtype="float32"))
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


class FrameBrightness(torch.nn.Module):
    """Brightness of each frame of a window, as it comes."""

    def __init__(self):
        super().__init__()
        self.nothing = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x.mean((2, 3, 4))


@pytest.fixture
def brightness(monkeypatch):
    """EgoVLP with a network whose features are the brightness of each frame."""
    from hiero.networks import egovlp

    monkeypatch.setattr(egovlp, "load", lambda *_, **__: FrameBrightness())
    monkeypatch.setattr(egovlp, "prepare", lambda frames: frames.permute(0, 3, 1, 2).float())


@pytest.mark.parametrize(("fps", "clock"), [(30, "seconds"), (30, "frames"), (60, "frames"), (15, "frames")])
def test_a_row_holds_exactly_sixteen_frames_at_a_constant_rate(tmp_path, weights, brightness, fps, clock):
    """Row i holds frames 16 i to 16 i + 15, as published features do: each frame has a grey of its own."""
    values = [20 + 3 * i for i in range(64)]
    video = write_video(tmp_path / "v.mp4", values, fps=fps)
    plan = plan_for(tmp_path, weights, clock=clock, num_frames=16, dtype="float32")
    extract_all({"v": video}, plan)
    rows = read_feature_array(plan.feature_file("v"))
    np.testing.assert_allclose(rows, np.reshape(values, (4, 16)), atol=1.6)
    sidecar = read_sidecar(plan.feature_file("v"))
    assert (sidecar.fps, sidecar.stride) == (fps, 16)


def test_a_variable_rate_stays_true_in_time(tmp_path, weights, brightness):
    """Frames that stand for 0.3 s, then quick ones: rows follow the clock, by hand-made timestamps."""
    times = [0.0, 0.3, 0.6, 0.9, *(1.2 + i / 50 for i in range(100))]
    values = [40, 80, 120, 160, *([200] * 50), *([240] * 50)]
    video = write_video(tmp_path / "v.mkv", values, times)
    plan = plan_for(tmp_path, weights, spacing_s=0.5, dtype="float32")
    extract_all({"v": video}, plan)
    rows = read_feature_array(tmp_path / "out" / "v.safetensors")
    moments = (np.arange(len(rows))[:, None] + (np.arange(4) + 0.5) / 4) * 0.5
    expected = np.array(values)[np.searchsorted(times, moments, side="right") - 1]
    assert len(rows) == 7  # the last frame stands for a tenth of a second
    np.testing.assert_allclose(rows, expected, atol=3)
    # --clock frames steps by the mean rate, and its sidecar says so: times are true there too
    plan = plan_for(tmp_path, weights, "frames", clock="frames", dtype="float32")
    extract_all({"v": video}, plan)
    sidecar, rows = read_sidecar(plan.feature_file("v")), read_feature_array(plan.feature_file("v"))
    moments = (np.arange(len(rows))[:, None] + (np.arange(4) + 0.5) / 4) * sidecar.clock.spacing_s
    inside = moments < times[-1]
    expected = np.array(values)[np.searchsorted(times, moments, side="right") - 1]
    np.testing.assert_allclose(rows[inside], expected[inside], atol=3)


def test_windows_that_overlap(tmp_path, weights, brightness):
    """32 frames every 16: row i sees segments i and i + 1; at the end it steps back."""
    values = [20 + 3 * i for i in range(64)]
    video = write_video(tmp_path / "v.mp4", values, fps=30)
    plan = plan_for(tmp_path, weights, window=32, num_frames=16, dtype="float32")
    extract_all({"v": video}, plan)
    segments = np.reshape(values, (4, 16))
    expected = np.stack([np.concatenate([segments[i], segments[i + 1]]) for i in (0, 1, 2, 2)])
    np.testing.assert_allclose(read_feature_array(tmp_path / "out" / "v.safetensors"), expected, atol=1.6)
    assert read_sidecar(tmp_path / "out" / "v.safetensors").window == 32
    short = write_video(tmp_path / "s.mp4", values[:10], fps=30)  # less than a segment
    extract_all({"s": short}, plan)
    assert read_feature_array(tmp_path / "out" / "s.safetensors").shape == (1, 16)


def test_a_broken_tail_is_said(tmp_path, weights):
    video = write_video(tmp_path / "v.ts", [60] * 150, fps=30, options={"g": "5"})
    video.write_bytes(video.read_bytes()[: int(0.6 * video.stat().st_size)] + b"\x00" * 5000)
    lines = []
    assert extract({"v": video}, plan_for(tmp_path, weights), log=lines.append) == ["done"]
    assert all("v.ts" in line for line in lines)
    assert read_sidecar(tmp_path / "out" / "v.safetensors").duration_s < 5


def test_pt_files_for_ego4d_users_and_packing(tmp_path, weights, videos):
    extract_all(videos, plan_for(tmp_path, weights, format="pt", dtype="float32"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = torch.load(tmp_path / "out" / "v0.pt", weights_only=True)
    assert rows.dtype == torch.float32
    store, _ = pack(tmp_path / "out", tmp_path / "store")
    assert (store.backbone, store.window, store.clock.fps, store.clock.stride) == ("egovlp", 16, 30, 16)
    extract_all({"v0": videos["v0"]}, plan_for(tmp_path, weights, format="pt", dtype="float32", spacing_s=1.0))
    with pytest.raises(InputError, match="--stride"):
        pack(tmp_path / "out", tmp_path / "store2")


def test_features_bring_their_own_clock(tmp_path, weights, videos):
    extract_all(videos, plan_for(tmp_path, weights))
    video = load("raw").read(tmp_path / "out" / "v2.safetensors")
    assert video.clock.spacing_s == pytest.approx(16 / 30)
    assert video.duration_s == pytest.approx(4.0, abs=0.3)
    (tmp_path / "out" / "v2.safetensors.json").write_text("{}")  # not ours: passed over
    assert load("raw").read(tmp_path / "out" / "v2.safetensors").clock.spacing_s == 1.0


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def test_names_of_videos(tmp_path):
    touch(tmp_path, "a/x.mp4", "a/b/y.MKV", "c/x.mp4", "a/notes.txt", "none/notes.txt", "twins/x.avi", "twins/x.mp4")
    assert set(find_videos([tmp_path / "a"])) == {"x", "b/y"}
    assert set(find_videos([tmp_path / "a", tmp_path / "a" / "*.mp4"])) == {"x", "b/y"}  # each file once
    with pytest.raises(InputError):
        find_videos([])
    for paths, named in ((["a/x.mp4", "c/x.mp4"], r"x\.mp4"), (["none"], "none"), (["twins"], r"x\.avi")):
        with pytest.raises(InputError, match=named):
            find_videos([tmp_path / path for path in paths])


def test_patterns_name_files_from_where_they_begin(tmp_path):
    touch(tmp_path, "a/x.mp4", "b/x.mp4", "b/notes.txt", "b/.y.mp4", "z[1].mp4")
    for pattern, names in {
        "*/*.mp4": {"a/x", "b/x"},
        "**/x*": {"a/x", "b/x"},
        "b*": {"b/x"},  # a folder that matches stands for its videos
        "z[1].mp4": {"z[1]"},  # a file of this name
        "*/../a/x.mp4": {"x"},
    }.items():
        assert set(find_videos([tmp_path / pattern])) == names
    assert find_videos([tmp_path / "*/*.mp4"])["a/x"] == VideoSource.of(tmp_path / "a/x.mp4")
    with pytest.raises(InputError, match="mkv"):
        find_videos([tmp_path / "*.mkv"])


def test_chapters_are_one_video(tmp_path, make):
    paths = [make(f"GX0{i}0012.MP4", [10 * i] * 5) for i in (1, 2, 4)]
    lines = []
    assert find_recordings([tmp_path], log=lines.append) == {"GX010012": VideoSource.of(paths)}
    assert "chapter 3 is missing" in lines[0]
    assert find_recordings([tmp_path], join=False) == {path.stem: VideoSource.of(path) for path in paths}
    make("tea.mp4", [0] * 5)
    assert find_recordings([tmp_path], join=True) == {"GX010012": VideoSource.of([*paths, tmp_path / "tea.mp4"])}
    assert find_recordings(paths[:1]) == {"GX010012": VideoSource.of(paths[0])}
    make("GX020012.MP4", [10] * 5, fps=20)  # of another recording, whatever its name
    assert set(find_recordings([tmp_path], log=lines.append)) == {"GX010012", "GX020012", "GX040012", "tea"}
    assert "size or frame rate differ" in lines[1]


def test_other_peoples_files_are_left_alone(tmp_path, weights, videos):
    """The output folder may be the one of the videos, with annotations beside them."""
    (tmp_path / "v0.json").write_text('{"my": "annotations"}')
    torch.save(torch.zeros(1), tmp_path / "v1.pt")
    first, second, _ = extract_all(videos, plan_for(tmp_path, weights, "", format="pt", dtype="float32"))
    assert first.status == "done"
    assert (tmp_path / "v0.json").read_text() == '{"my": "annotations"}'
    assert second.status == "failed"
    assert "v1.pt" in second.message
    (tmp_path / "._v0.mp4").write_bytes(b"a shadow that some systems leave")
    assert not any("._" in name for name in find_videos([tmp_path]))


def test_what_a_network_does_to_one_video_is_its_own(tmp_path, weights, videos, monkeypatch):
    count_calls(monkeypatch, fail_first=True)
    results = extract_all(videos, plan_for(tmp_path, weights))
    assert [result.status for result in results] == ["failed", "done", "done"]
    assert "RuntimeError: out of memory" in results[0].message


def test_mistakes_of_the_command_end_it_before_a_video_is_read(tmp_path, weights, videos):
    torch.save({"a": torch.zeros(1)}, tmp_path / "no.pth")
    (tmp_path / "file").write_text("")
    for plan, fact in (
        (plan_for(tmp_path, tmp_path / "no.pth"), r"no\.pth"),
        (plan_for(tmp_path, weights, out="file"), "file"),
        (plan_for(tmp_path, weights, precision="bfloat16"), "--precision"),
        (ExtractionPlan("egovlp", tmp_path / "out"), "hiero models get egovlp --source FILE"),
    ):
        with pytest.raises(InputError, match=fact):
            extract_all(videos, plan)


def test_values_that_are_not_finite_are_not_kept(tmp_path, weights, videos, monkeypatch):
    monkeypatch.setattr(extractor, "SAVE_EVERY_S", -1.0)
    video, plan = {"v0": videos["v0"]}, plan_for(tmp_path, weights)
    with monkeypatch.context() as broken:
        broken.setattr(LoadedBackbones, "run_frames", lambda _, frames: [torch.full((len(frames), 16), torch.nan)])
        (result,) = extract_all(video, plan)
    assert "not finite" in result.message
    assert not list((tmp_path / "out").glob(".*"))
    assert extract(video, plan) == ["done"]


def test_features_of_another_backbone_are_refused(tmp_path, weights, videos):
    extract_all(videos, plan_for(tmp_path, weights))
    file = tmp_path / "out" / "v0.safetensors"
    sidecar = tmp_path / "out" / "v0.safetensors.json"
    sidecar.write_text(sidecar.read_text().replace('"egovlp"', '"lavila-l"'))
    with pytest.raises(InputError, match="lavila-l"):
        load("egovlp").read(file)
    assert load("raw").read(file).nodes.shape == (4, 16)


@pytest.mark.parametrize(
    ("backbone", "options", "option"),
    [
        ("egovlp", {"spacing_s": 0}, "--spacing"),
        ("egovlp", {"clock": "frames", "spacing_s": 1.0}, "--clock"),
        ("egovlp", {"window": 20}, "--window"),
        ("egovlp", {"batch_size": 0}, "--batch-size"),
        ("i3d-k400", {"clock": "frames"}, "--clock"),
        ("i3d-k400", {"weights": "a.pth"}, "--weights"),
        ("resnet", {}, "resnet"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path, backbone, options, option):
    with pytest.raises(InputError, match=option):
        ExtractionPlan(backbone, tmp_path, **options)


def test_a_video_backbone_is_not_combined_with_others():
    with pytest.raises(InputError, match="egovlp, i3d-k400"):
        LoadedBackbones.load([find_backbone("egovlp"), find_backbone("i3d-k400")])


ray = pytest.importorskip("ray", reason="needs Ray: pip install 'hiero-video[ray]'")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster for all tests here: it takes seconds to start, and its workers have the environment of its start."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("HIERO_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr("builtins.print", print)  # Ray puts its own in place of it
        ray_cluster.connect("local")
        yield
        ray.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_of_two_whose_workers_are_killed(tmp_path, weights, cluster):
    """Nothing is lost, nothing is made twice: the video of a killed worker goes to another one, and a video
    that kills every worker fails after some attempts without taking others along.
    """
    for i in range(4):
        write_video(tmp_path / f"v{i}.mp4", np.random.default_rng(i).integers(20, 235, 240).tolist(), fps=30)
    (tmp_path / "bad.mp4").write_bytes(b"not a video")
    videos = find_videos([*(tmp_path / f"v{i}.mp4" for i in range(4)), tmp_path / "bad.mp4"])
    ended, marker = [], tmp_path / "killed"

    class Fragile(ray_cluster.Worker):
        """The first worker that has read a part of v1 is killed, and every worker that reads v2 ends itself."""

        def extract(self, name, path):
            self.name = name
            if name == "v2":
                os._exit(1)
            return super().extract(name, path)

        def advance(self, done_s):
            if self.name == "v1" and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    plan, local = plan_for(tmp_path, weights, threads=1), plan_for(tmp_path, weights, out="local")
    progress = ExtractionProgress(end=lambda result: ended.append(result.name))
    results = ray_cluster.extract_on_cluster(videos, plan, workers=2, progress=progress, worker=Fragile)
    assert marker.exists()
    statuses = {result.name: result.status for result in results}
    assert statuses == {"v0": "done", "v1": "done", "v2": "failed", "v3": "done", "bad": "failed"}
    assert "v2" in results[2].message
    assert sorted(ended) == sorted(videos)  # each ended once
    assert not list((tmp_path / "out").glob(".*"))
    extract_all({"v1": videos["v1"]}, local)
    rows, expected = (read_feature_array(each.feature_file("v1")) for each in (plan, local))
    np.testing.assert_allclose(rows, expected, rtol=2e-2, atol=2e-2)
    good = {name: videos[name] for name in ("v0", "v1", "v3")}
    again = ray_cluster.extract_on_cluster(good, plan, workers=1)
    assert [result.status for result in again] == ["kept"] * 3


def test_no_cluster_there(tmp_path, weights, videos):
    with pytest.raises(InputError, match=r"127\.0\.0\.1"):
        ray_cluster.extract_on_cluster(videos, plan_for(tmp_path, weights), address="127.0.0.1:1")


def test_the_report_as_json(tmp_path, weights, videos, capsys):
    options = ["--backbone", "egovlp", "--weights", str(weights), "--json"]
    with pytest.raises(SystemExit) as ended:
        app(["extract", str(videos["v0"]), "-o", str(tmp_path / "out"), *options])
    assert ended.value.code == 0
    report = json.loads(capsys.readouterr().out)
    check_schema(report, "extract")
    check_schema(json.loads((tmp_path / "out/v0.safetensors.json").read_text()), "features")
    assert report["videos"][0]["name"] == "v0"
    assert report["videos"][0]["status"] == "done"
    assert Path(report["out"]) == tmp_path / "out"


def test_another_size_or_rate_is_another_recording(tmp_path):
    first = write_video(tmp_path / "a.mp4", [10] * 5)
    same = write_video(tmp_path / "b.mp4", [90] * 8)
    small = write_video(tmp_path / "c.mp4", [0] * 5, pictures=[grey(9, 32, 32)] * 5)
    fast = write_video(tmp_path / "d.mp4", [10] * 5, fps=20)
    (tmp_path / "broken.mp4").write_bytes(np.random.default_rng(0).bytes(999))
    assert have_one_format(VideoSource.of([first, same]))
    assert have_one_format(VideoSource.of([first, tmp_path / "broken.mp4", tmp_path / "gone.mp4"]))
    assert not have_one_format(VideoSource.of([first, small]))
    assert not have_one_format(VideoSource.of([first, fast]))
