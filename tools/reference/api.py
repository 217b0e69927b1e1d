"""The page of the public Python names, from their signatures and docstrings."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

from tools.reference.markdown import wrap

HEAD = """\
# Python

These are the public names of the package; everything else may change between versions. Invalid arguments and unreadable
files raise `hiero.InputError`. In an interpreter, `help(hiero.Video.ask)` shows types, exceptions and examples. The
[tutorial](../tutorial.md#do-the-same-in-python) has a short program.
"""
# The names of each section, with the methods that are listed.
SECTIONS: dict[str, dict[str, list[str]]] = {
    "Reading videos": {
        "load": [],
        "Engine": ["read", "read_array"],
        "Embedder": [],
        "Video": ["steps", "ask", "label", "locate"],
        "VideoFeatures": [],
        "ProgressEvent": [],
        "InputError": [],
    },
    "Results": {
        "Hierarchy": ["to_dict", "from_dict", "to_dataframe"],
        "Step": [],
        "Answer": [],
        "Match": [],
        "VideoFile": [],
        "Clock": ["spacing_s", "time_s", "index"],
    },
    "Transcripts and narrations": {
        "read_transcript": [],
        "Transcript": ["between", "to_srt"],
        "Utterance": [],
        "Narration": [],
    },
    "Searching a collection": {
        "Corpus": ["search", "like", "add", "add_all", "remove", "optimize"],
        "Hit": [],
        "IndexedVideo": [],
    },
    "Model": {
        "load_model": [],
        "HiERO": ["forward", "embed_video", "embed_text"],
        "HieroEnsemble": [],
        "Level": [],
        "Losses": [],
        "embed_features": [],
        "spectral_cut": [],
        "read_released": [],
        "Released": [],
    },
    "Settings": {"ModelConfig": [], "LossConfig": [], "TrainConfig": [], "TextConfig": [], "Behaviour": []},
    "Data": {"read_features": [], "collate": [], "Batch": [], "Window": []},
    "Plug-ins": {"Backbone": [], "Exporter": []},
}
INTRODUCTIONS = {
    "Settings": "`hiero/config.py` describes each setting. `Behaviour` is explained in [the method]"
    "(../method.md#released-and-corrected-behaviour).",
    "Plug-ins": "The [plug-ins guide](../guides/plugins.md) shows how a package registers them.",
}
DETAILED = {"Engine", "Video"}  # their methods are described with their arguments, others in one sentence
# Their attributes are left out: they serve the package itself, or another page describes them.
BRIEF = {"Embedder", "VideoFeatures", "VideoFile", "Utterance", "IndexedVideo", "HieroEnsemble", "Losses", "Released"}
BRIEF |= {"ProgressEvent", "Hit", "Level", "embed_features", "Behaviour", "Batch", "Backbone", "Exporter"}
BRIEF |= {"collate", "Transcript", "ModelConfig", "LossConfig", "TrainConfig", "TextConfig", "Step", "spectral_cut"}
MADE_BY_HIERO = {
    "Engine",
    "Embedder",
    "Video",
    "VideoFeatures",
    "IndexedVideo",
    "HieroEnsemble",
    "Losses",
    "Released",
}  # nobody calls these classes
OBVIOUS = {
    "start_s",
    "end_s",
    "duration_s",
    "engine",
    "path",
    "query",
    "uri",
    "video",
}  # attributes that need no description
OBVIOUS_IN_CALLS = {"features", "name", "stream", "time_s"}  # arguments that need no description
HEADING = re.compile(r"(Args|Attributes|Returns|Yields|Raises|Examples):$")
ENTRY = re.compile(r"    (\w+): (.*)")


def generate() -> str:
    """The page as it should be."""
    import hiero

    lines = [HEAD]
    for title, names in SECTIONS.items():
        lines.append(f"## {title}\n\n{INTRODUCTIONS.get(title, '')}\n")
        for name, methods in names.items():
            lines += describe(name, getattr(hiero, name), methods)
    return re.sub(r"\n{3,}", "\n\n", wrap("\n".join(lines)))


def describe(name: str, value: Any, methods: list[str]) -> list[str]:
    """The entry of a public name."""
    text, arguments = split_docstring(value)
    is_called = name not in MADE_BY_HIERO and not (inspect.isclass(value) and issubclass(value, Exception))
    call = [] if not is_called else ["```text", *format_call(name, value), "```", ""]
    lines = [f"### {name}\n", *call, text.split("\n\n")[0], ""]
    if name not in BRIEF:
        lines += [f"- `{argument}`: {meaning}" for argument, meaning in arguments.items() if argument not in OBVIOUS]
    for method in methods:
        lines += describe_method(method, inspect.getattr_static(value, method), detailed=name in DETAILED)
    return [*lines, ""]


def describe_method(name: str, member: Any, *, detailed: bool) -> list[str]:
    """The item of a method or property."""
    function = unwrap(member)
    text, arguments = split_docstring(function)
    call = name if isinstance(member, property) else "".join(format_call(name, function))
    lines = [f"- **`{call}`**: {' '.join(text.split()) if detailed else first_sentence(text)}"]
    shown = {
        argument: meaning for argument, meaning in arguments.items() if detailed and argument not in OBVIOUS_IN_CALLS
    }
    return lines + [f"    - `{argument}`: {meaning}" for argument, meaning in shown.items()]


def unwrap(member: Any) -> Any:
    """The function behind a method or property."""
    if isinstance(member, property):
        return member.fget
    return getattr(member, "__func__", member)


def split_docstring(value: Any) -> tuple[str, dict[str, str]]:
    """Text of a docstring, and what it says about arguments or attributes."""
    text: list[str] = []
    arguments: dict[str, str] = {}
    heading = name = ""
    for line in (inspect.getdoc(value) or "").splitlines():
        if match := HEADING.match(line):
            heading = match[1]
        elif not heading:
            text.append(line)
        elif heading in ("Args", "Attributes") and (entry := ENTRY.match(line)):
            name, arguments[entry[1]] = entry[1], entry[2]
        elif heading in ("Args", "Attributes") and line.strip():
            arguments[name] += f" {line.strip()}"
    return "\n".join(text).strip(), arguments


def first_sentence(text: str) -> str:
    """The first sentence of the first paragraph."""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[.?!]) (?=[A-Z`])", paragraph)[0]


def format_call(name: str, value: Any) -> list[str]:
    """A call with the names and defaults of its parameters."""
    try:
        parameters = [p for p in inspect.signature(value).parameters.values() if p.name not in ("self", "cls")]
    except ValueError:
        return [name]
    shown: list[str] = []
    for parameter in parameters:
        if parameter.name.startswith("_"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown and not any(s.startswith("*") for s in shown):
            shown.append("*")
        default = "" if parameter.default is parameter.empty else show(parameter.default)
        shown.append(f"{parameter.replace(annotation=parameter.empty, default=parameter.empty)}{default}")
    return textwrap.wrap(f"{name}({', '.join(shown)})", 110, subsequent_indent="    ", break_long_words=False)


def show(default: Any) -> str:
    """`=` and a default, or an ellipsis for one that is made for each object."""
    text = repr(default)
    return f"={text}" if re.fullmatch(r"[\w.'\-\"()]+", text) else "=…"
