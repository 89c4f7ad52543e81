"""The file of a GPU, which warploom reads, and the table for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warploom.target.measured import FORMAT
from warploom_bench.machine.bounds import implausible
from warploom_bench.machine.constants import CONSTANTS, constants
from warploom_bench.machine.measurement import Reading
from warploom_bench.machine.table import MEASUREMENTS
from warploom_bench.report import markdown_table


@dataclass(frozen=True)
class Result:
    """All that was measured of a GPU.

    Attributes
    ----------
    gpu : str
        As its driver calls it.
    sms, l2_bytes : int
        What its driver says.
    readings : tuple of Reading
    failed : Mapping
        Measurement -> why it has no readings.
    environment : Mapping
        Date, command, driver, clocks, power, versions.
    """

    gpu: str
    sms: int
    l2_bytes: int
    readings: tuple[Reading, ...]
    failed: Mapping[str, str]
    environment: Mapping[str, Any]

    @property
    def constants(self) -> dict[str, float]:
        """Of the cost model."""
        return constants(self.readings, {"sms": self.sms, "l2_bytes": self.l2_bytes})

    def facts(self) -> dict[str, float] | None:
        """What an unknown GPU is planned with; None if it is not measured, or cannot be true."""
        found = {one.key: one.value for one in self.readings if not implausible(one, self.sms)}
        clock, reads = found.get("clock light kernel"), found.get("dram-read reads")
        if clock is None or reads is None:
            return None
        return {
            "sms": self.sms, "l2_bytes": self.l2_bytes, "dram_bandwidth": 1e6 * reads,
            "clock": 1e6 * clock, "watts": _watts(self.environment),
        }  # fmt: skip

    def json(self) -> dict[str, Any]:
        """The contents of the file."""
        return {
            "format": FORMAT,
            "gpu": self.gpu,
            "facts": self.facts(),
            "constants": self.constants,
            "readings": [
                asdict(one) | {"implausible": implausible(one, self.sms)} for one in self.readings
            ],
            "failed": dict(self.failed),
            "environment": dict(self.environment),
        }

    def write(self, path: Path) -> None:
        """Write the file, in one step: a reader sees the old one or the new one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        part.write_text(json.dumps(self.json(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
        part.replace(path)

    def tables(self) -> str:
        """Readings, then constants of the cost model, in Markdown."""
        rows = [
            [one.name, one.case, f"{one.value:,.4g}", one.unit, f"{one.spread:.2g}",
             implausible(one, self.sms) or MEASUREMENTS[one.name].what]
            for one in self.readings
        ]  # fmt: skip
        head = ["measurement", "case", "median", "unit", "quartiles", "what"]
        parts = [markdown_table(head, rows)]
        found = self.constants
        known = [
            [one.field, f"{found[one.field]:,.4g}", ", ".join(one.measurements), one.why]
            for one in CONSTANTS
            if one.field in found
        ]
        if known:
            parts.append(markdown_table(["constant", "value", "of", "how"], known))
        parts += [f"{name}: FAILED: {reason}" for name, reason in self.failed.items()]
        return "\n\n".join(parts)


def _watts(environment: Mapping[str, Any]) -> int:
    """The limit of the power; 0 where it is not known."""
    text = environment.get("gpu", {}).get("power.limit", "")
    try:
        return int(float(text.split()[0]))
    except (ValueError, IndexError):
        return 0
