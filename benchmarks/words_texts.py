"""Texts of pictures for `benchmarks.words_train`, and the short phrases in them, which are like questions."""

from __future__ import annotations

import gzip
import re
from functools import cache
from pathlib import Path

# Words that look like verbs in -ing and are none; where phrases end; heads of phrases that say nothing.
NO_VERBS = frozenset(
    [
        "thing",
        "something",
        "anything",
        "everything",
        "nothing",
        "ceiling",
        "building",
        "clothing",
        "evening",
        "morning",
        "during",
        "king",
        "ring",
        "string",
        "wing",
        "spring",
        "railing",
        "wedding",
        "bedding",
        "lighting",
        "dining",
        "living",
        "swing",
        "sling",
        "awning",
        "siding",
        "flooring",
        "icing",
        "pudding",
        "stuffing",
        "topping",
        "being",
        "having",
        "parking",
        "skiing",
        "surfing",
        "earring",
        "dressing",
        "setting",
    ]
)
PHRASE_ENDS = frozenset(
    [
        "in",
        "on",
        "at",
        "with",
        "of",
        "by",
        "near",
        "from",
        "for",
        "over",
        "under",
        "behind",
        "while",
        "as",
        "to",
        "and",
        "into",
        "onto",
        "next",
        "front",
        "beside",
        "between",
        "that",
        "which",
        "who",
        "is",
        "are",
        "has",
    ]
)
VAGUE = frozenset(
    [
        "man",
        "woman",
        "person",
        "people",
        "boy",
        "girl",
        "child",
        "kid",
        "men",
        "women",
        "someone",
        "guy",
        "lady",
        "group",
        "couple",
        "player",
        "picture",
        "photo",
        "image",
        "close",
        "view",
        "bunch",
        "pair",
        "lot",
        "front",
        "top",
        "side",
        "back",
        "it",
        "one",
        "other",
    ]
)
ARTICLES = frozenset(["a", "an", "the", "some", "two", "three", "his", "her", "their", "several", "many"])
CLAUSE_STARTS = frozenset(["while", "that", "which", "who", "as", "and"])
MAX_WORDS = 8  # of a phrase that begins with a verb
MAX_NOUNS = 3  # words of a phrase after an article
PROMPTS = ("{}", "a photo of a {}", "a {} on a table", "there is a {}", "someone holding a {}", "a person using a {}")


@cache
def read_texts(path: Path) -> dict[str, list[str]]:
    """The sentences of each picture."""
    out: dict[str, list[str]] = {}
    with gzip.open(path, "rt") as lines:
        for line in lines:
            name, _, text = line.rstrip("\n").partition("\t")
            if text := text.strip().rstrip(" .").strip():
                out.setdefault(name, []).append(text)
    return out


def phrases(sentence: str) -> tuple[list[str], list[str]]:
    """What a sentence says in few words, as questions do: phrases from a verb in -ing on, and nouns
    after an article.
    """
    words = re.findall(r"[a-z']+", sentence.lower())

    def is_verb(word: str) -> bool:
        return word.endswith("ing") and len(word) > 4 and word not in NO_VERBS

    doings, things = [], []
    for i, word in enumerate(words):
        if is_verb(word):
            end = i + 1
            while end < len(words) and end - i < MAX_WORDS and words[end] not in CLAUSE_STARTS:
                if is_verb(words[end]) and end > i + 1:
                    break
                end += 1
            if end - i >= 2:
                doings.append(" ".join(words[i:end]))
        if word in ARTICLES:
            end = i + 1
            while (
                end < len(words)
                and end - i <= MAX_NOUNS
                and words[end] not in PHRASE_ENDS | ARTICLES
                and not is_verb(words[end])
            ):
                end += 1
            if end > i + 1 and words[end - 1] not in VAGUE:
                things.append(" ".join(words[i + 1 : end]))
    return doings, things


def texts_of_picture(source: str, sentences: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Sentences, phrases with a verb, phrases without."""
    if source == "stanford40":
        return sentences, [sentence.removeprefix("a person ") for sentence in sentences[:1]], []
    if source == "grocery":
        return sentences, [], [s.removeprefix("a photo of ").removesuffix(" in a grocery store") for s in sentences[:1]]
    by_sentence = [phrases(sentence) for sentence in sentences]
    return sentences, [p for doings, _ in by_sentence for p in doings], [p for _, things in by_sentence for p in things]


def unheard_phrases(phrases: list[str], files: list[Path]) -> list[str]:
    """Phrases whose verb and last word are never in one line of compressed text files: they may be nonsense."""

    def stem(word: str) -> str:
        return re.sub(r"(es|s|e)$", "", word)

    wanted: dict[str, set[tuple[str, str]]] = {}
    for phrase in phrases:
        words = phrase.lower().split()
        wanted.setdefault(stem(words[-1]), set()).add((stem(words[0]), phrase))
    heard: set[str] = set()
    for file in files:
        with gzip.open(file, "rt") as lines:
            for line in lines:
                stems = {stem(word) for word in re.findall(r"[a-z]+", line.lower())}
                for thing in stems & wanted.keys():
                    pairs = wanted[thing]
                    heard |= {phrase for verb, phrase in pairs if any(word.startswith(verb) for word in stems)}
    return [phrase for phrase in phrases if phrase not in heard]
