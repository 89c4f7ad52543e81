"""What tuned kernels and tuned factories share: options of searches, and what was found."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from tvm.target import Target

from warploom import hooks
from warploom.errors import ArgumentError
from warploom.language.tuning.space import Config, Space
from warploom.language.tuning.task import Best, Rank, Task

#: Options of a search that calls of ``tune`` may change.
OPTIONS = ("trials", "work_dir", "devices", "max_workers", "seed", "verbose")


@dataclass(frozen=True)
class Options:
    """How a factory is tuned; see :func:`warploom.autotune`."""

    space: Space
    key: tuple[str, ...] | None = None
    trials: int = 32
    reference: Callable[..., Any] | None = None
    inputs: Callable[..., Mapping[str, Any]] | None = None
    rank: Rank | None = None
    work_dir: Path | None = None
    devices: tuple[int, ...] = (0,)
    max_workers: int | None = None
    seed: int = 0
    verbose: bool = False

    def changed(self, **changes: Any) -> Options:
        """The options with those changes, of :data:`OPTIONS`, that are not None."""
        given = {name: value for name, value in changes.items() if value is not None}
        if "work_dir" in given:
            given["work_dir"] = Path(given["work_dir"])
        if "devices" in given:
            given["devices"] = tuple(given["devices"])
        return replace(self, **given)


class TuningInfo(NamedTuple):
    """What a tuned kernel has done so far; the first names are those of ``functools.lru_cache``.

    Attributes
    ----------
    hits : int
        Calls whose config was known to the process.
    misses : int
        Calls that looked for a record.
    currsize : int
        Keys whose config is known.
    searches : int
        Keys for which configs were measured, by a call or by ``tune``.
    """

    hits: int
    misses: int
    currsize: int
    searches: int


class Tuner:
    """The best configs of a factory by key; searches for one at a time.

    Parameters
    ----------
    name : str
        Of the factory, for errors.
    options : Options
    """

    def __init__(self, name: str, options: Options) -> None:
        self.name, self.options = name, options
        self._found: dict[Hashable, tuple[Task, Best]] = {}
        self.latest_key: Hashable = None
        self._hits = self._misses = self._searches = 0
        self._lock = threading.RLock()

    def known(self, key: Hashable) -> Best | None:
        """The best config of a key, if this process knows it."""
        found = self._found.get(key)
        if found is None:
            return None
        self.hit(key)
        return found[1]

    def hit(self, key: Hashable) -> None:
        """Count a call whose config is known."""
        self._hits += 1
        self.latest_key = key

    def find(self, key: Hashable, task: Callable[[], Task]) -> Best:
        """The best config of a key: from a record, or by a search.

        Raises
        ------
        WarploomError
            If no config of the space has a kernel that is right.
        """
        with self._lock:
            best = self.known(key)  # of a thread that was quicker
            if best is None:
                self._misses += 1
                made = task()
                best = self._keep(key, made, hooks.tuner()(made, self.options, False))
            return best

    def search(self, key: Hashable, task: Task, options: Options) -> Best:
        """As :meth:`find`, but measure until as many configs as ``trials`` are measured."""
        with self._lock:
            return self._keep(key, task, hooks.tuner()(task, options, True))

    def _keep(self, key: Hashable, task: Task, best: Best) -> Best:
        self._searches += best.searched
        self._found[key] = (task, best)
        self.latest_key = key
        return best

    @property
    def latest(self) -> Best:
        """The best config of the last call.

        Raises
        ------
        ArgumentError
            If there was none.
        """
        found = self._found.get(self.latest_key)
        if found is None:
            raise ArgumentError(f"{self.name} has no config yet; call it, or its tune(...).")
        return found[1]

    @property
    def all(self) -> dict[str, Config]:
        """The best configs by key, in words."""
        return {str(task): dict(best.config) for task, best in self._found.values()}

    def info(self) -> TuningInfo:
        return TuningInfo(self._hits, self._misses, len(self._found), self._searches)

    def clear(self) -> None:
        """Forget configs and counts; the records on disk stay."""
        with self._lock:
            self._found.clear()
            self.latest_key = None
            self._hits = self._misses = self._searches = 0


@functools.lru_cache(maxsize=64)
def target_text(target: Target) -> str:
    """A target as part of a key; TVM takes tens of microseconds to write one."""
    return str(target)


def require_parameters(
    name: str, names: Sequence[str], parameters: Sequence[str], why: str
) -> None:
    """Refuse names that are no parameters of a factory.

    Raises
    ------
    ArgumentError
        The message has those that are.
    """
    for each in names:
        if each not in parameters:
            raise ArgumentError(
                f"{name}: {why} has {each!r}, which is none of its parameters "
                f"{', '.join(parameters) or '(it has none)'}."
            )
