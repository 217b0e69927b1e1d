"""EgoProceL in its official layout: reading, and scores by every protocol."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiero.errors import InputError
from hiero.evaluation.egoprocel import (
    AVERAGINGS,
    CLUSTERING_METHODS,
    _data_set_means,
    check_lengths,
    evaluate_egoprocel,
    predict,
    score,
)
from hiero.evaluation.egoprocel_data import (
    NO_FEATURES,
    NO_RATE,
    TASKS,
    EgoProceLVideo,
    find_egoprocel_videos,
    frame_labels,
    probe_rates,
    read_key_steps,
    read_rates,
)
from tests.conftest import load_json
from tests.films import import_av, write_video
from tests.oracle.bootstrap import plain_data_set_means, score_each_draw


@pytest.mark.parametrize("case", load_json("metrics")["egoprocel_frame_labels"])
def test_labels_of_frames_are_the_official_ones(case, tmp_path):
    with (tmp_path / "v.csv").open("w") as file:
        file.writelines(f"{start},{end},{name}\n" for start, end, name in case["annotation_rows"])
    fps = int(case["video_fps"])  # the official code truncates it; we do not
    labels = frame_labels(read_key_steps(tmp_path / "v.csv"), fps, case["num_frames"])
    assert labels.tolist() == case["labels"]
    assert list(range(1, case["num_frames"], 2)) == case["kept_frames"]


@pytest.fixture
def videos(egoprocel_files):
    return find(egoprocel_files)[0]


def find(files, names=()):
    folder, rates = files
    return find_egoprocel_videos(folder / "annotations", folder / "features", rates, names)


@pytest.mark.slow
def test_tables_by_task_and_by_key_step(egoprocel_files, engine):
    videos, missing, absent_tasks = find(egoprocel_files)
    assert [video.name for video in videos] == ["0003", "0004", "S07_Brownie_7150991-1431"]
    assert missing == {"0005": NO_FEATURES}
    assert len(absent_tasks) == 14
    main, *others = evaluate_egoprocel(engine, videos)
    assert main.rows[0].method == "HiERO, spectral"
    for row in main.rows:
        assert row.scores["mean F1"] == pytest.approx((row.scores["CMU-MMAC F1"] + row.scores["MECCANO F1"]) / 2)
    sets = next(table for table in others if table.title.endswith("data sets"))
    for row in sets.rows:
        assert row.scores["F1"] == pytest.approx(main.rows[0].scores[f"{row.method} F1"])
        assert set(row.scores) >= {"precision", "recall", "IoU"}
    steps = next(table for table in others if table.title.endswith("key-steps"))
    assert {row.method for row in steps.rows} >= {"Brownie: key-step 1", "MECCANO: background"}


@given(st.lists(st.sampled_from(TASKS), min_size=1, max_size=12), st.booleans(), st.booleans(), st.integers(0, 99))
def test_means_of_all_draws_at_once_are_those_of_one_after_the_other(tasks, has_iou, f1_of_means, seed):
    rng = np.random.default_rng(seed)
    videos = [EgoProceLVideo(f"v{i}", task, (), Path(), 30.0, 10) for i, task in enumerate(tasks)]
    names = ["F1", *["IoU"] * has_iou, "precision", "recall"]
    scores = [dict(zip(names, rng.random(len(names)).tolist(), strict=True)) for _ in videos]
    weights = rng.multinomial(len(videos), np.full(len(videos), 1 / len(videos)), size=20).astype(float)
    together = _data_set_means(videos, scores, f1_of_means)(weights)
    each = score_each_draw(plain_data_set_means(videos, scores, f1_of_means))(weights)
    assert list(together) == list(each)
    for name in each:
        np.testing.assert_array_equal(together[name], each[name])


def test_clusters_that_are_the_steps_get_full_marks(videos):
    truth = frame_labels(videos[0].key_steps, videos[0].fps, videos[0].num_frames)
    for averaging in AVERAGINGS:
        if averaging.background:
            assert score(truth, videos[0], averaging, 7)["F1"] == pytest.approx(1.0)


def test_at_60_frames_a_second_a_node_stands_for_half_the_time_that_it_does_at_30(videos, engine):
    assert len(predict(engine, videos[0], 7, CLUSTERING_METHODS[0], 16, 0)) == 635
    steps = videos[0].key_steps
    assert (frame_labels(steps, 60.0, 1270) > 0).sum() > (frame_labels(steps, 30.0, 1270) > 0).sum()


def test_frame_rates_come_from_videos(tmp_path):
    import_av()
    (tmp_path / "videos" / "MECCANO").mkdir(parents=True)
    write_video(tmp_path / "videos" / "MECCANO" / "0003.mp4", range(24), fps=12)
    (tmp_path / "videos" / "0004.csv").write_text("0,1,1 take")
    assert probe_rates(tmp_path / "videos", ["0003", "0004"]) == {"0003": (12.0, 24)}


def test_features_of_another_rate_are_refused_before_anything_is_scored(videos, engine):
    assert not check_lengths(engine, videos, 16)
    with pytest.raises(InputError, match="--stride"):
        check_lengths(engine, videos, 8)
    longer = [replace(videos[0], key_steps=((0.0, 99.0, 1),)), *videos[1:]]
    assert [warning.split(":")[0] for warning in check_lengths(engine, longer, 16)] == [videos[0].name]


def test_a_video_without_a_frame_rate_is_not_one_without_features(egoprocel_files):
    folder, rates = egoprocel_files
    del rates["0004"]
    assert find(egoprocel_files)[1] == {"0004": NO_RATE, "0005": NO_FEATURES}
    for known_rates, names, message in (({}, [], NO_RATE), (rates, ["nonsense"], "--only nonsense")):
        with pytest.raises(InputError, match=message):
            find((folder, known_rates), names)


def test_frame_rates_are_read_by_the_names_of_their_columns(tmp_path):
    file = tmp_path / "rates.csv"
    expected = {"a": (29.97, 300)}
    for text in ("video,fps,frames\na,29.97,300\n", "frames,video,fps\n300,a,29.97\n", "a,29.97,300\n"):
        file.write_text(text)
        assert read_rates(file) == expected


BAD_STEPS = ["", "\n\n", "0,5\n", "0,1,take\n", "-3,5,1 take\n", "nan,5,1 take\n"]
BAD_RATES = ["", "video,fps,frames\n", "video,fps\na,30\n", "a,0,300\n", "a,nan,300\n"]


@pytest.mark.parametrize(
    ("read", "text"), [*((read_key_steps, text) for text in BAD_STEPS), *((read_rates, text) for text in BAD_RATES)]
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, read, text):
    (tmp_path / "v.csv").write_text(text)
    with pytest.raises(InputError, match=r"v\.csv"):
        read(tmp_path / "v.csv")
