"""The common parts of all subcommands: parser, types of arguments, handler of errors.

A mistake of the user is one sentence on standard error and an exit status, before anything is
compiled; ``TVM_BACKTRACE=1`` shows the traceback of it as well.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from warploom.errors import WarploomError

#: Exit status after Ctrl-C, as shells have it.
INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """Reports wrong arguments in one line, and points to the help."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; `{self.prog} --help` explains the arguments.\n")


def guarded(name: str, run: Callable[[], int], failed: int = 2) -> int:
    """The exit status of a command; ``failed`` after an error, which is said in one sentence.

    Parameters
    ----------
    name : str
        Of the command, before the sentence.
    run : callable
        The command.
    failed : int
        The status after an error.
    """
    try:
        return run()
    except BrokenPipeError:  # the reader of a pipe has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("TVM_BACKTRACE", "0") not in ("", "0"):
            raise
        print(f"{name}: {sentence(error)}", file=sys.stderr)
        return failed


def sentence(error: Exception) -> str:
    """An error for a user of the command line.

    Those of warploom say themselves what is wrong; of others the kind is named, and the line of
    the user's own file that they come from.
    """
    if isinstance(error, WarploomError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"{error.name} is not installed; run: pip install {error.name.partition('.')[0]}"
    if isinstance(error, MemoryError):
        return "There is not enough memory for these sizes; use smaller sizes."
    from warploom.messages.frames import author_line

    text = next((line for line in str(error).strip().splitlines() if line), "no message")
    line = author_line(error.__traceback__)
    where = "" if line is None else f" ({line.path}:{line.number})"
    return f"{type(error).__name__}: {text}{where}; TVM_BACKTRACE=1 shows the traceback."


def positive(text: str) -> int:
    """Type of an argument: an integer of at least 1."""
    return _integer(text, 1)


def natural(text: str) -> int:
    """Type of an argument: an integer of at least 0."""
    return _integer(text, 0)


def duration(text: str) -> float:
    """Type of an argument: a finite number of at least 0, of seconds or minutes."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least 0")
    return value


def extents(form: str) -> Callable[[str], tuple[int, ...]]:
    """Type of an argument: integers of at least 1 in a form such as ``"MxNxK"`` or ``"SIZE,C"``."""
    separator = "," if "," in form else "x"

    def parse(text: str) -> tuple[int, ...]:
        parts = text.split(separator)
        if len(parts) != len(form.split(separator)):
            raise argparse.ArgumentTypeError(f"{text!r} is no {form}")
        return tuple(map(positive, parts))

    return parse


def _integer(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r} is no integer from {least} to 2147483647")
    return value


def input_file(text: str) -> Path:
    """Type of an argument: a file that can be read."""
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    if not os.access(path, os.R_OK):
        raise argparse.ArgumentTypeError(f"{text} cannot be read")
    return path


def output_folder(text: str) -> Path:
    """Type of an argument: a folder in which files can be made, or that can be made."""
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a file; name a folder")
    _require_writable(path, text)
    return path


def output_file(text: str) -> Path:
    """Type of an argument: a file that can be written, in a folder that is there or can be made."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder; name a file")
    _require_writable(path.parent, text)
    return path


def _require_writable(folder: Path, text: str) -> None:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"{text} cannot be written ({folder}: {error.strerror})"
        ) from None


def require_gpu(instead: str = "") -> None:
    """Refuse to go on without a CUDA device, real or emulated.

    Parameters
    ----------
    instead : str
        What is possible without one, as the end of the sentence.

    Raises
    ------
    WarploomError
        If TVM sees none.
    """
    import tvm

    if not tvm.cuda(0).exist:
        raise WarploomError(f"This needs a GPU, and TVM finds none{instead and '; ' + instead}.")


def load_object(
    place: str, kinds: tuple[type, ...], arguments: Sequence[Any] = ()
) -> tuple[Any, bool]:
    """Return the object that ``FILE.py:NAME`` names, or the result of a host function of that name.

    Parameters
    ----------
    place : str
    kinds : tuple of type
        Classes that it may have.
    arguments : sequence
        Of the function.

    Returns
    -------
    tuple of (Any, bool)
        The object, and whether a function with the arguments has returned it.

    Raises
    ------
    WarploomError
        If there is no such file or name, or it is of another class.
    """
    wanted = " or ".join(f"{'an' if k.__name__[0] in 'AEIOU' else 'a'} {k.__name__}" for k in kinds)
    file, _, name = place.partition(":")
    if not Path(file).is_file():
        raise WarploomError(f"There is no file {file}; write FILE.py:NAME.")
    if not name:
        raise WarploomError(f"{place} names nothing in the file; write {file}:NAME of {wanted}.")
    spec = importlib.util.spec_from_file_location("warploom_loaded", file)
    if spec is None or spec.loader is None:
        raise WarploomError(f"{file} is no Python file; write FILE.py:NAME of {wanted}.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        there = [key for key, value in vars(module).items() if isinstance(value, kinds)]
        raise WarploomError(
            f"{file} has no {name}; it must be {wanted}"
            + (f", such as {', '.join(there)}." if there else ".")
        )
    loaded = getattr(module, name)
    called = callable(loaded) and not isinstance(loaded, kinds)
    if called:
        loaded = loaded(*arguments)
    if not isinstance(loaded, kinds):
        raise WarploomError(f"{name} in {file} is {type(loaded).__name__}; it must be {wanted}.")
    return loaded, called
