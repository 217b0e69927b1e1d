"""How numbers, times and texts are printed."""

from __future__ import annotations

import unicodedata

VISIBLE_FORMAT = "\u200c\u200d\u00ad"  # format characters that belong to words and emoji
LEVEL_NAMES = {1: ("step",), 2: ("coarse", "fine"), 3: ("coarse", "medium", "fine")}  # by the number of levels


def format_count(number: int, noun: str) -> str:
    """Format a number with its noun: "1 video", "2 videos"."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def level_names(num_levels: int) -> list[str]:
    """The names of levels: coarse, medium and fine, or their numbers if there are more than three."""
    numbered = (f"level{number}" for number in range(1, num_levels + 1))
    return list(LEVEL_NAMES.get(num_levels, numbered))


def format_percent(probability: float) -> str:
    """Format a probability as a whole percentage; small ones as "< 1 %"."""
    return "< 1 %" if probability < 0.01 else f"{min(probability, 1.0):.0%}".replace("%", " %")


def format_time(seconds: float) -> str:
    """Format seconds as m:ss, or as h:mm:ss from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def is_control(character: str) -> bool:
    """Whether a character controls a terminal or the direction of text instead of being shown."""
    return unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp") and character not in VISIBLE_FORMAT


def clean_text(text: str) -> str:
    """A text without control characters, for labels, speech and exports. Line breaks and tabs stay."""
    return text if text.isprintable() else "".join(c for c in text if c in "\n\t" or not is_control(c))


def one_line(text: str) -> str:
    """A text on one line, without control characters and others that XML does not allow."""
    if not text.isprintable():
        text = "".join(c for c in text if c.isprintable() or c.isspace() or c in VISIBLE_FORMAT)
    return " ".join(text.split())


def printable(text: str) -> str:
    """A text for a terminal: control characters, except line breaks and tabs, are shown as escapes such as \\x1b."""
    if text.isprintable():
        return text
    shown = (c if c in "\n\t" or not is_control(c) else c.encode("unicode_escape").decode() for c in text)
    return "".join(shown).encode("utf-8", "backslashreplace").decode()
