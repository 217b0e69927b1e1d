"""The pages of the documentation, their fenced blocks, and the shell commands in them."""

from __future__ import annotations

import ast
import json
import re
import shlex
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import jsonschema

ROOT = Path(__file__).parent.parent
SCHEMAS = ROOT / "hiero" / "assets" / "schemas"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(
    r"(?:^<!-- not run: (?P<reason>.+?) -->\n+)?^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
OPERATORS = {"|", "||", "&&", ";", "&", "(", ")", "{", "}"}
REDIRECTIONS = {">", ">>", "<", "2>", "&>", ">&", "<<<"}
KEYWORDS = {"do", "done", "then", "else", "fi", "if", "while", "for", "!", "time", "exec", "nice"}
ASSIGNMENT = re.compile(r"\w+=")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    code: str
    reason: str | None
    """Why its code is not run, from a comment above it."""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def check_schema(document: object, name: str) -> None:
    """Raise `jsonschema.ValidationError` if a document does not follow its schema."""
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)


def read_blocks(page: Path, *languages: str) -> list[Block]:
    """The blocks of a page in some languages."""
    text = page.read_text(encoding="utf-8")
    found = [match for match in FENCE.finditer(text) if match["language"] in languages]
    return [
        Block(
            page,
            text.count("\n", 0, match.start("code")) + 1,
            match["language"],
            "\n".join(line.removeprefix(match["indent"]) for line in match["code"].splitlines()),
            match["reason"],
        )
        for match in found
    ]


def read_shell_blocks(page: Path) -> list[Block]:
    """Scripts of a page, and the commands behind the prompts of its console sessions."""
    sessions = [
        replace(block, code="\n".join(line[2:] for line in block.code.splitlines() if line.startswith("$ ")))
        for block in read_blocks(page, "console")
        if "$ " in block.code
    ]
    return [*read_blocks(page, "sh", "bash"), *sessions]


def read_commands(script: str) -> list[list[str]]:
    """The words of each simple command of a shell script, without assignments, redirections and here-documents.

    Raises:
        ValueError: A quotation is not closed.
    """
    commands: list[list[str]] = []
    lines = iter(script.replace("\\\n", " ").splitlines())
    for line in lines:
        while True:
            try:
                words = _split(line)
                break
            except ValueError:
                line += "\n" + _next(lines)
        if "<<" in words:
            end = words[words.index("<<") + 1]
            while _next(lines).strip() != end:
                pass
            words = [word for i, word in enumerate(words) if word != "<<" and words[i - 1] != "<<"]
        commands += _simple_commands(words)
    return commands


def _next(lines) -> str:
    try:
        return next(lines)
    except StopIteration:
        raise ValueError("a quotation or here-document is not closed") from None


def _split(line: str) -> list[str]:
    """Words and operators; `$(…)` becomes one word."""
    line = re.sub(r"\$\([^()]*\)", "SUBSTITUTION", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>(){}")
    lexer.whitespace_split = True
    return list(lexer)


def _simple_commands(words: list[str]) -> list[list[str]]:
    """Words between operators, without what stands before and behind a command."""
    commands: list[list[str]] = [[]]
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in OPERATORS:
            commands.append([])
        elif word in REDIRECTIONS:
            skip = True
        else:
            commands[-1].append(word)
    return [command for command in map(_strip, commands) if command]


def _strip(command: list[str]) -> list[str]:
    """A command without what starts it in another way: assignments, `sudo`, a container, keywords of the shell."""
    match command:
        case ["for", *_] | ["export" | "set", *_]:
            return []
        case [first, *rest] if first in KEYWORDS or ASSIGNMENT.match(first):
            return _strip(rest)
        case ["sudo", "-u", _, *rest] | ["sudo", *rest]:
            return _strip(rest)
        case ["docker" | "podman", "compose", *rest] if "exec" in rest:
            return _strip([word for word in rest[rest.index("exec") + 1 :] if not word.startswith("-T")][1:])
        case ["docker" | "podman", "compose", "run", "--rm", "hiero", *rest]:
            return ["hiero", *rest]
        case [program, *rest]:
            return [Path(program).name, *rest]
    return []


@cache
def read_options(module: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """The options that a module of `benchmarks` adds to its parser, and the choices of its first argument."""
    options: set[str] = set()
    choices: tuple[str, ...] = ()
    for node in ast.walk(ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "add_argument":
            continue
        names = [name.value for name in node.args if isinstance(name, ast.Constant)]
        options |= {name for name in names if name.startswith("-")}
        values = {keyword.arg: keyword.value for keyword in node.keywords}
        is_first = not choices and not any(name.startswith("-") for name in names)
        if is_first and isinstance(values.get("choices"), ast.List):
            choices = tuple(ast.literal_eval(values["choices"]))
    return frozenset(options), choices
