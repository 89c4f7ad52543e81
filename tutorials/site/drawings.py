"""The drawings of the page of concepts; layouts and orders are computed, not drawn by hand."""

from __future__ import annotations

from tutorials.site.svg import FILLS, Drawing
from warploom.layout.fragment import wgmma_accumulator
from warploom.layout.tables import Fragment
from warploom.schedulers.raster import grouped_tile
from warploom.target.swizzle import Swizzle


def pictures() -> dict[str, str]:
    """Every drawing by the name of its file."""
    made = (waist, pipeline, roles, cluster, order, swizzle, fragment)
    return {f"{each.__name__}.svg": each().svg() for each in made}


def waist() -> Drawing:
    """The tile program between front ends and architectures."""
    drawing = Drawing(700, 270, "Every kernel is a tile program first")
    for x, text in ((20, "TVMScript\ntile program"), (250, "te or S-TIR\nmatmul"),
                    (480, "Relax model,\nKV cache")):  # fmt: skip
        drawing.box(x, 15, 200, 44, text, FILLS[0])
        drawing.arrow(f"M{x + 100} 60L{250 + (x + 100 - 120) * 200 / 460:.0f} 98")
    drawing.box(200, 100, 300, 34, "tile program: one CTA, no thread named", FILLS[6])
    drawing.arrow("M350 135V158")
    drawing.box(150, 160, 400, 34, "passes: layouts, pipeline, roles, grid", FILLS[2])
    for x, text in ((60, "GPU: wgmma\n(sm_90a)"), (265, "GPU: tcgen05\n(sm_100a)"),
                    (470, "emulator\n(CPU, checks races)")):  # fmt: skip
        drawing.arrow(f"M{250 + (x - 60) * 200 / 410:.0f} 195L{x + 85} 218")
        drawing.box(x, 220, 170, 42, text, FILLS[1])
    return drawing


def pipeline(stages: int = 4, steps: int = 9) -> Drawing:
    """A ring of stages: when loads and MMAs of each iteration are under way."""
    width, left, unit = 700, 110, 40
    drawing = Drawing(width, 42 + 30 * (stages + 1), "A pipelined loop over time")
    drawing.text(left, 20, "time: each stage is loaded again as soon as its MMA is over", "small")
    for stage in range(stages):
        drawing.text(left - 10, 51 + 30 * stage, f"stage {stage}", "end small")
    drawing.text(left - 10, 51 + 30 * stages, "tensor cores", "end small")
    load, mma, end = 2.2, 1.25, 0.0
    free = [0.0] * stages
    for k in range(steps):
        stage = k % stages
        start = max(free[stage], 0.25 * k)
        full = start + load
        begin = max(full, end)
        end = begin + mma
        fill = FILLS[stage]
        y = 36 + 30 * stage
        drawing.box(left + start * unit, y, load * unit, 22, f"load {k}", fill, "small")
        drawing.box(left + begin * unit, y, mma * unit, 22, f"read {k}", "#fff", "small")
        y = 36 + 30 * stages
        drawing.box(left + begin * unit, y, mma * unit, 22, f"MMA {k}", fill, "small")
        free[stage] = end
    return drawing


def roles() -> Drawing:
    """A producer warp and two consumer warpgroups with the barriers between them."""
    drawing = Drawing(700, 235, "Warp roles of a CTA")
    drawing.box(10, 10, 680, 215, "", "#fafafa")
    drawing.text(24, 32, "CTA", "title")
    drawing.box(30, 90, 140, 60, "producer warp\n(TMA loads)", FILLS[0])
    for stage in range(4):
        drawing.box(260, 50 + 38 * stage, 110, 30, f"A, B stage {stage}", FILLS[6], "small")
    drawing.text(315, 218, "ring in shared memory", "middle small")
    drawing.box(470, 55, 190, 60, "consumer warpgroup 0\n(MMAs, epilogue)", FILLS[2])
    drawing.box(470, 135, 190, 60, "consumer warpgroup 1\n(MMAs, epilogue)", FILLS[2])
    drawing.arrow("M171 110H258")
    drawing.text(214, 103, "bytes", "middle small")
    drawing.arrow("M371 95H468")
    drawing.text(420, 88, "full barrier", "middle small")
    drawing.arrow("M468 165H372")
    drawing.text(420, 180, "empty barrier", "middle small")
    drawing.arrow("M258 165H160V152", dashed=True)
    drawing.text(205, 180, "free again", "middle small")
    return drawing


