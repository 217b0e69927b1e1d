"""A film whose pictures and words are known: what is only said is found, and answers name their evidence."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from hiero.cli import app
from hiero.engine import load
from hiero.engine.transcripts import Transcript, recognise_speech
from hiero.errors import InputError
from hiero.types import MIN_LABEL_PROBABILITY, Clock, Utterance
from tests.films import import_av, write_video

pytestmark = pytest.mark.slow

UTTERANCES = (  # over coffee, a cat, a motorcycle, a rocket, a portrait and grass, three seconds each
    Utterance(0.5, 1.6, "Here is my cup of coffee."),
    Utterance(4.0, 5.25, "My grandmother gave me this recipe."),
    Utterance(6.5, 7.75, "Next we repair the motorcycle in the garage."),
    Utterance(10.0, 11.25, "Remember to call the dentist on Monday."),
    Utterance(16.0, 17.5, "Then I cut the onion into small pieces."),
)


class ScriptedRecogniser:
    """Stands for a recogniser: says how loud each chunk is, and fails where it is told to."""

    key = "scripted"

    def __init__(self, fail_at=None):
        self.num_calls, self.fail_at = 0, fail_at

    def recognise(self, samples):
        if self.num_calls == self.fail_at:
            raise KeyboardInterrupt
        self.num_calls += 1
        return [Utterance(0.0, len(samples) / 16_000, f"chunk of {len(samples)}")]


@pytest.fixture
def film(photographs):
    """The file, and the video."""
    path, _, video = photographs
    return path, video


@pytest.fixture
def spoken(film):
    """The film with its exact transcript."""
    _, video = film
    return replace(video, transcript=Transcript(UTTERANCES))


def middle(match):
    return (match.start_s + match.end_s) / 2


@pytest.mark.parametrize(
    ("query", "index"), [("cut the onion", 4), ("call the dentist", 3), ("grandmother's recipe", 1)]
)
def test_what_is_only_said_is_found(film, spoken, query, index):
    (answer,), (unheard,) = spoken.ask(query), film[1].ask(query)
    utterance = UTTERANCES[index]
    assert utterance.start_s - 1 <= middle(answer.matches[0]) <= utterance.end_s + 1
    assert (answer.rests_on, answer.matches[0].quote) == ("speech", utterance.text)
    assert answer.probability > 0.5
    assert unheard.probability < answer.probability
    assert unheard.rests_on is None


def test_answers_name_their_evidence(spoken):
    for query, start_s, end_s, evidence, quote in (
        ("a rocket on its launch pad", 9, 12, "pictures", None),
        ("a cup of coffee", 0, 3, "both", UTTERANCES[0].text),
    ):
        (answer,) = spoken.ask(query)
        assert start_s <= middle(answer.matches[0]) <= end_s
        assert (answer.rests_on, answer.matches[0].quote) == (evidence, quote)


def test_what_is_neither_seen_nor_said_is_refused(spoken):
    assert max(answer.probability for answer in spoken.ask(["a person riding a horse", "washing the dishes"])) < 0.5


def test_questions_in_order(spoken):
    answers = spoken.ask(
        ["a cup of coffee", "repair the motorcycle", "call the dentist", "cut the onion"], in_order=True
    )
    middles = [middle(answer.matches[0]) for answer in answers]
    for time_s, utterance in zip(middles, (UTTERANCES[0], UTTERANCES[2], UTTERANCES[3], UTTERANCES[4]), strict=True):
        assert abs(time_s - (utterance.start_s + utterance.end_s) / 2) < 3
    with pytest.raises(InputError, match="do not fit"):
        spoken.ask(["x"] * 19, in_order=True)


def test_without_words_nothing_changes(film):
    """Bit for bit, also where a transcript holds nothing."""
    _, video = film
    queries = ["a cup of coffee", "a cat", "cut the onion"]
    for transcript in (None, Transcript(())):
        other = replace(video, transcript=transcript)
        assert other.ask(queries) == video.ask(queries)
        assert other.steps([3, 6]) == video.steps([3, 6])
        assert "speech" not in other.steps([3]).to_dict()


def test_steps_are_named_by_what_is_said_and_seen(spoken):
    steps = spoken.steps([6]).levels[0]
    labels = [step.label for step in steps]
    assert labels[0] == "my cup of coffee"
    assert labels[2] == "repair the motorcycle in the garage"
    assert not {"cut the onion into small pieces", "call the dentist on Monday"} & set(labels)  # which nobody sees
    assert all(step.probability is None or step.probability >= MIN_LABEL_PROBABILITY for step in steps)
    assert {step.label for step in spoken.steps([6], labels=["a", "b"]).levels[0]} <= {"a", "b", None}


def test_raw_features_are_searched_by_speech_alone(film):
    video = load("raw").read_array(np.random.default_rng(0).normal(size=(18, 8)), Clock(1, 1))
    video.transcript = Transcript(UTTERANCES)
    (answer,) = video.ask("cut the onion")
    assert answer.rests_on == "speech"
    assert 15 <= middle(answer.matches[0]) <= 18


# Files


def run(capsys, *arguments):
    app([str(argument) for argument in arguments], result_action="return_value")
    captured = capsys.readouterr()
    return captured.out, captured.err


@pytest.mark.slow
def test_the_commands(film, tmp_path, capsys):
    path = tmp_path / "film.mp4"
    path.symlink_to(film[0])
    out, err = run(capsys, "ask", path, "cut the onion", "--json")
    assert "transcript" not in err
    assert "rests_on" not in out
    beside = tmp_path / "film.en.srt"
    beside.write_text(Transcript(UTTERANCES).to_srt())
    out, err = run(capsys, "ask", path, "cut the onion", "--json")
    assert str(beside) in err
    (row,) = json.loads(out)["queries"]
    assert (row["matches"][0]["rests_on"], row["matches"][0]["quote"]) == ("speech", UTTERANCES[4].text)
    out, _ = run(capsys, "ask", path, "cut the onion", "-n", "1")
    assert "speech" in out
    assert "onion" in out.splitlines()[2]
    out, err = run(capsys, "ask", path, "cut the onion", "--json", "--no-transcript")
    assert "rests_on" not in out
    run(capsys, "steps", path, "-k", "6", "-o", tmp_path / "out")
    document = json.loads((tmp_path / "out" / "steps.json").read_text())
    assert [row["text"] for row in document["speech"]] == [utterance.text for utterance in UTTERANCES]
    assert "onion" in (tmp_path / "out" / "speech.srt").read_text()
    assert "grandmother" in (tmp_path / "out" / "report.html").read_text()
    beside.write_text("1\n00:00:xx --> 00:00:02,000\nhello\n")
    out, err = run(capsys, "ask", path, "a cat", "--json")  # a broken file beside the video does not cost the answer
    assert beside.name in err
    assert json.loads(out)["queries"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--transcript", "{folder}/gone.srt"], "gone"),
        (["--transcript", "{folder}/words.srt", "--speech"], "--speech"),
        (["--transcript", "{folder}/late.srt"], "late"),
        (["{folder}/b.npy", "--transcript", "{folder}/words.srt"], "one video"),
    ],
)
def test_transcripts_that_cannot_be_used_are_refused(tmp_path, capsys, arguments, message):
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(0).normal(size=(30, 400)).astype(np.float32))
    (tmp_path / "words.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nhello there\n")
    (tmp_path / "late.srt").write_text("1\n01:00:01,000 --> 01:00:02,000\nhello there\n")
    with pytest.raises(InputError, match=message):
        run(capsys, "steps", tmp_path / "a.npy", *(part.format(folder=tmp_path) for part in arguments))


# Recognition


def test_recognition_is_cached_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    path = tmp_path / "tone.mp4"
    add_tone(write_video(tmp_path / "plain.mp4", [100] * 130, fps=1), path, 130)
    with pytest.raises(KeyboardInterrupt):
        recognise_speech(path, recogniser=ScriptedRecogniser(fail_at=1))
    rest, again, events = ScriptedRecogniser(), ScriptedRecogniser(), []
    transcript = recognise_speech(path, recogniser=rest, progress=events.append)
    assert transcript == recognise_speech(path, cache=False, recogniser=ScriptedRecogniser())
    assert rest.num_calls == len(transcript) - 1
    assert events[-1].done == pytest.approx(130, abs=0.3)
    assert recognise_speech(path, recogniser=again) == transcript
    assert again.num_calls == 0
    (file,) = (tmp_path / "home").glob("cache/speech/*")
    file.write_text("{}")  # a damaged file of the cache costs nothing but time
    assert recognise_speech(path, recogniser=again) == transcript


def test_a_video_without_sound_or_recogniser(tmp_path, monkeypatch, capsys):
    silent = write_video(tmp_path / "silent.mp4", [100] * 10, fps=10)
    assert recognise_speech(silent, recogniser=ScriptedRecogniser()) is None
    monkeypatch.setitem(sys.modules, "faster_whisper", None)  # as if it were not installed
    np.save(tmp_path / "a.npy", np.zeros((30, 400), np.float32))
    with pytest.raises(InputError, match="pip install"):
        run(capsys, "steps", tmp_path / "a.npy", "--speech")


def add_tone(video, out, duration_s):
    """The same pictures with a tone that swells."""
    av = import_av()
    time_s = np.arange(duration_s * 16_000) / 16_000
    pcm = (8000 * np.sin(2 * np.pi * 440 * time_s) * np.abs(np.sin(2.3 * time_s))).astype(np.int16)
    with av.open(str(video)) as source, av.open(str(out), "w") as target:
        pictures = target.add_stream_from_template(source.streams.video[0])
        sound = target.add_stream("aac", rate=16_000, layout="mono")
        for packet in source.demux(source.streams.video[0]):
            if packet.dts is not None:
                packet.stream = pictures
                target.mux(packet)
        for i, part in enumerate(np.split(pcm, duration_s)):
            frame = av.AudioFrame.from_ndarray(part[None], format="s16", layout="mono")
            frame.sample_rate, frame.pts = 16_000, 16_000 * i
            target.mux(sound.encode(frame))
        target.mux(sound.encode(None))
