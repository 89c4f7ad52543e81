"""``warploom tutorials start DIR`` and ``check FILE``: exercises, and the ladders as skeletons.

``start`` writes the files of ``tutorials/exercises`` and of the ladders with TODOs in the place of
solutions. ``check`` runs one of them on the emulator, or on a GPU, and says what is still to do, or
wrong: an exercise by its own checks, a step of a ladder by its cases.
"""

from __future__ import annotations

import importlib.util
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from warploom.command_line import Parser, input_file, output_folder, sentence
from warploom.errors import WarploomError
from warploom.tutorials.check import check_matmul
from warploom.tutorials.skeleton import TODO, skeleton, todos

#: Folders with solutions, below that of the tutorials, and the architecture of ladders.
EXERCISES = "exercises"
LADDERS = {"ladder_hopper": "sm_90a", "ladder_blackwell": "sm_100a"}


@dataclass(frozen=True)
class Exercise:
    """An exercise of a tutorial.

    Attributes
    ----------
    task : str
        One sentence.
    check : callable
        Raises an error if the reader's solution is wrong.
    """

    task: str
    check: Callable[[], Any]


def solutions(tutorials: Path) -> Iterator[Path]:
    """All files with markers, exercises first.

    Raises
    ------
    WarploomError
        If there are none.
    """
    folders = [tutorials / EXERCISES, *(tutorials / name for name in LADDERS)]
    found = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    if not found:
        raise WarploomError(
            f"{tutorials} has no exercises; run in a checkout of warploom, or name the folder of "
            "the tutorials with --tutorials."
        )
    return (path for path in found if "# solution: " in path.read_text(encoding="utf-8"))


def start(tutorials: Path, out: Path) -> list[Path]:
    """Write a skeleton for each solution to the same place under ``out``.

    Raises
    ------
    WarploomError
        If a file is there already: a reader may have worked on it.
    """
    written = []
    for path in solutions(tutorials):
        place = out / path.relative_to(tutorials)
        if place.exists():
            raise WarploomError(f"{place} exists; name a new folder, or remove the file.")
        place.parent.mkdir(parents=True, exist_ok=True)
        text = skeleton(path.read_text(encoding="utf-8"), path.name)
        place.write_text(text, encoding="utf-8")
        written.append(place)
    return written


def check(path: Path) -> bool:
    """Run the checks of a file and print what each has found; whether all is right.

    Raises
    ------
    WarploomError
        If the file has neither exercises nor the cases of a ladder's step.
    """
    for todo in todos(path.read_text(encoding="utf-8")):
        print(f"{path.name}:{todo.line}: still {TODO[2:]}: {todo.hint}")
    try:
        module = _load(path)
    except WarploomError:
        raise
    except Exception as error:
        print(f"{path.name} does not run yet. {_said(error)}")
        return False
    exercises = getattr(module, "EXERCISES", None)
    if exercises is None:
        exercises = [_step(path, module)]
    right = [_passes(number, one) for number, one in enumerate(exercises, 1)]
    print(f"{sum(right)} of {len(right)} right")
    return all(right)


def _step(path: Path, module: ModuleType) -> Exercise:
    """The check of a step of a ladder."""
    arch = LADDERS.get(path.resolve().parent.name)
    if arch is None or not hasattr(module, "CASES") or not hasattr(module, "gemm"):
        raise WarploomError(
            f"{path} has no EXERCISES, and is no step of {' or '.join(LADDERS)}; give a file that "
            "`warploom tutorials start` has written."
        )
    title = path.stem.replace("_", " ")
    return Exercise(title, lambda: check_matmul(module.gemm, module.CASES, arch))


def _passes(number: int, exercise: Exercise) -> bool:
    print(f"{number}. {exercise.task}")
    try:
        exercise.check()
    except Exception as error:
        print(f"   not yet. {_said(error)}")
        return False
    print("   right")
    return True


def _said(error: Exception) -> str:
    if isinstance(error, AssertionError):
        line = traceback.extract_tb(error.__traceback__)[-1]
        return " ".join(str(error).split()) or f"It fails: {line.line}"
    return sentence(error)


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"warploom_exercise_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise WarploomError(f"{path} is no Python file.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(arguments: Sequence[str]) -> int:
    """``warploom tutorials start``."""
    parser = Parser(
        prog="warploom tutorials start",
        description="Write the exercises, and the steps of the ladders, with TODOs to fill in.",
    )
    parser.add_argument("out", type=output_folder, metavar="DIR", help="folder for the files")
    parser.add_argument(
        "--tutorials", type=Path, default=Path("tutorials"),
        help="folder of the tutorials (default: %(default)s)",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    for path in start(options.tutorials, options.out):
        print(path)
    return 0


def check_main(arguments: Sequence[str]) -> int:
    """``warploom tutorials check``; the exit status is 0 if all is right."""
    parser = Parser(
        prog="warploom tutorials check",
        description="Check a file that `warploom tutorials start` has written.",
    )
    parser.add_argument("file", type=input_file, nargs="+")
    options = parser.parse_args(arguments)
    return int(not all([check(path) for path in options.file]))
