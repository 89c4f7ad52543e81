"""A kernel in parts that draws itself."""

from __future__ import annotations

from pathlib import Path

from warploom.diagram.parts import KernelParts
from warploom.diagram.picture import draw
from warploom.pictures import Picture, svg, write


class Kernel(KernelParts):
    """The parts of a kernel; with the attributes of :class:`KernelParts`, to be printed and drawn.

    A notebook shows the picture.
    """

    def picture(self) -> Picture:
        """A box for each role, what waits for what, and the map of shared memory."""
        return draw(self)

    def plot(self, path: str | Path) -> None:
        """Write :meth:`picture` as SVG or PNG, by the suffix of the file.

        Raises
        ------
        WarploomError
            If the suffix is another one; or matplotlib is not installed, for PNG.
        """
        write(self.picture(), path)

    def _repr_html_(self) -> str:
        return svg(self.picture())
