"""The rule by which one of several configs that were measured side by side gets the record."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from warploom.decide.config import Config

#: The least gain over the default, in parts of its time.
GAIN = 0.02


@dataclass(frozen=True)
class Verdict:
    """The config of a record.

    Attributes
    ----------
    config : Config
    us, default_us : float
        Medians of its samples and of the default's, of those that did not choose.
    """

    config: Config
    us: float
    default_us: float


def judge(
    samples: Mapping[Config, Sequence[float]], default: Config, gain: float = GAIN
) -> Verdict:
    """The fastest config if it certainly beats the default, and else the default.

    Every other round chooses the fastest, and the rounds between judge it: the least of several
    noisy medians would be too low. The fastest must beat the default in each of these rounds, and
    by ``gain`` in their median. What differs by less than the noise is left to the default, whose
    record then says that it was measured.

    Parameters
    ----------
    samples : mapping from Config to sequence of float
        Microseconds of each config in each round, in which all ran one after another; two rounds
        at least.
    default : Config
        One of them.
    gain : float
        In parts of the default's time.

    Examples
    --------
    >>> slow, fast = Config(stages=3), Config(stages=4)
    >>> judge({slow: [10.0, 10.1, 10.0, 10.1], fast: [9.0, 9.1, 9.0, 9.1]}, slow).config == fast
    True
    >>> judge({slow: [10.0, 10.1, 10.0, 10.1], fast: [9.0, 9.1, 9.0, 10.2]}, slow).config == slow
    True
    """
    fastest = min(samples, key=lambda config: statistics.median(samples[config][::2]))
    base = samples[default][1::2]
    pairs = list(zip(samples[fastest][1::2], base, strict=True))
    wins = all(mine < theirs for mine, theirs in pairs)
    least = statistics.median(theirs / mine for mine, theirs in pairs) * (1 - gain)
    config = fastest if wins and least >= 1 else default
    return Verdict(config, statistics.median(samples[config][1::2]), statistics.median(base))
