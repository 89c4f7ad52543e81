"""``warploom completion SHELL``: a script that makes a shell complete warploom's command lines.

The words are those of the commands' own help, read when the script is made: make it again after an
update. Names of files are completed where no word fits.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from warploom.command_line import Parser
from warploom.errors import WarploomError

SHELLS = ("bash", "zsh", "fish")
_OPTION = re.compile(r"(?<![\w-])(--[a-z][\w-]*)")
#: Choices in a usage, and the word before them, which is an option if they are its values.
_CHOICES = re.compile(r"(\S+)\s+\{([^}]+)\}")
#: Subcommands with a metavar: their names begin the lines of the list.
_LISTED = re.compile(r"^ {4}(\w[\w-]*)(?: {2,}|$)", re.M)


class Command(Protocol):
    """A command: its words; ``module`` and ``run`` are None if it is a package's of its own."""

    words: tuple[str, ...]
    module: str | None
    run: Any


def words_after(
    commands: Sequence[Command], run: Callable[[list[str]], int]
) -> dict[str, list[str]]:
    """For each beginning of a command line the words that may follow it.

    Parameters
    ----------
    commands : sequence of Command
    run : callable
        Runs a command line, which may end in ``--help``.
    """
    found: dict[str, list[str]] = {"": ["--help", "--version"]}
    for command in commands:
        for place, word in enumerate(command.words):
            beginning = found.setdefault(" ".join(command.words[:place]), [])
            if word not in beginning:
                beginning.append(word)
        for words, following in _of_command(command, run):
            found[" ".join(words)] = following
    return found


def _of_command(
    command: Command, run: Callable[[list[str]], int]
) -> Iterator[tuple[list[str], list[str]]]:
    words = list(command.words)
    if command.module is None and command.run is None:  # a package that lists its own words
        package = importlib.import_module(f"warploom_{words[0]}.__main__")
        inner = list(package.COMMANDS)
        yield words, ["--help", *inner]
    else:
        text = help_of(words, run)
        inner = _subcommands(text)
        yield words, [*inner, *_options(text)]
    for word in inner:
        yield [*words, word], _options(help_of([*words, word], run))


def help_of(words: Sequence[str], run: Callable[[list[str]], int]) -> str:
    """The help of a command; empty if what it needs cannot be imported here."""
    text = io.StringIO()
    with (
        contextlib.redirect_stdout(text), contextlib.redirect_stderr(io.StringIO()),
        contextlib.suppress(SystemExit, ImportError),
    ):  # fmt: skip
        run([*words, "--help"])
    return text.getvalue()


def _options(text: str) -> list[str]:
    return list(dict.fromkeys(_OPTION.findall(text)))


def _subcommands(text: str) -> list[str]:
    """Names of subcommands: choices that the usage has as its own words."""
    usage = text.partition("\n\n")[0]
    if "..." not in usage:
        return []
    for before, choices in _CHOICES.findall(usage):
        if not before.lstrip("[").startswith("-") or before.endswith("]"):
            return choices.split(",")
    return _LISTED.findall(text.partition("positional arguments:")[2].partition("options:")[0])


def script(shell: str, words: dict[str, list[str]]) -> str:
    """The script for a shell.

    Parameters
    ----------
    shell : str
        One of :data:`SHELLS`.
    words : dict
        That of :func:`words_after`.

    Raises
    ------
    WarploomError
        If the shell is another one.
    """
    if shell not in SHELLS:
        raise WarploomError(f"The shell is {shell!r}; allowed are {', '.join(SHELLS)}.")
    return _fish(words) if shell == "fish" else _bash(words, shell == "zsh")


def _bash(words: dict[str, list[str]], zsh: bool) -> str:
    cases = "\n".join(
        f'    "{beginning}") words="{" ".join(following)}" ;;'
        for beginning, following in words.items()
    )
    begin = "autoload -U +X bashcompinit && bashcompinit\n" if zsh else ""
    return f"""# Completion of warploom for {"zsh" if zsh else "bash"}.
{begin}_warploom_words() {{
  local words=""
  case "$1" in
{cases}
  esac
  printf '%s' "$words"
}}
_warploom() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" line="" found="" try word i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="${{COMP_WORDS[i]}}"
    try="${{line:+$line }}$word"
    if [[ -n "$(_warploom_words "$try")" ]]; then line="$try"; fi
  done
  found="$(_warploom_words "$line")"
  COMPREPLY=($(compgen -W "$found" -- "$current"))
  if [[ ${{#COMPREPLY[@]}} -eq 0 ]]; then COMPREPLY=($(compgen -f -- "$current")); fi
}}
complete -o filenames -F _warploom warploom
"""


def _fish(words: dict[str, list[str]]) -> str:
    lines = ["# Completion of warploom for fish."]
    for beginning, following in words.items():
        parts = beginning.split()
        deeper = (key.split() for key in words if len(key.split()) > len(parts))
        inner = {key[len(parts)] for key in deeper if key[: len(parts)] == parts}
        seen = [f"__fish_seen_subcommand_from {part}" for part in parts]
        if inner:
            seen.append(f"not __fish_seen_subcommand_from {' '.join(sorted(inner))}")
        condition = "; and ".join(seen) or "true"
        for word in following:
            what = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            lines.append(f"complete -c warploom -n '{condition}' {what}")
    return "\n".join(lines) + "\n"


def main(
    arguments: Sequence[str], commands: Sequence[Command], run: Callable[[list[str]], int]
) -> int:
    """Print the script; ``commands`` and ``run`` are those of :func:`words_after`."""
    parser = Parser(prog="warploom completion", description=__doc__.partition(":")[2].strip())
    parser.add_argument("shell", choices=SHELLS)
    options = parser.parse_args(arguments)
    print(script(options.shell, words_after(commands, run)), end="")
    return 0
