"""What ``warploom inspect layout`` prints agrees with the PTX ISA's figures."""

import re
from xml.etree import ElementTree

import pytest

from warploom.errors import IllegalCombination
from warploom.layout import inspect
from warploom.layout.smem_matrix import SharedMatrix
from warploom.target.swizzle import Major, Swizzle


def printed(capsys, *arguments):
    assert inspect.main(list(arguments)) == 0
    return capsys.readouterr().out


def rows_of(text):
    """Row number -> cells, of the first table whose rows start with a number."""
    table = {}
    for line in text.splitlines():
        match = re.match(r" *(\d+) +(.*\S)", line)
        if match is None and len(table) > 1 and not set(line) <= set(" ─╶╴"):
            break
        if match:
            table[int(match[1])] = match[2].split()
    return table


def test_accumulator_map(capsys):
    text = printed(capsys, "wgmma-d", "--n", "32", "--dtype", "float32")
    rows = rows_of(text)
    assert sorted(rows) == list(range(16))
    for row, cells in rows.items():
        # Two consecutive registers for each lane of a quad, 8 columns after 8 columns.
        first = [4 * (pair // 4) + 2 * (row // 8) for pair in range(8)]
        lanes = [4 * (row % 8) + pair % 4 for pair in range(8)]
        assert cells == [f"T{t}:r{r}-{r + 1}" for t, r in zip(lanes, first, strict=True)]
    assert "wgmma D 64 x 32 float32" in text and "--columns 32" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_narrow_element_shares_its_register(capsys):
    rows = rows_of(printed(capsys, "wgmma-a", "--dtype", "float8_e4m3fn", "--columns", "32"))
    for row, cells in rows.items():
        registers = [2 * (run // 4) + row // 8 for run in range(8)]
        lanes = [4 * (row % 8) + run % 4 for run in range(8)]
        assert cells == [f"T{t}:r{r}" for t, r in zip(lanes, registers, strict=True)]


def test_a_map_wider_than_the_terminal_keeps_all_columns(capsys):
    rows = rows_of(printed(capsys, "wgmma-d", "--n", "256", "--columns", "256"))
    assert len(rows) == 16 and {len(cells) for cells in rows.values()} == {128}
    assert rows[15][-1] == "T31:r126-127"


def test_registers_of_a_lane(capsys):
    text = printed(capsys, "wgmma-d", "--n", "16", "--dtype", "float16", "--lane", "9")
    assert re.findall(r"^ +(r\d+) +(\d+) +(\S+)", text, re.M) == [
        ("r0", "2", "2-3"),
        ("r1", "10", "2-3"),
        ("r2", "2", "10-11"),
        ("r3", "10", "10-11"),
    ]


def test_several_blocks_are_listed_for_a_lane(capsys):
    text = printed(capsys, "wgmma-d", "--m", "128", "--n", "8")
    assert re.findall(r"^ +r(\S+) +(\d+) +(\S+)", text, re.M) == [
        ("0-1", "0", "0-1"),
        ("2-3", "8", "0-1"),
        ("4-5", "64", "0-1"),
        ("6-7", "72", "0-1"),
    ]


@pytest.mark.parametrize("swizzle", Swizzle)
@pytest.mark.parametrize("major", Major)
def test_shared_matrix(capsys, swizzle, major):
    name = "none" if swizzle is Swizzle.NONE else str(swizzle.row_bytes)
    arguments = ["--major", major.value, "--swizzle", name, "--shape", "64x128"]
    text = printed(capsys, "smem", "--dtype", "float16", *arguments)
    mn, k = (64, 128) if major is Major.K else (128, 64)
    matrix = SharedMatrix("float16", major, swizzle, mn, k)
    assert f"wgmma descriptor {matrix.descriptor:#018x}" in text
    assert f"tcgen05 descriptor {matrix.tcgen05_descriptor:#018x}" in text
    distances = re.findall(r"\((?:LBO|SBO)\) +(\d+) +(\d+) bytes", text)
    assert [int(b) for _, b in distances] == [matrix.leading_bytes, matrix.stride_bytes]
    assert [16 * int(v) for v, _ in distances] == [int(b) for _, b in distances]
    rows = rows_of(text[text.index("byte offsets") :])
    width = swizzle.row_bytes
    for row, cells in rows.items():
        for chunk, cell in enumerate(cells):
            atom, within = divmod(16 * chunk, width)
            assert int(cell) == swizzle.apply(atom * 64 * width + row * width + within)
    assert len(rows) == 16 and {len(cells) for cells in rows.values()} == {8}


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["wgmma-d", "--n", "12"], "multiple of 8"),
        (["wgmma-a", "--k", "24"], "multiple of 16"),
        (["smem", "--dtype", "int8", "--major", "MN"], "int8 operands are K-major only"),
        (["smem", "--shape", "60x64"], "do not divide its 60 x 64"),
    ],
)
def test_what_the_hardware_lacks_is_refused(arguments, message):
    with pytest.raises(IllegalCombination, match=message):
        inspect.main(arguments)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["wgmma-d", "--lane", "32"], "no lane"),
        (["smem", "--shape", "64"], "no shape"),
        (["wgmma-d", "--dtype", "int8"], "invalid choice"),
        (["wgmma-d", "--n", "0"], "is no integer from 1"),
        ([], "LAYOUT"),
    ],
)
def test_what_is_no_layout_is_refused(capsys, arguments, message):
    with pytest.raises(SystemExit) as caught:
        inspect.main(arguments)
    assert caught.value.code == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
