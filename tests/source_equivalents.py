"""Mutants that no test can tell from the package, each with its reason."""

from __future__ import annotations

#: ``SourceMutant.key`` -> reason.
EQUIVALENTS: dict[tuple[str, ...], str] = {}
