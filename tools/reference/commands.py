"""The page of all commands, from the commands themselves."""

from __future__ import annotations

import re
from collections import Counter

from tools.reference.markdown import wrap

HEAD = """\
# Commands

Every command and its options, as `hiero COMMAND --help` shows them. Results go to standard output, messages and
progress to standard error. The exit code is 0 on success, 1 if part of the work failed or a file was busy or not
writable, 2 for a mistake in the arguments, and 130 after Ctrl-C.
"""
SHARED_OPTIONS = re.compile(r"(?m)^\*\*(?P<name>[\w-]+ options)\*\*:\n\n(?P<options>(?:\* .*\n)+)")
OPTION = re.compile(r"(?m)^\* `--.*\n")
MIN_USES = 4  # an option that this many commands have is described once, at the top


def generate() -> str:
    """The text of the page."""
    from hiero.cli import COMMANDS, app

    text = app.generate_docs(output_format="markdown", heading_level=1)
    text = text[text.index(f"**{next(iter(COMMANDS))}**:") :]
    # cyclopts adds the way in which Python itself was started
    text = re.sub(r"(?m)^(hiero(?: [a-z][a-z-]*)+) -m \S+", r"\1", text)
    text = re.sub(r" \*\[default: (False|\"\"|default)\]\*", "", text)
    text = re.sub(r"(?m)^(\* `--[^`]*?) (?:STR|INT|FLOAT|CHOICE)(?:\.\.\.)?`", r"\1`", text)  # the descriptions tell
    text = re.sub(r"(?m)^```console\n.*\n```\n", "", text)  # the examples show the usage
    text = re.sub(r"\n {4,}(?=[^\s-])", " ", text)  # continuation lines of a list item
    text = re.sub(r"(?m)(?:^\* `[^`\n]+`\n)+", _to_code_block, text)
    text = re.sub(r"(?m)^\*\*(?:Arguments|Options|Examples?)\*\*:?\n\n", "", text)
    text = _list_common_options(_list_commands(_share_options(text)))
    return re.sub(r"\n{3,}", "\n\n", wrap(f"{HEAD}\n{text}\n"))


def _list_commands(text: str) -> str:
    """Shorten the lists of commands to links: each summary follows in the section of its command."""
    lists = re.compile(r"(?m)^(?P<title>\*\*\w+\*\*:)\n\n(?P<commands>(?:\* \[`.*\n)+)")
    link = re.compile(r"\[`[^\]]+`\]\([^)]+\)")
    return lists.sub(lambda found: f"{found['title']} {', '.join(link.findall(found['commands']))}\n", text)


def _share_options(text: str) -> str:
    """Keep the first copy of a group of options that several commands have, and link to it elsewhere."""
    shown: set[str] = set()

    def replace(group: re.Match[str]) -> str:
        name = group["name"]
        if name in shown:
            return f"[{name}](#{name.lower().replace(' ', '-')}): all.\n"
        shown.add(name)
        return f"### {name}\n\n{group['options']}"

    return SHARED_OPTIONS.sub(replace, text)


def _list_common_options(text: str) -> str:
    """Describe options that many commands have at the top, and only name them in the sections of the commands."""
    overview, *sections = re.split(r"(?m)^(?=##+ )", text)
    uses = Counter(option for section in sections for option in OPTION.findall(section))
    common = sorted(option for option, number in uses.items() if number >= MIN_USES)

    def shorten(section: str) -> str:
        used = [option for option in common if option in section]
        if not used or not section.startswith(("## hiero", "### hiero", "#### hiero")):
            return section
        flags = [re.findall(r"(?<![a-z])--?[a-z-]+", option.partition(": ")[0]) for option in used]
        names = ", ".join(f"`{min(spellings, key=len)}`" for spellings in flags)
        for option in used:
            section = section.replace(option, "")
        note = f"[Common options](#common-options): {names}.\n\n"
        shared = re.search(r"(?m)^\[[\w-]+ options\]", section)
        place = shared.start() if shared else len(section)
        return f"{section[:place].rstrip()}\n\n{note}{section[place:]}"

    return "".join([overview, "## Common options\n\n", *common, "\n", *map(shorten, sections)])


def _to_code_block(examples: re.Match[str]) -> str:
    lines = [line.removeprefix("* `").removesuffix("`") for line in examples[0].splitlines()]
    return "\n".join(["```sh", *lines, "```", ""])
