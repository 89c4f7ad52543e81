"""Timelines of kernels: when each role of a CTA waits, loads, multiplies and computes.

:func:`instrument` makes a kernel that records of a tile program, or of one with ``wl.span``; it
runs on a GPU and on the emulator. A :class:`Timeline` has the records of a launch: a table, a
trace for Perfetto, a picture. ``warploom profile`` does all of it. Kernels that are not
instrumented are those without this package, instruction for instruction.
"""

from __future__ import annotations

from warploom.profile.instrument import Instrumented, instrument
from warploom.profile.recording import Recording
from warploom.profile.streams import Span, Stream
from warploom.profile.timeline import Timeline

__all__ = ["Instrumented", "Recording", "Span", "Stream", "Timeline", "instrument"]