def test_a_picture_of_a_swizzle_has_the_offsets_of_the_layout(swizzle, tmp_path, capsys):
    file = tmp_path / "smem.svg"
    columns = {"none": 8, "32B": 16, "64B": 32, "128B": 64}[swizzle]
    arguments = ["smem", "--swizzle", swizzle, "--shape", f"64x{columns}", "--svg", str(file)]
    assert inspect.main(arguments) == 0 and str(file) in capsys.readouterr().out
    tips = [one.text for one in ElementTree.parse(file).iter() if one.tag.endswith("title")]
    cells = {}
    for row, chunk, byte in re.findall(r"row (\d+), chunk (\d+): byte (\d+)", " ".join(tips)):
        cells[int(row), int(chunk)] = int(byte)
    assert len(cells) == 16 * columns // 8
    for (row, chunk), byte in cells.items():
        linear = 2 * (row * columns + 8 * chunk)
        mask = columns // 8 - 1  # PTX ISA: bits from 4 on, xor bits from 7 on
        assert byte == linear ^ ((linear >> 7 & mask) << 4)


def test_a_picture_of_a_fragment_gives_each_element_a_place_of_its_own(tmp_path):
    file = tmp_path / "d.svg"
    assert inspect.main(["wgmma-d", "--n", "16", "--columns", "16", "--svg", str(file)]) == 0
    tips = " ".join(one.text for one in ElementTree.parse(file).iter() if one.tag.endswith("title"))
    places = re.findall(r"warp (\d+), lane (\d+), register (\d+)", tips)
    assert len(places) == len(set(places)) == 16 * 16


def test_a_layout_of_ones_own_is_drawn(tmp_path, capsys):
    (tmp_path / "own.py").write_text(
        "from tvm.tirx.layout import TileLayout, S\nrows = TileLayout(S[(8, 4) : (4, 1)])\n"
        "from warploom.layout.fragment import wgmma_accumulator\n"
        "def lanes():\n    return wgmma_accumulator(64, 8)\n"
    )
    place, file = f"{tmp_path / 'own.py'}:rows", tmp_path / "own.svg"
    assert inspect.main(["of", place, "--shape", "8x4", "--svg", str(file)]) == 0
    assert "element (3, 2): byte 28, bank 7" in file.read_text()
    lanes = place.replace(":rows", ":lanes")
    options = ["of", lanes, "--shape", "64x8", "--dtype", "float32", "--svg", str(file)]
    assert inspect.main(options) == 0 and "lane 31" in file.read_text()
    with pytest.raises(SystemExit):
        inspect.main(["of", place, "--shape", "8x4"])
    assert "drawn only" in capsys.readouterr().err
