"""Names of steps, from labels that what is shown makes probable, and from phrases that are spoken."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hiero.engine.answers import Timeline
from hiero.engine.evidence import MIN_LEARNED_PROBABILITY, PEAK_S, Sight
from hiero.engine.transcripts import Transcript
from hiero.networks.minilm import encode_minilm
from hiero.steps import calibration
from hiero.steps.grounding import span_means, span_peaks
from hiero.steps.prototypes import place_names
from hiero.steps.segmentation import label_runs
from hiero.types import MAX_WORDS, Step, Utterance, Word

# phrases around the description of a step
FILLER = re.compile(
    r"(?:(?:and|so|now|then|next|okay|ok|well|first|after that|all right|alright|um|uh|also|finally|just|"
    r"(?:here|this|that|there|it|what)(?:'s| is| are)?|"
    r"(?:i|we|you)(?:'m|'re|'ll|'ve| am| are| will| have| can| could| should| want| need| like)?"
    r"(?: just| now| also| then)?(?: going to| gonna| to| got to)?|"
    r"let's|let us|let me|please|go ahead and|it's time to|time to)\b[\s,]*)+",
    re.IGNORECASE,
)
CLAUSE_END = re.compile(r"[.,;:!?…]+|\b(?:and then|and|then|because|so that|which|while|until|but)\b", re.IGNORECASE)
MIN_PHRASE_WORDS, MAX_PHRASE_WORDS = 2, 7
MAX_STEP_PHRASES = 5  # candidates for the name of a step
# Prior log odds that a phrase spoken in a step is its name, and the bonus of a phrase that sums up the step.
SPOKEN_LOG_ODDS, CENTRAL_LOG_ODDS = 1.0, 2.0
MIN_WORD_PROBABILITY = 0.1  # of a word, below which it is hardly better than chance


def name_levels(
    sight: Sight, levels: Sequence[Sequence[Step]], labels: Sequence[str] | None, transcript: Transcript | None
) -> list[list[Step]]:
    """Name steps that people have not named, by default from the vocabulary and the transcript.

    The finest steps also get words: names that are less probable than `MIN_LABEL_PROBABILITY`.
    """
    if not (sight.vocabulary if labels is None else labels):
        return [list(level) for level in levels]
    named = sight.common_names([_label(sight, level, labels) for level in levels])
    if labels is None and transcript:
        named = [_name_by_speech(sight, level, transcript) for level in named]
    return [*named[:-1], _add_words(sight, named[-1], labels)]


def _add_words(sight: Sight, level: Sequence[Step], labels: Sequence[str] | None) -> list[Step]:
    """The steps with their most probable words, the best of which is the name of a step without one if it is likely."""
    candidates = [[Word(*pair) for pair in likely] for likely in likely_labels(sight, level, labels, MAX_WORDS)]
    if labels is None:
        learned = set(sight.prototypes.labels)
        shown = likely_words(sight, sight.level_spans(level))
        pairs = zip(candidates, shown, strict=True)
        candidates = [[*(word for word in likely if word.text in learned), *own] for likely, own in pairs]
    out = []
    for step, found in zip(level, candidates, strict=True):
        if not step.is_named_by_person and not step.background:
            likely = [word for word in found if word.probability >= MIN_WORD_PROBABILITY]
            likely.sort(key=lambda word: -word.probability)
            step = replace(step, words=tuple(likely[:MAX_WORDS]))
            if step.label is None and likely and likely[0].probability >= sight.min_probability(likely[0].text):
                step = replace(step, label=likely[0].text, probability=likely[0].probability)
        out.append(step)
    return out


def likely_words(sight: Sight, spans: np.ndarray) -> list[list[Word]]:
    """The words of each kind that spans may show, best first."""
    found: list[list[Word]] = [[] for _ in spans]
    for kind in sight.word_kinds:
        peaks = span_peaks(sight.similarity(kind.texts), spans, max(1, round(PEAK_S / sight.clock.spacing_s)))
        for row, probabilities in zip(found, calibration.word(peaks.T, kind.weights), strict=True):
            best = np.argsort(-probabilities, kind="stable")[: kind.num]
            row += [Word(kind.names[i], float(probabilities[i])) for i in best]
    return [sorted(row, key=lambda word: -word.probability) for row in found]


def _label(sight: Sight, level: Sequence[Step], labels: Sequence[str] | None) -> list[Step]:
    named = list(level)
    for i, ((label, probability),) in enumerate(likely_labels(sight, level, labels, num=1)):
        is_free = not level[i].is_named_by_person and not level[i].background
        if is_free and probability >= sight.min_probability(label):
            named[i] = replace(level[i], label=label, probability=probability)
    return named


def _name_by_speech(sight: Sight, level: Sequence[Step], transcript: Transcript) -> list[Step]:
    """Name steps by a phrase that is spoken in them if it is probable, and more probable than the label."""
    by_step = [step_phrases(transcript.between(step.start_s, step.end_s)) for step in level]
    texts = list(dict.fromkeys(phrase.text for phrases in by_step for phrase in phrases))
    if not texts:
        return list(level)
    compared = sight.name_similarity(sight.similarity(texts), sight.level_spans(level))
    row = {text: number for number, text in enumerate(texts)}
    similarity = [compared[[row[phrase.text] for phrase in phrases], i] for i, phrases in enumerate(by_step)]
    log_odds = [np.array([phrase.log_odds for phrase in phrases]) for phrases in by_step]
    named = list(level)
    for i, (probabilities, least) in enumerate(sight.rate_phrases(level, similarity, log_odds)):
        if len(probabilities) and probabilities.max() >= least:
            best = int(probabilities.argmax())
            named[i] = replace(level[i], label=by_step[i][best].text, probability=float(probabilities[best]))
    return named


def likely_labels(
    sight: Sight, level: Sequence[Step], labels: Sequence[str] | None, num: int
) -> list[list[tuple[str, float]]]:
    """The best labels for each step of a level, with their probabilities."""
    candidates = list(labels) if labels is not None else sight.vocabulary
    if not candidates or not sight.vocabulary:
        return [[(step.label, step.probability or 0.0)] if step.label else [] for step in level]
    probabilities = sight.label_probabilities(candidates, level, labels is not None)
    best_first = np.argsort(-probabilities, axis=1, kind="stable")[:, :num]
    return [[(candidates[i], float(probabilities[row, i])) for i in best] for row, best in enumerate(best_first)]


def place_learned_names(sight: Sight, labels: Sequence[str], level: Sequence[Step]) -> list[Step]:
    """Move learned names that occur once from the steps of a level to the spans that fit them best."""
    once = sight.learned_once()
    names = [label for label in labels if label in once]
    if not names:
        return list(level)
    similarity = sight.similarity(names)
    spans = sight.spans[sight.rank_scores(names, similarity, sight.spans).argmax(1)]
    probability = calibration.probability(span_means(similarity, spans).diagonal(), calibration.LABEL)
    owner = place_names(spans, np.where(probability < MIN_LEARNED_PROBABILITY, 0.0, probability), len(sight.nodes))
    numbers = np.repeat(np.arange(len(level)), np.diff([*(span[0] for span in sight.level_spans(level)), len(owner)]))
    placed = []
    for start, end in label_runs(np.where(owner < 0, numbers, len(level) + owner)):
        step = level[numbers[start]]
        if owner[start] >= 0:
            step = replace(step, label=names[owner[start]], probability=float(probability[owner[start]]))
        elif step.label in once:
            step = step.without_name()
        match = sight.make_match(np.array([start, end]), 0.0)
        placed.append(replace(step, start_s=match.start_s, end_s=match.end_s))
    return placed


def make_recipe_steps(
    timeline: Timeline, texts: Sequence[str], spans: Sequence[tuple[int, int] | None]
) -> tuple[Step, ...]:
    """A step for each text that has a span of nodes, in order, and background between them.

    They have no probability: whoever gave the recipe says that its steps happen.
    """
    runs: list[tuple[int, int, str | None]] = []
    last = 0
    for text, span in zip(texts, spans, strict=True):
        if span is not None:
            runs += [(last, span[0], None)] * (last < span[0])
            runs.append((*span, text))
            last = span[1]
    runs += [(last, timeline.num_nodes, None)] * (last < timeline.num_nodes)
    level = []
    for number, (start, end, name) in enumerate(runs):
        match = timeline.make_match(np.array([start, end]), 0.0)
        step = Step(f"step-{number + 1}", match.start_s, match.end_s, number, background=name is None, label=name)
        level.append(step)
    return tuple(level)


class SpokenPhrase(NamedTuple):
    """A phrase that may name a step."""

    text: str
    log_odds: float


def step_phrases(utterances: Sequence[Utterance]) -> list[SpokenPhrase]:
    """Short phrases that are spoken in a step, the most central ones first."""
    phrases = list(dict.fromkeys(phrase for utterance in utterances for phrase in split_phrases(utterance.text)))
    if not phrases:
        return []
    centrality = np.zeros(1)
    if len(phrases) > 1:
        vectors = encode_minilm(phrases)
        centrality = (vectors @ vectors.sum(0) - 1) / (len(phrases) - 1)  # the mean cosine with the others
    order = np.argsort(-centrality, kind="stable")[:MAX_STEP_PHRASES]
    log_odds = SPOKEN_LOG_ODDS + CENTRAL_LOG_ODDS * np.maximum(0.0, centrality.astype(float))
    return [SpokenPhrase(phrases[i], float(log_odds[i])) for i in order]


def split_phrases(text: str) -> list[str]:
    """The clauses of an utterance that are short enough for a name, without fillers.

    Examples:
        >>> split_phrases("Okay, now we're going to cut the onion, and then I wash it.")
        ['cut the onion', 'wash it']
    """
    phrases = []
    for clause in CLAUSE_END.split(text):
        phrase = clause.strip()
        if filler := FILLER.match(phrase):
            phrase = phrase[filler.end() :].strip()
        words = phrase.split()
        if MIN_PHRASE_WORDS <= len(words) <= MAX_PHRASE_WORDS and any(len(word) > 2 for word in words):
            phrases.append(phrase[0].lower() + phrase[1:])
    return phrases
