"""The few shapes that drawings of the site are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

#: What all pictures of the site look like: dark on a white card.
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #333 } .title { font-weight: 600 }
.small { font-size: 11px } .tiny { font-size: 9px } .end { text-anchor: end }
.middle { text-anchor: middle }
.halo { paint-order: stroke; stroke: #fff; stroke-width: 4px }
.faster { fill: #2a7f9e } .slower { fill: #c47a2c }
.line { stroke: #666; stroke-width: 1.2; fill: none } .dash { stroke-dasharray: 4 3 }
.box { stroke: #666; stroke-width: 1 }
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"
orient="auto"><path d="M0 0L8 4L0 8z" fill="#666"/></marker></defs>"""
#: Fills that are told apart by their lightness, too.
FILLS = ("#cfe8f3", "#fde3c0", "#d6efce", "#e9d8f2", "#f9d4d4", "#e3e3e3", "#fbf3b0", "#c9e7e4")


@dataclass
class Drawing:
    """A picture of a size, to which shapes are added.

    Examples
    --------
    >>> drawing = Drawing(100, 40, "A box")
    >>> drawing.box(10, 10, 80, 20, "tile")
    >>> drawing.svg().count("<rect")
    2
    """

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def box(
        self, x: float, y: float, width: float, height: float, text: str = "",
        fill: str = "#fff", style: str = "",
    ) -> None:  # fmt: skip
        """A box with lines of text in its middle."""
        self.parts.append(
            f'<rect class="box" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'rx="3" fill="{fill}"/>'
        )
        lines = text.split("\n") if text else []
        for index, line in enumerate(lines):
            below = y + height / 2 + 4.5 + 15 * (index - (len(lines) - 1) / 2)
            self.text(x + width / 2, below, line, f"middle {style}")

    def text(self, x: float, y: float, text: str, style: str = "") -> None:
        """A line of text; it begins at x unless the style says otherwise."""
        self.parts.append(f'<text class="{style}" x="{x:g}" y="{y:g}">{escape(text)}</text>')

    def arrow(self, path: str, dashed: bool = False) -> None:
        """An arrow along a path of SVG."""
        style = "line dash" if dashed else "line"
        self.parts.append(f'<path class="{style}" d="{path}" marker-end="url(#tip)"/>')

    def svg(self) -> str:
        """The picture."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" role="img" '
                f'viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}">',
                f"<title>{escape(self.title)}</title>",
                STYLE,
                f'<rect width="{self.width}" height="{self.height}" rx="6" fill="#fff"/>',
                *self.parts,
                "</svg>",
            ]
        )