def cluster() -> Drawing:
    """Two CTAs of a cluster: each loads half of B for both."""
    drawing = Drawing(700, 200, "A cluster of two CTAs shares its load of B")
    drawing.box(250, 10, 200, 36, "B tile in the L2 cache", FILLS[1])
    for index, x in enumerate((60, 400)):
        drawing.box(x, 100, 240, 88, "", FILLS[0])
        drawing.text(x + 120, 178, f"CTA {index}: row {index} of tiles of C", "middle small")
        drawing.box(x + 15, 112, 90, 46, f"A, tile {index}", FILLS[2], "small")
        drawing.box(x + 118, 112, 54, 46, "B,\nfirst half", FILLS[6], "tiny")
        drawing.box(x + 176, 112, 54, 46, "B, second\nhalf", FILLS[6], "tiny")
    drawing.arrow("M310 47L206 110")
    drawing.arrow("M310 47L544 110")
    drawing.arrow("M390 47L264 110", dashed=True)
    drawing.arrow("M390 47L602 110", dashed=True)
    drawing.text(20, 70, "CTA 0 asks for the first half,", "small")
    drawing.text(20, 86, "TMA writes it to both (multicast)", "small")
    drawing.text(520, 70, "CTA 1 asks for the second", "small")
    drawing.text(520, 86, "half, for both", "small")
    return drawing


def order(rows: int = 6, columns: int = 10, group: int = 3, ctas: int = 12) -> Drawing:
    """The tiles of C in the order of the scheduler; a wave is a colour."""
    size = 44
    drawing = Drawing(40 + columns * size + 180, 50 + rows * size, "The order of tiles")
    drawing.text(20, 22, f"{ctas} CTAs on {rows} x {columns} tiles, groups of {group} rows",
                 "title")  # fmt: skip
    for index in range(rows * columns):
        row, column = (int(x) for x in grouped_tile(index, rows, columns, group))
        wave = index // ctas
        drawing.box(20 + column * size, 36 + row * size, size, size, str(index),
                    FILLS[wave % len(FILLS)])  # fmt: skip
    for wave in range(-(-rows * columns // ctas)):
        x, y = 40 + columns * size, 50 + 30 * wave
        drawing.box(x, y, 20, 20, "", FILLS[wave % len(FILLS)])
        drawing.text(x + 28, y + 15, f"wave {wave}")
    return drawing


def swizzle(columns: int = 8, rows: int = 8) -> Drawing:
    """Where the 16-byte chunks of eight rows of 128 bytes lie, plain and swizzled."""
    size = 34
    gap = 80
    width = 60 + 2 * columns * size + gap
    drawing = Drawing(width, 74 + rows * size, "Chunks of 16 bytes in shared memory")
    for side, kind in enumerate((Swizzle.NONE, Swizzle.B128)):
        left = 30 + side * (columns * size + gap)
        name = "plain rows" if side == 0 else "128-byte swizzle"
        drawing.text(left, 22, name, "title")
        for row in range(rows):
            for column in range(columns):
                offset = (row * columns + column) * 16
                place = (kind.apply(offset) if side else offset) // 16
                y, x = divmod(place, columns)
                fill = FILLS[6] if column == 2 else "#fff"
                drawing.box(left + x * size, 34 + y * size, size, size, f"{row},{column}", fill,
                            "small")  # fmt: skip
        drawing.text(left, 54 + rows * size, "yellow: chunk 2 of every row", "small")
    return drawing


def fragment(rows: int = 16, columns: int = 16) -> Drawing:
    """Which lane of warp 0 holds an element of a wgmma accumulator."""
    held = Fragment("D", "float32", (64, columns), wgmma_accumulator(64, columns))
    size = 30
    drawing = Drawing(60 + columns * size + 170, 50 + rows * size, "Lanes of an accumulator")
    drawing.text(20, 22, f"D of wgmma, rows 0 to {rows - 1}: lane of warp 0", "title")
    for row in range(rows):
        for column in range(columns):
            _, lane, _ = held.place(row, column)
            fill = FILLS[6] if lane == 5 else FILLS[0] if row < 8 else "#fff"
            drawing.box(20 + column * size, 34 + row * size, size, size, str(lane), fill, "small")
    x = 36 + columns * size
    drawing.box(x, 40, 20, 20, "", FILLS[6])
    drawing.text(x + 28, 55, "lane 5 holds these", "small")
    drawing.text(x, 84, "Two neighbours of a row,", "small")
    drawing.text(x, 100, "then 8 rows further down,", "small")
    drawing.text(x, 116, "then 8 columns to the right.", "small")
    return drawing
