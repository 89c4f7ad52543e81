"""Checks of sizes that all schedulers share."""

from __future__ import annotations

from warploom.errors import IllegalCombination


def require_positive(scheduler: str, **sizes: object) -> None:
    """Refuse sizes that are integers below 1; expressions are the caller's responsibility.

    Raises
    ------
    IllegalCombination
        With the offending size.
    """
    for name, size in sizes.items():
        if isinstance(size, int) and size < 1:
            raise IllegalCombination(f"{scheduler}: {name} = {size}; it must be at least 1.")
