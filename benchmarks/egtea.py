"""How often do `ask`, `search` and names tell what hands do in whole first-person videos (EGTEA Gaze+)?

    python -m benchmarks.egtea encode WORK --clones CLONES --part valid    features (10 minutes on 2 cores)
    python -m benchmarks.egtea score WORK --part valid    `ask` and `search`, with 95 % intervals
    python -m benchmarks.egtea names WORK --part dev      how often names of steps are right
    python -m benchmarks.egtea words WORK --part valid    how often the words of a step name its verb or thing
    python -m benchmarks.egtea order WORK --part valid    ten actions placed in their order: share of time that is right

The 30 videos (5.6 hours, 3,422 actions) come from a public repository with two frames per second, too
few for I3D: videos are read by `dinov2-text` alone. CLONES/OWNER+NAME/repo is a bare clone. Choose
nothing on the part `valid`. The shipped weights of `research` learned from the part `train`.

A question is a verb with its things, such as "cut the onion". It is *present* if the video is labelled
with it. *Absent* questions keep the thing of a present one with another verb, or the verb with another
thing, or come from another video, a third each. A label says what the hands do for one or two seconds,
so an answer is *right* if it overlaps a moment of the action. A word is *right* if it is the verb or in the name of
a thing.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import subprocess
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import hiero
from benchmarks.scores import auc, calibration_error, fit_logistic, percent, share_of_time
from hiero.corpus.corpus import Corpus
from hiero.engine import Engine, Video
from hiero.engine.answers import place_in_order
from hiero.engine.embedder import PICTURES
from hiero.engine.evidence import CLASSES, Sight, open_sight
from hiero.engine.naming import likely_words
from hiero.engine.vocabulary import class_names, words
from hiero.features.video_features import VideoFeatures
from hiero.media.source import VideoSource
from hiero.networks import dinov2
from hiero.steps.calibration import PRIOR_ODDS
from hiero.storage import weights
from hiero.types import ANSWER_THRESHOLD, CONFIDENT_PROBABILITY, MIN_LABEL_PROBABILITY, Clock

CLONE, COMMIT = "tp6y30TP6Y30+dlcv2019_hw4", "db8419f2c973a99ea2982e659c71c9556e55a84a"
DEVELOPMENT = frozenset(
    ["OP06-R04-ContinentalBreakfast", "OP06-R07-Pizza", "OP03-R02-TurkeySandwich", "OP02-R05-Cheeseburger"]
)
# The verbs of the data set by number, with words for them; 0 is any other verb.
VERBS = {
    1: ("inspect", "look at", "read"),
    2: ("open",),
    3: ("take", "pick up", "grab"),
    4: ("cut", "slice", "chop"),
    5: ("put", "put down", "place"),
    6: ("close", "shut"),
    7: ("move around", "move", "stir", "mix"),
    8: ("divide", "pull apart", "separate"),
    9: ("pour",),
    10: ("transfer", "move over"),
}
FRAMES_PER_S = 2
FOLDER = "hw4_data/FullLengthVideos/videos"
LABELS = "hw4_data/TrimmedVideos/label/gt_{}.csv"
WORDS_OF_VERBS = {  # of hiero's list
    1: ("read", "look at"),
    2: ("open",),
    3: ("take",),
    4: ("cut", "chop", "slice"),
    5: ("put down",),
    6: ("close",),
    7: ("stir", "mix", "push", "turn"),
    8: ("peel",),
    9: ("pour",),
    10: ("put down", "add"),
}
NUM_IN_ORDER = 10  # actions of a recipe
NUM_ANSWERS = 5
NUM_STEPS = (8, 16, 32)  # of the levels whose names are judged
LIST_LENGTHS = (6, 15, 30)  # of lists of labels, besides all texts of a video
NUM_TIMES = 100  # at which a span is tried, for chance


def write_text(verb: int, nouns: tuple[str, ...]) -> str:
    """A question about a verb and its things."""
    return f"{VERBS[verb][0]} the {' and '.join(nouns) if nouns else 'something'}"


@dataclass(frozen=True)
class Action:
    """What the hands do at one time."""

    start_s: float
    end_s: float
    verb: int
    nouns: tuple[str, ...]

    @property
    def text(self) -> str:
        return write_text(self.verb, self.nouns)


def encode(work: Path, clones: Path, part: str) -> None:
    """Write the actions of all videos, and a row of `dinov2-text` for each second of the videos of a part."""

    def git(*arguments: str) -> bytes:
        command = ["git", "-C", str(clones / CLONE / "repo"), *arguments]
        return subprocess.run(command, check=True, capture_output=True).stdout

    work.mkdir(parents=True, exist_ok=True)
    videos: dict[str, dict] = {}
    for labels in ("train", "valid"):
        for row in csv.DictReader(io.StringIO(git("show", f"{COMMIT}:{LABELS.format(labels)}").decode())):
            name, times_s = row["Video_category"], [int(row[key]) / 1000 for key in ("Start_times", "End_times")]
            nouns = [noun.replace("_", " ").strip() for noun in row["Nouns"].split(",") if noun.strip()]
            video = videos.setdefault(name, {"part": "dev" if name in DEVELOPMENT else labels, "actions": []})
            video["actions"].append([*times_s, int(row["Action_labels"]), nouns])
    (work / "texts.json").write_text(json.dumps(videos))
    pictures = defaultdict(list)
    for path in git("ls-tree", "-r", "--name-only", COMMIT, FOLDER).decode().splitlines():
        pictures[Path(path).parent.name].append(path)
    network = dinov2.load(weights.get(PICTURES))
    for name in sorted(name for name, video in videos.items() if video["part"] == part):
        file = work / f"{name}.npy"
        if not file.exists():
            each_second = sorted(pictures[name])[::FRAMES_PER_S]
            rows = [_encode_picture(network, git("show", f"{COMMIT}:{path}")) for path in each_second]
            np.save(file, np.stack(rows))
            print(f"{name}: {len(rows)} s", flush=True)


@torch.inference_mode()
def _encode_picture(network: dinov2.JointPictures, jpeg: bytes) -> np.ndarray:
    import av

    with av.open(io.BytesIO(jpeg), format="jpeg_pipe") as container:
        frame = next(container.decode(video=0)).to_ndarray(format="rgb24")
    return network(dinov2.prepare(torch.from_numpy(frame[None])))[0].half().numpy()


def read_video(engine: Engine, work: Path, name: str) -> Video:
    """A video without its class scores: every class is equally probable."""
    rows = np.load(work / f"{name}.npy")
    source = VideoFeatures({CLASSES: np.zeros((len(rows), len(class_names()))), PICTURES: rows}, float(len(rows)), 1.0)
    nodes = np.ones((len(rows), engine.folder.config.embedding_size), np.float32)
    clock = Clock(1.0, 1.0)
    return Video(engine, Path(name), clock, open_sight(engine, clock, nodes, source, None), VideoSource.of(Path(name)))


@dataclass(frozen=True)
class Question:
    """A text about a video, and the moments that it describes; none if it is absent."""

    text: str
    kind: str  # "present", or how an absent one was made
    moments: tuple[tuple[float, float], ...] = ()

    def is_shown(self, start_s: float, end_s: float) -> bool:
        """Whether a span overlaps a moment, for most of the shorter one of both."""
        return any(
            min(end, end_s) - max(start, start_s) > 0.5 * min(end - start, end_s - start_s)
            for start, end in self.moments
        )


def read_actions(work: Path, part: str) -> dict[str, list[Action]]:
    """The actions of each video of a part."""
    texts = json.loads((work / "texts.json").read_text())
    return {
        name: [Action(start, end, verb, tuple(nouns)) for start, end, verb, nouns in video["actions"]]
        for name, video in sorted(texts.items())
        if video["part"] == part
    }


def make_questions(name: str, actions: dict[str, list[Action]], seed: int = 0) -> list[Question]:
    """What a video shows, and as many absent things."""
    random = np.random.default_rng([seed, *name.encode()])
    own = actions[name]
    known = sorted({(action.verb, action.nouns) for action in own if action.verb})
    things = {noun for action in own for noun in action.nouns}
    every = sorted({(a.verb, a.nouns) for other in actions.values() for a in other if a.verb})

    def moments(verb: int, nouns: tuple[str, ...]) -> tuple[tuple[float, float], ...]:
        return tuple((a.start_s, a.end_s) for a in own if a.verb == verb and set(nouns) <= set(a.nouns))

    out = [Question(write_text(*pair), "present", moments(*pair)) for pair in known]
    for i, (verb, nouns) in enumerate(known):
        kind, candidates = (
            ("another verb", [(other, nouns) for other in VERBS if other != verb]),
            ("another thing", [(v, n) for v, n in every if v == verb]),
            ("another video", [(v, n) for v, n in every if not things & set(n)]),
        )[i % 3]
        absent = [pair for pair in candidates if pair[1] and not moments(*pair)]
        if absent:
            out.append(Question(write_text(*absent[random.integers(len(absent))]), kind))
    return out


@dataclass
class Judged:
    """The answers to a question."""

    question: Question
    probability: float
    right: list[bool]  # of each answer
    chance: float  # that a span of the first answer's length is right at any time


def judge(engine: Engine, work: Path, actions: dict[str, list[Action]]) -> list[Judged]:
    """The answers of `ask` to all questions."""
    out = []
    for name in actions:
        video = read_video(engine, work, name)
        questions = make_questions(name, actions)
        for question, answer in zip(questions, video.ask([q.text for q in questions], num=NUM_ANSWERS), strict=True):
            right = [question.is_shown(match.start_s, match.end_s) for match in answer.matches]
            length_s = answer.matches[0].end_s - answer.matches[0].start_s
            starts_s = np.linspace(0, video.duration_s - length_s, NUM_TIMES)
            chance = float(np.mean([question.is_shown(start_s, start_s + length_s) for start_s in starts_s]))
            out.append(Judged(question, answer.probability, right, chance))
    return out


def judge_search(engine: Engine, work: Path, actions: dict[str, list[Action]], folder: Path) -> list[list[bool]]:
    """Whether each of the first hits of `search` shows its text, for the texts of all videos."""
    corpus = Corpus(str(folder), create=True)
    for name in actions:
        video = read_video(engine, work, name)
        corpus.add(video, video.steps(labels=[]), name, name)
    moments: dict[str, dict[str, Question]] = defaultdict(dict)
    for name in actions:
        for question in make_questions(name, actions):
            if question.moments:
                moments[question.text][name] = question
    out = []
    for text, by_video in moments.items():
        hits = corpus.search_text(engine, text, NUM_ANSWERS)
        out.append([h.video in by_video and by_video[h.video].is_shown(h.start_s, h.end_s) for h in hits])
    return out


def judge_names(
    engine: Engine, work: Path, actions: dict[str, list[Action]], is_given: bool
) -> list[tuple[float, float, bool]]:
    """For the best label of each step, its similarity and probability, and whether an action in the step has it.

    Labels are texts of the video, in lists of several lengths, or the bundled ones. The verb and one
    thing of a bundled one must be right.
    """
    out = []
    for name, own in actions.items():
        video = read_video(engine, work, name)
        texts = sorted({action.text for action in own if action.verb})
        random = np.random.default_rng([*name.encode()])
        parts = [sorted(random.choice(texts, num, replace=False)) for num in LIST_LENGTHS]
        for labels in [*parts, texts] if is_given else [video.sight.vocabulary]:
            for level in video.steps(NUM_STEPS, labels=[]).levels:
                best = video.sight.name_similarity(
                    video.sight.cached_similarity(labels), video.sight.level_spans(level)
                ).max(0)
                named = video.likely_labels(level, labels if is_given else None, num=1)
                for step, value, ((label, probability),) in zip(level, best, named, strict=True):
                    fits = [action for action in own if (action.text == label if is_given else is_named(action, label))]
                    moments = tuple((action.start_s, action.end_s) for action in fits)
                    shown = Question(label, "", moments).is_shown(step.start_s, step.end_s)
                    out.append((value, probability, shown))
    return out


def is_named(action: Action, label: str) -> bool:
    """Whether a bundled label has the verb and one of the things of an action."""
    verbs = VERBS.get(action.verb, ())
    things = [word for noun in action.nouns for word in (noun.split()[0], noun.split()[-1])]
    return any(label.startswith(f"{verb} ") for verb in verbs) and any(thing in label for thing in things)


def report_names(work: Path, part: str) -> None:
    """Print how often names are right, and the constants of `calibration` that fit the part."""
    engine, actions = hiero.load(), read_actions(work, part)
    for is_given, constant in ((True, "MATCH"), (False, "BUNDLED_MATCH")):
        judged = judge_names(engine, work, actions, is_given)
        value, said, right = (np.array(column, dtype=float) for column in zip(*judged, strict=True))
        fitted = fit_logistic(value[:, None], right, np.ones(len(right)), penalty=1e-3)
        of_what = "texts of the video" if is_given else "bundled labels"
        print(f"{part}, {of_what}: {percent(right, digits=0)} % of {len(right)} steps")
        print(f"fitted: {constant} = {np.round(fitted, 1).tolist()}")
        for low, high in (
            (0.0, MIN_LABEL_PROBABILITY),
            (MIN_LABEL_PROBABILITY, CONFIDENT_PROBABILITY),
            (CONFIDENT_PROBABILITY, 1.01),
        ):
            inside = (said >= low) & (said < high)
            if inside.any():
                share = percent(right[inside], digits=0)
                print(f"said {low:.0%} to {min(high, 1):.0%}: {inside.sum()} steps, {share} % right")


def is_word_of(word: str, action: Action) -> bool:
    """Whether a word is the verb of an action, or in the name of one of its things."""
    things = {part.removesuffix("s") for noun in action.nouns for part in noun.lower().split()}
    own = {part.removesuffix("s") for part in word.split()}
    return word in WORDS_OF_VERBS.get(action.verb, ()) or bool(own & things)


def report_words(work: Path, part: str) -> None:
    """How often one of the three words of an action names its verb or thing, and what their probabilities mean."""
    verbs, things = words()
    rng = np.random.default_rng(0)
    for model in ("hiero-k400", "hiero-k400-permissive"):
        engine = hiero.load(model)
        rows, rated = [], []
        for name, actions in read_actions(work, part).items():
            sight = read_video(engine, work, name).sight
            middles = np.array([(action.start_s + action.end_s) / 2 for action in actions])
            starts = np.clip(np.round(middles - 1).astype(int), 0, len(sight.nodes) - 2)
            for action, found in zip(actions, likely_words(sight, np.stack([starts, starts + 2], axis=1)), strict=True):
                is_right = [is_word_of(word.text, action) for word in found]
                is_verb = [word.text in verbs for word in found]
                rated += [(word.probability, right) for word, right in zip(found, is_right, strict=True)]
                drawn = [*rng.choice(things, 2), rng.choice(verbs)]
                by_kind = (
                    any(r for r, v in zip(is_right, is_verb, strict=True) if v == kind) for kind in (False, True)
                )
                rows.append([any(is_right), *by_kind, any(is_word_of(word, action) for word in drawn)])
        either, thing, verb, drawn_share = 100 * np.mean(rows, axis=0)
        parts = f"thing {thing:.0f}, verb {verb:.0f}, drawn {drawn_share:.0f}"
        print(f"{model}: {either:.0f} % ({parts}) of {len(rows)} actions")
        probability, right = np.array(rated).T
        for low in np.arange(10) / 10:
            inside = (probability >= low) & (probability < low + 0.1)
            if inside.sum() >= 10:
                said, true = 100 * probability[inside].mean(), 100 * right[inside].mean()
                print(f"  said {said:.0f} %: {true:.0f} % right of {inside.sum()}")


def find_recipes(actions: list[Action]) -> list[list[Action]]:
    """Groups of actions that follow each other, without those that overlap an earlier one or repeat it."""
    kept: list[Action] = []
    for action in sorted(actions, key=lambda action: action.start_s):
        if action.verb and (not kept or (action.start_s >= kept[-1].end_s and action.text != kept[-1].text)):
            kept.append(action)
    return [kept[i : i + NUM_IN_ORDER] for i in range(0, len(kept) - NUM_IN_ORDER + 1, NUM_IN_ORDER)]


def report_order(work: Path, part: str) -> None:
    """Share of the annotated time that gets the right one of ten actions, placed in order and in equal parts."""
    for model in ("hiero-k400", "hiero-k400-permissive"):
        engine, shares, equal = hiero.load(model), [], []
        for name, actions in read_actions(work, part).items():
            sight = read_video(engine, work, name).sight
            for recipe in find_recipes(actions):
                first, last = int(recipe[0].start_s), int(np.ceil(recipe[-1].end_s))
                times = np.array([[action.start_s, action.end_s] for action in recipe]) - first
                shares.append(share_of_time(place_actions(sight, recipe, first, last), times))
                edges = np.linspace(0, last - first, len(recipe) + 1)
                equal.append(share_of_time(np.stack([edges[:-1], edges[1:]], axis=1), times))
        print(f"{model}: in order {percent(shares)}, equal parts {percent(equal)}, {len(shares)} recipes")


def place_actions(sight: Sight, recipe: list[Action], first: int, last: int) -> np.ndarray:
    """A span of seconds for each action in a part of a video, (Q, 2)."""
    compared = sight.compare([action.text for action in recipe], None)
    compared.similarities = [(similarity[:, first:last], scale) for similarity, scale in compared.similarities]
    return np.array(place_in_order([compared], sight.segmentation_features[first:last], 1.0), dtype=float)


def score(work: Path, part: str) -> None:
    """Print all scores of a part with 95 % intervals."""
    engine, actions = hiero.load(), read_actions(work, part)
    judged = judge(engine, work, actions)
    present = [j for j in judged if j.question.moments]
    absent = [j for j in judged if not j.question.moments]
    print(f"{part}: {len(actions)} videos, {len(present)} present and {len(absent)} absent questions")
    print(f"ask, first answer right: {percent([j.right[0] for j in present], digits=0)} %")
    print(f"  at another time of the video: {percent([j.chance for j in present], digits=0)} %")
    print(f"ask, one of {NUM_ANSWERS} right: {percent([any(j.right) for j in present], digits=0)} %")
    with tempfile.TemporaryDirectory() as folder:
        hits = judge_search(engine, work, actions, Path(folder))
    print(f"search in {len(actions)} videos, first hit right: {percent([row[0] for row in hits], digits=0)} %")
    print(f"search, one of {NUM_ANSWERS} right: {percent([any(row) for row in hits], digits=0)} % of {len(hits)} texts")
    said, truth = np.array([j.probability for j in judged]), np.array([bool(j.question.moments) for j in judged])
    print(f"present above absent (AUC): {auc(said, truth):.2f}")
    for kind in sorted({j.question.kind for j in absent}):
        chosen = truth | np.array([j.question.kind == kind for j in judged])
        print(f"  {kind}: {auc(said[chosen], truth[chosen]):.2f}")
    print(f"present, refused below {ANSWER_THRESHOLD:.0%}: {percent(said[truth] < ANSWER_THRESHOLD, digits=0)} %")
    print(f"absent, claimed: {percent(said[~truth] >= ANSWER_THRESHOLD, digits=0)} %")
    right = np.array([j.right[0] for j in judged], dtype=float)
    weights = np.where(truth, PRIOR_ODDS, 1.0)
    print(f"calibration error of the first answer: {calibration_error(said, right, weights):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["encode", "score", "names", "words", "order"])
    parser.add_argument("work", type=Path)
    parser.add_argument("--clones", type=Path)
    parser.add_argument("--part", choices=["train", "dev", "valid"], default="valid", help="choose nothing on valid")
    args = parser.parse_args()
    if args.command == "encode":
        encode(args.work, args.clones, args.part)
    else:
        reports = {"score": score, "names": report_names, "words": report_words, "order": report_order}
        reports[args.command](args.work, args.part)


if __name__ == "__main__":
    main()
