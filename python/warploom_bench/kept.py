"""The comparisons of a run that was interrupted: ``--resume`` goes on behind them."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

from warploom.errors import WarploomError
from warploom_bench.report import Comparison

#: An option that does not change what is measured.
RESUME = "--resume"


class Kept:
    """The comparisons so far of a run, in a file beside its results.

    Parameters
    ----------
    folder : Path or None
        Of the results; nothing is kept without one.
    name : str
        Of the results' files.
    run : sequence of str
        What must be the same where a run goes on: its arguments and the GPU.
    resume : bool
        Whether to go on with an earlier run.

    Raises
    ------
    WarploomError
        If the earlier run had other arguments or another GPU, or there is no folder.
    """

    def __init__(self, folder: Path | None, name: str, run: Sequence[str], resume: bool) -> None:
        self.path = None if folder is None else folder / f"{name}.part"
        self.run = [word for word in run if word != RESUME]
        self.done: dict[str, Comparison] = {}
        if not resume:
            return
        if self.path is None:
            raise WarploomError(f"{RESUME} needs --out, the folder of the run that goes on.")
        if self.path.is_file():
            earlier, self.done = pickle.loads(self.path.read_bytes())
            if earlier != self.run:
                raise WarploomError(
                    f"{self.path} is of another run, {' '.join(earlier)}; leave {RESUME} out to "
                    "begin anew."
                )

    def add(self, comparison: Comparison) -> None:
        """Keep a comparison; the file is replaced as a whole."""
        self.done[str(comparison.shape)] = comparison
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new = self.path.with_suffix(".part-new")
            new.write_bytes(pickle.dumps((self.run, self.done)))
            new.replace(self.path)

    def finished(self) -> None:
        """Remove the file: all shapes are in the results."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
