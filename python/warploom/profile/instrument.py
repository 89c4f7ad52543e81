"""A tile program, or a kernel with ``wl.span``, as one that records a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.tirx import PrimFunc, is_buffer_var

from warploom import emulator
from warploom.lower.lowerings import PARTED, lower
from warploom.lower.tvm_passes import tile_pass
from warploom.profile.groups import Group
from warploom.profile.insert_spans import Inserted, insert_spans
from warploom.profile.recording import Recording
from warploom.profile.streams import Subject
from warploom.profile.timeline import Timeline, decode


@dataclass(frozen=True)
class Instrumented:
    """A kernel that records, and the meaning of its records.

    Attributes
    ----------
    func : PrimFunc
        The lowered kernel. Its last parameter is the memory of the records; the others are those
        of the program. For the pipelines ``"warploom"`` and ``"tirx"``.
    recording : Recording
    streams : tuple of str
        Names of the streams of a CTA.
    groups : tuple of Group
        The meaning of a record, by the number of its group.
    suppliers : tuple of (str, tuple of str)
        For each mbarrier the roles that complete its phases.

    Examples
    --------
    >>> kernel = profile.instrument(program)
    >>> kernel.streams[0]
    'load'
    >>> timeline = kernel.emulate([a, b, c])  # doctest: +SKIP
    """

    func: PrimFunc
    recording: Recording
    streams: tuple[str, ...]
    groups: tuple[Group, ...]
    suppliers: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def records(self) -> np.ndarray:
        """Memory for a launch: zeros, ``uint64``, of the shape that the last parameter has."""
        shape = (self.recording.rows, self.recording.ctas * len(self.streams))
        return np.zeros(shape, np.uint64)

    def timeline(self, records: Any, emulated: bool | None = None) -> Timeline:
        """Return the timeline that the records of a launch contain.

        Parameters
        ----------
        records : array or tensor
            As the launch has left it.
        emulated : bool, optional
            Whether the emulator launched it; by default, whether this process has the emulator.

        Raises
        ------
        WarploomError
            If the kernel has not run to its end.
        """
        array = records if isinstance(records, np.ndarray) else records.numpy()
        if emulated is None:
            emulated = emulator.is_enabled()
        capacity = self.recording.capacity
        return decode(array, self.streams, self.groups, capacity, emulated, self._subject())

    def _subject(self) -> Subject:
        name = str((self.func.attrs or {}).get("global_symbol", "kernel"))
        shown = tuple(
            f"{buffer.name}[{', '.join(map(str, buffer.shape))}] {buffer.dtype}"
            for buffer in self.func.params[:-1] if is_buffer_var(buffer)
        )  # fmt: skip
        return Subject(name, shown, dict(self.suppliers))

    def emulate(self, arguments: Sequence[Any], **options: Any) -> Timeline:
        """Run the kernel on the emulator; ``arguments`` are those of the program.

        ``options`` are those of :func:`warploom.emulator.run`. The emulator's clock counts the
        instructions of a cluster: its timelines show an order of events, and no time.
        """
        outputs = emulator.run(self.func, [*arguments, self.records()], **options).outputs
        return self.timeline(outputs[-1], emulated=True)


def instrument(
    func: PrimFunc, recording: Recording | None = None, arch: str | None = None
) -> Instrumented:
    """Lower a program to a kernel that records when its roles wait, load, multiply and compute.

    Parameters
    ----------
    func : PrimFunc
        A tile program, or a kernel orchestrated by hand that has ``wl.span`` or a scope of the
        dialect in it.
    recording : Recording, optional
        How much is recorded; see there for its default.
    arch : str, optional
        As for :func:`warploom.lower.lowerings.lower`.

    Returns
    -------
    Instrumented

    Raises
    ------
    Decline
        If no lowering takes the program.
    IllegalCombination
        If the records would take more than 1 GiB.

    Examples
    --------
    >>> kernel = instrument(program)
    >>> kernel.emulate([a, b, c]).write("trace.json")  # doctest: +SKIP
    """
    recording = Recording() if recording is None else recording
    inserted = Inserted()
    record = tile_pass("InsertSpans", insert_spans(recording, inserted))
    lowered = lower(func, arch, dict.fromkeys(PARTED, record))
    return Instrumented(
        lowered, recording, tuple(inserted.streams), tuple(inserted.groups),
        tuple(inserted.suppliers.items()),
    )  # fmt: skip
