"""Timelines in the JSON trace event format, which Perfetto and chrome://tracing load.

A CTA is a process, a stream a thread of it, a span a complete event (``"ph": "X"``) with times in
microseconds. Instructions of the emulator count as microseconds, so that the viewer's scale reads
as a number of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warploom.profile.streams import Streams

_NANOSECONDS = 1000.0


def trace_events(timeline: Streams) -> dict[str, Any]:
    """The trace as JSON has it."""
    scale = 1.0 if timeline.emulated else _NANOSECONDS
    events: list[dict[str, Any]] = []
    numbers: dict[int, int] = {}
    for stream in timeline.streams:
        thread = numbers[stream.cta] = numbers.get(stream.cta, -1) + 1
        where = {"pid": stream.cta, "tid": thread}
        if thread == 0:
            name = {"name": f"CTA {stream.cta} on SM {stream.sm}"}
            events.append({"ph": "M", "name": "process_name", **where, "args": name})
        for kind, value in (("thread_name", {"name": stream.name}),
                            ("thread_sort_index", {"sort_index": thread})):  # fmt: skip
            events.append({"ph": "M", "name": kind, **where, "args": value})
        for span in sorted(stream.spans, key=lambda span: (span.begin, -span.end)):
            times = {"ts": span.begin / scale, "dur": span.length / scale}
            fields = {"name": span.name, "cat": span.category}
            events.append({"ph": "X", **fields, **where, **times})
    unit = "instructions of the emulator, shown as us" if timeline.emulated else "us"
    metadata = {"unit": unit, "gigahertz": timeline.gigahertz}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": metadata}


def write_trace(timeline: Streams, path: Path) -> None:
    """Write :func:`trace_events` to a file."""
    path.write_text(json.dumps(trace_events(timeline)), encoding="utf-8")
