"""Names of the annotations and attributes by which passes tell each other about a statement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.tirx import Buffer

from warploom.tile.hints import PREFIX

#: Annotation of a loop whose loads run ahead; ``stages`` says how many iterations.
PIPELINED, STAGES = PREFIX + "pipelined", PREFIX + "stages"
#: Annotations of a loop over the tiles of a CTA: that it is one; that a scheduler hands tiles out
#: as the kernel runs; that two warpgroups compute tiles in ping-pong.
TILES, DYNAMIC, PING_PONG = PREFIX + "tiles", PREFIX + "dynamic", PREFIX + "ping_pong"
#: Attribute of the statements of a step of slice-K, which one of so many warpgroups executes;
#: waiting for the stages that they read, and releasing them, included.
SLICE_STEP = PREFIX + "slice_step"
#: Attribute of statements that the first warpgroup executes.
FIRST = PREFIX + "first"
#: Attribute of statements on a part of a row, in a loop over all parts.
PART_OF_ROW = PREFIX + "part_of_row"
#: Attribute of statements that bring their own synchronisation.
ORCHESTRATED = PREFIX + "orchestrated"
#: Attributes with a slot, around statements that put sums there for other CTAs, or add those of
#: others.
GIVEN, TAKEN = PREFIX + "given", PREFIX + "taken"
#: Attribute of a function: values of symbolic sizes that its author knows, by name. The result does
#: not depend on them.
SIZES = PREFIX + "sizes"
#: Option of a load that TMA cannot do, and threads do: the reason, as a sentence.
BY_THREADS = "by_threads"
#: Option of a copy: the mbarrier that counts its bytes.
MBAR = "mbar"


@dataclass(frozen=True)
class Tiles:
    """The facts that the loop over the tiles of a CTA states about them.

    Attributes
    ----------
    cluster : tuple of (Buffer, int)
        For each dimension of the grid along which the CTAs of a cluster differ: the scalar that
        holds the place there, and how many CTAs.
    stores : Expr or None
        Whether this CTA stores its results; None if it always does.
    """

    cluster: tuple[tuple[Buffer, int], ...] = ()
    stores: Any = None

    def annotation(self) -> dict[str, Any]:
        """As the loop has it: its body defines the scalars, which the annotation names."""
        return {
            "cluster": {scalar.name: ctas for scalar, ctas in self.cluster},
            "stores": "" if self.stores is None else self.stores.source.name,
        }
